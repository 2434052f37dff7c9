//! `[[rule]]`: the rule table (seed 000, table 6).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use mpip_core::rules::{PATH_LISTS, path_lists};
use mpip_core::{Copies, PathPreference, Prefix, Priority, Rule, RulePaths, SchedulerKind};
use toml::Spanned;

use super::interface;
use super::problems::Problems;
use super::raw::{self, Word};
use super::rule_text as text;
use super::structure;
use super::suggestion::did_you_mean;
use super::values::{check_visible_name, named, names};

/// The keys whose values are `true` or `false`.
const FLAGS: [&str; 2] = ["repair", "ordered"];

/// The key of the table with a list of interfaces.
const PATHS: &str = "paths";

/// What rules can name.
#[derive(Clone, Debug, Default)]
pub struct Known<'a> {
    /// The configured peers.
    pub peers: Vec<&'a str>,
    /// Whether there may be others, which join while the daemon runs.
    pub others_join: bool,
    /// The labels of interfaces.
    pub labels: BTreeSet<&'a str>,
}

/// The rules in which nothing is wrong, in order.
pub(super) fn resolve(
    rules: &[Spanned<raw::Rule>],
    known: &Known<'_>,
    problems: &mut Problems<'_>,
) -> Vec<Rule> {
    let (mut names, mut lists) = (BTreeMap::new(), BTreeSet::new());
    let mut resolved = Vec::new();
    for rule in rules {
        let Some(next) = one(rule, known, &mut names, problems) else { continue };
        lists.extend(path_lists([&next]));
        if lists.len() > PATH_LISTS && next.paths.is_some() {
            problems.add(&rule.span(), format!("rule: {}", too_many_lists(lists.len())));
        }
        resolved.push(next);
    }
    resolved
}

/// Why a rule is refused with which the table has `found` different lists of interfaces.
pub(super) fn too_many_lists(found: usize) -> String {
    format!(
        "paths: expected at most {PATH_LISTS} different lists of interfaces in all rules, found \
         {found} with this one"
    )
}

/// The rule with `settings`: keys of a `[[rule]]` and their values, without quotes. A list of
/// interfaces has the key `paths.only`, `paths.prefer` or `paths.avoid`, and commas between them.
/// They are judged as those of a file, by the same code.
///
/// # Errors
///
/// Everything that is wrong, a line each.
pub(super) fn of_settings(
    settings: &BTreeMap<String, String>,
    known: &Known<'_>,
) -> Result<Rule, String> {
    let text = |text: &str| toml::Value::String(text.to_owned());
    let mut section = toml::Table::new();
    let mut paths = toml::Table::new();
    for (key, value) in settings {
        let list = key.split_once('.').filter(|(table, preference)| {
            *table == PATHS && PathPreference::from_name(preference).is_some()
        });
        match (list, value.parse()) {
            (Some((_, preference)), _) => {
                let names = value.split(',').map(|name| text(name.trim()));
                paths.insert(preference.to_owned(), toml::Value::Array(names.collect()));
            }
            (None, Ok(flag)) if FLAGS.contains(&key.as_str()) => {
                section.insert(key.clone(), toml::Value::Boolean(flag));
            }
            _ => {
                section.insert(key.clone(), text(value));
            }
        }
    }
    if !paths.is_empty() {
        section.insert(PATHS.to_owned(), toml::Value::Table(paths));
    }
    let rules = toml::Value::Array(vec![toml::Value::Table(section)]);
    let text = toml::Table::from_iter([("rule".to_owned(), rules)]).to_string();
    let mut problems = Problems::new(&text);
    let raw = structure::read(&text, &mut problems);
    let rules = raw.map(|raw| resolve(&raw.rule, known, &mut problems)).unwrap_or_default();
    problems.check().map_err(|problems| {
        let messages: Vec<String> = problems.into_iter().map(|it| it.message).collect();
        messages.join("\n")
    })?;
    Ok(rules.into_iter().next().expect("without problems every section is a rule"))
}

/// The rule, if nothing is wrong with it. `names`: those of the rules before it, and their lines.
fn one(
    rule: &Spanned<raw::Rule>,
    known: &Known<'_>,
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
        peer: raw.peer.as_ref().and_then(|peer| self::peer(peer, known, problems)),
        interface: raw.interface.as_ref().map(|name| {
            interface::check_name(name, "rule: interface", problems);
            name.get_ref().clone()
        }),
        copies: copies(raw, problems),
        priority: named(raw.priority.as_ref(), "rule: priority", &text::priorities(), problems)
            .flatten(),
        repair: raw.repair,
        ordered: raw.ordered,
        paths: raw.paths.as_ref().and_then(|paths| self::paths(paths, known, problems)),
        set_dscp: word(raw.set_dscp.as_ref(), "set_dscp", text::new_dscp, problems).flatten(),
        scheduler: scheduler(raw, problems),
    };
    if !treats(raw) {
        problems.missing::<()>(&span, "priority");
    }
    if let Some(reason) = never_matches(&resolved) {
        problems.add(&span, format!("rule: {reason}, so this rule would never match"));
    }
    (problems.count() == before).then_some(resolved)
}

