//! What was measured, for the tables of targets and of the papers to look up.

use crate::factorial::CellResult;
use crate::factorial::balia::BaliaResult;
use crate::links::DirectionRecord;
use crate::published::{Published, published};
use crate::results::RunResult;
use crate::statistics;
use crate::summary::{Summary, summarise};

/// Everything that was measured.
pub(crate) struct Measured {
    pub(crate) runs: Vec<RunResult>,
    pub(crate) summaries: Vec<Summary>,
    pub(crate) cells: Vec<CellResult>,
    pub(crate) balia: Vec<BaliaResult>,
    pub(crate) published: Vec<Published>,
}

impl Measured {
    /// These runs, and nothing of the factorials.
    pub(crate) fn of(runs: Vec<RunResult>) -> Self {
        let (summaries, published) = (summarise(&runs), published());
        Self { runs, summaries, cells: Vec::new(), balia: Vec::new(), published }
    }

    /// The summary of a system in a scenario.
    pub(crate) fn summary(&self, scenario: &str, system: &str) -> Option<&Summary> {
        self.summaries.iter().find(|s| s.scenario == scenario && s.system == system)
    }

    /// The runs behind the summary: those that count, or all if none does.
    pub(crate) fn runs<'a>(&'a self, scenario: &'a str, system: &'a str) -> Vec<&'a RunResult> {
        let all: Vec<&RunResult> =
            self.runs.iter().filter(|r| r.scenario == scenario && r.system == system).collect();
        let counting: Vec<&RunResult> = all.iter().filter(|r| r.counts()).copied().collect();
        if counting.is_empty() { all } else { counting }
    }

    /// The median over the runs of a figure of each run, `None` if no run has it.
    pub(crate) fn median(
        &self,
        scenario: &str,
        system: &str,
        figure: impl Fn(&RunResult) -> Option<f64>,
    ) -> Option<f64> {
        let found: Vec<f64> = self.runs(scenario, system).into_iter().filter_map(figure).collect();
        (!found.is_empty()).then(|| statistics::median(&found))
    }
}

/// Samples of links, and intervals of flows, in a second.
pub(crate) const PER_SECOND: usize = 10;

/// A link's direction from its first end, the client, to the other.
pub(crate) fn direction<'a>(run: &'a RunResult, link: &str) -> Option<&'a DirectionRecord> {
    run.emulator.directions.iter().find(|d| d.link == link && d.forward)
}

/// What a link of 100 Mbit/s, Ethernet headers counted, carries between the third second and the
/// last but one, as a share of its rate.
pub(crate) fn fill(run: &RunResult, link: &str) -> Option<f64> {
    let delivered = &direction(run, link)?.delivered;
    let from = 2 * PER_SECOND;
    let bytes = delivered.get(from..delivered.len().checked_sub(PER_SECOND)?)?;
    let seconds = bytes.len() as f64 / PER_SECOND as f64;
    let on_wire = bytes.iter().sum::<u64>() as f64 * 1514.0 / 1500.0;
    Some(on_wire * 8.0 / seconds / 100e6)
}
