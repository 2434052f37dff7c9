//! The link emulator, a links process (see [`links`](crate::links)). It owns the far end of every
//! host interface (TAP devices, moved into the hosts' namespaces), and passes frames between them
//! through [`mpip_link`] links.
//!
//! Lateness does not add up, because each link computes with the time at which a packet was due. It
//! is recorded: a packet that leaves more than [`LATE`] after it was due counts as late, and a run
//! with many late packets does not count.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use mpip_core::packet::Header;
use mpip_link::{Counters, Link, flip_bit};
use rustix::event::epoll;
use tappers::{Interface, Tap};

use crate::clock;
use crate::links::{
    DirectionRecord, LATE, Record, SAMPLE, Setup, device_name, hardware_address, sample_ms,
};
use crate::pcap::PcapWriter;
use crate::scenario::{Hop, Scenario, Traffic};
use crate::scenarios;
use crate::traffic::ports;

/// Departures that are due within this time of each other leave together. That saves wake-ups, and
/// delays packets by at most this much.
const COALESCE: Duration = Duration::from_micros(40);
/// Length of an Ethernet header, in bytes.
const ETHERNET: usize = 14;
/// Most frames read from one device before the others get their turn.
const READ_BATCH: usize = 64;
/// Longest frame, in bytes: the largest MTU of a link, and a VLAN tag.
const FRAME_BYTES: usize = 9216 + ETHERNET + 4;

#[derive(Clone)]
struct Frame {
    bytes: Vec<u8>,
    route: usize,
    hop: usize,
}

struct Route {
    to: usize,
    hops: Vec<usize>,
}

struct Direction {
    link: Link<Frame>,
    index: usize,
    forward: bool,
    at_start: Counters,
    last: Counters,
    record: DirectionRecord,
    /// Number of packets delivered, by length.
    lengths: Vec<u32>,
    pcap: Option<PcapWriter>,
}

/// Counts of durations in bins that end at powers of two of a microsecond.
#[derive(Default)]
struct Histogram {
    buckets: [u64; 32],
    largest: u64,
}

impl Histogram {
    fn add(&mut self, value: Duration) {
        let us = value.as_micros() as u64;
        self.buckets[(64 - us.leading_zeros()).min(31) as usize] += 1;
        self.largest = self.largest.max(us);
    }

    fn upper_bound(&self, share: f64) -> u64 {
        let total: u64 = self.buckets.iter().sum();
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen as f64 >= share * total as f64 {
                return (1u64 << index).min(self.largest);
            }
        }
        self.largest
    }
}

/// Recognises frames of the measured traffic that have no tunnel around them.
struct MeasuredTraffic {
    /// Whether an interface is one of the host at which the traffic begins.
    begins: Vec<bool>,
    /// Its ports of TCP or UDP.
    ports: Vec<u16>,
}

impl MeasuredTraffic {
    fn new(scenario: &Scenario) -> Self {
        let own = |(traffic, port)| -> Option<(&str, u16)> {
            let traffic: &Traffic = traffic;
            traffic.plain.is_none().then_some((traffic.from.as_str(), port))
        };
        let own = scenario.traffic.iter().zip(ports(scenario.traffic.len())).filter_map(own);
        let (hosts, ports): (Vec<&str>, Vec<u16>) = own.unzip();
        let interfaces = scenario.interfaces.iter();
        Self { begins: interfaces.map(|it| hosts.contains(&it.host.as_str())).collect(), ports }
    }

    /// Whether a frame from the interface `from` to `to` is one of these.
    fn is_bare(&self, from: usize, to: usize, frame: &[u8]) -> bool {
        let begins = |interface: usize| self.begins.get(interface) == Some(&true);
        if !begins(from) && !begins(to) {
            return false;
        }
        let ports = Header::parse(&frame[ETHERNET..]).ok().and_then(|header| header.ports);
        ports.is_some_and(|(source, destination)| {
            self.ports.contains(&source) || self.ports.contains(&destination)
        })
    }
}

struct Emulator {
    scenario: Scenario,
    taps: Vec<Tap>,
    directions: Vec<Direction>,
    routes: Vec<Route>,
    /// Route by sending and receiving port.
    route_of: HashMap<(usize, usize), usize>,
    measured: MeasuredTraffic,
    spare: Vec<Vec<u8>>,
    started: Option<Duration>,
    next_event: usize,
    next_sample: Duration,
    lateness: Histogram,
    record: Record,
}

