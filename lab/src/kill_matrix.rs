//! `mpip-lab kill-matrix`: kills every proper subset of two to four paths, in every way, during a
//! transfer.
//!
//! A cell of the matrix is one TCP connection with bulk data in both directions: it starts, the
//! paths are killed, they are healed, it ends, and every byte must have arrived unaltered. Cells
//! with the same number of paths and the same kind of path share a [`world`].

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use self::cell::{Cell, Kill, Outcome, Via};
use self::world::World;
use crate::clock;
use crate::environment::Environment;
use crate::lines::{self, Lines};
use crate::netns;
use crate::progress::Progress;
use crate::work_directory::WorkDirectory;

mod cell;
mod table;
mod transfer;
mod world;

/// The file of the outcomes.
const FILE: &str = "kill-matrix.jsonl";
/// Durations of the transfer before the kill, during it, and after it.
const BEFORE: Duration = Duration::from_millis(400);
const KILLED: Duration = Duration::from_millis(900);
/// Most time by which a kill is extended until it has dropped a packet: the guard may have left the
/// path out, and tries it again after 20 s.
const MEETS: Duration = Duration::from_secs(25);
const AFTER: Duration = Duration::from_millis(300);
/// Time within which all paths must work again.
const RECOVERY: Duration = Duration::from_secs(10);
/// Estimated times of a cell and of a world.
const CELL: Duration = Duration::from_millis(2_600);
const WORLD: Duration = Duration::from_secs(4);

/// Which part of the matrix to run, and how.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Kills one of two paths only, each way once or twice: under a minute instead of 40
    #[arg(long)]
    quick: bool,
    /// Only worlds with this number of paths: 2, 3, 4, separated by commas
    #[arg(long, value_delimiter = ',')]
    paths: Option<Vec<u8>>,
    /// Only worlds with this kind of path
    #[arg(long, value_delimiter = ',')]
    via: Option<Vec<Via>>,
    /// Only these ways to kill
    #[arg(long, value_delimiter = ',')]
    kill: Option<Vec<Kill>>,
    /// Only these subsets, as numbers: 1 is the first path, 2 the second, 3 both …
    #[arg(long, value_delimiter = ',')]
    killed: Option<Vec<u8>>,
    /// Directory of the results; cells with a result there are not repeated
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// Repeats cells that have a result
    #[arg(long, conflicts_with = "show")]
    again: bool,
    /// Prints the table and runs nothing
    #[arg(long)]
    show: bool,
}

impl Options {
    fn wants(&self, cell: &Cell) -> bool {
        fn among<T: PartialEq>(wanted: Option<&Vec<T>>, value: &T) -> bool {
            wanted.is_none_or(|wanted| wanted.contains(value))
        }
        among(self.paths.as_ref(), &cell.paths)
            && among(self.via.as_ref(), &cell.via)
            && among(self.kill.as_ref(), &cell.kill)
            && among(self.killed.as_ref(), &cell.killed)
    }
}

/// Runs the cells without a result and prints the table. Fails if a cell has a fault.
///
/// # Errors
/// A world cannot be made, or the results not be written.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let mut cells = if options.quick { cell::quick() } else { cell::all() };
    cells.retain(|cell| options.wants(cell));
    if cells.is_empty() {
        return Err(io::Error::other("no cell of the matrix is selected"));
    }
    let mut outcomes = read(&options.out)?;
    if !options.show {
        let known = |cell: &Cell| !options.again && outcomes.contains_key(cell);
        let left: Vec<Cell> = cells.iter().copied().filter(|cell| !known(cell)).collect();
        for outcome in run_cells(&left, &options.out)? {
            outcomes.insert(outcome.cell, outcome);
        }
    }
    let outcomes: Vec<Outcome> =
        cells.iter().filter_map(|cell| outcomes.get(cell).cloned()).collect();
    print!("{}", table::markdown(&outcomes));
    let sound = outcomes.len() == cells.len() && outcomes.iter().all(|o| o.faults().is_empty());
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The latest outcome of each cell in a directory.
fn read(directory: &Path) -> io::Result<BTreeMap<Cell, Outcome>> {
    let outcomes: Vec<Outcome> = lines::read(directory, FILE)?;
    Ok(outcomes.into_iter().map(|outcome| (outcome.cell, outcome)).collect())
}

