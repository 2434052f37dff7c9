use core::cell::Cell;

use proptest::prelude::*;

use super::*;

/// Two or more paths, a transfer that needs all of them, and a function for its rate over the paths
/// in use.
struct World<F> {
    guard: Guard,
    now: Instant,
    views: Vec<View>,
    carries: F,
    /// The minimum RTT of a sender is being raised.
    held: bool,
    verdicts: Vec<Verdict>,
}

impl<F: Fn(&[View], &[u16]) -> u64> World<F> {
    fn new(views: &[View], carries: F) -> Self {
        let now = Instant::from_millis(1_000);
        Self {
            guard: Guard::new(GuardParameters::default()),
            now,
            views: views.to_vec(),
            carries,
            held: false,
            verdicts: Vec::new(),
        }
    }

    /// Numbers of the paths that carry bulk.
    fn used(&self) -> Vec<u16> {
        let used = self.views.iter().filter(|view| view.active);
        used.map(|view| view.id).filter(|id| !self.guard.leaves_out(*id)).collect()
    }

    fn step(&mut self, load: bool) {
        let used = self.used();
        let carried = if load { (self.carries)(&self.views, &used) } else { 0 };
        for view in self.views.iter_mut().filter(|view| used.contains(&view.id)) {
            view.carried += if load { 10_000 } else { 0 };
        }
        self.now += PERIOD;
        let period = Period { left: carried / 10, new: carried / 10, load, held: self.held };
        self.guard.on_period(self.now, period, &self.views, &mut self.verdicts);
    }

    fn run(&mut self, seconds: u64) {
        (0..seconds * 10).for_each(|_| self.step(true));
    }

    /// Periods in `seconds` in which path `id` carried bulk.
    fn periods_used(&mut self, seconds: u64, id: u16) -> usize {
        let mut count = 0;
        for _ in 0..seconds * 10 {
            count += usize::from(self.used().contains(&id));
            self.step(true);
        }
        count
    }
}

const GOOD: View = View {
    id: 0,
    active: true,
    works: true,
    rate: 2_500_000,
    late: 0,
    repair: 30_000,
    lost: 0,
    carried: 0,
    searches: false,
};

/// A slower, later path that harms the transfer.
const BAD: View = View {
    id: 1,
    active: true,
    works: true,
    rate: 600_000,
    late: 100_000,
    repair: 130_000,
    lost: 0,
    carried: 0,
    searches: false,
};

fn harm(_: &[View], used: &[u16]) -> u64 {
    match used {
        [0] => 2_400_000,
        [_] => 500_000,
        [0, 2] => 4_800_000,
        _ => 1_700_000,
    }
}

/// Sum of the delivery rates of the paths in use.
fn sum(views: &[View], used: &[u16]) -> u64 {
    views.iter().filter(|view| used.contains(&view.id)).map(|view| view.rate * 95 / 100).sum()
}

#[test]
fn a_path_that_does_harm_is_left_out_within_seconds() {
    let mut world = World::new(&[GOOD, BAD], harm);
    world.run(7);
    assert_eq!(world.used(), [0]);
    assert_eq!(world.guard.part(1), Role::LeftOut);
    let [verdict] = world.verdicts[..] else { panic!("{:?}", world.verdicts) };
    assert_eq!((verdict.path, verdict.left_out), (1, true));
    assert_eq!((verdict.with, verdict.without), (1_700_000, 2_400_000));
    let figures = world.guard.figures(world.now, 1).expect("it is left out");
    assert!(!figures.carries && figures.again.is_some_and(|again| again > Duration::ZERO));
    assert_eq!((figures.with, figures.without), (13_600_000, 19_200_000), "in bits");
    assert_eq!(world.guard.figures(world.now, 0), None, "it is used");
}

