//! The seeds' path selection: random by weight, weights adjusted by queuing delay
//! (seed 000, section 3.6.1, Algorithm 1).

use core::time::Duration;
use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;

use super::{Candidate, Demand, PERIOD, Scheduler};
use crate::config::WeightAdaptation;
use mpip_types::Instant;

/// Sum of the initial weights, and the bound of each.
const FULL: u16 = 1_000;

/// Chooses path k with probability W(k) / sum of W.
#[derive(Debug)]
pub(super) struct Weighted {
    weights: BTreeMap<u16, u16>,
    /// `None`: fixed weights.
    adaptation: Option<WeightAdaptation>,
    /// Time since the last change of the weights, as far as it counts for the period T.
    elapsed: Duration,
}

impl Weighted {
    /// Weights that follow queuing delay.
    pub(super) fn adaptive(adaptation: WeightAdaptation) -> Self {
        Self { adaptation: Some(adaptation), ..Self::fixed() }
    }

    /// Fixed, configured weights.
    pub(super) fn fixed() -> Self {
        Self { weights: BTreeMap::new(), adaptation: None, elapsed: Duration::ZERO }
    }

    fn known_or_initial(&mut self, paths: &[Candidate]) {
        let initial = (FULL / paths.len().max(1) as u16).max(1);
        if !paths.iter().all(|path| self.weights.contains_key(&path.id)) {
            for path in paths {
                let weight = path.fixed_weight.unwrap_or(initial);
                self.weights.entry(path.id).or_insert(weight);
            }
        }
    }
}

impl Scheduler for Weighted {
    fn choose(
        &mut self,
        now: Instant,
        paths: &[Candidate],
        _demand: &Demand,
        rng: &mut ChaCha8Rng,
    ) -> Option<usize> {
        self.known_or_initial(paths);
        let weight = |path: &Candidate| match path.is_ready(now) {
            true => u64::from(self.weights[&path.id]),
            false => 0,
        };
        let total: u64 = paths.iter().map(weight).sum();
        if total == 0 {
            return None;
        }
        // A multiply-shift keeps the bias below 2^-50, far below what a weight resolves.
        let mut draw = ((u128::from(rng.next_u64()) * u128::from(total)) >> 64) as u64;
        paths.iter().position(|path| {
            let weight = weight(path);
            let hit = draw < weight;
            draw = draw.saturating_sub(weight);
            hit
        })
    }

    fn adjust(&mut self, paths: &[Candidate]) {
        self.known_or_initial(paths);
        self.weights.retain(|id, _| paths.iter().any(|path| path.id == *id));
        let Some(WeightAdaptation { step, period }) = self.adaptation else { return };
        self.elapsed += PERIOD;
        if paths.is_empty() || self.elapsed < period {
            return;
        }
        self.elapsed = Duration::ZERO;
        let total: i64 = paths.iter().map(|path| path.queuing).sum();
        for path in paths {
            let weight = self.weights.entry(path.id).or_insert(FULL);
            // Q(i) <= Q(avg), without the rounding of a division.
            *weight = if path.queuing * paths.len() as i64 <= total {
                weight.saturating_add(step).min(FULL)
            } else {
                weight.saturating_sub(step).max(1)
            };
        }
    }

    fn weight(&self, id: u16) -> Option<u16> {
        self.weights.get(&id).copied()
    }
}
