//! Handshake and keys.

use std::collections::{BTreeMap, BTreeSet};

use mpip_crypto::{CookieMemory, Initiator, PresharedKey, PrivateKey};
use mpip_wire::{AeadSet, Frame, InitiationPayload};

use super::super::harness::*;
use super::super::*;
use crate::config::SchedulerKind;
use mpip_transport::PathState;
use mpip_types::{Offload, PacketPool};

const INITIATION: u8 = 1;
const RESPONSE: u8 = 2;
const COOKIE_REPLY: u8 = 3;

fn is_initiation(datagram: &Tapped) -> bool {
    datagram.bytes[0] == INITIATION
}

/// A pair whose links are cut and tapped, and host 0's first initiation.
fn cut_off() -> (Pair, Tapped) {
    let mut pair = Pair::new(|_| {});
    pair.tap = Some(Vec::new());
    pair.pass = |_, _, _| false;
    pair.run_for(SECOND / 2);
    let initiation = pair.tapped().into_iter().find(is_initiation).expect("an initiation");
    (pair, initiation)
}

/// An initiation from the node with the private key `key` to host 1.
fn initiation(key: [u8; 32], aeads: u8, seconds: u64) -> Vec<u8> {
    let mut payload = [0; InitiationPayload::LEN];
    let timestamp =
        mpip_wire::Timestamp { seconds: (1 << 62) + (1 << 31) + seconds, nanoseconds: 0 };
    InitiationPayload { timestamp, instance: 5, aeads: AeadSet(aeads), association: 0 }
        .emit(&mut payload)
        .expect("the payload's length");
    let (key, remote) = (PrivateKey::from_bytes(key), PrivateKey::from_bytes([2; 32]));
    let psk = PresharedKey::default();
    let mut rng = Rng::new([9; 32]);
    let started = Initiator::start(&mut rng, &key, remote.public_key(), &psk, &payload, 77);
    started.expect("an initiation").1.to_vec()
}

fn from(host: usize) -> PathAddress {
    PathAddress { local: LocalId(0), remote: address(host, 0) }
}

/// [H-1]
#[test]
fn a_wrong_mac1_is_dropped_and_not_answered() {
    let (mut pair, good) = cut_off();
    for at in [9, 60, 120, 127, 128, 143] {
        let mut bytes = good.bytes.clone();
        bytes[at] ^= 1;
        assert_eq!(pair.deliver(1, from(0), &bytes), Err(DropReason::Handshake), "byte {at}");
        assert!(pair.out[1].datagrams.is_empty());
    }
    assert_eq!(pair.engines[1].handshake_sources.initiations, 0, "it does not even count as load");
    assert_eq!(pair.deliver(1, from(0), &good.bytes), Ok(()));
    assert_eq!(pair.out[1].datagrams[0].1[0], RESPONSE);
}

/// [H-2]
#[test]
fn an_initiation_is_answered_once_and_older_ones_never() {
    let mut pair = Pair::new(|_| {});
    pair.tap = Some(Vec::new());
    pair.pass = |_, _, _| false;
    pair.run_for(SECOND * 5);
    let mut sent: Vec<_> = pair.tapped().into_iter().filter(is_initiation).collect();
    sent.dedup_by(|a, b| a.bytes == b.bytes);
    assert!(sent.len() >= 3);
    let last = sent.pop().expect("three");
    assert_eq!(pair.deliver(1, from(0), &last.bytes), Ok(()), "later ones are newer");
    pair.out[1].datagrams.clear();
    for datagram in sent.iter().chain([&last]) {
        let refused = pair.deliver(1, from(0), &datagram.bytes);
        assert_eq!(refused, Err(DropReason::Handshake));
    }
    assert!(pair.out[1].datagrams.is_empty());
}

/// Sets the wall clock of `host` to `seconds` more than the virtual time.
fn set_clock(pair: &mut Pair, host: usize, seconds: u64) {
    let shown = Duration::from_secs(seconds) + pair.now.since(Instant::ZERO);
    pair.engines[host].handle_command(pair.now, Command::WallClock(shown));
}

