//! Links by the kernel's own means (`--links netem`), a links process (see
//! [`links`](crate::links)): `tbf` for rates and queues, `netem` for delay, jitter, loss,
//! duplication and corruption, and bridges for nodes. It runs the same scenarios as the emulator.
//!
//! ```text
//!  host        network namespace                                              host
//!  port0 ── p0 [n0] l0a ── l0b [l0] l0c ── l0d [n1] p1 ── port1
//!                   │            │  │            │           [ ] bridges, ── veth pairs
//!         forward: tbf           │ netem         │
//!         reverse:             netem            tbf
//! ```
//!
//! Two devices in a row give the order of the link model: first queue and rate, then loss and
//! delay. (A single netem with both a rate and jitter does not reorder.) Differences from the
//! emulator: random choices do not repeat, lateness is unknown, and there are no traces and no
//! limits for pairs.
//!
//! Where no link ever treats a packet and each joins two interfaces, the interfaces are the two
//! ends of a veth pair, so that the processors' time goes to the hosts alone. Such links are not
//! counted.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use mpip_link::{Discipline, LinkConfig, Loss, QueueLimit};

use crate::links::{DirectionRecord, Record, SAMPLE, Setup, device_name};
use crate::scenario::Scenario;
use crate::{clock, command, scenarios};

/// Length of an Ethernet header in bytes, which the kernel counts.
const ETHERNET: u32 = 14;
/// Most packets in netem. A link of 1 Gbit/s holds 83 for each millisecond of delay.
const ON_THE_WAY: u32 = 200_000;

/// A program and its arguments.
type Line = Vec<String>;

fn words(text: &str) -> Line {
    text.split_whitespace().map(str::to_owned).collect()
}

fn percent(probability: f64) -> String {
    format!("{}%", probability * 100.0)
}

fn micros(time: Duration) -> String {
    format!("{}us", time.as_nanos() as f64 / 1e3)
}

/// The devices of one direction: the one with the queue, and the one with the delay.
fn devices(link: usize, forward: bool) -> [String; 2] {
    let [queue, delay] = if forward { ["a", "c"] } else { ["d", "b"] };
    [format!("l{link}{queue}"), format!("l{link}{delay}")]
}

/// Whether the kernel's netem is needed for these settings.
fn needs_netem(config: &LinkConfig) -> bool {
    !config.delay.is_zero()
        || !config.jitter.is_zero()
        || config.loss != Loss::None
        || config.duplicate > 0.0
        || config.corrupt > 0.0
        || config.blackhole
}

/// The first setting that netem and tbf cannot express.
fn check(config: &LinkConfig) -> Result<(), &'static str> {
    if config.trace.is_some() {
        return Err("a trace needs the emulator");
    }
    if config.overhead < ETHERNET {
        return Err("an overhead below 14 bytes needs the emulator");
    }
    Ok(())
}

/// Commands that set queue and rate of a device; none without a rate.
fn queue(device: &str, config: &LinkConfig) -> Vec<Line> {
    let Some(rate) = config.rate else { return Vec::new() };
    // At least two full packets, and what passes between two ticks of a coarse timer.
    let burst = (rate / 8 / 4_000).max(2 * u64::from(config.mtu + config.overhead));
    let overhead = match config.overhead - ETHERNET {
        0 => String::new(),
        more => format!("overhead {more}"),
    };
    let waiting = match config.queue {
        QueueLimit::Packets(packets) => {
            u64::from(packets) * u64::from(config.mtu + config.overhead)
        }
        QueueLimit::Bytes(bytes) => u64::from(bytes),
    };
    let limit = waiting + burst;
    let shaper = format!(
        "tc qdisc replace dev {device} root handle 1: tbf rate {rate}bit burst {burst} limit {limit} \
         {overhead}"
    );
    let packets = waiting.div_ceil(u64::from(config.mtu + config.overhead));
    let child = match (config.discipline, config.queue) {
        (Discipline::Codel(codel), _) => format!(
            "codel limit {packets} target {} interval {}",
            micros(codel.target),
            micros(codel.interval)
        ),
        (Discipline::TailDrop, QueueLimit::Packets(packets)) => format!("pfifo limit {packets}"),
        (Discipline::TailDrop, QueueLimit::Bytes(bytes)) => format!("bfifo limit {bytes}"),
    };
    let child = format!("tc qdisc replace dev {device} parent 1:1 handle 10: {child}");
    vec![words(&shaper), words(&child)]
}

