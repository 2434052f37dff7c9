//! `mpip-lab sweep`: mpip over link sets drawn at random, for each kind of inner sender, in virtual
//! time.
//!
//! `distribution` draws the sets or `given` reads one, `measured` runs a sender over one of them,
//! `summary` prints distributions and the worst seeds, and `explain` the time line of one run. All
//! follows from the seed, so results repeat, whatever the number of threads. `kernel` runs the same
//! sets on kernels, as the scenarios that `scenario` makes of them.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use mpip_core::Parameters;
use mpip_sim::clock::SECOND;
use mpip_sim::measure::WARM_UP;

use self::measured::Plan;
use crate::lines::Lines;
use crate::progress::Work;
use crate::side_by_side;

pub(crate) mod distribution;
mod explain;
mod given;
mod kernel;
mod measured;
mod scenario;
pub(crate) mod summary;

use distribution::END;
pub(crate) use distribution::{FROM, Set};
pub(crate) use measured::Measured;

/// The results of a directory, one line for each seed and sender.
pub(crate) const FILE: &str = "sweep.jsonl";

/// What to run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of link sets
    #[arg(long, default_value_t = 100)]
    sets: u64,
    /// Seed of the first set; the others follow
    #[arg(long, default_value_t = 0)]
    first_seed: u64,
    /// Inner senders, separated by commas: cubic, reno, bbr (TCP), quic-cubic, quic-reno,
    /// quic-hybrid (as quic-go), quic-bbr; on kernels those of `run` (default: most of them)
    #[arg(long, value_delimiter = ',')]
    senders: Vec<String>,
    /// On kernels instead of in the simulator, in real time, and kernel MPTCP beside; short
    /// transfers are TCP's only
    #[arg(long, conflicts_with_all = ["with", "path", "seconds", "after", "explain"])]
    kernel: bool,
    /// Counts runs on kernels even if the processors were busy
    #[arg(long)]
    allow_busy: bool,
    /// Directory of the results. Seeds and senders with a result there are not repeated
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// Leaves the short transfers out
    #[arg(long)]
    bulk_only: bool,
    /// Threads (default: all processors); on kernels, runs at once as with `run` (default: 1)
    #[arg(long)]
    jobs: Option<NonZeroU32>,
    /// Other values of parameters, as `mechanism.parameter=value`; such results are not stored
    #[arg(long)]
    with: Vec<String>,
    /// A path with these keys of a scenario's link instead of drawn ones; once for each path.
    /// Seeds decide what is random there; such results are not stored
    #[arg(long, value_name = "KEYS", conflicts_with = "show")]
    path: Vec<String>,
    /// Seconds of bulk, of which the first third does not count; results are stored with 12 only
    #[arg(long, default_value_t = END / SECOND, conflicts_with = "show")]
    #[arg(value_parser = clap::value_parser!(u64).range(3..=3_600))]
    seconds: u64,
    /// Seconds from the association to the start of transfers, with nothing before short ones and
    /// pings before bulk; results are stored with 2 only
    #[arg(long, default_value_t = WARM_UP / SECOND, conflicts_with = "show")]
    #[arg(value_parser = clap::value_parser!(u64).range(2..=3_600))]
    after: u64,
    /// Prints the stored results of these seeds and senders, and measures nothing
    #[arg(long)]
    show: bool,
    /// Prints the tables in Markdown
    #[arg(long)]
    markdown: bool,
    /// Only this seed
    #[arg(long)]
    seed: Option<u64>,
    /// Prints a time line of the bulk transfer of one seed and sender
    #[arg(long, requires = "seed")]
    explain: bool,
    /// Explains a transfer of so many bytes from idle instead of bulk
    #[arg(long, requires = "explain")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    bytes: Option<u64>,
    /// The sender to explain
    #[arg(long, default_value = "cubic")]
    sender: String,
}

/// Inner senders that are measured by default.
const SENDERS: [&str; 6] = ["cubic", "reno", "bbr", "quic-cubic", "quic-hybrid", "quic-bbr"];

impl Options {
    fn senders(&self) -> Vec<String> {
        if !self.senders.is_empty() {
            return self.senders.clone();
        }
        let usual: &[&str] = if self.kernel { &kernel::SENDERS } else { &SENDERS };
        usual.iter().map(|name| (*name).to_owned()).collect()
    }

    /// The links of `seed`.
    fn set(&self, seed: u64) -> io::Result<Set> {
        let drawn = self.path.is_empty();
        let set = if drawn { Set::draw(seed) } else { given::set(&self.path, seed)? };
        Ok(set.lasting(self.seconds * SECOND).beginning(self.after * SECOND))
    }

