//! Results: one record for each run, kept as JSON lines, and their summary.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::calibrate::Calibration;
use crate::emulator::Record;
use crate::probe::Statistics;
use crate::simulated::Estimate;
use crate::traffic::FlowResult;

/// The file of a set's summaries.
pub(crate) const SUMMARY: &str = "summary.json";

/// A share of late frames above which a run does not count.
pub(crate) const LATE_BOUND: f64 = 0.01;

/// Where and with what a run was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Environment {
    pub(crate) version: String,
    pub(crate) commit: String,
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
}

fn first_line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

impl Environment {
    pub(crate) fn here() -> Self {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
        let model = model.map(|text| text.trim_start_matches(['\t', ' ', ':']).to_owned());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let root = root.display().to_string();
        let commit = crate::command::run(&["git", "-C", &root, "rev-parse", "--short=12", "HEAD"]);
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit.map(|text| text.trim().to_owned()).unwrap_or_default(),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            cpu: model.unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// One run of one system in one scenario.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunResult {
    pub(crate) scenario: String,
    /// Of the scenario's text; a run of another text is another run.
    pub(crate) scenario_hash: String,
    pub(crate) system: String,
    pub(crate) kind: String,
    pub(crate) repetition: u32,
    pub(crate) seed: u64,
    /// Seconds since 1970.
    pub(crate) time: u64,
    pub(crate) environment: Environment,
    /// Payload bit/s of all flows of the system under test.
    pub(crate) goodput_bps: f64,
    /// What the links can carry for it; 0 where nothing limits it.
    pub(crate) limit_bps: f64,
    pub(crate) longest_stall_ms: f64,
    pub(crate) flows: Vec<FlowResult>,
    pub(crate) emulator: Record,
    /// Frames that host devices dropped because the emulator did not take them.
    pub(crate) overrun: u64,
    /// Share of the processors' time that was idle during the run.
    pub(crate) cpu_idle: f64,
    /// What the sender holds of its paths' delays, in runs of the simulator.
    #[serde(default)]
    pub(crate) estimates: Vec<Estimate>,
    /// What the system says of itself.
    pub(crate) status: serde_json::Value,
    /// How accurate the emulator was on this machine, where that was measured before.
    #[serde(default)]
    pub(crate) calibration: Option<Calibration>,
    /// Why the run does not count; empty if it does.
    pub(crate) invalid: Vec<String>,
}

impl RunResult {
    pub(crate) fn counts(&self) -> bool {
        self.invalid.is_empty()
    }

    fn key(&self) -> (String, String, String, u32) {
        (self.scenario.clone(), self.scenario_hash.clone(), self.system.clone(), self.repetition)
    }
}

/// FNV-1a of a text, as hexadecimal digits.
pub(crate) fn hash(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The results of a directory, in `results.jsonl`.
pub(crate) struct Store {
    file: File,
    results: Vec<RunResult>,
}

impl Store {
    /// Opens a directory, made if it does not exist, and reads what it has. An incomplete last
    /// line, of a run that was interrupted, is dropped.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let path = directory.join("results.jsonl");
        let results = if path.exists() { read(&path)? } else { Vec::new() };
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        Ok(Self { file, results })
    }

    /// The result of a run that is there already; one that counts before one that does not.
    pub(crate) fn find(
        &self,
        scenario: &str,
        hash: &str,
        system: &str,
        repetition: u32,
    ) -> Option<&RunResult> {
        let key = (scenario.to_owned(), hash.to_owned(), system.to_owned(), repetition);
        self.results.iter().filter(|result| result.key() == key).max_by_key(|r| r.counts())
    }

    pub(crate) fn add(&mut self, result: RunResult) -> io::Result<()> {
        let mut line = serde_json::to_string(&result)?;
        line.push('\n');
        self.file.write_all(line.as_bytes())?;
        self.results.push(result);
        Ok(())
    }

    pub(crate) fn results(&self) -> &[RunResult] {
        &self.results
    }
}

fn read(path: &Path) -> io::Result<Vec<RunResult>> {
    let mut results = Vec::new();
    for line in BufReader::new(File::open(path)?).lines() {
        match serde_json::from_str(&line?) {
            Ok(result) => results.push(result),
            Err(error) => eprintln!("{}: a line is left out: {error}", path.display()),
        }
    }
    Ok(results)
}

/// All repetitions of one system in one scenario.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Summary {
    pub(crate) scenario: String,
    pub(crate) system: String,
    /// bit/s, each repetition.
    pub(crate) goodput_bps: Vec<f64>,
    pub(crate) median_bps: f64,
    /// Standard deviation over the repetitions.
    pub(crate) deviation_bps: f64,
    pub(crate) limit_bps: Option<f64>,
    /// Median to limit.
    pub(crate) ratio: Option<f64>,
    /// Processor time of the whole machine, emulator and generators included, for a Gbit of
    /// payload; median.
    pub(crate) cpu_seconds_per_gbit: Option<f64>,
    /// Payload bit/s of each named flow, median; flows beside the system under test as well.
    pub(crate) flows_bps: BTreeMap<String, f64>,
    /// Share of datagrams lost and their jitter in ms, of each named flow that has them, median.
    pub(crate) datagrams: BTreeMap<String, Datagrams>,
    /// Bytes of IP packets that each direction of each link delivered, mean of the repetitions.
    pub(crate) per_path_bytes: BTreeMap<String, f64>,
    /// Worst of the repetitions.
    pub(crate) longest_stall_ms: f64,
    /// Of each named flow that measures round trips, over the repetitions' means, medians and so
    /// on the median.
    pub(crate) rtt_ms: BTreeMap<String, Statistics>,
    /// Drops in the emulator by cause, sum of all links, mean of the repetitions.
    pub(crate) drops: BTreeMap<String, f64>,
    /// Repetitions that do not count are not in the figures above.
    pub(crate) repetitions: usize,
    pub(crate) counting: usize,
    /// Whether the median rests on at least one run that counts.
    pub(crate) counts: bool,
    /// Why runs did not count.
    pub(crate) invalid: Vec<String>,
    pub(crate) environment: Environment,
}

