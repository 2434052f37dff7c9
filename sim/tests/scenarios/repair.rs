//! What is lost of UDP is sent again where a rule asks for it, and only there.

use crate::common::{assert_sound, both, client_and_gateway, link, observed};
use mpip_core::{Priority, Rule};
use mpip_link::{LinkConfig, Loss};
use mpip_sim::clock::{MILLI, SECOND};

/// Packets sent and delivered of 4 Mbit/s of UDP over two paths that lose 5 %.
fn delivered(repair: bool) -> (u64, u64) {
    let lossy = || LinkConfig { loss: Loss::Random(0.05), ..link(10, 10, 100) };
    let rule = Rule {
        protocol: Some(17),
        priority: Some(Priority::Throughput),
        repair,
        ..Rule::default()
    };
    let spec = client_and_gateway(3, &[(lossy(), link(10, 10, 100)), both(lossy())])
        .with_engines(|engine| engine.rules = vec![rule.clone()])
        .lasting(6 * SECOND)
        .with_udp(SECOND, 1_000, 4_000_000);
    let mut world = observed(spec);
    world.run_until(7 * SECOND + 500 * MILLI);
    assert_sound(&world);
    let flow = world.flow(0);
    (flow.sent, flow.delivered)
}

#[test]
fn udp_is_repaired_by_rule() {
    let (sent, came) = delivered(true);
    assert!(sent > 2_000 && came as f64 >= 0.995 * sent as f64, "{came} of {sent}");
    let (sent, came) = delivered(false);
    let share = came as f64 / sent as f64;
    assert!((0.92..0.97).contains(&share), "{came} of {sent}");
}
