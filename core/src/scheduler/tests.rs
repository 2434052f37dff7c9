use rand_core::SeedableRng;

use core::time::Duration;

use mpip_types::Instant;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::config::WeightAdaptation;

fn path(id: u16, delay_ms: i64) -> Candidate {
    Candidate {
        id,
        ready_at: Instant::ZERO,
        clears_at: Instant::ZERO,
        delay: delay_ms * 1_000,
        jitter: 0,
        queuing: 0,
        repair: 0,
        rate: 1_250_000,
        searches: false,
        known: None,
        loss: 0.0,
        fixed_weight: None,
    }
}

fn demand() -> Demand {
    Demand { len: 1_400, ordered: true, backlog: 0, held: None, busy_since: NOW }
}

const NOW: Instant = Instant::from_millis(1_000);

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(7)
}

#[test]
fn algorithm_1_starts_equal_and_moves_by_s_within_its_bounds() {
    let mut weighted = weighted::Weighted::adaptive(WeightAdaptation::default());
    let mut paths = vec![path(0, 1), path(2, 1), path(4, 1), path(6, 1)];
    weighted.choose(NOW, &paths, &demand(), &mut rng());
    assert_eq!(weighted.weight(4), Some(250));
    paths[0].queuing = 9_000;
    weighted.adjust(&paths);
    assert_eq!((weighted.weight(0), weighted.weight(2)), (Some(240), Some(260)));
    for _ in 0..200 {
        weighted.adjust(&paths);
    }
    assert_eq!((weighted.weight(0), weighted.weight(2)), (Some(1), Some(1_000)));
    // Equal queuing delays raise every weight: Q(i) <= Q(avg) holds for all.
    paths[0].queuing = 0;
    weighted.adjust(&paths);
    assert_eq!(weighted.weight(0), Some(11));
}

#[test]
fn step_and_period_of_algorithm_1_are_settings() {
    let adaptation = WeightAdaptation { step: 100, period: PERIOD * 3 };
    let mut weighted = weighted::Weighted::adaptive(adaptation);
    let mut paths = vec![path(0, 1), path(2, 1)];
    paths[0].queuing = 9_000;
    let mut after_a_period = || {
        weighted.adjust(&paths);
        (weighted.weight(0), weighted.weight(2))
    };
    assert_eq!(after_a_period(), (Some(500), Some(500)));
    assert_eq!(after_a_period(), (Some(500), Some(500)));
    assert_eq!(after_a_period(), (Some(400), Some(600)));
    assert_eq!(after_a_period(), (Some(400), Some(600)));
}

#[test]
fn packets_are_spread_in_proportion_to_the_weights() {
    let mut weighted = weighted::Weighted::fixed();
    let mut paths = vec![path(0, 1), path(2, 50)];
    paths[0].fixed_weight = Some(100);
    paths[1].fixed_weight = Some(300);
    let mut rng = rng();
    let draws = 40_000;
    let first =
        (0..draws).filter(|_| weighted.choose(NOW, &paths, &demand(), &mut rng) == Some(0)).count();
    assert!(first.abs_diff(draws / 4) < 500, "{first} of {draws}");
    paths[1].queuing = 5_000;
    weighted.adjust(&paths);
    assert_eq!(weighted.weight(2), Some(300));
}

#[test]
fn a_path_that_cannot_send_is_not_drawn() {
    let mut weighted = weighted::Weighted::adaptive(WeightAdaptation::default());
    let mut paths = vec![path(0, 1), path(2, 1)];
    paths[0].ready_at = NOW + Duration::from_millis(1);
    let mut rng = rng();
    assert!((0..100).all(|_| weighted.choose(NOW, &paths, &demand(), &mut rng) == Some(1)));
    paths[1].ready_at = paths[0].ready_at;
    assert_eq!(weighted.choose(NOW, &paths, &demand(), &mut rng), None);
}

#[test]
fn round_robin_takes_every_ready_path_in_turn() {
    let mut round_robin = round_robin::RoundRobin::default();
    let mut paths = vec![path(4, 1), path(0, 90), path(2, 5)];
    let mut rng = rng();
    let mut turn = |paths: &[Candidate]| {
        round_robin.choose(NOW, paths, &demand(), &mut rng).map(|index| paths[index].id)
    };
    let ids: Vec<_> = (0..6).map(|_| turn(&paths)).collect();
    assert_eq!(ids, [2, 4, 0, 2, 4, 0].map(Some));
    paths[2].ready_at = NOW + Duration::from_millis(1);
    assert_eq!([turn(&paths), turn(&paths), turn(&paths)], [4, 0, 4].map(Some));
}

#[test]
fn fastest_first_fills_the_fastest_and_then_the_next() {
    let mut paths = vec![path(0, 20), path(2, 5), path(4, 60)];
    let mut rng = rng();
    let mut choose =
        |paths: &[Candidate]| fastest_first::FastestFirst.choose(NOW, paths, &demand(), &mut rng);
    assert_eq!(choose(&paths), Some(1));
    paths[1].ready_at = NOW + Duration::from_millis(3);
    assert_eq!(choose(&paths), Some(0));
}

fn earliest() -> earliest::Earliest {
    earliest::Earliest::new(&Default::default())
}