impl Emulator {
    fn new(setup: &Setup, now: Duration) -> io::Result<Self> {
        let scenario = scenarios::parse(&setup.file, &setup.text)?;
        let taps = (0..scenario.interfaces.len()).map(open_tap).collect::<io::Result<Vec<_>>>()?;
        let mut directions = Vec::new();
        for (index, spec) in scenario.links.iter().enumerate() {
            for forward in [true, false] {
                let seed = scenario.link_seed(index, forward, setup.repetition);
                let pcap = match &setup.pcap {
                    Some(directory) => {
                        let arrow = if forward { "forward" } else { "reverse" };
                        let name = format!("{directory}/{}.{arrow}.pcapng", spec.name);
                        Some(PcapWriter::create(&name)?)
                    }
                    None => None,
                };
                directions.push(Direction {
                    link: Link::new(spec.direction(forward).clone(), seed),
                    index,
                    forward,
                    at_start: Counters::default(),
                    last: Counters::default(),
                    record: DirectionRecord {
                        link: spec.name.clone(),
                        forward,
                        ..DirectionRecord::default()
                    },
                    lengths: vec![0; FRAME_BYTES],
                    pcap,
                });
            }
        }
        let mut routes = Vec::new();
        let mut route_of = HashMap::new();
        for from in 0..taps.len() {
            for to in (0..taps.len()).filter(|to| *to != from) {
                // A frame ends at a router, which is a host.
                let path = scenario.path(from, to).filter(|path| path.next == to);
                if let Some(path) = path {
                    route_of.insert((from, to), routes.len());
                    let hops = path.hops.iter().map(direction_of).collect();
                    routes.push(Route { to, hops });
                }
            }
        }
        Ok(Self {
            measured: MeasuredTraffic::new(&scenario),
            scenario,
            taps,
            directions,
            routes,
            route_of,
            spare: Vec::new(),
            started: None,
            next_event: 0,
            next_sample: now,
            lateness: Histogram::default(),
            record: Record::default(),
        })
    }

    fn start(&mut self, now: Duration) {
        self.started = Some(now);
        self.next_sample = now + SAMPLE;
        self.record = Record { sample_ms: sample_ms(), ..Record::default() };
        self.lateness = Histogram::default();
        for direction in &mut self.directions {
            direction.at_start = *direction.link.counters();
            direction.last = direction.at_start;
            direction.lengths.fill(0);
        }
    }

    /// Applies the events that are due, and takes the samples that are due.
    fn on_time(&mut self, now: Duration) {
        let Some(started) = self.started else { return };
        while let Some(event) = self.scenario.events.get(self.next_event) {
            if started + event.at > now {
                break;
            }
            if !event.follows_interfaces() {
                self.apply(self.next_event, now);
            }
            self.next_event += 1;
        }
        while self.next_sample <= now {
            for direction in &mut self.directions {
                let counters = *direction.link.counters();
                let record = &mut direction.record;
                record.delivered.push(counters.delivered_bytes - direction.last.delivered_bytes);
                record.queued.push(direction.link.queued_bytes());
                record.dropped.push(counters.dropped() - direction.last.dropped());
                direction.last = counters;
            }
            self.next_sample += SAMPLE;
        }
    }

    /// Applies an event of the schedule.
    fn apply(&mut self, number: usize, now: Duration) {
        let Some(event) = self.scenario.events.get(number) else { return };
        for direction in &mut self.directions {
            let selected = if direction.forward { event.forward } else { event.reverse };
            if direction.index == event.link && selected {
                direction.link.apply(now, &event.change);
            }
        }
    }

