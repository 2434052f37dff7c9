//! `[[rule]]`: the rule table (seed 000, table 6).

use std::collections::BTreeMap;

use mpip_core::{Prefix, Priority, Rule};
use toml::Spanned;

use super::problems::Problems;
use super::raw::{self, Word};
use super::rule_text as text;
use super::structure;
use super::values::{check_visible_name, named};

/// The key whose value is no text.
const REPAIR: &str = "repair";

/// The rules in which nothing is wrong, in order.
pub(super) fn resolve(rules: &[Spanned<raw::Rule>], problems: &mut Problems<'_>) -> Vec<Rule> {
    let mut names = BTreeMap::new();
    rules.iter().filter_map(|rule| one(rule, &mut names, problems)).collect()
}

/// The rule with `settings`: keys of a `[[rule]]` and their values, without quotes. They are judged
/// as those of a file, by the same code.
///
/// # Errors
///
/// Everything that is wrong, a line each.
pub(super) fn of_settings(settings: &BTreeMap<String, String>) -> Result<Rule, String> {
    let value = |key: &str, text: &str| match text.parse() {
        Ok(flag) if key == REPAIR => toml::Value::Boolean(flag),
        _ => toml::Value::String(text.to_owned()),
    };
    let section = settings.iter().map(|(key, text)| (key.clone(), value(key, text)));
    let rules = toml::Value::Array(vec![toml::Value::Table(section.collect())]);
    let text = toml::Table::from_iter([("rule".to_owned(), rules)]).to_string();
    let mut problems = Problems::new(&text);
    let raw = structure::read(&text, &mut problems);
    let rules = raw.map(|raw| resolve(&raw.rule, &mut problems)).unwrap_or_default();
    problems.check().map_err(|problems| {
        let messages: Vec<String> = problems.into_iter().map(|it| it.message).collect();
        messages.join("\n")
    })?;
    Ok(rules.into_iter().next().expect("without problems every section is a rule"))
}

/// The rule, if nothing is wrong with it. `names`: those of the rules before it, and their lines.
fn one(
    rule: &Spanned<raw::Rule>,
    names: &mut BTreeMap<String, usize>,
    problems: &mut Problems<'_>,
) -> Option<Rule> {
    let before = problems.count();
    let span = rule.span();
    let raw = rule.get_ref();
    let resolved = Rule {
        name: raw.name.as_ref().map(|name| self::name(name, names, problems)),
        remote_prefix: prefix(raw.remote_prefix.as_ref(), "remote_prefix", problems),
        remote_port: word(raw.remote_port.as_ref(), "remote_port", text::ports, problems),
        local_prefix: prefix(raw.local_prefix.as_ref(), "local_prefix", problems),
        local_port: word(raw.local_port.as_ref(), "local_port", text::ports, problems),
        protocol: word(raw.protocol.as_ref(), "protocol", text::protocol, problems),
        length: raw.length.as_ref().and_then(|length| match text::length(length.get_ref()) {
            Ok(range) => Some(range),
            Err(reason) => problems.none(&length.span(), format!("rule: length: {reason}")),
        }),
        dscp: word(raw.dscp.as_ref(), "dscp", text::dscp, problems),
        priority: match &raw.priority {
            Some(_) => named(raw.priority.as_ref(), "rule: priority", Priority::NAMES, problems),
            None => problems.missing(&span, "priority"),
        }
        .unwrap_or_default(),
        repair: raw.repair,
    };
    if let Some(reason) = never_matches(&resolved) {
        problems.add(&span, format!("rule: {reason}, so this rule would never match"));
    }
    (problems.count() == before).then_some(resolved)
}

/// Why no packet can match `rule`.
fn never_matches(rule: &Rule) -> Option<String> {
    let ports = [("remote_port", &rule.remote_port), ("local_port", &rule.local_port)];
    let key = ports.iter().find(|(_, ports)| ports.is_some()).map(|(key, _)| *key);
    if let (Some(key), Some(protocol)) = (key, rule.protocol)
        && !text::has_ports(protocol)
    {
        return Some(format!(
            "{key}: expected a protocol that has ports (tcp, udp, sctp, udplite), or none"
        ));
    }
    if let (Some(local), Some(remote)) = (rule.local_prefix, rule.remote_prefix)
        && local.address().is_ipv4() != remote.address().is_ipv4()
    {
        return Some(format!(
            "local_prefix: expected the IP version of the remote_prefix {remote}, found {local}"
        ));
    }
    None
}

/// The name, which differs from others and from every number.
fn name(
    name: &Spanned<String>,
    names: &mut BTreeMap<String, usize>,
    problems: &mut Problems<'_>,
) -> String {
    let (text, span) = (name.get_ref(), name.span());
    check_visible_name(name, problems);
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let message = format!(
            "name: expected not only digits, because rules have numbers too, found `{text}`"
        );
        problems.add(&span, message);
    }
    if let Some(other) = names.insert(text.clone(), problems.line_of(&span)) {
        let message = format!(
            "name: expected a different one for each rule, `{text}` is used in line {other}"
        );
        problems.add(&span, message);
    }
    text.clone()
}

fn prefix(
    found: Option<&Spanned<String>>,
    key: &str,
    problems: &mut Problems<'_>,
) -> Option<Prefix> {
    let found = found?;
    match found.get_ref().parse() {
        Ok(prefix) => Some(prefix),
        Err(error) => problems.none(&found.span(), format!("rule: {key}: {error}")),
    }
}

/// The value of `key`, which `read` finds in its text.
fn word<T>(
    found: Option<&Spanned<Word>>,
    key: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
    problems: &mut Problems<'_>,
) -> Option<T> {
    let found = found?;
    match read(&found.get_ref().to_string()) {
        Ok(value) => Some(value),
        Err(reason) => problems.none(&found.span(), format!("rule: {key}: {reason}")),
    }
}