/// Restarts host 0 with a clock that shows `seconds` more than the virtual time.
fn restart(pair: &mut Pair, instance: u64, seconds: u64) {
    let Pair { engines: [mut fresh, _], .. } = Pair::new(|_| {});
    fresh.shared.instance = instance;
    fresh.shared.rng = Rng::new([instance as u8; 32]);
    pair.engines[0] = fresh;
    set_clock(pair, 0, seconds);
}

fn is_established(pair: &Pair) -> bool {
    let age = pair.engines[1].status(pair.now, false).peers[0].handshake_age;
    age.is_some_and(|age| age < SECOND * 10)
}

const DAY: u64 = 86_400;
/// The initial wall clock.
const TODAY: u64 = 1 << 30;

/// [H-2]
#[test]
fn a_clock_set_after_the_start_is_used_from_the_next_initiation_on() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND * 5);
    assert!(is_established(&pair));
    // A host without a battery-backed clock: it shows 1970 until it is set from the network.
    restart(&mut pair, 5, 0);
    pair.run_for(SECOND * 20);
    assert!(!is_established(&pair));
    set_clock(&mut pair, 0, TODAY);
    pair.run_for(SECOND * 10);
    assert!(is_established(&pair));
}

/// [H-2]
#[test]
fn a_clock_that_was_years_ahead_and_is_corrected_locks_nobody_out() {
    let mut pair = Pair::new(|_| {});
    set_clock(&mut pair, 0, TODAY + 10_000 * DAY);
    pair.run_for(SECOND * 5);
    assert!(is_established(&pair));
    // It keeps using timestamps of the year 2099 as long as it runs.
    set_clock(&mut pair, 0, TODAY);
    pair.association(0).wear_out_keys();
    pair.run_for(SECOND * 5);
    assert!(is_established(&pair));
    pair.run_for(SECOND * 60);
    restart(&mut pair, 5, TODAY);
    pair.run_for(SECOND * 10);
    assert!(is_established(&pair), "after a restart");
}

/// [H-3]
#[test]
fn unknown_initiators_and_those_without_a_common_aead_get_no_response() {
    let (mut pair, _) = cut_off();
    let unknown = initiation([3; 32], 3, 0);
    assert_eq!(pair.deliver(1, from(0), &unknown), Err(DropReason::Handshake));
    let unknown = initiation([1; 32], 0b1111_1100, 0);
    assert_eq!(pair.deliver(1, from(0), &unknown), Err(DropReason::Handshake));
    assert!(pair.out[1].datagrams.is_empty());
    let known = initiation([1; 32], 3, 1);
    assert_eq!(pair.deliver(1, from(0), &known), Ok(()));
    assert_eq!(pair.out[1].datagrams.len(), 1);
}

/// [H-4]
#[test]
fn the_responder_is_silent_until_the_initiator_has_used_the_keys() {
    let (mut pair, initiation) = cut_off();
    pair.deliver(1, from(0), &initiation.bytes).expect("answered");
    pair.out[1].datagrams.clear();
    let packet = PacketPool::new(1, 1).copy_from(&tcp(1, 0, 100)).expect("a buffer");
    let refused = pair.engines[1].handle_tun(pair.now, packet);
    assert_eq!(refused, Err(DropReason::NotEstablished));
    pair.run_for(SECOND * 3);
    assert!(pair.tapped().iter().all(|datagram| datagram.host == 0), "host 1 said something");
}

