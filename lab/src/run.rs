//! `mpip-lab run`: runs every subject of scenarios, every repetition in a testbed of its own.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::calibration::{self, Calibration};
use crate::clock::unix_time;
use crate::command;
use crate::environment::Environment;
use crate::estimates::Watch;
use crate::flow::FlowResult;
use crate::limit::{Packets, limit};
use crate::lines::Lines;
use crate::links::{Record, Setup};
use crate::netns;
use crate::progress::Progress;
use crate::results::{self, Estimate, LATE_BOUND, RunResult, Store};
use crate::scenario::{Scenario, TrafficKind};
use crate::scenarios::{Loaded, hash};
use crate::sender::Sender;
use crate::side_by_side::{self, Piece};
use crate::simulated;
use crate::subject::{Subject, subjects};
use crate::systems;
use crate::testbed::Testbed;
use crate::traffic::{Flow, ports};
use crate::work_directory::WorkDirectory;

/// What the names of systems end with in results with the kernel's links.
pub(crate) const NETEM: &str = " (netem)";

/// Share of idle processor time below which the processors were the bottleneck.
const IDLE_BOUND: f64 = 0.02;
/// Share of frames above which losses before the emulator invalidate a run.
const OVERRUN_BOUND: f64 = 0.001;
/// Time until receivers listen.
const SETTLE: Duration = Duration::from_millis(300);
/// Estimated time to build, start and end a run, beside its traffic.
const OVERHEAD: Duration = Duration::from_secs(2);

/// Goodput in bit/s, of all runs together, up to which they are made side by side. They share the
/// processors: of what one alone reaches on 2 of them, three runs of 18 Mbit/s (`mhip-06`) reached
/// all, two of 190 (`delay-100`, `loss-3`, `paths-4`) 0.98, three of 190 (`delay-100`) 0.84.
const SIDE_BY_SIDE: f64 = 400e6;

/// Estimated speed of the simulator with little traffic, in seconds of virtual time per second.
const VIRTUAL_SPEED: u32 = 2_500;

/// What to run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// Measures only subjects whose name or system has one of these names.
    pub(crate) systems: Option<Vec<String>>,
    /// Number of repetitions, instead of the scenario's.
    pub(crate) repetitions: Option<u32>,
    /// Directory of the results.
    pub(crate) directory: PathBuf,
    /// Directory for packet traces of every link; each run gets a directory of its own.
    pub(crate) pcap: Option<String>,
    /// Whether to repeat runs that have a result.
    pub(crate) again: bool,
    /// Duration to which to shorten scenarios without events.
    pub(crate) longest: Option<Duration>,
    /// Whether runs count in which the processors were busy, presumably with other work.
    pub(crate) allow_busy: bool,
    /// Congestion control of the hosts' TCP, instead of the scenario's.
    pub(crate) congestion_control: Option<String>,
    /// Senders to take the place of the scenarios' bulk flows, one after the other.
    pub(crate) senders: Vec<Sender>,
    /// Whether to run in the simulator.
    pub(crate) simulated: bool,
    /// Whether to use the kernel's links instead of the emulator's.
    pub(crate) netem: bool,
    /// How many runs to make at once where their links are slow (default: 1).
    pub(crate) jobs: Option<NonZeroU32>,
    /// Another directory with results to use for systems other than mpip.
    pub(crate) baseline: Option<PathBuf>,
}

struct Job<'a> {
    loaded: &'a Loaded,
    subject: Subject,
    repetition: u32,
    /// The share of the machine that it takes.
    share: f64,
}

impl Job<'_> {
    /// The time it adds to a series: of runs side by side, its part.
    fn expected(&self, options: &Options) -> Duration {
        self.alone(options).mul_f64(self.share)
    }

    /// The time it takes.
    fn alone(&self, options: &Options) -> Duration {
        let duration = self.loaded.scenario.duration;
        let own = if options.simulated { duration / VIRTUAL_SPEED } else { duration };
        own + OVERHEAD
    }
}