#[test]
fn nothing_is_tried_while_senders_do_not_know_yet_what_the_paths_carry() {
    let mut world = World::new(&[GOOD, BAD], harm);
    while !world.guard.tries_fewer() {
        world.step(true);
    }
    world.held = true;
    for _ in 0..world.guard.parameters.held_most {
        world.step(true);
        assert_eq!(world.used(), [0, 1]);
    }
    world.run(10);
    assert_eq!(world.used(), [0], "they have had their time");
}

#[test]
fn a_path_is_judged_again_once_those_senders_are_gone() {
    let mut world = World::new(&[GOOD, BAD], harm);
    world.held = true;
    world.run(20);
    assert_eq!(world.used(), [0, 1]);
    world.held = false;
    world.run(10);
    assert_eq!(world.used(), [0]);
}

#[test]
fn a_path_whose_startup_finds_more_and_more_is_no_suspect() {
    let mut world = World::new(&[GOOD, View { searches: true, rate: 10_000, ..BAD }], harm);
    for _ in 0..6 {
        world.run(2);
        world.views[1].rate *= 2;
    }
    assert_eq!(world.used(), [0, 1]);
    world.run(12);
    assert_eq!(world.used(), [0], "it finds no more");
}

#[test]
fn startup_after_an_idle_time_is_no_reason_for_suspicion() {
    let mut world = World::new(&[GOOD, View { searches: true, rate: 10_000, ..BAD }], harm);
    (0..100).for_each(|_| world.step(false));
    world.run(2);
    world.views[1].rate *= 2;
    world.run(2);
    assert_eq!(world.used(), [0, 1]);
    world.run(12);
    assert_eq!(world.used(), [0], "it finds no more");
}

/// A light stream, and then a transfer beside it: in its first period the paths turn out to deliver
/// far more than all have carried until then.
#[test]
fn a_transfer_that_begins_beside_a_light_stream_starts_no_trial() {
    let mut world =
        World::new(
            &[GOOD, BAD],
            |views, _| if views[0].rate > 200_000 { 2_900_000 } else { 120_000 },
        );
    for (view, rate) in world.views.iter_mut().zip([120_000, 10_000]) {
        view.rate = rate;
    }
    world.run(5);
    for (view, known) in world.views.iter_mut().zip([GOOD, BAD]) {
        view.rate = known.rate;
    }
    for _ in 0..100 {
        world.step(true);
        assert_eq!(world.used(), [0, 1]);
    }
}

/// The paths are known from before, and a transfer with a constant one of these rates would lead to
/// a trial.
#[test]
fn a_transfer_that_grows_starts_no_trial() {
    let rate = Cell::new(300_000);
    let mut world = World::new(&[GOOD, BAD], |_, _| rate.get());
    for _ in 0..60 {
        world.step(true);
        rate.set((rate.get() * 105 / 100).min(2_900_000));
        assert!(!world.guard.tries_fewer(), "at {} bytes per second", rate.get());
    }
}

/// What is left in flight when no transfer sends is that of other packets, such as pings.
#[test]
fn pings_before_and_after_a_transfer_are_no_evidence() {
    let mut world = World::new(&[GOOD, BAD], harm);
    let pings = Period { load: true, ..Period::default() };
    for _ in 0..100 {
        world.now += PERIOD;
        world.guard.on_period(world.now, pings, &world.views, &mut world.verdicts);
    }
    assert_eq!((world.guard.loaded, world.guard.counts.len()), (0, 0));
    world.run(1);
    assert!(!world.guard.counts.is_empty());
    for _ in 0..=world.guard.parameters.stall {
        world.now += PERIOD;
        world.guard.on_period(world.now, pings, &world.views, &mut world.verdicts);
    }
    assert_eq!((world.guard.loaded, world.guard.counts.len()), (0, 0));
}

#[test]
fn a_path_left_out_for_a_trial_may_return() {
    let mut world = World::new(&[GOOD, BAD], harm);
    let mut trial = 0;
    for _ in 0..70 {
        world.step(true);
        let excluded = world.guard.part(1) == Role::ExcludedForTrial;
        trial += u32::from(excluded);
        assert_eq!(world.guard.tries_fewer(), excluded);
    }
    assert!((10..=40).contains(&trial), "{trial}");
    assert!(world.guard.is_narrow());
}