/// What became of the datagrams of a flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Datagrams {
    /// Share that was lost; of round trips that did not complete.
    pub(crate) loss: f64,
    /// Mean difference of the transit times, or round trips, of neighbours.
    pub(crate) jitter_ms: f64,
}

pub(crate) fn median(values: &[f64]) -> f64 {
    Statistics::of(&mut values.to_vec()).median
}

/// Summaries in the order of first appearance. Where no repetition counts, the figures are those
/// of all, and `counts` is false.
pub(crate) fn summarise(results: &[RunResult]) -> Vec<Summary> {
    let mut order: Vec<(String, String)> = Vec::new();
    let mut groups: BTreeMap<(String, String), Vec<&RunResult>> = BTreeMap::new();
    for result in results {
        let key = (result.scenario.clone(), result.system.clone());
        if !groups.contains_key(&key) {
            order.push(key.clone());
        }
        groups.entry(key).or_default().push(result);
    }
    order.iter().map(|key| summary(&groups[key])).collect()
}

fn summary(all: &[&RunResult]) -> Summary {
    let counting: Vec<&RunResult> = all.iter().filter(|r| r.counts()).copied().collect();
    let used = if counting.is_empty() { all } else { counting.as_slice() };
    let goodput: Vec<f64> = used.iter().map(|run| run.goodput_bps).collect();
    let statistics = Statistics::of(&mut goodput.clone());
    let limit = Some(used[0].limit_bps).filter(|limit| *limit > 0.0);
    let cost: Vec<f64> = used
        .iter()
        .filter(|run| run.goodput_bps > 0.0)
        .map(|run| (1.0 - run.cpu_idle) * run.environment.cpus as f64 / (run.goodput_bps / 1e9))
        .collect();
    let mut flows: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut round_trips: BTreeMap<String, Vec<Statistics>> = BTreeMap::new();
    let mut datagrams: BTreeMap<String, Vec<Datagrams>> = BTreeMap::new();
    let mut bytes: BTreeMap<String, f64> = BTreeMap::new();
    let mut drops: BTreeMap<String, f64> = BTreeMap::new();
    let share = 1.0 / used.len() as f64;
    for run in used {
        for (name, goodput) in crate::traffic::by_name(&run.flows) {
            flows.entry(name).or_default().push(goodput);
        }
        for flow in &run.flows {
            if let (Some(loss), Some(jitter_ms)) = (flow.loss, flow.jitter_ms) {
                let one = Datagrams { loss, jitter_ms };
                datagrams.entry(flow.name.clone()).or_default().push(one);
            }
            if let Some(rtt) = flow.rtt_ms {
                round_trips.entry(flow.name.clone()).or_default().push(rtt);
            }
        }
        for direction in &run.emulator.directions {
            let arrow = if direction.forward { "forward" } else { "reverse" };
            *bytes.entry(format!("{} {arrow}", direction.link)).or_default() +=
                direction.counters.delivered_bytes as f64 * share;
            let c = &direction.counters;
            for (cause, count) in [
                ("queue", c.dropped_queue),
                ("codel", c.dropped_codel),
                ("loss", c.dropped_loss),
                ("down", c.dropped_down),
                ("blackhole", c.dropped_blackhole),
                ("too_big", c.dropped_too_big),
            ] {
                *drops.entry(cause.to_owned()).or_default() += count as f64 * share;
            }
        }
    }
    let mut invalid: Vec<String> = all.iter().flat_map(|run| run.invalid.clone()).collect();
    invalid.sort_unstable();
    invalid.dedup();
    Summary {
        scenario: used[0].scenario.clone(),
        system: used[0].system.clone(),
        median_bps: statistics.median,
        deviation_bps: statistics.deviation,
        limit_bps: limit,
        ratio: limit.map(|limit| statistics.median / limit),
        goodput_bps: goodput,
        cpu_seconds_per_gbit: (!cost.is_empty()).then(|| median(&cost)),
        flows_bps: flows.into_iter().map(|(name, values)| (name, median(&values))).collect(),
        datagrams: datagrams
            .into_iter()
            .map(|(name, all)| {
                let of = |figure: fn(&Datagrams) -> f64| {
                    median(&all.iter().map(figure).collect::<Vec<_>>())
                };
                (name, Datagrams { loss: of(|d| d.loss), jitter_ms: of(|d| d.jitter_ms) })
            })
            .collect(),
        per_path_bytes: bytes,
        longest_stall_ms: used.iter().map(|run| run.longest_stall_ms).fold(0.0, f64::max),
        rtt_ms: round_trips.into_iter().map(|(name, all)| (name, middle(&all))).collect(),
        drops,
        repetitions: all.len(),
        counting: counting.len(),
        counts: !counting.is_empty(),
        invalid,
        environment: used[0].environment.clone(),
    }
}

