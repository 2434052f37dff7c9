//! Where the peer says that it is, where it was, and what its telling may cost.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use mpip_types::{Bucket, Instant, Rate};

use crate::repeats::{LeftOut, Repeats};

/// Lists of addresses that are followed. A host changes networks a few times in a minute, and all
/// its interfaces at once when it wakes up.
const LISTS: Rate = Rate { burst: 8, per_second: 1 };
/// Short challenges without an answer that an association sends to told addresses: the first two to
/// a list of full length, or 500 bytes in a second.
const CHALLENGES: Rate = Rate { burst: 32, per_second: 8 };
/// The same of all associations together: 16 kB in a second.
pub(crate) const ALL_CHALLENGES: Rate = Rate { burst: 512, per_second: 256 };
/// Remote addresses that are remembered; the one that was left first is forgotten.
const REMEMBERED: usize = 16;
/// So long an address that answered is taken for the peer's (RFC 9000, section 9.3: "seen
/// recently"). As long as keys last that nobody renews.
const RECENT: Duration = Duration::from_secs(180);

/// Remote addresses of paths that worked and do not any more, and until when they did.
#[derive(Debug, Default)]
struct Proven(Vec<(SocketAddr, Instant)>);

impl Proven {
    /// A path to `remote` has worked until now.
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

/// What became of a list that the peer told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// It is older than the one that is known.
    Old,
    /// It holds from now on.
    New,
    /// It came too soon after others, and is taken up later.
    Deferred,
}

/// The peer's addresses.
#[derive(Debug, Default)]
pub(crate) struct PeerAddresses {
    /// The newest list, and its generation; 0 before any.
    told: Vec<SocketAddr>,
    generation: u64,
    /// The latest list that came too soon, and its generation.
    deferred: Option<(u64, Vec<SocketAddr>)>,
    proven: Proven,
    lists: Bucket,
    challenges: Bucket,
    /// What is said of addresses in the log.
    notes: Repeats,
}

impl PeerAddresses {
    /// Another association begins its lists anew; what they may cost goes on.
    pub(crate) fn reset(&mut self) {
        self.told.clear();
        self.generation = 0;
        self.deferred = None;
        self.proven = Proven::default();
    }

    /// The addresses of the newest list.
    pub(crate) fn told(&self) -> &[SocketAddr] {
        &self.told
    }

    /// Whether the peer has told any list.
    pub(crate) fn has_told(&self) -> bool {
        self.generation > 0
    }

    /// Whether `address` is in the newest list.
    pub(crate) fn has(&self, address: SocketAddr) -> bool {
        self.told.contains(&address)
    }

    /// Whether an address of `ip` is in the newest list.
    pub(crate) fn has_ip(&self, ip: IpAddr) -> bool {
        self.told.iter().any(|told| told.ip() == ip)
    }

    /// The peer has told `addresses` as its list `generation`.
    pub(crate) fn on_list(
        &mut self,
        now: Instant,
        generation: u64,
        addresses: Vec<SocketAddr>,
    ) -> Listed {
        let newest = self.deferred.as_ref().map_or(self.generation, |(newest, _)| *newest);
        if generation <= newest {
            return Listed::Old;
        }
        if !self.lists.take(now, LISTS) {
            self.deferred = Some((generation, addresses));
            return Listed::Deferred;
        }
        self.deferred = None;
        (self.generation, self.told) = (generation, addresses);
        Listed::New
    }

    /// When a list that came too soon is due.
    pub(crate) fn deferred_at(&self) -> Option<Instant> {
        self.deferred.as_ref().map(|_| self.lists.ready_at(LISTS))
    }

    /// Takes up the latest of the lists that came too soon. Returns whether one was due.
    pub(crate) fn take_deferred(&mut self, now: Instant) -> bool {
        let due = self.deferred_at().is_some_and(|at| now >= at) && self.lists.take(now, LISTS);
        let Some(deferred) = self.deferred.take_if(|_| due) else { return false };
        (self.generation, self.told) = deferred;
        true
    }

    /// Forgets the addresses of the newest list that `keeps` refuses; it may write to the log as
    /// often as the second argument permits.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(SocketAddr, &mut Repeats) -> bool) {
        let Self { told, notes, .. } = self;
        told.retain(|address| keeps(*address, notes));
    }

    /// Whether the log may take another line on addresses, and how many were left out before.
    pub(crate) fn permit_note(&mut self, now: Instant) -> Option<LeftOut> {
        self.notes.permit(now)
    }

    /// A path to `remote` has worked until now.
    pub(crate) fn note_left(&mut self, now: Instant, remote: SocketAddr) {
        self.proven.note(now, remote);
    }

    /// Whether the peer was at `remote` not long ago.
    pub(crate) fn was_at(&self, now: Instant, remote: SocketAddr) -> bool {
        self.proven.contains(now, remote)
    }

    /// Takes a challenge to a told address out of what there may be of this peer and of `all`.
    ///
    /// # Errors
    ///
    /// When there is the next one.
    pub(crate) fn take_challenge(&mut self, now: Instant, all: &mut Bucket) -> Result<(), Instant> {
        let at = self.challenges.ready_at(CHALLENGES).max(all.ready_at(ALL_CHALLENGES));
        if now < at {
            return Err(at);
        }
        self.challenges.take(now, CHALLENGES);
        all.take(now, ALL_CHALLENGES);
        Ok(())
    }

    /// `count` challenges to a told address were answered.
    pub(crate) fn give_challenges_back(&mut self, count: u32, all: &mut Bucket) {
        self.challenges.give_back(count, CHALLENGES);
        all.give_back(count, ALL_CHALLENGES);
    }
}
