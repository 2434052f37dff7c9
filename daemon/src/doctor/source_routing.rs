//! Source routing and reverse path filters: whether packets from each address leave by the
//! address's own interface, and whether packets to it are accepted there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use mpip_api::Status;
use mpip_core::Prefix;
use mpip_net::netlink::{DefaultRoute, RuleEntry};

use super::finding::{Finding, Mend};
use super::subject::Subject;
use super::survey::{Reach, Start, Survey};
use crate::parameters::sysctl_name;
use crate::routes::MAIN_TABLE;

/// A strict reverse path filter (ip-sysctl, `rp_filter`).
const STRICT: u8 = 1;

/// Lowest routing table that a mend proposes.
const FIRST_TABLE: u32 = 101;
/// Priority of the rule that a mend proposes, less the number of its table.
const FIRST_PRIORITY: u32 = 10_000;

pub(super) fn check(survey: &Survey) -> Vec<Finding> {
    let Survey { subject, starts, reach, reverse_path, .. } = survey;
    let mut findings = match subject.captures {
        true => filters_in_host_mode(survey),
        false => strict_filters(reach, reverse_path, &|link| survey.link_name(link).to_owned()),
    };
    findings.extend(without_source_rules(subject, starts, &survey.default_routes, &survey.rules));
    findings.extend(without_route(subject, starts, reach, &working(survey.running.status())));
    findings
}

fn loosen(interface: &str) -> Mend {
    let name = sysctl_name(&format!("ipv4/conf/{interface}/rp_filter"));
    Mend::command(format!("sysctl -w {name}=2"))
}

/// In host mode routes to a peer lead to the TUN device, so a strict filter refuses all packets
/// from it on other interfaces.
fn filters_in_host_mode(survey: &Survey) -> Vec<Finding> {
    let loosened = survey.subject.host_mode.loosen_rp_filter;
    let running = survey.running.status().is_some();
    let why = match (loosened, running, survey.sysctl_read_only) {
        (false, ..) => "packets from peers in host mode are refused, and `loosen_rp_filter` is off",
        (true, true, _) => {
            "packets from peers in host mode are refused; mpipd could not make it loose, or \
             somebody made it strict again"
        }
        (true, false, true) => {
            "packets from peers in host mode are refused, and mpipd cannot change it, because \
             /proc/sys is read-only"
        }
        (true, false, false) => return Vec::new(),
    };
    strict_in_host_mode(&survey.reverse_path, why)
}

fn strict_in_host_mode(filters: &BTreeMap<String, u8>, why: &str) -> Vec<Finding> {
    let strict = filters.iter().filter(|(_, strictness)| **strictness == STRICT);
    let finding = |(name, _): (&String, &u8)| {
        Finding::wrong(format!("the reverse path filter of {name} is strict"), why, loosen(name))
    };
    strict.map(finding).collect()
}

/// Outside of host mode, a strict filter refuses packets from a peer to which the host would send
/// by another interface.
fn strict_filters(
    reach: &[Reach],
    filters: &BTreeMap<String, u8>,
    name: &dyn Fn(u32) -> String,
) -> Vec<Finding> {
    let mut told = BTreeSet::new();
    let refused = reach.iter().filter(|reach| {
        let Start { interface, link, .. } = &reach.start;
        reach.destination.is_ipv4()
            && filters.get(interface) == Some(&STRICT)
            && reach.by_its_own
            && reach.leaves_by.is_some_and(|by| by != *link)
            && told.insert(interface.clone())
    });
    let finding = |Reach { start, destination, leaves_by, .. }: &Reach| {
        let by = leaves_by.map_or_else(String::new, name);
        Finding::wrong(
            format!("the reverse path filter of {} is strict", start.interface),
            format!("it refuses packets from {destination}, which the host answers by {by}"),
            loosen(&start.interface),
        )
    };
    refused.map(finding).collect()
}

