//! Routing rules and marks: whether host mode's rules are asked before others, and what a killed
//! daemon left behind.

use std::path::Path;

use mpip_net::netlink::{Link, Route, RuleEntry};

use super::finding::{Finding, Mend};
use super::subject::Subject;
use super::survey::{Captured, Running, Survey};

/// The kernel's table of its own addresses.
const LOCAL_TABLE: u32 = 255;

/// Input interface of the host's own packets in routing rules.
const LOOPBACK: &str = "lo";

pub(super) fn check(survey: &Survey) -> Vec<Finding> {
    let Survey { subject, rules, running, .. } = survey;
    let mut findings = earlier_rules(subject, rules);
    findings.extend(escaping(subject, &survey.links, &survey.captured));
    let own = subject.table.as_deref();
    let filters = survey.ruleset.as_ref().map(|ruleset| ruleset.marks(own)).unwrap_or_default();
    findings.extend(marks(subject, rules, &filters));
    if matches!(running, Running::No) && !survey.links.iter().any(|l| l.name == subject.interface) {
        findings.extend(left_rules(subject, rules, &survey.own_routes));
        let record = survey.reverse_path_record.as_ref();
        findings.extend(record.map(|(file, text)| left_filters(file, text, &survey.links)));
    }
    findings
}

/// A rule as `ip rule` shows it.
fn shown(rule: &RuleEntry) -> String {
    let RuleEntry { ipv6, priority, source, destination, input, output, mark, .. } = rule;
    let from = source.map_or("all".to_owned(), |prefix| prefix.to_string());
    let mut text = format!("{priority}: {}from {from}", if rule.inverted { "not " } else { "" });
    if let Some(to) = destination {
        text += &format!(" to {to}");
    }
    if let Some((mark, mask)) = mark {
        text += &format!(" fwmark {mark:#x}/{mask:#x}");
    }
    for (word, name) in [("iif", input), ("oif", output)] {
        if let Some(name) = name {
            text += &format!(" {word} {name}");
        }
    }
    let table = rule.table.map_or("to no table".to_owned(), |table| format!("lookup {table}"));
    format!("the {} rule `{text} {table}`", if *ipv6 { "IPv6" } else { "IPv4" })
}

/// Other programs' rules that come before ours and may take packets that should be captured.
fn earlier_rules(subject: &Subject, rules: &[RuleEntry]) -> Vec<Finding> {
    if !subject.captures {
        return Vec::new();
    }
    let ours = &subject.host_mode;
    let peers = subject.peer_addresses();
    let takes = |rule: &&RuleEntry| {
        let elsewhere = rule.destination.is_some_and(|prefix| {
            !peers.is_empty() && !peers.iter().any(|peer| prefix.contains(*peer))
        });
        !rule.own
            && rule.priority <= ours.priority
            && rule.table != Some(LOCAL_TABLE)
            && rule.input.as_deref().is_none_or(|name| name == LOOPBACK)
            && rule.output.is_none()
            && (rule.inverted || (rule.mark.is_none() && !elsewhere))
    };
    let first = rules.iter().filter(takes).map(|rule| rule.priority).min().unwrap_or(0);
    let mend = match first.checked_sub(1) {
        Some(priority @ 1..) => format!("set `priority = {priority}` in [host_mode] and restart"),
        _ => format!("give that rule a priority above {}", ours.priority),
    };
    let finding = |rule: &RuleEntry| {
        Finding::wrong(
            format!("{} is asked before mpip's, whose priority is {}", shown(rule), ours.priority),
            "it may take packets that host mode is to capture",
            Mend::words(mend.clone()),
        )
    };
    rules.iter().filter(takes).map(finding).collect()
}