/// The median of each figure.
fn middle(all: &[Statistics]) -> Statistics {
    let of = |figure: fn(&Statistics) -> f64| median(&all.iter().map(figure).collect::<Vec<_>>());
    Statistics {
        count: of(|s| s.count as f64) as u64,
        mean: of(|s| s.mean),
        deviation: of(|s| s.deviation),
        minimum: of(|s| s.minimum),
        median: of(|s| s.median),
        p99: of(|s| s.p99),
        maximum: of(|s| s.maximum),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn run(scenario: &str, system: &str, repetition: u32, mbps: f64) -> RunResult {
        RunResult {
            scenario: scenario.to_owned(),
            scenario_hash: hash(scenario),
            system: system.to_owned(),
            kind: system.to_owned(),
            repetition,
            seed: 1,
            time: 0,
            environment: Environment { cpus: 2, ..Environment::default() },
            goodput_bps: mbps * 1e6,
            limit_bps: 20e6,
            longest_stall_ms: 100.0 * f64::from(repetition),
            flows: Vec::new(),
            emulator: Record::default(),
            overrun: 0,
            cpu_idle: 0.5,
            estimates: Vec::new(),
            status: serde_json::Value::Null,
            calibration: None,
            invalid: Vec::new(),
        }
    }

    #[test]
    fn runs_that_do_not_count_are_left_out_of_the_median() {
        let mut bad = run("s", "mptcp", 3, 1.0);
        bad.invalid.push("late".to_owned());
        let runs = [
            run("s", "mptcp", 0, 10.0),
            run("s", "mptcp", 1, 12.0),
            run("s", "mptcp", 2, 11.0),
            bad.clone(),
            run("s", "tcp a", 0, 5.0),
        ];
        let summaries = summarise(&runs);
        assert_eq!(summaries.len(), 2);
        let mptcp = &summaries[0];
        assert_eq!((mptcp.median_bps, mptcp.ratio), (11e6, Some(0.55)));
        assert_eq!((mptcp.repetitions, mptcp.counting, mptcp.counts), (4, 3, true));
        assert_eq!(mptcp.longest_stall_ms, 200.0);
        // Half of two processors at 11 Mbit/s.
        assert!(mptcp.cpu_seconds_per_gbit.is_some_and(|cost| (cost - 1e3 / 11.0).abs() < 1e-9));
        assert!(!summarise(&[bad])[0].counts);
    }

    #[test]
    fn an_interrupted_line_does_not_hide_the_others() {
        let directory = std::env::temp_dir().join(format!("mpip-lab-store-{}", std::process::id()));
        let mut store = Store::open(&directory).expect("opened");
        store.add(run("s", "tcp a", 0, 5.0)).expect("written");
        store.add(run("s", "tcp a", 1, 5.0)).expect("written");
        drop(store);
        let path = directory.join("results.jsonl");
        let text = std::fs::read_to_string(&path).expect("there");
        std::fs::write(&path, &text[..text.len() - 20]).expect("cut");
        let store = Store::open(&directory).expect("opened again");
        assert!(store.find("s", &hash("s"), "tcp a", 0).is_some());
        assert!(store.find("s", &hash("s"), "tcp a", 1).is_none());
        assert!(store.find("s", &hash("other"), "tcp a", 0).is_none());
        let mut store = store;
        let mut bad = run("s", "tcp a", 1, 5.0);
        bad.invalid.push("late".to_owned());
        for result in [bad.clone(), run("s", "tcp a", 1, 5.0), bad] {
            store.add(result).expect("written");
        }
        assert!(store.find("s", &hash("s"), "tcp a", 1).is_some_and(RunResult::counts));
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
