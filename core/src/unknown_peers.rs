//! Nodes that the configuration does not name: what is kept of them.

use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mpip_crypto::{PresharedKey, PublicKey};
use mpip_types::{Bucket, Instant};

use crate::availability::{ASK_AGAIN, Availability};
use crate::config::{EncapsulationPolicy, Opportunistic, PeerConfig, Policy};
use crate::event::Event;
use crate::pins::Pins;

/// Refusals of changed keys that are reported in ten minutes.
const REPORTED: usize = 1_024;

/// What the engine keeps for nodes that the configuration does not name.
#[derive(Debug)]
pub(crate) struct UnknownPeers {
    pub(crate) settings: Opportunistic,
    pub(crate) table: Availability,
    pub(crate) answers: Bucket,
    pub(crate) pins: Pins,
    /// When another key than the pinned one of an address was last reported; addresses are some of
    /// those that have or had a pin.
    pub(crate) reported: BTreeMap<IpAddr, Instant>,
    /// By number of the association.
    pub(crate) nodes: BTreeMap<usize, Node>,
    /// Which of them is dealt with at an address.
    pub(crate) by_address: BTreeMap<IpAddr, usize>,
    /// When those without keys are given up; entries of nodes that have some are passed over.
    pub(crate) deadlines: BTreeSet<(Instant, usize)>,
    /// Numbers of associations that are free to be used again.
    pub(crate) vacant: Vec<usize>,
}

/// A node that the configuration does not name.
#[derive(Debug)]
pub(crate) struct Node {
    /// Where it was found, and what it tells of where it proved to receive: no other node that
    /// nobody configured is dealt with there.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) public_key: PublicKey,
    /// Whether this node asked for it; else it called.
    pub(crate) asked: bool,
    pub(crate) established: bool,
    /// How often its paths had changed when their addresses were looked at, and on which day that
    /// was.
    pub(crate) path_changes: u64,
    pub(crate) met: u32,
}

impl UnknownPeers {
    /// Nobody is known yet but by the pins of the configuration; there may be `pins`.
    pub(crate) fn new(mut settings: Opportunistic, pins: usize, seed: [u8; 16]) -> Self {
        let known = core::mem::take(&mut settings.pins);
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
            vacant: Vec::new(),
        }
    }

    /// When something is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        [self.table.next_timeout(), deadline].into_iter().flatten().min()
    }

    /// Whether the association `peer` is with such a node.
    pub(crate) fn is_node(&self, peer: usize) -> bool {
        self.nodes.contains_key(&peer)
    }

    /// The association with the node that is dealt with at `address`.
    pub(crate) fn node_at(&self, address: IpAddr) -> Option<usize> {
        self.by_address.get(&address).copied()
    }

    /// Whether `address` has another key pinned than `found`. The event that says so comes once in
    /// a while: who is refused tries again.
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

    /// The configuration of the peer that a node at `address` becomes.
    pub(crate) fn peer_config(
        &self,
        address: IpAddr,
        public_key: PublicKey,
        asked: bool,
    ) -> PeerConfig {
        let endpoint = SocketAddr::new(address, self.settings.port);
        PeerConfig {
            name: address.to_string(),
            public_key,
            preshared_key: PresharedKey::default(),
            endpoints: if asked { vec![endpoint] } else { Vec::new() },
            allowed_prefixes: Vec::new(),
            exclusive: Vec::new(),
            reaches: Vec::new(),
            scheduler: self.settings.scheduler,
            fixed_weights: Vec::new(),
            congestion_control: self.settings.congestion_control,
            host_mode: true,
            policy: Policy::Prefer,
            max_paths: None,
            resequencing: true,
            ack_thinning: true,
            encapsulation: EncapsulationPolicy::Auto,
            tcp_port: None,
        }
    }
}
