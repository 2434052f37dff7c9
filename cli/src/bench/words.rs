//! What measurements mean, in words.

use std::fmt::Write;

use mpip_api::{BenchPath, BenchReport, BenchResult, Direction};

use crate::table::{Align, Table};
use crate::units::{bytes, duration, rate};

/// Share of the sum of all paths from which they are said to add up.
const ADD_UP: f64 = 0.85;
/// Gain over the best path below which several paths are said to bring nothing.
const NO_GAIN: f64 = 1.15;
/// Share of a processor core from which it is the limit.
const BUSY: f64 = 0.9;
/// Loss that is mentioned.
const LOSS: f64 = 0.02;
/// Rise of the round-trip time under load that is mentioned, ms.
const STANDING: f64 = 100.0;

/// Which way data go.
pub(super) fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Send => "to the peer",
        Direction::Receive => "from the peer",
    }
}

/// The report as text.
pub(super) fn render(report: &BenchReport, colours: bool) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "{} at {} (mpipd {}), one TCP connection through the tunnel\n",
        report.peer,
        report.address.ip(),
        report.peer_version
    );
    out.push_str(&table(report, colours));
    let skipped = report.paths.iter().filter(|path| path.skipped.is_some());
    let (mut tried, mut named) = (0, Vec::new());
    for path in skipped {
        match path.skipped.as_deref() {
            Some("validating" | "abandoned") | None => tried += 1,
            Some(reason) => named.push(format!("path {} ({}): {reason}", path.id, path.interface)),
        }
    }
    if !named.is_empty() {
        let _ = writeln!(out, "not measured: {}", named.join(", "));
    }
    if tried > 0 {
        let _ = writeln!(out, "and {tried} pairs of addresses that gave no answer");
    }
    out.push('\n');
    for result in &report.together {
        let _ = writeln!(out, "{}", expectation(report, result));
    }
    for limit in limits(report) {
        let _ = writeln!(out, "limit: {limit}");
    }
    out
}

fn table(report: &BenchReport, colours: bool) -> String {
    let mut table = Table::new(&[
        ("path", Align::Right),
        ("by", Align::Left),
        ("from", Align::Left),
        ("to", Align::Left),
        ("RTT", Align::Right),
        ("loaded", Align::Right),
        ("to the peer", Align::Right),
        ("loss", Align::Right),
        ("from the peer", Align::Right),
        ("loss", Align::Right),
    ]);
    let loaded = |results: &[BenchResult]| {
        duration(results.iter().filter_map(|result| result.rtt_ms).reduce(f64::max))
    };
    let figures = |results: &[BenchResult]| {
        [Direction::Send, Direction::Receive].map(|direction| {
            let result = results.iter().find(|result| result.direction == direction);
            let loss = result.and_then(|result| result.loss);
            let loss = loss.map_or("-".to_owned(), |loss| format!("{:.1} %", loss * 100.0));
            [result.map_or("-".to_owned(), |result| rate(result.rate_bps)), loss]
        })
    };
    let measured = report.paths.iter().filter(|path| !path.results.is_empty());
    for path in measured {
        let [send, receive] = figures(&path.results);
        let first = [
            path.id.to_string(),
            path.interface.clone(),
            path.local.ip().to_string(),
            path.remote.ip().to_string(),
            duration(path.idle_rtt_ms),
            loaded(&path.results),
        ];
        table.row(first.into_iter().chain(send).chain(receive).map(Into::into).collect());
    }
    let [send, receive] = figures(&report.together);
    let first = ["all", "", "", "", "", loaded(&report.together).as_str()].map(str::to_owned);
    table.row(first.into_iter().chain(send).chain(receive).map(Into::into).collect());
    table.render("  ", colours)
}

/// What each path carries alone in `direction`, with the path.
fn alone(report: &BenchReport, direction: Direction) -> Vec<(&BenchPath, &BenchResult)> {
    let of = |path: &'_ BenchPath| path.results.iter().position(|it| it.direction == direction);
    let found = report.paths.iter().filter_map(|path| Some((path, &path.results[of(path)?])));
    found.collect()
}

fn sum_and_best(alone: &[(&BenchPath, &BenchResult)]) -> (f64, f64) {
    let rates = alone.iter().map(|(_, result)| result.rate_bps as f64);
    (rates.clone().sum(), rates.fold(0.0, f64::max))
}

/// What to expect of one direction.
fn expectation(report: &BenchReport, together: &BenchResult) -> String {
    let alone = alone(report, together.direction);
    let (sum, _) = sum_and_best(&alone);
    let expect = format!("expect {} {}", rate(together.rate_bps), way(together.direction));
    if alone.len() < 2 || sum <= 0.0 {
        return format!("{expect}, by one path");
    }
    let share = together.rate_bps as f64 / sum * 100.0;
    format!(
        "{expect}, {share:.0} % of what {} paths carry alone ({})",
        alone.len(),
        rate(sum as u64)
    )
}

/// What keeps it from being more.
fn limits(report: &BenchReport) -> Vec<String> {
    let mut limits: Vec<String> =
        report.together.iter().map(|together| limit_of(report, together)).collect();
    for path in &report.paths {
        for result in &path.results {
            limits.extend(weakness(path, result));
        }
    }
    if let Some(capped) = report.together.iter().find(|result| result.capped) {
        limits.push(format!(
            "the measurements ended after {} of data, before their time: --limit allows more",
            bytes(capped.bytes)
        ));
    }
    limits.dedup();
    limits
}

