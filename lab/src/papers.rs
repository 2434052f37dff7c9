//! `mpip-lab papers`: every published figure of the seeds beside ours.
//!
//! Ours are those of a directory with results, or the ones that were kept in `data/measured.csv`.
//! The tables in `docs/papers.md` are made from these.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::columns;
use crate::document;
use crate::environment::Environment;
use crate::factorial::balia::BaliaResult;
use crate::factorial::{self, Cell, CellResult, Origin};
use crate::measured::{Measured, fill};
use crate::published::{Measure, Published, published};
use crate::report::plot::label;
use crate::results::{RunResult, Store, known};
use crate::run::NETEM;
use crate::scenarios::{self, hash};
use crate::statistics::{jain, mean, median};
use crate::summary::Summary;

/// The tables are behind this line.
const BEGIN: &str = "<!-- `mpip-lab papers --write` makes what follows -->\n";
const KEPT: &str = include_str!("../data/measured.csv");
/// Why figures are not reached: id, then the cause.
const CAUSES: &str = include_str!("../data/not_reached.csv");
const KEPT_FILE: &str = "lab/data/measured.csv";
const DOCUMENT: &str = "docs/papers.md";
/// The first line of the kept results.
const HEADING: &str = "id,ours,host,repetitions,commit,date";
/// The scenario of figures that cells of the factorial repeat.
const FACTORIAL: &str = "factorial";

/// What to show.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seeds, or beginnings of ids, as in the first column (default: all)
    figures: Vec<String>,
    /// A directory with results, in place of the ones that were kept
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// Prints Markdown
    #[arg(long)]
    markdown: bool,
    /// Writes docs/papers.md again, and before that keeps the figures of `--results` in
    /// lab/data/measured.csv. To be run in the top directory of the repository
    #[arg(long)]
    write: bool,
}

/// What we measured for a published figure.
#[derive(Debug, Clone, PartialEq)]
struct Ours {
    id: String,
    /// The figure of the same system; for those of mPIP through the tunnel device.
    value: f64,
    /// The same in host mode, which is how mPIP works; `None` if that was not measured.
    host: Option<f64>,
    /// Runs behind it.
    repetitions: usize,
    /// What was measured.
    commit: String,
    /// Day, as YYYY-MM-DD.
    date: String,
}

impl Ours {
    fn line(&self) -> String {
        let Self { id, value, host, repetitions, commit, date } = self;
        let host = host.map_or(String::new(), short);
        format!("{id},{},{host},{repetitions},{commit},{date}", short(*value))
    }

    fn read(line: &str) -> Result<Self, String> {
        let wrong = || format!("expected {HEADING}, found {line:?}");
        let fields: Vec<&str> = line.split(',').collect();
        let [id, value, host, repetitions, commit, date] = fields[..] else { return Err(wrong()) };
        Ok(Self {
            id: id.to_owned(),
            value: value.parse().map_err(|_| wrong())?,
            host: match host {
                "" => None,
                text => Some(text.parse().map_err(|_| wrong())?),
            },
            repetitions: repetitions.parse().map_err(|_| wrong())?,
            commit: commit.to_owned(),
            date: date.to_owned(),
        })
    }
}

/// A figure with at most three digits after the point.
fn short(value: f64) -> String {
    label((value * 1e3).round() / 1e3)
}

/// What the comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Reached,
    NotReached,
    /// TCP and MPTCP, and figures that say nothing about mpip.
    Comparison,
    /// The publication gives no number.
    NoNumber,
    NotMeasured,
}

impl Verdict {
    fn of(figure: &Published, ours: Option<&Ours>) -> Self {
        let Some(ours) = ours else { return Self::NotMeasured };
        let Some(value) = figure.value else { return Self::NoNumber };
        if !figure.system.starts_with("mpip") {
            return Self::Comparison;
        }
        let asked = value * figure.asks.unwrap_or(1.0);
        let reaches = |ours: f64| match figure.measure {
            measure if measure.is_cost() => ours <= asked,
            _ => ours >= asked,
        };
        match reaches(ours.value) && ours.host.is_none_or(reaches) {
            true => Self::Reached,
            false => Self::NotReached,
        }
    }

