//! The sets of the sweep on real kernels: each is a scenario with the same links, changes and cross
//! traffic, which `run` measures and stores. So it can be interrupted and resumed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::str::FromStr;

use mpip_link::{Change, Discipline, LinkConfig, Loss, QueueLimit};
use mpip_sim::clock::{Nanos, SECOND};

use super::distribution::{CROSS, END, FROM, Set};
use super::measured::{Bulk, Measured};
use crate::flow::FlowResult;
use crate::results::RunResult;
use crate::run;
use crate::scenarios::{self, Loaded};
use crate::sender::Sender;

/// Sets whose links carry more than this together, bit/s, are left out: emulator, senders and
/// daemons share the processors of one machine, and above it the emulator is late.
const MOST: f64 = 250e6;
/// Time from the start of a run until bulk starts. Round trips of this time are those of an idle
/// system.
const IDLE: Nanos = 2 * SECOND;
/// Payload of full packets beside the length on a link that the simulator's limit counts with (1460
/// of 1514 bytes): TCP has timestamps here; quinn and quic-go find 1,452 bytes of UDP payload.
const TCP_PAYLOAD: f64 = 1_448.0 / 1_460.0;
const QUIC_PAYLOAD: f64 = (1_414.0 / 1_494.0) / (1_460.0 / 1_514.0);
/// Bytes of IPv4 and UDP headers.
const UDP_HEADERS: usize = 28;
/// Names of the interfaces at both ends.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The senders that are measured by default.
pub(super) const SENDERS: [&str; 5] =
    ["tcp-cubic", "tcp-bbr", "quinn-cubic", "quinn-bbr", "quic-go"];

/// What to run, and how.
pub(super) struct Plan {
    pub(super) run: run::Options,
    /// Whether to use only what is stored.
    pub(super) show: bool,
}

/// Runs what has no result yet, and returns all results of `seeds`.
pub(super) fn measure(
    seeds: impl Iterator<Item = u64>,
    senders: &[String],
    plan: &Plan,
) -> io::Result<Vec<Measured>> {
    let senders = senders
        .iter()
        .map(|name| Sender::from_str(name).map_err(io::Error::other))
        .collect::<io::Result<Vec<_>>>()?;
    let (sets, large): (Vec<Set>, Vec<Set>) =
        seeds.map(Set::draw).partition(|set| rate(set) <= MOST);
    if !large.is_empty() {
        let (count, most) = (large.len(), MOST / 1e6);
        eprintln!("{count} sets of more than {most:.0} Mbit/s are left out on kernels");
    }
    let mut cases = Vec::new();
    for set in &sets {
        let loaded = load(set)?;
        cases.extend(senders.iter().map(|sender| (set, *sender, sender.replace(loaded.clone()))));
    }
    let scenarios: Vec<Loaded> = cases.iter().map(|(.., loaded)| loaded.clone()).collect();
    let results = if plan.show {
        run::stored(&scenarios, &plan.run)?
    } else {
        run::announce(&scenarios, &plan.run)?;
        run::in_namespaces(&scenarios, &plan.run)?.results
    };
    let mut of: BTreeMap<&str, Vec<&RunResult>> = BTreeMap::new();
    for result in results.iter().filter(|result| result.counts()) {
        of.entry(&result.scenario).or_default().push(result);
    }
    let measured = cases
        .iter()
        .filter_map(|(set, sender, loaded)| measured(set, *sender, of.get(loaded.name.as_str())?));
    Ok(measured.collect())
}

/// The rate of all links forward, at most, bit/s.
fn rate(set: &Set) -> f64 {
    set.widest().iter().filter_map(|(forward, _)| forward.mean_rate()).sum()
}

/// The set as a scenario.
fn load(set: &Set) -> io::Result<Loaded> {
    let (name, text) = (format!("sweep-{:05}", set.seed), text(set));
    let file = format!("{name}.toml");
    let scenario = scenarios::parse(&file, &text)?;
    Ok(Loaded { name, file, text, scenario })
}

