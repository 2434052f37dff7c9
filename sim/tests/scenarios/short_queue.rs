//! A queue of a few packets holds no burst of a millisecond.

use crate::common::{both, link, share_of_limit};
use mpip_sim::clock::SECOND;
use mpip_sim::measure::Scenario;
use mpip_sim::spec::TcpControl;

/// Share of the limit between the third and the sixth second over paths of these rates (Mbit/s),
/// with a round trip of 40 ms and queues of five packets.
fn share(rates: &[u64]) -> f64 {
    let scenario = Scenario {
        paths: rates.iter().map(|rate| both(link(*rate, 20, 5))).collect(),
        sender: TcpControl::CUBIC.into(),
        duration: 6 * SECOND,
        from: 3 * SECOND,
        seed: 1,
    };
    share_of_limit(&scenario).0
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
