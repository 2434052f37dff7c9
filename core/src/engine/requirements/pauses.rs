//! How long changes of the network interrupt traffic. The daemon's tests make the same changes on a
//! kernel and check what arrives; the time is asserted here, where no busy machine can disturb it.

use super::super::harness::*;
use super::super::*;
use super::translation::{ACK, SYN, across, client, end, ends, server};
use crate::Traffic;
use crate::config::Policy;
use crate::translation::rewrite::tests::{Kind, packet};
use mpip_transport::cc::CongestionControlKind;
use mpip_types::Offload;
use mpip_types::packet::Endpoint;

const MS: Duration = Duration::from_millis(1);

/// Maximum interruption in host mode when no path works any more, and until traffic returns to the
/// paths.
const FALL_BACK: Duration = Duration::from_millis(500);
/// Maximum interruption after a host has a new address, besides a round trip.
const CHANGE: Duration = Duration::from_millis(100);
/// Delay of the links between two networks.
const ROUND_TRIP: Duration = Duration::from_millis(6);

/// A pair in host mode, up for longer than a brief return.
fn settled(policy: Policy) -> Pair {
    let mut pair = Pair::with(|_, config| {
        let peer = &mut config.peers[0];
        peer.host_mode = true;
        peer.policy = policy;
        peer.allowed_prefixes.clear();
        peer.congestion_control = CongestionControlKind::Bbr;
    });
    pair.run_for(SECOND * 12);
    assert_eq!([traffic(&pair, 0), traffic(&pair, 1)], [Traffic::Multipath; 2]);
    pair
}

fn traffic(pair: &Pair, host: usize) -> Traffic {
    let status = pair.engines[host].status(pair.now, false);
    status.peers[0].traffic.expect("host mode")
}

/// Each host sends a packet every [`EVERY`]. `packet` makes it from the host and a number.
struct Talk<F> {
    packet: F,
    number: u32,
    next: Instant,
}

/// Interval that leaves room in the queue for packets of 3 s.
const EVERY: Duration = Duration::from_millis(4);

impl<F: Fn(usize, u32) -> Vec<u8>> Talk<F> {
    fn new(packet: F) -> Self {
        Self { packet, number: 0, next: Instant::ZERO }
    }

    /// Runs `pair` for `time`.
    fn run_for(&mut self, pair: &mut Pair, time: Duration) {
        let end = pair.now + time;
        while pair.now < end {
            self.step(pair);
        }
    }

    fn step(&mut self, pair: &mut Pair) {
        if pair.now >= self.next {
            self.next = pair.now + EVERY;
            for host in 0..2 {
                let packet = (self.packet)(host, self.number);
                pair.send(host, &packet, Offload::default());
            }
            self.number += 1;
        }
        pair.run_for(MS);
    }

    /// Runs until `done`; returns how long that took.
    fn until(&mut self, pair: &mut Pair, done: impl Fn(&Pair) -> bool) -> Duration {
        let start = pair.now;
        while !done(pair) {
            self.step(pair);
            assert!(pair.now.since(start) < SECOND * 10, "never");
        }
        pair.now.since(start)
    }

    /// Runs until both hosts receive a packet; returns how long that took.
    fn until_both_hear(&mut self, pair: &mut Pair) -> Duration {
        pair.out.iter_mut().for_each(|out| out.packets.clear());
        self.until(pair, |pair| pair.out.iter().all(|out| !out.packets.is_empty()))
    }
}

/// A TCP packet between the hosts' first addresses.
fn ordinary(host: usize, number: u32) -> Vec<u8> {
    let mut packet = tcp(host, number * 500, 500);
    (packet[13], packet[17]) = (18, 18);
    packet
}

fn all_are(pair: &Pair, state: Traffic) -> bool {
    (0..2).all(|host| traffic(pair, host) == state)
}

