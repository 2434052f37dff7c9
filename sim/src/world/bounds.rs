//! Tables and queues stay within the bounds of `docs/architecture.md`.

use mpip_core::{Limits, PeerStatus};

use super::World;
use crate::invariant::Invariant;
use crate::spec::System;

/// A bound may be passed by the packet that makes it known, bytes.
const ONE_PACKET: usize = 65_536;
/// Packets of a path that are tracked; those that only ask for feedback go on beyond.
const TRACKED: usize = 16_384;
/// Packets to be sent again, and to be skipped.
const REPAIRS: usize = 16_384;
const SKIPS: usize = 256;
/// Session opens to be told, unknown sessions, and paths that the peer has not heard the end of.
const OWED: usize = 64 + 16 + 16;
/// Translated connections of a peer that nobody configured, and those of ours that it sees elsewhere.
const TRANSLATED: usize = 4_096 + 16_384;

impl World {
    pub(super) fn check_memory(&mut self) {
        for index in 0..self.hosts.len() {
            let host = &self.hosts[index];
            let System::Mpip(engine) = &host.spec.system else { continue };
            let limits = engine.limits.clone();
            let Some(status) = host.node.status(host.spec.clock.at(self.now), false) else {
                continue;
            };
            let nodes = ("nodes", status.peers.len(), self.hosts.len() + limits.unknown_nodes);
            let peers = status.peers.iter().flat_map(|peer| tables(peer, &limits));
            for (what, found, limit) in peers.chain([nodes]) {
                if found > limit {
                    let detail = format!("{what}: {found}, the limit is {limit}");
                    self.violate(index, (Invariant::BoundedMemory, detail));
                }
            }
        }
    }
}

/// How full the tables of an association are, and how full they may be.
fn tables(peer: &PeerStatus, limits: &Limits) -> [(&'static str, usize, usize); 10] {
    let kept = peer.kept;
    [
        ("send queue", peer.queued, limits.send_queue + ONE_PACKET),
        ("resequencing", peer.resequencing, limits.resequencing + ONE_PACKET),
        ("paths", peer.paths.len(), limits.paths),
        ("sessions sending", kept.sending, limits.sessions),
        ("sessions receiving", kept.receiving, limits.sessions),
        ("packets tracked", kept.tracked, TRACKED),
        ("repairs", kept.repairs, REPAIRS),
        ("skips", kept.skips, SKIPS),
        ("owed", kept.owed, OWED),
        ("translated", peer.translated, TRANSLATED),
    ]
}
