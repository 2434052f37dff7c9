//! The end of a world: it heals, packets in flight complete, and both ends have to agree.

use core::net::SocketAddr;
use std::collections::BTreeSet;

use mpip_core::{Limits, PathState, PathStatus, PeerStatus, Policy, SessionStatus};

use super::World;
use crate::clock::{MILLI, Nanos, SECOND};
use crate::invariant::Invariant;
use crate::keys::public_key;
use crate::node::Node;
use crate::spec::{Mode, System};

/// Longest duration of healing: failed paths are probed at growing intervals, and at rest
/// challenges are sent every two minutes.
const HEALING: Nanos = 150 * SECOND;

/// Idle time before both ends are compared.
const QUIET: Nanos = 3 * SECOND;

impl World {
    /// Runs the world to its end, lets it heal and rest, and makes the final checks.
    pub fn finish(&mut self) {
        let last = self.script.back().map_or(0, |(at, _)| *at);
        self.run_until(self.spec.duration);
        self.goodput = self.honest_bytes();
        self.run_until(self.spec.duration.max(last));
        self.heal();
        for number in 0..self.flows.len() {
            // It is undetermined whether such a transfer completes, and the world can only rest
            // without it.
            if !self.ends_are_there(number) {
                self.hosts[self.flows[number].spec.from].stack.abandon(number as u64);
            }
        }
        let limit = self.now + HEALING;
        loop {
            while self.now < limit && !self.is_healed() {
                self.run_until(self.now + 100 * MILLI);
            }
            self.run_until(self.now + QUIET);
            // A UDP path may have recovered meanwhile, so the TCP path is closed.
            if self.now >= limit || self.is_healed() {
                break;
            }
        }
        self.check_completion();
        for first in 0..self.hosts.len() {
            for second in first + 1..self.hosts.len() {
                self.check_agreement(first, second);
            }
            self.check_rest(first);
        }
    }

    /// Bytes that flows between honest nodes have delivered.
    fn honest_bytes(&self) -> u64 {
        let honest = |number: &usize| {
            let flow = &self.flows[*number].spec;
            [flow.from, flow.to].iter().all(|host| !self.is_hostile(*host))
        };
        (0..self.flows.len()).filter(honest).map(|number| self.flow(number).bytes).sum()
    }

    fn is_healed(&self) -> bool {
        self.transfers_are_done() && self.paths_are_complete() && self.queues_are_empty()
    }

    fn transfers_are_done(&self) -> bool {
        (0..self.flows.len()).all(|number| {
            let flow = &self.flows[number].spec;
            let broken = self.hosts[flow.from].stack.is_broken(number as u64);
            !flow.traffic.is_transfer()
                || self.flow(number).finished
                || broken
                || flow.start >= flow.stop
                || !self.ends_are_there(number)
        })
    }

    /// Whether both hosts still have the addresses of a flow. An ordinary address may be gone for
    /// good.
    fn ends_are_there(&self, number: usize) -> bool {
        let flow = &self.flows[number];
        let ends = [(flow.spec.from, flow.shape.source), (flow.spec.to, flow.shape.destination)];
        ends.iter().all(|(host, end)| {
            let mut held = self.hosts[*host].locals.iter().map(|local| local.address.ip());
            !self.spec.is_ordinary(*host) || held.any(|ip| ip == end.ip())
        })
    }

    fn queues_are_empty(&self) -> bool {
        (0..self.hosts.len()).all(|host| {
            let peers = self.status(host).map(|status| status.peers);
            let mut peers = peers.into_iter().flatten();
            // An inner TCP may still repeat its last segment, which may have to wait for order.
            let empty = |peer: &PeerStatus| peer.queued == 0 && peer.resequencing == 0;
            peers.all(|peer| empty(&peer) || !self.follows_rules(&peer))
        })
    }

    /// Whether a peer is honest; a hostile node is silent at the end.
    fn follows_rules(&self, peer: &PeerStatus) -> bool {
        let ruled = |host: &usize| matches!(self.hosts[*host].node, Node::Engine(_));
        let mut ruled = (0..self.hosts.len()).filter(ruled);
        ruled.any(|host| public_key(host).node_id() == peer.node)
    }

    fn check_completion(&mut self) {
        for number in 0..self.flows.len() {
            let flow = &self.flows[number].spec;
            let (from, tcp) = (flow.from, flow.traffic.is_transfer());
            let report = self.flow(number);
            if !tcp || report.finished || flow.start >= flow.stop || !self.ends_are_there(number) {
                continue;
            }
            let broken = self.hosts[from].stack.is_broken(number as u64);
            let state = if broken { "broke" } else { "did not complete" };
            let ends = [from, self.flows[number].spec.to];
            let ends = ends.map(|host| self.hosts[host].stack.describe(number as u64));
            let detail = format!(
                "flow {number}: transfer {state} after {} bytes; {}; {}",
                report.bytes, ends[0], ends[1]
            );
            self.violate(from, (Invariant::Completion, detail));
        }
    }

    fn peer_status(&self, host: usize, peer: usize) -> Option<PeerStatus> {
        let node = public_key(peer).node_id();
        self.status(host)?.peers.into_iter().find(|status| status.node == node)
    }

    /// Expected number of paths between two hosts: all pairs of addresses of one family that reach
    /// each other, unless both are behind NATs.
    fn expected_paths(&self, first: usize, second: usize) -> usize {
        let mut pairs = BTreeSet::new();
        for a in &self.hosts[first].locals {
            for b in &self.hosts[second].locals {
                let routed = self.network.has_route(a.interface, b.interface)
                    && self.network.has_route(b.interface, a.interface);
                let hidden = self.network.is_behind_nat(a.interface)
                    && self.network.is_behind_nat(b.interface);
                let family = a.address.is_ipv4() == b.address.is_ipv4();
                if routed && !hidden && family {
                    // Over UDP or TCP.
                    pairs.insert((a.address, b.address));
                }
            }
        }
        pairs.len()
    }