/// The share of the machine that a run takes.
fn share(loaded: &Loaded, subject: &Subject, options: &Options) -> f64 {
    let least = 1.0 / f64::from(options.at_once());
    if options.simulated {
        return least;
    }
    // Without a limit nobody knows how much it takes.
    let limit = Some(limit_of(&loaded.scenario, subject)).filter(|rate| *rate > 0.0);
    limit.map_or(1.0, |rate| (rate / SIDE_BY_SIDE).clamp(least, 1.0))
}

fn jobs<'a>(scenarios: &'a [Loaded], options: &Options) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for loaded in scenarios {
        for mut subject in subjects(&loaded.scenario) {
            let wanted = options.systems.as_ref().is_none_or(|names| {
                names.iter().any(|name| [&subject.name, &subject.system.name].contains(&name))
            });
            let wanted = wanted && (!options.simulated || simulated::has(&subject));
            let wanted = wanted && (!subject.is_tcp_only() || loaded.scenario.has_tcp());
            // Such results are kept apart from those with the emulator's links.
            if options.simulated {
                subject.name += " (sim)";
            } else if options.netem {
                subject.name += NETEM;
            }
            if !wanted {
                continue;
            }
            let repetitions = options.repetitions.unwrap_or(loaded.scenario.repetitions);
            let share = share(loaded, &subject, options);
            for repetition in 0..repetitions {
                jobs.push(Job { loaded, subject: subject.clone(), repetition, share });
            }
        }
    }
    // Breadth first: an interrupted series has results of everything, and systems that are compared
    // are measured within minutes of each other.
    jobs.sort_by_key(|job| job.repetition);
    jobs
}

impl Options {
    /// How many runs are made at once.
    fn at_once(&self) -> u32 {
        self.jobs.map_or(1, NonZeroU32::get)
    }

    /// The scenarios, changed as these options demand.
    pub(crate) fn adapt(&self, scenarios: Vec<Loaded>) -> Vec<Loaded> {
        let scenarios = if self.senders.is_empty() {
            scenarios
        } else {
            let each = |loaded: &Loaded| {
                self.senders.iter().map(|s| s.replace(loaded.clone())).collect::<Vec<_>>()
            };
            scenarios.iter().flat_map(each).collect()
        };
        scenarios
            .into_iter()
            .map(|loaded| self.with_congestion_control(self.shorten(loaded)))
            .collect()
    }

    fn shorten(&self, mut loaded: Loaded) -> Loaded {
        let Some(longest) = self.longest else { return loaded };
        let scenario = &mut loaded.scenario;
        let at_once = scenario.traffic.iter().all(|traffic| traffic.start.is_zero());
        if scenario.events.is_empty() && at_once && scenario.duration > longest {
            scenario.duration = longest;
            for traffic in &mut scenario.traffic {
                traffic.duration = traffic.duration.min(longest);
            }
            // A run with another duration is another run: the text decides.
            loaded.text += &format!("# ended after {} ms\n", longest.as_millis());
        }
        loaded
    }

    fn with_congestion_control(&self, mut loaded: Loaded) -> Loaded {
        if let Some(name) = &self.congestion_control
            && *name != loaded.scenario.congestion_control
        {
            loaded.scenario.congestion_control.clone_from(name);
            loaded.text += &format!("# with {name}\n");
        }
        loaded
    }
}

/// Number of runs without a result, and their estimated duration.
fn left(scenarios: &[Loaded], options: &Options) -> io::Result<(usize, Duration)> {
    let stores = Stores::open(options)?;
    let jobs = jobs(scenarios, options);
    let left = jobs.iter().filter(|job| stores.find(job, options).is_none());
    Ok(left
        .fold((0, Duration::ZERO), |(count, time), job| (count + 1, time + job.expected(options))))
}

/// The stored results.
pub(crate) fn stored(scenarios: &[Loaded], options: &Options) -> io::Result<Vec<RunResult>> {
    let stores = Stores::open(options)?;
    let jobs = jobs(scenarios, options);
    Ok(jobs.iter().filter_map(|job| stores.find(job, options).cloned()).collect())
}

/// Prints how much there is to do.
pub(crate) fn announce(scenarios: &[Loaded], options: &Options) -> io::Result<()> {
    let (count, time) = left(scenarios, options)?;
    eprintln!("{} scenarios, {count} runs to do, about {} min", scenarios.len(), minutes(time));
    Ok(())
}

