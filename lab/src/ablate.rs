//! `mpip-lab ablate`: what each mechanism brings, in virtual time.
//!
//! Each mechanism is switched off by setting its parameters, one mechanism at a time, and all
//! [`cases`] run again: the simulator's scenarios of interest, and transfers over random links. Two
//! runs of a case differ by nothing but the parameters. Everything random follows from the case, so
//! that a table repeats, whatever the number of threads.

use std::io;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use mpip_core::Parameters;

use self::cases::Case;
use self::heuristics::{HEURISTICS, Heuristic};
use self::outcome::Outcome;
use self::table::Row;
use crate::parameters::set;
use crate::progress::Work;
use crate::side_by_side;

mod cases;
mod heuristics;
mod outcome;
mod table;

/// What to run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of link sets of the sweep; each has a transfer by cubic, BBR and QUIC with HyStart
    #[arg(long, default_value_t = 50)]
    sets: u64,
    /// Threads (default: all processors)
    #[arg(long)]
    jobs: Option<NonZeroU32>,
    /// Only these mechanisms, separated by commas; `--list` shows them
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Lists the mechanisms and the parameters that switch them off
    #[arg(long)]
    list: bool,
    /// Leaves the scenarios out
    #[arg(long)]
    random_only: bool,
    /// Other values for all runs, as `mechanism.parameter=value`: durations in milliseconds,
    /// switches as 0 and 1
    #[arg(long)]
    with: Vec<String>,
    /// Prints the table in Markdown
    #[arg(long)]
    markdown: bool,
    /// Writes the result of every case as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

fn chosen(only: &[String]) -> io::Result<Vec<&'static Heuristic>> {
    if let Some(name) = only.iter().find(|name| !HEURISTICS.iter().any(|h| h.name == **name)) {
        return Err(io::Error::other(format!("there is no mechanism {name:?}; see --list")));
    }
    let wanted = |h: &&Heuristic| only.is_empty() || only.iter().any(|name| *name == h.name);
    Ok(HEURISTICS.iter().filter(wanted).collect())
}

/// Runs all and prints the table.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let chosen = chosen(&options.only)?;
    if options.list {
        for Heuristic { name, what, off } in chosen {
            println!("{name:20} {what} ({})", off.join(", "));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let base = set(Parameters::default(), &options.with)?;
    let mut variants = vec![base];
    for heuristic in &chosen {
        variants.push(set(base, heuristic.off)?);
    }
    let scenarios = if options.random_only { Vec::new() } else { cases::scenarios() };
    let cases = [scenarios, cases::random(options.sets)].concat();
    let outcomes = run_all(&cases, &variants, side_by_side::threads(options.jobs))?;
    let names = chosen.iter().map(|heuristic| heuristic.name);
    let names: Vec<&str> = ["all on", "other seed"].into_iter().chain(names).collect();
    let rows: Vec<Row> =
        (0..outcomes.len()).map(|row| Row::of(names[row], &outcomes[0], &outcomes[row])).collect();
    print!("{}", table::text(&rows, &cases, options.markdown));
    if let Some(file) = &options.json {
        std::fs::write(file, table::json(&names, &cases, &outcomes)?)?;
    }
    let violations: usize = outcomes.iter().flatten().map(|outcome| outcome.violations).sum();
    if violations > 0 {
        println!("{violations} violated invariants");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The outcome of each case by row: all on, all on with other seeds (which shows what chance does),
/// and the variants.
fn run_all(cases: &[Case], variants: &[Parameters], jobs: u32) -> io::Result<Vec<Vec<Outcome>>> {
    let rows = variants.len() + 1;
    let total = rows * cases.len();
    let outcomes = Mutex::new(vec![vec![Outcome::default(); cases.len()]; rows]);
    let work = Work::new("simulated worlds", total);
    side_by_side::each(0..total, jobs, |number| {
        // Case by case, so that an estimate of the time holds early.
        let (index, row) = (number / rows, number % rows);
        let case = &cases[index];
        let outcome = match row {
            0 => case.run(&variants[0], 0),
            1 => case.run(&variants[0], 1),
            row => case.run(&variants[row - 1], 0),
        };
        outcomes.lock().unwrap_or_else(PoisonError::into_inner)[row][index] = outcome;
        work.one();
        Ok(())
    })?;
    Ok(outcomes.into_inner().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mechanism_can_be_switched_off() {
        for heuristic in HEURISTICS {
            let off = set(Parameters::default(), heuristic.off).expect("its parameters exist");
            assert_ne!(off, Parameters::default(), "{} is off by default", heuristic.name);
        }
        assert!(set(Parameters::default(), &["guard.harm"]).is_err());
        assert!(set(Parameters::default(), &["guard.harms=1"]).is_err());
        assert!(chosen(&["guards".to_owned()]).is_err());
    }

    #[test]
    fn outcomes_repeat_whatever_the_number_of_threads() {
        let cases: Vec<Case> = cases::random(1).into_iter().take(1).collect();
        let off = set(Parameters::default(), &["earliest.waits=0"]).expect("it exists");
        let variants = [Parameters::default(), off];
        let run = |jobs| run_all(&cases, &variants, jobs).expect("no error");
        let outcomes = run(1);
        assert_eq!(outcomes, run(2));
        assert!(outcomes.iter().all(|row| row[0].share > 0.1), "{outcomes:?}");
    }
}
