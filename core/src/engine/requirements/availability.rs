//! Availability queries and unknown peers.

use mpip_crypto::PrivateKey;
use mpip_wire::{AnswerRepr, QueryRepr};

use super::super::harness::{
    Out, Packets, Pair, SECOND, TCP_LOCAL, TCP_PORT, address, locals, locals_with_tcp, sequences,
    tcp,
};
use super::super::*;
use crate::availability::AvailabilityState;
use crate::config::{EncapsulationPolicy, Opportunistic, Pin, Policy, SchedulerKind};
use crate::engine::Command;
use mpip_transport::PathState;
use mpip_transport::cc::CongestionControlKind;
use mpip_types::Encapsulation;
use mpip_types::Offload;
use mpip_types::PacketPool;

const ANSWER: u8 = 6;

/// Both nodes accept unknown peers at their own addresses; no peer is configured.
fn unknown_peers(adjust: impl Fn(usize, &mut Config)) -> Pair {
    Pair::with(|host, config| {
        config.peers.clear();
        config.opportunistic = Some(settings());
        adjust(host, config);
    })
}

fn settings() -> Opportunistic {
    let prefixes = vec!["198.18.0.0/16".parse().expect("valid")];
    let exclusive = prefixes.clone();
    Opportunistic { prefixes, exclusive, port: 6182, ..Opportunistic::default() }
}

fn public(host: u8) -> PublicKey {
    *PrivateKey::from_bytes([host + 1; 32]).public_key()
}

/// The day on which the engines of a [`Pair`] start.
const TODAY: u32 = (1 << 30) / 86_400;
const EXPIRY: u32 = 180;

fn pin(address: IpAddr, host: u8, met: Option<u32>) -> Pin {
    Pin { address, public_key: public(host), met }
}

/// Host 0 has `pins`, which expire after [`EXPIRY`] days.
fn knowing(pins: &[Pin]) -> Pair {
    unknown_peers(|host, config| {
        if let Some(settings) = config.opportunistic.as_mut().filter(|_| host == 0) {
            (settings.pins, settings.pin_expiry) = (pins.to_vec(), Some(EXPIRY));
        }
    })
}

fn pin_changes(pair: &mut Pair) -> Vec<PinChange> {
    core::iter::from_fn(|| pair.engines[0].poll_pin()).collect()
}

fn inner(host: usize) -> IpAddr {
    address(host, 0).ip()
}

/// Host 0 talks to host 1.
fn talk(pair: &mut Pair) {
    let now = pair.now;
    pair.engines[0].handle_destination(now, inner(0), inner(1));
}

fn events(pair: &mut Pair, host: usize) -> Vec<Event> {
    core::iter::from_fn(|| pair.engines[host].poll_event()).collect()
}

fn state(pair: &Pair) -> Option<AvailabilityState> {
    let all = pair.engines[0].availability(pair.now);
    all.iter().find(|entry| entry.address == inner(1)).map(|entry| entry.state)
}

fn established(pair: &Pair, host: usize) -> Vec<bool> {
    let status = pair.engines[host].status(pair.now, false);
    status.peers.iter().map(|peer| peer.established).collect()
}

/// A packet between the hosts' own addresses.
fn plain(host: usize, sequence: u32) -> Vec<u8> {
    let mut packet = tcp(host, sequence, 100);
    packet[13] = 18;
    packet[17] = 18;
    packet
}

fn query(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    QueryRepr { nonce: 99, len }.emit(&mut bytes).expect("long enough");
    bytes
}

/// What each host sends to the other now arrives, in order.
fn assert_carries_both_ways(pair: &mut Pair) {
    for n in 0..20 {
        pair.send(0, &plain(0, n), Offload::default());
        pair.send(1, &plain(1, 100 + n), Offload::default());
    }
    pair.run_for(SECOND);
    assert_eq!(sequences(&pair.out[1].packets), (0..20).collect::<Vec<_>>());
    assert_eq!(sequences(&pair.out[0].packets), (100..120).collect::<Vec<_>>());
}

