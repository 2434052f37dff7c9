//! Voice beside a transfer: recognised by its behaviour, without a rule.

use core::time::Duration;

use crate::common::{assert_sound, both, client_and_gateway, link, observed};
use mpip_core::{Priority, Rule};
use mpip_link::{LinkConfig, QueueLimit};
use mpip_sim::clock::{MILLI, Nanos, SECOND};
use mpip_sim::traffic::quantile;

/// Bytes of a packet of voice, and the rate of one every 20 ms.
const BYTES: usize = 200;
const RATE: u64 = 50 * BYTES as u64 * 8;

/// The delay of voice beside a transfer over a wide path and a near and narrow one: median, 99th
/// percentile, and the transfer's bytes.
fn beside_a_transfer(rules: &[Rule]) -> (Nanos, Nanos, u64) {
    let near = LinkConfig {
        rate: Some(300_000),
        queue: QueueLimit::Bytes(5_000),
        delay: Duration::from_millis(10),
        ..LinkConfig::default()
    };
    let paths = [both(link(2, 25, 100)), both(near)];
    let spec = client_and_gateway(11, &paths)
        .with_engines(|engine| engine.rules = rules.to_vec())
        .lasting(31 * SECOND)
        .with_bulk(SECOND, 4_000_000)
        .with_udp(3 * SECOND, BYTES, RATE);
    let mut world = observed(spec);
    world.run_until(31 * SECOND);
    assert_sound(&world);
    let (bulk, voice) = (world.flow(0), world.flow(1));
    let at = |share| quantile(&voice.delays, share).expect("packets arrived");
    (at(0.5), at(0.99), bulk.bytes)
}

#[test]
fn voice_beside_a_transfer_takes_the_near_path_which_is_kept_clear_for_it() {
    let (median, late, bytes) = beside_a_transfer(&[]);
    // 10 ms, and 6 ms for a packet.
    assert!(median < 20 * MILLI, "{median} ns");
    // Behind a full packet, which takes 40 ms, and feedback.
    assert!(late < 64 * MILLI, "{late} ns");
    // A rule about something else leaves it as it is; one that says so switches it off.
    let marks = [Rule { set_dscp: Some(0), ..Rule::default() }];
    assert_eq!(beside_a_transfer(&marks), (median, late, bytes));
    let off = [Rule { priority: Some(Priority::Throughput), ..Rule::default() }];
    let (slow, _, all) = beside_a_transfer(&off);
    assert!(slow > 2 * median, "{slow} ns");
    assert!(bytes as f64 > 0.8 * all as f64, "{bytes} of {all} bytes");
}
