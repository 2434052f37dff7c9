//! Whether the host's packet filter (nftables, and iptables on top of it) lets mpip's packets in.
//!
//! Each packet that should arrive is walked through the chains of the hooks `prerouting` and
//! `input`. A rule whose conditions depend on more than is known of the packet (a set of addresses,
//! a rate, an extension of iptables) is skipped. If it might have accepted the packet, the finding
//! says "may".

mod walk;

use std::collections::BTreeMap;

use walk::{Drop, Packet, State};

use super::finding::{Finding, Mend, Severity};
use super::ruleset::Ruleset;
use super::subject::Subject;
use super::survey::{Start, Survey};

pub(super) fn check(survey: &Survey) -> Vec<Finding> {
    let Survey { subject, starts, .. } = survey;
    let Some(ruleset) = &survey.ruleset else { return Vec::new() };
    let mut findings = port(ruleset, subject, starts, ("udp", subject.listen_port));
    if let Some(tcp) = subject.tcp_port.filter(|tcp| tcp.required || tcp.named) {
        findings.extend(port(ruleset, subject, starts, ("tcp", tcp.number)).into_iter().map(
            |finding| match tcp.required {
                true => finding,
                false => Finding { severity: Severity::Note, ..finding },
            },
        ));
    }
    if subject.captures {
        findings.extend(captured(ruleset, subject));
    }
    findings
}

/// Whether packets of paths to `port` are accepted at every interface with paths.
fn port(
    ruleset: &Ruleset,
    subject: &Subject,
    starts: &[Start],
    (protocol, port): (&'static str, u16),
) -> Vec<Finding> {
    let mut dropped: BTreeMap<String, (Drop, bool)> = BTreeMap::new();
    for packet in arriving(subject, starts, protocol, port) {
        let Some(drop) = walk::walk(ruleset, &packet) else { continue };
        let answers = walk::walk(ruleset, &Packet { state: State::Established, ..packet });
        let entry = dropped.entry(drop.chain.clone()).or_insert((drop, false));
        entry.1 |= answers.is_some();
    }
    let finding = |(drop, answers): (Drop, bool)| {
        let verb = if drop.certain { "drops" } else { "may drop" };
        let upper = protocol.to_uppercase();
        let what = format!("the firewall {verb} {upper} to port {port} ({})", drop.reason);
        let mend =
            Mend::command(format!("nft insert rule {} {protocol} dport {port} accept", drop.chain));
        // A host that opens all paths itself needs only packets of established flows.
        if !subject.is_called && !answers {
            let why = "answers pass, but a peer cannot open paths, nor be the first to move to another \
                       address";
            return Finding::note(what, why, mend);
        }
        let why = if answers { "no path works" } else { "peers cannot open paths to this host" };
        Finding::wrong(what, why, mend)
    };
    dropped.into_values().map(finding).collect()
}

/// The first packets of paths that may arrive.
fn arriving<'a>(
    subject: &'a Subject,
    starts: &'a [Start],
    protocol: &'static str,
    port: u16,
) -> Vec<Packet<'a>> {
    let known = subject.endpoints.iter().map(|endpoint| Some(endpoint.ip()));
    let sources: Vec<_> = if subject.is_called { vec![None] } else { known.collect() };
    let mut packets = Vec::new();
    for ipv6 in [false, true] {
        let starts = starts.iter().filter(|start| start.address.is_ipv6() == ipv6);
        for start in starts {
            for source in &sources {
                if source.is_some_and(|source| source.is_ipv6() != ipv6) {
                    continue;
                }
                packets.push(Packet {
                    ipv6,
                    source: *source,
                    protocol,
                    destination_port: Some(port),
                    interface: &start.interface,
                    state: State::New,
                });
            }
        }
    }
    packets
}

/// Whether packets of captured connections are accepted: they arrive by the TUN device.
fn captured(ruleset: &Ruleset, subject: &Subject) -> Option<Finding> {
    let packet = |interface| Packet {
        ipv6: false,
        source: None,
        protocol: "tcp",
        destination_port: None,
        interface,
        state: State::Established,
    };
    let interface = subject.interface.as_str();
    let drop = walk::walk(ruleset, &packet(interface))?;
    let verb = if drop.certain { "drops" } else { "may drop" };
    let chain = &drop.chain;
    Some(Finding::wrong(
        format!("the firewall {verb} packets that arrive by {interface} ({})", drop.reason),
        "connections break when they move onto the paths",
        Mend::command(format!(
            "nft insert rule {chain} iifname {interface} ct state established,related accept"
        )),
    ))
}