/// The command that sets delay, jitter, loss, duplication and corruption of a device. It names all
/// of them, because netem keeps a setting that a change does not name.
fn netem(device: &str, config: &LinkConfig) -> Line {
    let delay = if config.jitter.is_zero() {
        format!("delay {}", micros(config.delay))
    } else {
        let (delay, jitter) = (micros(config.delay), micros(config.jitter));
        format!("delay {delay} {jitter} distribution normal")
    };
    let loss = if config.blackhole {
        "loss random 100%".to_owned()
    } else {
        match config.loss {
            Loss::None => "loss random 0%".to_owned(),
            Loss::Random(share) => format!("loss random {}", percent(share)),
            Loss::GilbertElliott { good_to_bad, bad_to_good, good_loss, bad_loss } => format!(
                "loss gemodel {} {} {} {}",
                percent(good_to_bad),
                percent(bad_to_good),
                percent(bad_loss),
                percent(good_loss)
            ),
        }
    };
    // With a rate, however high, netem keeps the order.
    let order = if config.in_order { "rate 1000gbit" } else { "" };
    words(&format!(
        "tc qdisc replace dev {device} root handle 2: netem limit {ON_THE_WAY} {delay} {loss} \
         duplicate {} corrupt {} {order}",
        percent(config.duplicate),
        percent(config.corrupt)
    ))
}

/// Every setting that a direction of a link ever has, by the schedule.
fn ever(scenario: &Scenario, link: usize, forward: bool) -> Vec<LinkConfig> {
    let at = scenario.events.iter().filter(|event| event.link == link).map(|event| event.at);
    core::iter::once(Duration::ZERO)
        .chain(at)
        .map(|at| {
            let (there, back) = scenario.links_at(at).swap_remove(link);
            if forward { there } else { back }
        })
        .chain([scenario.links[link].direction(forward).clone()])
        .collect()
}

fn needs_netem_ever(scenario: &Scenario, link: usize, forward: bool) -> bool {
    ever(scenario, link, forward).iter().any(needs_netem)
}

/// Whether any link ever queues, delays or changes packets.
fn shapes(scenario: &Scenario) -> bool {
    (0..scenario.links.len()).flat_map(|link| [(link, true), (link, false)]).any(
        |(link, forward)| {
            needs_netem_ever(scenario, link, forward)
                || ever(scenario, link, forward).iter().any(|config| config.rate.is_some())
        },
    )
}

/// The ports that each link joins, if links do nothing else: none ever treats packets, and each
/// interface has one.
fn joined(scenario: &Scenario) -> Option<Vec<[usize; 2]>> {
    if shapes(scenario) || !scenario.events.is_empty() {
        return None;
    }
    let mut pairs = Vec::new();
    for link in &scenario.links {
        let port = |end: &String| {
            scenario
                .interfaces
                .iter()
                .position(|i| i.full_name() == *end && i.mtu == link.forward.mtu)
        };
        let [a, b] = link.ends.each_ref().map(port);
        pairs.push([a?, b?]);
    }
    let mut ports = pairs.concat();
    ports.sort_unstable();
    ports.into_iter().eq(0..scenario.interfaces.len()).then_some(pairs)
}

/// The commands that give one direction of a link its settings.
fn settings(scenario: &Scenario, link: usize, forward: bool, config: &LinkConfig) -> Vec<Line> {
    let [first, second] = devices(link, forward);
    let mut lines = queue(&first, config);
    if config.rate.is_none() && ever(scenario, link, forward).iter().any(|c| c.rate.is_some()) {
        // Until there is a rate.
        lines.push(words(&format!("tc qdisc replace dev {first} root handle 3: pfifo limit 1000")));
    }
    if needs_netem_ever(scenario, link, forward) {
        lines.push(netem(&second, config));
    }
    lines
}

/// The bridges of the nodes, by end.
fn bridges(scenario: &Scenario) -> BTreeMap<String, String> {
    let mut bridges = BTreeMap::new();
    for (port, interface) in scenario.interfaces.iter().enumerate() {
        bridges.insert(interface.full_name(), format!("n{port}"));
    }
    for end in scenario.links.iter().flat_map(|link| &link.ends) {
        let number = bridges.len();
        bridges.entry(end.clone()).or_insert_with(|| format!("s{number}"));
    }
    bridges
}

/// What the kernel cannot do of a scenario.
fn refusal(scenario: &Scenario) -> Result<(), String> {
    let names = bridges(scenario);
    let mut group: BTreeMap<&str, usize> =
        names.keys().enumerate().map(|(number, end)| (end.as_str(), number)).collect();
    for (index, link) in scenario.links.iter().enumerate() {
        let of_link = |reason: &str| format!("link {:?}: {reason}", link.name);
        if link.is_pair {
            return Err(of_link("a limit for a pair of interfaces needs the emulator"));
        }
        for forward in [true, false] {
            for config in ever(scenario, index, forward) {
                check(&config).map_err(of_link)?;
            }
        }
        let [a, b] = link.ends.each_ref().map(|end| group[end.as_str()]);
        if a == b {
            return Err(of_link("bridges with a ring of links need the emulator"));
        }
        group.values_mut().filter(|number| **number == b).for_each(|number| *number = a);
    }
    Ok(())
}

