use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::kernel::fake::{Fake, link};

const DEVICE: u32 = 9;
const NOW: Instant = Instant::ZERO;

/// A kernel with the devices of two daemons.
fn kernel() -> Fake {
    let fake = Fake::default();
    fake.state().links = vec![link(DEVICE, "mpip0"), link(8, "mpip1")];
    fake
}

fn take_over(fake: &Fake, interface: &str, active: bool) -> Routes<Fake> {
    take_over_with(fake, interface, active, HostMode::default())
}

fn take_over_with(fake: &Fake, interface: &str, active: bool, settings: HostMode) -> Routes<Fake> {
    let links = fake.state().links.clone();
    let device = links.iter().find(|link| link.name == interface).expect("its device").clone();
    let recorded = fake.recorded(interface);
    let routes = Routes::take_over(fake.clone(), settings, active, recorded, device, &links);
    let mut routes = routes.expect("taken");
    routes.device_is(true);
    routes
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect("valid")
}

fn key(table: u32, text: &str, refuses: bool) -> Key {
    Key { table, prefix: prefix(text), refuses }
}

/// Routes in the main table to these prefixes, which fail closed.
fn tunnel(prefixes: &[&str]) -> BTreeMap<Key, Way> {
    let both = prefixes.iter().flat_map(|text| [false, true].map(|r| key(MAIN_TABLE, text, r)));
    both.map(|key| (key, Way::default())).collect()
}

/// Those to these addresses in the table of host mode.
fn host_mode(addresses: &[&str]) -> BTreeMap<Key, Way> {
    let both = addresses.iter().flat_map(|text| [false, true].map(|r| key(6182, text, r)));
    both.map(|key| (key, Way::default())).collect()
}

fn peer(name: &str) -> (Claimant, Claimant) {
    (Claimant::Tunnel(name.to_owned()), Claimant::Host(name.to_owned()))
}

/// A daemon that works, with a tunnel and an address in host mode.
fn daemon(fake: &Fake) -> Routes<Fake> {
    let mut routes = take_over(fake, "mpip0", true);
    let (tunnels, hosts) = peer("b");
    routes.claim(&tunnels, tunnel(&["10.77.0.2/32"]));
    routes.claim(&hosts, host_mode(&["198.18.0.2/32"]));
    routes.apply_all(NOW).expect("nothing is refused");
    routes.started(NOW, true);
    routes
}

const OPEN: [&str; 4] = [
    "254 10.77.0.2/32 to mpip0",
    "254 10.77.0.2/32 to sink102",
    "6182 198.18.0.2/32 to mpip0",
    "6182 198.18.0.2/32 to nothing",
];
const CLOSED: [&str; 2] = [OPEN[1], OPEN[3]];

#[test]
fn what_refuses_stays_unless_the_daemon_was_told_to_end() {
    let fake = kernel();
    let routes = daemon(&fake);
    assert_eq!(fake.shown(), OPEN);
    assert_eq!(fake.state().rules.len(), 2);
    drop(routes);
    assert_eq!(fake.shown(), CLOSED, "it was dropped on the way of an error");
    assert_eq!(fake.state().rules.len(), 1, "IPv4 is refused");

    let mut next = daemon(&fake);
    assert_eq!(fake.shown(), OPEN);
    next.open();
    next.release(NOW, |claimant| matches!(claimant, Claimant::Tunnel(_)));
    assert_eq!(fake.shown(), OPEN[..2], "plain packets leave while the last ones arrive");
    drop(next);
    assert_eq!(fake.shown(), [""; 0]);
    assert_eq!(fake.rules_and_links(), (0, 2));
}

#[test]
fn a_panic_leaves_what_refuses() {
    let fake = kernel();
    let panics = AssertUnwindSafe(|| {
        let _routes = daemon(&fake);
        panic!("as any line could");
    });
    assert!(catch_unwind(panics).is_err());
    assert_eq!(fake.shown(), CLOSED);
}

