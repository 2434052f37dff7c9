//! The factorial of loss-aware MPTCP (seed 003, section IV): Wi-Fi and LTE, every pair of
//! bandwidths, every loss on one of them while the other has none.
//!
//! 2 lossy links x 5 Wi-Fi bandwidths x 5 LTE bandwidths x 6 losses = 300 cells. Each repetition
//! draws the jitter of both links anew from its range, as the seed did. Loss is on the way of the
//! data. Queues are netem's default of 1,000 packets. The seed ran a cell for 120 s and more, in
//! real time; a repetition here sends for as long as the caller says, virtual time.

use core::time::Duration;

use mpip_link::{LinkConfig, Loss, QueueLimit};

use crate::clock::{Nanos, SECOND};
use crate::measure::Scenario;
use crate::rng::Rng;

/// Bandwidths of each link, Mbit/s.
pub const BANDWIDTHS: [u64; 5] = [10, 20, 30, 40, 50];

/// Losses of the lossy link, percent.
pub const LOSSES: [f64; 6] = [10.0, 1.0, 0.1, 0.01, 0.001, 0.000_1];

/// Delay and largest jitter of Wi-Fi and LTE, ms, one way.
const LINKS: [(u64, u64); 2] = [(10, 5), (75, 35)];

/// Which of the two links loses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lossy {
    /// The first path.
    WiFi,
    /// The second path.
    Lte,
}

/// One cell of the design.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Which link loses packets.
    pub lossy: Lossy,
    /// Bandwidth of Wi-Fi and LTE, Mbit/s.
    pub bandwidths: [u64; 2],
    /// Loss, percent.
    pub loss: f64,
}

/// All cells, in a fixed order.
pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::with_capacity(300);
    for lossy in [Lossy::WiFi, Lossy::Lte] {
        for wifi in BANDWIDTHS {
            for lte in BANDWIDTHS {
                cells.extend(LOSSES.map(|loss| Cell { lossy, bandwidths: [wifi, lte], loss }));
            }
        }
    }
    cells
}

impl Cell {
    /// The repetition numbered `repetition`, which sends for `duration`.
    pub fn scenario(&self, repetition: u64, duration: Nanos) -> Scenario {
        let mut rng = Rng::stream(repetition, 300);
        let paths = [0, 1].map(|path| {
            let (delay, jitter) = LINKS[path];
            let clean = LinkConfig {
                rate: Some(self.bandwidths[path] * 1_000_000),
                delay: Duration::from_millis(delay),
                jitter: Duration::from_nanos(rng.between(0, jitter * 1_000_000)),
                queue: QueueLimit::Packets(1_000),
                ..LinkConfig::default()
            };
            let loses = path == self.lossy as usize;
            let loss = if loses { Loss::Random(self.loss / 100.0) } else { Loss::None };
            (LinkConfig { loss, ..clean.clone() }, clean)
        });
        // The first seconds are left out, so that a short run says the same as a long one.
        let from = (duration / 4).min(5 * SECOND);
        Scenario { paths: paths.to_vec(), duration, from, seed: repetition }
    }
}

/// The aggregation benefit (seed 003, equation 1; Paasch et al.): 1 when `goodput` is the sum of
/// the paths' `capacities`, 0 when it is that of the best one, -1 when it is nothing.
pub fn benefit(goodput: f64, capacities: &[f64]) -> f64 {
    let best = capacities.iter().copied().fold(0.0, f64::max);
    let sum: f64 = capacities.iter().sum();
    if goodput >= best && sum > best {
        (goodput - best) / (sum - best)
    } else if best > 0.0 {
        (goodput - best) / best
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::limit;

    #[test]
    fn the_design_has_every_combination_once() {
        let cells = cells();
        assert_eq!(cells.len(), 300);
        for (index, cell) in cells.iter().enumerate() {
            assert!(!cells[index + 1..].contains(cell), "{cell:?}");
        }
    }

    #[test]
    fn one_link_loses_and_jitter_is_drawn_anew() {
        let cell = Cell { lossy: Lossy::Lte, bandwidths: [10, 50], loss: 10.0 };
        let (first, second) = (cell.scenario(0, SECOND), cell.scenario(1, SECOND));
        assert_eq!(first.paths[0].0.loss, Loss::None);
        assert_eq!(first.paths[1].0.loss, Loss::Random(0.1));
        assert_eq!(first.paths[1].1.loss, Loss::None);
        assert_ne!(first.paths[1].0.jitter, second.paths[1].0.jitter);
        assert!(second.paths[1].0.jitter <= Duration::from_millis(35));
        let limits = [0, 1].map(|path| limit(&first.paths[path..=path]).expect("a rate"));
        assert!((limits[1] / limits[0] - 4.5).abs() < 1e-9, "{limits:?}");
    }

    #[test]
    fn the_benefit_is_between_minus_one_and_one() {
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        near(benefit(30.0, &[10.0, 20.0]), 1.0);
        near(benefit(25.0, &[10.0, 20.0]), 0.5);
        near(benefit(20.0, &[10.0, 20.0]), 0.0);
        near(benefit(5.0, &[10.0, 20.0]), -0.75);
        near(benefit(0.0, &[10.0, 20.0]), -1.0);
    }
}
