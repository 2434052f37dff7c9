//! One node: the engine, the TUN device and the sockets, one batch at a time.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use mpip_api as api;
use mpip_core::packet::SessionKey;
use mpip_core::rules::AttachedNetwork;
use mpip_core::trace::qlog::Writer;
use mpip_core::{
    AvailabilityStatus, Command, Config, DatagramSink, Encapsulation, Engine, Event, Instant,
    Limits, LocalAddress, LocalId, PacketPool, Parameters, PathAddress, PeerConfig,
};
use mpip_net::netlink::{self, HostAddress, Monitor, Notice};
use mpip_net::tun::{Tun, TunWriter};
use mpip_net::udp::ReceiveBuffers;
use mpip_net::{Interest, PlainSender, Poller, Readiness, Waker, clock};
use zeroize::Zeroize;

use crate::budget::Budgets;
use crate::config::{Changeable, Settings};
use crate::error::{Error, system};
use crate::events::Events;
use crate::firewall::{self, Firewall};
use crate::handover;
use crate::invite::Door;
use crate::local::{self, Changes, LocalAddresses};
use crate::local_ports;
use crate::network::Network;
use crate::network::listed;
use crate::pins;
use crate::qlog::TraceFile;
use crate::reload::{InForce, Reload};
use crate::snapshot::{Snapshot, ms};
use crate::sockets::Sockets;
use crate::worker::{self, Worker};

mod change;
mod packets;

/// Packets of 64 KiB and of 2 KiB that may be on their way out at a time: 64 MiB and 8 MiB, more
/// than the engine's send queue and what is in flight at 1 Gbit/s and 200 ms.
const LARGE_BUFFERS: usize = 1024;
const SMALL_BUFFERS: usize = 4096;

/// Messages received from a socket at a time.
const RECEIVE_BATCH: usize = 16;

/// How often at most the host's addresses are listed, and when one that could not be used is tried
/// again.
const REFRESH_INTERVAL: Duration = Duration::from_millis(20);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How often at most all routes are listed because the kernel dropped notices. With a full table of
/// the Internet that takes 0.1 s, and as many may change as fast as they are listed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How often is looked whether sessions still use an address that its interface lost.
const PIN_INTERVAL: Duration = Duration::from_secs(1);

/// How long what is on its way may take to arrive when the process ends, and how long what the peer
/// has sent may take after it was told.
const DRAIN: Duration = Duration::from_millis(100);
const FAREWELL: Duration = Duration::from_millis(50);
const LINGER_STEP: Duration = Duration::from_micros(500);

/// A source of the loop, as its number in the poller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Tun,
    Signals,
    Network,
    Control,
    Handshakes,
    Threads,
    Socket(LocalId),
}

/// Numbers from here on are sockets.
const FIRST_SOCKET: u64 = 16;

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        match token {
            Token::Tun => 0,
            Token::Signals => 1,
            Token::Network => 2,
            Token::Control => 3,
            Token::Handshakes => 4,
            Token::Threads => 5,
            Token::Socket(LocalId(id)) => FIRST_SOCKET + Self::from(id),
        }
    }
}

impl From<u64> for Token {
    fn from(number: u64) -> Self {
        match number {
            0 => Self::Tun,
            1 => Self::Signals,
            2 => Self::Network,
            3 => Self::Control,
            4 => Self::Handshakes,
            5 => Self::Threads,
            socket => {
                let id = u16::try_from(socket - FIRST_SOCKET).expect("made from 16 bits");
                Self::Socket(LocalId(id))
            }
        }
    }
}

