//! What one sender reaches over one set of links, alone on each path and through mpip.

use std::io;
use std::ops::Range;

use mpip_core::Parameters;
use mpip_sim::clock::{MILLI, Nanos, SECOND};
use mpip_sim::measure::{self, Scenario, Sender, Subject, WARM_UP};
use mpip_sim::spec::{Action, FlowSpec, HostSpec, System, Traffic, WorldSpec, outer_address};
use mpip_sim::traffic::quantile;
use mpip_sim::world::{Observe, World};
use serde::{Deserialize, Serialize};

use super::distribution::{CROSS, Cross, END, Set};
use crate::statistics::median;

/// Bytes of the short transfers.
pub(crate) const SIZES: [u64; 3] = [20_000, 200_000, 2_000_000];
/// Runs of each short transfer; the median counts, so that a loss or a path that jitters does not
/// decide. With nine, the best path's second time was up to 1.2 of its first in 95 % of the sets.
const REPETITIONS: u64 = 33;
/// When a short transfer is given up.
pub(super) const LONGEST: Nanos = 40 * SECOND;
/// Interval of the requests beside bulk.
const REQUESTS: Nanos = 100 * MILLI;
/// When the requests before bulk begin; the association exists by then.
const LIGHT: Nanos = 200 * MILLI;
/// Payload of full QUIC packets beside that of TCP segments in packets of the same links: 1,414 of
/// 1,494 bytes and 1,460 of 1,514 (`quinn` and quic-go find 1,452 bytes of UDP payload).
pub(super) const QUIC_PAYLOAD: f64 = (1_414.0 / 1_494.0) / (1_460.0 / 1_514.0);

/// The results of a sender over a set, one line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) seed: u64,
    pub(crate) sender: String,
    pub(crate) bulk: Bulk,
    /// Time of each of [`SIZES`]; empty if it was not measured.
    pub(crate) short: Vec<Short>,
    /// Violated invariants; empty if the result counts.
    pub(crate) violations: Vec<String>,
}

/// Bulk, in bit/s, and requests beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bulk {
    pub(crate) limit: f64,
    /// Of the plain transfer on each path alone.
    pub(crate) alone: Vec<f64>,
    pub(crate) mpip: f64,
    /// Of kernel MPTCP, on kernels.
    #[serde(default)]
    pub(crate) mptcp: Option<f64>,
    /// The 95th percentile of a ping alone on the path where it is least, ms.
    pub(crate) ping_alone: f64,
    /// The same beside bulk through mpip, ms.
    pub(crate) ping: f64,
    /// Share of pings beside bulk without an answer, those on the way at the end included.
    pub(crate) ping_lost: f64,
}

/// Seconds until the last byte has arrived; the time after which it was given up where it did not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Short {
    pub(crate) alone: Vec<f64>,
    pub(crate) mpip: f64,
    /// On the best path alone, once more: how far it is from the best of `alone` is chance. Only of
    /// simulated sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) again: Option<f64>,
    /// Through mpip where it has only that path: what a tunnel costs, whatever the other paths do.
    /// Only of simulated sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tunnel: Option<f64>,
}

impl Bulk {
    pub(crate) fn best(&self) -> f64 {
        self.alone.iter().copied().fold(1.0, f64::max)
    }
}