///
#[test]
fn unknown_peers_find_each_other_and_carry_packets_between_their_own_addresses() {
    let mut pair = unknown_peers(|_, _| {});
    talk(&mut pair);
    pair.run_for(SECOND);
    assert_eq!((established(&pair, 0), established(&pair, 1)), (vec![true], vec![true]));
    assert_eq!(state(&pair), Some(AvailabilityState::Enabled { public_key: public(1) }));
    let pinned = Event::Pinned { address: inner(1), public_key: public(1), former: None };
    assert!(events(&mut pair, 0).contains(&pinned));
    let at_the_other = events(&mut pair, 1);
    assert!(!at_the_other.iter().any(|event| matches!(event, Event::Pinned { .. })));
    assert_carries_both_ways(&mut pair);
    assert_eq!(pair.states(0).len(), 2, "from both addresses to the one that was asked");
}

/// [E-9]
#[test]
fn only_sealed_datagrams_prove_the_presence_of_a_node() {
    let mut pair = unknown_peers(|_, _| {});
    talk(&mut pair);
    pair.run_for(SECOND);
    let transport = pair.proved.split_off(&0x80);
    assert!(!transport.is_empty());
    assert!(transport.values().all(|sender| *sender == Sender::Authenticated));
    // Initiation, response, cookie reply, query and answer prove nothing.
    assert_eq!(pair.proved, [1, 2, 3, 5, 6].map(|message| (message, Sender::Unknown)).into());
}

///
#[test]
fn validated_remote_addresses_of_an_unknown_peer_become_inner_addresses() {
    let mut pair = unknown_peers(|_, _| {});
    talk(&mut pair);
    pair.run_for(SECOND);
    // Host 0 has opened paths from both of its addresses, and to the address that it queried.
    let owner =
        |host: usize, link| pair.engines[host].shared.prefixes.find(address(1 - host, link).ip());
    assert_eq!([owner(1, 0), owner(1, 1)], [Some(0); 2]);
    assert_eq!([owner(0, 0), owner(0, 1)], [Some(0), None]);
    let pinned = events(&mut pair, 0);
    let pinned = pinned.iter().filter(|event| matches!(event, Event::Pinned { .. })).count();
    assert_eq!(pinned, 1);

    let mut pair = unknown_peers(|host, config| {
        if host == 1 {
            config.opportunistic.as_mut().expect("set").pins =
                vec![pin(address(0, 1).ip(), 7, None)];
        }
    });
    talk(&mut pair);
    pair.run_for(SECOND);
    assert_eq!(established(&pair, 1), [true]);
    assert_eq!(pair.engines[1].shared.prefixes.find(address(0, 1).ip()), None, "pinned to another");
}

/// [P-20] When unknown peers have met, one of them may know only one address of the other. It would
/// refuse packets from the others.
#[test]
fn packets_from_an_address_that_the_peer_does_not_know_stay_plain() {
    let mut pair = unknown_peers(|_, _| {});
    talk(&mut pair);
    pair.run_for(SECOND);
    let from = |link: u8, sequence| {
        let mut packet = plain(1, sequence);
        packet[14] = link;
        packet
    };
    let mut taken = Vec::new();
    for sequence in 0..10 {
        pair.send(1, &from(1, sequence), Offload::default());
        pair.send(1, &from(0, 100 + sequence), Offload::default());
        pair.engines[1].take_plain(&mut Packets(&mut taken));
    }
    pair.run_for(SECOND);
    assert_eq!(sequences(&taken), (0..10).collect::<Vec<_>>());
    assert_eq!(sequences(&pair.out[0].packets), (100..110).collect::<Vec<_>>());
    assert_eq!(pair.drops(0, DropReason::ForeignSource), 0);
}

#[test]
fn an_unknown_peer_outlives_a_renewal_of_the_keys() {
    let mut pair = unknown_peers(|_, _| {});
    talk(&mut pair);
    pair.run_for(SECOND * 400);
    assert_eq!((established(&pair, 0), established(&pair, 1)), (vec![true], vec![true]));
    let status = pair.engines[0].status(pair.now, false);
    assert!(status.peers[0].handshake_age.is_some_and(|age| age < SECOND * 125));
}

