//! Random worlds: from one seed, a few virtual seconds in which everything can go wrong.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use mpip_core::{
    CongestionControlKind, Copies, EncapsulationPolicy, PathPreference, Policy, Priority,
    RateLimit, Rule, RulePaths, SchedulerKind,
};
use mpip_link::{Change, LinkConfig, Loss, QueueLimit};

use crate::clock::{HostClock, MILLI, Nanos, SECOND};
use crate::hostile::{HostileSpec, Lie};
use crate::nat::NatSpec;
use crate::packet::protocol;
use crate::rng::Rng;
use crate::spec::{
    Action, EngineSpec, FlowSpec, HostSpec, Mode, System, Traffic, WorldSpec, outer_address,
};

/// Random streams that create a world, and worlds of each special kind; events in it use other
/// streams.
const MAKING: u64 = 100;
const KIND: u64 = 101;
const COSTS: u64 = 102;
const RULES: u64 = 103;

/// Usual clock drift, parts per billion: the seeds measured 1 ms in 4 minutes.
const USUAL_DRIFT: i64 = 4_167;

/// The world of a seed: 1 to 4 interfaces on each of two hosts, links of every kind, mixed traffic,
/// and a script of failures. Of eight worlds, four are tunnels, one uses host mode, one nodes that
/// are not configured, one TCP segments, and one combines two of these. A third of all worlds have
/// a hostile node, in a fifth paths differ in cost, and a third have rules.
pub fn random_world(seed: u64) -> WorldSpec {
    let mut spec = plain_world(seed);
    let mut rng = Rng::stream(seed, KIND);
    let stranger = match rng.below(8) {
        0..=3 => false,
        4 => host_mode(&mut rng, &mut spec),
        5 => opportunistic(&mut rng, &mut spec),
        6 => segments(&mut rng, &mut spec),
        _ => host_mode(&mut rng, &mut spec) | segments(&mut rng, &mut spec),
    };
    if rng.chance(1.0 / 3.0) {
        hostile(&mut rng, &mut spec, !stranger);
    }
    costs(&mut Rng::stream(seed, COSTS), &mut spec);
    let mut rng = Rng::stream(seed, RULES);
    if rng.chance(1.0 / 3.0) {
        let rules: Vec<Rule> = (0..rng.between(1, 4)).map(|_| rule(&mut rng)).collect();
        change_engines(&mut spec, |engine| engine.rules = rules.clone());
    }
    spec
}

/// Schedulers of peers and rules, the default more often.
const SCHEDULERS: [SchedulerKind; 5] = [
    SchedulerKind::Earliest,
    SchedulerKind::Earliest,
    SchedulerKind::Weighted,
    SchedulerKind::FastestFirst,
    SchedulerKind::RoundRobin,
];

/// A rule with any priority and paths. What it says about order and code points is what the
/// invariants expect without it: packets unaltered, and those of TCP in order.
fn rule(rng: &mut Rng) -> Rule {
    let number = [protocol::TCP, protocol::UDP, protocol::ICMP];
    let protocol = rng.chance(0.7).then(|| rng.pick(&number));
    let interfaces = (0..rng.between(1, 2)).map(|_| format!("eth{}", rng.below(3))).collect();
    // Transfers complete in the end, so they may take any path then.
    let transfers = protocol.is_none_or(|one| one == protocol::TCP);
    let preference = match rng.below(3) {
        0 if !transfers => PathPreference::Only,
        1 => PathPreference::Avoid,
        _ => PathPreference::Prefer,
    };
    Rule {
        protocol,
        length: rng.chance(0.3).then(|| 0..=rng.between(60, 1_000) as u16),
        priority: rng.pick(&[
            None,
            Some(Priority::Throughput),
            Some(Priority::Response),
            Some(Priority::Redundant),
        ]),
        copies: rng.pick(&[Copies::Fixed(2), Copies::Fixed(4), Copies::Adaptive]),
        repair: rng.chance(0.3),
        ordered: rng.chance(0.2).then_some(true),
        paths: rng.chance(0.4).then_some(RulePaths { preference, interfaces }),
        scheduler: rng.chance(0.3).then(|| rng.pick(&SCHEDULERS)),
        ..Rule::default()
    }
}

