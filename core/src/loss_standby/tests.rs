use proptest::prelude::*;

use super::*;

/// Paths that send and lose, and how often something changed.
struct World {
    standby: LossStandby,
    now: Instant,
    views: Vec<LossView>,
    changes: usize,
}

const GOOD: LossView = LossView {
    id: 0,
    threshold: Some(10_000),
    active: true,
    free: true,
    sent: 0,
    lost: 0,
    queued: false,
    rtt: Duration::from_millis(20),
};

impl World {
    /// Two paths with a threshold of 1 %.
    fn new() -> Self {
        let second = LossView { id: 1, ..GOOD };
        Self {
            standby: LossStandby::default(),
            now: Instant::from_millis(1_000),
            views: vec![GOOD, second],
            changes: 0,
        }
    }

    /// For `seconds` each path sends `rate` packets/s, those on standby 40, and loses one of
    /// `one_of` (0: none), in turn.
    fn run(&mut self, seconds: u64, rate: u64, one_of: [u64; 2]) {
        self.steps(seconds * 10, rate, one_of);
    }

    /// The same for so many periods.
    fn steps(&mut self, periods: u64, rate: u64, one_of: [u64; 2]) {
        for _ in 0..periods {
            self.now += PERIOD;
            for (view, one_of) in self.views.iter_mut().zip(one_of) {
                let held = self.standby.holds(view.id);
                let before = view.sent.checked_div(one_of).unwrap_or(0);
                view.sent += if held { 4 } else { rate / 10 };
                view.lost += view.sent.checked_div(one_of).unwrap_or(0) - before;
                view.active = !held;
            }
            self.changes += usize::from(self.standby.on_period(
                self.now,
                &self.views,
                &LossStandbyParameters::default(),
            ));
        }
    }

    fn held(&self) -> Vec<u16> {
        self.views.iter().map(|view| view.id).filter(|id| self.standby.holds(*id)).collect()
    }
}

#[test]
fn a_path_whose_loss_reaches_the_threshold_is_on_standby_until_it_is_below() {
    let mut world = World::new();
    world.run(5, 1_000, [0, 0]);
    assert_eq!(world.held(), [0_u16; 0]);
    world.run(1, 1_000, [0, 10]);
    assert_eq!(world.held(), [1]);
    let figures = world.standby.figures(1).expect("it is held");
    assert!(figures.loss >= 0.01 && figures.threshold == 0.01, "{figures:?}");
    assert_eq!((figures.needed, figures.returns_below), (80, 0.005));
    world.run(30, 1_000, [0, 10]);
    assert_eq!((world.held(), world.changes), (vec![1], 1), "probes are lost, too");
    world.run(3, 1_000, [0, 0]);
    assert_eq!((world.held(), world.changes), (vec![], 2));
    let figures = world.standby.figures(1).expect("it has returned");
    assert_eq!(figures.loss, 0.0);
}

#[test]
fn loss_below_the_threshold_changes_nothing() {
    let mut world = World::new();
    world.run(5, 1_000, [0, 0]);
    world.run(60, 1_000, [0, 150]);
    assert_eq!((world.held(), world.changes), (vec![], 0));
}

#[test]
fn a_threshold_below_one_packet_of_the_window_has_a_longer_one() {
    // 0.01 %: a loss of 0.005 % is one packet of 20,000.
    let mut world = World::new();
    world.views[1].threshold = Some(100);
    world.run(19, 1_000, [0, 0]);
    world.run(20, 1_000, [0, 20_000]);
    assert_eq!(world.held(), [0_u16; 0], "one of the last 10,000 is not reached");
    world.run(20, 1_000, [0, 5_000]);
    assert_eq!(world.held(), [1]);
}

#[test]
fn of_few_packets_one_loss_decides_nothing() {
    let mut world = World::new();
    world.run(60, 10, [0, 30]);
    assert_eq!(world.held(), [1], "as soon as there are a hundred");
    let mut world = World::new();
    world.run(9, 10, [0, 30]);
    assert_eq!(world.held(), [0_u16; 0]);
}

#[test]
fn what_a_full_queue_drops_does_not_count() {
    let mut world = World::new();
    world.views[1].queued = true;
    world.run(30, 1_000, [0, 10]);
    assert_eq!(world.held(), [0_u16; 0]);
    world.views[1].queued = false;
    world.run(1, 1_000, [0, 10]);
    assert_eq!(world.held(), [1]);
    // A queue for a moment in each second, which takes two round trips to forget.
    let mut world = World::new();
    world.views[1].rtt = Duration::from_millis(450);
    for _ in 0..30 {
        world.views[1].queued = true;
        world.steps(1, 1_000, [0, 10]);
        world.views[1].queued = false;
        world.steps(9, 1_000, [0, 10]);
    }
    assert_eq!(world.held(), [0_u16; 0]);
}