/// [A-7] [P-20]
#[test]
fn an_unknown_peer_behind_a_nat_is_found_and_running_connections_stay_plain() {
    let mut pair = unknown_peers(|_, config| {
        let prefixes = &mut config.opportunistic.as_mut().expect("set").prefixes;
        prefixes.push("203.0.113.0/24".parse().expect("valid"));
    });
    let elsewhere: SocketAddr = "203.0.113.7:40000".parse().expect("valid");
    pair.translated = Some((0, elsewhere));
    talk(&mut pair);
    pair.run_for(SECOND * 3);
    assert_eq!((established(&pair, 0), established(&pair, 1)), (vec![true], vec![true]));
    for host in 0..2 {
        let status = pair.engines[host].status(pair.now, false);
        let captured = &status.peers[0].captured;
        assert!(!captured.iter().any(|prefix| prefix.contains(elsewhere.ip())), "{captured:?}");
    }
    let running = plain(0, 7);
    pair.send(0, &running, Offload::default());
    let mut packets = Vec::new();
    pair.engines[0].take_plain(&mut Packets(&mut packets));
    assert_eq!(packets, [running]);
}

///
#[test]
fn a_query_is_answered_where_the_configuration_says_so_and_at_a_limited_rate() {
    let mut pair = unknown_peers(|_, _| {});
    let from = PathAddress { local: LocalId(0), remote: address(0, 0) };
    let foreign = PathAddress { remote: "203.0.113.1:6182".parse().expect("valid"), ..from };
    assert_eq!(pair.deliver(1, foreign, &query(44)), Err(DropReason::Availability));
    assert!(pair.out[1].datagrams.is_empty());
    for len in [44, 45, 1_200] {
        pair.deliver(1, from, &query(len)).expect("answered");
        let (to, answer) = pair.out[1].datagrams.pop().expect("an answer");
        assert_eq!((to, answer[0]), (from, ANSWER));
        assert!(answer.len() <= len, "{} for {len}", answer.len());
    }
    let answered = (0..1_000).filter(|_| pair.deliver(1, from, &query(44)).is_ok()).count();
    assert!(answered <= 50, "{answered}");

    let mut silent = unknown_peers(|_, config| config.opportunistic = None);
    assert_eq!(silent.deliver(1, from, &query(44)), Err(DropReason::Availability));
    assert!(silent.out[1].datagrams.is_empty());
}

/// [H-18]
#[test]
fn job_results_for_a_removed_unknown_peer_are_ignored() {
    let mut pair = unknown_peers(|_, _| {});
    pair.work = SECOND * 15;
    talk(&mut pair);
    // The initiation is made after 15 s, the unknown peer removed after 20 s, the response made
    // after 30 s.
    pair.run_for(SECOND * 60);
    assert_eq!((established(&pair, 0), established(&pair, 1)), (vec![], vec![]));
    assert!(pair.engines.iter().all(|engine| engine.shared.indices.is_empty()));
    pair.work = Duration::ZERO;
    pair.run_for(SECOND * 600);
    talk(&mut pair);
    pair.run_for(SECOND * 10);
    assert_eq!((established(&pair, 0), established(&pair, 1)), (vec![true], vec![true]));
}

///
#[test]
fn a_node_that_does_not_answer_queries_is_no_longer_asked() {
    let mut pair = unknown_peers(|host, config| {
        if host == 1 {
            config.opportunistic = None;
        }
    });
    for _ in 0..2_000 {
        talk(&mut pair);
        pair.run_for(SECOND);
    }
    let refused = pair.drops(1, DropReason::Availability);
    assert_eq!(refused, 5 + 3, "five, then one in ten minutes");
    assert_eq!(state(&pair), Some(AvailabilityState::NotEnabled));
    assert!(pair.engines[0].associations.is_empty());
}

#[test]
fn only_destinations_within_the_prefixes_and_of_no_peer_are_queried() {
    let mut pair = Pair::with(|_, config| config.opportunistic = Some(settings()));
    let (now, engine) = (pair.now, &mut pair.engines[0]);
    for text in ["203.0.113.1", "2001:db8::1", "198.19.0.2", "198.18.0.1", "198.18.1.1"] {
        engine.handle_destination(now, inner(0), text.parse().expect("valid"));
    }
    assert!(engine.availability(now).is_empty(), "foreign, a peer's, our own");
    engine.handle_destination(now, inner(0), inner(1));
    assert_eq!(engine.availability(now).len(), 1);
}

