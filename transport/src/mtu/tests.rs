use proptest::prelude::*;

use super::*;

const BASE: u16 = 1_228;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// Answers every probe as a path of `mtu` does, until none is asked for within a second. Returns
/// their sizes.
fn run(search: &mut Search, mtu: u16, mut now: Instant) -> Vec<u16> {
    let end = now + Duration::from_secs(1);
    let mut probes = Vec::new();
    loop {
        let Some(size) = search.poll(now) else {
            match search.next_timeout().filter(|at| *at <= end) {
                Some(at) => now = at,
                None => return probes,
            }
            continue;
        };
        probes.push(size);
        search.on_probe_sent();
        assert_eq!(search.poll(now), None, "one at a time");
        if size <= mtu {
            search.on_arrived(now, size);
        } else {
            search.on_probe_lost(now, size, 0.0);
        }
        assert!(probes.len() < 100, "{search:?}");
    }
}

/// A probe of 1,500 bytes is due at `sent`, and known to be lost at `lost`, on a path that loses
/// this share of packets.
fn lose_probe(search: &mut Search, sent: Instant, lost: Instant, loss: f64) {
    assert_eq!(search.poll(sent), Some(1_500), "{loss}");
    search.on_probe_sent();
    search.on_probe_lost(lost, 1_500, loss);
}

#[test]
fn one_probe_confirms_the_mtu_of_the_interface() {
    let mut search = Search::new(BASE, 1_500);
    assert_eq!((search.confirmed(), search.hoped(), search.lasting()), (BASE, 1_500, Some(1_500)));
    assert_eq!(run(&mut search, 1_500, at(0)), [1_500]);
    assert_eq!((search.confirmed(), search.lasting()), (1_500, Some(1_500)));
    assert_eq!(search.next_timeout(), None, "there is nothing above the interface's MTU");
}

#[test]
fn a_hole_is_found_and_tried_again_after_ten_minutes() {
    let mut search = Search::new(BASE, 1_500);
    let probes = run(&mut search, 1_300, at(0));
    assert_eq!(probes[..3], [1_500; 3], "a single loss proves nothing");
    assert!(probes.len() <= 16, "{probes:?}");
    assert_eq!(search.lasting(), Some(1_300));
    assert_eq!(search.next_timeout(), Some(at(600_000)));
    assert_eq!(search.poll(at(599_999)), None);
    assert_eq!(run(&mut search, 1_500, at(600_000)), [1_500]);
    assert_eq!(search.lasting(), Some(1_500));
}

#[test]
fn nothing_is_hoped_for_after_the_first_lost_probe() {
    let mut search = Search::new(BASE, 1_500);
    lose_probe(&mut search, at(0), at(0), 0.0);
    assert_eq!((search.hoped(), search.lasting()), (BASE, None));
}

#[test]
fn lost_large_datagrams_with_none_arriving_are_a_black_hole_if_probes_are_lost_too() {
    let mut search = Search::new(BASE, 1_500);
    run(&mut search, 1_500, at(0));
    search.on_lost(at(0), 2, 1_400);
    assert_eq!(search.poll(at(1)), None);
    search.on_lost(at(1), 1, 1_500);
    for probed in [1, 101, 201] {
        assert_eq!(search.confirmed(), 1_500, "one more chance");
        assert_eq!(search.poll(at(probed - 1)), None, "a pause, in which data may prove it");
        lose_probe(&mut search, at(probed), at(probed), 0.5);
    }
    assert_eq!((search.confirmed(), search.hoped(), search.lasting()), (BASE, BASE, None));
    run(&mut search, 1_400, at(300));
    assert_eq!(search.lasting(), Some(1_400));
}

#[test]
fn losses_of_a_path_whose_large_datagrams_arrive_are_no_black_hole() {
    let mut search = Search::new(BASE, 1_500);
    run(&mut search, 1_500, at(0));
    for _ in 0..100 {
        search.on_lost(at(1), 2, 1_500);
        search.on_arrived(at(1), 1_500);
    }
    assert_eq!(search.poll(at(1)), None);
    // Nor when the probe arrives.
    search.on_lost(at(1), 50, 1_500);
    assert_eq!(run(&mut search, 1_500, at(1)), [1_500]);
    assert_eq!(search.lasting(), Some(1_500));
}

#[test]
fn on_a_path_that_loses_much_a_size_gets_more_probes() {
    for (loss, probes) in [(0.0, 3), (0.1, 4), (0.5, 14), (1.0, 16)] {
        let mut search = Search::new(BASE, 1_500);
        search.on_arrived(at(0), 1_472);
        for _ in 0..probes {
            lose_probe(&mut search, at(0), at(0), loss);
        }
        assert_ne!(search.poll(at(0)), Some(1_500), "{loss}");
    }
}

#[test]
fn data_that_arrives_between_two_confirmations_ends_them() {
    let mut search = Search::new(BASE, 1_500);
    run(&mut search, 1_500, at(0));
    search.on_lost(at(1), 3, 1_500);
    lose_probe(&mut search, at(1), at(2), 0.5);
    search.on_arrived(at(50), 1_500);
    assert_eq!((search.poll(at(102)), search.next_timeout()), (None, None));
    assert_eq!(search.lasting(), Some(1_500));
}

/// Data is often a little shorter than the path MTU.
#[test]
fn shorter_data_that_was_lost_and_arrives_ends_confirmations_too() {
    let mut search = Search::new(BASE, 1_500);
    run(&mut search, 1_500, at(0));
    search.on_lost(at(1), 3, 1_466);
    lose_probe(&mut search, at(1), at(2), 0.5);
    search.on_arrived(at(50), 1_465);
    assert_eq!(search.next_timeout(), Some(at(102)), "that was not among the lost ones");
    search.on_arrived(at(50), 1_466);
    assert_eq!((search.poll(at(102)), search.next_timeout()), (None, None));
    assert_eq!(search.lasting(), Some(1_500));
}