/// The scenario's text.
fn text(set: &Set) -> String {
    let mut text = format!(
        "title = \"Random link set {seed}\"\n\
         source = \"mpip-lab sweep --seed {seed}\"\n\
         duration = \"{} ns\"\nrepetitions = 1\nseed = {seed}\n\
         systems = [\"tcp\", \"mptcp\", \"mpip\"]\n",
        IDLE + END,
        seed = set.seed,
    );
    for (end, host) in [(1, "client"), (2, "server")] {
        for (index, name) in NAMES.iter().take(set.paths.len()).enumerate() {
            let _ = writeln!(
                text,
                "\n[[interface]]\nhost = \"{host}\"\nname = \"{name}\"\n\
                 address = \"198.18.{}.{end}\"",
                index + 1
            );
        }
    }
    for (path, name) in set.paths.iter().zip(NAMES) {
        let (forward, back) = &path.links;
        let _ = write!(
            text,
            "\n[[link]]\nname = \"{name}\"\nends = [\"client.{name}\", \"server.{name}\"]\n\
             {}[link.reverse]\n{}",
            settings(forward, None),
            settings(back, Some(forward))
        );
    }
    for (path, name) in set.paths.iter().zip(NAMES) {
        for (at, forward, back) in &path.changes {
            for (direction, change) in [("forward", forward), ("reverse", back)] {
                let keys = changes(change);
                if !keys.is_empty() {
                    let _ = write!(
                        text,
                        "\n[[event]]\nat = \"{} ns\"\nlink = \"{name}\"\n\
                         direction = \"{direction}\"\n{keys}",
                        IDLE + at
                    );
                }
            }
        }
    }
    let flow = |kind: &str, name: &str, start: Nanos, end: Nanos| {
        format!(
            "\n[[traffic]]\nkind = \"{kind}\"\nname = \"{name}\"\nfrom = \"client\"\n\
             to = \"server\"\nstart = \"{start} ns\"\nduration = \"{} ns\"\n",
            end - start
        )
    };
    text += &flow("tcp", "bulk", IDLE, IDLE + END);
    text += &flow("voip", "idle", 0, IDLE);
    text += &flow("voip", "loaded", IDLE + FROM, IDLE + END);
    for (path, name) in set.paths.iter().zip(NAMES) {
        for cross in &path.cross {
            text += &flow("udp", "cross", IDLE + cross.from, IDLE + cross.until);
            let length = CROSS - UDP_HEADERS;
            let rate = cross.rate as usize * length / CROSS;
            let _ =
                writeln!(text, "plain = \"{name}\"\nrate = \"{rate} bit/s\"\nlength = {length}");
        }
    }
    text
}

