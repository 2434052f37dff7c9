//! Goodput of mpip over two paths of 10 Mbit/s, by the loss of the first and the delay of the
//! second, as a table that a reviewer reads: `snapshots/throughput.txt`.
//!
//! A cell may be better than the snapshot, not worse by more than 3 % of the limit.
//! `MPIP_SIM_BLESS=1 cargo test -p mpip-sim --test scenarios throughput` writes it anew.

use core::fmt::Write as _;

use crate::common::{both, link, median_share};
use mpip_link::{LinkConfig, Loss};
use mpip_sim::clock::SECOND;
use mpip_sim::measure::Scenario;
use mpip_sim::spec::TcpControl;

const LOSSES: [f64; 3] = [0.0, 0.01, 0.05];
const DELAYS: [u64; 3] = [5, 25, 100];

/// Cells may be lower than the snapshot by this share of the limit.
const TOLERANCE: f64 = 0.03;

fn paths(delay: u64, loss: f64) -> Vec<(LinkConfig, LinkConfig)> {
    let lossy = LinkConfig { loss: Loss::Random(loss), ..link(10, 5, 100) };
    vec![(lossy, link(10, 5, 100)), both(link(10, delay, 100))]
}

/// Share of the physical limit, the median of three seeds, rounded as the table shows it.
fn share(delay: u64, loss: f64) -> f64 {
    let scenario = Scenario {
        paths: paths(delay, loss),
        sender: TcpControl::CUBIC.into(),
        duration: 12 * SECOND,
        from: 3 * SECOND,
        seed: 7,
    };
    (median_share(&scenario, [7, 8, 9]) * 1_000.0).round() / 1_000.0
}

fn render(cells: &[Vec<f64>]) -> String {
    let mut text = String::from(
        "Share of the physical limit that one TCP connection reaches through mpip over two paths\n\
         of 10 Mbit/s, median of three seeds.\n\
         Path 1: 5 ms, loss as in the column. Path 2: clean, delay as in the row.\n\n",
    );
    write!(text, "delay\\loss").expect("a string takes everything");
    for loss in LOSSES {
        write!(text, "{:>8.1}%", loss * 100.0).expect("a string takes everything");
    }
    for (delay, row) in DELAYS.iter().zip(cells) {
        write!(text, "\n{delay:>7} ms").expect("a string takes everything");
        for cell in row {
            write!(text, "{cell:>9.3}").expect("a string takes everything");
        }
    }
    text.push('\n');
    text
}

/// The numbers of a rendered table.
fn cells(text: &str) -> Vec<Vec<f64>> {
    let rows = text.lines().skip_while(|line| !line.starts_with("delay")).skip(1);
    let numbers = |row: &str| {
        row.split_whitespace().skip(2).map(|cell| cell.parse().expect("a number")).collect()
    };
    rows.map(numbers).collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the snapshot is a file")]
fn goodput_is_not_below_the_snapshot() {
    let row = |delay: &u64| LOSSES.iter().map(|loss| share(*delay, *loss)).collect();
    let found = render(&DELAYS.iter().map(row).collect::<Vec<Vec<f64>>>());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios/snapshots/throughput.txt");
    if std::env::var("MPIP_SIM_BLESS").is_ok() {
        std::fs::write(file, &found).expect("the snapshot can be written");
    }
    let expected = include_str!("snapshots/throughput.txt");
    let pairs = cells(&found).concat().into_iter().zip(cells(expected).concat());
    let worse = pairs.filter(|(found, expected)| *found < expected - TOLERANCE).count();
    assert_eq!(cells(expected).concat().len(), LOSSES.len() * DELAYS.len());
    assert_eq!(worse, 0, "worse than the snapshot:\n{expected}\nfound:\n{found}");
}
