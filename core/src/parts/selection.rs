//! Which paths may carry the next packet, why others may not, and the scheduler's choice.

use core::fmt;

use mpip_transport::PathState;
use mpip_types::Instant;
use rand_chacha::ChaCha8Rng;

use super::path_set::{PathIndex, PathSet};
use super::sending::Allowed;
use super::sizes::INNER_OVERHEAD;
use super::tiers::Tiers;
use crate::config::{Copies, PeerConfig, Priority, SchedulerKind};
use crate::content::Path;
use crate::guard::Guard;
use crate::parameters::{CopyParameters, EarliestParameters, InteractiveParameters, Parameters};
use crate::rules::PathLimit;
use crate::scheduler::{self, Candidate, Demand, Scheduler};

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
    /// Its upper rate, as configured at either end, delays the next packet.
    Limited,
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
            Self::Limited => "at its upper rate",
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

/// Whether the interface of `path` is in the list numbered `list` of the rules.
pub(crate) fn is_in(path: &Path, list: u8) -> bool {
    path.lists.is_some_and(|lists| lists >> list & 1 == 1)
}

/// Whether a packet that is `allowed` these paths takes `path` before any other.
pub(crate) fn is_first_choice(path: &Path, allowed: Allowed) -> bool {
    match allowed {
        Allowed::ByRule(PathLimit::Any) => true,
        Allowed::ByRule(PathLimit::Only(list) | PathLimit::Prefer(list)) => is_in(path, list),
        Allowed::ByRule(PathLimit::Avoid(list)) => !is_in(path, list),
        Allowed::Confined(id) => path.id == id,
    }
}

/// Whether a packet that is `allowed` these paths is to take certain ones, which goes before what
/// paths cost.
fn names_paths(allowed: Allowed) -> bool {
    !matches!(allowed, Allowed::ByRule(PathLimit::Any | PathLimit::Avoid(_)))
}

/// Whether a packet that is `allowed` these paths takes `path` whatever it costs.
fn outweighs_cost(path: &Path, allowed: Allowed) -> bool {
    names_paths(allowed) && is_first_choice(path, allowed)
}

/// How many of `others`, which have room, carry a copy of a packet that leaves on `first`.
fn copies_wanted<'a>(
    first: &Candidate,
    others: impl ExactSizeIterator<Item = &'a Candidate>,
    copies: Copies,
    parameters: &CopyParameters,
) -> usize {
    let possible = others.len();
    let wanted = match copies {
        Copies::Fixed(paths) => usize::from(paths).saturating_sub(1),
        Copies::Adaptive => {
            let uneven = first.jitter >= parameters.jitter.as_micros() as i64;
            let mut lost = first.loss;
            let suffices = |other: &Candidate| {
                let suffices = lost < parameters.loss;
                lost *= other.loss;
                suffices
            };
            let enough = others.into_iter().position(suffices).unwrap_or(possible);
            let most = (parameters.most as usize).saturating_sub(1);
            enough.max(usize::from(uneven)).min(most)
        }
    };
    wanted.min(possible)
}

/// What decides, at one instant, which paths may carry a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    len: usize,
    priority: Priority,
    allowed: Allowed,
}

/// Chooses the path of each packet.
#[derive(Debug)]
pub(crate) struct Selection {
    /// Which paths carry packets by what they cost.
    pub(crate) tiers: Tiers,
    /// The lowest cost of the usable paths that the guard does not leave out.
    kept_cost: u8,
    /// Leaves out paths without which the others carry more.
    pub(crate) guard: Guard,
    /// The peer's.
    scheduler: Box<dyn Scheduler>,
    /// Others that rules ask for: one of each kind.
    others: Vec<(SchedulerKind, Box<dyn Scheduler>)>,
    parameters: InteractiveParameters,
    /// Since when there have been interactive flows, and until when slow paths are kept clear.
    clear: (Instant, Instant),
    candidates: Vec<Candidate>,
    /// The indices of the candidates' paths.
    places: Vec<PathIndex>,
    /// What the candidates were gathered for; `None` once something has changed that decides which
    /// paths they are.
    gathered: Option<Wanted>,
    /// Candidates that copies may take, as places in `candidates`.
    copies: Vec<usize>,
}