/// Captured packets that still leave by another interface than the TUN device.
fn escaping(subject: &Subject, links: &[Link], captured: &[Captured]) -> Vec<Finding> {
    let Some(ours) = links.iter().find(|link| link.name == subject.interface) else {
        return Vec::new();
    };
    let escapes = |captured: &&Captured| captured.leaves_by.is_some_and(|link| link != ours.index);
    let finding = |captured: &Captured| {
        let by = links.iter().find(|link| Some(link.index) == captured.leaves_by);
        let by = by.map_or("another interface", |link| link.name.as_str());
        Finding::wrong(
            format!("packets to {} leave by {by}", captured.destination),
            format!("a routing rule before mpip's keeps them from {}", subject.interface),
            Mend::words("see `ip rule`, and set a smaller `priority` in [host_mode]"),
        )
    };
    captured.iter().filter(escapes).map(finding).collect()
}

/// Rules and packet filters that use our mark. `filters` has the marks of packet filters, and
/// where.
fn marks(subject: &Subject, rules: &[RuleEntry], filters: &[(u32, String)]) -> Vec<Finding> {
    let bit = subject.host_mode.mark;
    let rules = rules.iter().filter(|rule| !rule.own);
    let mut used: Vec<(u32, String)> =
        rules.filter_map(|rule| rule.mark.map(|(mark, mask)| (mark & mask, shown(rule)))).collect();
    used.extend_from_slice(filters);
    let all = used.iter().fold(bit, |all, (mark, _)| all | mark);
    let free = (0..u32::BITS).rev().map(|shift| 1_u32 << shift).find(|bit| all & bit == 0);
    let mend = free.map_or("change the mark of one of them".to_owned(), |free| {
        format!("set `mark = {free:#x}` in [host_mode] and restart")
    });
    let finding = |(mark, place): &(u32, String)| {
        Finding::wrong(
            format!("{place} uses the mark {mark:#x}"),
            format!("mpip's own packets have {bit:#x}, and no others may"),
            Mend::words(mend.clone()),
        )
    };
    used.iter().filter(|(mark, _)| mark & bit != 0).map(finding).collect()
}

/// Rules that lead to a table without routes.
fn left_rules(subject: &Subject, rules: &[RuleEntry], routes: &[Route]) -> Option<Finding> {
    let table = subject.host_mode.table;
    // The next two tables are for peers behind NATs.
    let empty = |table: &u32| !routes.iter().any(|route| route.table == *table);
    let tables: Vec<u32> = (table..=table + 2).filter(empty).collect();
    let left = rules.iter().filter(|rule| rule.own);
    let commands: Vec<_> = left
        .filter_map(|rule| {
            let table = rule.table.filter(|table| tables.contains(table))?;
            let ip = if rule.ipv6 { "ip -6" } else { "ip" };
            Some(format!("{ip} rule del priority {} lookup {table}", rule.priority))
        })
        .collect();
    (!commands.is_empty()).then(|| {
        Finding::note(
            format!("rules for table {table} are left by an mpipd that was killed"),
            "they do no harm, and the next start removes them",
            Mend::command(commands.join(" && ")),
        )
    })
}

/// Reverse path filters that a killed daemon left loose. `text` has their original values.
fn left_filters(file: &Path, text: &str, links: &[Link]) -> Finding {
    let what = "reverse path filters are left loose by an mpipd that was killed";
    let why = "the next start puts them back";
    Finding::note(what, why, Mend::putting_back(file, text, links))
}

#[cfg(test)]
mod tests {
    use mpip_core::Prefix;

    use super::super::tests_support::link;
    use super::*;

    fn rule(priority: u32, table: u32) -> RuleEntry {
        RuleEntry { priority, table: Some(table), ..RuleEntry::default() }
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("valid")
    }

    fn host_mode() -> Subject {
        let endpoints = vec!["198.18.0.2:6182".parse().expect("valid")];
        Subject { captures: true, endpoints, ..Subject::default() }
    }

