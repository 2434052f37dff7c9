//! The only address of a host is replaced by another one: how long a transfer waits.
//!
//! ```text
//!  alice ══ 20 Mbit/s ══ bob        at 4 s one of them loses its address, and has another later
//! ```
//!
//! The node with the new address sends a first flight along with its path challenge. The other node
//! answers with as many bytes as it received. So a move of the responder costs the opener's
//! transfer one round trip: the challenge has to arrive, and a packet has to come back. When the
//! opener moves, its window is full, and the acknowledgements that would open it were lost with the
//! old address. So its packets have to arrive, acknowledgements have to come back, and new data has
//! to arrive: one and a half round trips. No exchange of the nodes could be faster.

use crate::common::{assert_sound, both, client_and_gateway, link, observed};
use mpip_sim::clock::{MILLI, Nanos, SECOND};
use mpip_sim::spec::{Action, outer_address};

/// When the old address goes.
const GONE: Nanos = 4 * SECOND;

/// Time in ms from the new address of `host` until the receiver gets more data. The new address
/// comes `gap` ms after the loss of the old one. The link has a delay of `delay` ms.
fn pause(host: usize, delay: u64, gap: u64) -> u64 {
    let spec = client_and_gateway(delay + gap, &[both(link(20, delay, 200))]);
    let interface = spec.interface(host, 0);
    let [old, new] = [0, 1].map(|generation| outer_address(host, 0, generation, false));
    let back = GONE + gap * MILLI;
    let spec = spec
        .lasting(8 * SECOND)
        .at(GONE, Action::RemoveAddress { interface, address: old })
        .at(back, Action::AddAddress { interface, address: new })
        // More than is on its way, less than what is called a queue.
        .with_bulk(SECOND, 400 << 10);
    let mut world = observed(spec);
    world.run_until(back);
    let before = world.flow_bytes(0);
    let mut now = back;
    while world.flow_bytes(0) == before && now < 8 * SECOND {
        now += MILLI;
        world.run_until(now);
    }
    world.finish();
    assert_sound(&world);
    (now - back) / MILLI
}

/// [F-11] [P-28] [P-29]
#[test]
fn a_transfer_goes_on_within_one_and_a_half_round_trips() {
    for gap in [300, 900, 1_500] {
        for delay in [5, 50, 100] {
            let [opener, other] = [0, 1].map(|host| pause(host, delay, gap));
            let case = format!("{delay} ms either way, new address after {gap} ms");
            // And a packet at the pace of a first window.
            assert!(opener <= 3 * delay + delay / 13 + 5, "opener, {case}: {opener} ms");
            assert!(other <= 2 * delay + 5, "other, {case}: {other} ms");
        }
    }
}