/// Addresses whose interface has a default route, but no rule that leads their packets to it.
fn without_source_rules(
    subject: &Subject,
    starts: &[Start],
    routes: &[DefaultRoute],
    rules: &[RuleEntry],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let used = rules.iter().filter_map(|rule| rule.table);
    let used: BTreeSet<u32> = used.chain(routes.iter().map(|route| route.table)).collect();
    let mut free = (FIRST_TABLE..).filter(|table| !used.contains(table));
    for ipv6 in [false, true] {
        let main = routes.iter().filter(|route| route.ipv6 == ipv6 && route.table == MAIN_TABLE);
        let own = main.filter(|route| starts.iter().any(|start| start.link == route.link));
        let own: Vec<_> = own.collect();
        let Some(first) = own.iter().min_by_key(|route| route.metric) else { continue };
        for start in starts.iter().filter(|start| start.address.is_ipv6() == ipv6) {
            let route = own.iter().find(|route| route.link == start.link);
            let Some(route) = route.filter(|route| route.link != first.link) else { continue };
            let by_source = |rule: &RuleEntry| {
                !rule.inverted && rule.source.is_some_and(|prefix| prefix.contains(start.address))
            };
            if rules.iter().any(by_source) {
                continue;
            }
            let table = free.next().unwrap_or(FIRST_TABLE);
            let other = starts.iter().find(|other| other.link == first.link);
            let other = other.map_or("another interface", |other| other.interface.as_str());
            findings.push(one_default_route(subject, start, route, other, table));
        }
    }
    findings
}

fn one_default_route(
    subject: &Subject,
    start: &Start,
    route: &DefaultRoute,
    other: &str,
    table: u32,
) -> Finding {
    let Start { interface, address, prefix_len, .. } = start;
    let ip = if address.is_ipv6() { "ip -6" } else { "ip" };
    let network = Prefix::new(*address, *prefix_len).unwrap_or(Prefix::host(*address));
    let via = route.gateway.map_or(String::new(), |router| format!("via {router} "));
    let priority = FIRST_PRIORITY + table;
    let mend = Mend::command(format!(
        "{ip} route add {network} dev {interface} src {address} table {table} && \
         {ip} route add default {via}dev {interface} table {table} && \
         {ip} rule add from {address} lookup {table} priority {priority}"
    ));
    let what = format!("packets from {address} ({interface}) leave by {other}");
    match subject.captures {
        true => {
            let why = "plain packets take another way than those that they answer, and providers and \
                       strict filters may drop them";
            Finding::wrong(what, why, mend)
        }
        false => {
            let why = "mpip's datagrams leave by the right interface, but other packets do not";
            Finding::note(what, why, mend)
        }
    }
}

/// Addresses without a route to any known address of a peer by their own interface. A peer may tell
/// others, to which there is a route.
fn without_route(
    subject: &Subject,
    starts: &[Start],
    reach: &[Reach],
    works: &[IpAddr],
) -> Vec<Finding> {
    let finding = |start: &Start| {
        let mut own = reach.iter().filter(|reach| reach.start == *start).peekable();
        own.peek()?;
        if works.contains(&start.address) || own.any(|reach| reach.by_its_own) {
            return None;
        }
        let Start { interface, address, .. } = start;
        let family = if address.is_ipv6() { "ip -6" } else { "ip" };
        let what =
            format!("{interface} has no route from {address} to any known address of a peer");
        let why = "paths from there work only to addresses that a peer tells later";
        let mend = Mend::words(format!(
            "add one by its router, like `{family} route add default via ROUTER dev {interface} \
             metric 1000`, or add the peer's address that it reaches to `endpoints`"
        ));
        let named = subject.path_interfaces.contains(interface);
        Some(if named { Finding::wrong } else { Finding::note }(what, why, mend))
    };
    starts.iter().filter_map(finding).collect()
}