#[test]
fn what_is_missing_of_it_is_set_at_the_last_moment() {
    let fake = kernel();
    let mut routes = daemon(&fake);
    // Somebody deletes all, and the daemon ends before it has been told.
    fake.state().routes.clear();
    routes.look(true).expect("a list");
    drop(routes);
    assert_eq!(fake.shown(), CLOSED);
}

#[test]
fn a_start_that_fails_leaves_what_it_found() {
    let fake = kernel();
    let start = |fake: &Fake| {
        let mut routes = take_over(fake, "mpip0", true);
        let (tunnels, hosts) = peer("b");
        routes.claim(&tunnels, tunnel(&["10.77.0.2/32", "10.77.0.3/32"]));
        routes.claim(&hosts, host_mode(&["198.18.0.2/32", "198.18.0.3/32"]));
        routes.apply_all(NOW).expect("nothing is refused");
    };
    start(&fake);
    assert_eq!(fake.shown(), [""; 0]);
    assert_eq!(fake.rules_and_links(), (0, 2));
    drop(daemon(&fake));
    assert_eq!(fake.shown(), CLOSED);
    start(&fake);
    assert_eq!(fake.shown(), CLOSED);
    assert_eq!(fake.state().rules.len(), 1);
}

#[test]
fn a_next_daemon_that_requires_nothing_opens_once_it_works() {
    let fake = kernel();
    drop(daemon(&fake));
    let mut next = take_over(&fake, "mpip0", false);
    next.apply_all(NOW).expect("nothing is refused");
    assert_eq!(fake.shown(), CLOSED);
    next.started(NOW, false);
    assert_eq!(fake.shown(), [""; 0]);
    assert_eq!(fake.rules_and_links(), (0, 2));
    drop(next);
}

#[test]
fn a_former_release_left_routes_without_a_name() {
    let fake = kernel();
    let table = HostMode::default().table;
    let (prefix, link, metric) = (prefix("198.18.0.2/32"), 0, UNNAMED_METRIC);
    let former = Route { prefix, link, source: None, mtu: None, table, metric };
    fake.state().routes.push(former);
    let mut next = take_over(&fake, "mpip0", true);
    next.apply_all(NOW).expect("nothing is refused");
    next.started(NOW, true);
    assert_eq!(fake.shown(), ["6182 198.18.0.2/32 to nothing"]);
    assert_ne!(fake.state().routes[0].metric, UNNAMED_METRIC);
    next.open();
    drop(next);
    assert_eq!(fake.shown(), [""; 0]);
}

/// The process of `routes` is killed, and its device goes.
fn kill(fake: &Fake, routes: Routes<Fake>) {
    fake.kill(routes);
    fake.lose_routes(DEVICE);
}

fn rules(fake: &Fake) -> Vec<RoutingRule> {
    fake.state().rules.clone()
}

/// The tables to which rules lead.
fn led_to(fake: &Fake) -> BTreeSet<u32> {
    rules(fake).iter().map(|rule| rule.table).collect()
}