#[test]
fn behind_a_firewall_connections_fall_back_in_half_a_second_and_return_in_half_a_second() {
    for phase in 0..12 {
        let mut pair = settled(Policy::Prefer);
        let mut talk = Talk::new(ordinary);
        talk.run_for(&mut pair, MS * (500 + 37 * phase));
        pair.pass = |_, _, _| false;
        let fell = talk.until(&mut pair, |pair| all_are(pair, Traffic::Plain));
        assert!(fell <= FALL_BACK, "fell back after {fell:?}");
        talk.run_for(&mut pair, SECOND * 2 + MS * 53 * phase);
        pair.pass = |_, _, _| true;
        let returned = talk.until(&mut pair, |pair| all_are(pair, Traffic::Multipath));
        assert!(returned <= FALL_BACK, "returned after {returned:?}");
        assert!(talk.until_both_hear(&mut pair) <= MS * 10);
    }
}

/// Without packets, heartbeats detect the failure, and no traffic is affected.
#[test]
fn hosts_that_are_silent_fall_back_within_a_second() {
    for phase in 0..12 {
        let mut pair = settled(Policy::Prefer);
        Talk::new(ordinary).run_for(&mut pair, MS * 100);
        pair.run_for(SECOND + MS * 37 * phase);
        pair.pass = |_, _, _| false;
        pair.run_for(SECOND);
        assert!(all_are(&pair, Traffic::Plain));
    }
}

/// Its kernel answers with ICMP port unreachable.
#[test]
fn when_the_peers_daemon_was_killed_connections_fall_back_in_a_tenth_of_a_second() {
    for phase in 0..12 {
        let mut pair = settled(Policy::Prefer);
        let mut talk = Talk::new(ordinary);
        talk.run_for(&mut pair, MS * (500 + 37 * phase));
        pair.pass = |_, _, _| false;
        pair.tap = Some(Vec::new());
        let start = pair.now;
        while traffic(&pair, 0) != Traffic::Plain {
            talk.step(&mut pair);
            for sent in pair.tapped().into_iter().filter(|sent| sent.host == 0) {
                pair.engines[0].handle_refused(pair.now, sent.to.local, sent.to.remote);
            }
            let took = pair.now.since(start);
            assert!(took <= CHANGE, "not after {took:?}");
        }
    }
}

#[test]
fn when_the_peers_daemon_is_stopped_connections_fall_back_as_soon_as_it_is_told() {
    let mut pair = settled(Policy::Prefer);
    let mut talk = Talk::new(ordinary);
    talk.run_for(&mut pair, SECOND);
    pair.engines[1].handle_command(pair.now, Command::Shutdown);
    let fell = talk.until(&mut pair, |pair| traffic(pair, 0) == Traffic::Plain);
    assert!(fell <= MS * 10, "{fell:?}");
}

/// How an address is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// By another one at once.
    Lease,
    /// By one on another link, 0.8 s later.
    Roam,
    /// By one of IPv6, 0.8 s later.
    Six,
    /// By another one 0.8 s later, with a route 20 ms after that.
    Route,
    /// As [`Change::Route`], with a route 5 s later, after many attempts to use the address.
    LateRoute,
}

impl Change {
    const ALL: [Self; 5] = [Self::Lease, Self::Roam, Self::Six, Self::Route, Self::LateRoute];

    /// The link of the new address.
    fn link(self) -> u16 {
        if self == Self::Six { V6_LINK } else { 1 }
    }

    fn pause(self) -> Duration {
        if self == Self::Lease { Duration::ZERO } else { MS * 800 }
    }

    /// Time until the address is usable.
    fn until_route(self) -> Option<Duration> {
        match self {
            Self::Route => Some(MS * 20),
            Self::LateRoute => Some(SECOND * 5),
            _ => None,
        }
    }
}

fn has(pair: &mut Pair, host: usize, links: &[u16]) {
    let list = links.iter().map(|link| local(host, *link)).collect();
    pair.engines[host].handle_command(pair.now, Command::LocalAddresses(list));
}

