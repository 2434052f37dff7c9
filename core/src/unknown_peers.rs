//! The state of unknown peers.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mpip_crypto::{PresharedKey, PublicKey};
use mpip_types::{Bucket, Encapsulation, Instant};

use crate::availability::{ASK_AGAIN, Availability};
use crate::config::{Opportunistic, PeerConfig, Policy};
use crate::event::Event;
use crate::pins::Pins;

/// Most refusals of changed keys that are reported in ten minutes.
const REPORTED: usize = 1_024;

/// What the engine keeps about unknown peers.
#[derive(Debug)]
pub(crate) struct UnknownPeers {
    pub(crate) settings: Opportunistic,
    pub(crate) table: Availability,
    pub(crate) answers: Bucket,
    pub(crate) pins: Pins,
    /// When a changed key of an address was last reported. Only addresses that have or had a pin
    /// are in it.
    pub(crate) reported: BTreeMap<IpAddr, Instant>,
    /// Unknown peers, by the index of their association.
    pub(crate) nodes: BTreeMap<usize, UnknownPeer>,
    /// The unknown peer that is admitted at an address.
    pub(crate) by_address: BTreeMap<IpAddr, usize>,
    /// When unknown peers without keys are removed. Entries of those with keys are ignored.
    pub(crate) deadlines: BTreeSet<(Instant, usize)>,
}

/// An unknown peer.
#[derive(Debug)]
pub(crate) struct UnknownPeer {
    /// The address at which it was found, and advertised addresses at which it proved to receive.
    /// No other unknown peer is admitted there.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) public_key: PublicKey,
    /// Whether this node sent the query; otherwise the peer initiated.
    pub(crate) asked: bool,
    pub(crate) established: bool,
    /// The number of path changes when its addresses were last examined.
    pub(crate) path_changes: u64,
    /// The day on which that was.
    pub(crate) met: u32,
}

impl UnknownPeers {
    /// Without peers, with the pins of the configuration; at most `pins` pins.
    pub(crate) fn new(mut settings: Opportunistic, pins: usize, seed: [u8; 16]) -> Self {
        let known = core::mem::take(&mut settings.pins);
        settings.peer = Self::of_nobody(settings.peer);
        let pins = Pins::new(known, pins, settings.pin_expiry);
        Self {
            settings,
            table: Availability::new(seed),
            answers: Bucket::new(),
            pins,
            reported: BTreeMap::new(),
            nodes: BTreeMap::new(),
            by_address: BTreeMap::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// `peer` without what only a configured peer can have: an unknown one proves its addresses,
    /// and plain IP is what its packets were before it was found.
    pub(crate) fn of_nobody(peer: PeerConfig) -> PeerConfig {
        PeerConfig {
            preshared_key: PresharedKey::default(),
            allowed_prefixes: Vec::new(),
            exclusive: Vec::new(),
            reaches: Vec::new(),
            host_mode: true,
            policy: Policy::Prefer,
            ..peer
        }
    }

    /// When the next timer is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        [self.table.next_timeout(), deadline].into_iter().flatten().min()
    }

    /// Whether the association `peer` is with an unknown peer.
    pub(crate) fn is_node(&self, peer: usize) -> bool {
        self.nodes.contains_key(&peer)
    }

    /// The association with the unknown peer that is admitted at `address`.
    pub(crate) fn node_at(&self, address: IpAddr) -> Option<usize> {
        self.by_address.get(&address).copied()
    }

    /// Whether another key than `found` is pinned to `address`. The event about it is rate limited,
    /// because a refused peer keeps trying.
    pub(crate) fn refuses(
        &mut self,
        (now, today): (Instant, u32),
        address: IpAddr,
        found: PublicKey,
        events: &mut VecDeque<Event>,
    ) -> bool {
        let Some(pinned) = self.pins.refuses(address, found, today) else { return false };
        let last = self.reported.get(&address);
        if last.is_none_or(|at| now.since(*at) >= ASK_AGAIN) {
            if self.reported.len() >= REPORTED {
                self.reported.retain(|_, at| now.since(*at) < ASK_AGAIN);
            }
            if self.reported.len() >= REPORTED {
                return true;
            }
            self.reported.insert(address, now);
            events.push_back(Event::KeyChanged { address, pinned, found });
        }
        true
    }

    /// The configuration for the unknown peer at `address`.
    pub(crate) fn peer_config(
        &self,
        address: IpAddr,
        public_key: PublicKey,
        asked: bool,
    ) -> PeerConfig {
        let endpoint = self.settings.remote(address, Encapsulation::Udp);
        PeerConfig {
            name: address.to_string(),
            public_key,
            endpoints: if asked { vec![endpoint] } else { Vec::new() },
            ..self.settings.peer.clone()
        }
    }

    /// The configuration of the unknown peer `former` once unknown peers have the settings `peer`.
    pub(crate) fn changed(former: &PeerConfig, peer: &PeerConfig) -> PeerConfig {
        PeerConfig {
            name: former.name.clone(),
            public_key: former.public_key,
            endpoints: former.endpoints.clone(),
            ..peer.clone()
        }
    }
}