/// In a fifth of all worlds paths cost something, have upper rates, or are on standby, by a part of
/// the interfaces.
fn costs(rng: &mut Rng, spec: &mut WorldSpec) {
    if !rng.chance(0.2) {
        return;
    }
    for host in 0..2 {
        let own = spec.interfaces.iter().filter(|interface| interface.host == host);
        let names: Vec<String> = own.map(|interface| interface.name.clone()).collect();
        let System::Mpip(engine) = &mut spec.hosts[host].system else { continue };
        for name in names {
            let mut rate = || RateLimit::new(rng.between(64, 50_000) as u32).expect("in range");
            let (up, down) = (rate(), rate());
            if rng.chance(0.3) {
                engine.interfaces.rates_up.insert(name.clone(), up);
            }
            if rng.chance(0.3) {
                engine.interfaces.rates_down.insert(name.clone(), down);
            }
            match rng.below(6) {
                0..=2 => drop(engine.interfaces.costs.insert(name, rng.between(1, 3) as u8)),
                3 => drop(engine.interfaces.standby.insert(name)),
                _ => {}
            }
        }
    }
}

/// A world with a tunnel between two honest hosts.
fn plain_world(seed: u64) -> WorldSpec {
    let mut rng = Rng::stream(seed, MAKING);
    let mut spec = topology(&mut rng, seed);
    spec.duration = rng.between(2 * SECOND, 5 * SECOND);
    let behind_nat = nats(&mut rng, &mut spec);
    clocks(&mut rng, &mut spec);
    engines(&mut rng, &mut spec, behind_nat);
    flows(&mut rng, &mut spec);
    for _ in 0..rng.below(7) {
        let at = rng.between(0, spec.duration);
        incident(&mut rng, &mut spec, at, behind_nat);
    }
    spec
}

fn change_engines(spec: &mut WorldSpec, change: impl Fn(&mut EngineSpec)) {
    *spec = spec.clone().with_engines(change);
}

/// The hosts' ordinary addresses use the paths, and there is no NAT.
fn ordinary(spec: &mut WorldSpec, mode: Mode) {
    for interface in &mut spec.interfaces {
        interface.nat = None;
    }
    spec.script.retain(|(_, action)| !matches!(action, Action::Rebind { .. }));
    change_engines(spec, |engine| engine.mode = mode);
}

/// Makes it a world in host mode. Returns whether its nodes are not configured for each other.
fn host_mode(rng: &mut Rng, spec: &mut WorldSpec) -> bool {
    let policy = rng.pick(&[Policy::Prefer, Policy::Prefer, Policy::Require]);
    ordinary(spec, Mode::Host(policy));
    false
}

fn opportunistic(rng: &mut Rng, spec: &mut WorldSpec) -> bool {
    ordinary(spec, Mode::Opportunistic);
    let shares = rng.chance(0.3);
    change_engines(spec, |engine| engine.shares = shares);
    true
}

/// Adds firewalls that drop UDP, for some time or always, and TCP endpoints.
fn segments(rng: &mut Rng, spec: &mut WorldSpec) -> bool {
    let alone = rng.chance(0.3);
    let policy = if alone { EncapsulationPolicy::Tcp } else { EncapsulationPolicy::Auto };
    change_engines(spec, |engine| engine.encapsulation = policy);
    for interface in 0..spec.interfaces.len() {
        if rng.chance(0.4) {
            let from = if rng.chance(0.5) { 0 } else { rng.below(spec.duration) };
            spec.script.push((from, Action::BlockUdp { interface, blocked: true }));
            if rng.chance(0.5) {
                let until = rng.between(from, spec.duration);
                spec.script.push((until, Action::BlockUdp { interface, blocked: false }));
            }
        }
    }
    false
}

