//! The design of the factorial: its cells, their links, and how long each runs.

use std::io;
use std::time::Duration;

use mpip_link::{LinkConfig, Loss, QueueLimit};
use serde::{Deserialize, Serialize};

const FACTORS: &str = include_str!("../../data/loss_aware.csv");

/// Losses that are expected on the lossy link within a run, unless that takes longer than allowed.
const LOSSES: f64 = 20.0;
/// Seconds of virtual time that each run counts at least: several round trips of the longest BDP
/// after slow start, and longer than cubic needs to recover its window on any of the links.
pub(super) const SHORTEST: u64 = 10;
/// Default of the longest time that a run counts, in seconds of virtual time. With it, 20 losses
/// are expected over the 25 cells of the rarest loss, 0.0001 %.
pub(crate) const LONGEST: u64 = 330;
/// The longest run of seed 003 (table II), in seconds.
pub(crate) const PUBLISHED_LONGEST: u64 = 12_000;
/// Length of a full packet on a link in bits, Ethernet header included.
const PACKET_BITS: f64 = 1514.0 * 8.0;

/// A network of the design.
#[derive(Debug, Clone)]
struct Network {
    name: String,
    delay_ms: f64,
    jitter_range_ms: f64,
    bandwidths_mbps: Vec<f64>,
    losses_percent: Vec<f64>,
}

fn networks() -> Vec<Network> {
    let list = |text: &str| -> Vec<f64> {
        text.split(' ').filter_map(|number| number.parse().ok()).collect()
    };
    let network = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let [name, delay, jitter, bandwidths, losses] = fields.as_slice() else { return None };
        Some(Network {
            name: (*name).to_owned(),
            delay_ms: delay.parse().ok()?,
            jitter_range_ms: jitter.split('-').next_back()?.parse().ok()?,
            bandwidths_mbps: list(bandwidths),
            losses_percent: list(losses),
        })
    };
    FACTORS.lines().skip(1).filter_map(network).collect()
}

/// One cell of the design.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// The network that loses packets; empty for cells without loss.
    pub(crate) lossy: String,
    /// Loss on it.
    pub(crate) loss_percent: f64,
    /// Bandwidth of Wi-Fi and LTE.
    pub(crate) bandwidths_mbps: [f64; 2],
}

impl Cell {
    /// The index of the link that loses packets.
    pub(super) fn lossy_link(&self) -> Option<usize> {
        networks().iter().position(|network| network.name == self.lossy)
    }

    /// Losses per second while the lossy link is full; 0 without loss.
    fn losses_per_second(&self) -> f64 {
        let rate = self.lossy_link().map_or(0.0, |link| self.bandwidths_mbps[link] * 1e6);
        rate / PACKET_BITS * self.loss_percent / 100.0
    }

    /// Losses that are expected in so many seconds.
    pub(crate) fn expected_losses(&self, seconds: f64) -> f64 {
        self.losses_per_second() * seconds
    }

    /// Seconds that a run counts: until [`LOSSES`] are expected, within [`SHORTEST`] and `longest`.
    pub(super) fn seconds(&self, longest: u64) -> u64 {
        let wanted = LOSSES / self.losses_per_second();
        let wanted = if wanted.is_finite() { wanted.ceil() as u64 } else { 0 };
        wanted.clamp(SHORTEST, longest.max(SHORTEST))
    }
}

/// All cells in order.
pub(crate) fn cells() -> Vec<Cell> {
    let networks = networks();
    let [first, second] = networks.as_slice() else { return Vec::new() };
    let mut cells = Vec::new();
    for a in &first.bandwidths_mbps {
        for b in &second.bandwidths_mbps {
            let bandwidths_mbps = [*a, *b];
            cells.push(Cell { lossy: String::new(), loss_percent: 0.0, bandwidths_mbps });
            for network in [first, second] {
                for loss in &network.losses_percent {
                    let (lossy, loss_percent) = (network.name.clone(), *loss);
                    cells.push(Cell { lossy, loss_percent, bandwidths_mbps });
                }
            }
        }
    }
    cells
}

/// The numbers of all cells whose loss is one of `losses`, in percent; of all cells if none is
/// given. Each repetition has all of them.
///
/// # Errors
/// If no cell has one of the losses.
pub(crate) fn numbers(repetitions: usize, losses: &[f64]) -> io::Result<Vec<usize>> {
    let cells = cells();
    for loss in losses {
        if cells.iter().all(|cell| cell.loss_percent != *loss) {
            let mut known: Vec<f64> = cells.iter().map(|cell| cell.loss_percent).collect();
            known.sort_by(f64::total_cmp);
            known.dedup();
            let message = format!("--loss: expected some of {known:?} (percent), found {loss}");
            return Err(io::Error::other(message));
        }
    }
    let wanted = |number: &usize| {
        losses.is_empty() || losses.contains(&cells[number % cells.len()].loss_percent)
    };
    Ok((0..cells.len() * repetitions).filter(wanted).collect())
}

/// A number of 0..1 that follows from the arguments (SplitMix64).
fn share(number: usize, purpose: u64) -> f64 {
    let mut z = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(purpose << 7);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

pub(super) fn links(cell: &Cell, number: usize) -> Vec<(LinkConfig, LinkConfig)> {
    let networks = networks();
    let of = |(index, network): (usize, &Network)| {
        let range = share(number, index as u64) * network.jitter_range_ms;
        let lossy = network.name == cell.lossy;
        let config = LinkConfig {
            rate: Some((cell.bandwidths_mbps[index] * 1e6) as u64),
            queue: QueueLimit::Packets(100),
            delay: Duration::from_secs_f64(network.delay_ms / 1e3),
            jitter: Duration::from_secs_f64(range / 4.0 / 1e3),
            in_order: true,
            loss: if lossy { Loss::Random(cell.loss_percent / 100.0) } else { Loss::None },
            ..LinkConfig::default()
        };
        (config.clone(), config)
    };
    networks.iter().enumerate().map(of).collect()
}

/// The numbers of `count` cells, spread evenly over bandwidths and losses.
pub(crate) fn sample(count: usize) -> Vec<usize> {
    let cells = cells().len();
    let count = count.min(cells);
    (0..count).map(|index| index * cells / count.max(1)).collect()
}
