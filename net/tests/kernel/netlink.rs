//! The kernel's configuration, as seen and changed by netlink, in a namespace of its own.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::common::HANG;
use crate::common::Namespace;
use crate::common::{wait_until_gone, wait_until_no_carrier};
use mpip_net::netlink::Changes;
use mpip_net::netlink::HostAddress;
use mpip_net::netlink::Monitor;
use mpip_net::netlink::Netlink;
use mpip_net::netlink::Notice;
use mpip_net::netlink::Question;
use mpip_net::netlink::Route;
use mpip_net::netlink::RoutingRule;
use mpip_net::tun::Sink;
use mpip_net::{Interest, Poller, Tun};
use mpip_testing::can_run;

/// Waits for a change after which `holds`, and for what the kernel tells of only some time later.
fn wait_until(poller: &Poller, monitor: &mut Monitor, mut holds: impl FnMut(Changes) -> bool) {
    let deadline = Instant::now() + HANG;
    let mut seen = Changes::default();
    loop {
        let more = wait(poller, monitor);
        seen.links |= more.links;
        seen.addresses |= more.addresses;
        if holds(seen) {
            return;
        }
        assert!(Instant::now() < deadline, "{seen:?}");
    }
}

/// What changed within a second at most.
fn wait(poller: &Poller, monitor: &mut Monitor) -> Changes {
    let mut ready = Vec::new();
    poller.wait(&mut ready, Some(Duration::from_secs(1))).expect("wait");
    let mut changes = monitor.read(|_| ()).expect("changes");
    // A change makes several notices; those that follow at once belong to it.
    let end = Instant::now() + Duration::from_millis(50);
    while Instant::now() < end {
        poller.wait(&mut ready, Some(Duration::from_millis(10))).expect("wait");
        let more = monitor.read(|_| ()).expect("changes");
        changes.links |= more.links;
        changes.addresses |= more.addresses;
        changes.lost |= more.lost;
    }
    changes
}

#[test]
fn links_and_addresses_are_followed() {
    if !can_run(&[]) {
        return;
    }
    let (here, there) = (Namespace::new(), Namespace::new());
    here.connect(&there, "v0");
    let (mut monitor, mut netlink) = here
        .run(|| (Monitor::new().expect("a monitor"), Netlink::new().expect("a netlink socket")));
    let poller = Poller::new().expect("epoll");
    poller.add(&monitor, 0, Interest::Readable).expect("add");
    wait(&poller, &mut monitor);
    assert_eq!(monitor.read(|_| ()).expect("nothing"), Changes::default());

    let link = netlink.link("v0").expect("the link");
    assert!(link.is_running() && !link.loopback);
    assert_eq!((link.mtu, link.kind.as_deref()), (1_500, Some("veth")));
    let loopback = netlink.link("lo").expect("loopback");
    assert!(loopback.loopback && loopback.up);

    here.ip("addr add 198.18.0.1/24 dev v0");
    wait_until(&poller, &mut monitor, |changes| changes.addresses);
    let v4 = HostAddress {
        link: link.index,
        address: "198.18.0.1".parse().expect("valid"),
        prefix_len: 24,
        deprecated: false,
    };
    assert_eq!(netlink.addresses().expect("addresses"), [v4]);

    // While duplicates are looked for, an IPv6 address is not usable; then there is a notice.
    here.ip("addr add 2001:db8::1/64 dev v0");
    let v6 = HostAddress {
        link: link.index,
        address: "2001:db8::1".parse().expect("valid"),
        prefix_len: 64,
        deprecated: false,
    };
    wait_until(&poller, &mut monitor, |changes| {
        changes.addresses && netlink.addresses().expect("addresses") == [v4, v6]
    });
    here.ip("addr change 2001:db8::1/64 dev v0 preferred_lft 0");
    let v6 = HostAddress { deprecated: true, ..v6 };
    wait_until(&poller, &mut monitor, |changes| {
        changes.addresses && netlink.addresses().expect("addresses") == [v4, v6]
    });

    there.ip("link set v0 down");
    wait_until(&poller, &mut monitor, |changes| {
        let link = netlink.link("v0").expect("the link");
        changes.links && link.up && !link.carrier && !link.is_running()
    });
    there.ip("link set v0 up");
    wait_until(&poller, &mut monitor, |changes| {
        changes.links && netlink.link("v0").expect("the link").is_running()
    });

    here.ip("addr del 198.18.0.1/24 dev v0");
    wait_until(&poller, &mut monitor, |changes| {
        changes.addresses && netlink.addresses().expect("addresses") == [v6]
    });
    here.ip("link del v0");
    wait_until(&poller, &mut monitor, |changes| changes.links);
    let error = netlink.link("v0").expect_err("gone");
    assert!(error.to_string().contains("network interface v0"), "{error}");
}

