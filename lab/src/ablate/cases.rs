//! The transfers of an ablation.

use std::sync::OnceLock;
use std::time::Duration;

use mpip_core::Parameters;
use mpip_link::{Change, LinkConfig, Loss, QueueLimit};
use mpip_sim::clock::{MILLI, Nanos, SECOND};
use mpip_sim::measure::{self, Scenario, Sender, Subject, WARM_UP, limit};
use mpip_sim::spec::outer_address;
use mpip_sim::spec::{Action, FlowSpec, HostSpec, System, TcpControl, Traffic, WorldSpec};
use mpip_sim::world::{Observe, World};

use super::outcome::Outcome;
use crate::sweep::{FROM, Set};

type Paths = Vec<(LinkConfig, LinkConfig)>;

/// A transfer through mpip, and what it is held against.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    spec: WorldSpec,
    /// Goodput counts from here on.
    from: Nanos,
    /// What the flow can have, bit/s.
    limit: f64,
    /// The set of paths for the plain transfer on each of them alone, where the best of them is to
    /// be reached.
    alone: Option<(Set, Sender)>,
    /// What that was found to be, bit/s.
    best: OnceLock<f64>,
}

impl Case {
    /// Runs it. `shift` chooses other random numbers for the same links.
    pub(super) fn run(&self, parameters: &Parameters, shift: u64) -> Outcome {
        let parameters = *parameters;
        let mut spec = self.spec.clone().with_engines(|engine| engine.parameters = parameters);
        spec.seed += shift << 32;
        let end = spec.duration;
        let flows = spec.flows.len();
        let mut world = World::new(spec, Observe::default());
        world.run_until(self.from);
        let before: Vec<u64> = (0..flows).map(|flow| world.flow_bytes(flow)).collect();
        world.run_until(end);
        // Where another flow shares the link, the one that gets less counts.
        let carried = (0..flows).map(|flow| world.flow_bytes(flow) - before[flow]).min();
        let seconds = (end - self.from) as f64 / SECOND as f64;
        let goodput = carried.unwrap_or(0) as f64 * 8.0 / seconds;
        let best =
            self.alone.as_ref().map(|alone| *self.best.get_or_init(|| alone.0.best_path(alone.1)));
        Outcome {
            share: goodput / self.limit,
            of_best: best.map_or(f64::INFINITY, |best| goodput / best.max(1.0)),
            violations: world.violations().len(),
        }
    }
}

fn transfer(
    name: String,
    paths: Paths,
    sender: impl Into<Sender>,
    (from, duration): (Nanos, Nanos),
    seed: u64,
) -> Case {
    let limit = limit(&paths).unwrap_or(f64::INFINITY);
    let scenario = Scenario { paths, sender: sender.into(), duration, from, seed };
    let spec = measure::world(&scenario, Subject::MPIP);
    Case { name, spec, from: WARM_UP + from, limit, alone: None, best: OnceLock::new() }
}

fn link(rate: u64, delay: u64, queue: u32) -> LinkConfig {
    LinkConfig {
        rate: Some(rate * 1_000_000),
        delay: Duration::from_millis(delay),
        queue: QueueLimit::Packets(queue),
        ..LinkConfig::default()
    }
}

fn jittering(rate: u64, delay: u64, jitter: u64) -> LinkConfig {
    LinkConfig { jitter: Duration::from_millis(jitter), ..link(rate, delay, 100) }
}

fn lossy(link: LinkConfig, loss: f64) -> LinkConfig {
    LinkConfig { loss: Loss::Random(loss), ..link }
}

fn both(link: LinkConfig) -> (LinkConfig, LinkConfig) {
    (link.clone(), link)
}

