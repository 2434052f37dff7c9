//! Unknown peers (opportunistic mode): queries, answers, and associations with nodes that are not
//! configured.
//!
//! While its association exists, an unknown peer is handled like a configured one. It is admitted
//! where it proved to receive: at the address where it was found, and at the remote addresses of
//! its paths, which answered a challenge. Trust is on first use: the first key that an address
//! proved to hold is pinned to it, as `ssh` does. Receiving at one port of an address does not
//! prove ownership of the whole address: only the configuration can say that.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeSet;

use mpip_crypto::{PublicKey, Responder};
use mpip_wire::{AnswerPacket, AnswerRepr, QueryPacket, QueryRepr};

use super::{DropReason, Engine, PinChange};
use crate::association::Association;
use crate::availability::{AvailabilityState, AvailabilityStatus, PER_SECOND, Query};
use crate::config::{Opportunistic, PeerConfig};
use crate::event::Event;
use crate::pins::Met;
use crate::unknown_peers::{UnknownPeer, UnknownPeers};
use mpip_types::Encapsulation;
use mpip_types::Instant;
use mpip_types::{DatagramSink, LocalAddress, LocalId, PathAddress};

/// Time without keys after which an unknown peer is removed.
const GIVE_UP: Duration = Duration::from_secs(20);
/// Most inner addresses of an unknown peer.
const ADDRESSES: usize = 16;
/// Seconds of a day.
const DAY: u64 = 86_400;
/// Most queries sent at once.
const QUERIES_AT_ONCE: usize = 32;

/// The end from which `query` leaves, and where it goes; `None` if no local address serves.
///
/// Queries alternate between UDP and TCP where both are permitted and possible, beginning with UDP:
/// so a destination is found where UDP is blocked, and asked no more often than by UDP alone. The
/// first query by each leaves from the address that the host uses, later ones from each address in
/// turn.
fn route(
    settings: &Opportunistic,
    locals: &[LocalAddress],
    query: &Query,
) -> Option<(LocalId, SocketAddr)> {
    let ends = |kind: Encapsulation| {
        let usable = move |local: &&LocalAddress| {
            local.encapsulation == kind && local.address.is_ipv4() == query.to.is_ipv4()
        };
        let permitted = settings.peer.encapsulation.permits(kind);
        locals.iter().filter(move |_| permitted).filter(usable)
    };
    let by = |kind| ends(kind).next().is_some();
    let attempt = query.attempt as usize;
    let (kind, turn) = match (by(Encapsulation::Udp), by(Encapsulation::Tcp)) {
        (true, true) if attempt % 2 == 1 => (Encapsulation::Tcp, attempt / 2),
        (true, true) => (Encapsulation::Udp, attempt / 2),
        (true, false) => (Encapsulation::Udp, attempt),
        (false, true) => (Encapsulation::Tcp, attempt),
        (false, false) => return None,
    };
    let own = ends(kind).filter(|local| local.address.ip() == query.source);
    let others = ends(kind).filter(|local| local.address.ip() != query.source);
    let local = own.chain(others).nth(turn % ends(kind).count())?;
    Some((local.id, settings.remote(query.to, kind)))
}

impl Engine {
    /// The host's address `source` talks to `destination`. If the configuration permits it, a query
    /// asks whether mpip answers there. The query is sent at the next
    /// [`handle_timeout`](Self::handle_timeout), which is then due.
    pub fn handle_destination(&mut self, now: Instant, source: IpAddr, destination: IpAddr) {
        let Some(unknown) = &mut self.unknown else { return };
        let own = self.shared.locals.iter().any(|local| local.address.ip() == destination);
        if !own
            && unknown.settings.concerns(destination)
            && self.shared.prefixes.find(destination).is_none()
            && unknown.node_at(destination).is_none()
        {
            unknown.table.note(now, source, destination);
        }
    }

    /// The next change of a pin that is to be stored, so that
    /// [`Opportunistic::pins`](crate::Opportunistic::pins) has it at the next start. Changes of one
    /// address are in order; those not polled yet are merged.
    pub fn poll_pin(&mut self) -> Option<PinChange> {
        self.unknown.as_mut()?.pins.poll()
    }

