//! QUIC inside: as fast as TCP on paths of unequal delay and with jitter, because its packets are
//! put in order and repaired.

use core::time::Duration;

use mpip_link::{LinkConfig, Loss};
use mpip_sim::clock::{MILLI, SECOND};
use mpip_sim::measure::{Scenario, Sender};
use mpip_sim::spec::{FlowSpec, QuicControl, Traffic};

use crate::common::{assert_sound, both, client_and_gateway, link, observed, share_of_limit};

/// Share of the limit with `sender`, from the start.
fn share(paths: &[(LinkConfig, LinkConfig)], sender: &str) -> f64 {
    let sender = Sender::from_name(sender).expect("there is such a sender");
    let paths = paths.to_vec();
    share_of_limit(&Scenario { paths, sender, duration: 15 * SECOND, from: 0, seed: 1 }).0
}

#[test]
fn it_fills_two_paths_of_unequal_delay() {
    let paths = [both(link(20, 10, 100)), both(link(20, 40, 100))];
    let share = share(&paths, "quic-cubic");
    assert!(share > 0.88, "{share:.3}");
}

#[test]
fn it_fills_two_equal_paths() {
    let paths = [both(link(20, 20, 100)), both(link(20, 20, 100))];
    let share = share(&paths, "quic-cubic");
    assert!(share > 0.88, "{share:.3}");
}

#[test]
fn it_fills_two_paths_of_which_one_jitters() {
    let paths = [
        both(link(20, 12, 100)),
        both(LinkConfig { jitter: Duration::from_millis(8), ..link(30, 35, 100) }),
    ];
    for sender in ["quic-cubic", "quic-bbr"] {
        let share = share(&paths, sender);
        assert!(share > 0.8, "{sender}: {share:.3}");
    }
}

#[test]
fn acknowledgements_go_by_the_paths_of_the_data() {
    // A choice by delay alone, packet by packet, would take both in turn.
    let jitter = Duration::from_millis(17);
    let paths = [both(LinkConfig { jitter, ..link(20, 40, 400) }), both(link(20, 40, 400))];
    let share = share(&paths, "quic-hybrid");
    assert!(share > 0.4, "{share:.3}");
}

#[test]
fn a_longer_path_is_not_taken_for_a_queue() {
    // Were all acknowledgements to pass, slow start would end early: 0.34.
    let paths = [both(link(5, 5, 60)), both(link(100, 50, 900))];
    let share = share(&paths, "quic-hybrid");
    assert!(share > 0.8, "{share:.3}");
}

#[test]
fn a_socket_buffer_holds_what_is_delivered_when_a_gap_closes() {
    // All at once would overflow the receiver's: 0.37.
    let jitter = Duration::from_millis(8);
    let paths = [
        both(link(20, 12, 100)),
        both(LinkConfig { jitter, loss: Loss::Random(0.001), ..link(30, 35, 100) }),
    ];
    for sender in ["quic-cubic", "quic-hybrid"] {
        let share = share(&paths, sender);
        assert!(share > 0.8, "{sender}: {share:.3}");
    }
}

#[test]
fn a_small_packet_of_the_handshake_does_not_take_the_far_path_behind_two_full_ones() {
    let start = 4 * SECOND;
    let paths = [both(link(100, 2, 400)), both(link(100, 100, 400))];
    let mut spec = client_and_gateway(1, &paths).lasting(start + SECOND);
    let traffic = Traffic::Quic { bytes: Some(20_000), control: QuicControl::Cubic };
    let stop = spec.duration;
    spec.add_flow(FlowSpec { from: 0, to: 1, start, stop, v6: false, traffic });
    let mut world = observed(spec);
    world.run_until(start + SECOND);
    assert_sound(&world);
    assert_eq!(world.flow_bytes(0), 20_000);
    let took = world.last_delivery(0).expect("delivered") - start;
    assert!(took < 30 * MILLI, "{took} ns");
}