/// Everything that one node consists of.
pub(crate) struct Node {
    // Dropped first: it removes routes and addresses from the device.
    network: Network,
    settings: Description,
    /// The configuration that is applied.
    in_force: InForce,
    reloads: Vec<Reload>,
    engine: Engine,
    worker: Worker,
    worker_done: Arc<Waker>,
    tun: Arc<Tun>,
    tun_paused: Option<Instant>,
    pool: PacketPool,
    plain: PlainSender,
    writer: TunWriter,
    sender: Sockets,
    /// Wakes the loop when the threads of packets have room again, an error to tell, or something
    /// that they received.
    sent: Arc<Waker>,
    buffers: ReceiveBuffers,
    /// Whether the engine was given something since it was last flushed.
    unflushed: bool,
    /// Sockets for which the poller waits for anything else than that they are readable.
    waiting: Vec<(LocalId, Interest)>,
    local: LocalAddresses,
    /// All addresses of the host.
    host_addresses: Vec<IpAddr>,
    /// The networks that the engine knows.
    networks: Vec<AttachedNetwork>,
    /// Addresses of interfaces that went down, which have not lost them yet.
    leaving: BTreeSet<IpAddr>,
    refresh: Refresh,
    broken_frames: u64,
    events: Events,
    /// Writes keys of nodes that nobody configured, with their addresses.
    pins: Option<pins::Writer>,
    /// Who takes requests to join, if this is a gateway.
    door: Option<Door>,
    /// Our part of the packet filter, if there is one.
    firewall: Option<Firewall>,
    /// What is used of the budgets of interfaces.
    budgets: Budgets,
    started: Instant,
}

/// When the host's addresses are listed again.
#[derive(Debug)]
struct Refresh {
    last: Instant,
    due: Option<Instant>,
    /// Notices were lost since, and when all is listed again because of that at the soonest.
    lost: bool,
    look_at: Instant,
    /// When the engine is told that routes changed, which is as seldom.
    routes: Option<Instant>,
    routes_told: Instant,
}

impl Refresh {
    /// Addresses are listed again at `due` at the latest.
    fn hasten(&mut self, due: Instant) {
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
    }
}

/// What the status says of the settings.
#[derive(Debug)]
struct Description {
    config_file: String,
    public_key: String,
    listen_port: u16,
    tcp_port: u16,
    /// Whether there are paths by TCP.
    uses_tcp: bool,
    interface: String,
    addresses: Vec<String>,
    allowed_prefixes: Vec<Vec<String>>,
}

impl Description {
    fn of(settings: &Settings) -> Self {
        Self {
            config_file: std::path::absolute(&settings.file)
                .unwrap_or_else(|_| settings.file.clone())
                .display()
                .to_string(),
            public_key: settings.private_key.public_key().to_string(),
            listen_port: settings.listen_port,
            tcp_port: settings.tcp_port,
            uses_tcp: settings.permits(Encapsulation::Tcp),
            interface: settings.interface.clone(),
            addresses: settings.addresses.iter().map(ToString::to_string).collect(),
            allowed_prefixes: allowed_prefixes(&settings.peers),
        }
    }

    /// Follows changed settings.
    fn follow(&mut self, settings: &Changeable) {
        self.uses_tcp = settings.permits(Encapsulation::Tcp);
        self.addresses = settings.addresses.iter().map(ToString::to_string).collect();
        self.allowed_prefixes = allowed_prefixes(&settings.peers);
    }
}

fn allowed_prefixes(peers: &[PeerConfig]) -> Vec<Vec<String>> {
    let all = peers.iter().map(|peer| peer.allowed_prefixes.iter());
    all.map(|prefixes| prefixes.map(ToString::to_string).collect()).collect()
}