#[test]
fn lost_notices_are_reported_as_a_change_of_everything() {
    if !can_run(&[]) {
        return;
    }
    let namespace = Namespace::new();
    let mut monitor = namespace.run(|| Monitor::new().expect("a monitor"));
    // Far more notices than the queue holds.
    let directory = mpip_testing::Directory::new();
    let script = directory.join("addresses");
    let lines: String = (0..3_000)
        .map(|n| format!("addr add 198.18.{}.{}/32 dev lo\n", n / 250, n % 250 + 1))
        .collect();
    std::fs::write(&script, lines).expect("a batch file");
    namespace.ip(&format!("-batch {}", script.display()));
    let changes = monitor.read(|_| ()).expect("changes");
    assert_eq!(changes, Changes { links: true, addresses: true, routes: true, lost: true });
    let mut read = || monitor.read(|_| ()).expect("changes or nothing");
    let batches = (0..100).take_while(|_| read() != Changes::default()).count();
    assert!((1..100).contains(&batches), "what is left of the queue, in {batches} batches");
}

#[test]
fn a_device_is_set_up_with_addresses_routes_and_rules() {
    if !can_run(&[]) {
        return;
    }
    let namespace = Namespace::new();
    let (tun, mut netlink) =
        namespace.run(|| (Tun::open("mpip0").expect("a device"), Netlink::new().expect("netlink")));
    let link = netlink.link("mpip0").expect("the device");
    assert!(!link.up);
    assert_eq!(link.kind.as_deref(), Some("tun"));

    netlink.set_mtu(&link, 1_400).expect("the MTU");
    netlink.set_queue_len(&link, 2_000).expect("the queue length");
    assert!(namespace.ip("link show dev mpip0").contains("qlen 2000"));
    netlink.without_link_local(&link).expect("no link-local address");
    netlink.set_up(&link).expect("up");
    assert!(!namespace.ip("-6 addr show dev mpip0").contains("fe80"));
    for _ in 0..2 {
        netlink.add_address(&link, "198.18.1.1".parse().expect("valid"), 24).expect("IPv4");
        netlink.add_address(&link, "2001:db8:1::1".parse().expect("valid"), 64).expect("IPv6");
    }
    let link = netlink.link("mpip0").expect("the device");
    assert!(link.up);
    assert_eq!(link.mtu, 1_400);
    assert_eq!(netlink.addresses().expect("addresses").len(), 2);

    let route = |prefix: &str, table| Route {
        prefix: prefix.parse().expect("valid"),
        link: link.index,
        source: None,
        mtu: None,
        table,
        metric: 0,
    };
    let routes = [
        route("198.18.2.0/24", 254),
        route("0.0.0.0/0", 1_000),
        route("2001:db8:2::/48", 254),
        route("::/0", 1_000),
    ];
    for route in &routes {
        netlink.replace_route(route).expect("added");
        let limited = Route { mtu: Some(1_380), ..route.clone() };
        netlink.replace_route(&limited).expect("replaced");
        netlink.replace_route(route).expect("replaced");
    }
    let ours = netlink.own_routes().expect("routes");
    assert_eq!(ours.len(), routes.len(), "{ours:?}");
    for route in &routes {
        let found = |ours: &&Route| (ours.prefix, ours.table) == (route.prefix, route.table);
        assert_eq!(ours.iter().find(found).map(|ours| ours.link), Some(link.index), "{route}");
    }
    assert!(namespace.ip("route get 198.18.2.9").contains("dev mpip0"));
    assert!(namespace.ip("-6 route get 2001:db8:2::9").contains("dev mpip0"));

    let all = [false, true].map(|ipv6| RoutingRule {
        ipv6,
        priority: 100,
        without_mark: 0x1000,
        protocol: None,
        source_ports: None,
        ports: None,
        table: 1_000,
    });
    let some = |rule: RoutingRule| {
        let source_ports = Some((1_000, 2_000));
        RoutingRule { protocol: Some(6), source_ports, ports: Some((7, 9)), ..rule }
    };
    let rules = [all[0], some(all[0]), all[1], some(all[1])];
    for rule in &rules {
        netlink.add_rule(rule).expect("added");
        netlink.add_rule(rule).expect("is there");
    }
    assert_eq!(netlink.own_rules().expect("rules"), rules);
    assert!(namespace.ip("route get 198.18.200.9").contains("dev mpip0"));
    assert!(namespace.ip("rule").contains("ipproto tcp sport 1000-2000 dport 7-9 lookup 1000"));

    // What a daemon that was killed left behind is found and removed.
    for rule in netlink.own_rules().expect("rules") {
        netlink.delete_rule(&rule).expect("deleted");
        netlink.delete_rule(&rule).expect("is gone");
    }
    for route in netlink.own_routes().expect("routes") {
        netlink.delete_route(&route).expect("deleted");
        netlink.delete_route(&route).expect("is gone");
    }
    assert_eq!(netlink.own_rules().expect("rules"), []);
    assert_eq!(netlink.own_routes().expect("routes"), []);
    let address = "198.18.1.1".parse().expect("valid");
    netlink.remove_address(&link, address, 24).expect("removed");
    netlink.remove_address(&link, address, 24).expect("is gone");
    assert_eq!(netlink.addresses().expect("addresses").len(), 1);

    drop(tun);
    wait_until_gone(&mut netlink, "mpip0");
    let error = netlink.set_up(&link).expect_err("the device is gone");
    assert!(error.to_string().starts_with("cannot set mpip0 up: "), "{error}");
    assert!(netlink.replace_route(&routes[0]).is_err());
}