#[test]
fn a_path_that_is_left_out_is_tried_again_after_pauses_that_double() {
    let mut world = World::new(&[GOOD, BAD], harm);
    world.run(7);
    let mut trials = Vec::new();
    let mut used = false;
    for _ in 0..9_000 {
        world.step(true);
        assert!(!world.guard.tries_fewer(), "only what is left out is tried");
        let uses = world.used().contains(&1);
        if uses && !used {
            trials.push(world.now.as_micros() / 1_000_000);
        }
        used = uses;
    }
    let pauses: Vec<u64> = trials.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.len() >= 4, "{trials:?}");
    let expected = [40, 80, 160, 300];
    assert!(pauses.iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 3), "{pauses:?}");
    // Each cost a second or so.
    world.verdicts.clear();
    assert!(world.periods_used(600, 1) <= 60);
}

#[test]
fn a_path_that_became_good_is_used_again_at_once() {
    let mut world = World::new(&[GOOD, BAD], |views, used| {
        if views[1].late < 50_000 { sum(views, used) } else { harm(views, used) }
    });
    world.run(7 + 15);
    assert_eq!(world.used(), [0]);
    world.run(12);
    world.views[1].late = 10_000;
    world.run(8);
    assert_eq!(world.used(), [0, 1]);
    assert_eq!(world.verdicts.last().map(|verdict| verdict.left_out), Some(false));
    assert_eq!(world.periods_used(100, 1), 1_000);
}

#[test]
fn losses_that_end_are_a_reason_to_use_a_path_again() {
    let lossy = View { late: 20_000, repair: 200_000, ..BAD };
    let mut world = World::new(&[GOOD, lossy], |views, used| {
        if views[1].repair == 0 { sum(views, used) } else { harm(views, used) }
    });
    for _ in 0..200 {
        world.views[1].lost += 1;
        world.step(true);
    }
    assert_eq!(world.used(), [0]);
    // From now on nothing is lost, so that nothing has to be repaired.
    world.views[1].repair = 0;
    world.run(18);
    assert_eq!(world.used(), [0, 1]);
}

#[test]
fn all_paths_are_used_at_once_when_a_good_one_goes_or_becomes_slow() {
    let mut world = World::new(&[GOOD, BAD], harm);
    world.run(7);
    (world.views[0].active, world.views[0].works) = (false, false);
    world.step(true);
    assert_eq!((world.used(), world.guard.is_narrow()), (vec![1], false));
    assert_eq!(world.verdicts.last().map(|verdict| verdict.left_out), Some(false));

    let mut world = World::new(&[GOOD, BAD], |views, used| {
        if views[0].rate < 1_000_000 { sum(views, used) } else { harm(views, used) }
    });
    world.run(7);
    world.views[0].rate = 500_000;
    world.run(1);
    assert_eq!(world.used(), [0, 1]);
    world.run(60);
    assert_eq!(world.used(), [0, 1]);
}

#[test]
fn a_dear_path_that_is_not_needed_any_more_is_none_that_failed() {
    let mut world = World::new(&[GOOD, BAD, View { id: 2, ..GOOD }], harm);
    world.run(7);
    assert_eq!(world.used(), [0, 2]);
    world.views[2].active = false;
    (0..20).for_each(|_| world.step(false));
    assert_eq!(world.used(), [0]);
    world.views[2].active = true;
    world.run(1);
    assert_eq!(world.used(), [0, 2]);
}

#[test]
fn nothing_is_tried_while_the_paths_add_up() {
    let later = View { id: 1, late: 250_000, repair: 600_000, ..GOOD };
    let mut world = World::new(&[GOOD, later, View { id: 2, ..BAD }], sum);
    for id in [1, 2] {
        assert_eq!(world.periods_used(300, id), 3_000);
    }
    assert!(world.verdicts.is_empty());
}

