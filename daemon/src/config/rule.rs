//! `[[rule]]`: the rule table (seed 000, table 6).

use std::ops::RangeInclusive;

use mpip_core::{Prefix, Priority, Rule};
use toml::Spanned;

use super::problems::Problems;
use super::raw::{self, Protocol};
use super::values::{integer, named, names};

/// Protocols that a rule can name (IANA, Assigned Internet Protocol Numbers).
const PROTOCOLS: [(&str, u8); 9] = [
    ("icmp", 1),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("sctp", 132),
    ("udplite", 136),
];

/// Protocols whose headers begin with ports: TCP, UDP, DCCP, SCTP and UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// The rule, if nothing is wrong with it.
pub(super) fn resolve(rule: &Spanned<raw::Rule>, problems: &mut Problems<'_>) -> Option<Rule> {
    let before = problems.count();
    let span = rule.span();
    let raw = rule.get_ref();
    let resolved = Rule {
        remote_prefix: raw.remote_prefix.as_ref().and_then(|text| prefix(text, problems)),
        remote_port: raw
            .remote_port
            .as_ref()
            .and_then(|port| integer(port, "rule: remote_port", 1..=65_535, problems)),
        protocol: raw.protocol.as_ref().and_then(|protocol| number(protocol, problems)),
        length: raw.length.as_ref().and_then(|text| match length(text.get_ref()) {
            Ok(range) => Some(range),
            Err(reason) => problems.none(&text.span(), format!("rule: length: {reason}")),
        }),
        priority: match &raw.priority {
            Some(_) => named(raw.priority.as_ref(), "rule: priority", Priority::NAMES, problems),
            None => problems.missing(&span, "priority"),
        }
        .unwrap_or_default(),
        repair: raw.repair,
    };
    if resolved.remote_port.is_some()
        && let Some(protocol) = resolved.protocol
        && !WITH_PORTS.contains(&protocol)
    {
        let message = "rule: remote_port: expected a protocol that has ports (tcp, udp, sctp, \
                       udplite), or none, so this rule would never match";
        problems.add(&span, message.to_owned());
    }
    (problems.count() == before).then_some(resolved)
}

fn prefix(text: &Spanned<String>, problems: &mut Problems<'_>) -> Option<Prefix> {
    match text.get_ref().parse() {
        Ok(prefix) => Some(prefix),
        Err(error) => problems.none(&text.span(), format!("rule: remote_prefix: {error}")),
    }
}

fn number(protocol: &Spanned<Protocol>, problems: &mut Problems<'_>) -> Option<u8> {
    let found = match protocol.get_ref() {
        Protocol::Number(number) => {
            if let Ok(number) = u8::try_from(*number) {
                return Some(number);
            }
            number.to_string()
        }
        Protocol::Name(name) => {
            if let Some((_, number)) = PROTOCOLS.iter().find(|(known, _)| known == name) {
                return Some(*number);
            }
            name.clone()
        }
    };
    let expected = names(PROTOCOLS.iter().map(|(name, _)| *name));
    let message =
        format!("rule: protocol: expected one of {expected} or a number 0 to 255, found `{found}`");
    problems.none(&protocol.span(), message)
}

/// Parses `a-b` (both included) or `a-` (`a` and more).
fn length(text: &str) -> Result<RangeInclusive<u16>, String> {
    let expected = || {
        format!(
            "expected bytes of the IP packet like \"0-200\" or \"1000-\", at most 65535, \
             found `{text}`"
        )
    };
    let (from, to) = text.split_once('-').ok_or_else(expected)?;
    let from: u16 = from.trim().parse().map_err(|_| expected())?;
    let to: u16 = match to.trim() {
        "" => u16::MAX,
        to => to.parse().map_err(|_| expected())?,
    };
    if from > to {
        return Err(format!("expected the lower end first, found `{text}`"));
    }
    Ok(from..=to)
}
