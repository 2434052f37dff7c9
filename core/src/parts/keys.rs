//! The keys of an association: one epoch per handshake, the newest confirmed one in use.
//!
//! Packet numbers continue across epochs, so a rekey disturbs neither replay windows nor feedback,
//! and datagrams in flight under the previous keys are still accepted.

use core::time::Duration;
use std::sync::Arc;

use mpip_crypto::SealKey;

use mpip_types::{Instant, Seal};

use super::receive_key::ReceiveKey;

/// Age at which the initiator of an epoch renews the keys, as in WireGuard.
pub(crate) const REKEY_AFTER: Duration = Duration::from_secs(120);
/// Age at which the responder renews them, if the initiator did not.
pub(crate) const REKEY_AFTER_RESPONDER: Duration = Duration::from_secs(150);
/// Maximum age of keys.
pub(crate) const REJECT_AFTER: Duration = Duration::from_secs(180);
/// Packets under one key after which the keys are renewed.
pub(crate) const REKEY_PACKETS: u64 = 1 << 27;

/// Which node initiated the handshake of these keys, and which association they belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Whether this node initiated the handshake.
    pub(crate) initiated: bool,
    /// The peer's run that made it.
    pub(crate) instance: u64,
    /// The association's number if a new one begins.
    pub(crate) number: u16,
    /// Both nodes have the same association with one opener: it continues.
    pub(crate) goes_on: bool,
}

/// Both directions of an epoch's packet protection.
#[derive(Debug)]
pub(crate) struct EpochKeys {
    /// Seals what this node sends. Sinks that seal later share it.
    pub(crate) send: Arc<dyn Seal>,
    /// Opens what this node receives. Threads that open before the engine does share it.
    pub(crate) receive: Arc<ReceiveKey>,
}

impl EpochKeys {
    pub(crate) fn new(send: SealKey, receive: ReceiveKey) -> Self {
        Self { send: Arc::new(Sealer(send)), receive: Arc::new(receive) }
    }
}

/// A key as sinks use it.
#[derive(Debug)]
struct Sealer(SealKey);

impl Seal for Sealer {
    fn seal(&self, path: u16, number: u64, clear: &[u8], body: &[u8], out: &mut [u8]) {
        self.0.seal_into(path, number, clear, body, out);
    }
}

/// The keys of one handshake.
#[derive(Debug)]
pub(crate) struct Epoch {
    /// The receiver index in the peer's datagrams.
    pub(crate) local_index: u32,
    /// The receiver index in our datagrams.
    pub(crate) peer_index: u32,
    pub(crate) keys: EpochKeys,
    pub(crate) created: Instant,
    pub(crate) origin: Origin,
    /// Packets sealed.
    pub(crate) sealed: u64,
}

impl Epoch {
    fn is_expired(&self, now: Instant) -> bool {
        now.since(self.created) >= REJECT_AFTER
    }
}

/// The epochs that may still open packets; at most one of them seals.
#[derive(Debug, Default)]
pub(crate) struct KeyRing {
    /// Seals and opens.
    current: Option<Epoch>,
    /// Opens datagrams that were in flight at the last renewal.
    previous: Option<Epoch>,
    /// Agreed as responder; seals only once the initiator has used it.
    next: Option<Epoch>,
}

impl KeyRing {
    /// The epoch that seals.
    pub(crate) fn current(&self) -> Option<&Epoch> {
        self.current.as_ref()
    }

    pub(crate) fn current_mut(&mut self) -> Option<&mut Epoch> {
        self.current.as_mut()
    }

    pub(crate) fn len(&self) -> usize {
        [&self.current, &self.previous, &self.next].into_iter().flatten().count()
    }

    /// All epochs.
    pub(crate) fn epochs(&self) -> impl Iterator<Item = &Epoch> {
        [&self.current, &self.next, &self.previous].into_iter().flatten()
    }

    /// The epoch with the receiver index `index`.
    pub(crate) fn by_index(&self, index: u32) -> Option<&Epoch> {
        [&self.current, &self.next, &self.previous]
            .into_iter()
            .flatten()
            .find(|epoch| epoch.local_index == index)
    }

    /// Adopts an epoch that this node initiated. Indices that are no longer used go to `retired`.
    pub(crate) fn adopt(&mut self, epoch: Epoch, retired: &mut Vec<u32>) {
        retire(self.next.take(), retired);
        retire(core::mem::replace(&mut self.previous, self.current.take()), retired);
        self.current = Some(epoch);
    }

    /// Keeps an epoch that the peer initiated until the peer confirms it.
    pub(crate) fn offer(&mut self, epoch: Epoch, retired: &mut Vec<u32>) {
        retire(self.next.replace(epoch), retired);
    }

    /// Whether an epoch waits for the peer to confirm it.
    pub(crate) fn has_offer(&self) -> bool {
        self.next.is_some()
    }

    /// The origin of the unconfirmed epoch with `index`.
    pub(crate) fn offered(&self, index: u32) -> Option<Origin> {
        let next = self.next.as_ref().filter(|next| next.local_index == index);
        next.map(|next| next.origin)
    }

    /// A packet under `index` was authenticated: an offered epoch becomes current.
    pub(crate) fn confirm(&mut self, index: u32, retired: &mut Vec<u32>) {
        if let Some(next) = self.next.take_if(|next| next.local_index == index) {
            retire(self.previous.take(), retired);
            self.previous = self.current.replace(next);
        }
    }

    /// Erases the epochs in use, but not the offered one.
    pub(crate) fn clear_confirmed(&mut self, retired: &mut Vec<u32>) {
        retire(self.current.take(), retired);
        retire(self.previous.take(), retired);
    }

    /// Erases expired epochs.
    pub(crate) fn expire(&mut self, now: Instant, retired: &mut Vec<u32>) {
        for epoch in [&mut self.current, &mut self.previous, &mut self.next] {
            if epoch.as_ref().is_some_and(|epoch| epoch.is_expired(now)) {
                retire(epoch.take(), retired);
            }
        }
    }

    /// Erases all epochs.
    pub(crate) fn clear(&mut self, retired: &mut Vec<u32>) {
        for epoch in [&mut self.current, &mut self.previous, &mut self.next] {
            retire(epoch.take(), retired);
        }
    }

    /// When the current keys are to be renewed.
    pub(crate) fn rekey_at(&self) -> Option<Instant> {
        let current = self.current.as_ref()?;
        let age = match (current.sealed >= REKEY_PACKETS, current.origin.initiated) {
            (true, _) => Duration::ZERO,
            (false, true) => REKEY_AFTER,
            (false, false) => REKEY_AFTER_RESPONDER,
        };
        Some(current.created + age)
    }

    /// When the next epoch expires.
    pub(crate) fn expires_at(&self) -> Option<Instant> {
        [&self.current, &self.previous, &self.next]
            .into_iter()
            .flatten()
            .map(|epoch| epoch.created + REJECT_AFTER)
            .min()
    }
}

fn retire(epoch: Option<Epoch>, retired: &mut Vec<u32>) {
    retired.extend(epoch.map(|epoch| epoch.local_index));
}