/// `time` in minutes, rounded up.
fn minutes(time: Duration) -> u64 {
    time.as_secs().div_ceil(60)
}

/// As [`run_all`], but first removes what earlier runs left behind. A guard process removes what
/// this one leaves, however it ends.
pub(crate) fn in_namespaces(scenarios: &[Loaded], options: &Options) -> io::Result<Done> {
    if options.simulated {
        return run_all(scenarios, options);
    }
    command::take_precedence();
    netns::clean_stale()?;
    let _guard = netns::Guard::start()?;
    run_all(scenarios, options)
}

/// The outcome of a series.
#[derive(Debug)]
pub(crate) struct Done {
    /// Results of this series and of earlier ones.
    pub(crate) results: Vec<RunResult>,
    /// Number of runs without a result.
    pub(crate) missing: usize,
}

/// The store of results, and one whose results may be used too.
struct Stores {
    own: Store,
    baseline: Option<Store>,
}

impl Stores {
    fn open(options: &Options) -> io::Result<Self> {
        let baseline = options.baseline.as_deref().map(Store::open).transpose()?;
        Ok(Self { own: Store::open(&options.directory)?, baseline })
    }

    /// A stored result, if the job is not to be repeated.
    fn find(&self, job: &Job<'_>, options: &Options) -> Option<&RunResult> {
        let of_mpip = job.subject.system.kind.starts_with("mpip");
        let others = self.baseline.as_ref().filter(|_| !of_mpip);
        let text_hash = hash(&job.loaded.text);
        [Some(&self.own), others]
            .into_iter()
            .flatten()
            .filter_map(|s| s.find(&job.loaded.name, &text_hash, &job.subject.name, job.repetition))
            .find(|result| !options.again && usable(result))
    }
}

/// Runs the jobs without a result.
fn run_all(scenarios: &[Loaded], options: &Options) -> io::Result<Done> {
    let lines = Lines::open(&options.directory, results::FILE)?;
    let stores = Stores::open(options)?;
    let context = Context {
        options,
        environment: Environment::here(),
        calibration: calibration::stored(&options.directory),
    };
    let jobs = jobs(scenarios, options);
    let planned = jobs.iter().map(|job| job.expected(options)).sum();
    let progress = Progress::new(jobs.len(), planned);
    let mut results: Vec<Option<RunResult>> = Vec::new();
    let mut left = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        let stored = stores.find(job, options).cloned();
        if stored.is_some() {
            progress.skip(job.expected(options));
        } else {
            left.push(Piece { share: job.share, round: job.repetition, work: (index, job) });
        }
        results.push(stored);
    }
    let found = Mutex::new((lines, results));
    let measure = |at_once, (index, job): (usize, &Job<'_>)| {
        let name =
            format!("{}, {}, repetition {}", job.loaded.name, job.subject.name, job.repetition + 1);
        let planned = if at_once > 1 { job.expected(options) } else { job.alone(options) };
        progress.begin(&name, planned);
        match context.run(job, at_once) {
            Ok(result) => {
                progress.end(&name, &one_line(&result));
                let (lines, results) = &mut *found.lock().unwrap_or_else(PoisonError::into_inner);
                job.loaded.keep(&options.directory)?;
                lines.add(&result)?;
                results[index] = Some(result);
            }
            // If a system cannot be started, the others are still measured.
            Err(error) => progress.end(&name, &format!("no result: {error}")),
        }
        Ok(())
    };
    let at_once = options.at_once();
    side_by_side::run(left, at_once, |work| measure(at_once, work))?;
    let again = disturbed(&jobs, &found.lock().unwrap_or_else(PoisonError::into_inner).1, options);
    if !again.is_empty() {
        let time = again.iter().map(|(_, job)| job.alone(options)).sum();
        let count = again.len();
        eprintln!("{count} runs do not count. Again, one at a time: about {} min", minutes(time));
        progress.extend(count, time);
        side_by_side::each(again, 1, |work| measure(1, work))?;
    }
    drop(progress);
    let (_, results) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let missing = results.iter().filter(|result| result.is_none()).count();
    if missing > 0 {
        eprintln!("{missing} of {} runs gave no result", jobs.len());
    }
    Ok(Done { results: results.into_iter().flatten().collect(), missing })
}

