//! Scheduler `earliest`: the path on which this packet arrives first.
//!
//! The predicted arrival time is the sum of: when the path can take the packet, its transmission
//! time at the path's rate, the path's one-way delay and its mean deviation, and, for a resequenced
//! packet on a lossy path, the mean wait for retransmissions. A packet that the receiver holds does
//! not arrive before it is delivered.
//!
//! If the best path cannot send yet, the packet waits for it rather than arrive later on a slower
//! path (BLEST, ECF). With a large backlog or a long busy period, slower paths are used as well:
//! their packets arrive before the faster paths would have carried the backlog. While a faster path
//! is in BBR's Startup, only the backlog counts: that path will soon carry more, and a short
//! transfer would be over. A path that carries little begins later, because the receiver waits for
//! it as long as for one that carries much: so does a far path whose capacity is not known yet.

use rand_chacha::ChaCha8Rng;

use super::{Candidate, Demand, Scheduler};
use crate::parameters::EarliestParameters;
use mpip_types::Instant;

/// Earliest predicted arrival.
#[derive(Debug)]
pub(super) struct Earliest {
    parameters: EarliestParameters,
    /// Extra delay from which on a path is far, µs.
    far: i64,
}

impl Earliest {
    pub(super) fn new(parameters: &EarliestParameters) -> Self {
        Self { parameters: *parameters, far: parameters.far.as_micros() as i64 }
    }
}

impl Scheduler for Earliest {
    fn choose(
        &mut self,
        now: Instant,
        paths: &[Candidate],
        demand: &Demand,
        _rng: &mut ChaCha8Rng,
    ) -> Option<usize> {
        if let [only] = paths {
            return only.is_ready(now).then_some(0);
        }
        let held = demand.held.unwrap_or(i64::MIN);
        let arrival = |path: &Candidate| {
            let waits = path.ready_at.max(path.clears_at).since(now).as_micros() as i64;
            let counts = demand.ordered && self.parameters.counts_repair;
            let repair = if counts { path.repair } else { 0 };
            let jitter = (path.jitter as f64 * self.parameters.jitter_weight) as i64;
            let arrives = waits + path.takes(demand.len) + path.delay + jitter + repair;
            arrives.max(held)
        };
        // Of those that arrive before a held packet is delivered, the nearest.
        let order = |index: &usize| (arrival(&paths[*index]), paths[*index].delay);
        let first = (0..paths.len()).min_by_key(order)?;
        if paths[first].is_ready(now) {
            return Some(first);
        }
        let ready =
            (0..paths.len()).filter(|&index| paths[index].is_ready(now)).min_by_key(order)?;
        if !self.parameters.waits {
            return Some(ready);
        }
        let later = arrival(&paths[ready]) - arrival(&paths[first]);
        let is_faster = |path: &&Candidate| arrival(path) < arrival(&paths[ready]);
        // Bytes that the faster paths carry before a packet sent now on the slower path arrives.
        let faster: u64 = paths.iter().filter(is_faster).map(|path| path.rate).sum();
        let drains = (demand.backlog as u64 * 1_000_000 / faster.max(1)) as i64;
        let busy = now.since(demand.busy_since).as_micros() as i64;
        let far = paths[ready].searches && later >= self.far;
        let patience = if far { i64::from(self.parameters.search_patience) } else { 1 };
        // A busy period is expected to last about as long again as it has lasted. What the slower
        // path carries in that time has to be more than what the faster ones could have carried
        // while its packets are waited for.
        let carried = |rate: u64, time: i64| i128::from(rate) * i128::from(time);
        let gains = |rate: u64| carried(rate, busy) >= carried(faster, later);
        let known = paths[ready].known.filter(|_| self.parameters.weighs);
        let grows = || paths.iter().filter(is_faster).any(|path| path.searches);
        let lasts = busy >= patience * later
            && known.is_none_or(gains)
            && !(self.parameters.awaits_growth && grows());
        (drains >= later || lasts).then_some(ready)
    }
}
