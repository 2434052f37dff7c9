//! What a scheduler is told and asked.

use core::fmt;
use core::time::Duration;

use mpip_types::Instant;
use rand_chacha::ChaCha8Rng;

use crate::content::Path;

/// How often [`Scheduler::adjust`] is called: the seeds' period T (seed 000, section 3.6.1).
pub(crate) const PERIOD: Duration = Duration::from_millis(100);

/// What a scheduler knows of a path that may carry packets.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// The path's number.
    pub(crate) id: u16,
    /// When it can take a packet: not after now if at once.
    pub(crate) ready_at: Instant,
    /// One-way delay, moving average, µs against a reference that all candidates share.
    pub(crate) delay: i64,
    /// Mean deviation of the one-way delay, µs.
    pub(crate) jitter: i64,
    /// What of the delay is queuing, µs.
    pub(crate) queuing: i64,
    /// What a packet that is put in order waits on the average for repairs of those before it, µs.
    pub(crate) repair: i64,
    /// Bytes per second that it delivers, as far as is known.
    pub(crate) rate: u64,
    /// What it can carry has not been found out yet.
    pub(crate) searches: bool,
    /// The weight that the configuration gives it.
    pub(crate) fixed_weight: Option<u16>,
}

impl Candidate {
    /// `path` as a scheduler sees it, for a packet of `len` bytes.
    pub(crate) fn of(path: &Path, now: Instant, len: usize) -> Self {
        Self {
            id: path.id.0,
            ready_at: path.ready_at(now, len),
            delay: path.delay.average().unwrap_or(0),
            jitter: path.delay.jitter().as_micros() as i64,
            queuing: path.delay.queuing().as_micros() as i64,
            repair: path.mean_repair(),
            rate: path.rate(),
            searches: path.cc.searches(),
            fixed_weight: path.fixed_weight,
        }
    }

    pub(super) fn is_ready(&self, now: Instant) -> bool {
        self.ready_at <= now
    }
}

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Bytes of the next packet.
    pub(crate) len: usize,
    /// It is put in order where it arrives.
    pub(crate) ordered: bool,
    /// Bytes that wait behind it.
    pub(crate) backlog: usize,
    /// Since when there has always been something to send (short pauses do not count).
    pub(crate) busy_since: Instant,
}

/// A rule for the choice of paths.
pub(crate) trait Scheduler: fmt::Debug + Send {
    /// The index in `paths` of the path that takes the next packet now, or `None` to wait until
    /// one becomes ready.
    fn choose(
        &mut self,
        now: Instant,
        paths: &[Candidate],
        demand: &Demand,
        rng: &mut ChaCha8Rng,
    ) -> Option<usize>;

    /// Called every [`PERIOD`] with all paths.
    fn adjust(&mut self, paths: &[Candidate]) {
        let _ = paths;
    }

    /// The weight of path `id`, where the rule has weights.
    fn weight(&self, id: u16) -> Option<u16> {
        let _ = id;
        None
    }
}

/// The index of the path with the lowest current delay among those that `accept` takes
/// ([`Priority::Response`](crate::Priority::Response); seed 000, section 3.6.2).
pub(crate) fn lowest_delay(
    paths: &[Candidate],
    accept: impl Fn(&Candidate) -> bool,
) -> Option<usize> {
    (0..paths.len())
        .filter(|&index| accept(&paths[index]))
        .min_by_key(|&index| (paths[index].delay, paths[index].id))
}