    fn seeds(&self) -> std::ops::Range<u64> {
        match self.seed {
            Some(seed) => seed..seed + 1,
            None => self.first_seed..self.first_seed.saturating_add(self.sets),
        }
    }
}

/// Runs what `options` ask for.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let (senders, seeds) = (options.senders(), options.seeds());
    if options.kernel {
        let run = kernel::options(&options.out, options.jobs, options.allow_busy);
        let plan = kernel::Plan { run, show: options.show, short: !options.bulk_only };
        let results = kernel::measure(seeds, &senders, &plan)?;
        let known = read(&options.out)?;
        let new: Vec<&Measured> = results.iter().filter(|result| !known.contains(result)).collect();
        if !new.is_empty() {
            let mut lines = Lines::open(&options.out, FILE)?;
            new.iter().try_for_each(|result| lines.add(result))?;
        }
        print!("{}", summary::text(&results, &senders, options.markdown));
        return Ok(ExitCode::SUCCESS);
    }
    let parameters = crate::parameters::set(Parameters::default(), &options.with)?;
    let plan = Plan { short: !options.bulk_only, parameters };
    if let (Some(seed), true) = (options.seed, options.explain) {
        let work = Work::new(&format!("simulating set {seed}"), 1);
        let (set, sender) = (options.set(seed)?, &options.sender);
        let text = match options.bytes {
            Some(bytes) => explain::short(&set, sender, bytes, &plan)?,
            None => explain::bulk(&set, sender, &plan)?,
        };
        drop(work);
        print!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    let wanted =
        |result: &Measured| seeds.contains(&result.seed) && senders.contains(&result.sender);
    let usual = (options.seconds * SECOND, options.after * SECOND) == (END, WARM_UP);
    let stored = options.with.is_empty() && options.path.is_empty() && usual;
    let mut results = if stored { read(&options.out)? } else { Vec::new() };
    results.retain(wanted);
    if !options.show {
        let done: BTreeSet<(u64, String)> = results
            .iter()
            .filter(|result| options.bulk_only || !result.short.is_empty())
            .map(|result| (result.seed, result.sender.clone()))
            .collect();
        let left = seeds.flat_map(|seed| senders.iter().map(move |name| (seed, name)));
        let left = left.filter(|(seed, name)| !done.contains(&(*seed, (*name).clone())));
        let left = left.map(|(seed, name)| Ok((options.set(seed)?, name)));
        let left = left.collect::<io::Result<Vec<_>>>()?;
        let out = stored.then_some(options.out.as_path());
        let new = run_all(&left, &plan, side_by_side::threads(options.jobs), out)?;
        // A result with short transfers takes the place of one without.
        results.retain(|old| !new.iter().any(|n| (n.seed, &n.sender) == (old.seed, &old.sender)));
        results.extend(new);
    }
    results.sort_by_key(|result| result.seed);
    print!("{}", summary::text(&results, &senders, options.markdown));
    if !stored {
        eprintln!("These are explained with the same --with, --path, --seconds and --after only.");
    }
    let broken = results.iter().filter(|result| !result.violations.is_empty()).count();
    Ok(if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The results in `directory`; the last one of each seed and sender.
///
/// # Errors
/// If the file cannot be read, or a line other than the last is not a result.
pub(crate) fn read(directory: &Path) -> io::Result<Vec<Measured>> {
    let path = directory.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut results: Vec<Measured> = Vec::new();
    let count = text.lines().count();
    for (number, line) in text.lines().enumerate() {
        match serde_json::from_str::<Measured>(line) {
            Ok(result) => results.push(result),
            // The last one was interrupted.
            Err(_) if number + 1 == count => {}
            Err(error) => {
                let place = format!("{}:{}: {error}", path.display(), number + 1);
                return Err(io::Error::other(place));
            }
        }
    }
    results.reverse();
    let mut seen = BTreeSet::new();
    results.retain(|result| seen.insert((result.seed, result.sender.clone())));
    Ok(results)
}

fn run_all(
    cases: &[(Set, &String)],
    plan: &Plan,
    jobs: u32,
    out: Option<&Path>,
) -> io::Result<Vec<Measured>> {
    let lines = match out {
        Some(directory) if !cases.is_empty() => Some(Lines::open(directory, FILE)?),
        _ => None,
    };
    let shared = Mutex::new((Vec::new(), lines));
    let work = Work::new("simulated link sets", cases.len());
    side_by_side::each(cases, jobs, |(set, sender)| {
        let result = measured::measure(set, sender, plan)?;
        let (results, lines) = &mut *shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lines) = lines {
            lines.add(&result)?;
        }
        results.push(result);
        work.one();
        Ok(())
    })?;
    let (results, _) = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(results)
}

#[cfg(test)]
mod tests;