    /// The day of the wall clock, in days since 1970-01-01 UTC.
    fn today(&self, now: Instant) -> u32 {
        let unix_time = self.shared.unix_origin + now.since(Instant::ZERO);
        u32::try_from(unix_time.as_secs() / DAY).unwrap_or(u32::MAX)
    }

    /// The availability of destinations that the host talks to and that belong to no peer.
    pub fn availability(&self, now: Instant) -> Vec<AvailabilityStatus> {
        let unknown = self.unknown.iter();
        unknown.flat_map(|unknown| unknown.table.status(now)).collect()
    }

    /// Sends queries, and removes unknown peers that do not complete a handshake.
    pub(super) fn run_unknown(&mut self, now: Instant, out: &mut impl DatagramSink) {
        for _ in 0..QUERIES_AT_ONCE {
            let Some(unknown) = &mut self.unknown else { return };
            let nonce = || u64::from_be_bytes(self.shared.rng.bytes());
            let Some(query) = unknown.table.poll_query(now, nonce) else { break };
            let settings = &unknown.settings;
            let Some((local, remote)) = route(settings, &self.shared.locals, &query) else {
                continue;
            };
            let repr = QueryRepr { nonce: query.nonce, len: QueryPacket::MIN_LEN };
            let mut datagram = vec![0; repr.encoded_len()];
            repr.emit(&mut datagram).expect("the buffer has the query's length");
            // A query that finds no room is dropped, as if lost: later ones follow.
            out.send(PathAddress { local, remote }, &datagram);
        }
        while let Some(unknown) = &mut self.unknown
            && let Some(&(at, peer)) = unknown.deadlines.first()
            && at <= now
        {
            unknown.deadlines.pop_first();
            if unknown.nodes.get(&peer).is_some_and(|node| !node.established) {
                self.remove_node(now, peer);
            }
        }
    }

    /// A query asks whether mpip answers here.
    pub(super) fn on_query(
        &mut self,
        now: Instant,
        from: PathAddress,
        datagram: &[u8],
    ) -> Result<(), DropReason> {
        let query = QueryPacket::new_checked(datagram).map_err(|_| DropReason::Malformed)?;
        let unknown = self.unknown.as_mut();
        let unknown = unknown.filter(|unknown| unknown.settings.concerns(from.remote.ip()));
        if !unknown.is_some_and(|unknown| unknown.answers.take(now, PER_SECOND)) {
            return Err(DropReason::Availability);
        }
        let public_key = *self.shared.private_key.public_key().as_bytes();
        let repr = AnswerRepr { flags: 0, nonce: query.nonce(), public_key };
        let mut answer = vec![0; repr.encoded_len()];
        repr.emit(&mut answer).expect("the buffer has the answer's length");
        self.replies.push(from, answer);
        Ok(())
    }

