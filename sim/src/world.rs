//! The world: hosts, network, traffic and time.

use core::fmt;
use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mpip_core::trace::TraceSink;
use mpip_core::{CongestionControlKind, Event, Limits, PathAddress, Status};

use crate::clock::{MILLI, NEVER, Nanos};
use crate::host::Host;
use crate::invariant::{Amplification, Invariant, Ledger, Violation};
use crate::network::{Arrival, Datagram, Network};
use crate::node::{Inbox, Node};
use crate::quic::QuicState;
use crate::rng::Rng;
use crate::spec::{Action, System, Traffic, WorldSpec};
use crate::stack::Transport;
use crate::tcp::TcpState;
use crate::traffic::{Flow, FlowReport};

mod actions;
mod bounds;
mod finish;
mod hostile;
mod packets;
mod plain;
mod segments;

/// Interval of the memory check, ns. Restarts and idle worlds need no shorter one.
const MEMORY_INTERVAL: Nanos = 50_000_000;

/// Numbers of the world's random streams.
mod purpose {
    pub(super) const HOSTS: u64 = 1;
    pub(super) const LINKS: u64 = 2;
    pub(super) const ATTACKER: u64 = 3;
}

/// Shortest time after sending before a missing packet may be skipped. The engine waits for 100 ms
/// or more, unless the sender declares the packet lost, which takes a few round trips or a
/// reordering window. So this check detects only that there was no wait at all.
const SHORTEST_WAIT: Nanos = 20 * MILLI;

/// Datagrams that an attacker keeps.
const RECORDED: usize = 256;

/// Most violations kept; a broken world could report millions.
const VIOLATIONS: usize = 32;

/// The path of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// When it left.
    pub at: Nanos,
    /// The sender.
    pub host: usize,
    /// Its end of the path.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Bytes of the datagram.
    pub len: usize,
}

/// What a world records while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observe {
    /// Every packet, datagram and event, as a line of text.
    pub trace: bool,
    /// The path of every datagram, see [`World::choices`].
    pub choices: bool,
    /// Checks of every packet (in-order, unaltered, no-duplicate). They cost time and memory in
    /// long measurements.
    pub packets: bool,
}

/// A running world.
pub struct World {
    spec: WorldSpec,
    now: Nanos,
    hosts: Vec<Host>,
    network: Network,
    flows: Vec<Flow>,
    script: VecDeque<(Nanos, Action)>,
    observe: Observe,
    ledger: Ledger,
    amplification: Amplification,
    violations: Vec<Violation>,
    next_memory_check: Nanos,
    recorded: VecDeque<(usize, Datagram)>,
    /// Every outer address that a host ever had, as other hosts see it.
    known_addresses: BTreeMap<core::net::IpAddr, usize>,
    /// Every address that an interface of a host ever had.
    held_addresses: BTreeSet<(usize, core::net::IpAddr)>,
    attacker: Rng,
    restarts: Rng,
    trace: Vec<String>,
    choices: Vec<Choice>,
    sent_bytes: BTreeMap<(usize, usize), u64>,
    arrivals: Vec<Arrival>,
    /// Buffer for packets that a node returns as plain IP.
    given_back: Inbox,
    /// Sources of handshake messages that proved authentic while a segment was processed.
    proved: Vec<PathAddress>,
    /// When the hosts' connections are reported next.
    next_look: Nanos,
    has_hostile: bool,
    /// Bytes of flows between honest nodes when the world began to heal.
    goodput: u64,
    traced_to_stderr: bool,
}

