//! Changes of the configuration while the engine runs.
//!
//! Peers are told apart by their keys. A peer whose settings are the same is not touched: its
//! association, paths, sessions and queues stay as they are. Most settings of a peer change in
//! place (`Association::reconfigure`); another name or another host mode makes it another peer,
//! which is removed and added. A removed peer is told so and forgotten, except which of its
//! initiations would be replays.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;
use std::sync::Arc;

use mpip_crypto::PublicKey;
use mpip_types::{DatagramSink, Instant, Prefix};

use super::Engine;
use crate::association::Association;
use crate::config::{InterfaceProperties, PeerConfig, Policy, Rule};

/// What [`Engine::reconfigure`] has changed: names of peers, in the new configuration's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconfigured {
    /// Peers that are new, or had to begin anew.
    pub added: Vec<String>,
    /// Peers that are gone, or had to begin anew.
    pub removed: Vec<String>,
    /// Peers whose settings changed while their association goes on.
    pub changed: Vec<String>,
    /// Whether the rules changed.
    pub rules: bool,
}

impl Reconfigured {
    /// Whether everything is as it was.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Engine {
    /// Replaces the configured peers and the rules. What does not change goes on undisturbed. Peers
    /// that are removed are told so in datagrams to `out`; what follows for the others is sent at
    /// the next [`handle_timeout`](Self::handle_timeout), which is then due.
    pub fn reconfigure(
        &mut self,
        now: Instant,
        peers: Vec<PeerConfig>,
        rules: Vec<Rule>,
        out: &mut impl DatagramSink,
    ) -> Reconfigured {
        let mut done = Reconfigured::default();
        if rules != self.shared.rules.rules() {
            self.shared.rules.replace(rules);
            done.rules = true;
        }
        let former: BTreeMap<PublicKey, usize> =
            self.configured.iter().map(|peer| (self.key_of(*peer), *peer)).collect();
        let mut kept: BTreeMap<usize, PeerConfig> = BTreeMap::new();
        let mut new = Vec::new();
        let mut order: Vec<PublicKey> = Vec::new();
        for peer in peers {
            order.push(peer.public_key);
            match former.get(&peer.public_key) {
                Some(at) if self.associations[*at].config.goes_on_as(&peer) => {
                    kept.insert(*at, peer);
                }
                _ => new.push(peer),
            }
        }
        let gone = former.into_values().filter(|peer| !kept.contains_key(peer));
        for peer in gone.collect::<Vec<_>>() {
            done.removed.push(self.associations[peer].config.name.clone());
            self.remove_configured(now, peer, out);
        }
        kept.retain(|peer, config| self.associations[*peer].config != *config);
        // What one peer gives up another may get.
        for (peer, config) in &kept {
            self.release_all_but(*peer, config);
        }
        for (peer, config) in kept {
            done.changed.push(config.name.clone());
            self.change_configured(now, peer, config);
        }
        for config in new {
            done.added.push(config.name.clone());
            self.add_configured(now, config);
        }
        self.configured = order.iter().filter_map(|key| self.by_key.get(key).copied()).collect();
        let endpoints = self
            .configured
            .iter()
            .flat_map(|peer| self.associations[*peer].config.endpoints.iter().map(SocketAddr::ip));
        self.handshake_sources.set_endpoints(endpoints);
        self.review_sessions();
        done
    }

    /// Puts paths on standby or back in use, and follows what they cost. The peers are told.
    pub(super) fn follow_interfaces(&mut self, now: Instant, interfaces: InterfaceProperties) {
        self.shared.interfaces = Arc::new(interfaces);
        for peer in 0..self.associations.len() {
            let (association, mut cx) = self.association(peer);
            association.limit_to_fastest(now, &mut cx);
            self.touched.insert(peer);
            self.schedule_at(peer, Some(now));
        }
    }

    fn key_of(&self, peer: usize) -> PublicKey {
        self.associations[peer].config.public_key
    }

    /// A place for an association.
    pub(super) fn place(&mut self, association: Association) -> usize {
        match self.vacant.pop() {
            Some(peer) => {
                self.associations[peer] = association;
                peer
            }
            None => {
                self.associations.push(association);
                self.timeouts.push(None);
                self.associations.len() - 1
            }
        }
    }

    /// Ends the association `peer` and frees its place.
    pub(super) fn vacate(&mut self, now: Instant, peer: usize) {
        self.by_key.remove(&self.key_of(peer));
        self.touched.remove(peer);
        let (association, mut cx) = self.association(peer);
        association.retire(now, &mut cx);
        association.follow_capture(now, &mut cx);
        self.reschedule(peer);
        self.vacant.push(peer);
    }