/// What limits all paths together in one direction.
fn limit_of(report: &BenchReport, together: &BenchResult) -> String {
    let way = way(together.direction);
    for (whose, cpu) in [("here", together.cpu), ("at the peer", together.peer_cpu)] {
        if let Some(cpu) = cpu.filter(|cpu| *cpu >= BUSY) {
            return format!(
                "{way}, the processor: the thread of mpipd {whose} that carries packets used {:.0} % of \
                 a core",
                cpu * 100.0
            );
        }
    }
    let alone = alone(report, together.direction);
    let (sum, best) = sum_and_best(&alone);
    let rate = together.rate_bps as f64;
    let several = alone.len() > 1;
    let shared: Vec<String> = alone
        .iter()
        .filter(|(path, _)| {
            alone.iter().any(|(it, _)| it.id != path.id && it.bottleneck == path.bottleneck)
        })
        .map(|(path, _)| path.id.to_string())
        .collect();
    if !several || rate >= ADD_UP * sum {
        return format!("{way}, the link{}", if several { "s: they add up" } else { "" });
    }
    if !shared.is_empty() {
        return format!("{way}, a bottleneck that paths {} share", shared.join(", "));
    }
    if rate < NO_GAIN * best {
        return format!(
            "{way}, all paths carry hardly more than the best one alone: they share a link on the way, or \
             one harms the others (loss, much more delay)"
        );
    }
    format!(
        "{way}, the paths differ in delay or loss: {:.0} % of their sum; `mpip status --verbose` shows by \
         how much",
        rate / sum * 100.0
    )
}

/// What is wrong with a path alone.
fn weakness(path: &BenchPath, result: &BenchResult) -> Vec<String> {
    let name = format!("path {} ({}), {}", path.id, path.interface, way(result.direction));
    let mut found = Vec::new();
    if let Some(loss) = result.loss.filter(|loss| *loss >= LOSS) {
        found.push(format!("{name}, loses {:.1} %", loss * 100.0));
    }
    if let (Some(idle), Some(loaded)) = (path.idle_rtt_ms, result.rtt_ms)
        && loaded - idle >= STANDING
    {
        found.push(format!(
            "{name}, its queue: the round trip rises from {} to {} under load",
            duration(Some(idle)),
            duration(Some(loaded))
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(direction: Direction, mbit: f64) -> BenchResult {
        BenchResult {
            direction,
            rate_bps: (mbit * 1e6) as u64,
            bytes: 1_000_000,
            duration_ms: 3_000.0,
            rtt_ms: Some(25.0),
            loss: Some(0.0),
            cpu: Some(0.1),
            peer_cpu: Some(0.1),
            capped: false,
        }
    }

    fn path(id: u16, mbit: f64) -> BenchPath {
        BenchPath {
            id,
            interface: format!("eth{id}"),
            local: "198.18.0.1:6182".parse().expect("valid"),
            remote: "198.18.0.2:6182".parse().expect("valid"),
            idle_rtt_ms: Some(20.0),
            bottleneck: id,
            skipped: None,
            results: vec![result(Direction::Send, mbit)],
        }
    }

    fn report(together: f64) -> BenchReport {
        BenchReport {
            peer: "gateway".to_owned(),
            address: "10.77.0.1:6184".parse().expect("valid"),
            peer_version: "0.1.0".to_owned(),
            paths: vec![path(0, 40.0), path(1, 20.0)],
            together: vec![result(Direction::Send, together)],
        }
    }

    #[test]
    fn the_text_has_every_path_the_expectation_and_the_limit() {
        let mut report = report(57.0);
        let standby = Some("on standby".to_owned());
        report.paths.push(BenchPath { skipped: standby, results: Vec::new(), ..path(7, 0.0) });
        let text = render(&report, false);
        let expected = "gateway at 10.77.0.1 (mpipd 0.1.0), one TCP connection through the tunnel

  path  by    from        to              RTT   loaded  to the peer   loss  from the peer  loss
     0  eth0  198.18.0.1  198.18.0.2  20.0 ms  25.0 ms  40.0 Mbit/s  0.0 %              -     -
     1  eth1  198.18.0.1  198.18.0.2  20.0 ms  25.0 ms  20.0 Mbit/s  0.0 %              -     -
   all                                         25.0 ms  57.0 Mbit/s  0.0 %              -     -
not measured: path 7 (eth7): on standby

expect 57.0 Mbit/s to the peer, 95 % of what 2 paths carry alone (60.0 Mbit/s)
limit: to the peer, the links: they add up
";
        assert_eq!(text, expected);
    }

    #[test]
    fn every_limit_is_named() {
        let first = |report: &BenchReport| limits(report)[0].clone();
        assert!(first(&report(42.0)).contains("hardly more than the best one"));
        assert!(first(&report(48.0)).contains("80 % of their sum"));
        let mut busy = report(42.0);
        busy.together[0].peer_cpu = Some(0.97);
        assert!(first(&busy).contains("mpipd at the peer"), "{}", first(&busy));
        let mut shared = report(42.0);
        shared.paths[1].bottleneck = 0;
        assert!(first(&shared).contains("paths 0, 1 share"), "{}", first(&shared));
        let mut lossy = report(57.0);
        lossy.paths[0].results[0].loss = Some(0.05);
        lossy.paths[1].results[0].rtt_ms = Some(400.0);
        lossy.together[0].capped = true;
        let all = limits(&lossy);
        assert!(all[1].contains("path 0 (eth0), to the peer, loses 5.0 %"), "{all:?}");
        assert!(all[2].contains("rises from 20.0 ms to 400 ms"), "{all:?}");
        assert!(all[3].contains("--limit"), "{all:?}");
        let one = BenchReport { paths: vec![path(0, 40.0)], ..report(40.0) };
        assert_eq!(limits(&one), ["to the peer, the link"]);
    }
}
