//! Scenarios in the simulator: the same files, links and schedules in virtual time. mpip's engine
//! and the simulator's TCP take the place of kernels. MPTCP, other programs, packet filters and
//! commands need kernels.

use std::collections::BTreeMap;
use std::time::Duration;

use mpip_core::PathState;
use mpip_daemon::config::{Known, RuleList, parse_loss_threshold};
use mpip_link::LinkConfig;
use mpip_sim::clock::{HostClock, Nanos, SECOND};
use mpip_sim::measure;
use mpip_sim::network::InterfaceSpec;
use mpip_sim::packet::protocol;
use mpip_sim::spec::{self, Action, EngineSpec, FlowSpec, TcpControl, WorldSpec};
use mpip_sim::world::{Observe, World};

use crate::estimates::path_name;
use crate::flow::FlowResult;
use crate::links::{DirectionRecord, Record};
use crate::results::Estimate;
use crate::scenario::{
    Event, Hop, Path, QuicImplementation, Scenario, System, Traffic, TrafficKind,
};
use crate::statistics::{Statistics, mean_difference};
use crate::subject::{ClockSetting, Subject, ends};

/// Time for handshake, path validation and first round trips before the traffic starts.
pub(crate) const WARM_UP: Nanos = 2 * SECOND;
/// Most samples of a long run. Shorter runs have one each 100 ms.
const SAMPLES: u64 = 1_500;
/// Length of IPv4 and UDP headers in bytes. The simulator's packet lengths include them, a
/// scenario's do not.
const UDP_HEADERS: u32 = 28;
/// Shortest interval of samples.
const SHORTEST_SAMPLE: Nanos = SECOND / 10;

/// The outcome of a run in virtual time.
pub(crate) struct Outcome {
    pub(crate) flows: Vec<FlowResult>,
    pub(crate) record: Record,
    pub(crate) estimates: Vec<Estimate>,
    /// Violated invariants; empty in a valid run.
    pub(crate) violations: Vec<String>,
}

/// Whether the simulator can run the subject.
pub(crate) fn has(subject: &Subject) -> bool {
    ["tcp", "mpip"].contains(&subject.system.kind.as_str())
}

/// The scenario as a world of the simulator.
pub(crate) fn world(
    scenario: &Scenario,
    subject: &Subject,
    repetition: u32,
) -> Result<(WorldSpec, Vec<usize>), String> {
    if !scenario.routers.is_empty() {
        return Err("routers and their packet filters run on kernels only".to_owned());
    }
    if !scenario.commands.is_empty() {
        return Err("commands run on kernels only".to_owned());
    }
    let (client, server) = ends(scenario).map_err(|error| error.to_string())?;
    let names = [client, server];
    if scenario.hosts().len() != 2 {
        return Err(format!("expected two hosts, found {:?}", scenario.hosts()));
    }
    let seed = scenario.link_seed(0, true, repetition);
    let duration = WARM_UP + nanos(scenario.duration);
    let mut world = WorldSpec::two_hosts(seed, 0).lasting(duration);
    world.tcp = TcpControl::from_name(&scenario.congestion_control)?;
    for interface in &scenario.interfaces {
        world.interfaces.push(InterfaceSpec {
            host: usize::from(interface.host == names[1]),
            name: interface.name.clone(),
            addresses: vec![interface.address],
            mtu: u16::try_from(interface.mtu).unwrap_or(u16::MAX),
            nat: None,
        });
    }
    for link in &scenario.links {
        world.add_link(link.forward.clone());
        world.add_link(link.reverse.clone());
    }
    for from in 0..scenario.interfaces.len() {
        for to in 0..scenario.interfaces.len() {
            let between = world.interfaces[from].host != world.interfaces[to].host;
            if let Some(path) = scenario.path(from, to).filter(|_| between) {
                let links = path.hops.iter().map(|hop| hop.link * 2 + usize::from(!hop.forward));
                world.routes.insert((from, to), links.collect());
            }
        }
    }
    for event in &scenario.events {
        script(&mut world, scenario, event);
    }
    systems(&mut world, scenario, subject, names)?;
    let windows = window(scenario, subject, names);
    let mut numbers = Vec::new();
    for traffic in &scenario.traffic {
        numbers.push(world.flows.len());
        let from = usize::from(traffic.from == names[1]);
        flows(&mut world, traffic, from, windows, &scenario.congestion_control)?;
    }
    Ok((world, numbers))
}

fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn script(world: &mut WorldSpec, scenario: &Scenario, event: &Event) {
    let at = WARM_UP + nanos(event.at);
    for (direction, selected) in [(0, event.forward), (1, event.reverse)] {
        if selected {
            let link = event.link * 2 + direction;
            world.script.push((at, Action::Link { link, change: event.change.clone() }));
        }
    }
    let Some(up) = event.change.up.filter(|_| event.announced) else { return };
    for (index, interface) in scenario.interfaces.iter().enumerate() {
        if scenario.links[event.link].ends.contains(&interface.full_name()) {
            let address = interface.address;
            world.script.push((
                at,
                if up {
                    Action::AddAddress { interface: index, address }
                } else {
                    Action::RemoveAddress { interface: index, address }
                },
            ));
        }
    }
}

/// Sets the hosts' systems and clocks.
fn systems(
    world: &mut WorldSpec,
    scenario: &Scenario,
    subject: &Subject,
    names: [&str; 2],
) -> Result<(), String> {
    if let Some((from, to)) = subject.path {
        world.hosts[0].system = spec::System::Plain { local: from, remote: to };
        world.hosts[1].system = spec::System::Plain { local: to, remote: from };
        return Ok(());
    }
    let voice = scenario.traffic.iter().any(|it| matches!(it.kind, TrafficKind::Voip { .. }));
    if voice && subject.system.settings.contains_key("rules") {
        return Err(
            "\"rules\" beside voice run on kernels only: the simulator's voice is ICMP".into()
        );
    }
    for (index, host) in world.hosts.iter_mut().enumerate() {
        let engine = engine(&subject.system, index == 0)?;
        host.system = spec::System::Mpip(Box::new(engine));
    }
    if let Some(clock) = ClockSetting::of(&subject.system)? {
        let index = names.iter().position(|name| *name == clock.host).ok_or_else(|| {
            format!("expected a clock of one of {:?}, found {:?}", scenario.hosts(), clock.host)
        })?;
        let offset = world.hosts[index].clock.offset + clock.offset()?;
        world.hosts[index].clock = HostClock { offset, drift: clock.drift_ppb };
    }
    Ok(())
}

fn engine(system: &System, knows_peer: bool) -> Result<EngineSpec, String> {
    // A client and its gateway: only the client knows an endpoint of the other.
    let mut engine = EngineSpec { knows_peer, ..EngineSpec::default() };
    for (key, value) in &system.settings {
        match (key.as_str(), value.as_str(), value.as_bool()) {
            ("scheduler", Some(name), _) => engine.set_scheduler(name)?,
            ("congestion_control", Some(name), _) => engine.set_congestion_control(name)?,
            ("resequencing", _, Some(on)) => engine.resequencing = on,
            ("ack_thinning", _, Some(on)) => engine.ack_thinning = on,
            ("loss_policy", Some(name), _) => engine.set_loss_policy(name)?,
            ("loss_thresholds", ..) => {
                engine.interfaces.loss_thresholds = loss_thresholds(value)
                    .map_err(|reason| format!("system {:?}: {reason}", system.name))?;
            }
            ("rules", ..) => {
                engine.rules = rules(value)
                    .map_err(|reason| format!("rules of system {:?}: {reason}", system.name))?;
            }
            // The inner addresses make no difference here.
            ("host_mode", ..) | ("clock", ..) => {}
            _ => {
                return Err(format!(
                    "the simulator has no setting {key:?} of system {:?}",
                    system.name
                ));
            }
        }
    }
    Ok(engine)
}