    #[test]
    fn rules_that_are_asked_before_ours_are_named() {
        let from = RuleEntry { source: Some(prefix("198.18.1.1/32")), ..rule(50, 101) };
        let own = RuleEntry { own: true, mark: Some((0, 1 << 28)), ..rule(61, 6182) };
        let elsewhere = RuleEntry { destination: Some(prefix("10.0.0.0/8")), ..rule(49, 7) };
        let there = RuleEntry { destination: Some(prefix("198.18.0.0/24")), ..rule(51, 7) };
        let forwarded = RuleEntry { input: Some("eth0".to_owned()), ..rule(10, 7) };
        let marked = RuleEntry { mark: Some((1, u32::MAX)), ..rule(11, 7) };
        let rules = [
            rule(0, 255),
            forwarded,
            marked.clone(),
            elsewhere,
            from,
            there,
            own,
            rule(32_766, 254),
        ];
        let findings = earlier_rules(&host_mode(), &rules);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].what.starts_with("the IPv4 rule `50: from 198.18.1.1/32 lookup 101`"));
        let mend = Mend::words("set `priority = 49` in [host_mode] and restart");
        assert_eq!(findings[0].mend, mend);
        assert_eq!(earlier_rules(&Subject::default(), &rules), [], "nothing is captured");

        let everything_else = RuleEntry { inverted: true, ..marked };
        let findings = earlier_rules(&host_mode(), &[everything_else]);
        assert!(findings[0].what.contains("11: not from all fwmark 0x1/0xffffffff"));
        let first = earlier_rules(&host_mode(), &[rule(1, 7)]);
        assert_eq!(first[0].mend, Mend::words("give that rule a priority above 61"));
    }

    #[test]
    fn captured_packets_that_leave_elsewhere_are_named() {
        let links = [link(2, "eth0"), link(9, "mpip0")];
        let to =
            |leaves_by| Captured { destination: "198.18.0.2".parse().expect("valid"), leaves_by };
        assert_eq!(escaping(&host_mode(), &links, &[to(Some(9)), to(None)]), []);
        let findings = escaping(&host_mode(), &links, &[to(Some(2))]);
        assert_eq!(findings[0].what, "packets to 198.18.0.2 leave by eth0");
    }

    #[test]
    fn others_that_use_our_mark_are_named() {
        let subject = Subject::default();
        let own = RuleEntry { own: true, mark: Some((0, 1 << 28)), ..rule(61, 6182) };
        let other = RuleEntry { mark: Some((0xca6c, u32::MAX)), ..rule(32_765, 51_820) };
        let filters = [(0x4000, "a chain".to_owned())];
        assert_eq!(marks(&subject, &[own, other.clone()], &filters), []);
        let taken = RuleEntry { mark: Some((0x1000_0000, 0x1000_0000)), ..other };
        let filters = [(0x9000_0000, "chain inet x y".to_owned())];
        let findings = marks(&subject, &[taken], &filters);
        assert_eq!(findings.len(), 2);
        assert_eq!(findings[1].what, "chain inet x y uses the mark 0x90000000");
        let mend = Mend::words("set `mark = 0x40000000` in [host_mode] and restart");
        assert_eq!(findings[0].mend, mend);
    }

    #[test]
    fn what_a_killed_daemon_left_is_named() {
        let subject = Subject::default();
        let refused = Route {
            prefix: prefix("198.18.0.2/32"),
            link: 0,
            source: None,
            mtu: None,
            table: 6182,
            metric: 4096,
        };
        let own = |ipv6| RuleEntry { own: true, ipv6, ..rule(61, 6182) };
        let finding = left_rules(&subject, &[own(false), own(true)], &[]).expect("left");
        let command = "ip rule del priority 61 lookup 6182 && ip -6 rule del priority 61 lookup \
                       6182";
        assert_eq!(finding.mend, Mend::command(command));
        assert_eq!(left_rules(&subject, &[rule(61, 6182)], &[]), None, "not ours");
        assert_eq!(left_rules(&subject, &[own(false)], &[refused]), None, "told already");

        let text = "ipv4/conf/eth0/rp_filter 1 2 4\n";
        let finding = left_filters(Path::new("/x.rp_filter"), text, &[link(4, "wan0")]);
        let command = "sysctl -w net.ipv4.conf.wan0.rp_filter=1 && rm /x.rp_filter";
        assert_eq!(finding.mend, Mend::command(command));
    }
}