/// The addresses of this host from which a path works.
fn working(status: Option<&Status>) -> Vec<IpAddr> {
    let peers = status.into_iter().flat_map(|status| &status.peers);
    let paths = peers.flat_map(|peer| &peer.paths);
    let works = paths.filter(|path| matches!(path.state.as_str(), "active" | "standby"));
    works.map(|path| path.local.ip()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::super::tests_support::start;
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("valid")
    }

    fn reach(start: &Start, leaves_by: Option<u32>, by_its_own: bool) -> Reach {
        Reach { start: start.clone(), destination: ip("203.0.113.9"), leaves_by, by_its_own }
    }

    fn filters(list: &[(&str, u8)]) -> BTreeMap<String, u8> {
        list.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn a_strict_filter_matters_where_the_answer_takes_another_way() {
        let (eth0, eth1) = (start(2, "eth0", "198.18.0.1/24"), start(3, "eth1", "198.18.1.1/24"));
        let name = |link| format!("eth{}", link - 2);
        let both = filters(&[("eth0", 1), ("eth1", 1)]);
        let list = [reach(&eth0, Some(2), true), reach(&eth1, Some(2), true)];
        let findings = strict_filters(&list, &both, &name);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].mend, Mend::command("sysctl -w net.ipv4.conf.eth1.rp_filter=2"));
        assert!(findings[0].why.ends_with("which the host answers by eth0"), "{findings:?}");
        assert_eq!(strict_filters(&list, &filters(&[("eth0", 1), ("eth1", 2)]), &name), []);
        let no_way = [reach(&eth1, Some(2), false)];
        assert_eq!(strict_filters(&no_way, &both, &name), [], "nothing comes from there");
    }

    #[test]
    fn in_host_mode_every_strict_filter_matters() {
        let findings = strict_in_host_mode(&filters(&[("eth0", 0), ("eth1", 1), ("eth2", 2)]), "x");
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].what, "the reverse path filter of eth1 is strict");
    }

    #[test]
    fn in_host_mode_the_daemon_loosens_filters_where_it_can() {
        let mut survey = super::super::tests_support::survey();
        survey.subject.captures = true;
        survey.reverse_path = filters(&[("eth0", 1)]);
        assert_eq!(filters_in_host_mode(&survey), []);
        survey.sysctl_read_only = true;
        assert!(filters_in_host_mode(&survey)[0].why.ends_with("/proc/sys is read-only"));
        survey.subject.host_mode.loosen_rp_filter = false;
        assert!(filters_in_host_mode(&survey)[0].why.ends_with("`loosen_rp_filter` is off"));
    }

    #[test]
    fn a_second_default_route_needs_a_rule_by_source() {
        let starts = [
            start(2, "eth0", "198.18.0.1/24"),
            start(3, "eth1", "198.18.1.1/24"),
            start(3, "eth1", "2001:db8::1/64"),
        ];
        let route = |link, router: &str, metric| DefaultRoute {
            ipv6: false,
            link,
            gateway: Some(ip(router)),
            metric,
            table: MAIN_TABLE,
        };
        let one = [route(2, "198.18.0.9", 100)];
        let two = [route(2, "198.18.0.9", 100), route(3, "198.18.1.9", 200)];
        let subject = Subject { captures: true, ..Subject::default() };
        let taken = RuleEntry { table: Some(101), ..RuleEntry::default() };
        assert_eq!(without_source_rules(&subject, &starts, &one, &[]), []);
        let findings = without_source_rules(&subject, &starts, &two, &[taken]);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].what, "packets from 198.18.1.1 (eth1) leave by eth0");
        let command = "ip route add 198.18.1.0/24 dev eth1 src 198.18.1.1 table 102 && ip route \
                       add default via 198.18.1.9 dev eth1 table 102 && ip rule add from \
                       198.18.1.1 lookup 102 priority 10102";
        assert_eq!(findings[0].mend, Mend::command(command));
        assert_eq!(findings[0].severity, Severity::Wrong);
        let note = without_source_rules(&Subject::default(), &starts, &two, &[]);
        assert_eq!(note[0].severity, Severity::Note);
        let source = "198.18.1.0/24".parse().ok();
        let mended = RuleEntry { source, table: Some(101), ..RuleEntry::default() };
        assert_eq!(without_source_rules(&subject, &starts, &two, &[mended]), []);
    }

    #[test]
    fn an_interface_without_a_way_to_any_peer_is_named() {
        let eth1 = start(3, "eth1", "198.18.1.1/24");
        let starts = [eth1.clone()];
        let mut subject = Subject::default();
        assert_eq!(without_route(&subject, &starts, &[], &[]), [], "no peer is known");
        let none = [reach(&eth1, Some(2), false), reach(&eth1, None, false)];
        assert_eq!(without_route(&subject, &starts, &none, &[])[0].severity, Severity::Note);
        subject.path_interfaces = vec!["eth1".to_owned()];
        assert_eq!(without_route(&subject, &starts, &none, &[])[0].severity, Severity::Wrong);
        let works = [eth1.address];
        assert_eq!(without_route(&subject, &starts, &none, &works), [], "the peer told another");
        let one = [reach(&eth1, Some(2), false), reach(&eth1, Some(2), true)];
        assert_eq!(without_route(&subject, &starts, &one, &[]), []);
    }
}
