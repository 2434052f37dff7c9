//! The rule table as the control socket shows it, and which of its rules decides about a packet.
//!
//! A packet can be described in part. A condition about what is left out is undecided: then the
//! rule matches or not depending on it, and the search goes on.

use std::collections::BTreeMap;

use mpip_api::{
    RuleDependence, RuleOverride, RulePaths, RuleStatus, RuleTable, RuleTest, Treatment, Way,
    WayPath,
};
use mpip_core::rules::{self, Origin};
use mpip_core::{Priority, Rule};

use crate::config::{ListedRule, RuleList, rule_text};
use crate::snapshot::ms;

mod packet;

pub(crate) use packet::Packet;

/// The table `list`.
pub(crate) fn table(list: &RuleList) -> RuleTable {
    let rules = list.listed().iter().zip(1..).map(|(listed, number)| status(listed, number));
    RuleTable { rules: rules.collect(), default: treatment(&Rule::default()) }
}

/// What differs between `list` and the rules of the file, if anything does.
pub(crate) fn overrides(list: &RuleList) -> Option<RuleOverride> {
    let changed = list.changes() > 0;
    changed.then(|| RuleOverride { in_file: list.in_file() as u64, table: table(list).rules })
}

/// Which rule of `list` decides about `packet`, which has this `origin`. The paths are not filled
/// in.
pub(crate) fn test(list: &RuleList, packet: &Packet, origin: Origin<'_>) -> RuleTest {
    let peer = origin.peer.map(str::to_owned);
    let mut depends = Vec::new();
    for (listed, number) in list.listed().iter().zip(1..) {
        let (decided, on) = packet.decided(&listed.rule);
        if !rules::matches(&decided, origin, &packet.header, packet.length) {
            continue;
        }
        let rule = status(listed, number);
        if on.is_empty() {
            let treatment = rule.treatment.clone();
            return RuleTest { rule: Some(rule), treatment, depends, peer, way: None };
        }
        let on = on.into_iter().map(str::to_owned).collect();
        depends.push(RuleDependence { rule, on });
    }
    let treatment = treatment(&Rule::default());
    RuleTest { rule: None, treatment, depends, peer, way: None }
}

fn status(listed: &ListedRule, number: u64) -> RuleStatus {
    let ListedRule { rule, file_number } = listed;
    RuleStatus {
        number,
        name: rule.name.clone(),
        file_number: file_number.map(|number| number as u64),
        matches: matches(rule),
        treatment: treatment(rule),
    }
}

fn treatment(rule: &Rule) -> Treatment {
    let Rule { copies, repair, ordered, paths, set_dscp, scheduler, .. } = rule;
    let priority = rule.given_priority();
    let redundant = priority == Some(Priority::Redundant);
    Treatment {
        priority: priority.map_or(rule_text::AUTO, Priority::name).to_owned(),
        copies: redundant.then(|| rule_text::copies_text(*copies)),
        repair: *repair,
        ordered: *ordered,
        paths: paths.as_ref().map(|paths| RulePaths {
            preference: paths.preference.name().to_owned(),
            interfaces: paths.interfaces.clone(),
        }),
        set_dscp: set_dscp.map(rule_text::dscp_name),
        scheduler: scheduler.map(|scheduler| scheduler.name().to_owned()),
    }
}

/// `way` as the control socket shows it.
pub(crate) fn shown_way(way: mpip_core::Way) -> Way {
    let path = |path: mpip_core::WayPath| WayPath {
        id: path.id,
        interface: path.interface,
        role: path.role.name().to_owned(),
        relative_delay_ms: path.relative_delay.map(ms),
        rtt_ms: path.rtt.map(ms),
        loss: path.loss,
        share: path.share,
        hold: path.hold.map(|hold| hold.name().to_owned()),
        preferred: path.preferred,
    };
    let paths = way.paths.into_iter().map(path).collect();
    Way { scheduler: way.scheduler.to_owned(), paths }
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
        peer,
        interface,
        priority: _,
        copies: _,
        repair: _,
        ordered: _,
        paths: _,
        set_dscp: _,
        scheduler: _,
    } = rule;
    let values = [
        ("remote_prefix", remote_prefix.map(|prefix| prefix.to_string())),
        ("remote_port", remote_port.as_ref().map(rule_text::ports_text)),
        ("local_prefix", local_prefix.map(|prefix| prefix.to_string())),
        ("local_port", local_port.as_ref().map(rule_text::ports_text)),
        ("protocol", protocol.map(rule_text::protocol_name)),
        ("length", length.as_ref().map(rule_text::range_text)),
        ("dscp", dscp.map(rule_text::dscp_name)),
        ("peer", peer.clone()),
        ("interface", interface.clone()),
    ];
    let given = |(key, value): (&str, Option<String>)| Some((key.to_owned(), value?));
    values.into_iter().filter_map(given).collect()
}

#[cfg(test)]
mod tests;