///
#[test]
fn a_changed_key_is_refused_on_both_sides() {
    let mut pair = unknown_peers(|host, config| {
        if host == 0 {
            config.opportunistic.as_mut().expect("set").pins = vec![pin(inner(1), 7, None)];
        }
    });
    talk(&mut pair);
    pair.run_for(SECOND * 30);
    let changed = Event::KeyChanged { address: inner(1), pinned: public(7), found: public(1) };
    assert!(events(&mut pair, 0).contains(&changed));
    assert_eq!(state(&pair), Some(AvailabilityState::KeyChanged { public_key: public(1) }));
    assert_eq!((established(&pair, 0), established(&pair, 1)), (vec![], vec![]));

    let mut pair = unknown_peers(|host, config| {
        if host == 1 {
            config.opportunistic.as_mut().expect("set").pins = vec![pin(inner(0), 7, None)];
        }
    });
    talk(&mut pair);
    pair.run_for(SECOND * 60);
    let changed = Event::KeyChanged { address: inner(0), pinned: public(7), found: public(0) };
    // Reported once, however often the other node initiated.
    let told = events(&mut pair, 1).into_iter().filter(|event| *event == changed);
    assert_eq!(told.count(), 1);
    assert_eq!(state(&pair), Some(AvailabilityState::NotEnabled));
    assert_eq!((established(&pair, 0), established(&pair, 1)), (vec![], vec![]));
}

///
#[test]
fn an_expired_pin_is_replaced_and_a_pin_in_use_is_renewed_daily() {
    let mut pair = knowing(&[pin(inner(1), 7, Some(TODAY - EXPIRY))]);
    talk(&mut pair);
    pair.run_for(SECOND * 30);
    assert_eq!(established(&pair, 0), [] as [bool; 0], "on its last day it holds");
    assert_eq!(pin_changes(&mut pair), []);

    let mut pair = knowing(&[pin(inner(1), 7, Some(TODAY - EXPIRY - 1))]);
    talk(&mut pair);
    pair.run_for(SECOND);
    assert_eq!(established(&pair, 0), [true]);
    let former = Some(public(7));
    let pinned = Event::Pinned { address: inner(1), public_key: public(1), former };
    assert!(events(&mut pair, 0).contains(&pinned));
    let met = |day| pin(inner(1), 1, Some(day));
    assert_eq!(pin_changes(&mut pair), [PinChange::Pinned(met(TODAY))]);

    // The association lasts and is in use on the next day.
    let unix_time = Duration::from_secs(u64::from(TODAY + 3) * 86_400);
    pair.engines[0].handle_command(pair.now, Command::WallClock(unix_time));
    pair.run_for(SECOND);
    pair.send(0, &plain(0, 1), Offload::default());
    pair.run_for(SECOND);
    assert_eq!(pin_changes(&mut pair), [PinChange::Met(met(TODAY + 3))]);
}

///
#[test]
fn a_node_of_a_network_with_its_full_share_of_pins_stays_plain() {
    let network = |third: u8| move |host| IpAddr::from([198, 18, third, host]);
    let others = |site: usize| {
        let addresses = (0..16).flat_map(|third| (0..=255).map(network(third + 100)));
        let pins = addresses.map(|address| pin(address, 7, Some(TODAY)));
        pins.take(site).collect::<Vec<_>>()
    };
    for (count, expected) in [(4_095, vec![true]), (4_096, vec![])] {
        let mut pair = knowing(&others(count));
        talk(&mut pair);
        pair.run_for(SECOND * 5);
        assert_eq!(established(&pair, 0), expected, "{count} in 198.18.0.0/16");
    }
}

///
#[test]
fn an_answer_with_the_key_of_another_node_leads_to_nothing() {
    let mut pair = unknown_peers(|host, config| {
        if host == 1 {
            config.opportunistic = None;
        }
    });
    talk(&mut pair);
    let mut out = Out::default();
    let mut none = Vec::new();
    pair.engines[0].handle_timeout(pair.now, &mut out, &mut Packets(&mut none));
    out.settle();
    let (to, query) = out.datagrams.pop().expect("a query");
    let nonce = u64::from_be_bytes(query[4..12].try_into().expect("8"));
    let mut answer = vec![0; 44];
    let forged = AnswerRepr { flags: 0, nonce, public_key: *public(9).as_bytes() };
    forged.emit(&mut answer).expect("44 bytes");
    pair.deliver(0, to, &answer).expect("the nonce is right");
    assert_eq!(established(&pair, 0), [false]);
    pair.run_for(SECOND * 30);
    assert_eq!(established(&pair, 0), [] as [bool; 0]);
    assert_eq!(state(&pair), Some(AvailabilityState::NotEnabled));
    assert!(pair.engines[0].shared.indices.is_empty(), "nothing is left of it");
    assert_eq!(pair.engines[0].shared.prefixes.find(inner(1)), None);
    assert!(!events(&mut pair, 0).iter().any(|event| matches!(event, Event::Pinned { .. })));
}