impl World {
    /// A world at its start.
    pub fn new(spec: WorldSpec, observe: Observe) -> Self {
        let mut rng = Rng::stream(spec.seed, purpose::HOSTS);
        let links = Rng::stream(spec.seed, purpose::LINKS).word();
        let network = Network::new(&spec.interfaces, &spec.links, &spec.routes, links);
        let hosts = (0..spec.hosts.len())
            .map(|index| Host::new(&spec, index, &network, &mut rng))
            .collect();
        let flows = (0..spec.flows.len()).map(|number| Flow::new(&spec, number)).collect();
        // With translated ports, packets differ at the two ends.
        let shares = spec.hosts.iter().any(|host| match &host.system {
            System::Mpip(engine) => engine.shares,
            System::Plain { .. } | System::Hostile(_) => false,
        });
        let observe = Observe { packets: observe.packets && !shares, ..observe };
        let mut script = spec.script.clone();
        script.sort_by_key(|(at, _)| *at);
        let mut world = Self {
            now: 0,
            hosts,
            network,
            flows,
            script: script.into(),
            observe,
            ledger: Ledger::new(patience(&spec)),
            amplification: Amplification::default(),
            violations: Vec::new(),
            next_memory_check: MEMORY_INTERVAL,
            recorded: VecDeque::new(),
            known_addresses: BTreeMap::new(),
            held_addresses: BTreeSet::new(),
            attacker: Rng::stream(spec.seed, purpose::ATTACKER),
            restarts: rng,
            trace: Vec::new(),
            choices: Vec::new(),
            sent_bytes: BTreeMap::new(),
            arrivals: Vec::new(),
            given_back: Inbox::default(),
            proved: Vec::new(),
            next_look: 0,
            goodput: 0,
            has_hostile: spec.has_hostile(),
            traced_to_stderr: false,
            spec,
        };
        world.note_addresses();
        world
    }

    /// Traces the association of `host` with the host `peer` from now on, until `host` restarts.
    /// Returns `false` if they are not peers.
    pub fn trace_peer(&mut self, host: usize, peer: usize, sink: Box<dyn TraceSink>) -> bool {
        let name = self.hosts[peer].spec.name.clone();
        self.hosts[host].node.trace(&name, sink)
    }

