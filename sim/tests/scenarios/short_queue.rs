//! A queue of a few packets holds no burst of a millisecond.

use core::time::Duration;

use mpip_link::{LinkConfig, Loss};
use mpip_sim::clock::SECOND;
use mpip_sim::measure::Scenario;
use mpip_sim::spec::TcpControl;

use crate::common::{both, link, median_share, share_of_equal_paths};

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

/// Where packets overtake each other, their delays hardly show whether a queue stands. With bursts
/// as long as elsewhere the shares would be 0.44 and 0.73 with two seeds.
#[test]
fn a_path_with_jitter_whose_queue_holds_no_burst_is_filled_as_well() {
    let mut jitters = link(127, 8, 8);
    jitters.jitter = Duration::from_micros(2_800);
    let share = alone(jitters);
    assert!(share > 0.65, "{share:.3}");
}

/// If it counted how many packets are lost, and not how often, a burst of loss would end Startup at
/// a fraction of the rate.
#[test]
fn a_burst_of_loss_in_startup_is_no_short_queue() {
    let mut lossy = link(154, 77, 10);
    let (good_to_bad, bad_to_good) = (0.01, 0.2);
    lossy.loss = Loss::GilbertElliott { good_to_bad, bad_to_good, good_loss: 0.0, bad_loss: 0.8 };
    let share = alone(lossy);
    assert!(share > 0.5, "{share:.3}");
}

/// Share of the limit between the fourth and the twelfth second over this link alone.
fn alone(forward: LinkConfig) -> f64 {
    let scenario = Scenario {
        paths: vec![both(forward)],
        sender: TcpControl::CUBIC.into(),
        duration: 12 * SECOND,
        from: 4 * SECOND,
        seed: 1,
    };
    median_share(&scenario, [1, 2, 3])
}