///
#[test]
fn no_state_is_kept_for_an_unknown_initiator_before_it_has_returned_a_cookie() {
    let mut pair = unknown_peers(|_, _| {});
    talk(&mut pair);
    // Query and answer pass, then the initiation; its cookie reply is lost.
    pair.pass = |host, _, bytes| host == 0 || bytes[0] == ANSWER;
    pair.run_for(SECOND * 10);
    assert!(pair.drops(1, DropReason::UnderLoad) > 2);
    assert!(pair.engines[1].associations.is_empty() && pair.engines[1].by_key.is_empty());
    assert_eq!(pair.engines[1].shared.prefixes.find(inner(0)), None);
}

#[test]
fn an_unknown_peer_that_does_not_complete_its_handshake_is_removed() {
    let mut pair = unknown_peers(|_, _| {});
    talk(&mut pair);
    pair.pass = |host, _, bytes| host == 1 || bytes[0] < 0x80;
    pair.run_for(Duration::from_millis(100));
    assert_eq!(established(&pair, 1), [false]);
    pair.pass = |_, _, _| false;
    pair.run_for(SECOND * 60);
    assert_eq!(established(&pair, 1), [] as [bool; 0]);
    assert!(pair.engines[1].shared.indices.is_empty() && pair.engines[1].by_key.is_empty());
}

#[test]
fn an_unknown_peer_that_leaves_is_removed_and_found_again() {
    let mut pair = unknown_peers(|_, _| {});
    talk(&mut pair);
    pair.run_for(SECOND);
    pair.engines[1].handle_command(pair.now, Command::Shutdown);
    pair.run_for(SECOND);
    assert_eq!(established(&pair, 0), [] as [bool; 0]);
    let [_, mut restarted] = unknown_peers(|_, _| {}).engines;
    restarted.handle_command(pair.now, Command::LocalAddresses(locals(1)));
    restarted.shared.instance = 77;
    pair.engines[1] = restarted;
    assert_eq!(state(&pair), Some(AvailabilityState::NotEnabled));
    let packet = PacketPool::new(1, 1).copy_from(&plain(0, 1)).expect("a buffer");
    let refused = pair.engines[0].handle_tun(pair.now, packet);
    assert_eq!(refused, Err(DropReason::NoPeer));
    pair.run_for(SECOND * 600);
    talk(&mut pair);
    pair.run_for(SECOND);
    assert_eq!((established(&pair, 0), established(&pair, 1)), (vec![true], vec![true]));
    assert_eq!(pair.engines[0].associations.len(), 1, "the number is used again");
    let pinned = events(&mut pair, 0);
    let pinned = pinned.iter().filter(|event| matches!(event, Event::Pinned { .. })).count();
    assert_eq!(pinned, 1, "it stays");
}

#[test]
fn at_the_limit_an_idle_unknown_peer_is_removed_and_a_busy_one_stays() {
    let mut pair = unknown_peers(|_, config| config.limits.unknown_nodes = 1);
    talk(&mut pair);
    pair.run_for(SECOND);
    pair.send(0, &plain(0, 1), Offload::default());
    pair.run_for(SECOND);
    let other: IpAddr = "198.18.7.7".parse().expect("valid");
    let now = pair.now;
    let add = |pair: &mut Pair, at| pair.engines[0].add_node(at, other, public(8), true);
    assert_eq!(add(&mut pair, now), None, "its session is in use");
    pair.run_for(SECOND * 200);
    let now = pair.now;
    assert_eq!(add(&mut pair, now), Some(0));
    assert_eq!(pair.engines[0].shared.prefixes.find(inner(1)), None);
}