#[test]
fn a_killed_daemons_routes_and_rules_in_the_tables_of_another_configuration_are_replaced() {
    let settings = HostMode { table: 7_000, ..HostMode::default() };
    let fake = kernel();
    let others = Route {
        prefix: prefix("198.18.9.9/32"),
        link: 8,
        source: None,
        mtu: None,
        table: 6182 + NATS,
        metric: METRIC,
    };
    let translated = [TRANSLATED, NATS].map(|table| key(6182 + table, "198.18.9.9/32", false));
    for require in [false, true] {
        let mut killed = daemon(&fake);
        let (_, hosts) = peer("b");
        let mut routes = if require { host_mode(&["198.18.0.2/32"]) } else { BTreeMap::new() };
        routes.extend(translated.map(|key| (key, Way::default())));
        killed.claim(&hosts, routes);
        killed.apply(NOW);
        kill(&fake, killed);
        // Another daemon has one of the tables now.
        fake.state().routes.push(others.clone());
        let before = (rules(&fake), fake.shown());
        assert_eq!(led_to(&fake), [6182, 6183, 6184].into());

        let start = |fake: &Fake| {
            let mut next = take_over_with(fake, "mpip0", true, settings.clone());
            next.apply_all(NOW).expect("nothing is refused");
            let now = rules(fake);
            assert!(before.0.iter().all(|rule| now.contains(rule)));
            next
        };
        drop(start(&fake));
        assert_eq!((rules(&fake), fake.shown()), before, "a start that fails");
        kill(&fake, start(&fake));
        let mut next = start(&fake);
        let moved = "7000 198.18.0.2/32 to nothing".to_owned();
        assert_eq!(fake.shown().contains(&moved), require);
        next.started(NOW, true);
        assert_eq!(led_to(&fake), [6184, 7_000].into());
        assert_eq!(fake.shown().contains(&moved), require);
        assert!(!fake.shown().iter().any(|route| route.starts_with("6182")));
        next.open();
        drop(next);
        assert_eq!((led_to(&fake), fake.files()), ([6184].into(), BTreeMap::new()));
        fake.state().rules.clear();
        fake.state().routes.clear();
    }
}

#[test]
fn a_killed_daemons_rules_go_although_the_next_one_has_no_host_mode() {
    let fake = kernel();
    let mut killed = take_over(&fake, "mpip0", true);
    killed.apply_all(NOW).expect("nothing is refused");
    killed.started(NOW, false);
    assert_eq!(led_to(&fake), [6182].into());
    kill(&fake, killed);
    // One with the same tables by default has made none of them.
    let mut other = take_over(&fake, "mpip1", false);
    other.apply_all(NOW).expect("nothing is refused");
    other.started(NOW, false);
    assert_eq!(led_to(&fake), [6182].into());
    let mut next = take_over(&fake, "mpip0", false);
    assert!(next.has_left());
    next.apply_all(NOW).expect("nothing is refused");
    next.started(NOW, false);
    assert_eq!(led_to(&fake), [].into());
    next.open();
    drop(next);
    assert!(fake.files().is_empty());
    drop(other);
}

#[test]
fn daemons_leave_each_others_routes_and_rules_alone() {
    let fake = kernel();
    drop(daemon(&fake));
    let before = (fake.shown(), fake.state().rules.clone());
    assert_ne!(refusing_metric("mpip0"), refusing_metric("mpip1"));
    // One without host mode, and one that shares the table by mistake.
    for active in [false, true] {
        let mut other = take_over(&fake, "mpip1", active);
        let (tunnels, _) = peer("c");
        other.claim(&tunnels, tunnel(&["10.77.0.2/32", "10.78.0.0/16"]));
        other.apply_all(NOW).expect("nothing is refused");
        other.started(NOW, true);
        assert!(fake.shown().contains(&"254 10.78.0.0/16 to sink103".to_owned()));
        assert!(before.0.iter().all(|route| fake.shown().contains(route)));
        other.open();
        drop(other);
        assert_eq!((fake.shown(), fake.state().rules.clone()), before, "{active}");
    }
    let mut again = daemon(&fake);
    again.open();
    drop(again);
    assert_eq!(fake.shown(), [""; 0]);
}

