//! Which paths may carry the next packet, why others may not, and the scheduler's choice.

use core::fmt;

use mpip_transport::PathState;
use mpip_types::Instant;
use mpip_wire::PathId;
use rand_chacha::ChaCha8Rng;

use super::path_set::{PathIndex, PathSet};
use super::sizes::INNER_OVERHEAD;
use crate::config::{PeerConfig, Priority};
use crate::content::Path;
use crate::guard::Guard;
use crate::parameters::Parameters;
use crate::scheduler::{self, Candidate, Demand, Scheduler, lowest_delay};

/// Why a path may not carry a packet now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// The path is not validated yet.
    Validating,
    /// It is on standby.
    Standby,
    /// It has failed: it no longer answers.
    Failed,
    /// It was abandoned.
    Abandoned,
    /// The packet exceeds its MTU.
    TooSmall,
    /// A probe is overdue, and other paths answer.
    Silent,
    /// Its MTU is being probed for this length, and other paths carry it.
    Untried,
    /// The other paths carry more without it.
    LeftOut,
    /// Its socket is full.
    Blocked,
    /// The congestion window is full.
    Full,
    /// Pacing delays the next packet.
    Paced,
}

impl Hold {
    /// The reason in status output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Validating => "not validated yet",
            Self::Standby => "standby",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
            Self::TooSmall => "packet exceeds the MTU",
            Self::Silent => "probe overdue",
            Self::Untried => "MTU not confirmed",
            Self::LeftOut => "the others carry more without it",
            Self::Blocked => "socket full",
            Self::Full => "congestion window full",
            Self::Paced => "paced",
        }
    }

    /// The rank at which a path held for this reason is used when no other path is left, lowest
    /// first; `None` if never.
    fn fallback_rank(self) -> Option<u8> {
        match self {
            Self::LeftOut => Some(1),
            Self::Untried => Some(2),
            Self::Silent => Some(3),
            _ => None,
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why `path` may not carry a datagram of `size` bytes, regardless of its congestion window.
/// `left_out`: it is to carry no bulk traffic.
fn held(path: &Path, size: usize, left_out: bool) -> Option<Hold> {
    match path.state() {
        PathState::Validating => return Some(Hold::Validating),
        PathState::Standby => return Some(Hold::Standby),
        PathState::Failed => return Some(Hold::Failed),
        PathState::Abandoned => return Some(Hold::Abandoned),
        PathState::Active => {}
    }
    if size > path.hoped_datagram() {
        Some(Hold::TooSmall)
    } else if path.is_silent() {
        Some(Hold::Silent)
    } else if size > path.max_datagram() {
        Some(Hold::Untried)
    } else {
        left_out.then_some(Hold::LeftOut)
    }
}

/// Chooses the path of each packet.
#[derive(Debug)]
pub(crate) struct Selection {
    /// Leaves out paths without which the others carry more.
    pub(crate) guard: Guard,
    scheduler: Box<dyn Scheduler>,
    candidates: Vec<Candidate>,
    /// The indices of the candidates' paths.
    places: Vec<PathIndex>,
}

impl Selection {
    /// As configured.
    pub(crate) fn new(config: &PeerConfig, parameters: &Parameters) -> Self {
        Self {
            guard: Guard::new(parameters.guard),
            scheduler: scheduler::new(config, &parameters.earliest),
            candidates: Vec::new(),
            places: Vec::new(),
        }
    }

    /// A new association starts without paths.
    pub(crate) fn reset(&mut self, parameters: &Parameters) {
        self.guard = Guard::new(parameters.guard);
    }

    /// The scheduler's weight of path `id`, if it uses weights.
    pub(crate) fn weight(&self, id: u16) -> Option<u16> {
        self.scheduler.weight(id)
    }

    /// The end of a period: the scheduler updates its weights.
    pub(crate) fn adjust(&mut self, candidates: &[Candidate]) {
        self.scheduler.adjust(candidates);
    }

    /// Why `path` may not carry a packet of `len` bytes now; `None` if it may. `bulk`: the packet
    /// belongs to a bulk transfer.
    pub(crate) fn hold(&self, path: &Path, now: Instant, len: usize, bulk: bool) -> Option<Hold> {
        let size = len + INNER_OVERHEAD;
        let left_out = bulk && self.guard.leaves_out(path.id.0);
        held(path, size, left_out).or_else(|| match path.ready_at(now, size) {
            _ if path.blocked => Some(Hold::Blocked),
            at if at <= now => None,
            at if path.paced_until() == Some(at) => Some(Hold::Paced),
            _ => Some(Hold::Full),
        })
    }

    /// Gathers the paths that may carry a packet of `len` bytes, now or when they have room: those
    /// that nothing holds, otherwise those with the best fallback rank. If `only` names a path that
    /// may carry it, just that one. Returns whether there are any.
    pub(crate) fn gather(
        &mut self,
        now: Instant,
        paths: &PathSet,
        len: usize,
        priority: Priority,
        only: Option<PathId>,
    ) -> bool {
        if only.is_some() && self.gather_of(now, paths, len, priority, only) {
            return true;
        }
        self.gather_of(now, paths, len, priority, None)
    }

    fn gather_of(
        &mut self,
        now: Instant,
        paths: &PathSet,
        len: usize,
        priority: Priority,
        only: Option<PathId>,
    ) -> bool {
        let size = len + INNER_OVERHEAD;
        let bulk = priority == Priority::Throughput;
        self.clear();
        let mut best = u8::MAX;
        for (place, path) in paths.enumerate() {
            if only.is_some_and(|only| only != path.id) {
                continue;
            }
            let left_out = bulk && self.guard.leaves_out(path.id.0);
            let rank = held(path, size, left_out).map_or(Some(0), Hold::fallback_rank);
            let Some(rank) = rank.filter(|rank| *rank <= best) else { continue };
            if rank < best {
                best = rank;
                self.clear();
            }
            self.candidates.push(Candidate::of(path, now, size));
            self.places.push(place);
        }
        !self.candidates.is_empty()
    }

    /// Gathers the paths that may carry a packet of `len` bytes before they are validated. Returns
    /// whether there are any.
    pub(crate) fn gather_early(&mut self, now: Instant, paths: &PathSet, len: usize) -> bool {
        let size = len + INNER_OVERHEAD;
        self.clear();
        for (place, path) in paths.enumerate() {
            let room = path.early_room().min(path.hoped_datagram());
            if size <= room && !path.blocked && path.flight.has_room() {
                // A first flight may leave at once (RFC 9002, section 7.7).
                let candidate = Candidate::of(path, now, size);
                self.candidates.push(Candidate { ready_at: now, ..candidate });
                self.places.push(place);
            }
        }
        !self.candidates.is_empty()
    }

    /// Chooses one of the gathered paths; `None` if the packet waits.
    pub(crate) fn choose(
        &mut self,
        now: Instant,
        priority: Priority,
        demand: &Demand,
        draws: &mut ChaCha8Rng,
    ) -> Option<PathIndex> {
        let choice = match priority {
            Priority::Response => {
                lowest_delay(&self.candidates, |path| path.ready_at != Instant::FAR_FUTURE)
            }
            Priority::Throughput => self.scheduler.choose(now, &self.candidates, demand, draws),
        };
        choice.and_then(|choice| self.places.get(choice).copied())
    }

    fn clear(&mut self) {
        self.candidates.clear();
        self.places.clear();
    }
}