///
#[test]
fn a_second_node_at_an_address_is_refused() {
    let mut pair = unknown_peers(|_, _| {});
    let (now, engine) = (pair.now, &mut pair.engines[1]);
    assert_eq!(engine.add_node(now, inner(0), public(8), false), Some(0));
    talk(&mut pair);
    pair.run_for(SECOND);
    let refused = |event: &Event| matches!(event, Event::HandshakeRefused { .. });
    assert!(events(&mut pair, 1).iter().any(refused));
    assert_eq!(pair.engines[1].by_key.len(), 1);
}

///
#[test]
fn a_known_node_may_not_come_from_the_address_of_another_one() {
    let mut pair = unknown_peers(|_, _| {});
    talk(&mut pair);
    pair.run_for(SECOND);
    let other = SocketAddr::new("198.18.7.7".parse().expect("valid"), 6_182);
    let now = pair.now;
    assert!(pair.engines[1].add_node(now, other.ip(), public(8), false).is_some());
    events(&mut pair, 1);
    pair.translated = Some((0, other));
    pair.association(0).wear_out_keys();
    pair.send(0, &plain(0, 2), Offload::default());
    pair.run_for(SECOND * 10);
    let refused = |event: &Event| matches!(event, Event::HandshakeRefused { .. });
    assert!(events(&mut pair, 1).iter().any(refused));
}

#[test]
fn a_query_leaves_from_the_address_in_use_first_and_then_from_the_others() {
    let mut pair = unknown_peers(|_, _| {});
    pair.pass = |_, _, _| false;
    let (now, source) = (pair.now, locals(0)[1].address.ip());
    pair.engines[0].handle_destination(now, source, inner(1));
    let mut from = Vec::new();
    for _ in 0..16 {
        let mut out = Out::default();
        pair.engines[0].handle_timeout(pair.now, &mut out, &mut Packets(&mut Vec::new()));
        out.settle();
        from.extend(out.datagrams.iter().map(|(to, _)| to.local.0));
        pair.now += SECOND;
    }
    assert_eq!(from, [1, 0, 1, 0, 1]);
}

/// Both nodes accept unknown peers, by `policy` alone where that says so, and have addresses for
/// UDP and TCP.
fn with_tcp(policy: EncapsulationPolicy) -> Pair {
    let mut pair = unknown_peers(|_, config| {
        let peer = &mut config.opportunistic.as_mut().expect("set").peer;
        (peer.encapsulation, peer.tcp_port) = (policy, Some(TCP_PORT));
    });
    for host in 0..2 {
        let list = locals_with_tcp(host);
        pair.engines[host].handle_command(pair.now, Command::LocalAddresses(list));
    }
    pair.tap = Some(Vec::new());
    pair
}

/// Whether each query of host 0 since the last call went by TCP.
fn queries_by_tcp(pair: &mut Pair) -> Vec<bool> {
    let sent = pair.tapped().into_iter().filter(|sent| sent.host == 0 && sent.bytes[0] == 5);
    sent.map(|sent| sent.to.local.0 >= TCP_LOCAL).collect()
}

fn kinds(pair: &Pair, host: usize) -> Vec<Encapsulation> {
    let status = pair.engines[host].status(pair.now, false);
    let paths = status.peers.iter().flat_map(|peer| &peer.paths);
    let works = paths.filter(|path| path.state == PathState::Active);
    works.map(|path| path.encapsulation).collect()
}

///
#[test]
fn queries_alternate_between_udp_and_tcp_where_both_are_permitted() {
    for (policy, expected) in [
        (EncapsulationPolicy::Auto, [false, true, false, true, false]),
        (EncapsulationPolicy::Udp, [false; 5]),
        (EncapsulationPolicy::Tcp, [true; 5]),
    ] {
        let mut pair = with_tcp(policy);
        pair.pass = |_, _, _| false;
        talk(&mut pair);
        pair.run_for(SECOND * 40);
        assert_eq!(queries_by_tcp(&mut pair), expected, "{policy}");
    }
    // Without an address for UDP nothing is to be tried first.
    let mut pair = with_tcp(EncapsulationPolicy::Auto);
    let mut tcp = locals_with_tcp(0);
    tcp.retain(|local| local.encapsulation == Encapsulation::Tcp);
    pair.engines[0].handle_command(pair.now, Command::LocalAddresses(tcp));
    talk(&mut pair);
    pair.run_for(SECOND * 3);
    assert_eq!(queries_by_tcp(&mut pair), [true]);
    assert_eq!(kinds(&pair, 0), [Encapsulation::Tcp; 2]);
}