/// The commands that make the links of a scenario, before hosts take their ends.
///
/// # Errors
/// What needs the emulator, with the link.
fn build(scenario: &Scenario) -> Result<Vec<Line>, String> {
    refusal(scenario)?;
    let mut lines = Vec::new();
    let mut line = |text: String| lines.push(words(&text));
    if let Some(pairs) = joined(scenario) {
        for (link, ports) in scenario.links.iter().zip(pairs) {
            let ([a, b], mtu) = (ports.map(device_name), link.forward.mtu);
            line(format!("ip link add {a} mtu {mtu} type veth peer name {b} mtu {mtu}"));
        }
        return Ok(lines);
    }
    let bridges = bridges(scenario);
    let shapes = shapes(scenario);
    for bridge in bridges.values() {
        line(format!("ip link add {bridge} up type bridge mcast_snooping 0"));
    }
    for (port, interface) in scenario.interfaces.iter().enumerate() {
        let (device, mtu) = (device_name(port), interface.mtu);
        line(format!("ip link add p{port} up mtu {mtu} type veth peer name {device} mtu {mtu}"));
        // Hosts cut super-packets before they leave: queues and losses are those of packets.
        if shapes {
            line(format!("ip link set {device} gso_max_segs 1"));
        }
        line(format!("ip link set p{port} master {}", bridges[&interface.full_name()]));
    }
    for (index, link) in scenario.links.iter().enumerate() {
        let (l, mtu) = (format!("l{index}"), link.forward.mtu);
        line(format!("ip link add {l} up type bridge mcast_snooping 0"));
        for (one, other) in [("a", "b"), ("c", "d")] {
            line(format!(
                "ip link add {l}{one} up mtu {mtu} type veth peer name {l}{other} mtu {mtu}"
            ));
            line(format!("ip link set {l}{other} up"));
        }
        line(format!("ip link set {l}a master {}", bridges[&link.ends[0]]));
        line(format!("ip link set {l}b master {l}"));
        line(format!("ip link set {l}c master {l}"));
        line(format!("ip link set {l}d master {}", bridges[&link.ends[1]]));
    }
    for (index, link) in scenario.links.iter().enumerate() {
        for forward in [true, false] {
            lines.extend(settings(scenario, index, forward, link.direction(forward)));
        }
    }
    Ok(lines)
}

/// The commands of an event of the schedule.
fn change(scenario: &Scenario, number: usize) -> Vec<Line> {
    let event = &scenario.events[number];
    let mut configs: Vec<(LinkConfig, LinkConfig)> =
        scenario.links.iter().map(|link| (link.forward.clone(), link.reverse.clone())).collect();
    for event in &scenario.events[..=number] {
        let (forward, reverse) = &mut configs[event.link];
        if event.forward {
            event.change.apply(forward);
        }
        if event.reverse {
            event.change.apply(reverse);
        }
    }
    let (forward, reverse) = &configs[event.link];
    let mut lines = Vec::new();
    for (direction, selected, config) in
        [(true, event.forward, forward), (false, event.reverse, reverse)]
    {
        if !selected {
            continue;
        }
        lines.extend(settings(scenario, event.link, direction, config));
        let devices = devices(event.link, direction);
        if event.change.mtu.is_some() {
            let [queue, delay] = &devices;
            let mtu = config.mtu;
            lines.push(words(&format!("ip link set {queue} mtu {mtu}")));
            lines.push(words(&format!("ip link set {delay} mtu {mtu}")));
        }
        if let Some(up) = event.change.up {
            // The queue's device takes no more, the other one loses what is on the way.
            let state = if up { "up" } else { "down" };
            for device in devices {
                lines.push(words(&format!("ip link set {device} {state}")));
            }
        }
    }
    lines
}

/// Whether the kernel has a queueing discipline, tried on a device of the namespace.
fn has(kind: &str) -> bool {
    let try_it = format!("tc qdisc add dev lo root handle 99: {kind}");
    let there = command::run(&words(&try_it)).is_ok();
    if there {
        let _ = command::run(&words("tc qdisc del dev lo root"));
    }
    there
}

/// An error where the kernel lacks what the scenario needs.
fn require(scenario: &Scenario) -> Result<(), String> {
    for (index, link) in scenario.links.iter().enumerate() {
        let needed = [true, false].into_iter().any(|way| needs_netem_ever(scenario, index, way));
        if needed && !has("netem delay 1ms") {
            return Err(format!(
                "this kernel has no netem (sch_netem), which link {:?} needs for its delay, loss or \
                 schedule; --links emulator works without",
                link.name
            ));
        }
    }
    Ok(())
}