/// Whether a rule says how packets are treated, and not only which ones.
fn treats(raw: &raw::Rule) -> bool {
    raw.priority.is_some()
        || raw.copies.is_some()
        || raw.repair
        || raw.ordered.is_some()
        || raw.paths.is_some()
        || raw.set_dscp.is_some()
        || raw.scheduler.is_some()
}

/// Refuses the key at `span` if the priority `found` is not the one that it needs.
fn needs_priority(
    key: &str,
    span: &Range<usize>,
    expected: Priority,
    found: &str,
    problems: &mut Problems<'_>,
) {
    if found != expected.name() {
        let message =
            format!("rule: {key}: expected priority `{expected}` with it, found `{found}`");
        problems.add(span, message);
    }
}

/// On how many paths packets are sent, which only those of priority `redundant` can say.
fn copies(raw: &raw::Rule, problems: &mut Problems<'_>) -> Copies {
    let copies = word(raw.copies.as_ref(), "copies", text::copies, problems);
    if let Some(copies) = &raw.copies {
        let found = raw.priority.as_ref().map_or(text::AUTO, |priority| priority.get_ref());
        needs_priority("copies", &copies.span(), Priority::Redundant, found, problems);
    }
    copies.unwrap_or_default()
}

/// The peer that is named so.
fn peer(name: &Spanned<String>, known: &Known<'_>, problems: &mut Problems<'_>) -> Option<String> {
    let text = name.get_ref();
    if known.others_join || known.peers.contains(&text.as_str()) {
        return Some(text.clone());
    }
    let message = match known.peers.is_empty() {
        true => format!("rule: peer: no peer is named `{text}`; there is none"),
        false => format!(
            "rule: peer: no peer is named `{text}`{}; there are: {}",
            did_you_mean(text, &known.peers),
            names(known.peers.iter().copied())
        ),
    };
    problems.none(&name.span(), message)
}

/// How paths are chosen, which only packets of priority `throughput` leave to a scheduler.
fn scheduler(raw: &raw::Rule, problems: &mut Problems<'_>) -> Option<SchedulerKind> {
    let scheduler = raw.scheduler.as_ref()?;
    if let Some(found) = &raw.priority {
        let expected = Priority::Throughput;
        needs_priority("scheduler", &scheduler.span(), expected, found.get_ref(), problems);
    }
    named(Some(scheduler), "rule: scheduler", SchedulerKind::NAMES, problems)
}

/// The interfaces, by name or label, whose paths packets take or leave.
fn paths(
    raw: &Spanned<raw::RulePaths>,
    known: &Known<'_>,
    problems: &mut Problems<'_>,
) -> Option<RulePaths> {
    let raw::RulePaths { only, prefer, avoid } = raw.get_ref();
    let given = [
        (PathPreference::Only, only),
        (PathPreference::Prefer, prefer),
        (PathPreference::Avoid, avoid),
    ];
    let given: Vec<_> =
        given.into_iter().filter_map(|(key, list)| Some((key, list.as_ref()?))).collect();
    let [(preference, list)] = given[..] else {
        let found = match given.is_empty() {
            true => "none of them".to_owned(),
            false => names(given.iter().map(|(key, _)| key.name())),
        };
        let expected = names(PathPreference::NAMES.iter().map(|(name, _)| *name));
        let message = format!("rule: paths: expected one of {expected}, found {found}");
        return problems.none(&raw.span(), message);
    };
    let key = format!("rule: paths.{preference}");
    if list.get_ref().is_empty() {
        let message = format!("{key}: expected at least one interface, found none");
        problems.add(&list.span(), message);
    }
    for name in list.get_ref() {
        let text = name.get_ref();
        if !known.labels.contains(text.as_str()) && !interface::is_name(text) {
            let labels: Vec<&str> = known.labels.iter().copied().collect();
            let message = format!(
                "{key}: expected the label of a [[path]]{}, or the name of an interface (1 to {} \
                 visible ASCII characters without `/`, `:` and `%`), found `{text}`{}",
                if labels.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", names(labels.iter().copied()))
                },
                interface::NAME_MAX,
                did_you_mean(text, &labels)
            );
            problems.add(&name.span(), message);
        }
    }
    let interfaces = list.get_ref().iter().map(|name| name.get_ref().clone()).collect();
    Some(RulePaths { preference, interfaces })
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
