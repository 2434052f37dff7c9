//! An engine with many peers, on sockets with little room.

use mpip_crypto::PrivateKey;
use std::collections::BTreeSet;

use super::super::harness::*;
use super::super::*;
use mpip_types::Slot;

const PEERS: usize = 1_000;

/// A socket that accepts a few datagrams at a time.
#[derive(Default)]
struct Narrow {
    room: usize,
    sent: Vec<(PathAddress, Vec<u8>)>,
    committed: bool,
}

impl Narrow {
    fn settle(&mut self) {
        if !core::mem::replace(&mut self.committed, true) {
            self.sent.pop();
        }
    }
}

impl DatagramSink for Narrow {
    fn reserve(&mut self, to: PathAddress, _: Ecn, len: usize) -> Option<Slot<'_>> {
        self.settle();
        self.room = self.room.checked_sub(1)?;
        self.sent.push((to, vec![0; len]));
        let (_, bytes) = self.sent.last_mut()?;
        Some(Slot::new(bytes, &mut self.committed))
    }
}

fn endpoint(peer: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::from([198, 19, (peer / 200) as u8, (peer % 200) as u8]), 6182)
}

fn engine() -> Engine {
    let mut pair = Pair::with(|_, config| {
        let template = config.peers[0].clone();
        config.peers = (0..PEERS)
            .map(|peer| {
                let mut config = template.clone();
                let mut key = [3; 32];
                key[8..16].copy_from_slice(&(peer as u64).to_be_bytes());
                config.public_key = *PrivateKey::from_bytes(key).public_key();
                config.name = format!("peer {peer}");
                config.endpoints = vec![endpoint(peer)];
                config.allowed_prefixes.clear();
                config
            })
            .collect();
    });
    let one = Command::LocalAddresses(locals(0)[..1].to_vec());
    pair.engines[0].handle_command(Instant::ZERO, one);
    let Pair { engines: [engine, _], .. } = pair;
    engine
}

/// One step of a host: timeouts, jobs, flush, and the socket when it has room again.
fn step(engine: &mut Engine, now: Instant, out: &mut Narrow, room: usize) {
    out.committed |= out.sent.is_empty();
    out.room = room;
    if engine.poll_timeout().is_some_and(|due| due <= now) {
        engine.handle_timeout(now, out, &mut Packets(&mut Vec::new()));
    }
    let _ = engine.run_jobs(now);
    engine.handle_writable(now, LocalId(0), out);
    out.settle();
    out.committed = true;
}

#[test]
fn the_first_initiations_to_all_peers_leave_as_the_socket_has_room() {
    let mut engine = engine();
    let mut out = Narrow::default();
    let mut steps = 0;
    while out.sent.len() < PEERS && steps < PEERS {
        step(&mut engine, Instant::from_millis(steps as u64), &mut out, 16);
        steps += 1;
    }
    let reached: BTreeSet<_> = out.sent.iter().map(|(to, _)| to.remote).collect();
    assert_eq!(reached, (0..PEERS).map(endpoint).collect(), "in {steps} steps");
    assert_eq!(steps, PEERS.div_ceil(16), "before any is repeated");
}

#[test]
fn when_sockets_are_too_slow_for_all_retries_every_peer_has_its_turn() {
    let mut engine = engine();
    let mut out = Narrow::default();
    // All peers repeat their initiations within 5 s; the socket accepts a fifth of them.
    for second in 0..60 {
        step(&mut engine, Instant::from_millis(second * 1_000), &mut out, PEERS / 25);
    }
    let reached: BTreeSet<_> = out.sent.iter().map(|(to, _)| to.remote).collect();
    assert_eq!(reached.len(), PEERS, "of {} sent", out.sent.len());
}