#[test]
fn a_size_whose_confirmations_were_lost_by_chance_is_found_again() {
    let mut search = Search::new(BASE, 1_500);
    run(&mut search, 1_500, at(0));
    search.on_lost(at(0), 3, 1_466);
    for probed in [0, 100, 200] {
        lose_probe(&mut search, at(probed), at(probed), 0.5);
    }
    assert_eq!(search.confirmed(), BASE);
    assert_eq!(run(&mut search, 1_500, at(300)), [1_500]);
    assert_eq!(search.lasting(), Some(1_500));
}

#[test]
fn the_interface_may_carry_more_or_less_later() {
    let mut search = Search::new(BASE, 1_500);
    run(&mut search, 9_000, at(0));
    search.on_limit(9_000);
    assert_eq!(search.lasting(), Some(1_500), "what is known stays while more is tried");
    assert_eq!(run(&mut search, 9_000, at(0)), [9_000]);
    search.on_limit(1_400);
    assert_eq!((search.confirmed(), search.lasting()), (1_400, Some(1_400)));
    assert_eq!(run(&mut search, 9_000, at(0)), []);
    search.on_limit(1_000);
    assert_eq!((search.confirmed(), search.hoped()), (1_000, 1_000));
}

#[test]
fn a_jumbo_interface_on_a_path_of_ordinary_size() {
    let mut search = Search::new(BASE, 9_000);
    run(&mut search, 1_500, at(0));
    assert_eq!(search.lasting(), Some(1_500));
}

#[test]
fn a_path_that_works_again_or_has_moved_is_asked_again() {
    let mut search = Search::new(BASE, 1_500);
    run(&mut search, 1_500, at(0));
    search.on_path_change(at(1));
    assert_eq!(search.hoped(), 1_500, "until it is known better");
    run(&mut search, 1_400, at(1));
    assert_eq!(search.lasting(), Some(1_400));
}

#[derive(Clone, Debug)]
enum Step {
    /// Time passes, and a probe that is due is sent.
    Probe(u64),
    /// The probe in flight arrives or is lost, depending on the path's MTU, or is lost by chance.
    Result(bool),
    /// Data of this many bytes, if the path may be used for them.
    Data(u16),
    Failure,
    PathChange,
    Limit(u16),
    /// The path's own MTU from now on.
    Mtu(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..700_000_u64).prop_map(Step::Probe),
        4 => prop::bool::weighted(0.8).prop_map(Step::Result),
        4 => (1_u16..9_100).prop_map(Step::Data),
        1 => Just(Step::Failure),
        1 => Just(Step::PathChange),
        1 => (1_000_u16..9_100).prop_map(Step::Limit),
        1 => (1_228_u16..9_100).prop_map(Step::Mtu),
    ]
}

proptest! {
    /// On a path that loses only what is too big, the search ends at the best size of the table.
    #[test]
    fn the_search_ends_at_the_best_size(limit in 1_000_u16..9_100, mtu in BASE..9_100) {
        let mut search = Search::new(BASE, limit);
        let probes = run(&mut search, mtu, at(0));
        prop_assert!(probes.iter().all(|size| (BASE..=limit).contains(size)));
        let best = COMMON.into_iter().chain([limit, BASE]).filter(|&size| size <= mtu.min(limit));
        prop_assert_eq!(Some(search.confirmed()), best.max());
        prop_assert_eq!(search.lasting(), Some(search.confirmed()));
    }

    /// The size always stays within the interface's MTU. Once only the path decides what is lost,
    /// the search ends at a size that passes.
    #[test]
    fn it_always_comes_to_a_size_that_passes(
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut search = Search::new(BASE, 1_500);
        let (mut now, mut mtu) = (at(0), 1_500);
        let mut on_way = None;
        for step in steps {
            match step {
                Step::Probe(ms) => {
                    now += Duration::from_millis(ms);
                    if let Some(size) = search.poll(now) {
                        prop_assert!(size <= search.limit());
                        search.on_probe_sent();
                        on_way = Some(size);
                    }
                }
                Step::Result(kept) => if let Some(size) = on_way.take() {
                    if kept && size <= mtu {
                        search.on_arrived(now, size);
                    } else {
                        search.on_probe_lost(now, size, 0.0);
                    }
                },
                Step::Data(size) if size <= search.hoped() => match size {
                    _ if size <= mtu => search.on_arrived(now, size),
                    _ if size > BASE => search.on_lost(now, 1, size),
                    _ => {}
                },
                Step::Data(_) => {}
                Step::Failure => search.on_interruption(),
                Step::PathChange => search.on_path_change(now),
                Step::Limit(limit) => search.on_limit(limit),
                Step::Mtu(size) => mtu = size,
            }
            prop_assert!(search.confirmed() <= search.limit());
            prop_assert!(search.hoped() <= search.limit());
            prop_assert!(search.hoped() >= search.confirmed());
        }
        for _ in 0..3 {
            search.on_interruption();
            run(&mut search, mtu, now);
            if search.confirmed() > mtu {
                search.on_lost(now, BLACK_HOLE_LOSSES, search.confirmed());
            }
        }
        prop_assert!(search.confirmed() <= mtu, "{search:?} on {mtu}");
        prop_assert!(search.lasting() == Some(search.confirmed()));
    }
}
