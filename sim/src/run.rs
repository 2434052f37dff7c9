//! Running worlds by their seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::invariant::{Invariant, Violation};
use crate::random::random_world;
use crate::spec::WorldSpec;
use crate::world::{Observe, World};

/// What a world came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What did not hold; empty when all is well.
    pub violations: Vec<Violation>,
    /// Inner packets given to the nodes.
    pub sent: u64,
    /// Inner packets delivered.
    pub delivered: u64,
    /// Virtual time at the end, ns.
    pub end: u64,
}

/// Runs a world to its end. A panic of the engine becomes a violation (where panics unwind).
/// With `trace` every packet and event is written to standard error.
pub fn run(spec: WorldSpec, trace: bool) -> Outcome {
    run_prepared(spec, trace, |_| {})
}

fn run_prepared(spec: WorldSpec, trace: bool, prepare: impl FnOnce(&mut World)) -> Outcome {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(spec, Observe { packets: true, ..Observe::default() });
        if trace {
            world.trace_to_stderr();
        }
        prepare(&mut world);
        world.finish();
        let (sent, delivered) = world.packets();
        Outcome { violations: world.violations().to_vec(), sent, delivered, end: world.now() }
    }));
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let detail = text.unwrap_or("a panic without a text").to_owned();
        let violation = Violation { at: 0, host: 0, invariant: Invariant::NoPanic, detail };
        Outcome { violations: vec![violation], ..Outcome::default() }
    })
}

/// Runs the random world of `seed`.
pub fn run_seed(seed: u64, trace: bool) -> Outcome {
    run(random_world(seed), trace)
}

/// Runs the random world of `seed` after `prepare` has had it, to trace what its engines do.
pub fn run_seed_prepared(seed: u64, trace: bool, prepare: impl FnOnce(&mut World)) -> Outcome {
    run_prepared(random_world(seed), trace, prepare)
}

/// How to see a failure again, for the message of a test.
pub fn failure_text(seed: u64, outcome: &Outcome) -> String {
    let mut text = format!("world {seed} broke (cargo run -p mpip-sim -- --seed {seed}):");
    for violation in outcome.violations.iter().take(4) {
        text.push_str(&format!("\n  {violation}"));
    }
    text
}