/// [H-4] [H-13] [P-13]
#[test]
fn renewed_keys_are_used_in_turn_and_no_number_twice() {
    let mut pair = Pair::new(|peer| peer.scheduler = SchedulerKind::RoundRobin);
    pair.tap = Some(Vec::new());
    for n in 0..400 {
        pair.run_for(SECOND);
        pair.send(n as usize % 2, &tcp(n as usize % 2, n, 100), Offload::default());
        // Addresses come and go, so that paths end and new ones begin.
        let count = if n % 50 < 25 { 2 } else { 1 };
        if n % 25 == 0 {
            let some = locals(0)[..count].to_vec();
            pair.engines[0].handle_command(pair.now, Command::LocalAddresses(some));
        }
    }
    let datagrams = pair.tapped();
    let mut nonces = BTreeSet::new();
    let mut last: BTreeMap<(usize, u16), u64> = BTreeMap::new();
    let mut indices: [Vec<u32>; 2] = [Vec::new(), Vec::new()];
    let mut first_use = BTreeMap::new();
    for datagram in &datagrams {
        let Some(opened) = &datagram.opened else { continue };
        let (path, number) = (opened.path, opened.number);
        assert!(nonces.insert((datagram.host, opened.index, path, number)), "{datagram:?}");
        let former = last.insert((datagram.host, path), number);
        assert!(former.is_none_or(|former| number == former + 1), "numbers go on");
        first_use.entry((datagram.host, opened.index)).or_insert(datagram.at);
        if indices[datagram.host].last() != Some(&opened.index) {
            indices[datagram.host].push(opened.index);
        }
    }
    assert!(indices[0].len() >= 4, "keys of 400 s: {indices:?}");
    for (at_initiator, at_responder) in indices[1].iter().zip(&indices[0]) {
        // The initiator uses the keys one-way delay earlier than the responder.
        let (answered, used) = (first_use[&(1, *at_initiator)], first_use[&(0, *at_responder)]);
        assert!(answered >= used + Duration::from_millis(1), "{answered:?} {used:?}");
    }
}

/// [H-5]
#[test]
fn keys_are_renewed_after_their_time_or_use_and_sessions_go_on() {
    let mut pair = Pair::new(|_| {});
    pair.tap = Some(Vec::new());
    pair.run_for(SECOND * 119);
    let initiations = |pair: &mut Pair| pair.tapped().iter().filter(|d| is_initiation(d)).count();
    assert_eq!(initiations(&mut pair), 2, "one attempt, from both addresses");
    pair.send(0, &tcp(0, 1, 100), Offload::default());
    pair.run_for(SECOND * 2);
    assert_ne!(initiations(&mut pair), 0);
    pair.association(0).wear_out_keys();
    pair.send(0, &tcp(0, 2, 100), Offload::default());
    pair.run_for(SECOND);
    assert_ne!(initiations(&mut pair), 0, "2^27 packets under one key");
    pair.send(0, &tcp(0, 3, 100), Offload::default());
    pair.run_for(SECOND);
    assert_eq!(sequences(&pair.out[1].packets), [1, 2, 3]);
    assert_eq!(pair.association(0).sending(), [0]);
    assert_eq!(pair.states(0), [PathState::Active; 4]);
}

/// [P-3]
#[test]
fn only_the_first_datagram_under_keys_proves_an_address() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND * 2);
    pair.tap = Some(Vec::new());
    pair.pass = |host, _, bytes| host == 1 || bytes[0] != INITIATION;
    pair.association(0).wear_out_keys();
    pair.send(0, &tcp(0, 1, 100), Offload::default());
    pair.run_for(SECOND / 10);
    let initiation = pair.tapped().into_iter().find(is_initiation).expect("keys are renewed");
    // Host 0 says that it comes from somebody else, who gets the response.
    let victim = SocketAddr::new(IpAddr::from([198, 18, 200, 1]), 999);
    let from = PathAddress { local: LocalId(0), remote: victim };
    pair.deliver(1, from, &initiation.bytes).expect("an initiation");
    let opening = pair.association(0).seal(9, 0, &[Frame::Heartbeat]);
    pair.deliver(1, from, &opening.expect("keys").0).expect("authentic");
    let status = pair.engines[1].status(pair.now, false);
    let path = status.peers[0].paths.iter().find(|path| path.remote == victim);
    assert_eq!(path.expect("it is challenged").state, PathState::Validating);
}