/// The inner senders, and their names.
fn senders() -> [(Sender, &'static str); 3] {
    ["cubic", "bbr", "quic-hybrid"]
        .map(|name| (Sender::from_name(name).expect("there is such a sender"), name))
}

/// The simulator's scenarios of interest: throughput tables, unequal, jittery and lossy paths,
/// starts, harmful paths, changes, and a bottleneck that is shared.
pub(super) fn scenarios() -> Vec<Case> {
    let mut cases = Vec::new();
    let cubic = TcpControl::CUBIC;
    for delay in [5, 25, 100] {
        for loss in [0.0, 0.01, 0.05] {
            let near = (lossy(link(10, 5, 100), loss), link(10, 5, 100));
            let paths = vec![near, both(link(10, delay, 100))];
            let name = format!("two paths, {delay} ms, {loss}");
            cases.push(transfer(name, paths, cubic, (3 * SECOND, 12 * SECOND), 7));
        }
    }
    for (name, paths) in long() {
        for (sender, suffix) in senders() {
            let name = format!("{name}, {suffix}");
            cases.push(transfer(name, paths.clone(), sender, (0, 10 * SECOND), 1));
        }
    }
    for delays in [[5, 50], [5, 100], [20, 100], [5, 5]] {
        let paths = delays.iter().map(|delay| both(link(10, *delay, 100))).collect();
        let name = format!("start, {delays:?} ms");
        cases.push(transfer(name, paths, cubic, (SECOND, 3 * SECOND), 1));
    }
    for (name, bad) in harmful() {
        let paths = vec![both(link(10, 10, 100)), both(bad)];
        let mut case = transfer(name, paths, cubic, (6 * SECOND, 30 * SECOND), 1);
        // What the good path carries alone.
        case.limit = 10e6 * 1_460.0 / 1_514.0;
        cases.push(case);
    }
    cases.extend(changing());
    for queue in [30, 100, 300] {
        cases.push(shared(queue, 1));
    }
    cases
}

/// Paths for transfers by every sender.
fn long() -> Vec<(String, Paths)> {
    let named = |name: &str, paths: Paths| (name.to_owned(), paths);
    vec![
        named(
            "three paths",
            vec![both(link(10, 5, 100)), both(link(5, 20, 100)), both(link(8, 60, 100))],
        ),
        named("unequal", vec![both(link(20, 10, 100)), both(link(2, 60, 50))]),
        named("much unequal", vec![both(link(30, 5, 100)), both(link(3, 150, 50))]),
        named("both jitter", vec![both(jittering(10, 100, 30)), both(jittering(10, 5, 2))]),
        named("one jitters", vec![both(jittering(10, 5, 3)), both(link(10, 5, 100))]),
        named("jitter 20 ms", vec![both(jittering(10, 40, 20)), both(link(10, 20, 100))]),
        named("one loses 5 %", vec![both(link(10, 60, 100)), both(lossy(link(10, 40, 100), 0.05))]),
        named(
            "all lose 2 %",
            vec![both(lossy(link(10, 20, 100), 0.02)), both(lossy(link(10, 30, 100), 0.02))],
        ),
        named("far", vec![both(link(10, 10, 100)), both(link(10, 250, 300))]),
        named("one path", vec![both(link(10, 25, 100))]),
    ]
}

/// Paths that may do harm beside a good one.
fn harmful() -> Vec<(String, LinkConfig)> {
    let heavy = LinkConfig { jitter: Duration::from_millis(100), ..link(5, 150, 100) };
    vec![
        ("harm, a third lost".to_owned(), lossy(link(5, 50, 100), 0.3)),
        ("harm, far and lossy".to_owned(), lossy(link(10, 300, 200), 0.1)),
        ("harm, slow and far".to_owned(), link(2, 500, 100)),
        ("harm, jitter".to_owned(), lossy(heavy, 0.05)),
        ("harm, trickle".to_owned(), trickle()),
    ]
}

fn trickle() -> LinkConfig {
    let jitter = Duration::from_millis(50);
    LinkConfig { rate: Some(300_000), jitter, loss: Loss::Random(0.1), ..link(1, 200, 20) }
}

/// Links that change during the transfer.
fn changing() -> Vec<Case> {
    const AT: Nanos = 15 * SECOND;
    let case = |name: &str, second: LinkConfig, change: &[(Nanos, usize, Change)], limit: f64| {
        let paths = vec![both(link(10, 10, 100)), both(second)];
        let name = name.to_owned();
        let mut case = transfer(name, paths, TcpControl::CUBIC, (0, 38 * SECOND), 1);
        for (at, path, change) in change {
            for link in [2 * path, 2 * path + 1] {
                case.spec.script.push((*at, Action::Link { link, change: change.clone() }));
            }
        }
        case.from = AT;
        case.limit = limit * 1e6 * 1_460.0 / 1_514.0;
        case
    };
    let healed = Change {
        rate: Some(Some(5_000_000)),
        delay: Some(Duration::from_millis(10)),
        jitter: Some(Duration::ZERO),
        loss: Some(Loss::None),
        ..Change::default()
    };
    let rate = |rate| Change { rate: Some(Some(rate)), ..Change::default() };
    let up = |up: bool| Change { blackhole: Some(!up), ..Change::default() };
    let cuts = [(18 * SECOND, 1, up(false)), (18 * SECOND + 700 * MILLI, 1, up(true))];
    let out = [(18 * SECOND, false), (19 * SECOND, true)];
    let out = out.map(|(at, on)| [(at, 0, up(on)), (at, 1, up(on))]).concat();
    vec![
        case("a bad path heals", trickle(), &[(AT, 1, healed)], 15.0),
        case("the good path slows", link(2, 500, 100), &[(AT, 0, rate(1_000_000))], 3.0),
        case("a path becomes wider", link(3, 10, 100), &[(AT, 1, rate(8_000_000))], 18.0),
        case("a path becomes slower", link(8, 10, 100), &[(AT, 1, rate(2_000_000))], 12.0),
        case("a path is cut", link(5, 20, 100), &cuts, 15.0),
        case("all paths are cut", link(5, 20, 100), &out, 15.0),
    ]
}

/// Two hosts with two interfaces each and two hosts with plain TCP, all over one link with a queue
/// of `queue` packets. Each flow can have half.
fn shared(queue: u32, seed: u64) -> Case {
    let mut spec = WorldSpec::two_hosts(seed, 2).lasting(30 * SECOND);
    let clock = spec.hosts[0].clock;
    for (host, name) in [(2, "carol"), (3, "dave")] {
        let (local, remote) = if host == 2 { (4, 5) } else { (5, 4) };
        let system = System::Plain { local, remote };
        spec.hosts.push(HostSpec { name: name.to_owned(), clock, system });
        spec.add_interface(host, vec![outer_address(host, 0, 0, false)]);
    }
    let forward = spec.add_link(link(10, 10, queue));
    let back = spec.add_link(link(10, 10, queue));
    for (from, to) in [(0, 2), (0, 3), (1, 2), (1, 3), (4, 5)] {
        spec.routes.insert((from, to), vec![forward]);
        spec.routes.insert((to, from), vec![back]);
    }
    let stop = spec.duration;
    let traffic = Traffic::Tcp { bytes: None, window: 800_000 };
    spec.add_flow(FlowSpec { from: 2, to: 3, start: 3 * SECOND, stop, v6: false, traffic });
    Case {
        name: format!("shared, queue of {queue}, seed {seed}"),
        spec: spec.with_bulk(2 * SECOND, 1 << 20),
        from: 8 * SECOND,
        limit: 5e6 * 1_460.0 / 1_514.0,
        alone: None,
        best: OnceLock::new(),
    }
}

/// Transfers over the first `sets` link sets of the sweep, by every sender.
pub(super) fn random(sets: u64) -> Vec<Case> {
    let case = |(seed, (sender, name)): (u64, (Sender, &str))| {
        let set = Set::draw(seed);
        Case {
            name: format!("random {seed}, {name}"),
            spec: set.bulk(Subject::MPIP, sender),
            from: WARM_UP + FROM,
            limit: set.bulk_limit(),
            alone: Some((set, sender)),
            best: OnceLock::new(),
        }
    };
    (0..sets).flat_map(|seed| senders().map(|sender| (seed, sender))).map(case).collect()
}