    fn text(self, figure: &Published) -> String {
        match self {
            Self::Reached => "reached".to_owned(),
            Self::NotReached => match cause(&figure.id) {
                Some(cause) => format!("not reached, because: {cause}"),
                None => "not reached".to_owned(),
            },
            Self::Comparison => "for comparison".to_owned(),
            Self::NoNumber => "no number published".to_owned(),
            Self::NotMeasured => format!("not measured: `{}`", command(figure)),
        }
    }
}

/// Why the figure `id` is not reached, as far as that is known.
fn cause(id: &str) -> Option<&'static str> {
    let mut causes = CAUSES.lines().skip(1).filter_map(|line| line.split_once(','));
    causes.find(|(known, _)| *known == id).map(|(_, cause)| cause)
}

/// The command that measures `figure`.
fn command(figure: &Published) -> String {
    match figure.scenario.as_str() {
        FACTORIAL if figure.measure == Measure::OverBalia => {
            "mpip-lab factorial --balia".to_owned()
        }
        FACTORIAL => "mpip-lab factorial".to_owned(),
        scenario if figure.measure == Measure::Queue => format!("mpip-lab run --in sim {scenario}"),
        scenario if figure.system.ends_with(NETEM) => {
            format!("mpip-lab run {scenario} --links netem --allow-busy")
        }
        scenario => format!("mpip-lab run {scenario}"),
    }
}

/// The system in host mode that stands beside `system`.
fn in_host_mode(system: &str) -> Option<String> {
    let variant = system.strip_prefix("mpip")?;
    (variant.is_empty() || variant.starts_with(' ')).then(|| format!("mpip host{variant}"))
}

/// The name of `system` in results of the simulator.
fn simulated(system: &str) -> String {
    format!("{system} (sim)")
}

impl Measured {
    /// Our figure for `figure`, by `system`; `None` if it was not measured.
    fn figure(&self, figure: &Published, system: &str) -> Option<f64> {
        let scenario = figure.scenario.as_str();
        let summary = || self.summary(scenario, system);
        match figure.measure {
            Measure::Goodput => summary().map(|s| s.median_bps / 1e6),
            Measure::Gain => {
                let alone = |s: &&Summary| s.scenario == scenario && s.system.starts_with("tcp ");
                let alone = self.summaries.iter().filter(alone).map(|s| s.median_bps);
                let best = alone.reduce(f64::max).filter(|best| *best > 0.0)?;
                summary().map(|s| (s.median_bps / best - 1.0) * 100.0)
            }
            Measure::OfLimit => summary()?.ratio,
            Measure::OfLink => self.median(scenario, system, |run| fill(run, &figure.part)),
            Measure::RoundTrip => Some(summary()?.rtt_ms.get(&figure.part)?.mean),
            Measure::Stall => summary().map(|s| s.longest_stall_ms),
            Measure::Jain => {
                let flows = &summary()?.flows_bps;
                Some(jain(&flows.values().copied().collect::<Vec<_>>()))
            }
            Measure::Cpu => {
                let one = self.summary("paths-1", system)?.cpu_seconds_per_gbit?;
                Some(summary()?.cpu_seconds_per_gbit? / one)
            }
            Measure::Benefit => {
                let benefits: Vec<f64> =
                    self.cells(figure).map(|it| it.measured.benefit()).collect();
                (!benefits.is_empty()).then(|| median(&benefits))
            }
            Measure::OverBalia => {
                let gains: Vec<f64> = self.balia(figure).map(|it| it.measured.gain()).collect();
                (!gains.is_empty()).then(|| median(&gains))
            }
            Measure::Queue => self.median(scenario, &simulated(system), |run| {
                let estimate = run.estimates.first()?;
                let samples = known(&estimate.queuing_ms);
                // The last hundredth, so that one packet does not decide.
                let last = samples.get(samples.len() - samples.len().div_ceil(100)..)?;
                (!last.is_empty()).then(|| median(last))
            }),
            Measure::Queuing => self.median(scenario, system, |run| {
                let path = run.estimates.iter().find(|it| it.path == figure.part)?;
                let samples = known(&path.queuing_ms);
                (!samples.is_empty()).then(|| mean(&samples))
            }),
            Measure::LeastShare => self.median(scenario, system, |run| least_share(&run.status)),
        }
    }