fn route(link: u32, prefix: &str, metric: u32) -> Route {
    let prefix = prefix.parse().expect("valid");
    Route { prefix, link, source: None, mtu: None, table: 1_000, metric }
}

#[test]
fn routes_are_added_beside_those_of_others_and_listed_by_table() {
    if !can_run(&[]) {
        return;
    }
    let namespace = Namespace::new();
    let (_tun, mut netlink) =
        namespace.run(|| (Tun::open("mpip0").expect("a device"), Netlink::new().expect("netlink")));
    let link = netlink.link("mpip0").expect("the device");
    netlink.set_up(&link).expect("up");
    namespace.ip("route add 198.18.2.0/24 dev lo metric 5 mtu 1300 table 1000");
    namespace.ip("-6 route add 2001:db8:2::/48 dev lo metric 5 mtu 1300 table 1000");
    let own = [route(link.index, "198.18.2.0/24", 5), route(link.index, "2001:db8:2::/48", 5)];
    for route in &own {
        netlink.add_route(route).expect("added");
        netlink.add_route(route).expect("is there");
        let other = Route { table: 1_001, ..route.clone() };
        netlink.add_route(&other).expect("added");
    }
    assert_eq!(netlink.own_routes_in(1_000, false).expect("a list"), own[..1]);
    assert_eq!(netlink.own_routes_in(1_000, true).expect("a list"), own[1..]);
    assert_eq!(netlink.own_routes_in(1_002, false).expect("no table"), []);
    assert_eq!(netlink.own_routes().expect("a list").len(), 4);
    for route in netlink.own_routes().expect("a list") {
        netlink.delete_route(&route).expect("deleted");
    }
    assert_eq!(namespace.ip("route show table 1000").matches("mtu 1300").count(), 1);
    assert_eq!(namespace.ip("-6 route show table 1000").matches("mtu 1300").count(), 1);
}

#[test]
fn changes_of_routes_and_rules_are_told_with_whose_they_are() {
    if !can_run(&[]) {
        return;
    }
    let namespace = Namespace::new();
    let (_tun, mut monitor, mut netlink) = namespace.run(|| {
        let tun = Tun::open("mpip0").expect("a device");
        (tun, Monitor::new().expect("a monitor"), Netlink::new().expect("netlink"))
    });
    let link = netlink.link("mpip0").expect("the device");
    // It would make notices of its own.
    netlink.without_link_local(&link).expect("no link-local address");
    netlink.set_up(&link).expect("up");
    let mut notices = || {
        let mut notices = Vec::new();
        monitor.read(|notice| notices.push(notice)).expect("changes");
        notices
    };
    notices();
    let ours = Route { mtu: Some(1_300), ..route(link.index, "198.18.2.0/24", 7) };
    let told = |route: &Route, own, gone| Notice::Route { route: route.clone(), own, gone };
    netlink.add_route(&ours).expect("added");
    assert_eq!(notices(), [told(&ours, true, false)]);
    namespace.ip("route del 198.18.2.0/24 table 1000");
    assert_eq!(notices(), [told(&ours, true, true)]);
    namespace.ip("route add 198.18.2.0/24 dev mpip0 metric 7 mtu 1300 table 1000");
    assert_eq!(notices(), [told(&ours, false, false)]);

    let rule = RoutingRule {
        ipv6: true,
        priority: 100,
        without_mark: 0x1000,
        protocol: Some(6),
        source_ports: Some((1_000, 2_000)),
        ports: Some((7, 9)),
        table: 1_000,
    };
    netlink.add_rule(&rule).expect("added");
    netlink.delete_rule(&rule).expect("deleted");
    namespace.ip("rule add to 198.18.0.0/15 lookup 1000 priority 50");
    let rules = [(Some(rule), false), (Some(rule), true), (None, false)];
    assert_eq!(notices(), rules.map(|(own, gone)| Notice::Rule { own, gone }));
    // A device that is up again shows no more that its routes are gone.
    namespace.ip("link set mpip0 down");
    namespace.ip("link set mpip0 up");
    let down = Notice::Link { index: link.index, up: false };
    assert!(notices().contains(&down));
}