/// [H-6]
#[test]
fn the_previous_keys_open_datagrams_in_flight_and_are_erased() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND * 2);
    let packet = tcp(0, 9, 100);
    let seal = |pair: &mut Pair, sequence| {
        let header = mpip_wire::PacketFrameHeader {
            session: mpip_wire::SessionId(9),
            sequence,
            ordered: false,
        };
        let frame = Frame::Packet { header, packet: &packet };
        pair.association(0).seal(0, 5_000 + u64::from(sequence), &[frame]).expect("keys").0
    };
    let (late, too_late) = (seal(&mut pair, 0), seal(&mut pair, 1));
    pair.run_for(SECOND * 122);
    assert_eq!(pair.association(1).epochs(), 2);
    assert_eq!(pair.deliver(1, from(0), &late), Ok(()));
    assert_eq!(pair.out[1].packets.len(), 1);
    pair.run_for(SECOND * 60);
    assert_eq!(pair.association(1).epochs(), 1);
    assert_eq!(pair.deliver(1, from(0), &too_late), Err(DropReason::UnknownIndex));
}

/// [H-6]
#[test]
fn no_key_lives_longer_than_180_seconds() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND * 2);
    pair.pass = |_, _, bytes| bytes[0] != INITIATION;
    pair.run_for(SECOND * 181);
    for host in 0..2 {
        assert_eq!(pair.association(host).epochs(), 0);
        assert!(pair.states(host).is_empty());
    }
}

/// [H-7]
#[test]
fn a_restarted_peer_has_none_of_the_paths_and_sessions() {
    for restarted in 0..2 {
        let mut pair = Pair::new(|_| {});
        pair.run_for(SECOND);
        for n in 0..10 {
            pair.send(0, &tcp(0, n, 100), Offload::default());
            pair.send(1, &tcp(1, n, 100), Offload::default());
        }
        pair.run_for(SECOND);
        let Pair { engines: [zero, one], .. } = Pair::new(|_| {});
        pair.engines[restarted] = [zero, one].into_iter().nth(restarted).expect("two");
        pair.engines[restarted].shared.instance = 77;
        pair.engines[restarted].shared.unix_origin += SECOND * 10;
        pair.run_for(SECOND * 10);
        for host in 0..2 {
            assert_eq!(pair.states(host), [PathState::Active; 4], "{restarted}");
            assert!(pair.association(host).sending().is_empty());
            pair.out[host].packets.clear();
        }
        pair.send(0, &tcp(0, 5, 100), Offload::default());
        pair.run_for(SECOND);
        assert_eq!(sequences(&pair.out[1].packets), [5]);
    }
}

/// [H-7]
#[test]
fn an_initiation_alone_ends_nothing() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    // An initiation recorded from another run of host 0 and never delivered.
    let recorded = initiation([1; 32], 3, 0);
    assert_eq!(pair.deliver(1, from(0), &recorded), Ok(()));
    pair.out[1].datagrams.clear();
    pair.run_for(SECOND);
    for host in 0..2 {
        assert_eq!(pair.states(host), [PathState::Active; 4]);
    }
    pair.send(1, &tcp(1, 5, 100), Offload::default());
    pair.run_for(SECOND);
    assert_eq!(sequences(&pair.out[0].packets), [5]);
}

/// [H-7]
#[test]
fn a_node_whose_response_was_not_used_keeps_trying() {
    let mut pair = Pair::with(|host, config| {
        config.peers[0].endpoints = vec![address(1 - host, 0)];
    });
    let recorded = initiation([1; 32], 3, 0);
    let _ = pair.deliver(1, from(0), &recorded);
    pair.out[1].datagrams.clear();
    // Host 0 cannot initiate; host 1 has to.
    pair.pass = |host, _, bytes| host == 1 || bytes[0] != INITIATION;
    pair.run_for(SECOND * 10);
    assert_eq!(pair.states(0), [PathState::Active; 4]);
}

/// [H-8]
#[test]
fn of_two_crossing_initiations_that_of_the_larger_key_continues() {
    let both = |host: usize, config: &mut Config| {
        config.peers[0].endpoints = vec![address(1 - host, 0)];
    };
    let keys = [1, 2].map(|byte| *PrivateKey::from_bytes([byte; 32]).public_key());
    let larger = usize::from(keys[1] > keys[0]);
    let mut pair = Pair::with(both);
    pair.tap = Some(Vec::new());
    pair.run_for(SECOND);
    let began: BTreeSet<_> =
        pair.tapped().iter().filter(|d| is_initiation(d)).map(|d| d.host).collect();
    assert_eq!(began.len(), 2, "both began");
    assert!(pair.association(larger).is_opener() && !pair.association(1 - larger).is_opener());
    assert_eq!(pair.states(0), [PathState::Active; 4]);

    // The initiations of the node with the larger key are lost: it answers after a while.
    let mut pair = Pair::with(both);
    pair.pass = match larger {
        0 => |host, _, bytes| host == 1 || bytes[0] != INITIATION,
        _ => |host, _, bytes| host == 0 || bytes[0] != INITIATION,
    };
    pair.run_for(SECOND * 10);
    assert!(pair.association(1 - larger).is_opener());
    assert_eq!(pair.states(0), [PathState::Active; 4]);
}