/// The runs to make again, alone: they do not count, probably for what ran beside them.
fn disturbed<'a, 'b>(
    jobs: &'b [Job<'a>],
    results: &[Option<RunResult>],
    options: &Options,
) -> Vec<(usize, &'b Job<'a>)> {
    if options.simulated || options.at_once() == 1 {
        return Vec::new();
    }
    let numbered = jobs.iter().zip(results).enumerate();
    numbered
        .filter(|(_, (_, result))| result.as_ref().is_some_and(|result| !usable(result)))
        .map(|(index, (job, _))| (index, job))
        .collect()
}

/// What all runs of a series have in common.
struct Context<'a> {
    options: &'a Options,
    environment: Environment,
    calibration: Option<Calibration>,
}

impl Context<'_> {
    fn run(&self, job: &Job<'_>, at_once: u32) -> io::Result<RunResult> {
        if self.options.simulated {
            return run_simulated(job, &self.environment);
        }
        let mut result = run_one(job, &self.environment, self.options)?;
        result.side_by_side = at_once;
        result.calibration = self.calibration.clone().filter(|_| !self.options.netem);
        Ok(result)
    }
}

/// Whether a result is final. A run that does not count is repeated.
fn usable(result: &RunResult) -> bool {
    result.counts()
}

fn one_line(result: &RunResult) -> String {
    let mut line = String::new();
    if result.goodput_bps > 0.0 || result.limit_bps > 0.0 {
        line += &format!("{:.2} Mbit/s", result.goodput_bps / 1e6);
    }
    if result.limit_bps > 0.0 {
        line += &format!(" ({:.3} of the limit)", result.goodput_bps / result.limit_bps);
    }
    if result.longest_stall_ms > 0.0 {
        line += &format!(", stall {:.0} ms", result.longest_stall_ms);
    }
    for flow in &result.flows {
        if let Some(rtt) = flow.rtt_ms {
            line += &format!(", {} mean {:.2} ms, 99th {:.2} ms", flow.name, rtt.mean, rtt.p99);
        }
        if let Some(rate) = flow.per_second {
            line += &format!(", {rate:.0} per second");
        }
        if let Some(error) = &flow.error {
            line += &format!(", {}: {error}", flow.name);
        }
    }
    if !result.counts() {
        line += &format!("; does not count: {}", result.invalid.join("; "));
    }
    line
}

/// Idle and total time of all processors since boot, in ticks.
fn processor_times() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<u64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    let idle = fields.iter().skip(3).take(2).sum();
    (idle, fields.iter().take(8).sum())
}

enum Action {
    Flow(usize),
    Interface(usize, bool),
    /// The event with this number, after its interfaces went down.
    Link(usize),
    Command(usize),
}

/// The actions during a run, in order of time.
fn actions(scenario: &Scenario) -> VecDeque<(Duration, Action)> {
    let mut actions: Vec<(Duration, Action)> = scenario
        .traffic
        .iter()
        .enumerate()
        .map(|(index, traffic)| (traffic.start, Action::Flow(index)))
        .collect();
    for (number, event) in scenario.events.iter().enumerate().filter(|(_, e)| e.announced) {
        let Some(up) = event.change.up else { continue };
        for (port, interface) in scenario.interfaces.iter().enumerate() {
            if scenario.links[event.link].ends.contains(&interface.full_name()) {
                actions.push((event.at, Action::Interface(port, up)));
            }
        }
        if event.follows_interfaces() {
            actions.push((event.at, Action::Link(number)));
        }
    }
    let commands = scenario.commands.iter().enumerate();
    actions.extend(commands.map(|(index, command)| (command.at, Action::Command(index))));
    actions.sort_by_key(|(at, _)| *at);
    actions.into()
}

