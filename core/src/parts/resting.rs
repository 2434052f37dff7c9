//! Whether an association rests, and the lifetimes of the NAT bindings of its paths.

use core::net::IpAddr;

use mpip_transport::rest::{Lifetime, REST_AFTER};
use mpip_types::Instant;

use crate::content::Path;

/// Local addresses whose NATs are remembered; beyond this the oldest is forgotten.
pub(crate) const NETWORKS: usize = 16;

/// What was learnt about the NAT in front of a local address.
#[derive(Debug)]
struct Network {
    interface: String,
    local: IpAddr,
    lifetime: Lifetime,
}

/// Whether an association rests.
#[derive(Debug)]
pub(crate) struct Resting {
    /// When an inner packet was last sent or received.
    traffic_at: Instant,
    /// Whether the paths rest.
    resting: bool,
    networks: Vec<Network>,
}

impl Resting {
    /// The state of an active association.
    pub(crate) fn new(now: Instant) -> Self {
        Self { traffic_at: now, resting: false, networks: Vec::new() }
    }

    /// Whether the paths rest.
    pub(crate) fn is_resting(&self) -> bool {
        self.resting
    }

    /// An inner packet was sent or received. Returns whether the paths have to be woken.
    pub(crate) fn on_traffic(&mut self, now: Instant) -> bool {
        self.traffic_at = now;
        self.end()
    }

    /// Whether the last inner packet was [`REST_AFTER`] ago or more.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        now.since(self.traffic_at) >= REST_AFTER
    }

    /// The paths rest from now on.
    pub(crate) fn begin(&mut self) {
        self.resting = true;
    }

    /// The paths are awake from now on. Returns whether they rested.
    pub(crate) fn end(&mut self) -> bool {
        core::mem::take(&mut self.resting)
    }

    /// What was learnt about the NAT in front of `path`.
    pub(crate) fn lifetime(&mut self, path: &Path) -> &mut Lifetime {
        let (interface, local) = (&path.interface, path.local.ip());
        let known = |network: &Network| network.interface == *interface && network.local == local;
        let at = self.networks.iter().position(known).unwrap_or_else(|| {
            let lifetime = Lifetime::default();
            let network = Network { interface: interface.clone(), local, lifetime };
            if self.networks.len() == NETWORKS {
                self.networks.remove(0);
            }
            self.networks.push(network);
            self.networks.len() - 1
        });
        &mut self.networks[at].lifetime
    }

    /// Addresses whose NATs are remembered.
    pub(crate) fn networks(&self) -> usize {
        self.networks.len()
    }
}