/// [H-9]
#[test]
fn an_aead_that_was_not_offered_is_refused() {
    let mut pair = Pair::with(|host, config| config.aes_in_hardware = host == 1);
    pair.run_for(SECOND);
    let aead = pair.engines[0].status(pair.now, false).peers[0].aead;
    assert_eq!(aead, Some("ChaCha20-Poly1305"));

    let mut pair = Pair::with(|_, config| config.aes_in_hardware = true);
    pair.tap = Some(Vec::new());
    pair.pass = |_, _, _| false;
    pair.run_for(SECOND / 2);
    let offer = pair.tapped().into_iter().find(is_initiation).expect("an initiation");
    pair.deliver(1, from(0), &offer.bytes).expect("answered");
    let (_, response) = pair.out[1].datagrams.remove(0);
    // Host 0 had offered only ChaCha20-Poly1305.
    pair.engines[0].shared.aes_in_hardware = false;
    assert_eq!(pair.deliver(0, from(1), &response), Err(DropReason::Handshake));
    assert_eq!(pair.association(0).epochs(), 0);
}

/// [H-10] [H-11]
#[test]
fn under_load_only_initiators_that_prove_their_address_are_answered() {
    let mut pair = Pair::new(|_| {});
    // A valid mac1, but unknown keys: anybody who knows the public key can make any number of them.
    for n in 0..crate::handshake_sources::UNDER_LOAD as u8 {
        let unknown = initiation([100 + n; 32], 3, 0);
        assert_eq!(pair.deliver(1, from(0), &unknown), Err(DropReason::Handshake));
        assert!(pair.out[1].datagrams.is_empty());
    }
    let good = initiation([1; 32], 3, 0);
    assert_eq!(pair.deliver(1, from(0), &good), Err(DropReason::UnderLoad));
    let (_, reply) = pair.out[1].datagrams.remove(0);
    assert_eq!((reply[0], reply.len()), (COOKIE_REPLY, 52));
    assert!(pair.out[1].datagrams.is_empty());

    // Host 0 initiates under load: it is given a cookie, and answered once it shows the cookie.
    pair.engines[1].handshake_sources.initiations_since = pair.now + SECOND;
    pair.run_for(SECOND);
    assert_eq!(pair.states(0), [PathState::Active; 4]);
    assert_ne!(pair.drops(1, DropReason::UnderLoad), 1);
}

/// An address of the network 2001:db8:0:`network`::/64.
fn in_network(network: u16, host: u16) -> PathAddress {
    let ip = core::net::Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host);
    PathAddress { local: LocalId(0), remote: SocketAddr::new(ip.into(), 6182) }
}

/// An initiator at `from` that has a cookie of host 1 for this address.
struct Caller {
    from: PathAddress,
    cookies: CookieMemory,
}

impl Caller {
    /// Obtains a cookie while host 1 is under load.
    fn new(pair: &mut Pair, from: PathAddress) -> Self {
        pair.engines[1].handshake_sources.initiations = crate::handshake_sources::UNDER_LOAD;
        pair.engines[1].handshake_sources.initiations_since = pair.now;
        let remote = PrivateKey::from_bytes([2; 32]);
        let mut caller = Self { from, cookies: CookieMemory::new(remote.public_key()) };
        assert_eq!(caller.call(pair, &initiation([77; 32], 3, 0)), Err(DropReason::UnderLoad));
        let (to, reply) = pair.out[1].datagrams.pop().expect("a cookie reply");
        assert_eq!(to, from);
        caller.cookies.receive(pair.now.since(Instant::ZERO), &reply).expect("for this caller");
        caller
    }

