//! Runs worlds by their seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::invariant::{Invariant, Violation, check_harm};
use crate::random::random_world;
use crate::spec::WorldSpec;
use crate::world::{Observe, World};

/// The result of a world.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Violated invariants; empty on success.
    pub violations: Vec<Violation>,
    /// Inner packets given to the nodes.
    pub sent: u64,
    /// Inner packets delivered.
    pub delivered: u64,
    /// Virtual time at the end, ns.
    pub end: u64,
    /// See [`World::goodput`].
    pub goodput: u64,
    /// The same with a silent hostile node, if that was run.
    pub alone: Option<u64>,
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
        let violations = world.violations().to_vec();
        let (end, goodput) = (world.now(), world.goodput());
        Outcome { violations, sent, delivered, end, goodput, alone: None }
    }));
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let detail = text.unwrap_or("a panic without a text").to_owned();
        let violation = Violation { at: 0, host: 0, invariant: Invariant::NoPanic, detail };
        Outcome { violations: vec![violation], ..Outcome::default() }
    })
}

/// Runs the random world of `seed`. Every second one with a hostile node is run again with that
/// node silent, and the bytes delivered by honest nodes are compared.
pub fn run_seed(seed: u64, trace: bool) -> Outcome {
    let spec = random_world(seed);
    let silenced = if seed.is_multiple_of(2) { spec.clone().silenced() } else { None };
    let mut outcome = run(spec, trace);
    if let Some(silenced) = silenced {
        let alone = run(silenced, false).goodput;
        outcome.alone = Some(alone);
        if let Err((invariant, detail)) = check_harm(outcome.goodput, alone) {
            let violation = Violation { at: outcome.end, host: 0, invariant, detail };
            outcome.violations.push(violation);
        }
    }
    outcome
}

/// Runs the random world of `seed` after `prepare` has changed it, to trace its engines.
pub fn run_seed_prepared(seed: u64, trace: bool, prepare: impl FnOnce(&mut World)) -> Outcome {
    run_prepared(random_world(seed), trace, prepare)
}

/// Instructions to reproduce a failure, for the message of a test.
pub fn failure_text(seed: u64, outcome: &Outcome) -> String {
    let mut text =
        format!("world {seed} broke (cargo run -p mpip-sim --example worlds -- --seed {seed}):");
    for violation in outcome.violations.iter().take(4) {
        text.push_str(&format!("\n  {violation}"));
    }
    text
}
