//! The rule table as the control socket shows it, and which of its rules decides about a packet.
//!
//! A packet can be described in part. A condition about what is left out is undecided: then the
//! rule matches or not depending on it, and the search goes on.

use std::collections::BTreeMap;

use mpip_api::{RuleDependence, RuleOverride, RuleStatus, RuleTable, RuleTest, Treatment};
use mpip_core::{Priority, Rule, rules};

use crate::config::{ListedRule, RuleList, rule_text};

mod packet;

pub(crate) use packet::Packet;

/// The table `list`.
pub(crate) fn table(list: &RuleList) -> RuleTable {
    let rules = list.listed().iter().zip(1..).map(|(listed, number)| status(listed, number));
    RuleTable { rules: rules.collect(), default: treatment(rules::Treatment::default()) }
}

/// What differs between `list` and the rules of the file, if anything does.
pub(crate) fn overrides(list: &RuleList) -> Option<RuleOverride> {
    let changed = list.changes() > 0;
    changed.then(|| RuleOverride { in_file: list.in_file() as u64, table: table(list).rules })
}

/// Which rule of `list` decides about `packet`. The peer is not filled in.
pub(crate) fn test(list: &RuleList, packet: &Packet) -> RuleTest {
    let mut depends = Vec::new();
    for (listed, number) in list.listed().iter().zip(1..) {
        let (decided, on) = packet.decided(&listed.rule);
        if !rules::matches(&decided, &packet.header, packet.length) {
            continue;
        }
        let rule = status(listed, number);
        if on.is_empty() {
            let treatment = rule.treatment.clone();
            return RuleTest { rule: Some(rule), treatment, depends, peer: None };
        }
        let on = on.into_iter().map(str::to_owned).collect();
        depends.push(RuleDependence { rule, on });
    }
    let treatment = treatment(rules::Treatment::default());
    RuleTest { rule: None, treatment, depends, peer: None }
}

fn status(listed: &ListedRule, number: u64) -> RuleStatus {
    let ListedRule { rule, file_number } = listed;
    RuleStatus {
        number,
        name: rule.name.clone(),
        file_number: file_number.map(|number| number as u64),
        matches: matches(rule),
        treatment: treatment(rules::Treatment::of(rule)),
    }
}

fn treatment(treatment: rules::Treatment) -> Treatment {
    let rules::Treatment { priority, repair, by_rule: _ } = treatment;
    Treatment { priority: name(priority).to_owned(), repair }
}

fn name(priority: Priority) -> &'static str {
    let named = Priority::NAMES.iter().find(|(_, other)| *other == priority);
    named.expect("every priority has a name").0
}

/// What packets have to match, as text.
fn matches(rule: &Rule) -> BTreeMap<String, String> {
    // All fields are named, so that none is forgotten.
    let Rule {
        name: _,
        remote_prefix,
        remote_port,
        local_prefix,
        local_port,
        protocol,
        length,
        dscp,
        priority: _,
        repair: _,
    } = rule;
    let values = [
        ("remote_prefix", remote_prefix.map(|prefix| prefix.to_string())),
        ("remote_port", remote_port.as_ref().map(rule_text::ports_text)),
        ("local_prefix", local_prefix.map(|prefix| prefix.to_string())),
        ("local_port", local_port.as_ref().map(rule_text::ports_text)),
        ("protocol", protocol.map(rule_text::protocol_name)),
        ("length", length.as_ref().map(rule_text::range_text)),
        ("dscp", dscp.map(rule_text::dscp_name)),
    ];
    let given = |(key, value): (&str, Option<String>)| Some((key.to_owned(), value?));
    values.into_iter().filter_map(given).collect()
}

#[cfg(test)]
mod tests;