/// Adds a hostile node as another peer of the first host, with links of its own.
fn hostile(rng: &mut Rng, spec: &mut WorldSpec, configured: bool) {
    let host = spec.hosts.len();
    let lies: Vec<Lie> = match rng.below(3) {
        // A single kind of lie, repeated, goes deeper than a mix.
        0 => {
            let one = rng.pick(&Lie::ALL);
            vec![one, one, one, Lie::Packet, Lie::Padding]
        }
        1 => Lie::ALL.into_iter().filter(|_| rng.chance(0.5)).collect(),
        _ => Lie::ALL.to_vec(),
    };
    let hostile = HostileSpec {
        target: 0,
        configured,
        calls: rng.chance(0.8),
        lies,
        pause: rng.pick(&[MILLI, 3 * MILLI, 10 * MILLI]),
        from: rng.below(SECOND),
        until: spec.duration,
        most: 1_500,
        identities: if configured { 1 } else { rng.pick(&[1, 1, 20]) },
    };
    spec.hosts.push(HostSpec {
        name: "mallory".to_owned(),
        clock: HostClock { offset: Duration::from_secs(77), drift: 0 },
        system: System::Hostile(Box::new(hostile)),
    });
    let targets: Vec<usize> =
        (0..spec.interfaces.len()).filter(|index| spec.interfaces[*index].host == 0).collect();
    let translated = targets.iter().any(|index| spec.interfaces[*index].nat.is_some());
    for index in 0..rng.between(1, 2) as usize {
        let addresses = [false, true].map(|v6| outer_address(host, index, 0, v6)).to_vec();
        let own = spec.add_interface(host, addresses);
        for target in &targets {
            let clean = || LinkConfig {
                rate: Some(20_000_000),
                delay: Duration::from_millis(5),
                queue: QueueLimit::Packets(200),
                ..LinkConfig::default()
            };
            let (to, back) = (spec.add_link(clean()), spec.add_link(clean()));
            spec.routes.insert((own, *target), vec![to]);
            spec.routes.insert((*target, own), vec![back]);
        }
    }
    if rng.chance(0.7) {
        change_engines(spec, |engine| {
            engine.limits.send_queue = 256 << 10;
            engine.limits.resequencing = 256 << 10;
            engine.limits.sessions = 64;
            // With TCP and UDP, there are two paths for each pair of addresses.
            if engine.encapsulation == EncapsulationPolicy::Udp {
                engine.limits.paths = 32;
            }
            engine.limits.unknown_nodes = 8;
        });
    }
    // The peer of a host behind a NAT cannot start a handshake.
    if let System::Mpip(engine) = &mut spec.hosts[0].system {
        engine.knows_peer |= translated;
    }
    let number = rng.pick(&[protocol::UDP, protocol::TCP, protocol::ICMP]);
    let traffic = steady(rng, number);
    let (start, stop) = (SECOND / 2, spec.duration.max(SECOND));
    let v6 = rng.chance(0.3);
    spec.add_flow(FlowSpec { from: 0, to: host, start, stop, v6, traffic });
}

fn topology(rng: &mut Rng, seed: u64) -> WorldSpec {
    let counts = [rng.between(1, 4) as usize, rng.between(1, 4) as usize];
    let mut spec = if rng.chance(0.5) {
        let links: Vec<_> = (0..counts[0]).map(|_| (link(rng), link(rng))).collect();
        WorldSpec::disjoint(seed, &links)
    } else {
        let links: Vec<_> = (0..counts[0] + counts[1]).map(|_| (link(rng), link(rng))).collect();
        WorldSpec::switched(seed, counts, &links)
    };
    if rng.chance(0.3) {
        for index in 0..spec.interfaces.len() {
            let host = spec.interfaces[index].host;
            let address = outer_address(host, index, 0, true);
            if rng.chance(0.5) {
                spec.interfaces[index].addresses.push(address);
            }
        }
    }
    spec
}

fn link(rng: &mut Rng) -> LinkConfig {
    let delay = Duration::from_micros(rng.pick(&[0, 200, 2_000, 10_000, 30_000, 80_000]));
    let loss = match rng.below(8) {
        0 => Loss::GilbertElliott {
            good_to_bad: 0.005,
            bad_to_good: 0.2,
            good_loss: 0.0,
            bad_loss: 0.8,
        },
        1..=3 => Loss::Random(rng.uniform() * 0.05),
        _ => Loss::None,
    };
    let sometimes = |rng: &mut Rng, most: f64| {
        if rng.chance(0.2) { rng.uniform() * most } else { 0.0 }
    };
    LinkConfig {
        rate: Some((1_000_000.0 * (1.0 + rng.uniform() * 6.0).powi(2)) as u64),
        queue: match rng.below(3) {
            0 => QueueLimit::Bytes(rng.between(6_000, 200_000) as u32),
            _ => QueueLimit::Packets(rng.between(5, 200) as u32),
        },
        delay,
        jitter: if rng.chance(0.3) { delay.mul_f64(rng.uniform() * 0.7) } else { Duration::ZERO },
        in_order: rng.chance(0.3),
        loss,
        duplicate: sometimes(rng, 0.05),
        corrupt: sometimes(rng, 0.02),
        ..LinkConfig::default()
    }
}