impl Node {
    /// Sets up the host and the engine; sources are added to `poller`. What `monitor` tells of that
    /// is read. `tun` is the device. `plain` takes the packets that leave as plain IP although they
    /// were captured.
    pub(crate) fn start(
        settings: Settings,
        tun: Tun,
        plain: PlainSender,
        poller: &Poller,
        monitor: &mut Monitor,
    ) -> Result<Self, Error> {
        let tun = Arc::new(tun);
        let network = Network::set_up(&settings)?;
        // Before the first listing, so that no change is missed.
        monitor.read(drop)?;
        poller
            .add(&*tun, Token::Tun.into(), Interest::Readable)
            .map_err(system("add the TUN device to the epoll"))?;
        let worker_done = Arc::new(Waker::new().map_err(system("make an eventfd"))?);
        poller
            .add(&*worker_done, Token::Handshakes.into(), Interest::Readable)
            .map_err(system("add an eventfd to the epoll"))?;
        let worker =
            worker::start(&worker_done).map_err(system("start the thread of handshakes"))?;
        let sent = Arc::new(Waker::new().map_err(system("make an eventfd"))?);
        poller
            .add(&*sent, Token::Threads.into(), Interest::Readable)
            .map_err(system("add an eventfd to the epoll"))?;
        let table = firewall::table(&settings.interface);
        let sender = Sockets::start(settings.threads, &sent, &table)
            .map_err(system("start the threads of packets"))?;
        let now = clock::now();
        let mut seed = clock::random_seed().map_err(system("read randomness"))?;
        let local = LocalAddresses::new(&settings);
        let file = settings.file.clone();
        let description = Description::of(&settings);
        let in_force = InForce::new(&settings);
        let port_place = settings.listen_port_place.clone();
        let tcp_port_place = settings.tcp_port_place.clone();
        let pins = settings.opportunistic.as_ref();
        let pins = pins.map(|settings| pins::Writer::start(settings.pins_file.clone()));
        let pins = pins.transpose().map_err(system("start the thread of pinned keys"))?;
        // Behind NATs packets are captured that are to leave as plain IP.
        let translated = if plain.is_open() { Limits::default().translated } else { 0 };
        let config = Config {
            private_key: settings.private_key,
            aes_in_hardware: mpip_crypto::cpu_has_aes(),
            peers: settings.peers,
            rules: in_force.changeable().rules_by_interface(),
            limits: Limits { translated, keepalive: settings.keepalive, ..Limits::default() },
            parameters: Parameters::default(),
            opportunistic: settings.opportunistic.as_ref().map(|settings| settings.engine.clone()),
        };
        let mut node = Self {
            network,
            settings: description,
            in_force,
            reloads: Vec::new(),
            engine: Engine::new(config, seed, now, clock::unix_time()),
            worker,
            worker_done,
            writer: TunWriter::new(Arc::clone(&tun)),
            tun,
            tun_paused: None,
            pool: PacketPool::new(LARGE_BUFFERS, SMALL_BUFFERS),
            sender,
            sent,
            plain,
            buffers: ReceiveBuffers::new(RECEIVE_BATCH),
            unflushed: false,
            waiting: Vec::new(),
            local,
            host_addresses: Vec::new(),
            networks: Vec::new(),
            leaving: BTreeSet::new(),
            refresh: Refresh {
                last: now,
                due: None,
                lost: false,
                look_at: now,
                routes: None,
                routes_told: now,
            },
            broken_frames: 0,
            events: Events::default(),
            pins,
            door: None,
            firewall: None,
            budgets: Budgets::open(now, &file),
            started: now,
        };
        seed.zeroize();
        if node.sender.opens() {
            node.engine.share_keys();
        }
        node.begin_budgets(now);
        let interfaces = node.in_force.changeable().interfaces();
        node.engine.handle_command(now, Command::Interfaces(interfaces));
        log::info!(
            "{}: node with public key {}",
            node.settings.interface,
            node.settings.public_key
        );
        let mut changes = node.refresh(now, poller)?;
        // Later such an address is tried again; at the start it is a mistake to be told.
        match changes.failed.pop() {
            Some(error) if error.is_tcp() => {
                Err(Error::bind(&tcp_port_place, node.settings.tcp_port, error))
            }
            Some(error) => Err(Error::bind(&port_place, node.settings.listen_port, error)),
            None => Ok(node),
        }
    }