    /// Reads frames that a host sent. Returns whether there may be more.
    fn receive(&mut self, port: usize) -> io::Result<bool> {
        for _ in 0..READ_BATCH {
            let mut buffer = self.spare.pop().unwrap_or_default();
            buffer.resize(FRAME_BYTES, 0);
            match self.taps[port].recv(&mut buffer) {
                Ok(length) => buffer.truncate(length),
                Err(error) => {
                    self.spare.push(buffer);
                    return match error.kind() {
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
                        // The interface is down.
                        _ if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                            Ok(false)
                        }
                        _ => Err(error),
                    };
                }
            }
            self.switch(port, buffer, clock::now());
        }
        Ok(true)
    }

    /// Sends a frame to the port that has its destination address, or to all ports.
    fn switch(&mut self, port: usize, bytes: Vec<u8>, now: Duration) {
        if bytes.len() < ETHERNET {
            return;
        }
        if bytes[0] & 1 == 0 {
            let to = (0..self.taps.len()).find(|to| hardware_address(*to) == bytes[..6]);
            let route = to.and_then(|to| self.route_of.get(&(port, to)).copied());
            if let (Some(route), Some(to)) = (route, to) {
                self.record.bare += u64::from(self.measured.is_bare(port, to, &bytes));
                self.forward(Frame { bytes, route, hop: 0 }, now);
            }
            return;
        }
        for to in 0..self.taps.len() {
            if let Some(route) = self.route_of.get(&(port, to)).copied() {
                self.forward(Frame { bytes: bytes.clone(), route, hop: 0 }, now);
            }
        }
    }

    /// Puts a frame into the next link of its route, or delivers it at the end.
    fn forward(&mut self, frame: Frame, at: Duration) {
        let route = &self.routes[frame.route];
        let Some(direction) = route.hops.get(frame.hop).copied() else {
            let lateness = clock::now().saturating_sub(at);
            self.deliver(frame, lateness);
            return;
        };
        let length = frame.bytes.len() - ETHERNET;
        // The link counts a packet that it drops.
        let _ = self.directions[direction].link.enqueue(at, length, frame);
    }

    fn deliver(&mut self, frame: Frame, lateness: Duration) {
        let port = self.routes[frame.route].to;
        self.record.frames += 1;
        self.lateness.add(lateness);
        if lateness > LATE {
            self.record.late += 1;
        }
        if self.taps[port].send(&frame.bytes).is_err() {
            self.record.refused += 1;
        }
        if self.spare.len() < 4096 {
            self.spare.push(frame.bytes);
        }
    }

    /// Moves all packets that are due to their next link or port.
    fn depart(&mut self) {
        let mut moved = true;
        while moved {
            moved = false;
            let now = clock::now();
            for index in 0..self.directions.len() {
                let direction = &mut self.directions[index];
                let Some(delivery) = direction.link.poll(now) else { continue };
                moved = true;
                direction.lengths[delivery.len] += 1;
                let mut frame = delivery.packet;
                if let Some(word) = delivery.corrupt {
                    flip_bit(&mut frame.bytes[ETHERNET..], word);
                }
                if let Some(pcap) = &mut direction.pcap {
                    pcap.write(delivery.at, &frame.bytes);
                }
                frame.hop += 1;
                self.forward(frame, delivery.at);
            }
        }
    }

    fn next_wake(&self) -> Option<Duration> {
        let departure = self.directions.iter().filter_map(|d| d.link.poll_at()).min();
        let event = self.started.and_then(|started| {
            let event = self.scenario.events.get(self.next_event)?;
            Some((started + event.at).min(self.next_sample))
        });
        let sample = self.started.map(|_| self.next_sample);
        [departure, event, sample].into_iter().flatten().min()
    }

    fn finish(mut self) -> Record {
        self.record.lateness_us = [
            self.lateness.upper_bound(0.5),
            self.lateness.upper_bound(0.99),
            self.lateness.largest,
        ];
        for direction in self.directions {
            let mut record = direction.record;
            record.counters = difference(direction.link.counters(), &direction.at_start);
            let common = (1..FRAME_BYTES).max_by_key(|length| direction.lengths[*length]);
            record.common_length =
                common.filter(|length| direction.lengths[*length] > 0).unwrap_or_default();
            self.record.directions.push(record);
        }
        self.record
    }
}

fn direction_of(hop: &Hop) -> usize {
    hop.link * 2 + usize::from(!hop.forward)
}

/// The number in `event NUMBER`.
fn event_of(command: &[u8]) -> Option<usize> {
    core::str::from_utf8(command).ok()?.trim().strip_prefix("event ")?.parse().ok()
}

fn open_tap(port: usize) -> io::Result<Tap> {
    let mut tap = Tap::new_named(Interface::new(device_name(port))?)?;
    tap.set_nonblocking(true)?;
    Ok(tap)
}

fn difference(now: &Counters, before: &Counters) -> Counters {
    Counters {
        offered_packets: now.offered_packets - before.offered_packets,
        offered_bytes: now.offered_bytes - before.offered_bytes,
        delivered_packets: now.delivered_packets - before.delivered_packets,
        delivered_bytes: now.delivered_bytes - before.delivered_bytes,
        duplicated: now.duplicated - before.duplicated,
        corrupted: now.corrupted - before.corrupted,
        reordered: now.reordered - before.reordered,
        dropped_queue: now.dropped_queue - before.dropped_queue,
        dropped_codel: now.dropped_codel - before.dropped_codel,
        dropped_loss: now.dropped_loss - before.dropped_loss,
        dropped_down: now.dropped_down - before.dropped_down,
        dropped_blackhole: now.dropped_blackhole - before.dropped_blackhole,
        dropped_too_big: now.dropped_too_big - before.dropped_too_big,
        max_queued_bytes: now.max_queued_bytes,
        max_queued_packets: now.max_queued_packets,
    }
}