/// The thresholds in a table like `{ a = "0.01 %" }`. The daemon's code judges them.
fn loss_thresholds(table: &toml::Value) -> Result<BTreeMap<String, u32>, String> {
    let expected = |found: &toml::Value| {
        format!("loss_thresholds: expected a table of percentages, found {}", found.type_str())
    };
    let one = |(interface, value): (&String, &toml::Value)| {
        let text = value.as_str().ok_or_else(|| expected(value))?;
        Ok((interface.clone(), parse_loss_threshold(text)?))
    };
    table.as_table().ok_or_else(|| expected(table))?.iter().map(one).collect()
}

/// The rules in `list`, an array of tables like `[[rule]]`. The daemon's code judges them.
fn rules(list: &toml::Value) -> Result<Vec<mpip_core::Rule>, String> {
    let expected = || format!("expected an array of tables, found {}", list.type_str());
    let mut rules = RuleList::default();
    let known = Known { others_join: true, ..Known::default() };
    for rule in list.as_array().ok_or_else(expected)? {
        let mut settings = BTreeMap::new();
        for (key, value) in rule.as_table().ok_or_else(expected)? {
            match value {
                toml::Value::Table(inner) => settings.extend(
                    inner.iter().map(|(inner, value)| (format!("{key}.{inner}"), text(value))),
                ),
                value => drop(settings.insert(key.clone(), text(value))),
            }
        }
        rules.add(None, &settings, &known)?;
    }
    Ok(rules.rules())
}

/// `value` as in `mpip rule add`: without quotes, a list with commas.
fn text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// The links of a path as one: the lowest rate with its queue, and the sum of the delays.
fn joined(scenario: &Scenario, hops: &[Hop]) -> LinkConfig {
    let config = |hop: &Hop| scenario.links[hop.link].direction(hop.forward);
    let slowest = hops.iter().map(config).min_by(|a, b| {
        let rate = |link: &LinkConfig| link.mean_rate().unwrap_or(f64::INFINITY);
        rate(a).total_cmp(&rate(b))
    });
    LinkConfig {
        delay: hops.iter().map(|hop| config(hop).delay).sum(),
        jitter: hops.iter().map(|hop| config(hop).jitter).sum(),
        ..slowest.cloned().unwrap_or_default()
    }
}

/// A TCP window that never limits the rate.
fn window(scenario: &Scenario, subject: &Subject, names: [&str; 2]) -> usize {
    let both = |path: &Path| {
        let back = scenario.path(path.to, path.from).map(|path| path.hops).unwrap_or_default();
        (joined(scenario, &path.hops), joined(scenario, &back))
    };
    match subject.path.and_then(|(from, to)| scenario.path(from, to)) {
        Some(path) => measure::plain_window(&both(&path)),
        None => {
            let paths = scenario.paths(names[0], names[1]);
            measure::window(&paths.iter().map(both).collect::<Vec<_>>())
        }
    }
}

fn flows(
    world: &mut WorldSpec,
    traffic: &Traffic,
    from: usize,
    window: usize,
    congestion_control: &str,
) -> Result<(), String> {
    if traffic.plain.is_some() {
        return Err("plain traffic beside a system runs on kernels only".to_owned());
    }
    let start = WARM_UP + nanos(traffic.start);
    let stop = start + nanos(traffic.duration);
    let packets = |protocol: u8, length: u32, interval: Nanos| {
        let size = (length + UDP_HEADERS) as usize;
        spec::Traffic::Packets { protocol, size: (size, size), interval, ecn: 0, segments: 1 }
    };
    let (count, backwards, kind) = match &traffic.kind {
        TrafficKind::Tcp { streams, download } => {
            (*streams, *download, spec::Traffic::Tcp { bytes: None, window })
        }
        TrafficKind::Stream => (1, false, spec::Traffic::Tcp { bytes: None, window }),
        TrafficKind::File { size } => (1, false, spec::Traffic::Tcp { bytes: Some(*size), window }),
        TrafficKind::Http { size } => (1, true, spec::Traffic::Tcp { bytes: Some(*size), window }),
        TrafficKind::Udp { rate, length } => {
            let interval = u64::from(*length) * 8 * SECOND / (*rate).max(1);
            (1, false, packets(protocol::UDP, *length, interval))
        }
        // Echo requests have round-trip times, like datagrams that are sent back.
        TrafficKind::Voip { interval, length } => {
            (1, false, packets(protocol::ICMP, *length, nanos(*interval)))
        }
        TrafficKind::Quic {
            implementation: QuicImplementation::Quinn,
            congestion_control: own,
            download,
        } => {
            let name = own.as_deref().unwrap_or(congestion_control);
            let measure::Sender::Quic(control) =
                measure::Sender::from_name(&format!("quic-{name}"))?
            else {
                return Err(format!("expected a congestion control of QUIC, found {name:?}"));
            };
            (1, *download, spec::Traffic::Quic { bytes: None, control })
        }
        TrafficKind::Quic { implementation: QuicImplementation::QuicGo, .. }
        | TrafficKind::RequestResponse { .. }
        | TrafficKind::Short { .. }
        | TrafficKind::Web { .. } => {
            return Err(format!("traffic {:?} runs on kernels only", traffic.name));
        }
    };
    let from = if backwards { 1 - from } else { from };
    for _ in 0..count {
        let traffic = kind.clone();
        world.add_flow(FlowSpec { from, to: 1 - from, start, stop, v6: false, traffic });
    }
    Ok(())
}