/// A run in virtual time.
fn run_simulated(job: &Job<'_>, environment: &Environment) -> io::Result<RunResult> {
    let scenario = &job.loaded.scenario;
    let outcome =
        simulated::run(scenario, &job.subject, job.repetition).map_err(io::Error::other)?;
    Ok(result_of(
        job,
        environment,
        Measured {
            flows: outcome.flows,
            emulator: outcome.record,
            overrun: 0,
            cpu_idle: 1.0,
            estimates: outcome.estimates,
            status: serde_json::Value::Null,
            invalid: outcome.violations,
        },
    ))
}

/// The measurements of a run, in real or virtual time.
struct Measured {
    flows: Vec<FlowResult>,
    emulator: Record,
    overrun: u64,
    cpu_idle: f64,
    estimates: Vec<Estimate>,
    status: serde_json::Value,
    invalid: Vec<String>,
}

/// The result with the measurements `measured`.
fn result_of(job: &Job<'_>, environment: &Environment, measured: Measured) -> RunResult {
    let scenario = &job.loaded.scenario;
    let own = measured.flows.iter().filter(|flow| !flow.plain);
    RunResult {
        scenario: job.loaded.name.clone(),
        scenario_hash: hash(&job.loaded.text),
        system: job.subject.name.clone(),
        kind: job.subject.system.kind.clone(),
        repetition: job.repetition,
        seed: scenario.seed,
        time: unix_time(),
        environment: environment.clone(),
        goodput_bps: own.clone().map(|flow| flow.goodput_bps).sum(),
        limit_bps: limit_of(scenario, &job.subject),
        longest_stall_ms: own.map(FlowResult::longest_stall_ms).fold(0.0, f64::max),
        flows: measured.flows,
        emulator: measured.emulator,
        overrun: measured.overrun,
        cpu_idle: measured.cpu_idle,
        estimates: measured.estimates,
        status: measured.status,
        calibration: None,
        side_by_side: 1,
        invalid: measured.invalid,
    }
}

