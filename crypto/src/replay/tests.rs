use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Every committed number, searched.
#[derive(Default)]
struct Model {
    received: BTreeSet<u64>,
}

impl Model {
    fn commit(&mut self, number: u64) -> Result<(), Replay> {
        if let Some(&largest) = self.received.last()
            && largest.saturating_sub(number) >= ReplayWindow::SIZE
        {
            return Err(Replay::TooOld { largest });
        }
        if self.received.insert(number) { Ok(()) } else { Err(Replay::Duplicate) }
    }
}

/// What the next number is, seen from the largest so far.
#[derive(Debug, Clone, Copy)]
enum Step {
    Ahead(u64),
    Behind(u64),
    At(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = ReplayWindow::SIZE;
    let step = prop_oneof![
        6 => (0..4u64).prop_map(Step::Ahead),
        6 => (0..200u64).prop_map(Step::Behind),
        2 => (size - 130..size + 130).prop_map(Step::Behind),
        2 => (0..2 * size).prop_map(Step::Ahead),
        2 => (size - 130..size + 130).prop_map(Step::Ahead),
        1 => any::<u64>().prop_map(Step::Ahead),
        1 => any::<u64>().prop_map(Step::At),
        1 => (0..size).prop_map(|below| Step::At(u64::MAX - below)),
        1 => (0..70u64).prop_map(Step::At),
    ];
    proptest::collection::vec(step, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn decides_as_the_model_does(steps in steps()) {
        let (mut window, mut model) = (ReplayWindow::new(), Model::default());
        for step in steps {
            let largest = model.received.last().copied().unwrap_or(0);
            let number = match step {
                Step::Ahead(by) => largest.saturating_add(by),
                Step::Behind(by) => largest.saturating_sub(by),
                Step::At(number) => number,
            };
            let expected = model.commit(number);
            prop_assert_eq!(window.check(number), expected, "check of {} at {}", number, largest);
            prop_assert_eq!(window.commit(number), expected, "commit of {} at {}", number, largest);
            prop_assert_eq!(window.largest(), model.received.last().copied());
        }
    }
}

#[test]
fn a_new_window_accepts_any_number_once() {
    for number in [0, 1, 63, 64, ReplayWindow::SIZE, u64::MAX - 1, u64::MAX] {
        let mut window = ReplayWindow::new();
        assert_eq!(window.largest(), None);
        assert_eq!(window.check(number), Ok(()));
        assert_eq!(window.commit(number), Ok(()));
        assert_eq!(window.check(number), Err(Replay::Duplicate));
        assert_eq!(window.commit(number), Err(Replay::Duplicate));
        assert_eq!(window.largest(), Some(number));
    }
}

#[test]
fn the_whole_window_below_the_largest_is_open_and_nothing_beyond_it() {
    for largest in (100_000..100_130).chain([u64::MAX - 1, u64::MAX]) {
        let mut window = ReplayWindow::new();
        window.commit(largest).unwrap();
        let lowest = largest - (ReplayWindow::SIZE - 1);
        assert_eq!(window.check(lowest - 1), Err(Replay::TooOld { largest }));
        assert_eq!(window.commit(lowest - 1), Err(Replay::TooOld { largest }));
        for number in lowest..largest {
            assert_eq!(window.commit(number), Ok(()));
        }
        for number in lowest..=largest {
            assert_eq!(window.check(number), Err(Replay::Duplicate));
        }
    }
}

#[test]
fn a_check_alone_changes_nothing() {
    let mut window = ReplayWindow::new();
    window.commit(10).unwrap();
    for number in [5, 11, u64::MAX, 5, 11] {
        assert_eq!(window.check(number), Ok(()));
    }
    assert_eq!(window.largest(), Some(10));
}

#[test]
fn a_window_is_at_least_16384_wide_and_of_the_documented_size() {
    const { assert!(ReplayWindow::SIZE >= 16_384) };
    assert_eq!(size_of::<ReplayWindow>() + size_of::<[u64; WORDS]>(), 2_080);
}

#[test]
fn a_full_window_that_moves_on_forgets_nothing_and_invents_nothing() {
    let size = ReplayWindow::SIZE;
    let ring = WORDS as u64 * WORD_BITS;
    for jump in [1, 2, 63, 64, 65, 1000, size - 1, size, ring - 64, ring - 1, ring, ring + 1] {
        let mut window = ReplayWindow::new();
        // Odd, so that word boundaries and window boundaries differ.
        let full = 3 * ring + 37;
        for number in 0..full {
            assert_eq!(window.commit(number), Ok(()), "in order");
        }
        let largest = full - 1 + jump;
        window.commit(largest).unwrap();
        for number in largest - (size - 1)..largest {
            let expected = if number < full { Err(Replay::Duplicate) } else { Ok(()) };
            assert_eq!(window.commit(number), expected, "{number} after a jump of {jump}");
        }
    }
}