/// Runs a scenario in virtual time.
///
/// # Errors
/// The scenario needs something that the simulator does not have.
pub(crate) fn run(
    scenario: &Scenario,
    subject: &Subject,
    repetition: u32,
) -> Result<Outcome, String> {
    let (spec, numbers) = world(scenario, subject, repetition)?;
    let drift = spec.hosts[1].clock.drift - spec.hosts[0].clock.drift;
    let clock_gained_ms = drift as f64 * scenario.duration.as_secs_f64() / 1e6;
    let duration = spec.duration - WARM_UP;
    let sample = (duration / SAMPLES).max(SHORTEST_SAMPLE);
    let mut samples = Samples::new(scenario, spec.flows.len(), sample);
    let mut world = World::new(spec, Observe::default());
    world.run_until(WARM_UP);
    samples.begin(scenario, &world);
    for end in (1..=duration / sample).map(|number| WARM_UP + number * sample) {
        world.run_until(end);
        samples.take(&world);
    }
    world.run_until(WARM_UP + duration);
    let violations = world.violations().iter().map(ToString::to_string).collect();
    for estimate in &mut samples.estimates {
        estimate.clock_gained_ms = clock_gained_ms;
    }
    let mut flows = Vec::new();
    for (index, traffic) in scenario.traffic.iter().enumerate() {
        let next = numbers.get(index + 1).copied().unwrap_or(samples.flows.len());
        for number in numbers[index]..next {
            flows.push(flow_result(&world, traffic, number, &samples));
        }
    }
    Ok(Outcome { flows, record: samples.record, estimates: samples.estimates, violations })
}

/// What is sampled during a run.
struct Samples {
    interval: Nanos,
    record: Record,
    estimates: Vec<Estimate>,
    /// The paths of the estimates.
    paths: Vec<u16>,
    before: Vec<mpip_link::Counters>,
    /// Bytes of each flow in each interval.
    flows: Vec<Vec<u64>>,
    seen: Vec<u64>,
}

impl Samples {
    fn new(scenario: &Scenario, flows: usize, interval: Nanos) -> Self {
        let directions = scenario.links.iter().flat_map(|link| {
            [true, false].map(|forward| DirectionRecord {
                link: link.name.clone(),
                forward,
                ..DirectionRecord::default()
            })
        });
        let record = Record {
            directions: directions.collect(),
            sample_ms: interval as f64 / 1e6,
            ..Record::default()
        };
        Self {
            interval,
            record,
            estimates: Vec::new(),
            paths: Vec::new(),
            before: Vec::new(),
            flows: vec![Vec::new(); flows],
            seen: vec![0; flows],
        }
    }