impl Short {
    pub(crate) fn best(&self) -> f64 {
        self.alone.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// The world of a set, for a transfer that lasts until `end` after its start.
fn world(
    set: &Set,
    subject: Subject,
    (sender, bytes): (Sender, Option<u64>),
    end: Nanos,
    repetition: u64,
) -> WorldSpec {
    let seed = set.seed + (repetition << 40);
    let widest = set.widest();
    let scenario = Scenario { paths: set.links(), sender, duration: end, from: 0, seed };
    let mut spec = measure::world(&scenario, subject);
    let later = set.begin - WARM_UP;
    spec.duration += later;
    spec.flows[0].start += later;
    spec.flows[0].stop = spec.flows[0].stop.saturating_add(later);
    let large = match subject {
        Subject::Path(path) => measure::plain_window(&widest[path]),
        Subject::Mpip { .. } => measure::window(&widest),
    };
    match &mut spec.flows[0].traffic {
        Traffic::Tcp { bytes: total, window } => (*total, *window) = (bytes, large),
        Traffic::Quic { bytes: total, .. } => *total = bytes,
        Traffic::Packets { .. } => {}
    }
    for (index, path) in set.paths.iter().enumerate() {
        for (at, forward, back) in &path.changes {
            for (link, change) in [(2 * index, forward), (2 * index + 1, back)] {
                let change = change.clone();
                spec.script.push((set.begin + at, Action::Link { link, change }));
            }
        }
    }
    for (index, path) in set.paths.iter().enumerate() {
        if !path.cross.is_empty() {
            add_cross(&mut spec, set.begin, index, &path.cross);
        }
    }
    spec
}

/// Two more hosts whose packets use the links of path `path`, at times after `begin`.
fn add_cross(spec: &mut WorldSpec, begin: Nanos, path: usize, cross: &[Cross]) {
    let (clock, first) = (spec.hosts[0].clock, spec.hosts.len());
    let ends = [first, first + 1].map(|host| {
        let system = System::Plain { local: 0, remote: 0 };
        spec.hosts.push(HostSpec { name: format!("other{host}"), clock, system });
        spec.add_interface(host, vec![outer_address(host, 0, 0, false)])
    });
    for (host, (local, remote)) in [(first, (ends[0], ends[1])), (first + 1, (ends[1], ends[0]))] {
        spec.hosts[host].system = System::Plain { local, remote };
    }
    spec.routes.insert((ends[0], ends[1]), vec![2 * path]);
    spec.routes.insert((ends[1], ends[0]), vec![2 * path + 1]);
    for Cross { from, until, rate } in cross {
        let traffic = Traffic::Packets {
            protocol: 17,
            size: (CROSS, CROSS),
            interval: CROSS as u64 * 8 * SECOND / (*rate).max(1),
            ecn: 0,
            segments: 1,
        };
        let (start, stop) = (begin + from, begin + until);
        spec.add_flow(FlowSpec { from: first, to: first + 1, start, stop, v6: false, traffic });
    }
}

impl Set {
    /// The world of a bulk transfer.
    pub(crate) fn bulk(&self, subject: Subject, sender: Sender) -> WorldSpec {
        world(self, subject, (sender, None), self.until, 0)
    }

    /// What bulk by TCP can have, bit/s.
    pub(crate) fn bulk_limit(&self) -> f64 {
        self.limit(self.from(), self.until)
    }

    /// What the plain transfer reaches on the path where it has most, bit/s.
    pub(crate) fn best_path(&self, sender: Sender) -> f64 {
        let alone = subjects(self).map(|subject| {
            self.goodput(&mut World::new(self.bulk(subject, sender), Observe::default()))
        });
        alone.fold(0.0, f64::max)
    }

    /// Runs the world of a bulk transfer. Returns bit/s while it counts.
    fn goodput(&self, world: &mut World) -> f64 {
        world.run_until(self.begin + self.from());
        let before = world.flow_bytes(0);
        world.run_until(self.begin + self.until);
        let time = (self.until - self.from()) as f64 / SECOND as f64;
        (world.flow_bytes(0) - before) as f64 * 8.0 / time
    }
}

/// What to measure beside goodput, and how.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) short: bool,
    pub(crate) parameters: Parameters,
}

/// Measures `sender` over `set`.
///
/// # Errors
/// If there is no sender of that name.
pub(crate) fn measure(set: &Set, name: &str, plan: &Plan) -> io::Result<Measured> {
    let sender = Sender::from_name(name).map_err(io::Error::other)?;
    let mut violations = Vec::new();
    let bulk = bulk(set, sender, plan, &mut violations);
    let mut shorts = Vec::new();
    if plan.short {
        let quiet = set.quiet();
        shorts.extend(SIZES.map(|size| short(&quiet, sender, size, plan, &mut violations)));
    }
    let (seed, sender) = (set.seed, name.to_owned());
    Ok(Measured { seed, sender, bulk, short: shorts, violations })
}

fn subjects(set: &Set) -> impl Iterator<Item = Subject> {
    (0..set.paths.len()).map(Subject::Path)
}

fn through_mpip(spec: WorldSpec, plan: &Plan) -> WorldSpec {
    spec.with_engines(|engine| engine.parameters = plan.parameters)
}

fn note(violations: &mut Vec<String>, world: &World) {
    violations.extend(world.violations().iter().map(ToString::to_string));
}

/// Bulk through mpip, light traffic before it as hosts have it, and requests beside it as the last
/// flow.
pub(super) fn loaded(set: &Set, sender: Sender, plan: &Plan) -> WorldSpec {
    let mut spec = set.bulk(Subject::MPIP, sender).with_ping(LIGHT, REQUESTS);
    if let Some(light) = spec.flows.last_mut() {
        light.stop = set.begin;
    }
    through_mpip(spec.with_ping(set.begin, REQUESTS), plan)
}

fn bulk(set: &Set, sender: Sender, plan: &Plan, violations: &mut Vec<String>) -> Bulk {
    let payload = if matches!(sender, Sender::Quic(_)) { QUIC_PAYLOAD } else { 1.0 };
    let mut alone = Vec::new();
    let mut ping_alone = f64::INFINITY;
    for subject in subjects(set) {
        let spec = set.bulk(subject, sender);
        let mut world = World::new(spec.clone(), Observe::default());
        alone.push(set.goodput(&mut world));
        note(violations, &world);
        let mut idle = spec;
        idle.flows.remove(0);
        let idle = idle.with_ping(set.begin, REQUESTS);
        let number = idle.flows.len() - 1;
        let mut world = World::new(idle, Observe::default());
        world.run_until(set.begin + set.until);
        let report = world.flow(number);
        // A path that loses most of the requests does not serve them.
        if report.delivered * 2 > report.sent {
            ping_alone = ping_alone.min(milliseconds(quantile(&report.delays, 0.95)));
        }
    }
    let spec = loaded(set, sender, plan);
    let number = spec.flows.len() - 1;
    let mut world = World::new(spec, Observe::default());
    let mpip = set.goodput(&mut world);
    note(violations, &world);
    let ping = world.flow(number);
    Bulk {
        limit: set.bulk_limit() * payload,
        alone,
        mpip,
        mptcp: None,
        ping_alone: if ping_alone.is_finite() { ping_alone } else { 0.0 },
        ping: milliseconds(quantile(&ping.delays, 0.95)),
        ping_lost: 1.0 - ping.delivered as f64 / ping.sent.max(1) as f64,
    }
}

fn milliseconds(nanos: Option<Nanos>) -> f64 {
    nanos.unwrap_or(END) as f64 / MILLI as f64
}

/// The times of `bytes` bytes from idle.
pub(super) fn short(
    set: &Set,
    sender: Sender,
    bytes: u64,
    plan: &Plan,
    violations: &mut Vec<String>,
) -> Short {
    let mut time = |set: &Set, subject: Subject, runs: Range<u64>| {
        let times: Vec<f64> = runs
            .map(|run| {
                let spec = short_spec(set, subject, (sender, bytes), plan, run);
                let mut world = World::new(spec, Observe::default());
                let took = time_of(&mut world, set.begin, bytes);
                note(violations, &world);
                took as f64 / SECOND as f64
            })
            .collect();
        median(&times)
    };
    let alone: Vec<f64> = subjects(set).map(|path| time(set, path, 0..REPETITIONS)).collect();
    let best = (0..alone.len()).min_by(|&a, &b| alone[a].total_cmp(&alone[b]));
    let again = best.map(|path| time(set, Subject::Path(path), REPETITIONS..2 * REPETITIONS));
    let tunnel = best.map(|path| time(&set.only(path), Subject::MPIP, 0..REPETITIONS));
    Short { mpip: time(set, Subject::MPIP, 0..REPETITIONS), alone, again, tunnel }
}

/// The world of one run of `bytes` bytes by `subject`.
pub(super) fn short_spec(
    set: &Set,
    subject: Subject,
    (sender, bytes): (Sender, u64),
    plan: &Plan,
    repetition: u64,
) -> WorldSpec {
    through_mpip(world(set, subject, (sender, Some(bytes)), LONGEST, repetition), plan)
}

/// Runs `world` until its first flow, which begins at `begin`, has delivered `bytes`. Returns how
/// long that took, [`LONGEST`] at most.
pub(super) fn time_of(world: &mut World, begin: Nanos, bytes: u64) -> Nanos {
    let mut end = begin;
    while end < begin + LONGEST && world.flow_bytes(0) < bytes {
        end += 50 * MILLI;
        world.run_until(end);
    }
    let done = world.last_delivery(0).filter(|_| world.flow_bytes(0) >= bytes);
    done.unwrap_or(begin + LONGEST) - begin
}