    fn remove_configured(&mut self, now: Instant, peer: usize, out: &mut impl DatagramSink) {
        let (association, mut cx) = self.association(peer);
        association.shut_down();
        association.transmit(now, &mut cx, out);
        for prefix in self.associations[peer].config.claims().into_keys() {
            self.shared.prefixes.release(prefix, peer);
        }
        let (association, mut cx) = self.association(peer);
        association.give_up_addresses(&mut cx, |_| false);
        let guard = association.replay_guard().clone();
        self.former.keep(now, self.key_of(peer), guard);
        self.vacate(now, peer);
    }

    /// Releases the prefixes of `peer` that `config` does not have.
    fn release_all_but(&mut self, peer: usize, config: &PeerConfig) {
        let wanted = config.claims();
        for (prefix, source) in self.associations[peer].config.claims() {
            if wanted.get(&prefix) != Some(&source) {
                self.shared.prefixes.release(prefix, peer);
            }
        }
    }

    fn change_configured(&mut self, now: Instant, peer: usize, config: PeerConfig) {
        let claims = config.claims();
        let (association, mut cx) = self.association(peer);
        association.reconfigure(now, config, &mut cx);
        for (prefix, source) in claims {
            self.claim(now, prefix, peer, source);
        }
        self.give_way(now, peer);
        self.touched.insert(peer);
        self.schedule_at(peer, Some(now));
    }

    fn add_configured(&mut self, now: Instant, config: PeerConfig) {
        let mut guard = self.former.guard(&config.public_key);
        // It may have been found before it was configured.
        if let Some(known) = self.by_key.get(&config.public_key).copied() {
            guard.clone_from(self.associations[known].replay_guard());
            self.remove_node(now, known);
        }
        let claims = config.claims();
        let key = config.public_key;
        let Self { limits, parameters, shared, .. } = self;
        let mut association = Association::new(config, limits, parameters, &mut shared.rng, now);
        association.set_replay_guard(guard);
        let peer = self.place(association);
        self.by_key.insert(key, peer);
        for (prefix, source) in claims {
            self.claim(now, prefix, peer, source);
        }
        self.give_way(now, peer);
        self.touched.insert(peer);
        self.schedule_at(peer, Some(now));
    }

    /// Gives `prefix` to the configured `peer`, and takes it from whom it was given because of what
    /// a peer told.
    fn claim(&mut self, now: Instant, prefix: Prefix, peer: usize, source: bool) {
        if self.shared.prefixes.claim(prefix, peer, source) {
            return;
        }
        let Some(owner) = self.shared.prefixes.owner_of(prefix) else { return };
        if self.is_node(owner) {
            self.remove_node(now, owner);
        } else {
            let (association, mut cx) = self.association(owner);
            association.give_up_addresses(&mut cx, |ip| Prefix::host(ip) != prefix);
            self.touched.insert(owner);
            self.schedule_at(owner, Some(now));
        }
        self.shared.prefixes.claim(prefix, peer, source);
    }

    /// Removes unknown peers that were admitted at an endpoint of the configured `peer`.
    fn give_way(&mut self, now: Instant, peer: usize) {
        let endpoints = self.associations[peer].config.endpoints.iter();
        let addresses: Vec<IpAddr> = endpoints.map(SocketAddr::ip).collect();
        for address in addresses {
            let node = self.unknown.as_ref().and_then(|unknown| unknown.node_at(address));
            if let Some(node) = node {
                self.remove_node(now, node);
            }
        }
    }

    /// Whether the association `peer` is with an unknown peer.
    pub(super) fn is_node(&self, peer: usize) -> bool {
        self.unknown.as_ref().is_some_and(|unknown| unknown.is_node(peer))
    }
}

impl PeerConfig {
    /// The inner addresses that are the peer's by configuration, each with whether packets from
    /// there are accepted.
    pub(super) fn claims(&self) -> BTreeMap<Prefix, bool> {
        let mut claims = BTreeMap::new();
        if self.host_mode && self.policy == Policy::Require {
            let endpoints = self.endpoints.iter().map(|endpoint| Prefix::host(endpoint.ip()));
            claims.extend(endpoints.map(|prefix| (prefix, false)));
        }
        claims.extend(self.allowed_prefixes.iter().map(|prefix| (*prefix, true)));
        claims
    }

    /// Whether the association can go on when the settings become `other`.
    fn goes_on_as(&self, other: &Self) -> bool {
        self.name == other.name && self.host_mode == other.host_mode
    }
}