/// Whether packets of peers that are to be forwarded get past the other tables.
pub(super) fn passing(ruleset: &Ruleset, subject: &Subject) -> Option<Finding> {
    let interface = subject.interface.as_str();
    let packet = Packet {
        ipv6: false,
        source: None,
        protocol: "tcp",
        destination_port: None,
        interface,
        state: State::New,
    };
    let drop = walk::walk_past(ruleset, &packet)?;
    // Ours drops what is to go nowhere.
    let own = subject.table.as_ref().map(|table| format!("inet {table} "));
    if own.is_some_and(|own| drop.chain.starts_with(&own)) {
        return None;
    }
    let verb = if drop.certain { "drops" } else { "may drop" };
    let chain = &drop.chain;
    Some(Finding::wrong(
        format!("the firewall {verb} what is forwarded from {interface} ({})", drop.reason),
        "peers do not get beyond this host",
        Mend::command(format!(
            "nft insert rule {chain} iifname {interface} accept && nft insert rule {chain} oifname \
             {interface} ct state established,related accept"
        )),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests_support::start;
    use super::*;

    /// Default drop: loopback, known flows, ssh.
    const CLOSED: &str = include_str!("firewall/closed.json");
    /// The same with our port open.
    const OPEN: &str = include_str!("firewall/open.json");

    fn ruleset(text: &str) -> Ruleset {
        Ruleset::parse(text).expect("valid")
    }

    fn starts() -> [Start; 2] {
        [start(2, "eth0", "198.18.0.1/24"), start(3, "eth1", "2001:db8::1/64")]
    }

    fn udp(ruleset: &Ruleset, subject: &Subject) -> Vec<Finding> {
        port(ruleset, subject, &starts(), ("udp", subject.listen_port))
    }

    #[test]
    fn a_policy_that_drops_our_port_is_wrong_where_peers_call() {
        let findings = udp(&ruleset(CLOSED), &Subject::default());
        assert_eq!(findings.len(), 1, "one for both families: {findings:?}");
        assert_eq!(
            findings[0].what,
            "the firewall drops UDP to port 6182 (policy of the chain inet filter input)"
        );
        let command = "nft insert rule inet filter input udp dport 6182 accept";
        assert_eq!(findings[0].mend, Mend::command(command));
        assert_eq!(findings[0].severity, Severity::Wrong);
        assert_eq!(udp(&ruleset(OPEN), &Subject::default()), []);
    }

    #[test]
    fn a_host_that_opens_all_paths_needs_only_answers() {
        let subject = Subject {
            is_called: false,
            endpoints: vec!["198.18.0.2:6182".parse().expect("valid")],
            ..Subject::default()
        };
        assert_eq!(udp(&ruleset(CLOSED), &subject)[0].severity, Severity::Note);
        let nothing = r#"{"nftables": [{"chain": {"family": "ip", "table": "t", "name": "in",
            "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}}]}"#;
        let findings = udp(&ruleset(nothing), &subject);
        assert_eq!(
            (findings[0].severity, findings[0].why.as_str()),
            (Severity::Wrong, "no path works")
        );
    }

    #[test]
    fn connections_that_move_need_more_than_the_rules_of_their_interface() {
        let subject = Subject { captures: true, ..Subject::default() };
        assert_eq!(captured(&ruleset(CLOSED), &subject), None, "established flows are let in");
        let by_interface = CLOSED.replace(
            r#""expr": [{"match": {"op": "in", "left": {"ct""#,
            r#""expr": [{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "eth0"}},
            {"match": {"op": "in", "left": {"ct""#,
        );
        assert_ne!(by_interface, CLOSED);
        let finding = captured(&ruleset(&by_interface), &subject).expect("dropped");
        let command = "nft insert rule inet filter input iifname mpip0 ct state \
                       established,related accept";
        assert_eq!(finding.mend, Mend::command(command));
    }
}
