//! Single sessions that fall back to plain IP (seed 000, section 3.7.2).

use core::time::Duration;

use super::super::harness::{Packets, Pair, SECOND, sequences, tcp};
use crate::Traffic;
use crate::config::{Config, Policy};
use crate::event::Event;
use mpip_types::Offload;

const MS: Duration = Duration::from_millis(1);
const SYN: u8 = 0x02;
/// When Linux repeats a segment that nobody acknowledges, in ms after the first time.
const REPEATS: [u64; 4] = [400, 800, 1_600, 3_200];

fn pair_with(adjust: impl Fn(&mut Config)) -> Pair {
    let mut pair = Pair::with(|_, config| {
        let peer = &mut config.peers[0];
        (peer.host_mode, peer.policy) = (true, Policy::Prefer);
        adjust(config);
    });
    pair.run_for(SECOND * 2);
    pair
}

fn pair(policy: Policy) -> Pair {
    pair_with(|config| config.peers[0].policy = policy)
}

/// A segment between the hosts' ordinary addresses, from `port`.
fn segment(host: usize, port: u16, sequence: u32, payload: usize, flags: u8) -> Vec<u8> {
    let mut packet = tcp(host, sequence, payload);
    packet[13] = 18;
    packet[17] = 18;
    packet[20..22].copy_from_slice(&port.to_be_bytes());
    packet[33] = flags;
    packet
}

/// What `host` sends as plain IP since the last call.
fn plain(pair: &mut Pair, host: usize) -> Vec<u32> {
    let mut packets = Vec::new();
    pair.engines[host].take_plain(&mut Packets(&mut packets));
    sequences(&packets)
}

/// Sends `packet` now and as often as TCP repeats it; returns which times it left as plain IP.
fn repeat(pair: &mut Pair, host: usize, packet: &[u8]) -> Vec<usize> {
    let mut left = Vec::new();
    let mut before = 0;
    for (time, at) in [0].into_iter().chain(REPEATS).enumerate() {
        pair.run_for(MS * (at - before) as u32);
        before = at;
        pair.send(host, packet, Offload::default());
        left.extend(plain(pair, host).iter().map(|_| time));
    }
    left
}

fn count(pair: &mut Pair, host: usize) -> usize {
    let events = core::iter::from_fn(|| pair.engines[host].poll_event());
    events.filter(|event| matches!(event, Event::PlainSession { .. })).count()
}

#[test]
fn a_session_of_which_nothing_is_acknowledged_is_plain_and_others_stay_on_the_paths() {
    for (flags, payload) in [(SYN, 0), (0x12, 0), (0x10, 500)] {
        let mut pair = pair(Policy::Prefer);
        let stuck = segment(0, 5_000, 1_000, payload, flags);
        assert_eq!(repeat(&mut pair, 0, &stuck), [3, 4], "{flags:#x}");
        pair.send(0, &segment(0, 5_000, 3_000, 500, 0x10), Offload::default());
        assert_eq!(plain(&mut pair, 0), [3_000], "and what follows");
        pair.send(0, &segment(0, 5_001, 4_000, 500, 0x10), Offload::default());
        pair.run_for(MS * 50);
        assert_eq!(plain(&mut pair, 0), []);
        assert_eq!(sequences(&pair.out[1].packets).last(), Some(&4_000));

        let status = pair.engines[0].status(pair.now, true).peers.remove(0);
        assert_eq!((status.plain_count, status.plain_packets), (1, 3));
        assert_eq!(status.traffic, Some(Traffic::Multipath));
        let listed = status.plain_sessions[0];
        assert_eq!((listed.protocol, listed.source.port()), (6, 5_000));
        assert_eq!(count(&mut pair, 0), 1);
    }
}

#[test]
fn a_connection_that_gets_on_however_slowly_stays_on_the_paths() {
    let mut pair = pair(Policy::Prefer);
    // A window is repeated as a whole, segment by segment, for seconds: each one gets through.
    for sequence in 0..20 {
        pair.send(0, &segment(0, 5_000, sequence * 500, 500, 0x10), Offload::default());
    }
    pair.run_for(MS * 500);
    for sequence in 0..20 {
        for _ in 0..2 {
            pair.send(0, &segment(0, 5_000, sequence * 500, 500, 0x10), Offload::default());
            pair.run_for(MS * 300);
        }
    }
    // Acknowledgements, which carry nothing, may be the same for hours.
    for _ in 0..10 {
        pair.send(0, &segment(0, 5_000, 10_000, 0, 0x10), Offload::default());
        pair.run_for(SECOND);
    }
    assert_eq!(plain(&mut pair, 0), []);
    assert_eq!(count(&mut pair, 0), 0);
}

#[test]
fn it_returns_to_the_paths_after_it_was_idle_and_when_the_peers_daemon_starts_anew() {
    let mut pair = pair(Policy::Prefer);
    let stuck = segment(0, 5_000, 1_000, 0, SYN);
    assert_eq!(repeat(&mut pair, 0, &stuck), [3, 4]);
    pair.run_for(SECOND * 100);
    pair.send(0, &stuck, Offload::default());
    assert_eq!(plain(&mut pair, 0), [1_000], "not idle for long enough");
    pair.run_for(SECOND * 130);
    pair.out[1].packets.clear();
    pair.send(0, &stuck, Offload::default());
    pair.run_for(MS * 50);
    assert_eq!((plain(&mut pair, 0), sequences(&pair.out[1].packets)), (vec![], vec![1_000]));
}

#[test]
fn nothing_leaves_as_plain_ip_where_that_is_forbidden_switched_off_or_cannot_be_sent() {
    let off = |config: &mut Config| config.parameters.fall_back.enabled = false;
    let nobody_takes_them = |config: &mut Config| config.limits.translated = 0;
    for (what, mut pair) in [
        ("require", pair(Policy::Require)),
        ("switched off", pair_with(off)),
        ("no raw socket", pair_with(nobody_takes_them)),
    ] {
        let stuck = segment(0, 5_000, 1_000, 0, SYN);
        assert_eq!(repeat(&mut pair, 0, &stuck), [], "{what}");
        assert_eq!(count(&mut pair, 0), 0, "{what}");
    }
    // Inner addresses of a tunnel mean nothing elsewhere.
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND * 2);
    assert_eq!(repeat(&mut pair, 0, &tcp(0, 1_000, 500)), []);
    let mut pair = pair_with(|_| {});
    assert_eq!(repeat(&mut pair, 0, &tcp(0, 1_000, 500)), [], "in host mode too");
}