    fn call(&mut self, pair: &mut Pair, initiation: &[u8]) -> Result<(), DropReason> {
        let mut datagram = initiation.to_vec();
        self.cookies.stamp(pair.now.since(Instant::ZERO), &mut datagram);
        pair.deliver(1, self.from, &datagram)
    }
}

/// [H-17]
#[test]
fn from_one_network_no_more_initiations_are_read_than_its_rate() {
    let mut pair = Pair::new(|_| {});
    let mut callers: Vec<_> =
        (0..100).map(|host| Caller::new(&mut pair, in_network(1, host))).collect();
    // Unknown keys are only detected by reading the initiation.
    let unknown = initiation([100; 32], 3, 0);
    let mut read = 0;
    for ms in 0..2_000 {
        pair.now = Instant::from_millis(ms);
        for caller in callers.iter_mut().skip(ms as usize % 10 * 10).take(10) {
            match caller.call(&mut pair, &unknown) {
                Err(DropReason::Handshake) => read += 1,
                refused => assert_eq!(refused, Err(DropReason::TooManyHandshakes)),
            }
        }
    }
    assert_eq!(read, 40 + 2 * 20 - 1, "of 20,000");
    // Another network is not affected.
    let mut other = Caller::new(&mut pair, in_network(2, 0));
    assert_eq!(other.call(&mut pair, &initiation([1; 32], 3, 0)), Ok(()));
    assert_eq!(pair.out[1].datagrams[0].1[0], RESPONSE);
}

/// [H-18]
#[test]
fn handshake_jobs_are_handed_out_and_bounded() {
    let mut pair = Pair::new(|_| {});
    pair.work = SECOND * 100;
    pair.pass = |_, _, _| false;
    // As long as no job runs, nothing is sent.
    pair.run_for(SECOND * 20);
    assert!(pair.tap.is_none() && pair.out[0].datagrams.is_empty());
    let mut taken = BTreeMap::new();
    for network in 0..100 {
        for host in 0..10 {
            let from = in_network(network, host);
            let call = initiation([host as u8 + 100; 32], 3, 0);
            pair.now += SECOND / 10;
            if pair.deliver(1, from, &call) == Ok(()) {
                *taken.entry(network).or_insert(0) += 1;
            }
        }
    }
    assert_eq!(taken.values().sum::<i32>(), 64);
    assert!(taken.values().all(|count| *count <= 8), "{taken:?}");
}

/// [H-18]
#[test]
fn unknown_sources_do_not_starve_a_known_peer() {
    for configured in [false, true] {
        let mut pair = Pair::with(|host, config| {
            if host == 1 && configured {
                config.peers[0].endpoints = vec![address(0, 0)];
            }
        });
        // Its address is configured, or it has authenticated there before.
        if configured {
            pair.pass = |_, _, _| false;
        }
        pair.run_for(SECOND * 8);
        pair.work = SECOND * 3;
        for network in 0..100 {
            for host in 0..10 {
                pair.now += SECOND / 1_000;
                let call = initiation([host as u8 + 100; 32], 3, 0);
                pair.engines[1].handshake_sources.initiations = 0;
                let _ = pair.deliver(1, in_network(network, host), &call);
            }
        }
        assert!(pair.drops(1, DropReason::TooManyHandshakes) > 900);
        let call = initiation([1; 32], 3, 100);
        assert_eq!(pair.deliver(1, from(0), &call), Ok(()));
        pair.pass = |_, _, _| false;
        pair.tap = Some(Vec::new());
        pair.run_for(SECOND * 6);
        let responds = |d: &Tapped| d.host == 1 && d.bytes[0] == RESPONSE;
        assert!(pair.tapped().iter().any(responds));
    }
}