    /// The valid cells of the factorial that `figure` is about.
    fn cells<'a>(&'a self, figure: &'a Published) -> impl Iterator<Item = &'a CellResult> {
        self.cells.iter().filter(|it| it.violations.is_empty() && is_of(&it.cell, figure))
    }

    /// The same with balia.
    fn balia<'a>(&'a self, figure: &'a Published) -> impl Iterator<Item = &'a BaliaResult> {
        self.balia.iter().filter(|it| it.violations.is_empty() && is_of(&it.cell, figure))
    }

    /// When and with which commit each run behind `figure` was made.
    fn origins(&self, figure: &Published) -> Vec<Origin> {
        match figure.measure {
            Measure::Benefit => self.cells(figure).map(|cell| cell.origin.clone()).collect(),
            Measure::OverBalia => self.balia(figure).map(|cell| cell.origin.clone()).collect(),
            _ => {
                let system = match figure.measure {
                    Measure::Queue => simulated(&figure.system),
                    _ => figure.system.clone(),
                };
                let runs = self.runs(&figure.scenario, &system).into_iter();
                let origin = |run: &RunResult| Origin {
                    commit: run.environment.commit.clone(),
                    time: run.time,
                };
                runs.map(origin).collect()
            }
        }
    }

    /// Our figures, of those in `figures` that were measured.
    fn ours(&self, figures: &[Published]) -> Vec<Ours> {
        let one = |figure: &Published| {
            let value = self.figure(figure, &figure.system)?;
            // The factorial is the engine's, whose ends are not addresses of hosts.
            let host = in_host_mode(&figure.system).filter(|_| figure.scenario != FACTORIAL);
            let origins = self.origins(figure);
            let latest = origins.iter().max_by_key(|origin| origin.time);
            Some(Ours {
                id: figure.id.clone(),
                value,
                host: host.and_then(|system| self.figure(figure, &system)),
                repetitions: origins.len().max(1),
                commit: latest.map_or_else(String::new, |origin| origin.commit.clone()),
                date: day(latest.map_or(0, |origin| origin.time)),
            })
        };
        figures.iter().filter_map(one).collect()
    }
}

/// The share of what the client sent that its least used path carried, percent, by its `status` at
/// the end of a run.
fn least_share(status: &serde_json::Value) -> Option<f64> {
    let daemons = status.as_object()?.values();
    let paths = |daemon: &serde_json::Value| -> Option<Vec<f64>> {
        let paths = daemon.pointer("/peers/0/paths")?.as_array()?;
        Some(paths.iter().filter_map(|path| path.get("carried_bytes")?.as_f64()).collect())
    };
    // The client sends far more than the server.
    let sent = daemons
        .filter_map(paths)
        .max_by(|a, b| a.iter().sum::<f64>().total_cmp(&b.iter().sum()))?;
    let least = sent.iter().copied().reduce(f64::min)?;
    Some(least / sent.iter().sum::<f64>().max(1.0) * 100.0)
}

/// Whether `figure` is about the loss of `cell`.
fn is_of(cell: &Cell, figure: &Published) -> bool {
    format!("{} {}", cell.lossy, cell.loss_percent) == figure.part
}

/// The day of a time in seconds since 1970, UTC.
fn day(seconds: u64) -> String {
    let text = mpip_api::rfc3339(seconds as f64 * 1e3);
    text.split('T').next().unwrap_or_default().to_owned()
}

fn load(directory: &Path) -> io::Result<Measured> {
    if !directory.is_dir() {
        let message = format!("--results: expected a directory, found {}", directory.display());
        return Err(io::Error::other(message));
    }
    let runs = Store::open(directory)?.results().to_vec();
    let cells = factorial::read(directory)?;
    let balia = factorial::balia::read(directory)?;
    if runs.is_empty() && cells.is_empty() && balia.is_empty() {
        let message = format!("--results: there are no results in {}", directory.display());
        return Err(io::Error::other(message));
    }
    Ok(Measured { cells, balia, ..Measured::of(runs) })
}

/// The figures that were kept.
fn kept(text: &str) -> Result<Vec<Ours>, String> {
    text.lines().skip(1).filter(|line| !line.is_empty()).map(Ours::read).collect()
}

