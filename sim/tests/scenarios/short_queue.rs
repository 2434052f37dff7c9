//! A queue of a few packets holds no burst of a millisecond.

use crate::common::share_of_equal_paths;

/// Share of the limit between the third and the sixth second over paths of these rates (Mbit/s)
/// with queues of five packets.
fn share(rates: &[u64]) -> f64 {
    share_of_equal_paths(rates, 5, 3..6)
}

/// Were bursts as long as elsewhere, the share would be 0.56.
#[test]
fn a_path_whose_queue_holds_no_burst_is_filled() {
    let share = share(&[100]);
    assert!(share > 0.9, "{share:.3}");
}

/// 0.47.
#[test]
fn beside_another_one_it_is_filled_too() {
    let share = share(&[100, 70]);
    assert!(share > 0.85, "{share:.3}");
}
