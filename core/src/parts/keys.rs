//! The keys of an association: one epoch per handshake, the newest confirmed one in use.
//!
//! Packet numbers go on across epochs, so a rekey disturbs neither the replay windows nor the
//! feedback, and what is in flight under the former keys is still accepted.

use core::time::Duration;

use mpip_crypto::Keys;

use mpip_types::Instant;

/// The initiator of an epoch replaces it after this time, as in WireGuard.
pub(crate) const REKEY_AFTER: Duration = Duration::from_secs(120);
/// The responder does, if the initiator did not.
pub(crate) const REKEY_AFTER_RESPONDER: Duration = Duration::from_secs(150);
/// Keys are not used for longer than this.
pub(crate) const REJECT_AFTER: Duration = Duration::from_secs(180);
/// Packets under one key after which it is replaced.
pub(crate) const REKEY_PACKETS: u64 = 1 << 27;

/// Whose keys they are, and which association they are for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Whether this node began the handshake.
    pub(crate) initiated: bool,
    /// The peer's run that made it.
    pub(crate) instance: u64,
    /// The number of the association that begins with it, unless one goes on.
    pub(crate) number: u16,
    /// Both ends have the same association, with one opener, which goes on.
    pub(crate) goes_on: bool,
}

/// What one handshake agreed on.
#[derive(Debug)]
pub(crate) struct Epoch {
    /// What the peer addresses its datagrams to.
    pub(crate) local_index: u32,
    /// What we address ours to.
    pub(crate) peer_index: u32,
    pub(crate) keys: Keys,
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
    /// Opens what was on its way at the last change.
    previous: Option<Epoch>,
    /// Agreed on as responder; seals only once the initiator has used it.
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

    /// The epoch that the peer addresses by `index`.
    pub(crate) fn by_index(&self, index: u32) -> Option<&Epoch> {
        [&self.current, &self.next, &self.previous]
            .into_iter()
            .flatten()
            .find(|epoch| epoch.local_index == index)
    }

    /// Adopts an epoch that this node initiated. Indices that went out of use go to `retired`.
    pub(crate) fn adopt(&mut self, epoch: Epoch, retired: &mut Vec<u32>) {
        retire(self.next.take(), retired);
        retire(core::mem::replace(&mut self.previous, self.current.take()), retired);
        self.current = Some(epoch);
    }

    /// Keeps an epoch that the peer initiated until it is confirmed.
    pub(crate) fn offer(&mut self, epoch: Epoch, retired: &mut Vec<u32>) {
        retire(self.next.replace(epoch), retired);
    }

    /// Where the epoch `index` comes from that the peer has offered, while it is not confirmed.
    pub(crate) fn offered(&self, index: u32) -> Option<Origin> {
        let next = self.next.as_ref().filter(|next| next.local_index == index);
        next.map(|next| next.origin)
    }

    /// A packet under `index` was authenticated: if that is the offered epoch, it is current from
    /// now on.
    pub(crate) fn confirm(&mut self, index: u32, retired: &mut Vec<u32>) {
        if let Some(next) = self.next.take_if(|next| next.local_index == index) {
            retire(self.previous.take(), retired);
            self.previous = self.current.replace(next);
        }
    }

    /// Forgets the epochs in use, but not the one on offer.
    pub(crate) fn clear_confirmed(&mut self, retired: &mut Vec<u32>) {
        retire(self.current.take(), retired);
        retire(self.previous.take(), retired);
    }

    /// Forgets epochs past their time.
    pub(crate) fn expire(&mut self, now: Instant, retired: &mut Vec<u32>) {
        for epoch in [&mut self.current, &mut self.previous, &mut self.next] {
            if epoch.as_ref().is_some_and(|epoch| epoch.is_expired(now)) {
                retire(epoch.take(), retired);
            }
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self, retired: &mut Vec<u32>) {
        for epoch in [&mut self.current, &mut self.previous, &mut self.next] {
            retire(epoch.take(), retired);
        }
    }

    /// When the current keys are to be replaced.
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