    /// A queried node answers. The key in the answer is only a claim: the handshake proves it.
    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        from: PathAddress,
        datagram: &[u8],
    ) -> Result<(), DropReason> {
        let answer = AnswerPacket::new_checked(datagram).map_err(|_| DropReason::Malformed)?;
        let address = from.remote.ip();
        let found = PublicKey::from_bytes(*answer.public_key());
        let today = self.today(now);
        let unknown = self.unknown.as_mut().ok_or(DropReason::Availability)?;
        let asked = self.shared.locals.iter().find(|local| local.id == from.local);
        let asked = asked.ok_or(DropReason::Availability)?;
        if from.remote != unknown.settings.remote(address, asked.encapsulation) {
            return Err(DropReason::Availability);
        }
        let asked = asked.address.ip();
        let source = unknown.table.on_answer(now, address, answer.nonce(), found);
        let source = source.ok_or(DropReason::Availability)?;
        if found == *self.shared.private_key.public_key() {
            unknown.table.refuse(now, address, AvailabilityState::NotEnabled);
        } else if unknown.refuses((now, today), address, found, &mut self.shared.events) {
            let state = AvailabilityState::KeyChanged { public_key: found };
            unknown.table.refuse(now, address, state);
        } else if !self.by_key.contains_key(&found)
            && self.shared.prefixes.find(address).is_none()
            && unknown.node_at(address).is_none()
            && let Some(peer) = self.add_node(now, address, found, true)
        {
            // The other node uses the source of the handshake as the address of inner packets.
            let used = self.shared.locals.iter().find(|local| local.address.ip() == source);
            let first = used.map_or(asked, |local| local.address.ip());
            self.associations[peer].begin_from(Some(first));
        }
        Ok(())
    }

    /// Creates an association for the initiation of an unknown peer and returns its index, or why
    /// there is none. A sender that has not proved its address is given a cookie.
    pub(super) fn accept_unknown(
        &mut self,
        now: Instant,
        from: PathAddress,
        datagram: &[u8],
        responder: &Responder,
    ) -> Result<usize, DropReason> {
        let found = *responder.remote();
        self.admit(now, from, datagram, found, None)?;
        self.add_node(now, from.remote.ip(), found, false).ok_or(DropReason::UnderLoad)
    }

    /// The known `peer` initiates from `from`. One that the configuration does not name may do so
    /// from a new address only as if it came from there first.
    pub(super) fn admit_elsewhere(
        &mut self,
        now: Instant,
        from: PathAddress,
        datagram: &[u8],
        peer: usize,
    ) -> Result<(), DropReason> {
        let there = self.unknown.as_ref().and_then(|unknown| unknown.node_at(from.remote.ip()));
        if !self.is_node(peer) || there == Some(peer) {
            return Ok(());
        }
        self.admit(now, from, datagram, self.associations[peer].config.public_key, Some(peer))
    }

    /// Whether a node with the key `found` may come from there; `known` is its association.
    fn admit(
        &mut self,
        now: Instant,
        from: PathAddress,
        datagram: &[u8],
        found: PublicKey,
        known: Option<usize>,
    ) -> Result<(), DropReason> {
        let (address, today) = (from.remote.ip(), self.today(now));
        let unknown = self.unknown.as_mut();
        let Some(unknown) = unknown.filter(|unknown| unknown.settings.concerns(address)) else {
            let reason = format!("no peer has the key {found}");
            return Err(self.refuse_handshake(from.remote, reason));
        };
        if unknown.refuses((now, today), address, found, &mut self.shared.events) {
            return Err(DropReason::Handshake);
        }
        let owner = self.shared.prefixes.find(address).or_else(|| unknown.node_at(address));
        if let Some(peer) = owner.filter(|owner| Some(*owner) != known) {
            let name = &self.associations[peer].config.name;
            let reason = format!("its address is that of peer `{name}`, which has another key");
            return Err(self.refuse_handshake(from.remote, reason));
        }
        // No state is kept for a sender that may have forged its address.
        let time = now.since(Instant::ZERO);
        if self.cookies.verify(time, from.remote, datagram).is_err() {
            return Err(self.give_cookie(time, from, datagram));
        }
        Ok(())
    }

    pub(super) fn add_node(
        &mut self,
        now: Instant,
        address: IpAddr,
        public_key: PublicKey,
        asked: bool,
    ) -> Option<usize> {
        let today = self.today(now);
        let no_pin = asked && !self.unknown.as_mut()?.pins.has_room(address, today);
        if !no_pin {
            self.make_room_for_node(now);
        }
        let unknown = self.unknown.as_mut()?;
        if no_pin || unknown.nodes.len() >= self.limits.unknown_nodes {
            unknown.table.refuse(now, address, AvailabilityState::NotEnabled);
            return None;
        }
        let config = unknown.peer_config(address, public_key, asked);
        let limits = self.limits.of_unknown();
        let parameters = &self.parameters;
        let mut association =
            Association::new(config, &limits, parameters, &mut self.shared.rng, now);
        association.mark_as_unknown_peer();
        association.set_replay_guard(self.former.guard(&public_key));
        let peer = self.place(association);
        let unknown = self.unknown.as_mut()?;
        let addresses = vec![address];
        let (established, path_changes, met) = (false, 0, today);
        let node = UnknownPeer { addresses, public_key, asked, established, path_changes, met };
        unknown.nodes.insert(peer, node);
        unknown.by_address.insert(address, peer);
        unknown.deadlines.insert((now + GIVE_UP, peer));
        self.by_key.insert(public_key, peer);
        self.reschedule(peer);
        Some(peer)
    }

    /// At the limit, removes an unknown peer without sessions.
    fn make_room_for_node(&mut self, now: Instant) {
        let Some(unknown) = &self.unknown else { return };
        if unknown.nodes.len() >= self.limits.unknown_nodes {
            let idle = |peer: &usize| self.associations[*peer].is_idle();
            if let Some(peer) = unknown.nodes.keys().copied().find(idle) {
                self.remove_node(now, peer);
            }
        }
    }

    /// Removes the association `peer`, which is with an unknown peer.
    pub(super) fn remove_node(&mut self, now: Instant, peer: usize) {
        let Some(unknown) = &mut self.unknown else { return };
        let Some(node) = unknown.nodes.remove(&peer) else { return };
        for address in node.addresses {
            unknown.by_address.remove(&address);
            unknown.table.refuse(now, address, AvailabilityState::NotEnabled);
        }
        unknown.deadlines.retain(|(_, other)| *other != peer);
        let guard = self.associations[peer].replay_guard().clone();
        self.former.update(&node.public_key, guard);
        self.vacate(now, peer);
    }

    /// Gives unknown peers the settings `peer` from now on. Associations that exist go on.
    pub(super) fn change_unknown(&mut self, now: Instant, peer: PeerConfig) {
        let Some(unknown) = &mut self.unknown else { return };
        let settings = UnknownPeers::of_nobody(peer);
        if settings == unknown.settings.peer {
            return;
        }
        unknown.settings.peer = settings.clone();
        let nodes: Vec<usize> = unknown.nodes.keys().copied().collect();
        for peer in nodes {
            let (association, mut cx) = self.association(peer);
            let config = UnknownPeers::changed(&association.config, &settings);
            association.reconfigure(now, config, &mut cx);
            self.touched.insert(peer);
            self.schedule_at(peer, Some(now));
        }
    }

    /// Follows changes of the association `peer`, if it is with an unknown peer.
    pub(super) fn follow_node(&mut self, now: Instant, peer: usize) {
        let today = self.today(now);
        let Some(unknown) = &mut self.unknown else { return };
        let Some(node) = unknown.nodes.get_mut(&peer) else { return };
        let association = &self.associations[peer];
        match (node.established, association.is_established()) {
            (true, false) => self.remove_node(now, peer),
            (_, true) if node.path_changes != association.path_changes || node.met < today => {
                node.established = true;
                (node.path_changes, node.met) = (association.path_changes, today);
                self.adopt_addresses(now, peer);
            }
            _ => {}
        }
    }

    /// Admits the unknown peer of association `peer` at the addresses at which it proved to
    /// receive, unless they belong to another node. If this node sent the query, pins the peer's
    /// key to them.
    fn adopt_addresses(&mut self, now: Instant, peer: usize) {
        let today = self.today(now);
        let proven: BTreeSet<(IpAddr, bool)> = self.associations[peer].proven_addresses().collect();
        let mut admitted = Vec::new();
        for (address, told) in proven {
            let Some(unknown) = &mut self.unknown else { return };
            if !unknown.settings.concerns(address) {
                continue;
            }
            let owner = self.shared.prefixes.find(address).or_else(|| unknown.node_at(address));
            let UnknownPeers { settings, pins, nodes, by_address, .. } = &mut **unknown;
            let Some(node) = nodes.get_mut(&peer) else { return };
            let public_key = node.public_key;
            let new = told && owner.is_none();
            let full = new && node.addresses.len() >= ADDRESSES;
            let theirs = owner.is_some_and(|owner| owner != peer)
                || pins.refuses(address, public_key, today).is_some();
            if full || theirs {
                continue;
            }
            if node.asked || pins.holds(address, public_key) {
                let former = match pins.meet(address, public_key, today) {
                    Met::New => Some(None),
                    Met::InPlaceOf(key) => Some(Some(key)),
                    Met::Known => None,
                    Met::Other | Met::Full => continue,
                };
                let pinned = |former| Event::Pinned { address, public_key, former };
                self.shared.events.extend(former.map(pinned));
            }
            if new {
                node.addresses.push(address);
                by_address.insert(address, peer);
            }
            admitted.push((address, settings.is_exclusive(address)));
        }
        let (association, cx) = self.association(peer);
        if association.admit(now, &admitted, &cx) {
            self.touched.insert(peer);
        }
    }
}
