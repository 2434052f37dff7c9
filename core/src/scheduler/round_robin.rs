//! Scheduler `round-robin`: one path after the other.

use rand_chacha::ChaCha8Rng;

use super::{Candidate, Demand, Scheduler};
use mpip_types::Instant;

/// Takes the paths in the order of their numbers, except those that cannot send now.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    last: u16,
}

impl Scheduler for RoundRobin {
    fn choose(
        &mut self,
        now: Instant,
        paths: &[Candidate],
        _demand: &Demand,
        _rng: &mut ChaCha8Rng,
    ) -> Option<usize> {
        let last = self.last;
        let chosen = (0..paths.len())
            .filter(|&index| paths[index].is_ready(now))
            .min_by_key(|&index| paths[index].id.wrapping_sub(last).wrapping_sub(1))?;
        self.last = paths[chosen].id;
        Some(chosen)
    }
}
