//! What was measured, for the checks to look up.

use crate::factorial::CellResult;
use crate::published::Published;
use crate::results::RunResult;
use crate::statistics;
use crate::summary::Summary;

/// Everything that was measured.
pub(super) struct Measured {
    pub(super) runs: Vec<RunResult>,
    pub(super) summaries: Vec<Summary>,
    pub(super) cells: Vec<CellResult>,
    pub(super) published: Vec<Published>,
}

impl Measured {
    /// The summary of a system in a scenario.
    pub(super) fn summary(&self, scenario: &str, system: &str) -> Option<&Summary> {
        self.summaries.iter().find(|s| s.scenario == scenario && s.system == system)
    }

    /// The runs behind the summary: those that count, or all if none does.
    pub(super) fn runs<'a>(&'a self, scenario: &'a str, system: &'a str) -> Vec<&'a RunResult> {
        let all: Vec<&RunResult> =
            self.runs.iter().filter(|r| r.scenario == scenario && r.system == system).collect();
        let counting: Vec<&RunResult> = all.iter().filter(|r| r.counts()).copied().collect();
        if counting.is_empty() { all } else { counting }
    }

    /// The median over the runs of a figure of each run, `None` if no run has it.
    pub(super) fn median(
        &self,
        scenario: &str,
        system: &str,
        figure: impl Fn(&RunResult) -> Option<f64>,
    ) -> Option<f64> {
        let found: Vec<f64> = self.runs(scenario, system).into_iter().filter_map(figure).collect();
        (!found.is_empty()).then(|| statistics::median(&found))
    }
}
