//! What is kept of peers that were in the configuration and are not any more.

use mpip_crypto::{PublicKey, ReplayGuard};
use mpip_types::Instant;
use mpip_types::table::Table;

/// Most former peers; beyond this the one that was removed longest ago is forgotten. A gateway may
/// give all its peers other names at once.
pub(crate) const FORMER_PEERS: usize = 16_384;

/// The replay guards of former peers: a peer that is added again must not be answered for an
/// initiation that was recorded before.
#[derive(Debug)]
pub(crate) struct FormerPeers(Table<PublicKey, ReplayGuard>);

impl Default for FormerPeers {
    fn default() -> Self {
        // Only the configuration adds keys, so nobody can add many that collide.
        Self(Table::new(FORMER_PEERS, [0; 16]))
    }
}

impl FormerPeers {
    /// The configuration does not have the peer with `key` any more.
    pub(crate) fn keep(&mut self, now: Instant, key: PublicKey, guard: ReplayGuard) {
        self.0.insert(now, key, guard);
    }

    /// An association with `key` has ended that was not in the configuration: it may have been
    /// before.
    pub(crate) fn update(&mut self, key: &PublicKey, guard: ReplayGuard) {
        if let Some(known) = self.0.find(key).and_then(|slot| self.0.get_mut(slot)) {
            *known = guard;
        }
    }

    /// The guard of a peer that is new or comes back.
    pub(crate) fn guard(&self, key: &PublicKey) -> ReplayGuard {
        let known = self.0.find(key).and_then(|slot| self.0.get(slot));
        known.cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use mpip_crypto::{PrivateKey, Timestamp};

    use super::*;

    /// Whether `guard` accepts a timestamp that was accepted before.
    fn forgets(mut guard: ReplayGuard) -> bool {
        guard.accept(Timestamp::from_bytes([1; 12]), Duration::ZERO).is_ok()
    }

    fn used() -> ReplayGuard {
        let mut guard = ReplayGuard::new();
        guard.accept(Timestamp::from_bytes([1; 12]), Duration::ZERO).expect("the first one");
        guard
    }

    #[test]
    fn only_peers_that_were_configured_are_remembered() {
        let key = *PrivateKey::from_bytes([1; 32]).public_key();
        let mut former = FormerPeers::default();
        former.update(&key, used());
        assert!(forgets(former.guard(&key)));
        former.keep(Instant::ZERO, key, ReplayGuard::new());
        assert!(forgets(former.guard(&key)));
        former.update(&key, used());
        assert!(!forgets(former.guard(&key)));
    }

    #[test]
    fn beyond_the_bound_the_peer_that_was_removed_longest_ago_is_forgotten() {
        let key = |number: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            PublicKey::from_bytes(bytes)
        };
        let mut former = FormerPeers::default();
        for number in 0..=FORMER_PEERS {
            former.keep(Instant::from_millis(number as u64), key(number), used());
        }
        assert!(forgets(former.guard(&key(0))));
        assert!(!forgets(former.guard(&key(1))) && !forgets(former.guard(&key(FORMER_PEERS))));
    }
}