#[test]
fn earliest_waits_for_the_fast_path_while_there_is_little_to_send() {
    let mut paths = vec![path(0, 5), path(2, 100)];
    paths[0].ready_at = NOW + Duration::from_millis(2);
    let mut rng = rng();
    let mut choose =
        |paths: &[Candidate], demand: &Demand| earliest().choose(NOW, paths, demand, &mut rng);
    assert_eq!(choose(&paths, &demand()), None);
    // 200 kB take the fast path 160 ms: the slow one delivers sooner.
    assert_eq!(choose(&paths, &Demand { backlog: 200_000, ..demand() }), Some(1));
    // So does a transfer that has been going on for longer than the difference.
    let busy_since = NOW - Duration::from_millis(120);
    assert_eq!(choose(&paths, &Demand { busy_since, ..demand() }), Some(1));
    paths[0].ready_at = NOW;
    assert_eq!(choose(&paths, &Demand { busy_since, ..demand() }), Some(0));
}

#[test]
fn what_is_put_in_order_takes_a_longer_path_that_loses_nothing() {
    let paths = vec![Candidate { repair: 60_000, ..path(0, 50) }, path(2, 100)];
    let choose = |ordered| {
        let demand = Demand { ordered, ..demand() };
        earliest().choose(NOW, &paths, &demand, &mut rng())
    };
    assert_eq!(choose(true), Some(1));
    assert_eq!(choose(false), Some(0));
}

#[test]
fn a_far_path_takes_what_is_held_until_it_arrives() {
    let mut paths = vec![path(0, 5), path(2, 50)];
    let choose = |paths: &[Candidate], held| {
        earliest().choose(NOW, paths, &Demand { held, ..demand() }, &mut rng())
    };
    assert_eq!(choose(&paths, Some(60_000)), Some(0), "the near one is as early");
    paths[0].ready_at = NOW + Duration::from_millis(2);
    assert_eq!(choose(&paths, Some(60_000)), Some(1));
    assert_eq!(choose(&paths, Some(40_000)), None);
    assert_eq!(choose(&paths, None), None);
}

#[test]
fn a_far_path_that_searches_works_later() {
    let mut paths = vec![path(0, 5), path(2, 200)];
    paths[0].ready_at = NOW + Duration::from_millis(2);
    let choose = |paths: &[Candidate], busy_ms, backlog| {
        let busy_since = NOW - Duration::from_millis(busy_ms);
        let demand = Demand { busy_since, backlog, ..demand() };
        earliest().choose(NOW, paths, &demand, &mut rng())
    };
    assert_eq!(choose(&paths, 300, 0), Some(1));
    paths[1].searches = true;
    assert_eq!(choose(&paths, 300, 0), None);
    assert_eq!(choose(&paths, 800, 0), Some(1));
    assert_eq!(choose(&paths, 0, 400_000), Some(1), "so much that it is not late");
    // One that is not so far begins at once.
    paths[1].delay = 80_000;
    assert_eq!(choose(&paths, 100, 0), Some(1));
}

#[test]
fn a_path_that_carries_little_is_not_waited_for_in_a_short_transfer() {
    // It carries a tenth of what the fast one does, and its packets are 93 ms later.
    let mut paths = vec![path(0, 5), path(2, 100)];
    paths[0].ready_at = NOW + Duration::from_millis(2);
    paths[1].known = Some(125_000);
    let choose = |paths: &[Candidate], busy_ms, backlog| {
        let busy_since = NOW - Duration::from_millis(busy_ms);
        earliest().choose(NOW, paths, &Demand { busy_since, backlog, ..demand() }, &mut rng())
    };
    assert_eq!(choose(&paths, 900, 0), None);
    assert_eq!(choose(&paths, 950, 0), Some(1), "it has carried as much in the same time");
    assert_eq!(choose(&paths, 0, 200_000), Some(1), "so much that it is not late");
    paths[1].known = None;
    assert_eq!(choose(&paths, 100, 0), Some(1), "it may carry much");
}

#[test]
fn a_slower_path_takes_a_backlog_only_while_a_faster_one_grows() {
    let mut paths = vec![path(0, 5), path(2, 50)];
    paths[0].ready_at = NOW + Duration::from_millis(2);
    paths[0].searches = true;
    let choose = |paths: &[Candidate], backlog| {
        let busy_since = NOW - Duration::from_millis(5_000);
        earliest().choose(NOW, paths, &Demand { busy_since, backlog, ..demand() }, &mut rng())
    };
    assert_eq!(choose(&paths, 0), None);
    assert_eq!(choose(&paths, 200_000), Some(1), "so much that it is not late");
    paths[0].searches = false;
    assert_eq!(choose(&paths, 0), Some(1));
}

#[test]
fn what_a_path_that_searches_has_not_transmitted_yet_counts() {
    let mut paths = vec![path(0, 5), path(2, 7)];
    let choose = |paths: &[Candidate]| earliest().choose(NOW, paths, &demand(), &mut rng());
    assert_eq!(choose(&paths), Some(0));
    paths[0].clears_at = NOW + Duration::from_millis(3);
    assert_eq!(choose(&paths), Some(1));
    paths[1].clears_at = NOW + Duration::from_millis(3);
    assert_eq!(choose(&paths), Some(0), "it may leave at once, behind what is there");
}

#[test]
fn earliest_counts_the_time_on_the_wire() {
    let mut paths = vec![path(0, 5), path(2, 7)];
    paths[0].rate = 12_500;
    assert_eq!(earliest().choose(NOW, &paths, &demand(), &mut rng()), Some(1));
}
