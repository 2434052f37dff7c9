//! A small fixed part of the sweep, and what a directory of results does.

use super::distribution::{END, FROM};
use super::measured::measure;
use super::*;

fn plan(short: bool) -> Plan {
    Plan { short, parameters: Parameters::default() }
}

/// A set in which a path dies with megabytes in flight: by chance they count or do not, and mpip
/// has 0.93 or 0.10 of the limit.
const BY_CHANCE: u64 = 20;

/// The first sets whose links carry little, so that they run in seconds; not chosen otherwise.
fn small(count: usize) -> impl Iterator<Item = Set> {
    let seeds = (0..).filter(|seed| *seed != BY_CHANCE);
    seeds.map(Set::draw).filter(|set| set.bulk_limit() < 20e6).take(count)
}

/// `reached_mean` is the mean of bulk / limit, and `reached_least` the least of bulk / best path,
/// that the engine reached when this was written: 2026-11-28, when the sets got light traffic
/// before bulk and the inner TCP proportional rate reduction (over the first sixty sets the means
/// of cubic and Reno stayed within chance). Raise them when it has become better. One set of the
/// ten decides about the least.
fn is_no_worse(sender: &str, reached_mean: f64, reached_least: f64) {
    let results: Vec<Measured> = small(10)
        .map(|set| measure(&set, sender, &plan(false)).expect("there is such a sender"))
        .collect();
    let share = |result: &Measured| result.bulk.mpip / result.bulk.limit;
    let mean = results.iter().map(share).sum::<f64>() / results.len() as f64;
    let of_best = results.iter().map(|result| result.bulk.mpip / result.bulk.best());
    let least = of_best.fold(f64::INFINITY, f64::min);
    assert!(mean > reached_mean - 0.05, "{sender}: mean {mean:.3} {results:#?}");
    assert!(least > 0.7 * reached_least, "{sender}: least {least:.3} {results:#?}");
    for result in &results {
        assert_eq!(result.violations, Vec::<String>::new(), "seed {}", result.seed);
        // What the inner receiver held when the measurement began counts when it delivers it, at
        // most all that came since the start.
        let most = END as f64 / (END - FROM) as f64;
        assert!(share(result) < most, "more than the limit: {result:?}");
    }
}

// The fixed part of the sweep, a test for each sender: they run side by side.

#[test]
fn the_fixed_part_is_no_worse_with_cubic() {
    is_no_worse("cubic", 0.786, 0.905);
}

#[test]
fn the_fixed_part_is_no_worse_with_reno() {
    is_no_worse("reno", 0.755, 0.774);
}

#[test]
fn the_fixed_part_is_no_worse_with_bbr() {
    is_no_worse("bbr", 0.655, 0.345);
}

#[test]
fn the_fixed_part_is_no_worse_with_quic_cubic() {
    is_no_worse("quic-cubic", 0.864, 1.006);
}

#[test]
fn the_fixed_part_is_no_worse_with_quic_bbr() {
    is_no_worse("quic-bbr", 0.758, 0.422);
}

#[test]
fn a_result_repeats_and_goes_through_the_file() {
    let set = small(1).next().expect("there is one");
    let directory = mpip_testing::Directory::new();
    let name = "bbr".to_owned();
    let cases = [(set.clone(), &name)];
    let new = run_all(&cases, &plan(true), 2, Some(directory.path())).expect("it is written");
    assert_eq!(new[0].short.len(), measured::SIZES.len());
    assert_eq!(read(directory.path()).expect("it is read"), new);
    let again = measure(&set, "bbr", &plan(true)).expect("there is such a sender");
    assert_eq!(again, new[0]);
    // An interrupted line is dropped, and the next result stands in its place.
    let path = directory.join(FILE);
    let torn = std::fs::read_to_string(&path).expect("it is read") + "{\"seed\":";
    std::fs::write(&path, torn).expect("it is written");
    assert_eq!(read(directory.path()).expect("it is read").len(), 1);
    let other = "reno".to_owned();
    run_all(&[(set, &other)], &plan(false), 1, Some(directory.path())).expect("written");
    assert_eq!(read(directory.path()).expect("it is read").len(), 2);
}

#[test]
fn transfers_may_begin_long_after_the_association() {
    let set = small(1).next().expect("there is one");
    let later = set.clone().beginning(30 * SECOND);
    let results = [set, later].map(|set| measure(&set, "cubic", &plan(true)).expect("it runs"));
    let [soon, late] = &results;
    for (soon, late) in soon.bulk.alone.iter().zip(&late.bulk.alone) {
        assert!((late / soon - 1.0).abs() < 0.2, "plain TCP: {soon} and {late}");
    }
    for (soon, late) in soon.short.iter().zip(&late.short) {
        assert!((late.mpip / soon.mpip - 1.0).abs() < 0.3, "{soon:?} and {late:?}");
    }
    assert!(results.iter().all(|result| result.violations.is_empty()));
}

#[test]
fn a_sender_without_that_name_is_an_error() {
    let set = small(1).next().expect("there is one");
    assert!(measure(&set, "vegas", &plan(false)).is_err());
}
