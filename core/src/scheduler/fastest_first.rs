//! Scheduler `fastest-first`, as in Multipath HIP (seed 004): the fastest path that has room.

use rand_chacha::ChaCha8Rng;

use super::{Candidate, Demand, Scheduler, lowest_delay};
use mpip_types::Instant;

/// Takes the path with the lowest current delay among those that can send now.
#[derive(Debug)]
pub(super) struct FastestFirst;

impl Scheduler for FastestFirst {
    fn choose(
        &mut self,
        now: Instant,
        paths: &[Candidate],
        demand: &Demand,
        _rng: &mut ChaCha8Rng,
    ) -> Option<usize> {
        lowest_delay(paths, demand.len, |path| path.is_ready(now))
    }
}