/// Puts NATs in front of interfaces of the first host. Returns whether there are any.
fn nats(rng: &mut Rng, spec: &mut WorldSpec) -> bool {
    if !rng.chance(0.25) {
        return false;
    }
    let own: Vec<usize> =
        (0..spec.interfaces.len()).filter(|index| spec.interfaces[*index].host == 0).collect();
    for index in own {
        // A NAT translates one address family; the other address would bypass it.
        spec.interfaces[index].addresses.truncate(1);
        spec.interfaces[index].nat = Some(NatSpec {
            external: external(index, 0),
            first_port: rng.between(20_000, 60_000) as u16,
            dependent: rng.chance(0.5),
            lifetime: rng.pick(&[30 * SECOND, 120 * SECOND]),
            preserves: index.is_multiple_of(2),
        });
    }
    true
}

fn external(interface: usize, generation: u64) -> IpAddr {
    Ipv4Addr::new(198, 18, 200 + interface as u8, 1 + (generation % 250) as u8).into()
}

fn clocks(rng: &mut Rng, spec: &mut WorldSpec) {
    for host in &mut spec.hosts {
        let drift = match rng.below(4) {
            0 => 0,
            1 => rng.below(1_000_001) as i64 - 500_000,
            2 => USUAL_DRIFT,
            _ => -USUAL_DRIFT,
        };
        let offset = Duration::from_nanos(rng.below(10 * 3_600 * SECOND));
        host.clock = HostClock { offset, drift };
    }
}

fn engines(rng: &mut Rng, spec: &mut WorldSpec, behind_nat: bool) {
    let scheduler = rng.pick(&SCHEDULERS);
    let congestion_control = rng.pick(&[
        CongestionControlKind::Bbr,
        CongestionControlKind::Bbr,
        CongestionControlKind::Cubic,
        CongestionControlKind::Reno,
        CongestionControlKind::Lia,
        CongestionControlKind::Olia,
        CongestionControlKind::Balia,
        CongestionControlKind::None,
    ]);
    let small = rng.chance(0.2);
    let max_paths = if rng.chance(0.2) { Some(rng.between(1, 3) as usize) } else { None };
    let resequencing = rng.chance(0.9);
    let called = rng.chance(0.3);
    *spec = spec.clone().with_engines(|engine| {
        engine.scheduler = scheduler;
        engine.congestion_control = congestion_control;
        engine.max_paths = max_paths;
        engine.resequencing = resequencing;
        if small {
            engine.limits.send_queue = 128 << 10;
            engine.limits.resequencing = 64 << 10;
            engine.limits.sessions = 64;
        }
    });
    if (behind_nat || called)
        && let System::Mpip(engine) = &mut spec.hosts[1].system
    {
        engine.knows_peer = false;
    }
}

fn flows(rng: &mut Rng, spec: &mut WorldSpec) {
    for _ in 0..rng.between(1, 4) {
        let from = rng.below(2) as usize;
        let start = rng.below(spec.duration * 3 / 4);
        let stop = rng.between(start + 50 * MILLI, spec.duration);
        let traffic = match rng.below(6) {
            0..=2 => Traffic::Tcp {
                bytes: if rng.chance(0.7) { Some(rng.between(1, 1_500_000)) } else { None },
                window: rng.pick(&[16 << 10, 64 << 10, 256 << 10]),
            },
            3 => steady(rng, protocol::UDP),
            4 => {
                let number = rng.pick(&[protocol::ICMP, protocol::ESP]);
                steady(rng, number)
            }
            _ => steady(rng, protocol::TCP),
        };
        let v6 = rng.chance(0.3);
        spec.add_flow(FlowSpec { from, to: 1 - from, start, stop, v6, traffic });
    }
}

