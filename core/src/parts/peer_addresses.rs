//! The addresses that the peer advertises, those where it was, and the rate limits for what its
//! lists trigger.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use mpip_types::{Bucket, Instant, Rate};

use crate::repeats::{LeftOut, Repeats};

/// Rate limit of address lists. A host changes networks a few times a minute, and all its
/// interfaces at once when it wakes up.
const LISTS: Rate = Rate { burst: 8, per_second: 1 };
/// Rate limit of unanswered short challenges of one association to advertised addresses: the first
/// two to each address of a full list, or 500 bytes in a second.
const CHALLENGES: Rate = Rate { burst: 32, per_second: 8 };
/// The same for all associations together: 16 kB in a second.
pub(crate) const ALL_CHALLENGES: Rate = Rate { burst: 512, per_second: 256 };
/// Former remote addresses that are remembered; beyond this the one that was left first is
/// forgotten.
const REMEMBERED: usize = 16;
/// Time for which an address that answered counts as the peer's (RFC 9000, section 9.3: "seen
/// recently"): the lifetime of keys that are not renewed.
const RECENT: Duration = Duration::from_secs(180);

/// Remote addresses of paths that no longer work, and until when they did.
#[derive(Debug, Default)]
struct Proven(Vec<(SocketAddr, Instant)>);

impl Proven {
    /// A path to `remote` has stopped working.
    fn note(&mut self, now: Instant, remote: SocketAddr) {
        self.0.retain(|(known, _)| *known != remote);
        if self.0.len() >= REMEMBERED {
            self.0.remove(0);
        }
        self.0.push((remote, now));
    }

    fn contains(&self, now: Instant, remote: SocketAddr) -> bool {
        self.0.iter().any(|(known, at)| *known == remote && now.since(*at) <= RECENT)
    }
}

/// What was done with an address list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListUpdate {
    /// Ignored: older than the known one.
    Old,
    /// It is now in effect.
    New,
    /// It exceeded the rate limit, and is applied later.
    Deferred,
}

/// The peer's addresses.
#[derive(Debug, Default)]
pub(crate) struct PeerAddresses {
    /// The newest list, and its generation; 0 before the first list.
    advertised: Vec<SocketAddr>,
    generation: u64,
    /// The latest list that exceeded the rate limit, and its generation.
    deferred: Option<(u64, Vec<SocketAddr>)>,
    proven: Proven,
    lists: Bucket,
    challenges: Bucket,
    /// Rate limit of log lines about addresses.
    notes: Repeats,
}

impl PeerAddresses {
    /// A new association starts without lists. Rate limits continue.
    pub(crate) fn reset(&mut self) {
        self.advertised.clear();
        self.generation = 0;
        self.deferred = None;
        self.proven = Proven::default();
    }

    /// The advertised addresses.
    pub(crate) fn advertised(&self) -> &[SocketAddr] {
        &self.advertised
    }

    /// Whether the peer has advertised any list.
    pub(crate) fn has_list(&self) -> bool {
        self.generation > 0
    }

    /// Whether the peer advertises `address`.
    pub(crate) fn has(&self, address: SocketAddr) -> bool {
        self.advertised.contains(&address)
    }

    /// Whether the peer advertises an address with this IP address.
    pub(crate) fn has_ip(&self, ip: IpAddr) -> bool {
        self.advertised.iter().any(|address| address.ip() == ip)
    }

    /// The peer advertises `addresses` as its list `generation`.
    pub(crate) fn on_list(
        &mut self,
        now: Instant,
        generation: u64,
        addresses: Vec<SocketAddr>,
    ) -> ListUpdate {
        let newest = self.deferred.as_ref().map_or(self.generation, |(newest, _)| *newest);
        if generation <= newest {
            return ListUpdate::Old;
        }
        if !self.lists.take(now, LISTS) {
            self.deferred = Some((generation, addresses));
            return ListUpdate::Deferred;
        }
        self.deferred = None;
        (self.generation, self.advertised) = (generation, addresses);
        ListUpdate::New
    }

    /// When a deferred list is due.
    pub(crate) fn deferred_at(&self) -> Option<Instant> {
        self.deferred.as_ref().map(|_| self.lists.ready_at(LISTS))
    }

    /// Applies the deferred list. Returns whether one was due.
    pub(crate) fn take_deferred(&mut self, now: Instant) -> bool {
        let due = self.deferred_at().is_some_and(|at| now >= at) && self.lists.take(now, LISTS);
        let Some(deferred) = self.deferred.take_if(|_| due) else { return false };
        (self.generation, self.advertised) = deferred;
        true
    }

    /// Removes the advertised addresses that `keeps` refuses. `keeps` may log as often as its
    /// second argument permits.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(SocketAddr, &mut Repeats) -> bool) {
        let Self { advertised, notes, .. } = self;
        advertised.retain(|address| keeps(*address, notes));
    }

    /// Whether another line about addresses may be logged, and how many were left out before.
    pub(crate) fn permit_note(&mut self, now: Instant) -> Option<LeftOut> {
        self.notes.permit(now)
    }

    /// A path to `remote` has stopped working.
    pub(crate) fn note_left(&mut self, now: Instant, remote: SocketAddr) {
        self.proven.note(now, remote);
    }

    /// Whether the peer was recently at `remote`.
    pub(crate) fn was_at(&self, now: Instant, remote: SocketAddr) -> bool {
        self.proven.contains(now, remote)
    }

    /// Consumes one challenge to an advertised address from the rate limits of this peer and of
    /// `all`.
    ///
    /// # Errors
    ///
    /// When the next one will be available.
    pub(crate) fn take_challenge(&mut self, now: Instant, all: &mut Bucket) -> Result<(), Instant> {
        let at = self.challenges.ready_at(CHALLENGES).max(all.ready_at(ALL_CHALLENGES));
        if now < at {
            return Err(at);
        }
        self.challenges.take(now, CHALLENGES);
        all.take(now, ALL_CHALLENGES);
        Ok(())
    }

    /// `count` challenges to an advertised address were answered: returns them to the rate limits.
    pub(crate) fn give_challenges_back(&mut self, count: u32, all: &mut Bucket) {
        self.challenges.give_back(count, CHALLENGES);
        all.give_back(count, ALL_CHALLENGES);
    }
}