/// The keys of one direction. What both directions have in common and the second does not say, it
/// has from the first (`but`).
fn settings(link: &LinkConfig, but: Option<&LinkConfig>) -> String {
    let mut text = String::new();
    if let Some(rate) = link.rate {
        let _ = writeln!(text, "rate = \"{rate} bit/s\"");
    }
    let _ = match link.queue {
        QueueLimit::Packets(packets) => writeln!(text, "queue = \"{packets} packets\""),
        QueueLimit::Bytes(bytes) => writeln!(text, "queue = \"{bytes} bytes\""),
    };
    if link.discipline == Discipline::TailDrop {
        text += if but.is_some() { "codel = { enabled = false }\n" } else { "" };
    }
    if let Discipline::Codel(codel) = link.discipline {
        let (target, interval) = (codel.target.as_nanos(), codel.interval.as_nanos());
        let _ =
            writeln!(text, "codel = {{ target = \"{target} ns\", interval = \"{interval} ns\" }}");
    }
    let (delay, jitter) = (link.delay.as_nanos(), link.jitter.as_nanos());
    let _ = writeln!(text, "delay = \"{delay} ns\"\njitter = \"{jitter} ns\"");
    let _ = writeln!(text, "in_order = {}", link.in_order);
    text += &loss(&link.loss, but.is_some());
    for (key, value, usual) in [
        ("up", link.up, but.is_none_or(|b| b.up)),
        ("blackhole", link.blackhole, but.is_some_and(|b| b.blackhole)),
    ] {
        if value != usual {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    text
}

fn loss(loss: &Loss, none_too: bool) -> String {
    match loss {
        Loss::None if none_too => "loss = \"0 %\"\n".to_owned(),
        Loss::None => String::new(),
        Loss::Random(share) => format!("loss = \"{share:.9}\"\n"),
        Loss::GilbertElliott { good_to_bad, bad_to_good, good_loss, bad_loss } => format!(
            "burst_loss = {{ good_to_bad = \"{good_to_bad:.9}\", bad_to_good = \"{bad_to_good:.9}\", \
             good_loss = \"{good_loss:.9}\", bad_loss = \"{bad_loss:.9}\" }}\n"
        ),
    }
}

/// The keys of a change. Sets change rate, delay, loss and whether a link passes, nothing else.
fn changes(change: &Change) -> String {
    let mut text = String::new();
    if let Some(Some(rate)) = change.rate {
        let _ = writeln!(text, "rate = \"{rate} bit/s\"");
    }
    if let Some(delay) = change.delay {
        let _ = writeln!(text, "delay = \"{} ns\"", delay.as_nanos());
    }
    if let Some(model) = &change.loss {
        text += &loss(model, true);
    }
    for (key, value) in [("up", change.up), ("blackhole", change.blackhole)] {
        if let Some(value) = value {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    text
}

/// The result of a set, if every system that it needs has one that counts.
fn measured(set: &Set, sender: Sender, runs: &[&RunResult]) -> Option<Measured> {
    let of = |system: &str| runs.iter().find(|run| run.system == system).copied();
    let payload = if sender.is_quic() { QUIC_PAYLOAD } else { TCP_PAYLOAD };
    let alone: Vec<&RunResult> = NAMES
        .iter()
        .take(set.paths.len())
        .map(|name| of(&format!("tcp {name}")))
        .collect::<Option<_>>()?;
    let mpip = of("mpip")?;
    let least =
        |name| alone.iter().filter_map(|run| round_trip(run, name)).fold(f64::MAX, f64::min);
    let ping_alone = least("idle");
    Some(Measured {
        seed: set.seed,
        sender: sender.to_string(),
        bulk: Bulk {
            limit: set.limit(FROM, END) * payload,
            alone: alone.iter().map(|run| goodput(run)).collect(),
            mpip: goodput(mpip),
            mptcp: of("mptcp").map(goodput),
            ping_alone: if ping_alone == f64::MAX { 0.0 } else { ping_alone },
            ping: round_trip(mpip, "loaded").unwrap_or(END as f64 / 1e6),
            ping_lost: flow(mpip, "loaded").and_then(|flow| flow.loss).unwrap_or(1.0),
        },
        short: Vec::new(),
        violations: Vec::new(),
    })
}

fn flow<'a>(run: &'a RunResult, name: &str) -> Option<&'a FlowResult> {
    run.flows.iter().find(|flow| flow.name == name)
}

/// The 95th percentile of the round trips of a flow, ms; `None` if most were not answered.
fn round_trip(run: &RunResult, name: &str) -> Option<f64> {
    let flow = flow(run, name)?;
    flow.rtt_ms.filter(|_| flow.loss.is_some_and(|loss| loss < 0.5)).map(|rtt| rtt.p95)
}

/// Of bulk, from [`FROM`] to [`END`], bit/s.
fn goodput(run: &RunResult) -> f64 {
    let interval = SECOND / 10;
    let (from, until) = ((FROM / interval) as usize, (END / interval) as usize);
    let rates = flow(run, "bulk").map_or(&[][..], |flow| &flow.intervals_bps);
    let counted = rates.iter().take(until).skip(from);
    counted.sum::<f64>() / (until - from) as f64
}

/// Where the results of `directory` are, for [`Plan`].
pub(super) fn options(directory: &Path, allow_busy: bool) -> run::Options {
    run::Options { directory: directory.to_owned(), allow_busy, ..run::Options::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::run;

    #[test]
    fn a_scenario_has_the_links_and_changes_of_its_set() {
        for seed in 0..300 {
            let set = Set::draw(seed);
            let loaded = load(&set).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let scenario = &loaded.scenario;
            assert_eq!(scenario.links.len(), set.paths.len());
            for (link, path) in scenario.links.iter().zip(&set.paths) {
                for (got, wanted) in
                    [(&link.forward, &path.links.0), (&link.reverse, &path.links.1)]
                {
                    assert!((got.loss.mean() - wanted.loss.mean()).abs() < 1e-6);
                    let got = LinkConfig { loss: wanted.loss, ..got.clone() };
                    assert_eq!(got, *wanted, "seed {seed}: {}", loaded.text);
                }
            }
            let changes: usize = set.paths.iter().map(|path| path.changes.len()).sum();
            assert!(scenario.events.len() >= changes);
            for path in &set.paths {
                for (at, change, _) in &path.changes {
                    let at = std::time::Duration::from_nanos(IDLE + at);
                    let same = |e: &&mpip_link::scenario::Event| e.at == at && e.forward;
                    let event = scenario.events.iter().find(same).expect("it is there");
                    assert_eq!(event.change.rate, change.rate);
                    assert_eq!(event.change.up, change.up);
                }
            }
            let cross: usize = set.paths.iter().map(|path| path.cross.len()).sum();
            assert_eq!(scenario.traffic.iter().filter(|t| t.plain.is_some()).count(), cross);
        }
    }

    #[test]
    fn a_set_counts_when_all_its_runs_do() {
        let set = (0..).map(Set::draw).find(|set| set.paths.len() == 2).expect("most have two");
        let mut runs: Vec<RunResult> = ["tcp a", "tcp b", "mpip"]
            .into_iter()
            .map(|system| {
                let mut run = run("sweep", system, 0, 0.0);
                let bulk = FlowResult { intervals_bps: vec![7e6; 120], ..FlowResult::default() };
                run.flows = vec![FlowResult { name: "bulk".to_owned(), ..bulk }];
                run
            })
            .collect();
        runs[2].flows[0].intervals_bps[..40].fill(0.0);
        let sender: Sender = "quic-go".parse().expect("known");
        let all: Vec<&RunResult> = runs.iter().collect();
        let result = measured(&set, sender, &all).expect("complete");
        assert_eq!((result.bulk.alone, result.bulk.mptcp), (vec![7e6, 7e6], None));
        assert!((result.bulk.mpip - 7e6).abs() < 1.0, "the first 4 s do not count");
        assert_eq!(measured(&set, sender, &all[1..]), None);
    }
}
