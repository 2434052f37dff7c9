//! The interface of schedulers.

use core::fmt;
use core::time::Duration;

use mpip_types::Instant;
use rand_chacha::ChaCha8Rng;

use crate::content::Path;

/// Interval between calls of [`Scheduler::adjust`]: the seeds' period T (seed 000, section 3.6.1).
pub(crate) const PERIOD: Duration = Duration::from_millis(100);

/// A path that may carry the packet, as a scheduler sees it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// The path's number.
    pub(crate) id: u16,
    /// When it can take the packet; not after now if at once.
    pub(crate) ready_at: Instant,
    /// When the path has transmitted what was sent on it, if it does not know its rate yet but
    /// expects one; otherwise not after now.
    pub(crate) clears_at: Instant,
    /// Smoothed one-way delay, µs against a reference that all candidates share.
    pub(crate) delay: i64,
    /// Mean deviation of the one-way delay, µs.
    pub(crate) jitter: i64,
    /// Queuing delay, µs; part of `delay`.
    pub(crate) queuing: i64,
    /// Mean time that a resequenced packet waits for retransmissions of earlier ones, µs.
    pub(crate) repair: i64,
    /// Estimated delivery rate, bytes/s.
    pub(crate) rate: u64,
    /// Share of packets lost, 0 to 1.
    pub(crate) loss: f64,
    /// It is in Startup, and does not know yet how much it can carry.
    pub(crate) searches: bool,
    /// What it carries, bytes/s, if that is known: after Startup, or from its idle times.
    pub(crate) known: Option<u64>,
    /// The configured weight.
    pub(crate) fixed_weight: Option<u16>,
}

impl Candidate {
    /// `path` as a scheduler sees it, for a packet of `len` bytes.
    pub(crate) fn of(path: &Path, now: Instant, len: usize) -> Self {
        let searches = path.searches();
        Self {
            id: path.id.0,
            ready_at: path.ready_at(now, len),
            clears_at: path.clears_at(),
            delay: path.delay.average().unwrap_or(0),
            jitter: path.delay.jitter().as_micros() as i64,
            queuing: path.delay.queuing().as_micros() as i64,
            repair: path.mean_repair(),
            rate: path.expected_rate().unwrap_or(u64::MAX).min(path.rate()),
            loss: path.loss(),
            searches,
            known: if searches { path.shown_rate() } else { Some(path.delivers()) },
            fixed_weight: path.fixed_weight,
        }
    }

    /// Time that `len` bytes take at the path's rate, µs.
    pub(crate) fn takes(&self, len: usize) -> i64 {
        (len as u64 * 1_000_000 / self.rate.max(1)) as i64
    }

    /// When `len` bytes that leave an empty queue now are expected, µs as in `delay`.
    pub(crate) fn arrival_without_queue(&self, len: usize) -> i64 {
        self.delay - self.queuing + self.jitter + self.takes(len)
    }

    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        self.ready_at <= now
    }
}

/// What there is to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Bytes of the next packet.
    pub(crate) len: usize,
    /// The receiver resequences it.
    pub(crate) ordered: bool,
    /// Bytes queued behind it; of a retransmission, those of the ones ahead of it.
    pub(crate) backlog: usize,
    /// The earliest delivery of its session's packets, µs as in [`Candidate::delay`]; `None` if
    /// they are not held.
    pub(crate) held: Option<i64>,
    /// Start of the busy period: since when there has been something to send, short gaps excepted.
    /// Now, of a retransmission.
    pub(crate) busy_since: Instant,
}

/// A scheduler.
pub(crate) trait Scheduler: fmt::Debug + Send {
    /// Chooses the path for the next packet. Returns its index in `paths`, or `None` to wait until
    /// another path is ready.
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

    /// The weight of path `id`, if the scheduler has weights.
    fn weight(&self, id: u16) -> Option<u16> {
        let _ = id;
        None
    }
}
