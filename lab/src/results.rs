//! Results: one record for each run, stored as JSON lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::calibration::Calibration;
use crate::environment::Environment;
use crate::flow::FlowResult;
use crate::links::Record;

/// Share of late frames above which a run does not count.
pub(crate) const LATE_BOUND: f64 = 0.01;

/// A sender's estimates of the delays of a path, sampled as links are.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Estimate {
    /// The path, by the names of its interfaces: `a→b`.
    pub(crate) path: String,
    /// How much the peer's clock gained on the sender's during the run, in ms.
    #[serde(default)]
    pub(crate) clock_gained_ms: f64,
    /// One-way delay above its windowed minimum, in ms; none while the path does not work.
    pub(crate) queuing_ms: Vec<Option<f64>>,
    /// One-way delay beyond that of the fastest path, in ms; none while the path does not work.
    pub(crate) relative_ms: Vec<Option<f64>>,
}

/// The samples of an [`Estimate`] at which the path worked.
pub(crate) fn known(samples: &[Option<f64>]) -> Vec<f64> {
    samples.iter().flatten().copied().collect()
}

/// One run of one system in one scenario.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunResult {
    pub(crate) scenario: String,
    /// Hash of the scenario's text. Runs of different texts are different runs.
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
    /// What the links can carry, in bit/s; 0 for no limit.
    pub(crate) limit_bps: f64,
    pub(crate) longest_stall_ms: f64,
    pub(crate) flows: Vec<FlowResult>,
    pub(crate) emulator: Record,
    /// Frames that host devices dropped because the emulator did not read them in time.
    pub(crate) overrun: u64,
    /// Idle share of the processors' time during the run.
    pub(crate) cpu_idle: f64,
    /// The sender's estimates of path delays, of runs of mpip.
    #[serde(default)]
    pub(crate) estimates: Vec<Estimate>,
    /// The state that the system reported at the end.
    pub(crate) status: serde_json::Value,
    /// Accuracy of the emulator on this machine, if it was measured before.
    #[serde(default)]
    pub(crate) calibration: Option<Calibration>,
    /// How many runs could be made at once.
    #[serde(default = "one")]
    pub(crate) side_by_side: u32,
    /// Why the run does not count; empty if it counts.
    pub(crate) invalid: Vec<String>,
}

/// Earlier results are of runs one after the other.
fn one() -> u32 {
    1
}

impl RunResult {
    pub(crate) fn counts(&self) -> bool {
        self.invalid.is_empty()
    }

    fn key(&self) -> (String, String, String, u32) {
        (self.scenario.clone(), self.scenario_hash.clone(), self.system.clone(), self.repetition)
    }
}

/// The file of results in a directory.
pub(crate) const FILE: &str = "results.jsonl";

/// The results of a directory.
pub(crate) struct Store {
    results: Vec<RunResult>,
}

impl Store {
    /// Reads the results in a directory, if there are any. An incomplete last line, from an
    /// interruption, is ignored.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(FILE);
        let results = if path.exists() { read(&path)? } else { Vec::new() };
        Ok(Self { results })
    }

    /// A stored result of this run, preferably one that counts.
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

    pub(crate) fn results(&self) -> &[RunResult] {
        &self.results
    }
}

fn read(path: &Path) -> io::Result<Vec<RunResult>> {
    let mut results = Vec::new();
    for line in BufReader::new(File::open(path)?).lines() {
        match serde_json::from_str(&line?) {
            Ok(result) => results.push(result),
            Err(error) => eprintln!("{}: ignored a line: {error}", path.display()),
        }
    }
    Ok(results)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::lines::Lines;
    use crate::scenarios::hash;

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
            side_by_side: 1,
            invalid: Vec::new(),
        }
    }

    #[test]
    fn an_interrupted_line_does_not_hide_the_others() {
        let directory = mpip_testing::Directory::new();
        let mut lines = Lines::open(directory.path(), FILE).expect("opened");
        lines.add(&run("s", "tcp a", 0, 5.0)).expect("written");
        lines.add(&run("s", "tcp a", 1, 5.0)).expect("written");
        let path = directory.join(FILE);
        let text = std::fs::read_to_string(&path).expect("there");
        std::fs::write(&path, &text[..text.len() - 20]).expect("cut");
        let store = Store::open(directory.path()).expect("opened again");
        assert!(store.find("s", &hash("s"), "tcp a", 0).is_some());
        assert!(store.find("s", &hash("s"), "tcp a", 1).is_none());
        assert!(store.find("s", &hash("other"), "tcp a", 0).is_none());
        let mut bad = run("s", "tcp a", 1, 5.0);
        bad.invalid.push("late".to_owned());
        for result in [bad.clone(), run("s", "tcp a", 1, 5.0), bad] {
            lines.add(&result).expect("written");
        }
        let store = Store::open(directory.path()).expect("opened again");
        assert!(store.find("s", &hash("s"), "tcp a", 1).is_some_and(RunResult::counts));
    }
}