    /// Whether two hosts are not configured for each other.
    fn are_strangers(&self, first: usize, second: usize) -> bool {
        [first, second].iter().any(|host| match &self.hosts[*host].spec.system {
            System::Mpip(engine) => engine.mode == Mode::Opportunistic,
            System::Plain { .. } | System::Hostile(_) => false,
        })
    }

    /// Whether a host sends plain IP while no path works.
    fn falls_back(&self, host: usize) -> bool {
        match &self.hosts[host].spec.system {
            System::Mpip(engine) => {
                matches!(engine.mode, Mode::Host(Policy::Prefer) | Mode::Opportunistic)
            }
            System::Plain { .. } | System::Hostile(_) => false,
        }
    }

    fn paths_are_complete(&self) -> bool {
        let hosts =
            (0..self.hosts.len()).flat_map(|a| (a + 1..self.hosts.len()).map(move |b| (a, b)));
        hosts.into_iter().all(|(first, second)| {
            let Some(one) = self.peer_status(first, second) else { return true };
            let Some(other) = self.peer_status(second, first) else { return true };
            // A TCP path is closed soon after UDP works again between its ends.
            let once = |status: &PeerStatus| usable(status).count() == pairs(status).len();
            if !once(&one) || !once(&other) {
                return false;
            }
            if self.are_strangers(first, second) {
                return true;
            }
            let expected = self.expected_paths(first, second);
            [one, other].iter().all(|status| pairs(status).len() == expected)
        })
    }

    fn check_agreement(&mut self, first: usize, second: usize) {
        let (Some(one), Some(other)) =
            (self.peer_status(first, second), self.peer_status(second, first))
        else {
            return;
        };
        let mut disagreements = Vec::new();
        // Which nodes discovered each other, and for how long, is undetermined.
        let strangers = self.are_strangers(first, second);
        if strangers && !(one.established && other.established) {
            return;
        }
        let expected = match strangers {
            true => pairs(&one).len(),
            false => self.expected_paths(first, second),
        };
        if expected > 0 && !(one.established && other.established) {
            disagreements.push(format!(
                "association established: {} and {}",
                one.established, other.established
            ));
        }
        if one.established && other.established && one.opener == other.opener {
            disagreements.push(format!("opens paths: {} and {}", one.opener, other.opener));
        }
        let ids = |status: &PeerStatus| usable(status).map(|path| path.id).collect::<BTreeSet<_>>();
        if ids(&one) != ids(&other) {
            disagreements.push(format!("paths {} and {}", show(&one), show(&other)));
        }
        if pairs(&one).len() != expected {
            disagreements.push(format!("{expected} paths expected, found {}", show(&one)));
        }
        // A sender that falls back to plain IP drops its sessions without telling the peer.
        let falls_back = self.falls_back(first) || self.falls_back(second);
        for (sender, receiver) in [(&one, &other), (&other, &one)] {
            let key = |session: &SessionStatus| {
                (session.id, session.protocol, session.source, session.destination)
            };
            let outgoing = sender.sessions.iter().filter(|session| session.outgoing);
            let known: BTreeSet<_> = outgoing.map(key).collect();
            // The receiver keeps sessions for longer than the sender.
            let kept = |session: &&SessionStatus| {
                !session.outgoing && session.idle < Limits::default().session_idle && !falls_back
            };
            for session in receiver.sessions.iter().filter(kept) {
                let key = key(session);
                if !known.contains(&key) {
                    disagreements
                        .push(format!("the sender does not know session {key:?} among {known:?}"));
                }
            }
        }
        for detail in disagreements {
            self.violate(first, (Invariant::Agreement, detail));
        }
    }

    /// Checks that nothing is queued in an idle host.
    fn check_rest(&mut self, index: usize) {
        let Some(status) = self.status(index) else { return };
        let silent = status.peers.iter().any(|peer| !self.follows_rules(peer));
        for peer in status.peers {
            if (peer.queued > 0 || peer.resequencing > 0) && self.follows_rules(&peer) {
                let detail = format!(
                    "{} bytes wait for a path, {} bytes for what is missing",
                    peer.queued, peer.resequencing
                );
                self.violate(index, (Invariant::Agreement, detail));
            }
        }
        // A hostile node is silent now. Packets for it are queued, in bounded tables.
        if silent || !matches!(self.hosts[index].node, Node::Engine(_)) {
            return;
        }
        let held = self.hosts[index].pool.in_use();
        if held > 0 {
            let detail = format!("{held} packet buffers are still held");
            self.violate(index, (Invariant::BoundedMemory, detail));
        }
    }
}

fn usable(status: &PeerStatus) -> impl Iterator<Item = &PathStatus> {
    status.paths.iter().filter(|path| matches!(path.state, PathState::Active | PathState::Standby))
}

/// The pairs of addresses of working paths; a pair may have two paths for a while, over UDP and
/// TCP.
fn pairs(status: &PeerStatus) -> BTreeSet<(SocketAddr, SocketAddr)> {
    usable(status).map(|path| (path.local, path.remote)).collect()
}

fn show(status: &PeerStatus) -> String {
    let paths = status.paths.iter();
    let shown =
        paths.map(|path| format!("{} {} > {} {}", path.id, path.local, path.remote, path.state));
    format!("[{}]", shown.collect::<Vec<_>>().join(", "))
}
