//! One TCP connection over paths of different delay should fill all of them soon after it begins.
//! Its own HyStart mistakes the longer path for a queue, unless it sees few acknowledgements of it.

use core::ops::Range;

use crate::common::{both, link, median_share, share_of_equal_paths};
use mpip_link::{LinkConfig, Loss};
use mpip_sim::clock::SECOND;
use mpip_sim::measure::Scenario;
use mpip_sim::spec::TcpControl;

/// Share of the limit that CUBIC has over `paths` within these `seconds` of its transfer, the
/// median of three seeds.
fn share(paths: Vec<(LinkConfig, LinkConfig)>, seconds: Range<u64>) -> f64 {
    let scenario = Scenario {
        paths,
        sender: TcpControl::CUBIC.into(),
        duration: seconds.end * SECOND,
        from: seconds.start * SECOND,
        seed: 1,
    };
    median_share(&scenario, [1, 2, 3])
}

/// That share from the first second on, until one second before `until`.
fn start(delays: [u64; 2], until: u64) -> f64 {
    share(delays.map(|delay| both(link(10, delay, 100))).to_vec(), 1..until - 1)
}

/// Were all acknowledgements to pass, the first three would be 0.84, 0.47 and 0.84. Over equal
/// paths slow start ends with a loss, behind which everything waits for up to half a second.
#[test]
fn a_longer_path_is_filled_from_the_start() {
    let cases = [([5, 50], 4, 0.92), ([5, 100], 4, 0.84), ([20, 100], 4, 0.81), ([5, 5], 8, 0.94)];
    for (delays, until, least) in cases {
        let share = start(delays, until);
        assert!(share > least, "{delays:?}: {share:.3}");
    }
}

/// Share of the limit between the second and the fifth second over fast paths of these rates
/// (Mbit/s).
fn fast(rates: &[u64]) -> f64 {
    share_of_equal_paths(rates, 1_000, 2..5)
}

/// A path in Startup is paced below its rate, and HyStart takes acknowledgements at that pace for
/// those of a full link: were all of them to pass, the first share would be 0.72.
#[test]
fn fast_paths_are_filled_also_where_all_delays_are_the_same() {
    for (rates, least) in [(&[100][..], 0.85), (&[100, 70], 0.85)] {
        let share = fast(rates);
        assert!(share > least, "{rates:?}: {share:.3}");
    }
}

/// That share after the first four seconds over one path that loses these shares on the way there
/// and back.
fn lossy(there: f64, back: f64, queue: u32) -> f64 {
    let way = |loss| LinkConfig { loss: Loss::Random(loss), ..link(27, 26, queue) };
    share(vec![(way(there), way(back))], 4..10)
}

/// The wait for what is sent again must not look like a queue: the share was 0.72 when it counted
/// only where another path loses less.
#[test]
fn a_path_that_loses_packets_is_filled() {
    let share = lossy(0.02, 0.0, 200);
    assert!(share > 0.85, "{share:.3}");
}

/// Acknowledgements do not wait for those that are lost.
#[test]
fn a_path_that_loses_acknowledgements_is_filled() {
    let share = lossy(0.0, 0.07, 19);
    assert!(share > 0.75, "{share:.3}");
}

/// A far path doubles its window in each round trip of half a second, so for a while more waits for
/// it than it takes. Were CoDel to signal then, the inner window would be made for the near path,
/// and the share 0.40.
#[test]
fn what_waits_for_a_far_path_that_grows_is_no_sign_of_congestion() {
    let share = share(vec![both(link(60, 240, 780)), both(link(6, 50, 47))], 8..20);
    assert!(share > 0.65, "{share:.3}");
}