    fn begin(&mut self, scenario: &Scenario, world: &World) {
        let network = world.network();
        self.before = (0..network.links()).map(|link| *network.link_counters(link)).collect();
        let status = world.status(0);
        let peer = status.as_ref().and_then(|status| status.peers.first());
        // Pairs of addresses without a link between them have no round-trip time.
        let paths = peer.iter().flat_map(|peer| &peer.paths).filter(|path| path.rtt.is_some());
        for path in paths {
            self.paths.push(path.id);
            let name = path_name(scenario, path.local.ip(), path.remote.ip());
            self.estimates.push(Estimate { path: name, ..Estimate::default() });
        }
    }

    fn take(&mut self, world: &World) {
        for (link, direction) in self.record.directions.iter_mut().enumerate() {
            let (now, before) = (*world.network().link_counters(link), &mut self.before[link]);
            direction.delivered.push(now.delivered_bytes - before.delivered_bytes);
            direction.queued.push(world.network().queued_bytes(link));
            direction.dropped.push(now.dropped() - before.dropped());
            let so_far = &mut direction.counters;
            so_far.delivered_bytes += now.delivered_bytes - before.delivered_bytes;
            so_far.delivered_packets += now.delivered_packets - before.delivered_packets;
            so_far.dropped_queue += now.dropped_queue - before.dropped_queue;
            so_far.dropped_codel += now.dropped_codel - before.dropped_codel;
            so_far.dropped_loss += now.dropped_loss - before.dropped_loss;
            so_far.dropped_down += now.dropped_down - before.dropped_down;
            so_far.dropped_blackhole += now.dropped_blackhole - before.dropped_blackhole;
            so_far.dropped_too_big += now.dropped_too_big - before.dropped_too_big;
            *before = now;
        }
        for (number, intervals) in self.flows.iter_mut().enumerate() {
            let bytes = world.flow_bytes(number);
            intervals.push(bytes - self.seen[number]);
            self.seen[number] = bytes;
        }
        let status = world.status(0);
        let peer = status.as_ref().and_then(|status| status.peers.first());
        for path in peer.iter().flat_map(|peer| &peer.paths) {
            let Some(index) = self.paths.iter().position(|id| *id == path.id) else { continue };
            let estimate = &mut self.estimates[index];
            let works = matches!(path.state, PathState::Active | PathState::Standby);
            let in_ms = |delay: Duration| works.then_some(delay.as_secs_f64() * 1e3);
            estimate.queuing_ms.push(in_ms(path.queuing_delay));
            estimate.relative_ms.push(in_ms(path.relative_delay.unwrap_or_default()));
        }
    }
}

fn flow_result(world: &World, traffic: &Traffic, number: usize, samples: &Samples) -> FlowResult {
    let report = world.flow(number);
    let seconds = traffic.duration.as_secs_f64();
    let mut result = FlowResult { name: traffic.name.clone(), ..FlowResult::default() };
    let in_ms = |delays: &[Nanos]| delays.iter().map(|delay| *delay as f64 / 1e6).collect();
    let delays: Vec<f64> = in_ms(&report.delays);
    let lost = || Some(1.0 - report.delivered as f64 / report.sent.max(1) as f64);
    match &traffic.kind {
        TrafficKind::Voip { .. } => {
            result.jitter_ms = Some(mean_difference(&delays));
            result.rtt_ms = Some(Statistics::of(&mut delays.clone()));
            result.loss = lost();
        }
        TrafficKind::Udp { .. } => {
            let headers = report.delivered * u64::from(UDP_HEADERS);
            result.goodput_bps = (report.bytes - headers) as f64 * 8.0 / seconds;
            result.jitter_ms = Some(mean_difference(&delays));
            result.loss = lost();
        }
        _ => {
            result.goodput_bps = report.bytes as f64 * 8.0 / seconds;
            result.longest_pause_ms = Some(report.longest_pause as f64 / 1e6);
        }
    }
    // Readers of results expect intervals of 100 ms.
    if samples.interval == SHORTEST_SAMPLE {
        let (from, length) =
            (nanos(traffic.start) / SHORTEST_SAMPLE, nanos(traffic.duration) / SHORTEST_SAMPLE);
        let own = samples.flows[number].iter().skip(from as usize).take(length as usize);
        result.intervals_bps = own.map(|bytes| *bytes as f64 * 80.0).collect();
    }
    result
}

#[cfg(test)]
mod tests;