/// The emulator process.
///
/// # Errors
/// The setup cannot be parsed, or the devices cannot be made.
pub(crate) fn main() -> io::Result<()> {
    clock::sharpen_timers();
    let mut input = io::stdin().lock();
    let mut line = String::new();
    input.read_line(&mut line)?;
    let setup: Setup = serde_json::from_str(&line)?;
    drop(input);
    let mut emulator = Emulator::new(&setup, clock::now())?;
    println!("ready");
    io::stdout().flush()?;

    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (port, tap) in emulator.taps.iter().enumerate() {
        let data = epoll::EventData::new_u64(port as u64);
        epoll::add(&poll, tap.as_fd(), data, epoll::EventFlags::IN)?;
    }
    let control = emulator.taps.len() as u64;
    // Unbuffered: the buffer of `io::stdin` would hide lines from epoll.
    let mut stdin = File::open("/dev/stdin")?;
    epoll::add(&poll, &stdin, epoll::EventData::new_u64(control), epoll::EventFlags::IN)?;

    let mut events = Vec::with_capacity(64);
    let mut commands = Vec::new();
    let mut last_departures = Duration::ZERO;
    loop {
        let wake = emulator.next_wake().map(|at| at.max(last_departures + COALESCE));
        let timeout = wake.map(|at| {
            let left = at.saturating_sub(clock::now());
            rustix::event::Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        events.clear();
        let spare = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&poll, spare, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let port = event.data.u64();
            if port != control {
                emulator.receive(port as usize)?;
                continue;
            }
            let mut buffer = [0u8; 256];
            let length = stdin.read(&mut buffer)?;
            commands.extend_from_slice(&buffer[..length]);
            while let Some(end) = commands.iter().position(|byte| *byte == b'\n') {
                let command: Vec<u8> = commands.drain(..=end).collect();
                match command.as_slice() {
                    b"start\n" => emulator.start(clock::now()),
                    b"stop\n" => {
                        emulator.on_time(clock::now());
                        println!("{}", serde_json::to_string(&emulator.finish())?);
                        return Ok(());
                    }
                    _ => match event_of(&command) {
                        Some(number) => emulator.apply(number, clock::now()),
                        None => eprintln!(
                            "expected start, stop or event NUMBER, found {:?}",
                            command.escape_ascii()
                        ),
                    },
                }
            }
            if length == 0 {
                return Ok(());
            }
        }
        let now = clock::now();
        emulator.on_time(now);
        if emulator.next_wake().is_some_and(|at| at <= now) {
            emulator.depart();
            last_departures = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with a UDP packet between `ports`.
    fn frame(ports: (u16, u16)) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET + 28];
        let packet = &mut frame[ETHERNET..];
        (packet[0], packet[3], packet[8], packet[9]) = (0x45, 28, 64, 17);
        packet[20..22].copy_from_slice(&ports.0.to_be_bytes());
        packet[22..24].copy_from_slice(&ports.1.to_be_bytes());
        frame
    }

    #[test]
    fn frames_of_the_measured_traffic_without_a_tunnel_are_told_from_others() {
        let mut text = String::from(
            "title = \"t\"\nduration = \"10 s\"\nsystems = [\"mpip\"]\n\
             [[traffic]]\nkind = \"tcp\"\nfrom = \"client\"\nto = \"server\"\n\
             [[traffic]]\nkind = \"tcp\"\nfrom = \"client\"\nto = \"server\"\nplain = \"a\"\n",
        );
        for (number, host) in ["client", "gateway", "server"].into_iter().enumerate() {
            text += &format!(
                "[[interface]]\nhost = \"{host}\"\nname = \"a\"\naddress = \"198.18.0.{number}\"\n\
                 [[link]]\nends = [\"{host}.a\", \"switch\"]\n"
            );
        }
        let scenario = scenarios::parse("t", &text).expect("valid");
        let measured = MeasuredTraffic::new(&scenario);
        let [first, plain] = ports(2).collect::<Vec<_>>()[..] else { panic!("two ports") };
        assert!(measured.is_bare(0, 1, &frame((40_000, first))));
        assert!(measured.is_bare(1, 0, &frame((first, 40_000))));
        assert!(!measured.is_bare(1, 2, &frame((40_000, first))), "beyond a gateway");
        assert!(!measured.is_bare(0, 1, &frame((40_000, plain))), "meant to be plain");
        assert!(!measured.is_bare(0, 1, &frame((6_182, 6_182))), "inside a tunnel");
        assert!(!measured.is_bare(0, 1, &frame((0, first))[..ETHERNET + 9]), "cut short");
    }
}
