//! Scheduler `fastest-first`, as in Multipath HIP (seed 004): the fastest path that has room.

use rand_chacha::ChaCha8Rng;

use super::{Candidate, Demand, Scheduler};
use mpip_types::Instant;

/// Takes the path with the lowest current delay among those that can send now.
#[derive(Debug)]
pub(super) struct FastestFirst;

impl Scheduler for FastestFirst {
    fn choose(
        &mut self,
        now: Instant,
        paths: &[Candidate],
        _demand: &Demand,
        _rng: &mut ChaCha8Rng,
    ) -> Option<usize> {
        let ready = (0..paths.len()).filter(|&index| paths[index].is_ready(now));
        ready.min_by_key(|&index| (paths[index].delay, paths[index].id))
    }
}