/// [H-2] [H-18]
#[test]
fn one_initiation_is_answered_at_a_time_and_judged_after_it_was_read() {
    let mut pair = Pair::new(|_| {});
    pair.pass = |_, _, _| false;
    pair.run_for(SECOND / 2);
    pair.tap = Some(Vec::new());
    pair.work = SECOND * 2;
    // The first is read after 2 s and answered after 4 s.
    for (seconds, pause) in [(10, SECOND), (20, SECOND * 2), (5, SECOND)] {
        assert_eq!(pair.deliver(1, from(0), &initiation([1; 32], 3, seconds)), Ok(()));
        pair.run_for(pause);
    }
    assert_eq!(pair.drops(1, DropReason::Handshake), 1, "the second came while one was answered");
    pair.run_for(SECOND * 10);
    assert_eq!(pair.drops(1, DropReason::Handshake), 2, "the third is older");
    assert_eq!(pair.association(1).epochs(), 1);
    let answers = pair.tapped().iter().filter(|d| d.host == 1).count();
    assert_eq!(answers, 1);
    // A peer that has sent a close frame meanwhile is not answered.
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    pair.work = SECOND / 10;
    assert_eq!(pair.deliver(1, from(0), &initiation([1; 32], 3, 100)), Ok(()));
    pair.run_for(SECOND / 10);
    pair.inject(0, 0, &[Frame::Close { reason: 0, message: "" }]);
    pair.pass = |_, _, _| false;
    pair.run_for(SECOND);
    assert_eq!(pair.association(1).epochs(), 0);
    assert_eq!(pair.engines[1].shared.indices.len(), 0);
}

#[test]
fn a_response_under_another_preshared_key_is_reported() {
    let mut pair = Pair::with(|host, config| {
        config.peers[0].preshared_key = PresharedKey::from_bytes([host as u8; 32]);
    });
    pair.run_for(SECOND / 2);
    assert_eq!(pair.association(0).epochs(), 0);
    let refused = |event: &Event| match event {
        Event::HandshakeRefused { from, .. } => *from == address(1, 0),
        _ => false,
    };
    let events = core::iter::from_fn(|| pair.engines[0].poll_event());
    assert_ne!(events.filter(refused).count(), 0);
}

/// [H-11] [H-18]
#[test]
fn a_forged_response_does_not_displace_the_right_one() {
    let (mut pair, initiation) = cut_off();
    pair.deliver(1, from(0), &initiation.bytes).expect("answered");
    let (_, response) = pair.out[1].datagrams.remove(0);
    pair.work = SECOND / 20;
    // An attacker that sees the initiation is faster. Its messages look right until they are read.
    let mut forged = response.clone();
    forged[20] ^= 1;
    let mac1 = Mac1Key::of(PrivateKey::from_bytes([1; 32]).public_key());
    mac1.stamp(&mut forged);
    for _ in 0..4 {
        assert_eq!(pair.deliver(0, from(1), &forged), Ok(()));
    }
    assert_eq!(pair.deliver(0, from(1), &response), Ok(()));
    assert_eq!(pair.deliver(0, from(1), &response), Err(DropReason::Handshake), "too many");
    pair.run_for(SECOND / 20 * 4);
    assert_eq!((pair.association(0).epochs(), pair.drops(0, DropReason::Handshake)), (0, 4 + 1));
    pair.run_for(SECOND / 20);
    assert_eq!((pair.association(0).epochs(), pair.drops(0, DropReason::Handshake)), (1, 4 + 1));
}

/// [H-10] [H-11]
#[test]
fn one_source_cannot_use_up_the_room_for_cookie_replies() {
    let mut pair = Pair::new(|_| {});
    pair.engines[1].handshake_sources.initiations = crate::handshake_sources::UNDER_LOAD;
    let mut out = Out::default();
    let callers = (0..100).map(|host| in_network(1, host)).chain([in_network(2, 0)]);
    for from in callers {
        let mut call = initiation([1; 32], 3, 0);
        let mut packets = Vec::new();
        let engine = &mut pair.engines[1];
        let packets = &mut Packets(&mut packets);
        let refused = engine.handle_datagram(pair.now, from, Ecn::NotEct, &mut call, packets);
        assert_eq!(refused, Err(DropReason::UnderLoad));
    }
    pair.engines[1].flush(pair.now, &mut out);
    out.settle();
    let given = |network| {
        let within = |to: &PathAddress| {
            crate::handshake::Source::of(to.remote.ip())
                == crate::handshake::Source::of(in_network(network, 0).remote.ip())
        };
        out.datagrams.iter().filter(|(to, _)| within(to)).count()
    };
    assert_eq!((given(1), given(2)), (4, 1));
}

