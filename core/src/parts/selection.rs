//! Which paths may carry the next packet, why others may not, and the scheduler's choice.

use core::fmt;

use mpip_transport::PathState;
use mpip_types::Instant;
use mpip_wire::PathId;
use rand_chacha::ChaCha8Rng;

use super::path_set::{PathIndex, PathSet};
use super::sizes::INNER_OVERHEAD;
use super::tiers::Tiers;
use crate::config::{PeerConfig, Priority};
use crate::content::Path;
use crate::guard::Guard;
use crate::parameters::{InteractiveParameters, Parameters};
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
    /// It costs more than others, which carry everything.
    Dear,
    /// Its MTU is being probed for this length, and other paths carry it.
    Untried,
    /// The other paths carry more without it.
    LeftOut,
    /// It is slow, and kept clear for interactive flows.
    KeptClear,
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
            Self::Dear => "kept for more than the cheaper paths carry",
            Self::Untried => "MTU not confirmed",
            Self::LeftOut => "the others carry more without it",
            Self::KeptClear => "kept clear for interactive flows",
            Self::Blocked => "socket full",
            Self::Full => "congestion window full",
            Self::Paced => "paced",
        }
    }

    /// The rank at which a path held for this reason is used when no other path is left, lowest
    /// first; `None` if never.
    fn fallback_rank(self) -> Option<u8> {
        match self {
            Self::KeptClear => Some(1),
            Self::LeftOut => Some(2),
            Self::Untried => Some(3),
            Self::Silent => Some(4),
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

/// Bytes of a full packet: one Ethernet frame's.
const FULL_PACKET: f64 = 1_500.0;

/// Chooses the path of each packet.
#[derive(Debug)]
pub(crate) struct Selection {
    /// Which paths carry packets by what they cost.
    pub(crate) tiers: Tiers,
    /// The lowest cost of the usable paths that the guard does not leave out.
    kept_cost: u8,
    /// Leaves out paths without which the others carry more.
    pub(crate) guard: Guard,
    scheduler: Box<dyn Scheduler>,
    parameters: InteractiveParameters,
    /// Since when there have been interactive flows, and until when slow paths are kept clear.
    clear: (Instant, Instant),
    candidates: Vec<Candidate>,
    /// The indices of the candidates' paths.
    places: Vec<PathIndex>,
}

impl Selection {
    /// As configured.
    pub(crate) fn new(config: &PeerConfig, parameters: &Parameters) -> Self {
        Self {
            tiers: Tiers::new(parameters.spill),
            kept_cost: 0,
            guard: Guard::new(parameters.guard),
            scheduler: scheduler::new(config, &parameters.earliest),
            parameters: parameters.interactive,
            clear: (Instant::ZERO, Instant::ZERO),
            candidates: Vec::new(),
            places: Vec::new(),
        }
    }

    /// A new association starts without paths.
    pub(crate) fn reset(&mut self, parameters: &Parameters) {
        self.guard = Guard::new(parameters.guard);
        self.tiers = Tiers::new(parameters.spill);
    }

    /// Looks what the usable paths cost, before packets are sent.
    pub(crate) fn look(&mut self, paths: &PathSet) {
        self.tiers.look(paths);
        let kept = paths.iter().filter(|path| path.is_usable());
        let kept = kept.filter(|path| !self.guard.leaves_out(path.id.0));
        self.kept_cost = kept.map(|path| path.reserve.cost()).min().unwrap_or(0);
    }

    /// Whether `path` carries no bulk traffic because others carry more without it. It is left out
    /// for paths that are no dearer only.
    fn leaves_out(&self, path: &Path) -> bool {
        path.reserve.cost() >= self.kept_cost && self.guard.leaves_out(path.id.0)
    }

    /// A packet of an interactive flow is to be sent.
    pub(crate) fn on_interactive(&mut self, now: Instant) {
        let (since, until) = &mut self.clear;
        if now >= *until {
            *since = now;
        }
        *until = now + self.parameters.keeps_clear;
    }

    /// Rate below which a path is kept clear of bulk traffic, bytes/s: a small share of what all
    /// paths deliver, so slow that an interactive packet would wait for long behind a full one.
    /// `None` if nothing is.
    fn clear_below(&self, now: Instant, paths: &PathSet) -> Option<u64> {
        let InteractiveParameters { slow, clear_share, keeps_clear, looks_again, .. } =
            &self.parameters;
        let (since, until) = self.clear;
        // Now and then bulk traffic shows what such a path delivers.
        let period = (*looks_again + *keeps_clear).as_nanos().max(1);
        if now >= until || now.since(since).as_nanos() % period >= looks_again.as_nanos() {
            return None;
        }
        let usable = paths.iter().filter(|path| path.is_usable());
        let all: u64 = usable.map(Path::delivers).sum();
        Some((FULL_PACKET / slow.as_secs_f64()).min(clear_share * all as f64) as u64)
    }

    /// The scheduler's weight of path `id`, if it uses weights.
    pub(crate) fn weight(&self, id: u16) -> Option<u16> {
        self.scheduler.weight(id)
    }

    /// The end of a period: the scheduler updates its weights.
    pub(crate) fn adjust(&mut self, candidates: &[Candidate]) {
        self.scheduler.adjust(candidates);
    }

    /// Why `path`, one of `paths`, may not carry a bulk packet of `len` bytes now; `None` if it
    /// may.
    pub(crate) fn hold(
        &self,
        path: &Path,
        paths: &PathSet,
        now: Instant,
        len: usize,
    ) -> Option<Hold> {
        let size = len + INNER_OVERHEAD;
        let held = self.held(path, size, true, self.clear_below(now, paths));
        held.or_else(|| match path.ready_at(now, size) {
            _ if path.reserve.cost() > self.tiers.limit() => Some(Hold::Dear),
            _ if path.blocked => Some(Hold::Blocked),
            at if at <= now => None,
            at if path.paced_until() == Some(at) => Some(Hold::Paced),
            _ => Some(Hold::Full),
        })
    }

    /// Why `path` may not carry a datagram of `size` bytes, regardless of its congestion window.
    /// `bulk`: it is part of a transfer; `clear_below`: see the function.
    fn held(&self, path: &Path, size: usize, bulk: bool, clear_below: Option<u64>) -> Option<Hold> {
        let left_out = bulk && self.leaves_out(path);
        // A path that searches does not know yet what it delivers.
        let slow = |below: &u64| !path.cc.searches() && path.delivers() < *below;
        held(path, size, left_out).or_else(|| clear_below.filter(slow).map(|_| Hold::KeptClear))
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
        let clear_below = if bulk { self.clear_below(now, paths) } else { None };
        // What needs a fast answer is little, and stays on the cheapest paths.
        let limit = if bulk { self.tiers.limit() } else { self.tiers.floor() };
        self.clear();
        let mut best = u8::MAX;
        for (place, path) in paths.enumerate() {
            if only.is_some_and(|only| only != path.id) {
                continue;
            }
            let hold = self.held(path, size, bulk, clear_below);
            let Some(rank) = hold.map_or(Some(0), Hold::fallback_rank) else { continue };
            let candidate = Candidate::of(path, now, size);
            let dear = only.is_none() && path.reserve.cost() > limit;
            // What needs a fast answer does not wait for a socket that is full.
            let stuck = !bulk && candidate.ready_at == Instant::FAR_FUTURE;
            let rank = rank * 2 + u8::from(dear || stuck);
            if rank > best {
                continue;
            }
            if rank < best {
                best = rank;
                self.clear();
            }
            self.candidates.push(candidate);
            self.places.push(place);
        }
        if self.tiers.differ() {
            self.keep_cheapest(now, paths);
        }
        !self.candidates.is_empty()
    }

    /// Removes the candidates that cost more than one that can take the packet now.
    fn keep_cheapest(&mut self, now: Instant, paths: &PathSet) {
        let Self { candidates, places, .. } = self;
        let cost = |place: PathIndex| paths[place].reserve.cost();
        let ready = candidates.iter().zip(&*places).filter(|(path, _)| path.ready_at <= now);
        let Some(most) = ready.map(|(_, place)| cost(*place)).min() else { return };
        let mut kept = places.iter();
        candidates.retain(|_| kept.next().is_some_and(|place| cost(*place) <= most));
        places.retain(|place| cost(*place) <= most);
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
            Priority::Response => lowest_delay(&self.candidates, demand.len, |path| {
                path.ready_at != Instant::FAR_FUTURE
            }),
            Priority::Throughput => self.scheduler.choose(now, &self.candidates, demand, draws),
        };
        choice.and_then(|choice| self.places.get(choice).copied())
    }

    fn clear(&mut self) {
        self.candidates.clear();
        self.places.clear();
    }
}