#[test]
fn a_sink_is_kept_when_it_is_to_be_and_takes_what_is_routed_to_it() {
    if !can_run(&[]) {
        return;
    }
    let namespace = Namespace::new();
    let mut netlink = namespace.run(|| Netlink::new().expect("netlink"));
    let dropped = namespace.run(|| Sink::create("sink").expect("a device"));
    assert_eq!(dropped.name(), "sink0");
    let kept = namespace.run(|| Sink::create("sink").expect("a device"));
    assert_eq!(kept.name(), "sink1");
    let link = netlink.link("sink1").expect("the device");
    netlink.set_alias(&link, "nothing comes out").expect("an alias");
    kept.keep().expect("kept");
    drop(dropped);
    wait_until_gone(&mut netlink, "sink0");
    netlink.set_up(&link).expect("up");
    wait_until_no_carrier(&mut netlink, "sink1");
    let link = netlink.link("sink1").expect("still there");
    assert_eq!(link.alias.as_deref(), Some("nothing comes out"));
    assert!(link.up && !link.carrier);
    assert!(namespace.ip("-d link show sink1").contains("user root"));

    // It is a way like others, and the last one to be taken.
    netlink.add_route(&Route { table: 254, ..route(link.index, "198.18.2.0/24", 2) }).expect("v4");
    netlink
        .add_route(&Route { table: 254, ..route(link.index, "2001:db8:2::/48", 2) })
        .expect("v6");
    assert!(namespace.ip("route get 198.18.2.9").contains("dev sink1"));
    assert!(namespace.ip("-6 route get 2001:db8:2::9").contains("dev sink1"));
    netlink.delete_link(&link).expect("deleted");
    netlink.delete_link(&link).expect("is gone");
    assert!(netlink.link("sink1").is_err());
    assert_eq!(netlink.own_routes().expect("a list"), []);
}

#[test]
fn the_way_of_a_packet_is_found_by_ipv4_and_ipv6_with_router_and_neighbour() {
    if !can_run(&[]) {
        return;
    }
    let [here, there] = [Namespace::new(), Namespace::new()];
    here.connect(&there, "v0");
    there.ip("link set v0 address 02:00:00:00:00:02");
    let mut netlink = here.run(|| Netlink::new().expect("netlink"));
    let link = netlink.link("v0").expect("the interface");
    assert!(link.ethernet.is_some(), "{link:?}");
    assert_eq!(netlink.link("lo").expect("loopback").ethernet, None);
    for (ours, router, beyond, prefix) in [
        ("198.18.0.1/24", "198.18.0.254", "198.18.9.9", "198.18.0.0/15"),
        ("2001:db8::1/64", "2001:db8::fe", "2001:db8:9::9", "2001:db8::/32"),
    ] {
        let nodad = if ours.contains(':') { "nodad" } else { "" };
        here.ip(&format!("addr add {ours} dev v0 {nodad}"));
        let source: Option<IpAddr> = ours.split('/').next().and_then(|text| text.parse().ok());
        let [router, beyond] = [router, beyond].map(|text| text.parse::<IpAddr>().expect("valid"));
        let question =
            |destination| Question { destination, source, mark: 0, bound_to: Some(link.index) };
        let near = netlink.way(question(router)).expect("an answer").expect("on the link");
        assert_eq!((near.link, near.gateway), (link.index, None));
        assert_eq!(netlink.way(question(beyond)).expect("an answer"), None, "{beyond}");
        here.ip(&format!("route add {prefix} via {router} dev v0"));
        let far = netlink.way(question(beyond)).expect("an answer").expect("by the router");
        assert_eq!((far.link, far.gateway), (link.index, Some(router)));

        assert_eq!(netlink.neighbour(link.index, router).expect("an answer"), None);
        here.ip(&format!("neigh add {router} lladdr 02:00:00:00:00:02 dev v0"));
        let found = netlink.neighbour(link.index, router).expect("an answer");
        assert_eq!(found, Some([2, 0, 0, 0, 0, 2]));
    }
}
