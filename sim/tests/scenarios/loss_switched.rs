//! A path whose loss switches between 0 and 10 % each 15 s (seed 003: each 30 s), beside a good
//! one: what each loss policy carries, compared with using the path always and never.
//!
//! ```text
//! cargo test -p mpip-sim --test scenarios loss_switched -- --nocapture
//! ```
//!
//! prints the table.

use crate::common::{both, link};
use mpip_core::{CongestionControlKind, Event, LossPolicy, SchedulerKind};
use mpip_link::{Change, Loss};
use mpip_sim::clock::{Nanos, SECOND};
use mpip_sim::measure::{LossRule, Scenario, Subject, WARM_UP, world};
use mpip_sim::spec::{Action, TcpControl, WorldSpec};
use mpip_sim::world::{Observe, World};

const PHASE: Nanos = 15 * SECOND;
const PHASES: u64 = 3;
/// Time after a switch that does not count.
const SETTLE: Nanos = 3 * SECOND;
/// 1 % on the path that loses.
const RULE: LossRule = LossRule { policy: LossPolicy::Threshold, thresholds: &[10_000, 10_000] };

fn mpip(congestion_control: CongestionControlKind, loss: LossRule) -> Subject {
    Subject::Mpip { scheduler: SchedulerKind::Earliest, congestion_control, loss }
}

/// 20 Mbit/s each: path 0 of 40 ms, path 1 of 20 ms, which loses a tenth in every second phase.
fn spec(subject: Subject, single: bool) -> WorldSpec {
    let mut paths = vec![both(link(20, 20, 100)), both(link(20, 10, 100))];
    paths.truncate(if single { 1 } else { 2 });
    let scenario = Scenario {
        paths,
        sender: TcpControl::CUBIC.into(),
        duration: PHASES * PHASE,
        from: 0,
        seed: 1,
    };
    let mut spec = world(&scenario, subject);
    for phase in (1..PHASES).filter(|_| !single) {
        let loss = if phase % 2 == 1 { Loss::Random(0.1) } else { Loss::None };
        let change = Change { loss: Some(loss), ..Change::default() };
        for link in [2, 3] {
            let change = change.clone();
            spec = spec.at(WARM_UP + phase * PHASE, Action::Link { link, change });
        }
    }
    spec
}

/// Mbit/s in each phase from [`SETTLE`] on, and the changes of path 1 for its loss: when, s of the
/// transfer, and the state.
fn run(spec: WorldSpec) -> (Vec<f64>, Vec<(f64, String)>) {
    let mut world = World::new(spec, Observe::default());
    let phases = (0..PHASES).map(|phase| {
        world.run_until(WARM_UP + phase * PHASE + SETTLE);
        let before = world.flow(0).bytes;
        world.run_until(WARM_UP + (phase + 1) * PHASE);
        (world.flow(0).bytes - before) as f64 * 8e3 / (PHASE - SETTLE) as f64
    });
    let phases = phases.collect();
    let found: Vec<_> = world.violations().iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{found:#?}");
    let changes = world.events(0).iter().filter_map(|(at, event)| match event {
        Event::Path { loss: Some(_), to, .. } => {
            Some(((*at as f64 - WARM_UP as f64) / SECOND as f64, to.name().to_owned()))
        }
        _ => None,
    });
    (phases, changes.collect())
}

/// Mbit/s in each phase with path 1 always, never, as measured and by the threshold.
struct Table {
    always: Vec<f64>,
    never: Vec<f64>,
    measured: Vec<f64>,
    threshold: Vec<f64>,
}

impl Table {
    fn of(control: CongestionControlKind) -> Self {
        let policy = |policy| mpip(control, LossRule { policy, thresholds: &[] });
        let (threshold, changes) = run(spec(mpip(control, RULE), false));
        let table = Self {
            always: run(spec(policy(LossPolicy::Off), false)).0,
            never: run(spec(policy(LossPolicy::Off), true)).0,
            measured: run(spec(policy(LossPolicy::Measured), false)).0,
            threshold,
        };
        println!("{control}: Mbit/s from 3 s of each phase on");
        println!("{:<16} {:>6}  {:>6}  {:>6}", "loss on path 1", "0 %", "10 %", "0 %");
        for (name, phases) in [
            ("always", &table.always),
            ("never", &table.never),
            ("measured", &table.measured),
            ("threshold", &table.threshold),
        ] {
            let cells: Vec<String> = phases.iter().map(|mbits| format!("{mbits:6.2}")).collect();
            println!("{name:<16} {}", cells.join("  "));
        }
        println!("path 1 by the threshold: {changes:?}");
        table
    }

    /// What the better of always and never carries in `phase`.
    fn better(&self, phase: usize) -> f64 {
        self.always[phase].max(self.never[phase])
    }
}

/// The default. It repairs what is lost, so that a path that loses a tenth is worth its packets.
#[test]
fn with_bbr_the_measured_policy_is_as_good_as_the_better_of_always_and_never() {
    let table = Table::of(CongestionControlKind::Bbr);
    for phase in 0..PHASES as usize {
        assert!(table.measured[phase] >= 0.95 * table.better(phase), "phase {phase}");
    }
    // The threshold gives the path up, as it is to.
    for (phase, least) in [(0, table.always[0]), (1, table.never[1]), (2, table.always[2])] {
        assert!(table.threshold[phase] >= 0.95 * least, "phase {phase}");
    }
}

/// What the seed used. The threshold gives up the little that a path with 10 % loss carries, and
/// the first seconds after the loss has ended.
#[test]
fn with_balia_either_policy_is_as_good_as_the_better_of_always_and_never() {
    let table = Table::of(CongestionControlKind::Balia);
    for phase in 0..PHASES as usize {
        let better = table.better(phase);
        assert!(table.measured[phase] >= 0.95 * better, "phase {phase}");
        assert!(table.threshold[phase] >= 0.92 * better, "phase {phase}");
    }
}