#[test]
fn losses_that_were_none_are_counted_back() {
    let mut world = World::new();
    world.views[1].threshold = Some(50_000);
    world.run(1, 1_000, [0, 25]);
    world.views[1].lost -= 40;
    world.run(1, 1_000, [0, 0]);
    assert_eq!(world.held(), [0_u16; 0]);
    assert!(world.standby.entries[1].window.share() < 0.001);
}

#[test]
fn the_last_usable_path_stays_and_of_two_the_better_one() {
    let mut world = World::new();
    world.run(30, 1_000, [20, 10]);
    assert_eq!(world.held(), [1]);
    // The other one is taken away.
    let mut world = World::new();
    world.views[0].free = false;
    world.run(30, 1_000, [0, 10]);
    assert_eq!(world.held(), [0_u16; 0]);
}

#[test]
fn a_path_without_a_threshold_is_not_judged() {
    let mut world = World::new();
    world.views[1].threshold = None;
    world.run(30, 1_000, [0, 5]);
    assert_eq!(world.held(), [0_u16; 0]);
}

#[test]
fn without_its_threshold_a_path_returns_at_once() {
    let mut world = World::new();
    world.run(2, 1_000, [0, 10]);
    assert_eq!(world.held(), [1]);
    world.views[1].threshold = None;
    world.run(1, 1_000, [0, 10]);
    assert_eq!(world.held(), [0_u16; 0]);
    assert_eq!(world.standby.figures(1), None, "it was not for its loss");
}

#[test]
fn a_path_that_relapses_soon_needs_longer_each_time() {
    let mut world = World::new();
    let mut needed = Vec::new();
    for _ in 0..9 {
        while world.held().is_empty() {
            world.run(1, 1_000, [0, 10]);
        }
        needed.push(world.standby.figures(1).expect("it is held").needed);
        while !world.held().is_empty() {
            world.run(1, 1_000, [0, 0]);
        }
    }
    assert_eq!(needed, [80, 160, 320, 640, 1_280, 2_560, 4_096, 4_096, 4_096]);
    world.run(11, 1_000, [0, 0]);
    world.run(1, 1_000, [0, 10]);
    assert_eq!(world.standby.figures(1).expect("it is held").needed, 80, "it was good for long");
}

#[test]
fn a_high_threshold_is_met_again_with_some_loss() {
    let mut world = World::new();
    world.views[1].threshold = Some(200_000);
    world.run(2, 1_000, [0, 4]);
    assert_eq!(world.held(), [1]);
    world.run(10, 1_000, [0, 8]);
    assert_eq!(world.held(), [1], "12.5 % is not below half of 20 %");
    world.run(10, 1_000, [0, 20]);
    assert_eq!(world.held(), [0_u16; 0]);
}

#[test]
fn shares_are_shown_with_two_digits_that_count() {
    for (share, text) in [
        (0.1, "10 %"),
        (0.102_4, "10 %"),
        (0.015_3, "1.5 %"),
        (0.01, "1 %"),
        (0.000_1, "0.01 %"),
        (0.000_001, "0.0001 %"),
        (0.0, "0 %"),
        (1.0, "100 %"),
    ] {
        assert_eq!(Percent(share).to_string(), text);
    }
}

proptest! {
    #[test]
    fn one_path_at_least_is_never_on_standby_and_memory_is_bounded(
        steps in prop::collection::vec(
            (0_u64..300, prop::array::uniform3(0_u64..60), any::<[bool; 3]>()), 1..300),
        thresholds in prop::array::uniform3(prop::option::of(0_u32..500_000)),
    ) {
        let mut world = World::new();
        world.views.push(LossView { id: 2, ..GOOD });
        for (sent, lost, free) in steps {
            world.now += PERIOD;
            for (index, view) in world.views.iter_mut().enumerate() {
                view.threshold = thresholds[index];
                view.active = !world.standby.holds(view.id);
                view.free = free[index];
                view.sent += sent;
                view.lost += lost[index].min(sent);
            }
            world.standby.on_period(world.now, &world.views, &LossStandbyParameters::default());
            prop_assert!(world.held().len() < 3);
            for entry in &world.standby.entries {
                prop_assert!(entry.window.periods.len() <= 620);
                prop_assert!(entry.needed <= 4_096);
            }
        }
    }
}