/// `mover` loses its only address and gets another one; returns the interruption in both directions
/// from when the new address is usable.
fn change_address(
    pair: &mut Pair,
    talk: &mut Talk<impl Fn(usize, u32) -> Vec<u8>>,
    mover: usize,
    change: Change,
) -> Duration {
    talk.run_for(pair, SECOND);
    let gone: fn(usize, PathAddress, &[u8]) -> bool = match mover {
        0 => |host, to, _| if host == 0 { to.local.0 != 0 } else { to.remote != address(0, 0) },
        _ => |host, to, _| if host == 1 { to.local.0 != 0 } else { to.remote != address(1, 0) },
    };
    pair.pass = gone;
    if !change.pause().is_zero() {
        has(pair, mover, &[]);
        talk.run_for(pair, change.pause());
    }
    if let Some(time) = change.until_route() {
        // Datagrams have no route.
        pair.pass = match mover {
            0 => |host, _, _| host != 0,
            _ => |host, _, _| host != 1,
        };
        has(pair, mover, &[change.link()]);
        talk.run_for(pair, time);
        pair.pass = gone;
        pair.engines[mover].handle_command(pair.now, Command::RoutesChanged);
    } else {
        has(pair, mover, &[change.link()]);
    }
    talk.until_both_hear(pair)
}

#[test]
fn a_host_with_another_address_is_heard_within_a_round_trip_and_a_tenth_of_a_second() {
    for change in Change::ALL {
        for mover in 0..2 {
            let mut pair = Pair::new(|peer| peer.congestion_control = CongestionControlKind::Bbr);
            has(&mut pair, mover, &[0]);
            has(&mut pair, 1 - mover, if change == Change::Six { &[0, V6_LINK] } else { &[0, 1] });
            pair.run_for(SECOND * 2);
            let mut talk = Talk::new(|host, number| tcp(host, number * 500, 500));
            let took = change_address(&mut pair, &mut talk, mover, change);
            assert!(took <= ROUND_TRIP + CHANGE, "{change:?}, host {mover}: {took:?}");
        }
    }
}

/// The host's applications still use the address that its interface has lost.
#[test]
fn connections_between_ordinary_addresses_go_on_as_soon_when_one_is_lost() {
    for change in Change::ALL {
        for mover in 0..2 {
            let mut pair = settled(Policy::Require);
            has(&mut pair, mover, &[0]);
            if change == Change::Six {
                has(&mut pair, 1 - mover, &[0, V6_LINK]);
            }
            pair.run_for(SECOND * 2);
            let mut talk = Talk::new(ordinary);
            let took = change_address(&mut pair, &mut talk, mover, change);
            assert!(took <= ROUND_TRIP + CHANGE, "{change:?}, host {mover}: {took:?}");
            assert!(pair.engines[mover].uses_address(address(mover, 0).ip()));
            talk.run_for(&mut pair, SECOND);
            assert!(all_are(&pair, Traffic::Multipath));
        }
    }
}

/// Host 1 does not accept that address as exclusively host 0's: connections that began on the paths
/// continue nevertheless.
#[test]
fn connections_from_an_address_that_others_may_share_go_on_as_soon_when_it_is_lost() {
    for change in [Change::Lease, Change::Roam, Change::Route] {
        let mut pair = Pair::with(|host, config| {
            let peer = &mut config.peers[0];
            peer.host_mode = true;
            peer.policy = Policy::Prefer;
            peer.allowed_prefixes.clear();
            if host == 1 {
                peer.exclusive.clear();
            }
        });
        has(&mut pair, 0, &[0]);
        pair.run_for(SECOND * 12);
        let syn = packet(Kind::Tcp(SYN), client(5_000), server(), &[]);
        let public: Endpoint = ends(&across(&mut pair, 0, &syn)[0]).0;
        let answer = packet(Kind::Tcp(SYN | ACK), server(), public, &[]);
        assert_eq!(across(&mut pair, 1, &answer).len(), 1);
        let between = [(client(5_000), server()), (server(), public)];
        let mut talk = Talk::new(move |host, number| {
            let (from, to) = between[host];
            packet(Kind::Tcp(ACK), from, to, &[number as u8; 100])
        });
        let took = change_address(&mut pair, &mut talk, 0, change);
        assert!(took <= ROUND_TRIP + CHANGE, "{change:?}: {took:?}");
        assert_eq!(ends(pair.out[1].packets.last().expect("it hears")), (public, server()));
        assert_eq!(public.address, end([198, 18, 0, 1], 0).address, "the one that is lost");
    }
}
