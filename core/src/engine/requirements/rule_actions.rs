//! What rules do besides priorities: order, paths by interface, code points.

use mpip_wire::Frame;

use super::super::harness::{Pair, SECOND, Tapped, locals, sequences, tcp, udp};
use super::super::*;
use crate::config::{PathPreference, Priority, Rule, RulePaths, SchedulerKind};
use crate::status::PathRole;
use mpip_transport::cc::CongestionControlKind;
use mpip_types::packet::{fold, sum};
use mpip_types::{Offload, Segmentation, SegmentationKind};

/// The numbers in the UDP packets among `packets`, sorted.
fn numbers(packets: &[Vec<u8>]) -> Vec<u32> {
    let number = |packet: &Vec<u8>| u32::from_be_bytes(packet[28..32].try_into().expect("4"));
    let mut numbers: Vec<u32> =
        packets.iter().filter(|packet| packet[9] == 17).map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// A rule for UDP.
fn rule(preference: PathPreference, interfaces: &[&str]) -> Rule {
    let interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
    Rule {
        protocol: Some(17),
        paths: Some(RulePaths { preference, interfaces }),
        ..Rule::default()
    }
}

/// Both hosts have this rule, and take all paths in turn where it does not say otherwise.
fn with(rule: &Rule) -> Pair {
    let mut pair = Pair::with(|_, config| {
        config.peers[0].scheduler = SchedulerKind::RoundRobin;
        config.rules = vec![rule.clone()];
    });
    pair.run_for(SECOND);
    pair
}

/// Sends packets of UDP; returns the interfaces on which they left.
fn interfaces_of(pair: &mut Pair, numbers: core::ops::Range<u32>) -> BTreeSet<u16> {
    pair.tap = Some(Vec::new());
    for number in numbers {
        pair.send(0, &udp(number, 100), Offload::default());
        pair.run_for(Duration::from_millis(1));
    }
    pair.run_for(Duration::from_millis(100));
    let sent = pair.tapped();
    let carried = sent.iter().filter(|d| d.host == 0 && d.carries());
    carried.map(|d| d.to.local.0).collect()
}

#[test]
fn packets_take_the_paths_of_their_rule_while_those_work() {
    use PathPreference::{Avoid, Only, Prefer};
    for (preference, listed, used, used_without) in [
        (Only, "eth1", 1, None),
        (Prefer, "eth1", 1, Some(0)),
        (Avoid, "eth0", 1, Some(0)),
        (Avoid, "eth1", 0, Some(1)),
    ] {
        let mut pair = with(&rule(preference, &[listed, "wwan7"]));
        assert_eq!(interfaces_of(&mut pair, 0..50), [used].into(), "{preference} {listed}");
        assert_eq!(numbers(&pair.out[1].packets), (0..50).collect::<Vec<_>>());

        pair.dead = vec![used];
        pair.run_for(SECOND * 5);
        let expected: BTreeSet<u16> = used_without.into_iter().collect();
        assert_eq!(interfaces_of(&mut pair, 50..100), expected, "{preference} {listed}");
        let dropped = if preference == Only { 50 } else { 0 };
        assert_eq!(pair.drops(0, DropReason::NoRulePath), dropped, "{preference} {listed}");
        // Others are not concerned.
        pair.out[1].packets.clear();
        pair.send(0, &tcp(0, 7, 100), Offload::default());
        pair.run_for(SECOND);
        assert_eq!(sequences(&pair.out[1].packets), [7]);
    }
}

#[test]
fn rules_that_change_send_the_next_packets_elsewhere() {
    let mut pair = with(&rule(PathPreference::Only, &["eth1"]));
    assert_eq!(interfaces_of(&mut pair, 0..20), [1].into());
    let peers = vec![pair.engines[0].associations[0].config.clone()];
    let now = pair.now;
    for (rules, used) in [
        (vec![rule(PathPreference::Only, &["eth0"])], vec![0]),
        (vec![], vec![0, 1]),
        (vec![rule(PathPreference::Prefer, &["eth9", "eth1"])], vec![1]),
    ] {
        let engine = &mut pair.engines[0];
        engine.reconfigure(now, peers.clone(), rules, &mut pair.out[0]);
        assert_eq!(interfaces_of(&mut pair, 0..20), used.into_iter().collect());
    }
}

#[test]
fn a_rule_for_a_peer_or_an_interface_concerns_what_goes_there_or_comes_in_there() {
    let only = rule(PathPreference::Only, &["eth1"]);
    let of_peer = |peer: &str| Rule { peer: Some(peer.to_owned()), ..only.clone() };
    let behind = |name: &str| Rule { interface: Some(name.to_owned()), ..only.clone() };
    let network = |interface: &str, address: &str| AttachedNetwork {
        interface: interface.to_owned(),
        address: address.parse().expect("an address"),
        prefix: "198.19.0.0/24".parse().expect("a prefix"),
    };
    let elsewhere = network("lan", "198.19.0.77");
    let mut pair = with(&of_peer("host1"));
    let peers = vec![pair.engines[0].associations[0].config.clone()];
    assert_eq!(peers[0].name, "host1");
    for (rule, networks, used) in [
        (of_peer("host1"), vec![], vec![1]),
        (of_peer("another"), vec![], vec![0, 1]),
        (behind("lan"), vec![elsewhere.clone()], vec![1]),
        (behind("lan"), vec![network("lan", "198.19.0.1")], vec![0, 1]),
        (behind("lan"), vec![network("dmz", "198.19.0.77")], vec![0, 1]),
        (behind("lan"), vec![elsewhere], vec![1]),
        (behind("lan"), vec![], vec![0, 1]),
    ] {
        let what = format!("{rule:?} {networks:?}");
        let now = pair.now;
        let engine = &mut pair.engines[0];
        engine.reconfigure(now, peers.clone(), vec![rule], &mut pair.out[0]);
        engine.handle_command(now, Command::Networks(networks));
        assert_eq!(interfaces_of(&mut pair, 0..20), used.into_iter().collect(), "{what}");
    }
}

#[test]
fn packets_of_a_rule_take_their_paths_by_its_scheduler_and_others_by_the_peers() {
    let in_turn =
        Rule { protocol: Some(17), scheduler: Some(SchedulerKind::RoundRobin), ..Rule::default() };
    let mut pair = Pair::with(|_, config| {
        config.peers[0].scheduler = SchedulerKind::FastestFirst;
        config.rules = vec![in_turn.clone()];
    });
    pair.run_for(SECOND);
    assert_eq!(interfaces_of(&mut pair, 0..20), [0, 1].into());
    let to = "198.19.0.2".parse().expect("valid");
    let scheduler = |pair: &mut Pair, rule| {
        pair.engines[0].way(pair.now, to, rule, 200).expect("a peer").scheduler
    };
    assert_eq!(scheduler(&mut pair, Some(0)), "round-robin");
    assert_eq!(scheduler(&mut pair, None), "fastest-first");
    pair.tap = Some(Vec::new());
    for number in 0..20 {
        pair.send(0, &tcp(0, number, 100), Offload::default());
        pair.run_for(Duration::from_millis(1));
    }
    let sent = pair.tapped();
    let carried = sent.iter().filter(|d| d.host == 0 && d.carries());
    let links: BTreeSet<u16> = carried.map(|d| d.to.local.0).collect();
    assert_eq!(links, [0].into(), "the fastest path has room for all of TCP");

    // Another scheduler of the peer does not disturb the rule, and without the rule it decides.
    let mut peer = pair.engines[0].associations[0].config.clone();
    for (kind, rules, used) in [
        (SchedulerKind::Earliest, vec![in_turn.clone()], vec![0, 1]),
        (SchedulerKind::RoundRobin, vec![in_turn], vec![0, 1]),
        (SchedulerKind::FastestFirst, vec![], vec![0]),
    ] {
        peer.scheduler = kind;
        let now = pair.now;
        pair.engines[0].reconfigure(now, vec![peer.clone()], rules, &mut pair.out[0]);
        assert_eq!(interfaces_of(&mut pair, 0..20), used.into_iter().collect(), "{kind}");
    }
}

#[test]
fn an_address_that_comes_back_is_used_by_its_rule() {
    let mut pair = with(&rule(PathPreference::Only, &["eth1"]));
    let all = locals(0);
    let now = pair.now;
    let engine = &mut pair.engines[0];
    engine.handle_command(now, Command::LocalAddresses(vec![all[0].clone()]));
    pair.run_for(SECOND);
    assert!(interfaces_of(&mut pair, 0..10).is_empty());
    let now = pair.now;
    pair.engines[0].handle_command(now, Command::LocalAddresses(all));
    pair.run_for(SECOND);
    assert_eq!(interfaces_of(&mut pair, 10..20), [1].into());
}

#[test]
fn what_waits_for_the_only_path_that_it_may_take_holds_up_nothing_else() {
    let mut pair = Pair::with(|_, config| {
        config.peers[0].congestion_control = CongestionControlKind::Cubic;
        config.rules = vec![rule(PathPreference::Only, &["eth1"])];
    });
    pair.run_for(SECOND);
    // Far more than the windows of the two paths take, from many connections.
    for number in 0..400_u32 {
        let mut packet = udp(number, 1_300);
        packet[20..22].copy_from_slice(&(1_000 + number as u16 % 40).to_be_bytes());
        pair.send(0, &packet, Offload::default());
    }
    let queued = pair.engines[0].status(pair.now, false).peers[0].queued;
    assert!(queued > 200_000, "{queued} bytes wait");
    pair.tap = Some(Vec::new());
    pair.send(0, &tcp(0, 1, 500), Offload::default());
    let sent: Vec<Tapped> = pair.tapped();
    let at_once = sent.iter().any(|d| d.at == pair.now && d.carries() && d.to.local.0 == 0);
    assert!(at_once, "it leaves on the other interface without waiting");
    pair.run_for(SECOND * 3);
    let came = numbers(&pair.out[1].packets);
    let lost = pair.engines[0].status(pair.now, false).peers[0].queue_drops;
    assert_eq!(came.len() as u64 + lost, 400, "all that CoDel did not drop have arrived");
}

#[test]
fn a_lost_packet_is_sent_again_only_where_its_rule_permits() {
    let ordered = Rule { ordered: Some(true), ..rule(PathPreference::Only, &["eth1"]) };
    let mut pair = Pair::with(|_, config| {
        config.peers[0].congestion_control = CongestionControlKind::Cubic;
        config.rules = vec![ordered.clone()];
    });
    pair.run_for(SECOND);
    pair.lose = Some(5);
    pair.tap = Some(Vec::new());
    for number in 0..100 {
        pair.send(0, &udp(number, 600), Offload::default());
        pair.run_for(Duration::from_millis(2));
    }
    pair.run_for(SECOND);
    assert_eq!(numbers(&pair.out[1].packets), (0..100).collect::<Vec<_>>());
    let sent = pair.tapped();
    let carried: Vec<_> = sent.iter().filter(|d| d.host == 0 && d.carries()).collect();
    assert!(carried.len() > 110, "{} datagrams", carried.len());
    assert!(carried.iter().all(|d| d.to.local.0 == 1));
}

#[test]
fn a_rule_puts_packets_in_order_or_leaves_them_as_they_come() {
    for (ordered, make) in [
        (Some(true), udp as fn(u32, usize) -> Vec<u8>),
        (None, udp),
        (Some(false), |number, payload| tcp(0, number, payload)),
        (None, |number, payload| tcp(0, number, payload)),
    ] {
        let mut pair = with(&Rule { ordered, ..Rule::default() });
        let sent: Vec<_> = (0..100).map(|number| make(number, 500)).collect();
        for packet in &sent {
            pair.send(0, packet, Offload::default());
        }
        pair.run_for(SECOND);
        let came = &pair.out[1].packets;
        assert_eq!(came.len(), sent.len());
        let in_order = ordered.unwrap_or(sent[0][9] == 6);
        assert_eq!(*came == sent, in_order, "the paths have different delays, {ordered:?}");
    }
}

#[test]
fn a_code_point_is_set_on_every_segment_and_fields_are_omitted_as_before() {
    let mut pair = with(&Rule { set_dscp: Some(46), ..Rule::default() });
    let with_ecn = |mut packet: Vec<u8>, ecn: u8| {
        packet[1] = 10 << 2 | ecn;
        let checksum = !fold(sum(&packet[..20]));
        packet[10..12].copy_from_slice(&checksum.to_ne_bytes());
        packet
    };
    pair.tap = Some(Vec::new());
    for number in 0..60 {
        let make: fn(u32) -> Vec<u8> =
            if number % 2 == 0 { |number| tcp(0, number, 300) } else { |number| udp(number, 300) };
        pair.send(0, &with_ecn(make(number), (number % 4) as u8), Offload::default());
        pair.run_for(Duration::from_millis(10));
    }
    let segmentation = Some(Segmentation { kind: SegmentationKind::Tcp, size: 1_000 });
    let offload = Offload { segmentation, partial_checksum: None };
    pair.send(0, &with_ecn(tcp(0, 100, 10_000), 0), offload);
    pair.run_for(SECOND);
    let came = &pair.out[1].packets;
    assert_eq!(came.len(), 70);
    for packet in came {
        assert_eq!(packet[1] >> 2, 46);
        assert_eq!(fold(sum(&packet[..20])), 0xffff, "the header's checksum is right");
    }
    let fields: Vec<u8> = came.iter().map(|packet| packet[1] & 3).collect();
    let mut expected: Vec<u8> = (0..60).map(|number| number % 4).collect();
    expected.extend([0; 10]);
    let sorted = |mut fields: Vec<u8>| {
        fields.sort_unstable();
        fields
    };
    assert_eq!(sorted(fields), sorted(expected), "ECN stays");
    let sent = pair.tapped();
    let datagrams = || sent.iter().filter(|d| d.host == 0);
    let compact = |d: &&Tapped| d.frames().any(|f| matches!(f, Frame::CompactPacket { .. }));
    assert!(datagrams().filter(compact).count() > 20, "most of UDP and the segments");
    let announced = datagrams().flat_map(Tapped::frames).filter_map(|frame| match frame {
        Frame::SessionOpen { fields, .. } => Some(fields.traffic_class >> 2),
        _ => None,
    });
    let announced: BTreeSet<u8> = announced.collect();
    assert_eq!(announced, [46].into());
}

/// What each of host 0's paths would do for a packet of UDP, by number, and the scheduler's name.
fn roles(pair: &mut Pair, rule: Option<usize>) -> Vec<PathRole> {
    let to = "198.19.0.2".parse().expect("valid");
    let way = pair.engines[0].way(pair.now, to, rule, 200).expect("a peer");
    assert_eq!(way.scheduler, "round-robin");
    let mut paths = way.paths;
    paths.sort_by_key(|path| path.id);
    paths.iter().map(|path| path.role).collect()
}

#[test]
fn the_way_of_a_packet_is_the_one_that_the_next_one_takes() {
    use PathRole::{Candidate, Copy, None as Nothing, Takes};
    let redundant = Rule { priority: Some(Priority::Redundant), ..Rule::default() };
    let response = Rule { priority: Some(Priority::Response), ..Rule::default() };
    let only = rule(PathPreference::Only, &["eth1"]);
    let mut pair = Pair::with(|_, config| {
        config.peers[0].scheduler = SchedulerKind::RoundRobin;
        config.rules = vec![redundant.clone(), response.clone(), only.clone()];
    });
    pair.run_for(SECOND);
    pair.tap = Some(Vec::new());
    pair.send(0, &udp(0, 100), Offload::default());
    let sent = pair.tapped();
    let carried: Vec<u16> =
        sent.iter().filter(|d| d.host == 0 && d.carries()).filter_map(Tapped::path).collect();
    let status = pair.engines[0].status(pair.now, false);
    let mut ids: Vec<u16> = status.peers[0].paths.iter().map(|path| path.id).collect();
    ids.sort_unstable();
    let expected = |id: &u16| match carried.iter().position(|on| on == id) {
        Some(0) => Takes,
        Some(_) => Copy,
        None => Nothing,
    };
    assert_eq!(roles(&mut pair, Some(0)), ids.iter().map(expected).collect::<Vec<_>>());
    let alone = |role| if role == Takes { Takes } else { Nothing };
    let expected: Vec<_> = ids.iter().map(expected).map(alone).collect();
    assert_eq!(roles(&mut pair, Some(1)), expected);
    assert_eq!(roles(&mut pair, None), [Candidate; 4]);
    let on_eth1 = |id: &u16| {
        status.peers[0].paths.iter().any(|path| path.id == *id && path.interface == "eth1")
    };
    let expected = |id: &u16| if on_eth1(id) { Candidate } else { Nothing };
    assert_eq!(roles(&mut pair, Some(2)), ids.iter().map(expected).collect::<Vec<_>>());
    assert!(
        pair.engines[0].way(pair.now, "203.0.113.9".parse().expect("valid"), None, 60).is_none()
    );
    pair.dead = vec![1];
    pair.run_for(SECOND * 5);
    assert_eq!(roles(&mut pair, Some(2)), [Nothing; 4]);
}