/// `figures`, of those whose id begins with one of `wanted`.
fn chosen(figures: Vec<Published>, wanted: &[String]) -> io::Result<Vec<Published>> {
    for name in wanted {
        if !figures.iter().any(|figure| figure.id.starts_with(name.as_str())) {
            let ids: Vec<&str> = figures.iter().map(|figure| figure.id.as_str()).collect();
            let message = format!(
                "expected a seed (000 to 004) or the beginning of an id, found {name:?}; there are \
                 {}",
                ids.join(", ")
            );
            return Err(io::Error::other(message));
        }
    }
    let wants = |figure: &Published| {
        wanted.is_empty() || wanted.iter().any(|name| figure.id.starts_with(name.as_str()))
    };
    Ok(figures.into_iter().filter(wants).collect())
}

/// A row: id, place, scenario, system, published, ours, in host mode, ratio, verdict.
fn row(figure: &Published, ours: Option<&Ours>) -> [String; 9] {
    let number = |value: Option<f64>| value.map_or("–".to_owned(), short);
    let unit = figure.measure.name();
    let published = match (figure.value, figure.deviation) {
        (None, _) => "–".to_owned(),
        (Some(value), Some(deviation)) => format!("{} ± {} {unit}", short(value), short(deviation)),
        (Some(value), None) => format!("{} {unit}", short(value)),
    };
    let ratio = figure.value.filter(|value| *value != 0.0).zip(ours);
    let part = if figure.part.is_empty() { String::new() } else { format!(" {}", figure.part) };
    [
        figure.id.clone(),
        figure.section.clone(),
        format!("{}{part}", figure.scenario),
        figure.system.clone(),
        published,
        number(ours.map(|ours| ours.value)),
        number(ours.and_then(|ours| ours.host)),
        ratio.map_or("–".to_owned(), |(value, ours)| format!("{:.2}", ours.value / value)),
        Verdict::of(figure, ours).text(figure),
    ]
}

const COLUMNS: [&str; 9] =
    ["id", "where", "scenario", "system", "published", "ours", "in host mode", "ratio", "verdict"];

/// A table for each seed, with what the publication says in a last column.
fn markdown(figures: &[Published], ours: &[Ours]) -> String {
    let mut text = String::new();
    let mut seeds: Vec<&str> = figures.iter().map(|figure| figure.seed.as_str()).collect();
    seeds.sort_unstable();
    seeds.dedup();
    for seed in seeds {
        let head = COLUMNS.join(" | ");
        let _ = writeln!(text, "\n### Seed {seed}\n\n| {head} | published as |");
        let _ = writeln!(text, "|{}", "---|".repeat(COLUMNS.len() + 1));
        for figure in figures.iter().filter(|figure| figure.seed == seed) {
            let own = ours.iter().find(|ours| ours.id == figure.id);
            let cells = row(figure, own).join(" | ");
            let _ = writeln!(text, "| {cells} | {} |", figure.note);
        }
    }
    let _ = writeln!(text, "\n{}", counts(figures, ours));
    let mut sources: Vec<String> = ours
        .iter()
        .filter(|ours| figures.iter().any(|figure| figure.id == ours.id))
        .map(|ours| format!("{} of {}", ours.commit, ours.date))
        .collect();
    sources.sort_unstable();
    sources.dedup();
    if !sources.is_empty() {
        let _ = writeln!(text, "\nMeasured with {}.", sources.join(", "));
    }
    text.push('\n');
    text
}

/// A table for a terminal.
fn aligned(figures: &[Published], ours: &[Ours]) -> String {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(figures.iter().map(|figure| {
        let own = ours.iter().find(|ours| ours.id == figure.id);
        row(figure, own)
    }));
    columns::aligned(&rows) + &counts(figures, ours) + "\n"
}

/// How many figures have which verdict.
fn counts(figures: &[Published], ours: &[Ours]) -> String {
    let verdict =
        |figure: &Published| Verdict::of(figure, ours.iter().find(|ours| ours.id == figure.id));
    let count = |wanted: Verdict| figures.iter().filter(|it| verdict(it) == wanted).count();
    format!(
        "{} figures: {} reached, {} not reached, {} without a number, {} of others for comparison, \
         {} not measured.",
        figures.len(),
        count(Verdict::Reached),
        count(Verdict::NotReached),
        count(Verdict::NoNumber),
        count(Verdict::Comparison),
        count(Verdict::NotMeasured)
    )
}