/// [H-11]
#[test]
fn a_cookie_reply_to_another_initiation_changes_nothing() {
    let (mut pair, _) = cut_off();
    let reply = pair.engines[1]
        .cookies
        .reply(Duration::ZERO, address(0, 0), &initiation([1; 32], 3, 0))
        .expect("a whole initiation");
    assert_eq!(pair.deliver(0, from(1), &reply), Err(DropReason::UnknownIndex));
    let due = pair.engines[0].poll_timeout();
    let latest = pair.association(0).pending_index().expect("an attempt");
    let mut forged = reply;
    forged[4..8].copy_from_slice(&latest.to_be_bytes());
    assert_eq!(pair.deliver(0, from(1), &forged), Err(DropReason::Handshake));
    assert_eq!(pair.engines[0].poll_timeout(), due);
}

/// [H-14]
#[test]
fn a_number_is_accepted_once_and_only_authentic_ones_move_the_window() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    let first = pair.association(0).seal(0, 1_000, &[Frame::Heartbeat]).expect("keys").0;
    let old = pair.association(0).seal(0, 900, &[Frame::Heartbeat]).expect("keys").0;
    let far = pair.association(0).seal(0, 1_000_000, &[Frame::Heartbeat]).expect("keys").0;
    let mut forged = far.clone();
    *forged.last_mut().expect("a tag") ^= 1;
    assert_eq!(pair.deliver(1, from(0), &forged), Err(DropReason::Authentication));
    assert_eq!(pair.deliver(1, from(0), &first), Ok(()));
    assert_eq!(pair.deliver(1, from(0), &first), Err(DropReason::Replay));
    assert_eq!(pair.deliver(1, from(0), &old), Ok(()), "within the window");
    assert_eq!(pair.deliver(1, from(0), &far), Ok(()));
    let old = pair.association(0).seal(0, 1_000_000 - 16_384, &[Frame::Heartbeat]);
    let old = old.expect("keys").0;
    assert_eq!(pair.deliver(1, from(0), &old), Err(DropReason::Replay));
    assert_eq!(pair.drops(1, DropReason::Replay), 2);
}

/// [H-15]
#[test]
fn a_datagram_that_does_not_authenticate_is_counted_and_changes_nothing() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    let good = pair.association(0).seal(0, 1_000, &[Frame::Close { reason: 0, message: "" }]);
    let good = good.expect("keys").0;
    let before = format!("{:?}", pair.engines[1].associations[0]);
    let due = pair.engines[1].poll_timeout();
    let unknown = PathAddress { local: LocalId(0), remote: address(0, 3) };
    for at in (0..good.len()).filter(|at| !(1..5).contains(at)) {
        let mut bytes = good.clone();
        bytes[at] ^= 0x20;
        assert!(pair.deliver(1, unknown, &bytes).is_err(), "byte {at}");
    }
    assert!(pair.out[1].datagrams.is_empty());
    assert_eq!(format!("{:?}", pair.engines[1].associations[0]), before);
    assert_eq!(pair.engines[1].poll_timeout(), due);
    assert!(pair.drops(1, DropReason::Authentication) > 20);
}

/// [H-2]
#[test]
fn recorded_initiations_do_not_keep_a_restarted_node_from_initiating() {
    let mut pair = Pair::with(|host, config| {
        config.peers[0].endpoints = if host == 1 { vec![address(0, 0)] } else { vec![] };
    });
    // Host 1 knows none of them any more, and somebody has many.
    for seconds in 0..16 {
        let recorded = initiation([1; 32], 3, seconds);
        assert_eq!(pair.deliver(1, from(0), &recorded), Ok(()), "{seconds}");
        pair.out[1].datagrams.clear();
        pair.run_for(SECOND / 2);
    }
    assert!(is_established(&pair));
    assert_eq!(pair.states(1), [PathState::Active; 4]);
}