#[test]
fn what_others_remove_is_set_again() {
    let fake = kernel();
    let mut routes = daemon(&fake);
    let removed = fake.state().routes.clone();
    for route in removed {
        fake.state().routes.retain(|other| *other != route);
        routes.route_gone(routes.key_of(&route).expect("ours"));
        assert!(routes.is_dirty());
        routes.apply(NOW);
        assert_eq!(fake.shown(), OPEN);
    }
    let rule = fake.state().rules.pop().expect("a rule");
    routes.rule_gone(&rule);
    routes.apply(NOW);
    assert!(fake.state().rules.contains(&rule));

    // A device goes down and up, of which the list of links shows nothing.
    for index in [DEVICE, 102] {
        fake.lose_routes(index);
        routes.lost(index);
        let links = fake.state().links.clone();
        routes.follow(NOW, &links);
        routes.apply(NOW);
        assert_eq!(fake.shown(), OPEN);
    }
    // The sink is set down, then deleted.
    fake.lose_routes(102);
    fake.state().links[2].up = false;
    let links = fake.state().links.clone();
    routes.follow(NOW, &links);
    routes.apply(NOW);
    assert_eq!(fake.shown(), OPEN);
    assert!(fake.state().links[2].up);
    let sink = fake.state().links[2].clone();
    fake.clone().delete_link(&sink).expect("deleted");
    let links = fake.state().links.clone();
    routes.follow(NOW, &links);
    routes.apply(NOW);
    assert_eq!(fake.shown(), OPEN);
    // Nothing is asked when nothing has changed.
    fake.take_requests();
    routes.apply(NOW);
    let links = fake.state().links.clone();
    routes.follow(NOW, &links);
    routes.apply(NOW);
    assert_eq!(fake.take_requests(), 0);
}

#[test]
fn while_the_device_is_down_only_what_refuses_is_set() {
    let fake = kernel();
    let mut routes = daemon(&fake);
    fake.lose_routes(DEVICE);
    routes.device_is(false);
    let (tunnels, _) = peer("b");
    routes.claim(&tunnels, tunnel(&["10.77.0.2/32", "10.77.0.3/32"]));
    routes.apply(NOW);
    assert_eq!(routes.fault_count(), 0);
    assert_eq!(fake.shown().len(), 3);
    routes.device_is(true);
    routes.apply(NOW);
    assert_eq!(fake.shown().len(), 6);
}

#[test]
fn what_the_kernel_refuses_is_told_and_tried_again() {
    let fake = kernel();
    let mut routes = daemon(&fake);
    fake.state().refused = Some(prefix("10.77.0.3/32"));
    let (tunnels, _) = peer("b");
    routes.claim(&tunnels, tunnel(&["10.77.0.2/32", "10.77.0.3/32"]));
    routes.apply(NOW);
    assert_eq!(routes.fault_count(), 2);
    let why: Vec<String> = routes.faults(NOW).into_iter().map(|fault| fault.why).collect();
    assert_eq!(why[0], "packets to 10.77.0.3/32 do not enter mpip0");
    assert!(
        why[1].ends_with(
            "packets to 10.77.0.3/32 leave as plain IP although the policy is `require`"
        )
    );
    // Not before the pause is over.
    fake.take_requests();
    routes.apply(NOW);
    routes.retry(NOW);
    assert_eq!(fake.take_requests(), 0);
    let due = routes.next_timeout().expect("a time");
    routes.retry(due);
    assert_eq!(fake.take_requests(), 2);
    assert_eq!(routes.faults(due)[0].attempts, 2);
    fake.state().refused = None;
    let due = routes.next_timeout().expect("a time");
    routes.retry(due);
    assert_eq!((routes.fault_count(), routes.next_timeout()), (0, None));
    assert_eq!(fake.shown().len(), 6);
    assert!(routes.apply_all(due).is_ok());
}

#[test]
fn a_sink_that_cannot_be_made_is_told_and_tried_again() {
    let fake = kernel();
    fake.state().refuses_sinks = true;
    let mut routes = take_over(&fake, "mpip0", false);
    let (tunnels, _) = peer("b");
    routes.claim(&tunnels, tunnel(&["10.77.0.2/32"]));
    assert!(routes.apply_all(NOW).is_err());
    assert_eq!(fake.shown(), OPEN[..1]);
    assert!(routes.faults(NOW)[0].why.contains("packets to peers leave as plain IP"));
    fake.state().refuses_sinks = false;
    fake.take_requests();
    routes.apply(NOW);
    assert_eq!(fake.take_requests(), 0);
    routes.retry(routes.next_timeout().expect("a time"));
    assert_eq!(fake.shown(), OPEN[..2]);
    assert_eq!(routes.fault_count(), 0);
}