///
#[test]
fn unknown_peers_find_each_other_where_udp_is_blocked() {
    let mut pair = with_tcp(EncapsulationPolicy::Auto);
    pair.pass = |_, to, _| to.local.0 >= TCP_LOCAL;
    talk(&mut pair);
    pair.run_for(SECOND * 6);
    assert_eq!(queries_by_tcp(&mut pair), [false, true], "the second was answered");
    assert_eq!((established(&pair, 0), established(&pair, 1)), (vec![true], vec![true]));
    assert_eq!(
        (kinds(&pair, 0), kinds(&pair, 1)),
        (vec![Encapsulation::Tcp; 2], vec![Encapsulation::Tcp; 2])
    );
    assert_carries_both_ways(&mut pair);

    // UDP returns, and takes the place of TCP as with configured peers.
    pair.pass = |_, _, _| true;
    pair.run_for(SECOND * 30);
    assert_eq!(kinds(&pair, 0), [Encapsulation::Udp; 2]);
}

///
#[test]
fn an_answer_from_the_port_of_the_other_encapsulation_is_refused() {
    let mut pair = with_tcp(EncapsulationPolicy::Udp);
    pair.pass = |_, _, _| false;
    talk(&mut pair);
    pair.run_for(Duration::ZERO);
    let query = pair.tapped().pop().expect("a query");
    let nonce = u64::from_be_bytes(query.bytes[4..12].try_into().expect("8"));
    let mut answer = vec![0; 44];
    let repr = AnswerRepr { flags: 0, nonce, public_key: *public(1).as_bytes() };
    repr.emit(&mut answer).expect("44 bytes");
    let remote = SocketAddr::new(inner(1), TCP_PORT);
    let elsewhere = PathAddress { remote, ..query.to };
    assert_eq!(pair.deliver(0, elsewhere, &answer), Err(DropReason::Availability));
    let gone = PathAddress { local: LocalId(77), ..query.to };
    assert_eq!(pair.deliver(0, gone, &answer), Err(DropReason::Availability));
    pair.deliver(0, query.to, &answer).expect("the address and port that were asked");
}

#[test]
fn unknown_peers_have_the_settings_of_the_configuration_and_follow_their_changes() {
    let settings = |config: &mut Config| {
        let peer = &mut config.opportunistic.as_mut().expect("set").peer;
        peer.scheduler = SchedulerKind::RoundRobin;
        peer.congestion_control = CongestionControlKind::Cubic;
        peer.max_paths = Some(1);
        // What an unknown peer cannot have.
        peer.policy = Policy::Require;
        peer.endpoints = vec![address(1, 1)];
        peer.allowed_prefixes = vec!["203.0.113.0/24".parse().expect("valid")];
        peer.reaches = peer.allowed_prefixes.clone();
    };
    let mut pair = unknown_peers(|_, config| settings(config));
    talk(&mut pair);
    pair.run_for(SECOND);
    let peer =
        |pair: &Pair, host: usize| pair.engines[host].status(pair.now, false).peers.remove(0);
    for host in 0..2 {
        let peer = peer(&pair, host);
        assert_eq!((peer.scheduler, peer.congestion_control), ("round-robin", "cubic"));
        assert_eq!(peer.policy, Policy::Prefer);
        let foreign = "203.0.113.1".parse().expect("valid");
        assert_eq!(pair.engines[host].shared.prefixes.find(foreign), None);
    }
    let active = |pair: &Pair| {
        let paths = peer(pair, 0).paths;
        paths.iter().filter(|path| path.state == PathState::Active).count()
    };
    assert_eq!(active(&pair), 1);

    let changed = PeerConfig { max_paths: None, ..PeerConfig::unnamed() };
    let now = pair.now;
    for engine in &mut pair.engines {
        engine.handle_command(now, Command::UnknownPeers(changed.clone()));
    }
    pair.run_for(SECOND);
    assert_eq!(peer(&pair, 0).scheduler, "earliest");
    assert_eq!(active(&pair), 2);
    let before = pair.engines[0].shared.prefixes.find(inner(1));
    assert!(before.is_some(), "it is admitted as before");
    pair.send(0, &plain(0, 7), Offload::default());
    pair.run_for(SECOND);
    assert_eq!(sequences(&pair.out[1].packets), [7]);
}
