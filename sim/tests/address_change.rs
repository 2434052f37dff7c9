//! The only address of a host is replaced by another one: how long a transfer waits.
//!
//! ```text
//!  alice ══ 20 Mbit/s ══ bob        at 4 s one of them loses its address, and has another later
//! ```
//!
//! A path is validated one round trip after the new address can be used where the opener has it, and
//! one and a half where the other node has it, which the opener challenges as well. Then the opener's
//! packets take half a round trip. A sender whose window is full waits for the acknowledgements that
//! were lost with the old address, which is another round trip.

mod common;

use common::{assert_sound, both, client_and_gateway, link, observed};
use mpip_sim::clock::{MILLI, Nanos, SECOND};
use mpip_sim::spec::{Action, outer_address};

/// When the old address goes.
const GONE: Nanos = 4 * SECOND;

/// From the new address of `host` on until the receiver gets more, ms. The new address comes `gap` ms
/// after the old one has gone; the link has a delay of `delay` ms.
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

/// [F-11]
#[test]
fn a_transfer_goes_on_as_soon_as_the_new_address_is_validated() {
    for gap in [300, 900, 1_500] {
        for delay in [5, 50, 100] {
            let pauses = [0, 1].map(|host| pause(host, delay, gap));
            eprintln!("{delay} ms either way, new address after {gap} ms: {pauses:?} ms");
            assert!(pauses[0] <= 5 * delay + 10, "opener, {delay} ms, {gap} ms: {pauses:?}");
            assert!(pauses[1] <= 4 * delay + 10, "other, {delay} ms, {gap} ms: {pauses:?}");
        }
    }
}