/// Keeps `new` in place of what was kept of these figures, and writes the document.
fn write(new: Vec<Ours>) -> io::Result<()> {
    let mut ours = kept(&std::fs::read_to_string(KEPT_FILE)?).map_err(io::Error::other)?;
    ours.retain(|old| new.iter().all(|new| new.id != old.id));
    ours.extend(new);
    let order = published();
    ours.sort_by_key(|ours| order.iter().position(|figure| figure.id == ours.id));
    let lines: Vec<String> = ours.iter().map(Ours::line).collect();
    let text = format!("{HEADING}\n{}\n", lines.join("\n"));
    std::fs::write(KEPT_FILE, &text)?;
    // What is kept is rounded, and so are the ratios.
    let ours = kept(&text).map_err(io::Error::other)?;
    document::update(Path::new(DOCUMENT), BEGIN, &markdown(&order, &ours))
}

/// What is said where a directory with results has none of `figures`.
fn none_of(directory: &Path, figures: &[Published]) -> String {
    let directory = directory.display();
    let mut text = format!("--results: {directory} has no result of ");
    text += match figures {
        [one] => &one.id,
        _ => "these figures",
    };
    if let Some(first) = figures.first() {
        let _ = write!(text, "; `{} --out {directory}` measures {}", command(first), first.id);
    }
    text
}

/// Says which figures are of another commit than `commit`; `None` if none is.
fn of_other_commits(ours: &[Ours], commit: &str) -> Option<String> {
    let mut commits: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in ours.iter().filter(|one| one.commit != commit) {
        commits.entry(&one.commit).or_default().push(&one.id);
    }
    let count: usize = commits.values().map(Vec::len).sum();
    let all = commits.iter().map(|(commit, ids)| {
        let commit = if commit.is_empty() { "unknown" } else { commit };
        format!("{commit}: {}", ids.join(" "))
    });
    let all = all.collect::<Vec<_>>().join("; ");
    let total = ours.len();
    (count > 0).then(|| {
        format!("{count} of {total} figures are of another commit than this one, {commit} ({all})")
    })
}

/// Says which scenarios of `figures` were run with another text than they have now; `None` if none
/// was.
fn of_other_texts(runs: &[RunResult], figures: &[Published]) -> io::Result<Option<String>> {
    let mut changed: BTreeSet<&str> = BTreeSet::new();
    for figure in figures.iter().filter(|figure| figure.scenario != FACTORIAL) {
        let own: Vec<&RunResult> =
            runs.iter().filter(|run| run.scenario == figure.scenario).collect();
        if own.is_empty() || changed.contains(figure.scenario.as_str()) {
            continue;
        }
        let now = hash(&scenarios::find(&figure.scenario)?.text);
        if own.iter().any(|run| run.scenario_hash != now) {
            changed.insert(&figure.scenario);
        }
    }
    let names: Vec<&str> = changed.into_iter().collect();
    Ok((!names.is_empty()).then(|| {
        let names = names.join(" ");
        format!(
            "runs of these scenarios were shortened, or the scenario has changed since: {names}"
        )
    }))
}

/// Prints the figures, or keeps them.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    let figures = chosen(published(), &options.figures)?;
    let ours = match &options.results {
        Some(directory) => {
            let measured = load(directory)?;
            let ours = measured.ours(&figures);
            if ours.is_empty() {
                return Err(io::Error::other(none_of(directory, &figures)));
            }
            let notes = [
                of_other_commits(&ours, &Environment::here().commit),
                of_other_texts(&measured.runs, &figures)?,
            ];
            notes.iter().flatten().for_each(|note| eprintln!("{note}"));
            ours
        }
        None => kept(KEPT).map_err(io::Error::other)?,
    };
    if options.write {
        return write(ours);
    }
    let text = if options.markdown { markdown(&figures, &ours) } else { aligned(&figures, &ours) };
    print!("{text}");
    Ok(())
}

#[cfg(test)]
mod tests;