#[test]
fn a_sender_that_measures_its_rtt_is_no_reason_for_a_trial() {
    let period = Cell::new(0);
    let carries = |_: &[View], used: &[u16]| {
        period.set(period.get() + 1);
        let share = match period.get() % 100 {
            50..53 => 10,
            53..62 => 65,
            _ => 100,
        };
        share * if used == [0] { 24_000 } else { 25_000 }
    };
    let mut world = World::new(&[GOOD, BAD], carries);
    world.run(60);
    assert_eq!((world.used(), world.verdicts.len()), (vec![0, 1], 0));
    assert_eq!(world.guard.failures, 0, "no trial either");
}

#[test]
fn paths_as_early_as_the_others_are_never_suspected() {
    let mut world = World::new(&[GOOD, View { id: 1, ..GOOD }], harm);
    assert_eq!(world.periods_used(300, 1), 3_000);
}

#[test]
fn a_transfer_that_asks_for_little_costs_a_trial_now_and_then() {
    let mut world = World::new(&[GOOD, BAD], |_, _| 1_000_000);
    let used = world.periods_used(1_200, 1);
    assert!(used >= 11_600, "{used}");
    assert!(world.verdicts.is_empty());
}

#[test]
fn without_load_nothing_is_tried_and_a_trial_ends() {
    let mut world = World::new(&[GOOD, BAD], harm);
    world.run(5);
    assert_eq!(world.guard.part(1), Role::ExcludedForTrial);
    (0..20).for_each(|_| world.step(false));
    assert_eq!(world.guard.part(1), Role::Used);
    (0..1_000).for_each(|_| world.step(false));
    assert_eq!(world.used(), [0, 1]);
    assert!(world.verdicts.is_empty());
}

#[test]
fn the_one_of_several_late_paths_is_found_that_does_harm() {
    // Path 1 is the latest and harmless, path 2 is not.
    let views = [GOOD, View { late: 150_000, ..BAD }, View { id: 2, late: 90_000, ..BAD }];
    let carries = |views: &[View], used: &[u16]| match used.contains(&2) {
        true => 1_200_000,
        false => sum(views, used),
    };
    let mut world = World::new(&views, carries);
    world.run(200);
    assert_eq!(world.used(), [0, 1]);
}

proptest! {
    /// Whatever happens, one path stays in use, decisions match the state, and the same input
    /// repeats the result.
    #[test]
    fn some_path_is_always_used(
        steps in prop::collection::vec(
            (0..4_u16, any::<bool>(), 0..5_000_000_u64, 0..500_000_i64, 0..3_u64, any::<bool>()),
            1..400,
        ),
    ) {
        let mut views: Vec<View> = (0..4).map(|id| View { id, ..GOOD }).collect();
        let mut guards = [Guard::new(GuardParameters::default()), Guard::new(GuardParameters::default())];
        let mut now = Instant::ZERO;
        for (id, active, rate, late, lost, load) in steps {
            let view = &mut views[usize::from(id)];
            (view.active, view.rate, view.late) = (active, rate, late);
            view.lost += lost;
            view.carried += rate / 10;
            // A change lasts for a while.
            for _ in 0..15 {
                now += PERIOD;
                let mut verdicts = [Vec::new(), Vec::new()];
                for (guard, verdicts) in guards.iter_mut().zip(&mut verdicts) {
                    let period = Period { left: rate / 20, new: rate / 30, load, held: false };
                    guard.on_period(now, period, &views, verdicts);
                }
                let [first, second] = &verdicts;
                prop_assert_eq!(first, second);
                for verdict in first {
                    let part = guards[0].part(verdict.path);
                    prop_assert_eq!(verdict.left_out, part == Role::LeftOut);
                }
                let active = views.iter().filter(|view| view.active);
                let mut used = active.clone().filter(|view| !guards[0].leaves_out(view.id));
                prop_assert!(active.count() == 0 || used.next().is_some());
            }
        }
    }
}
