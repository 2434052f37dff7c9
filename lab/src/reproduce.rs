//! `mpip-lab reproduce`: runs the scenarios of a set, then writes tables and report. The full set
//! includes the simulator's scenarios and the factorial.

use std::io;
use std::time::Duration;

use crate::factorial::{self, Plan};
use crate::run::{self, Options};
use crate::scenarios::{self, Loaded};
use crate::summary::{self, Summary, summarise};
use crate::{calibrate, calibration, netns, report};

/// The set with everything.
pub(crate) const FULL: &str = "full";
/// The set of scenarios that only the simulator can run.
const SIMULATED: &str = "sim";
/// Length of each of the calibration's measurements.
const CALIBRATION: Duration = Duration::from_secs(5);

fn of_set(set: &str) -> io::Result<Vec<Loaded>> {
    let mut all = scenarios::all()?;
    all.retain(|loaded| loaded.scenario.sets.iter().any(|name| name == set));
    Ok(all)
}

/// Runs what has no result yet, says before how long it takes, and returns the summaries.
///
/// # Errors
/// No scenario belongs to the set; or files cannot be written.
pub(crate) fn run(set: &str, options: &Options) -> io::Result<Vec<Summary>> {
    let scenarios = options.adapt(of_set(set)?);
    if scenarios.is_empty() {
        return Err(io::Error::other(format!("no scenario belongs to the set {set:?}")));
    }
    std::fs::create_dir_all(&options.directory)?;
    run::announce(&scenarios, options)?;
    let numbers = if set == FULL { factorial::numbers(1, &[])? } else { Vec::new() };
    let cells = Plan { numbers, longest: factorial::LONGEST };
    let simulated = Options { simulated: true, ..options.clone() };
    let virtual_scenarios = if set == FULL { of_set(SIMULATED)? } else { Vec::new() };
    if set == FULL {
        let time = cells.expected(&options.directory)?;
        eprintln!(
            "then {} scenarios in the simulator and its factorial, about {} min",
            virtual_scenarios.len(),
            time.as_secs().div_ceil(60) + 1
        );
    }
    let calibration = options.directory.join(calibration::FILE);
    if !calibration.exists() && !options.netem {
        netns::clean_stale()?;
        let _guard = netns::Guard::start()?;
        let found = calibrate::calibrate(100e6, CALIBRATION)?;
        eprintln!("{found}");
        std::fs::write(&calibration, serde_json::to_string_pretty(&found)?)?;
    }
    let mut results = run::in_namespaces(&scenarios, options)?.results;
    results.extend(run::in_namespaces(&virtual_scenarios, &simulated)?.results);
    if set == FULL {
        cells.run(&options.directory)?;
    }
    let summaries = summarise(&results);
    let file = options.directory.join(summary::FILE);
    std::fs::write(file, serde_json::to_string_pretty(&summaries)?)?;
    report::write(&options.directory)?;
    Ok(summaries)
}