    /// When [`finish_batch`](Self::finish_batch) is to be called again, whatever happens.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let engine = self.engine.poll_timeout();
        let sockets = self.sender.next_timeout();
        let Refresh { due, routes, .. } = self.refresh;
        let pins = self.pins.as_ref().and_then(pins::Writer::next_timeout);
        let network = self.network.next_timeout();
        let settings = self.in_force.next_timeout();
        let budgets = self.budgets.next_timeout();
        let timeouts =
            [engine, self.tun_paused, due, routes, sockets, pins, network, settings, budgets];
        timeouts.into_iter().flatten().min()
    }

    /// Takes what came of the public-key work.
    pub(crate) fn handshakes_ready(&mut self, now: Instant) {
        self.worker_done.reset();
        while let Some(done) = self.worker.take() {
            self.unflushed = true;
            match self.engine.handle_job(now, done) {
                Ok(from) => from.into_iter().for_each(|from| self.sender.confirm(now, from)),
                Err(reason) => log::trace!("handshake refused: {reason:?}"),
            }
        }
    }

    /// The kernel tells of a change, which [`network_changed`](Self::network_changed) sums up.
    pub(crate) fn notice(&mut self, now: Instant, notice: Notice) {
        self.network.notice(now, notice);
    }

    /// The host's links, addresses or routes changed.
    pub(crate) fn network_changed(&mut self, now: Instant, changes: netlink::Changes) {
        self.refresh.lost |= changes.lost;
        if changes.links || changes.addresses {
            let due = (self.refresh.last + REFRESH_INTERVAL).max(now);
            self.refresh.hasten(due);
        }
        if changes.routes && self.refresh.routes.is_none() {
            self.refresh.routes = Some((self.refresh.routes_told + REFRESH_INTERVAL).max(now));
        }
    }

    /// Sends what the engine was given to send.
    fn flush_engine(&mut self, now: Instant) {
        self.sender.set_time(now);
        if std::mem::take(&mut self.unflushed) {
            self.engine.flush(now, &mut self.sender);
        }
    }

    /// Does what is due, sends everything and reports what happened.
    pub(crate) fn finish_batch(&mut self, now: Instant, poller: &Poller) -> Result<(), Error> {
        if self.refresh.due.is_some_and(|due| due <= now) {
            for error in self.refresh(now, poller)?.failed {
                log::warn!("{error}; trying again");
            }
        }
        self.expire_settings(now, poller)?;
        self.count_budgets(now, poller)?;
        self.network.work(now);
        self.answer_reloads(now);
        if self.refresh.routes.take_if(|due| *due <= now).is_some() {
            self.refresh.routes_told = now;
            self.engine.handle_command(now, Command::RoutesChanged);
        }
        self.flush_engine(now);
        if self.engine.poll_timeout().is_some_and(|due| due <= now) {
            self.engine.handle_command(now, Command::WallClock(clock::unix_time()));
            self.engine.handle_timeout(now, &mut self.sender, &mut self.writer);
        }
        self.follow_keys();
        let Self { worker, engine, .. } = self;
        worker.feed(|| engine.poll_job()).map_err(system("hand over a handshake"))?;
        self.sender.flush(now);
        // Before the packets whose answers are captured.
        self.follow_captures(now);
        self.writer.flush();
        while let Some(error) = self.sender.poll_error() {
            if error.is_unreachable() {
                self.engine.handle_unreachable(now, error.local, error.remote);
            }
        }
        self.drain_events(now);
        if let Some(pins) = &mut self.pins {
            pins.flush(now);
        }
        self.wait_for_tun(now, poller)?;
        self.wait_for_sockets(poller)
    }

    /// Lists the host's addresses and follows what changed.
    fn refresh(&mut self, now: Instant, poller: &Poller) -> Result<Changes, Error> {
        let (links, addresses) = self.network.host_mut().inventory()?;
        let device = self.network.host().link_index();
        let changes = self.local.refresh(now, &links, &addresses, device);
        let retry = (!changes.failed.is_empty()).then_some(now + RETRY_INTERVAL);
        self.refresh.due = retry.into_iter().chain(self.local.next_timeout()).min();
        let unix_time = clock::unix_time();
        for address in &changes.removed {
            self.sender.retire(address.id);
            if address.encapsulation == Encapsulation::Udp {
                self.events.address_removed(unix_time, address);
            }
        }
        for id in &changes.closed {
            self.sender.remove(*id);
            self.waiting.retain(|(waiting, _)| waiting != id);
        }
        for address in &changes.revived {
            self.sender.revive(address.id);
            self.events.address_added(unix_time, address);
        }
        for (address, socket) in &changes.added {
            poller
                .add(socket, Token::Socket(address.id).into(), Interest::Readable)
                .map_err(system("add a socket to the epoll"))?;
            self.sender.insert(address, socket.clone()).map_err(system("read randomness"))?;
            if address.encapsulation == Encapsulation::Udp {
                self.events.address_added(unix_time, address);
            }
        }
        self.keep_addresses(&changes.removed, &addresses);
        if let Some(firewall) = &mut self.firewall {
            firewall.follow(&addresses, device);
        }
        // What is this host's own has to be known when paths are opened. What is kept is, though
        // the list does not have it yet.
        let kept = self.network.host().pinned().iter().copied();
        let own: Vec<IpAddr> = addresses.iter().map(|host| host.address).chain(kept).collect();
        if own != self.host_addresses {
            self.engine.handle_command(now, Command::OwnAddresses(own.clone()));
            self.host_addresses = own;
        }
        let networks = local::networks(&links, &addresses, device);
        if networks != self.networks {
            self.engine.handle_command(now, Command::Networks(networks.clone()));
            self.networks = networks;
        }
        if changes.any() {
            let list = self.local.list();
            if list.is_empty() {
                log::warn!("no interface has an address that paths can use");
            }
            self.engine.handle_command(now, Command::LocalAddresses(list));
        }
        if !self.network.host().pinned().is_empty() {
            self.refresh.hasten(now + PIN_INTERVAL);
        }
        let may_look = self.refresh.look_at <= now;
        let lost = self.refresh.lost && may_look;
        self.refresh.lost &= !may_look;
        self.network.follow(now, &links, self.own_addresses(), lost);
        // What this takes is no part of the interval.
        self.refresh.last = clock::now();
        if lost {
            self.refresh.look_at = self.refresh.last + LOOK_INTERVAL;
        }
        if self.refresh.lost {
            self.refresh.hasten(self.refresh.look_at);
        }
        Ok(changes)
    }

    /// Keeps what sessions use of the addresses that are `removed`, and lets go what they do not
    /// use; `present` are those that the host has.
    fn keep_addresses(&mut self, removed: &[LocalAddress], present: &[HostAddress]) {
        let own = self.own_addresses();
        let Self { engine, network, leaving, .. } = self;
        leaving.extend(removed.iter().map(|removed| removed.address.ip()));
        leaving.retain(|ip| {
            let there = present.iter().any(|present| present.address == *ip);
            if !there && engine.uses_address(*ip) {
                network.pin(*ip);
            }
            there && !own.contains(ip)
        });
        network.unpin(present, |ip| engine.uses_address(ip));
    }

    /// The addresses that paths start from.
    fn own_addresses(&self) -> Vec<IpAddr> {
        self.local.list().iter().map(|local| local.address.ip()).collect()
    }

    fn follow_captures(&mut self, now: Instant) {
        while let Some(capture) = self.engine.poll_capture() {
            let asks = capture.asks_udp_ports.then(|| capture.peer.clone());
            self.network.apply(now, capture);
            // After the routes: whatever a socket sends from here on reaches the engine.
            if let Some(peer) = asks {
                self.engine.handle_plain_udp_ports(&peer, local_ports::plain_udp());
            }
        }
    }

    fn drain_events(&mut self, now: Instant) {
        self.follow_captures(now);
        self.engine.take_plain(&mut self.plain);
        if let Some(pins) = &mut self.pins {
            while let Some(change) = self.engine.poll_pin() {
                pins.note(change);
            }
        }
        while let Some(event) = self.engine.poll_event() {
            self.events.engine(clock::unix_time(), &event);
            if let Event::InnerMtu { peer, mtu } = event {
                self.network.set_inner_mtu(now, &peer, mtu);
            }
        }
    }

    /// Has requests to join taken, and the packet filter kept up with the host's networks.
    pub(crate) fn open(&mut self, door: Option<Door>, firewall: Option<Firewall>) {
        (self.door, self.firewall) = (door, firewall);
    }

    /// Sends a datagram that is not the engine's. If there is no room it is lost.
    pub(crate) fn send(&mut self, to: PathAddress, datagram: &[u8]) {
        self.sender.send(to, datagram);
        self.unflushed = true;
    }

    /// Whoever listens gets every event from now on.
    pub(crate) fn subscribe(&mut self, subscriber: SyncSender<Arc<api::Event>>) {
        self.events.subscribe(subscriber);
    }

    /// The latest events, the oldest first.
    pub(crate) fn recent_events(&self) -> Vec<Arc<api::Event>> {
        self.events.recent()
    }

    /// The name of the peer whose packets may come from `address`.
    pub(crate) fn peer_at(&self, address: IpAddr) -> Option<String> {
        self.engine.peer_at(address).map(str::to_owned)
    }

    /// The interface behind which the host with `address` is, as rules match it.
    pub(crate) fn interface_at(&self, address: IpAddr) -> Option<String> {
        self.engine.interface_at(address).map(str::to_owned)
    }

    /// Which paths a packet of `length` bytes to `address` would take now, if the rule with the
    /// number `rule` decides about it.
    pub(crate) fn way(
        &mut self,
        now: Instant,
        address: IpAddr,
        rule: Option<u64>,
        length: usize,
    ) -> Option<mpip_core::Way> {
        let rule = rule.and_then(|number| usize::try_from(number.checked_sub(1)?).ok());
        self.engine.way(now, address, rule, length)
    }

    /// What this host sends in `session` takes one path, or any again.
    pub(crate) fn confine(&mut self, session: SessionKey, path: Option<u16>) {
        self.engine.confine(session, path);
    }

    /// The host talks from the first to the second of each pair.
    pub(crate) fn destinations_in_use(&mut self, now: Instant, list: &[(IpAddr, IpAddr)]) {
        for (source, destination) in list {
            self.engine.handle_destination(now, *source, *destination);
        }
    }

    /// What is known of the destinations that the host talks to.
    pub(crate) fn availability(&self, now: Instant) -> Vec<AvailabilityStatus> {
        self.engine.availability(now)
    }

    /// Records what is done with `peer` in `file`.
    pub(crate) fn trace(&mut self, peer: &str, file: Writer<TraceFile>) {
        let known = self.engine.trace(peer, Box::new(file));
        debug_assert!(known, "files are made for configured peers");
    }

    /// The state of everything.
    pub(crate) fn snapshot(&self, now: Instant, sessions: bool) -> Snapshot {
        let list = self.local.list().into_iter();
        let list = list.filter(|local| local.encapsulation == Encapsulation::Udp);
        let local = list.map(|local| api::LocalAddressStatus {
            interface: local.interface,
            address: local.address.ip(),
            mtu_bytes: local.mtu,
        });
        let mut faults = self.budgets.faults(now);
        let (of_network, fault_count) = self.network.faults(now);
        let fault_count = fault_count + faults.len() as u64;
        faults.extend(of_network);
        let host = api::Status {
            daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            config_file: self.settings.config_file.clone(),
            uptime_ms: ms(now.since(self.started)),
            node: String::new(),
            public_key: self.settings.public_key.clone(),
            listen_port: self.settings.listen_port,
            tcp_port: if self.settings.uses_tcp { self.settings.tcp_port } else { 0 },
            interface: api::InterfaceStatus {
                name: self.settings.interface.clone(),
                addresses: self.settings.addresses.clone(),
                mtu_bytes: self.network.host().mtu(),
            },
            local_addresses: local.collect(),
            interfaces_off: self.local.off(),
            peers: Vec::new(),
            drops: self.drops(),
            events: self.events.counters(),
            faults,
            fault_count,
            budgets: self.budgets.status(),
        };
        Snapshot {
            engine: self.engine.status(now, sessions),
            allowed_prefixes: self.settings.allowed_prefixes.clone(),
            sessions,
            properties: self.in_force.changeable().path_properties.clone(),
            host,
        }
    }

    /// What the host's side refused, by cause.
    fn drops(&self) -> Vec<api::Counter> {
        let tun = self.writer.counters();
        let mut drops: Vec<_> = [
            ("tun_no_buffer", self.pool.exhausted()),
            ("tun_broken_frame", self.broken_frames),
            ("tun_no_room", tun.no_room),
            ("tun_refused", tun.refused),
            ("plain_refused", self.plain.refused()),
            ("receive_truncated", self.buffers.truncated() + self.sender.truncated()),
        ]
        .map(|(name, count)| api::Counter { name: name.to_owned(), count })
        .into();
        drops.extend(self.sender.drops());
        drops
    }

    /// The daemon works from here on: however it ends, what refuses packets of policy `require`
    /// stays.
    pub(crate) fn started(&mut self) {
        self.network.started(clock::now());
        if let Some(firewall) = &mut self.firewall {
            firewall.started();
        }
    }

    /// Says goodbye to every peer, removes what it set up on the host, and has pinned keys written.
    /// What refuses packets goes only if this is an `orderly` end.
    pub(crate) fn end(mut self, orderly: bool) {
        // From here on packets of peers in host mode leave as plain IP, if they may; what is on its
        // way on the paths still arrives.
        self.network.release(clock::now(), orderly);
        if let Some(firewall) = self.firewall.as_mut().filter(|_| orderly) {
            firewall.open();
        }
        self.linger(DRAIN, true);
        self.engine.handle_command(clock::now(), Command::Shutdown);
        self.linger(if self.network.is_active() { FAREWELL } else { Duration::ZERO }, false);
        self.sender.close(clock::now());
        let refusing = if orderly { Vec::new() } else { self.network.refusing() };
        let pins = self.pins.take();
        self.budgets.count(clock::now(), clock::unix_time(), self.engine.path_traffic());
        let budgets = self.budgets.end();
        // The host does not wait for a disk.
        drop(self);
        budgets.finish(handover::FAREWELL);
        if let Some(pins) = pins {
            pins.finish(handover::FAREWELL);
        }
        if !refusing.is_empty() {
            log::error!(
                "packets to {} are refused until mpipd starts again, because the policy is `require`; \
                 `mpip down FILE` opens the way",
                listed(&refusing)
            );
        }
    }

    /// Goes on for `limit`, or until nothing is on its way.
    fn linger(&mut self, limit: Duration, until_idle: bool) {
        let end = clock::now() + limit;
        let sockets: Vec<LocalId> = self.sender.interests().map(|(id, _)| id).collect();
        let ready = Readiness { token: 0, readable: true, writable: true, failed: false };
        loop {
            let now = clock::now();
            if let Err(error) = self.read_tun(now) {
                log::debug!("{error}");
            }
            for local in &sockets {
                self.socket_ready(now, *local, ready);
            }
            self.threads_ready(now);
            self.engine.flush(now, &mut self.sender);
            self.engine.handle_timeout(now, &mut self.sender, &mut self.writer);
            self.follow_keys();
            self.sender.flush(now);
            self.writer.flush();
            self.drain_events(now);
            if now >= end || (until_idle && self.engine.is_quiet()) {
                return;
            }
            std::thread::sleep(LINGER_STEP);
        }
    }
}
