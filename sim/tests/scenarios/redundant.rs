//! Voice in copies: packets of priority `redundant` over two paths that lose and jitter.

use core::time::Duration;

use crate::common::{assert_sound, both, client_and_gateway, link, observed};
use mpip_core::{Copies, Priority, Rule};
use mpip_link::{LinkConfig, Loss};
use mpip_sim::clock::{Nanos, SECOND};
use mpip_sim::traffic::quantile;

/// Bytes of a packet of voice, and the rate of one every 20 ms.
const BYTES: usize = 200;
const RATE: u64 = 50 * BYTES as u64 * 8;

/// What became of a call: the share of its packets that was lost, the 99th percentile of their
/// delay, and the copies sent per packet.
struct Call {
    lost: f64,
    delay: Nanos,
    copies: f64,
}

/// Two minutes of voice by the first `paths` of two that lose 5 % and delay by 20 and 25 ms, give
/// or take 30 ms.
fn call(paths: usize, rules: &[Rule]) -> Call {
    let path = |delay| LinkConfig {
        loss: Loss::Random(0.05),
        jitter: Duration::from_millis(30),
        ..link(10, delay, 100)
    };
    let all = [both(path(20)), both(path(25))];
    let spec = client_and_gateway(7, &all[..paths])
        .with_engines(|engine| engine.rules = rules.to_vec())
        .lasting(121 * SECOND)
        .with_udp(SECOND, BYTES, RATE);
    let mut world = observed(spec);
    world.run_until(122 * SECOND);
    assert_sound(&world);
    let flow = world.flow(0);
    assert!(flow.sent > 5_900, "{} packets", flow.sent);
    let status = world.status(0).expect("an engine");
    let copied = status.peers[0].copied;
    Call {
        lost: 1.0 - flow.delivered as f64 / flow.sent as f64,
        delay: quantile(&flow.delays, 0.99).expect("packets arrived"),
        copies: copied as f64 / (flow.sent * BYTES as u64) as f64,
    }
}

fn rule(priority: Priority, copies: Copies) -> [Rule; 1] {
    [Rule { protocol: Some(17), priority: Some(priority), copies, ..Rule::default() }]
}

#[test]
fn copies_on_two_lossy_paths_lose_little_and_are_as_fast_as_the_better_path_alone() {
    let better = call(1, &[]);
    assert!((0.04..0.06).contains(&better.lost), "{} lost on one path", better.lost);
    let single = call(2, &rule(Priority::Response, Copies::default()));
    assert!((0.04..0.06).contains(&single.lost), "{} lost without copies", single.lost);
    assert!(single.copies == 0.0);
    for copies in [Copies::Fixed(2), Copies::Adaptive] {
        let voice = call(2, &rule(Priority::Redundant, copies));
        assert!(voice.lost <= 0.004, "{copies:?}: {} lost", voice.lost);
        assert!(voice.delay <= better.delay, "{copies:?}: {} of {}", voice.delay, better.delay);
        assert!((0.9..=1.0).contains(&voice.copies), "{copies:?}: {} copies", voice.copies);
    }
}