fn steady(rng: &mut Rng, number: u8) -> Traffic {
    let smallest = rng.between(40, 1_300) as usize;
    let segments = if rng.chance(0.3) { rng.between(2, 40) as usize } else { 1 };
    Traffic::Packets {
        protocol: number,
        size: (smallest, rng.between(smallest as u64, 1_400) as usize),
        interval: rng.between(MILLI / 2, 20 * MILLI) * segments as u64,
        ecn: rng.below(3) as u8,
        segments,
    }
}

/// Adds a failure at `at`, and its end if it has one.
fn incident(rng: &mut Rng, spec: &mut WorldSpec, at: Nanos, behind_nat: bool) {
    let link = rng.below(spec.links.len() as u64) as usize;
    let after = at + rng.between(10 * MILLI, 2 * SECOND);
    let mut change = |at, change| spec.script.push((at, Action::Link { link, change }));
    match rng.below(12) {
        0 | 1 => {
            change(at, Change { up: Some(false), ..Change::default() });
            change(after, Change { up: Some(true), ..Change::default() });
        }
        2 | 3 => {
            change(at, Change { blackhole: Some(true), ..Change::default() });
            change(after, Change { blackhole: Some(false), ..Change::default() });
        }
        4 => {
            let delay = Duration::from_micros(rng.below(150_000));
            change(at, Change { delay: Some(delay), ..Change::default() });
        }
        5 => {
            let rate = rng.between(500_000, 40_000_000);
            change(at, Change { rate: Some(Some(rate)), ..Change::default() });
        }
        6 => {
            let loss = Loss::Random(rng.uniform() * 0.3);
            change(at, Change { loss: Some(loss), ..Change::default() });
            change(after, Change { loss: Some(Loss::None), ..Change::default() });
        }
        7 | 8 => moving(rng, spec, (at, after), behind_nat),
        9 => {
            let host = rng.below(2) as usize;
            let end = at + rng.between(MILLI, 50 * MILLI);
            spec.script.push((at, Action::SocketsFull { host, full: true }));
            spec.script.push((end, Action::SocketsFull { host, full: false }));
        }
        10 => {
            let count = rng.between(1, 100) as usize;
            let spoofed = rng.chance(0.5).then(|| {
                let ip = Ipv4Addr::new(198, 18, 255, rng.below(4) as u8 + 1);
                SocketAddr::new(ip.into(), rng.between(1_000, 60_000) as u16)
            });
            let corrupt = rng.chance(0.3);
            spec.script.push((at, Action::Replay { count, spoofed, corrupt }));
        }
        _ => {
            let host = rng.below(2) as usize;
            let action = if rng.chance(0.5) {
                Action::Garbage { host, count: rng.between(1, 50) as usize }
            } else {
                Action::Restart { host }
            };
            spec.script.push((at, action));
        }
    }
}

/// An interface loses its address and gets one later, or its NAT loses its mappings.
fn moving(rng: &mut Rng, spec: &mut WorldSpec, (at, after): (Nanos, Nanos), behind_nat: bool) {
    let interface = rng.below(spec.interfaces.len() as u64) as usize;
    let host = spec.interfaces[interface].host;
    if spec.interfaces[interface].nat.is_some() {
        let external = rng.chance(0.5).then(|| external(interface, rng.between(1, 200)));
        spec.script.push((at, Action::Rebind { interface, external }));
        return;
    }
    let Some(&address) = spec.interfaces[interface].addresses.first() else { return };
    // The first interface of each host keeps its address, so that two hosts that have both moved
    // find each other again. A peer of a host behind a NAT cannot open paths to it.
    let first = spec.interface(host, 0) == interface;
    let again = if first || behind_nat || rng.chance(0.3) {
        address
    } else {
        outer_address(host, interface, rng.between(1, 200) as usize, address.is_ipv6())
    };
    let moves = spec.script.iter().filter(|(_, action)| {
        matches!(action, Action::RemoveAddress { interface: other, .. } if *other == interface)
    });
    if moves.count() > 0 {
        return;
    }
    spec.script.push((at, Action::RemoveAddress { interface, address }));
    spec.script.push((after, Action::AddAddress { interface, address: again }));
}

#[cfg(test)]
mod tests;