fn run_lines(lines: &[Line]) -> io::Result<()> {
    lines.iter().try_for_each(|line| command::run(line).map(drop))
}

/// The process that makes the links, follows the schedule and counts; it takes and prints what the
/// emulator's does.
///
/// # Errors
/// A setup that is none. What the kernel cannot do is the answer in place of `ready`.
pub(crate) fn main() -> io::Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let setup: Setup = serde_json::from_str(&line)?;
    let scenario = scenarios::parse(&setup.file, &setup.text)?;
    switch_off_bridge_hooks()?;
    let made = build(&scenario)
        .and_then(|lines| require(&scenario).map(|()| lines))
        .and_then(|lines| run_lines(&lines).map_err(|error| error.to_string()));
    if let Err(reason) = made {
        println!("{reason}");
        return Ok(());
    }
    println!("ready");
    io::stdout().flush()?;
    let (sender, commands) = mpsc::channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    match commands.recv() {
        Ok(command) if command == "start" => {}
        _ => return Ok(()),
    }
    let record = follow(&scenario, &commands)?;
    println!("{}", serde_json::to_string(&record)?);
    Ok(())
}

/// Keeps bridges from handing every packet to the firewall's hooks, which an unrelated program on
/// the machine may have switched on.
fn switch_off_bridge_hooks() -> io::Result<()> {
    let directory = Path::new("/proc/sys/net/bridge");
    for name in ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables"] {
        match std::fs::write(directory.join(name), "0") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Follows the schedule and takes samples until it is told to stop.
fn follow(scenario: &Scenario, commands: &mpsc::Receiver<String>) -> io::Result<Record> {
    let start = clock::now();
    let mut events = (0..scenario.events.len()).peekable();
    let mut record = Record { sample_ms: SAMPLE.as_secs_f64() * 1e3, ..Record::default() };
    let mut before = Vec::new();
    let counted = if joined(scenario).is_some() { &[][..] } else { &scenario.links[..] };
    for (index, link) in counted.iter().enumerate() {
        for forward in [true, false] {
            let link = link.name.clone();
            record.directions.push(DirectionRecord { link, forward, ..Default::default() });
            before.push(delivered(index, forward));
        }
    }
    let mut next_sample = start + SAMPLE;
    loop {
        let event = events.peek().map(|number| start + scenario.events[*number].at);
        let wake = event.map_or(next_sample, |at| at.min(next_sample));
        match commands.recv_timeout(wake.saturating_sub(clock::now())) {
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Ok(command) => match command.strip_prefix("event ").map(str::parse) {
                Some(Ok(number)) if number < scenario.events.len() => {
                    run_lines(&change(scenario, number))?;
                }
                _ => break,
            },
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
        while let Some(number) = events.next_if(|n| start + scenario.events[*n].at <= clock::now())
        {
            if !scenario.events[number].follows_interfaces() {
                run_lines(&change(scenario, number))?;
            }
        }
        while next_sample <= clock::now() {
            for (position, direction) in record.directions.iter_mut().enumerate() {
                let now = delivered(position / 2, position % 2 == 0);
                let bytes = now.1.saturating_sub(before[position].1);
                direction.delivered.push(bytes);
                direction.counters.delivered_bytes += bytes;
                direction.counters.delivered_packets += now.0.saturating_sub(before[position].0);
                before[position] = now;
            }
            next_sample += SAMPLE;
        }
    }
    for (position, direction) in record.directions.iter_mut().enumerate() {
        let [queue, delay] = devices(position / 2, position % 2 == 0);
        direction.counters.dropped_queue = drops(&queue);
        direction.counters.dropped_loss = drops(&delay);
        record.frames += direction.counters.delivered_packets;
    }
    Ok(record)
}

/// IP packets and bytes that left a direction so far.
fn delivered(link: usize, forward: bool) -> (u64, u64) {
    let [_, device] = devices(link, forward);
    let count = |what: &str| -> u64 {
        let file = format!("/sys/class/net/{device}/statistics/tx_{what}");
        std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    let packets = count("packets");
    (packets, count("bytes").saturating_sub(packets * u64::from(ETHERNET)))
}

/// Packets that the root of a device's queueing disciplines dropped.
fn drops(device: &str) -> u64 {
    let text =
        command::run(&words(&format!("tc -s -j qdisc show dev {device}"))).unwrap_or_default();
    let list: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap_or_default();
    let root = list.iter().find(|qdisc| qdisc["root"].as_bool() == Some(true));
    root.and_then(|qdisc| qdisc["drops"].as_u64()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