fn run_one(job: &Job<'_>, environment: &Environment, options: &Options) -> io::Result<RunResult> {
    let scenario = &job.loaded.scenario;
    let directory = WorkDirectory::create()?;
    let pcap = match &options.pcap {
        Some(_) if options.netem => {
            return Err(io::Error::other("packet traces need --links emulator"));
        }
        Some(base) => {
            let run = format!("{}-{}-{}", job.loaded.name, job.subject.name, job.repetition + 1);
            let directory = Path::new(base).join(run.replace(' ', "-"));
            std::fs::create_dir_all(&directory)?;
            Some(directory.display().to_string())
        }
        None => None,
    };
    let setup = Setup {
        file: job.loaded.file.clone(),
        text: job.loaded.text.clone(),
        repetition: job.repetition,
        pcap,
        netem: options.netem,
    };
    let mut testbed = Testbed::build(scenario, &setup)?;
    let mut system = systems::start(&job.subject, &testbed, &directory.path)?;
    let mut flows = prepare_flows(scenario, &testbed, system.as_ref(), &directory.path)?;
    std::thread::sleep(SETTLE);

    testbed.start()?;
    let zero = Instant::now();
    let watch = system.watch(&testbed);
    let before = processor_times();
    let mut actions = actions(scenario);
    let mut started = vec![zero; flows.len()];
    while let Some((at, action)) = actions.pop_front() {
        std::thread::sleep((zero + at).saturating_duration_since(Instant::now()));
        match action {
            Action::Flow(index) => {
                flows[index].start()?;
                started[index] = Instant::now();
            }
            Action::Interface(port, up) => {
                testbed.set_interface(port, up)?;
                system.interface_changed(&testbed, port, up)?;
            }
            Action::Link(event) => testbed.follow(event)?,
            Action::Command(index) => {
                let command = &scenario.commands[index];
                testbed.host(&command.host)?.run(&["sh", "-ec", &command.run])?;
            }
        }
    }
    let last = flows.iter().map(|flow| flow.traffic().start + flow.traffic().duration).max();
    let end = zero + last.unwrap_or_default();
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    let after = processor_times();
    let estimates = watch.map(Watch::finish).unwrap_or_default();
    let status = system.status(&testbed);
    let results: Vec<_> =
        flows.into_iter().zip(started).map(|(flow, started)| flow.finish(started)).collect();
    drop(system);
    let (record, overrun) = testbed.stop()?;

    let cpu_idle = (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64;
    let mut invalid = Vec::new();
    if record.late_share() > LATE_BOUND {
        invalid.push(format!(
            "the emulator was too slow: {:.1} % of the frames left more than 1 ms late",
            record.late_share() * 100.0
        ));
    }
    // An interface that goes down loses a few frames.
    if overrun as f64 > OVERRUN_BOUND * record.frames as f64 {
        invalid.push(format!("the emulator did not take {overrun} frames in time"));
    }
    let carries_all = !matches!(job.subject.system.kind.as_str(), "tcp" | "mptcp");
    if carries_all && record.bare > 0 {
        let bare = record.bare;
        invalid.push(format!("{bare} frames of the measured traffic travelled beside the system"));
    }
    if cpu_idle < IDLE_BOUND && !options.allow_busy {
        invalid.push(format!("the processors were busy: {:.1} % idle", cpu_idle * 100.0));
    }
    Ok(result_of(
        job,
        environment,
        Measured {
            flows: results,
            emulator: record,
            overrun,
            cpu_idle,
            estimates,
            status,
            invalid,
        },
    ))
}

fn prepare_flows(
    scenario: &Scenario,
    testbed: &Testbed,
    system: &dyn systems::Running,
    directory: &Path,
) -> io::Result<Vec<Flow>> {
    scenario
        .traffic
        .iter()
        .zip(ports(scenario.traffic.len()))
        .map(|(traffic, port)| {
            let endpoint = match &traffic.plain {
                Some(interface) => systems::plain(testbed, traffic, Some(interface))?,
                None => system.endpoint(testbed, traffic)?,
            };
            let hosts = (testbed.host(&traffic.from)?, testbed.host(&traffic.to)?);
            let control = &scenario.congestion_control;
            Flow::prepare(traffic, &endpoint, port, control, hosts, directory)
        })
        .collect()
}

/// The limit in bit/s for the first flow with a goodput; 0 for no limit.
pub(crate) fn limit_of(scenario: &Scenario, subject: &Subject) -> f64 {
    let bulk = scenario.traffic.iter().find(|traffic| {
        let measures_time = matches!(
            traffic.kind,
            TrafficKind::Voip { .. }
                | TrafficKind::RequestResponse { .. }
                | TrafficKind::Short { .. }
                | TrafficKind::Web { .. }
        );
        traffic.plain.is_none() && !measures_time
    });
    let Some(traffic) = bulk else { return 0.0 };
    let end = traffic.start + traffic.duration;
    let packets = match traffic.kind {
        TrafficKind::Udp { length, .. } => Packets::Udp(length),
        _ => Packets::Tcp,
    };
    let limit = limit(scenario, packets, (&traffic.from, &traffic.to), (traffic.start, end));
    let links = match subject.path {
        None => limit.total,
        Some(path) => {
            let paths = scenario.paths(&traffic.from, &traffic.to);
            let index = paths.iter().position(|other| (other.from, other.to) == path);
            index.map_or(limit.total, |index| limit.alone[index])
        }
    };
    let value = match traffic.kind {
        TrafficKind::Udp { rate, .. } => links.min(rate as f64),
        _ => links,
    };
    if value.is_finite() { value } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::run;
    use crate::scenarios;

    #[test]
    fn runs_that_do_not_count_are_made_again_if_others_were_beside_them() {
        let mut scenarios = scenarios::all().expect("the lab's scenarios are right");
        scenarios.truncate(1);
        let side_by_side = Options { jobs: NonZeroU32::new(3), ..Options::default() };
        let jobs = jobs(&scenarios, &side_by_side);
        let mut results: Vec<_> = jobs.iter().map(|_| Some(run("s", "tcp", 0, 5.0))).collect();
        results[0] = None;
        results[2].as_mut().expect("it is there").invalid.push("late".to_owned());
        let again = |options| {
            let again = disturbed(&jobs, &results, options).into_iter();
            again.map(|(index, _)| index).collect::<Vec<_>>()
        };
        assert_eq!(again(&side_by_side), [2]);
        assert_eq!(again(&Options::default()), [0; 0]);
    }
}