    /// Names of the hosts.
    pub fn host_names(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|host| host.spec.name.as_str())
    }

    /// Writes trace lines to standard error at once, for a world that may not end.
    pub fn trace_to_stderr(&mut self) {
        self.observe.trace = true;
        self.traced_to_stderr = true;
    }

    fn note_addresses(&mut self) {
        for (index, interface) in self.network.interfaces().enumerate() {
            for address in &interface.addresses {
                let seen = self.network.seen_as(index, *address);
                self.known_addresses.insert(seen, interface.host);
                self.held_addresses.insert((interface.host, *address));
            }
        }
    }

    /// Virtual time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Violations so far, oldest first.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The trace so far, if it is recorded.
    pub fn trace(&self) -> &[String] {
        &self.trace
    }

    /// The path of every datagram, if recorded.
    pub fn choices(&self) -> &[Choice] {
        &self.choices
    }

    /// Events of a host's engine, with their times.
    pub fn events(&self, host: usize) -> &[(Nanos, Event)] {
        &self.hosts[host].events
    }

    /// Statistics of a host's engine; `None` for a host without mpip.
    pub fn status(&self, host: usize) -> Option<Status> {
        let host = &self.hosts[host];
        host.node.status(host.spec.clock.at(self.now), true)
    }

    /// The network, for its counters.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Outer bytes that a host's interface sent, IP headers included.
    pub fn interface_bytes(&self, host: usize, interface: usize) -> u64 {
        self.sent_bytes.get(&(host, interface)).copied().unwrap_or(0)
    }

    /// The results of a flow so far.
    pub fn flow(&self, number: usize) -> FlowReport {
        let flow = &self.flows[number];
        let mut report = flow.report.clone();
        if flow.spec.traffic.is_transfer()
            && let Some(received) = self.hosts[flow.spec.to].stack.received(number as u64)
        {
            report.bytes = received.bytes;
            report.finished = received.finished;
        }
        report
    }

    /// When a flow last delivered a packet, or a transfer new bytes to the application.
    pub fn last_delivery(&self, number: usize) -> Option<Nanos> {
        self.flows[number].last_delivery
    }

    /// Bytes delivered by a flow so far, as in its report.
    pub fn flow_bytes(&self, number: usize) -> u64 {
        let flow = &self.flows[number];
        match flow.spec.traffic {
            Traffic::Tcp { .. } | Traffic::Quic { .. } => {
                let received = self.hosts[flow.spec.to].stack.received(number as u64);
                received.map_or(0, |received| received.bytes)
            }
            Traffic::Packets { .. } => flow.report.bytes,
        }
    }

    /// The state of the sender of QUIC flow `number`; `None` of other flows.
    pub fn quic_state(&self, number: usize) -> Option<QuicState> {
        let flow = &self.flows[number].spec;
        let mut state = self.hosts[flow.from].stack.quic(number as u64)?;
        let arrived = self.hosts[flow.to].stack.quic_arrived(number as u64);
        state.missing = state.missing.saturating_sub(arrived);
        Some(state)
    }

    /// The state of the sender of TCP flow `number`; `None` of other flows.
    pub fn tcp_sender(&self, number: usize) -> Option<TcpState> {
        self.hosts[self.flows[number].spec.from].stack.tcp(number as u64)
    }

    /// A description of the sender of the transfer `number`.
    pub fn tcp_state(&self, number: usize) -> String {
        self.hosts[self.flows[number].spec.from].stack.describe(number as u64)
    }

    /// Inner packets given to the nodes and delivered by them, if packets are checked.
    pub fn packets(&self) -> (u64, u64) {
        (self.ledger.sent, self.ledger.delivered)
    }

    /// Bytes that flows between honest nodes had delivered when the world began to heal.
    pub fn goodput(&self) -> u64 {
        self.goodput
    }

    /// Inner packets delivered late, after they had been given up.
    pub fn late(&self) -> u64 {
        self.ledger.late
    }

    /// Number of timer calls of a host's engine.
    pub fn timeouts(&self, host: usize) -> u64 {
        self.hosts[host].spin.total
    }

    fn violate(&mut self, host: usize, (invariant, detail): (Invariant, String)) {
        let violation = Violation { at: self.now, host, invariant, detail };
        self.note(|| format!("VIOLATION {violation}"));
        if self.violations.len() < VIOLATIONS {
            self.violations.push(violation);
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if !self.observe.trace {
            return;
        }
        let line = format!(
            "{:4}.{:06} {}",
            self.now / 1_000_000_000,
            self.now / 1_000 % 1_000_000,
            line()
        );
        if self.traced_to_stderr {
            eprintln!("{line}");
        } else {
            self.trace.push(line);
        }
    }

    /// Time of the next event.
    fn next_time(&self) -> Nanos {
        let hosts = self.hosts.iter().map(|host| host.wake.min(host.stack_wake));
        let flows = self.flows.iter().map(|flow| flow.next);
        let script = self.script.front().map_or(NEVER, |(at, _)| *at);
        hosts
            .chain(flows)
            .chain([script, self.network.next_wake(), self.next_look])
            .min()
            .unwrap_or(NEVER)
            .max(self.now)
    }

    /// Runs the world until `end`, inclusive.
    pub fn run_until(&mut self, end: Nanos) {
        loop {
            let next = self.next_time();
            if next > end {
                break;
            }
            self.now = next;
            self.step();
        }
        self.now = self.now.max(end);
    }

    /// Processes everything that is due now, in a fixed order.
    fn step(&mut self) {
        while let Some((at, _)) = self.script.front()
            && *at <= self.now
        {
            let (_, action) = self.script.pop_front().expect("there is a front");
            self.act(action);
        }
        self.receive();
        for host in 0..self.hosts.len() {
            self.time_out(host);
        }
        self.look_at_connections();
        for flow in 0..self.flows.len() {
            if self.flows[flow].next <= self.now {
                self.feed(flow);
            }
        }
        for host in 0..self.hosts.len() {
            if self.hosts[host].stack_wake <= self.now {
                self.run_stack(host);
            }
        }
        if self.now >= self.next_memory_check {
            self.next_memory_check = self.now + MEMORY_INTERVAL;
            self.check_memory();
        }
    }

    /// Processes datagrams that arrive now.
    fn receive(&mut self) {
        if self.network.next_wake() > self.now {
            return;
        }
        let mut arrivals = core::mem::take(&mut self.arrivals);
        self.network.advance(self.now, &mut arrivals);
        for arrival in arrivals.drain(..) {
            self.arrive(arrival);
        }
        self.arrivals = arrivals;
        for index in 0..self.hosts.len() {
            let host = &mut self.hosts[index];
            if core::mem::take(&mut host.unflushed) {
                host.node.flush(host.spec.clock.at(self.now), &mut host.outbox);
                self.settle(index);
            }
        }
    }

    fn time_out(&mut self, index: usize) {
        while self.hosts[index].wake <= self.now {
            let host = &mut self.hosts[index];
            if let Node::Hostile(hostile) = &mut host.node {
                hostile.handle_timeout(self.now);
                self.settle(index);
                continue;
            }
            let result = host.spin.timeout(self.now);
            self.time_out_segments(index);
            let host = &mut self.hosts[index];
            host.node.handle_timeout(
                host.spec.clock.at(self.now),
                &mut host.outbox,
                &mut host.inbox,
            );
            self.settle(index);
            if let Err(found) = result {
                self.violate(index, found);
                // Lets the world go on, so that it can be inspected.
                self.hosts[index].wake = self.now + MILLI;
            }
        }
    }

    /// Processes a flow that is due.
    fn feed(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        let (from, to) = (flow.spec.from, flow.spec.to);
        let (bytes, transport) = match flow.spec.traffic {
            Traffic::Tcp { bytes, window } => (bytes, Transport::Tcp(window, self.spec.tcp)),
            Traffic::Quic { bytes, control } => (bytes, Transport::Quic(control)),
            Traffic::Packets { .. } => {
                let mtu = self.hosts[from].mtu;
                if let Some(made) = flow.make(self.now, mtu) {
                    self.send_inner(from, &made.bytes, made.offload);
                    self.settle(from);
                }
                return;
            }
        };
        let (source, destination) = (flow.shape.source, flow.shape.destination);
        if self.now >= flow.spec.stop {
            flow.next = NEVER;
            self.hosts[from].stack.stop(number as u64);
        } else {
            flow.next = flow.spec.stop;
            self.note(|| format!("flow {number}: {transport:?}, {source} to {destination}"));
            self.hosts[to].stack.listen(number as u64, destination, source, transport);
            let (now, ends) = (self.now, (source, destination));
            self.hosts[from].stack.connect(now, number as u64, ends, bytes, transport);
        }
        self.run_stack(from);
    }
}

/// Shortest resequencing wait of a TCP session: the engine's lower bound; zero if memory is small,
/// if there is no resequencing, or if losses are not repaired (then the sender declares a packet
/// lost at once, even if it is only late).
fn patience(spec: &WorldSpec) -> Nanos {
    let promises = spec.hosts.iter().all(|host| match &host.system {
        System::Mpip(engine) => {
            engine.resequencing
                // A session starts anew after packets were sent as plain IP.
                && !engine.mode.is_ordinary()
                && engine.congestion_control != CongestionControlKind::None
                && engine.limits.resequencing >= Limits::default().resequencing
        }
        System::Plain { .. } => false,
        System::Hostile(_) => true,
    });
    if promises { SHORTEST_WAIT } else { 0 }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("seed", &self.spec.seed)
            .field("now", &self.now)
            .field("violations", &self.violations)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