/// Runs cells in their order, in as few worlds as possible.
fn run_cells(cells: &[Cell], directory: &Path) -> io::Result<Vec<Outcome>> {
    if cells.is_empty() {
        return Ok(Vec::new());
    }
    let mut lines = Lines::open(directory, FILE)?;
    netns::clean_stale()?;
    let _guard = netns::Guard::start()?;
    let work = WorkDirectory::create()?;
    let commit = Environment::here().commit;
    let worlds: Vec<&[Cell]> =
        cells.chunk_by(|a, b| (a.via, a.paths) == (b.via, b.paths)).collect();
    let planned = CELL * cells.len() as u32 + WORLD * worlds.len() as u32;
    eprintln!(
        "{} cells in {} worlds, about {} min",
        cells.len(),
        worlds.len(),
        planned.as_secs().div_ceil(60)
    );
    let progress = Progress::new(cells.len(), planned);
    let mut outcomes = Vec::new();
    for cells in worlds {
        let mut world = None;
        let mut planned = CELL + WORLD;
        for cell in cells {
            let mut outcome = Outcome::new(*cell, &commit);
            let name = table::name(&outcome);
            progress.begin(&name, planned);
            let up = match world.take() {
                Some(world) => Ok(world),
                None => World::build(cell.via, cell.paths, &work.path),
            };
            match up.and_then(|world| run_cell(&world, &mut outcome).map(|()| world)) {
                // A fault of one cell must not fail the next.
                Ok(up) => world = outcome.faults().is_empty().then_some(up),
                Err(error) => outcome.error = error.to_string().lines().next().map(str::to_owned),
            }
            progress.end(&name, &one_line(&outcome));
            planned = CELL;
            lines.add(&outcome)?;
            outcomes.push(outcome);
        }
    }
    Ok(outcomes)
}

fn run_cell(world: &World, outcome: &mut Outcome) -> io::Result<()> {
    let cell = outcome.cell;
    let transfer = world.transfer()?;
    std::thread::sleep(BEFORE);
    let killed_at = clock::now();
    world.kill(cell)?;
    std::thread::sleep(KILLED);
    // A path may carry nothing at the moment, for instance because it is left out for a trial.
    while world.dropped(cell)? == Some(0) && clock::now() < killed_at + KILLED + MEETS {
        std::thread::sleep(KILLED / 10);
    }
    outcome.dropped = world.heal(cell)?;
    if outcome.dropped == Some(0) {
        outcome.error = Some(world.describe());
    }
    std::thread::sleep(AFTER);
    let directions = transfer.finish();
    for (direction, bytes) in directions.iter().zip(&mut outcome.bytes) {
        *bytes = direction.bytes;
        let stall_ms = direction.longest_pause(killed_at).as_secs_f64() * 1e3;
        outcome.longest_stall_ms = outcome.longest_stall_ms.max(stall_ms);
        outcome.corrupted |= !direction.equal && direction.errors.is_empty();
        for error in &direction.errors {
            use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
            if matches!(error.kind(), ConnectionReset | ConnectionAborted | BrokenPipe) {
                outcome.resets += 1;
            } else {
                outcome.error = Some(error.to_string());
            }
        }
    }
    world.renew(cell)?;
    let recovery = world.recovery(RECOVERY);
    outcome.recovery_ms = recovery.map(|time| time.as_secs_f64() * 1e3);
    if recovery.is_none() {
        outcome.error.get_or_insert_with(|| world.describe());
    }
    Ok(())
}

fn one_line(outcome: &Outcome) -> String {
    let faults = outcome.faults();
    let fate = if faults.is_empty() { "whole".to_owned() } else { faults.join("; ") };
    let megabytes = outcome.bytes.map(|bytes| bytes as f64 / 1e6);
    format!(
        "stall {:.0} ms, {:.1} + {:.1} MB, {fate}",
        outcome.longest_stall_ms, megabytes[0], megabytes[1]
    )
}