impl Selection {
    /// As configured.
    pub(crate) fn new(config: &PeerConfig, parameters: &Parameters) -> Self {
        Self {
            tiers: Tiers::new(parameters.spill),
            kept_cost: 0,
            guard: Guard::new(parameters.guard),
            scheduler: scheduler::new(config.scheduler, config, &parameters.earliest),
            others: Vec::new(),
            parameters: parameters.interactive,
            clear: (Instant::ZERO, Instant::ZERO),
            candidates: Vec::new(),
            places: Vec::new(),
            gathered: None,
            copies: Vec::new(),
        }
    }

    /// A new association starts without paths.
    pub(crate) fn reset(&mut self, parameters: &Parameters) {
        self.guard = Guard::new(parameters.guard);
        self.tiers = Tiers::new(parameters.spill);
    }

    /// Looks what the usable paths cost, before packets are sent.
    pub(crate) fn look(&mut self, paths: &PathSet) {
        self.forget();
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

    /// Rules ask for these schedulers. Those that are in use already go on with what they know.
    pub(crate) fn set_schedulers(
        &mut self,
        kinds: &[SchedulerKind],
        config: &PeerConfig,
        parameters: &EarliestParameters,
    ) {
        let wanted = |kind: SchedulerKind| kind != config.scheduler && kinds.contains(&kind);
        self.others.retain(|(kind, _)| wanted(*kind));
        for &kind in kinds.iter().filter(|kind| wanted(**kind)) {
            if self.others.iter().all(|(other, _)| *other != kind) {
                self.others.push((kind, scheduler::new(kind, config, parameters)));
            }
        }
    }

    /// Whether rules ask for others than the peer's scheduler.
    pub(crate) fn has_several(&self) -> bool {
        !self.others.is_empty()
    }

    /// The weight of path `id` that the peer's scheduler uses, if it uses weights.
    pub(crate) fn weight(&self, id: u16) -> Option<u16> {
        self.scheduler.weight(id)
    }

    /// The end of a period: the schedulers update their weights.
    pub(crate) fn adjust(&mut self, candidates: &[Candidate]) {
        self.scheduler.adjust(candidates);
        self.others.iter_mut().for_each(|(_, other)| other.adjust(candidates));
    }

    /// Why `path`, one of `paths`, may not carry a packet of `len` bytes and this priority now,
    /// which is `allowed` some of them; `None` if it may.
    pub(crate) fn hold(
        &self,
        path: &Path,
        paths: &PathSet,
        now: Instant,
        len: usize,
        priority: Priority,
        allowed: Allowed,
    ) -> Option<Hold> {
        let size = len + INNER_OVERHEAD;
        let bulk = priority == Priority::Throughput;
        let dear = !outweighs_cost(path, allowed) && path.reserve.cost() > self.most_cost(bulk);
        let clear_below = if bulk { self.clear_below(now, paths) } else { None };
        let held = self.held(path, size, bulk, clear_below);
        held.or_else(|| match path.ready_at(now, size) {
            _ if dear => Some(Hold::Dear),
            _ if path.blocked => Some(Hold::Blocked),
            at if at <= now => None,
            _ if path.is_held_by_limit(now, size) => Some(Hold::Limited),
            at if path.paced_until() == Some(at) => Some(Hold::Paced),
            _ => Some(Hold::Full),
        })
    }

    /// What paths may cost at most that carry packets of bulk transfers, or others.
    fn most_cost(&self, bulk: bool) -> u8 {
        // What needs a fast answer is little, and stays on the cheapest paths.
        if bulk { self.tiers.limit() } else { self.tiers.floor() }
    }

    /// Why `path` may not carry a datagram of `size` bytes, regardless of its congestion window.
    /// `bulk`: it is part of a transfer; `clear_below`: see the function.
    fn held(&self, path: &Path, size: usize, bulk: bool, clear_below: Option<u64>) -> Option<Hold> {
        let left_out = bulk && self.leaves_out(path);
        // A path that searches does not know yet what it delivers.
        let slow = |below: &u64| !path.searches() && path.delivers() < *below;
        held(path, size, left_out).or_else(|| clear_below.filter(slow).map(|_| Hold::KeptClear))
    }

    /// Gathers the paths that may carry a packet of `len` bytes, now or when they have room: those
    /// that nothing holds, otherwise those with the best fallback rank; of those only the `allowed`
    /// ones. Returns whether there are any.
    ///
    /// What was gathered last is used again for a like packet. [`look`](Self::look) and
    /// [`forget`](Self::forget) end that, and [`on_sent`](Self::on_sent) updates it.
    pub(crate) fn gather(
        &mut self,
        now: Instant,
        paths: &PathSet,
        len: usize,
        priority: Priority,
        allowed: Allowed,
    ) -> bool {
        let wanted = Wanted { len, priority, allowed };
        if self.gathered == Some(wanted) {
            return !self.candidates.is_empty();
        }
        let any = self.gather_anew(now, paths, wanted);
        self.gathered = Some(wanted);
        any
    }

    /// Something has changed, other than by packets sent on the paths, that decides which paths may
    /// carry one.
    pub(crate) fn forget(&mut self) {
        self.gathered = None;
    }

    /// A packet like those that the candidates were gathered for has left on path `place`. Returns
    /// whether they are those for another one like it.
    pub(crate) fn on_sent(&mut self, now: Instant, paths: &PathSet, place: PathIndex) -> bool {
        let Some(wanted) = self.gathered else { return false };
        let Some(at) = self.places.iter().position(|other| *other == place) else { return false };
        let ready_at = paths[place].ready_at(now, wanted.len + INNER_OVERHEAD);
        // Where it has no room left, dearer paths may have their turn, and for what does not wait
        // others.
        if ready_at > now && (self.tiers.differ() || wanted.priority != Priority::Throughput) {
            self.forget();
        }
        self.candidates[at].ready_at = ready_at;
        self.candidates[at].clears_at = paths[place].clears_at();
        self.gathered.is_some()
    }

    fn gather_anew(&mut self, now: Instant, paths: &PathSet, wanted: Wanted) -> bool {
        let Wanted { len, priority, allowed } = wanted;
        if allowed == Allowed::ByRule(PathLimit::Any) {
            return self.gather_of(now, paths, len, priority, true, |_| true).is_some();
        }
        let first = |path: &Path| is_first_choice(path, allowed);
        let by_cost = !names_paths(allowed);
        let rank = self.gather_of(now, paths, len, priority, by_cost, first);
        match allowed {
            Allowed::ByRule(PathLimit::Only(_)) => rank.is_some(),
            Allowed::Confined(_) if rank.is_some() => true,
            // A path that owes an answer may not work.
            _ if rank.is_some() && rank < Hold::Silent.fallback_rank() => true,
            _ => self.gather_of(now, paths, len, priority, true, |_| true).is_some(),
        }
    }

    /// Gathers those of the paths that `permits` accepts; `by_cost`: dear ones only if cheaper ones
    /// do not suffice. Returns their rank.
    fn gather_of(
        &mut self,
        now: Instant,
        paths: &PathSet,
        len: usize,
        priority: Priority,
        by_cost: bool,
        permits: impl Fn(&Path) -> bool,
    ) -> Option<u8> {
        let size = len + INNER_OVERHEAD;
        let bulk = priority == Priority::Throughput;
        let clear_below = if bulk { self.clear_below(now, paths) } else { None };
        let limit = self.most_cost(bulk);
        self.clear();
        let mut best = u8::MAX;
        for (place, path) in paths.enumerate() {
            if !permits(path) {
                continue;
            }
            let hold = self.held(path, size, bulk, clear_below);
            let Some(rank) = hold.map_or(Some(0), Hold::fallback_rank) else { continue };
            let candidate = Candidate::of(path, now, size);
            let dear = by_cost && path.reserve.cost() > limit;
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
        if by_cost && self.tiers.differ() {
            self.keep_cheapest(now, paths);
        }
        (!self.candidates.is_empty()).then_some(best / 2)
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

    /// Gathers the paths that may carry a packet of `len` bytes before they are validated, of those
    /// only the `allowed` ones. Returns whether there are any.
    pub(crate) fn gather_early(
        &mut self,
        now: Instant,
        paths: &PathSet,
        len: usize,
        allowed: Allowed,
    ) -> bool {
        let only = matches!(allowed, Allowed::ByRule(PathLimit::Only(_)));
        self.gather_early_of(now, paths, len, |path| is_first_choice(path, allowed))
            || !only && self.gather_early_of(now, paths, len, |_| true)
    }

    fn gather_early_of(
        &mut self,
        now: Instant,
        paths: &PathSet,
        len: usize,
        permits: impl Fn(&Path) -> bool,
    ) -> bool {
        let size = len + INNER_OVERHEAD;
        self.clear();
        for (place, path) in paths.enumerate().filter(|(_, path)| permits(path)) {
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

    /// Chooses one of the gathered ones of `paths` for a packet with this priority, by `scheduler`
    /// or the peer's; `None` if the packet waits.
    pub(crate) fn choose(
        &mut self,
        now: Instant,
        paths: &PathSet,
        priority: Priority,
        scheduler: Option<SchedulerKind>,
        demand: &Demand,
        draws: &mut ChaCha8Rng,
    ) -> Option<PathIndex> {
        if priority != Priority::Throughput {
            return self.fastest(now, paths, demand.len);
        }
        let mut others = self.others.iter_mut();
        let other = scheduler.and_then(|wanted| others.find(|(kind, _)| *kind == wanted));
        let scheduler = other.map_or(&mut self.scheduler, |(_, other)| other);
        let choice = scheduler.choose(now, &self.candidates, demand, draws);
        choice.and_then(|choice| self.places.get(choice).copied())
    }

    /// Decides which of the gathered paths carry a copy of the packet that leaves on path `first`
    /// now: the fastest of the others that have room. Returns how many they are; they are
    /// [`copy`](Self::copy) 0 and up.
    pub(crate) fn plan_copies(
        &mut self,
        now: Instant,
        paths: &PathSet,
        first: PathIndex,
        copies: Copies,
        parameters: &CopyParameters,
    ) -> usize {
        let Self { candidates, places, copies: planned, .. } = self;
        planned.clear();
        let Some(of_first) = places.iter().position(|place| *place == first) else { return 0 };
        planned.extend((0..candidates.len()).filter(|&other| {
            let path = paths.at(places[other]);
            other != of_first
                && candidates[other].is_ready(now)
                && path.is_some_and(|path| !path.metered)
        }));
        planned.sort_unstable_by_key(|&other| (candidates[other].delay, candidates[other].id));
        let others = planned.iter().map(|&other| &candidates[other]);
        planned.truncate(copies_wanted(&candidates[of_first], others, copies, parameters));
        planned.len()
    }

    /// The gathered path that a packet of `len` bytes and priority `response` takes: the one on
    /// which it is expected first if it leaves now ([`Priority::Response`]; seed 000, section
    /// 3.6.2).
    pub(crate) fn fastest(&self, now: Instant, paths: &PathSet, len: usize) -> Option<PathIndex> {
        let expected = |(path, place): &(&Candidate, &PathIndex)| {
            let backlog = paths[**place].backlog(now).as_micros() as i64;
            (path.arrival_without_queue(len) + backlog, path.id)
        };
        let may = |(path, place): &(&Candidate, &PathIndex)| {
            path.ready_at != Instant::FAR_FUTURE
                && paths[**place].permits_urgent(now, self.parameters.ahead)
        };
        let gathered = self.candidates.iter().zip(&self.places);
        let fastest = gathered.filter(may).min_by_key(expected);
        fastest.map(|(_, place)| *place)
    }

    /// Whether path `index` is one of those gathered.
    pub(crate) fn has_gathered(&self, index: PathIndex) -> bool {
        self.places.contains(&index)
    }

    /// Whether path `index` carries a copy, as [planned](Self::plan_copies).
    pub(crate) fn has_copy(&self, index: PathIndex) -> bool {
        (0..self.copies.len()).any(|copy| self.copy(copy) == Some(index))
    }

    /// The path of the copy `index`, as [planned](Self::plan_copies).
    pub(crate) fn copy(&self, index: usize) -> Option<PathIndex> {
        self.copies.get(index).and_then(|copy| self.places.get(*copy).copied())
    }

    fn clear(&mut self) {
        self.gathered = None;
        self.candidates.clear();
        self.places.clear();
        self.copies.clear();
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn path(loss: f64, jitter_ms: i64) -> Candidate {
        Candidate {
            id: 0,
            ready_at: Instant::ZERO,
            clears_at: Instant::ZERO,
            delay: 0,
            jitter: jitter_ms * 1_000,
            queuing: 0,
            repair: 0,
            rate: 0,
            loss,
            searches: false,
            known: None,
            fixed_weight: None,
        }
    }

    /// How many paths carry a packet when the fastest paths that have room are `paths`.
    fn carriers(paths: &[Candidate], copies: Copies) -> usize {
        let parameters = CopyParameters::default();
        1 + copies_wanted(&paths[0], paths[1..].iter(), copies, &parameters)
    }

    #[test]
    fn a_fixed_number_of_copies_takes_as_many_paths_as_there_are() {
        let paths: Vec<Candidate> = (0..6).map(|_| path(0.0, 0)).collect();
        for (copies, expected) in [(2, 2), (3, 3), (6, 6), (8, 6)] {
            assert_eq!(carriers(&paths, Copies::Fixed(copies)), expected);
        }
        assert_eq!(carriers(&paths[..1], Copies::Fixed(2)), 1);
    }

    #[test]
    fn adaptive_copies_are_as_many_as_the_losses_ask_for() {
        for (losses, expected) in [
            (&[0.0, 0.05][..], 1),
            (&[0.000_9, 0.05], 1),
            (&[0.05, 0.0, 0.05], 2),
            (&[0.05, 0.01, 0.05], 2),
            (&[0.05, 0.05, 0.05], 3),
            (&[0.3, 0.3, 0.3, 0.3, 0.3, 0.3], 4),
            (&[0.05], 1),
        ] {
            let paths: Vec<Candidate> = losses.iter().map(|loss| path(*loss, 0)).collect();
            assert_eq!(carriers(&paths, Copies::Adaptive), expected, "{losses:?}");
        }
    }

    #[test]
    fn with_jitter_there_is_a_second_adaptive_copy_even_without_loss() {
        let jitter = CopyParameters::default().jitter + Duration::from_millis(1);
        let jitter = jitter.as_millis() as i64;
        assert_eq!(carriers(&[path(0.0, jitter), path(0.0, 0)], Copies::Adaptive), 2);
        assert_eq!(carriers(&[path(0.0, 0), path(0.0, jitter)], Copies::Adaptive), 1);
        assert_eq!(carriers(&[path(0.0, jitter)], Copies::Adaptive), 1, "there is no other");
    }
}
