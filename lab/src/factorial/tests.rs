use mpip_link::Loss;
use mpip_testing::Directory;

use super::*;

/// A run of 10 s of a cell that could carry twice 10 Mbit/s.
pub(crate) fn run(number: usize, cell: Cell, goodput_bps: f64) -> CellResult {
    let measured = Rates {
        goodput_bps,
        limit_bps: 20e6,
        alone_bps: [10e6; 2],
        tcp_bps: [10e6; 2],
        longest_pause_ms: 0.0,
    };
    let (violations, origin) = (Vec::new(), Origin::default());
    Run { number, cell, seconds: 10.0, measured, violations, origin }
}

#[test]
fn the_design_has_every_combination_once() {
    let cells = cells();
    assert_eq!(cells.len(), 25 * (2 * 6 + 1));
    let wifi = |cell: &&Cell| cell.lossy == "wifi" && cell.loss_percent == 0.01;
    assert_eq!(cells.iter().filter(wifi).count(), 25);
    for (index, cell) in cells.iter().enumerate() {
        assert!(!cells[..index].contains(cell), "{cell:?} twice");
    }
}

#[test]
fn the_benefit_is_that_of_the_seed() {
    assert_eq!(benefit(20.0, &[10.0, 10.0]), 1.0);
    assert_eq!(benefit(10.0, &[10.0, 10.0]), 0.0);
    assert_eq!(benefit(5.0, &[10.0, 10.0]), -0.5);
    assert_eq!(benefit(14.0, &[10.0, 8.0]), 0.5);
    assert_eq!(benefit(0.0, &[0.0, 0.0]), 0.0);
}

#[test]
fn a_sample_has_every_loss_on_either_link() {
    let cells = cells();
    let sample = sample(65);
    assert_eq!(sample.len(), 65);
    for network in ["wifi", "lte"] {
        let mut losses: Vec<f64> = sample
            .iter()
            .map(|number| &cells[*number])
            .filter(|cell| cell.lossy == network)
            .map(|cell| cell.loss_percent)
            .collect();
        losses.sort_by(f64::total_cmp);
        losses.dedup();
        assert_eq!(losses.len(), 6, "{network}");
    }
}

#[test]
fn only_the_lossy_link_loses_and_jitter_is_drawn_for_each_run() {
    let cell = Cell { lossy: "lte".to_owned(), loss_percent: 1.0, bandwidths_mbps: [10.0, 50.0] };
    let (a, b) = (links(&cell, 1), links(&cell, 2));
    assert_eq!((a[0].0.loss, a[1].0.loss), (Loss::None, Loss::Random(0.01)));
    assert_eq!((a[0].0.rate, a[1].0.rate), (Some(10_000_000), Some(50_000_000)));
    assert_ne!(a[1].0.jitter, b[1].0.jitter);
    assert!(a[1].0.jitter <= Duration::from_micros(8_750));
    assert_eq!(a, links(&cell, 1));
}

#[test]
fn a_cell_runs_and_repeats() {
    let cell = Cell { lossy: "wifi".to_owned(), loss_percent: 0.1, bandwidths_mbps: [10.0, 10.0] };
    let (first, _) = run_cell(&cell, 7, 2);
    // Packets held for reordering at the start of the count may be delivered within it.
    assert!(first.goodput_bps > 0.0 && first.goodput_bps <= first.limit_bps * 1.1, "{first:?}");
    assert!(first.tcp_bps.iter().all(|tcp| *tcp > 0.0), "{first:?}");
    assert!(first.benefit() >= first.strict_benefit().min(1.0), "{first:?}");
    assert_eq!(first.goodput_bps, run_cell(&cell, 7, 2).0.goodput_bps);
}

#[test]
fn a_run_lasts_until_twenty_losses_are_expected_within_its_bounds() {
    let cell = |loss_percent, wifi| Cell {
        lossy: "wifi".to_owned(),
        loss_percent,
        bandwidths_mbps: [wifi, 10.0],
    };
    let clean = Cell { lossy: String::new(), ..cell(0.0, 50.0) };
    assert_eq!((clean.seconds(12_000), clean.expected_losses(10.0)), (10, 0.0));
    assert_eq!(cell(10.0, 10.0).seconds(12_000), 10);
    assert_eq!(cell(0.01, 10.0).seconds(12_000), 243);
    assert_eq!(cell(0.01, 10.0).seconds(100), 100);
    assert_eq!(cell(0.0001, 50.0).seconds(12_000), 4_845);
    assert!((cell(0.01, 10.0).expected_losses(243.0) - 20.0).abs() < 0.1);
    // What the default of the bound is chosen for.
    for lossy in ["wifi", "lte"] {
        let rare = |cell: &Cell| cell.lossy == lossy && cell.loss_percent == 0.0001;
        let losses = cells().into_iter().filter(rare).map(|cell| {
            let seconds = cell.seconds(LONGEST);
            cell.expected_losses(seconds as f64)
        });
        assert_eq!(losses.sum::<f64>().round(), 20.0, "{lossy}");
    }
}

#[test]
fn a_plan_has_the_wanted_losses_and_repeats_runs_of_another_length() {
    let all = numbers(2, &[]).expect("all");
    assert_eq!(all, (0..650).collect::<Vec<_>>());
    let some = numbers(1, &[10.0, 0.0]).expect("known");
    assert_eq!(some.len(), 75);
    let error = numbers(1, &[5.0]).expect_err("unknown").to_string();
    assert!(error.contains("some of [0.0, 0.0001, ") && error.ends_with("found 5"), "{error}");
    let plan = Plan { numbers: some, longest: LONGEST };
    let number = plan.numbers[0];
    let result = |seconds| CellResult { seconds, ..run(number, cells()[number].clone(), 1.0) };
    assert_eq!(plan.left(&[result(10.0)]).len(), 74);
    assert_eq!(plan.left(&[result(20.0)]).len(), 75);
    let directory = Directory::new();
    let lines = [result(10.0), result(20.0)].map(|it| serde_json::to_string(&it).expect("json"));
    std::fs::write(directory.join(FILE), lines.join("\n") + "\n{\"numb").expect("written");
    let read = read(directory.path()).expect("readable");
    assert_eq!(read.iter().map(|it| it.seconds).collect::<Vec<_>>(), [20.0]);
}