#[test]
fn peers_behind_one_nat_share_its_route() {
    let fake = kernel();
    let mut routes = daemon(&fake);
    let key = key(6182 + NATS, "198.18.9.9/32", false);
    for (name, mtu) in [("b", 1_400), ("c", 1_300)] {
        let way = Way { source: None, mtu: Some(mtu) };
        routes.claim(&Claimant::Host(name.to_owned()), [(key, way)].into());
    }
    routes.apply(NOW);
    let mtu = |fake: &Fake| {
        let state = fake.state();
        let found = state.routes.iter().find(|route| route.table == 6182 + NATS)?;
        found.mtu
    };
    assert_eq!(mtu(&fake), Some(1_300));
    assert_eq!(fake.state().rules.len(), 5, "for TCP, UDP and ICMP to there");
    routes.claim(&Claimant::Host("c".to_owned()), [].into());
    routes.apply(NOW);
    assert_eq!(mtu(&fake), Some(1_400));
    routes.claim(&Claimant::Host("b".to_owned()), [].into());
    routes.apply(NOW);
    assert_eq!(fake.state().rules.len(), 2);
}

#[test]
fn udp_to_peers_that_see_this_host_elsewhere_is_led_only_from_ports_that_the_host_chooses() {
    let fake = kernel();
    let mut routes = daemon(&fake);
    let key = key(6182 + TRANSLATED, "198.18.9.9/32", false);
    routes.claim(&Claimant::Host("b".to_owned()), [(key, Way::default())].into());
    routes.apply(NOW);
    let led = |rule: &&RoutingRule| rule.table == 6182 + TRANSLATED;
    let mut rules: Vec<_> = fake.state().rules.iter().filter(led).copied().collect();
    rules.sort_by_key(|rule| rule.protocol);
    let ports: Vec<_> = rules.iter().map(|rule| (rule.protocol, rule.source_ports)).collect();
    assert_eq!(ports, [(Some(1), None), (Some(6), None), (Some(17), Some((32_768, 60_999)))]);

    // The next daemon finds another range.
    let other = RoutingRule { source_ports: Some((1_024, 60_999)), ..rules[2] };
    *fake.state().rules.iter_mut().find(|rule| **rule == rules[2]).expect("it") = other;
    let mut next = daemon(&fake);
    next.claim(&Claimant::Host("b".to_owned()), [(key, Way::default())].into());
    next.apply(NOW);
    assert!(fake.state().rules.contains(&rules[2]) && !fake.state().rules.contains(&other));
}

#[test]
fn many_routes_are_set_some_at_a_time() {
    let fake = kernel();
    let mut routes = daemon(&fake);
    let texts: Vec<String> = (0..100).map(|n| format!("10.78.0.{n}/32")).collect();
    let prefixes: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (tunnels, hosts) = peer("b");
    routes.claim(&tunnels, tunnel(&prefixes));
    let (mut before, mut calls) = (fake.shown().len(), 0);
    loop {
        routes.apply_some(NOW);
        calls += 1;
        let now = fake.shown().len();
        assert!(now.abs_diff(before) <= AT_ONCE, "{before} became {now}");
        before = now;
        if !routes.has_more() {
            break;
        }
    }
    assert!(calls > 6, "{calls}");
    assert_eq!(fake.shown().len(), 200 + 2, "and the address in host mode");
    // Who cannot wait has all of it at once.
    routes.claim(&tunnels, BTreeMap::new());
    routes.apply_some(NOW);
    assert!(routes.has_more());
    routes.claim(&hosts, BTreeMap::new());
    routes.apply(NOW);
    assert!(!routes.has_more() && fake.shown().is_empty(), "{:?}", fake.shown());
}
