//! Hosts as network namespaces, links as veth pairs between them, and a daemon on each.
//!
//! Everything goes when its guard is dropped, also when a test fails.

#![allow(dead_code, unreachable_pub, reason = "each test is a crate that uses a part of it")]

pub mod host_mode;
pub mod nat;
pub mod world;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mpip_api::{PathStatus, PeerStatus, Status};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Runs a program; its failure fails the test.
pub fn run(program: &str, arguments: &[&str]) -> String {
    if let ["netns", "exec", _, inner, ..] = arguments {
        mpip_testing::expect_program(inner);
    }
    let output = output(program, arguments);
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn output(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().expect(program)
}

/// Time after which a test gives up, however busy the machine is. The pauses of transfers are
/// measured elsewhere (`mpip-lab kill-matrix`, `figures`) and tested in virtual time (`mpip-sim`).
pub const HANG: Duration = Duration::from_secs(5);

/// Waits until `condition` holds.
pub fn wait_for(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether `condition` holds before [`HANG`] has passed.
pub fn soon(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() >= HANG {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A host.
pub struct Host {
    pub name: String,
}

impl Host {
    pub fn new(test: &str, letter: &str) -> Self {
        let name = format!("mpip-d-{}-{test}-{letter}", std::process::id());
        // The first one ever mounts a directory, which two at once cannot.
        static NAMES: Mutex<()> = Mutex::new(());
        let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        run("ip", &["netns", "add", &name]);
        drop(names);
        let host = Self { name };
        host.ip(&["link", "set", "lo", "up"]);
        // Everybody may ping (icmp(7)).
        let setting = "/proc/sys/net/ipv4/ping_group_range";
        let allow = move || fs::write(setting, "0 2147483647");
        host.spawn(allow).join().expect("no panic").expect("our own namespace");
        host
    }

    /// `ip` with these arguments, on this host.
    pub fn ip(&self, arguments: &[&str]) -> String {
        run("ip", &[&["-n", self.name.as_str()], arguments].concat())
    }

    /// Sets a kernel parameter of this host, named by its path below /proc/sys.
    pub fn sysctl(&self, name: &str, value: &str) {
        let (file, value) = (format!("/proc/sys/{name}"), value.to_owned());
        self.spawn(move || fs::write(file, value)).join().expect("no panic").expect("a parameter");
    }

    /// Adds a ruleset for nft on this host.
    pub fn nft(&self, ruleset: &str) {
        mpip_testing::expect_program("nft");
        let arguments = ["netns", "exec", &self.name, "nft", "-f", "-"];
        let mut child = Command::new("ip").args(arguments).stdin(Stdio::piped()).spawn();
        let child = child.as_mut().expect("ip");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(ruleset.as_bytes()).expect("nft reads it");
        drop(stdin);
        assert!(child.wait().expect("our child").success(), "nft refuses {ruleset}");
    }

    /// What `nft` with these arguments prints on this host.
    pub fn nft_output(&self, arguments: &[&str]) -> String {
        run("ip", &[&["netns", "exec", &self.name, "nft"], arguments].concat())
    }

    /// A counter of /proc/net/snmp on this host.
    pub fn snmp(&self, group: &str, name: &str) -> u64 {
        let read = || fs::read_to_string("/proc/thread-self/net/snmp");
        let text = self.spawn(read).join().expect("no panic").expect("counters");
        let prefix = format!("{group}: ");
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(&prefix));
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let mut both = names.split(' ').zip(values.split(' '));
        let found = both.find(|(found, _)| *found == name).expect("such a counter");
        found.1.parse().expect("a number")
    }

    /// A statistic of a network interface of this host, such as `tx_packets`.
    pub fn transmitted(&self, interface: &str, statistic: &str) -> u64 {
        let file = format!("/sys/class/net/{interface}/statistics/{statistic}");
        run("ip", &["netns", "exec", &self.name, "cat", &file]).trim().parse().expect("a number")
    }

    /// Runs `f` in a thread on this host.
    pub fn spawn<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let namespace = File::open(format!("/run/netns/{}", self.name)).expect("made by ip");
        thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("CAP_SYS_ADMIN");
            f()
        })
    }

    /// Pings `address` until so many were answered; whether that was soon.
    pub fn ping(&self, address: &str, count: u16) -> bool {
        self.ping_with(address, count, 56)
    }

    /// As [`ping`](Self::ping), with so many bytes of payload.
    pub fn ping_with(&self, address: &str, count: u16, payload: usize) -> bool {
        let address: IpAddr = address.parse().expect("valid");
        let ping = move || {
            let answered = |sequence| soon(|| echo(address, sequence, payload, None));
            (1..=count).all(answered)
        };
        self.spawn(ping).join().expect("no panic")
    }

    /// Pings `address` once; whether it was answered within a second. For what is not to be answered.
    pub fn ping_once(&self, address: &str) -> bool {
        self.ping_once_with(address, 56)
    }

    /// As [`ping_once`](Self::ping_once), with so many bytes of payload.
    pub fn ping_once_with(&self, address: &str, payload: usize) -> bool {
        let address: IpAddr = address.parse().expect("valid");
        self.spawn(move || echo(address, 1, payload, None)).join().expect("no panic")
    }

    /// Pings `address` once so that no more than `hops` routers are passed; whether it was answered.
    pub fn ping_within(&self, address: &str, hops: u8) -> bool {
        let address: IpAddr = address.parse().expect("valid");
        self.spawn(move || echo(address, 1, 56, Some(hops))).join().expect("no panic")
    }
}

/// Sets the TTL, or hop limit, of what a socket sends to `address`.
pub fn set_hops(socket: &UdpSocket, address: IpAddr, hops: u8) {
    use rustix::net::sockopt::{set_ip_ttl, set_ipv6_unicast_hops};
    let set = match address {
        IpAddr::V4(_) => set_ip_ttl(socket, hops.into()),
        IpAddr::V6(_) => set_ipv6_unicast_hops(socket, Some(hops)),
    };
    set.expect("a number of hops");
}

/// Sends an echo request and waits for its answer (icmp(7)); whether it is right.
fn echo(address: IpAddr, sequence: u16, payload: usize, hops: Option<u8>) -> bool {
    use rustix::net::{AddressFamily, SocketType, ipproto, socket};
    let (family, protocol, request, reply) = match address {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, 8, 0),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, 128, 129),
    };
    let socket = socket(family, SocketType::DGRAM, Some(protocol)).expect("allowed by sysctl");
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a time-out");
    if let Some(hops) = hops {
        set_hops(&socket, address, hops);
    }
    if socket.connect((address, 0)).is_err() {
        return false;
    }
    let [high, low] = sequence.to_be_bytes();
    let mut packet = vec![request, 0, 0, 0, 0, 0, high, low];
    packet.extend((0..payload).map(|position| pattern(position as u64)));
    let mut answer = vec![0; packet.len() + 1];
    socket.send(&packet).is_ok()
        && socket.recv(&mut answer).is_ok_and(|len| len == packet.len())
        && answer[0] == reply
        && answer[6..packet.len()] == packet[6..]
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = output("ip", &["netns", "del", &self.name]);
    }
}

/// Two hosts with `links` veth pairs between them: `eth0`, `eth1` … on both, numbered
/// 198.18.N.1 and .2, and 2001:db8:N::1 and ::2.
pub fn two_hosts(test: &str, links: u8, families: &[Family]) -> (Host, Host) {
    let (a, b) = (Host::new(test, "a"), Host::new(test, "b"));
    for link in 0..links {
        add_link(&a, &b, link, families);
    }
    (a, b)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// Adds link number `link` between the hosts.
pub fn add_link(a: &Host, b: &Host, link: u8, families: &[Family]) {
    let name = format!("eth{link}");
    run(
        "ip",
        &[
            "link", "add", &name, "netns", &a.name, "type", "veth", "peer", "name", &name, "netns",
            &b.name,
        ],
    );
    for (host, last) in [(a, 1), (b, 2)] {
        if families.contains(&Family::V4) {
            host.ip(&["addr", "add", &format!("198.18.{link}.{last}/24"), "dev", &name]);
        }
        if families.contains(&Family::V6) {
            let address = format!("2001:db8:{link}::{last}/64");
            host.ip(&["addr", "add", &address, "dev", &name, "nodad"]);
        }
        host.ip(&["link", "set", &name, "up"]);
    }
}

/// A directory that is removed when dropped.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mpip-d-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A key pair made from a number.
pub fn key(number: u8) -> mpip_crypto::PrivateKey {
    mpip_crypto::PrivateKey::generate(&mut mpip_crypto::Rng::new([number; 32]))
}

/// A configuration, to be written into a test's directory.
pub struct Configuration<'a> {
    /// 1 for host a (10.77.0.1, fd77::1), 2 for host b.
    pub number: u8,
    /// Numbers of the own key and of the peer's.
    pub keys: (u8, u8),
    pub endpoints: &'a [&'a str],
    /// Lines for the peer's section.
    pub peer: &'a str,
}

impl Configuration<'_> {
    /// Writes key and configuration, with lines for the node's section; returns the
    /// configuration's file.
    pub fn write(&self, directory: &Directory, node: &str) -> PathBuf {
        let Self { number, keys: (own, theirs), endpoints, peer } = self;
        let other = 3 - number;
        let key_file = directory.0.join(format!("{number}.key"));
        fs::write(&key_file, key(*own).secret_base64().as_str()).expect("writable");
        fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600)).expect("ours");
        let text = format!(
            "[node]\nprivate_key_file = '{number}.key'\nlisten_port = 6182\n\
             control_socket = '{}'\n{node}\
             [interface]\nname = 'mpip0'\naddresses = ['10.77.0.{number}/24', 'fd77::{number}/64']\n\
             [[peer]]\nname = 'host{other}'\npublic_key = '{}'\nendpoints = {endpoints:?}\n\
             allowed_prefixes = ['10.77.0.{other}/32', 'fd77::{other}/128']\n{peer}\n",
            self.socket(directory).display(),
            key(*theirs).public_key(),
        );
        let file = directory.0.join(format!("{number}.toml"));
        fs::write(&file, text).expect("writable");
        file
    }

    pub fn socket(&self, directory: &Directory) -> PathBuf {
        directory.0.join(format!("{}.sock", self.number))
    }
}

/// A running daemon; killed when dropped.
pub struct Daemon {
    pub child: Child,
    pub socket: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// Starts `configuration` on `host` and waits until it answers.
    pub fn start(host: &Host, directory: &Directory, configuration: &Configuration<'_>) -> Self {
        Self::start_with(host, directory, configuration, "")
    }

    /// As [`start`](Self::start), with lines for the node's section.
    pub fn start_with(
        host: &Host,
        directory: &Directory,
        configuration: &Configuration<'_>,
        node: &str,
    ) -> Self {
        Self::spawn_with(host, directory, configuration, node).ready()
    }

    /// Waits until it answers.
    pub fn ready(mut self) -> Self {
        let start = Instant::now();
        while mpip_api::status(&self.socket, false).is_err() {
            let ended = self.child.try_wait().expect("our child");
            assert!(ended.is_none(), "{ended:?}: {}", self.log());
            assert!(start.elapsed() < Duration::from_secs(10), "{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
        self
    }

    /// Starts `configuration` on `host`.
    pub fn spawn(host: &Host, directory: &Directory, configuration: &Configuration<'_>) -> Self {
        Self::spawn_with(host, directory, configuration, "")
    }

    fn spawn_with(
        host: &Host,
        directory: &Directory,
        configuration: &Configuration<'_>,
        node: &str,
    ) -> Self {
        let file = configuration.write(directory, node);
        Self::spawn_file(host, directory, configuration.number, &file)
    }

    /// Starts the configuration `file` of host `number`, whose control socket is the usual one.
    pub fn spawn_file(host: &Host, directory: &Directory, number: u8, file: &Path) -> Self {
        let log = directory.0.join(format!("{number}.log"));
        let out = File::create(&log).expect("writable");
        let child = Command::new("ip")
            .args(["netns", "exec", &host.name, env!("CARGO_BIN_EXE_mpipd"), "--config"])
            .arg(file)
            .args(["--log-level", "debug"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(out)
            .spawn()
            .expect("ip");
        Self { child, socket: directory.0.join(format!("{number}.sock")), log }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn status(&self) -> Status {
        mpip_api::status(&self.socket, true)
            .unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    pub fn peer(&self) -> PeerStatus {
        self.status().peers.swap_remove(0)
    }

    pub fn active_paths(&self) -> Vec<PathStatus> {
        let mut paths = self.peer().paths;
        paths.retain(|path| path.state == "active");
        paths
    }

    /// The first path that works: on a machine that stands still none may for a moment.
    pub fn path(&self) -> PathStatus {
        let mut found = None;
        wait_for("a path", HANG, || {
            found = self.active_paths().into_iter().next();
            found.is_some()
        });
        found.expect("it was waited for")
    }

    /// Waits until at least `count` paths are active.
    pub fn wait_for_paths(&self, count: usize) {
        let start = Instant::now();
        while self.active_paths().len() < count {
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "expected {count} active paths: {:#?}\n{}",
                self.peer().paths,
                self.log()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until each active path has carried this share of all bytes, at least.
    pub fn wait_for_shares(&self, least: f64) {
        wait_for(&format!("a share of {least} on all paths"), HANG, || {
            self.active_paths().iter().all(|path| path.share > least)
        });
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        run("kill", &["-s", name, &self.child.id().to_string()]);
    }

    /// Waits for the end; whether it was a success.
    pub fn wait(&mut self) -> bool {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return status.success();
            }
            assert!(start.elapsed() < Duration::from_secs(10), "it does not end: {}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("{}:\n{}", self.log.display(), self.log());
        }
    }
}

/// The byte at `position` of what a transfer carries.
fn pattern(position: u64) -> u8 {
    // Its period is not a power of two, so that a piece in a wrong place differs.
    (position % 251) as u8 ^ (position / 251 % 241) as u8
}

/// A transfer by TCP from one host to another, which checks every byte.
pub struct Transfer {
    /// Bytes to come.
    bytes: u64,
    /// Where the connection comes from, as the sender sees it.
    sender: JoinHandle<SocketAddr>,
    receiver: JoinHandle<Received>,
    progress: Arc<AtomicU64>,
    /// The receiver was called.
    called: bool,
}

/// What came.
#[derive(Clone, Copy, Debug)]
struct Received {
    /// Where the connection comes from, as the one who was called sees it.
    from: SocketAddr,
    bytes: u64,
    /// The longest time without any.
    longest_pause: Duration,
}

impl Transfer {
    /// Sends `bytes` from `from` to `address` on `to`, at most `rate` bytes per second.
    pub fn start(from: &Host, to: &Host, address: IpAddr, bytes: u64, rate: u64) -> Self {
        Self::start_translated(from, to, (address, address), bytes, rate)
    }

    /// As [`start`](Self::start), with a NAT on the way that translates the second address to the
    /// first.
    pub fn start_translated(
        from: &Host,
        to: &Host,
        (address, called): (IpAddr, IpAddr),
        bytes: u64,
        rate: u64,
    ) -> Self {
        Self::between((from, call), (to, move || listen(address)), called, bytes, rate)
    }

    /// As [`start`](Self::start), by Multipath TCP (RFC 8684).
    pub fn start_mptcp(from: &Host, to: &Host, address: IpAddr, bytes: u64, rate: u64) -> Self {
        use rustix::net::{AddressFamily, SocketType, bind, connect, ipproto, listen, socket};
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let open = move || {
            socket(family, SocketType::STREAM, Some(ipproto::MPTCP)).expect("the kernel has it")
        };
        // Subflows to the host's other addresses arrive at the same listener.
        let any: SocketAddr =
            if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().expect("valid");
        let listening = move || {
            let socket = open();
            bind(&socket, &any).expect("a free port");
            listen(&socket, 1).expect("bound");
            TcpListener::from(socket)
        };
        let connected = move |address: SocketAddr| {
            let socket = open();
            connect(&socket, &address).expect("connect");
            TcpStream::from(socket)
        };
        Self::between((from, connected), (to, listening), address, bytes, rate)
    }

    fn between(
        (from, connect): (&Host, impl FnOnce(SocketAddr) -> TcpStream + Send + 'static),
        (to, listen): (&Host, impl FnOnce() -> TcpListener + Send + 'static),
        address: IpAddr,
        bytes: u64,
        rate: u64,
    ) -> Self {
        let listener = to.spawn(listen).join().expect("no panic");
        let port = listener.local_addr().expect("bound").port();
        let address = SocketAddr::new(address, port);
        let progress = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&progress);
        let receiver = to.spawn(move || {
            let (stream, caller) = listener.accept().expect("a connection");
            Received { from: caller, ..receive(stream, &counter) }
        });
        let sender = from.spawn(move || {
            let stream = connect(address);
            let own = stream.local_addr().expect("connected");
            send(stream, bytes, rate);
            own
        });
        Self { bytes, sender, receiver, progress, called: true }
    }

    /// As [`start`](Self::start), but `to` calls `from`, which has `address`.
    pub fn fetch(from: &Host, to: &Host, address: IpAddr, bytes: u64, rate: u64) -> Self {
        let listener = from.spawn(move || listen(address)).join().expect("no panic");
        let address = listener.local_addr().expect("bound");
        let progress = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&progress);
        let sender = from.spawn(move || {
            let (stream, caller) = listener.accept().expect("a connection");
            send(stream, bytes, rate);
            caller
        });
        let receiver = to.spawn(move || receive(call(address), &counter));
        Self { bytes, sender, receiver, progress, called: false }
    }

    /// Bytes received so far.
    pub fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Waits until this much has arrived.
    pub fn wait_for(&self, bytes: u64) {
        wait_for("progress of a transfer", Duration::from_secs(30), || self.progress() >= bytes);
    }

    /// Waits until everything has arrived. Returns the source of the connection as its listener
    /// sees it.
    pub fn finish(self) -> SocketAddr {
        let from = self.sender.join().expect("the sender sent everything");
        let received = self.receiver.join().expect("every byte was right");
        assert_eq!(received.bytes, self.bytes);
        assert!(received.longest_pause < HANG, "{received:?}");
        if self.called { received.from } else { from }
    }
}

fn listen(address: IpAddr) -> TcpListener {
    TcpListener::bind((address, 0)).expect("the host has the address")
}

fn call(address: SocketAddr) -> TcpStream {
    TcpStream::connect_timeout(&address, Duration::from_secs(5)).expect("connect")
}

fn send(mut stream: TcpStream, bytes: u64, rate: u64) {
    stream.set_write_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    let start = Instant::now();
    let mut buffer = vec![0; 64 << 10];
    let mut sent = 0;
    while sent < bytes {
        let len = usize::try_from(bytes - sent).unwrap_or(usize::MAX).min(buffer.len());
        for (byte, position) in buffer[..len].iter_mut().zip(sent..) {
            *byte = pattern(position);
        }
        stream.write_all(&buffer[..len]).expect("the transfer goes on");
        sent += len as u64;
        let due = Duration::from_secs_f64(sent as f64 / rate as f64);
        thread::sleep(due.saturating_sub(start.elapsed()));
    }
}

fn receive(mut stream: TcpStream, progress: &AtomicU64) -> Received {
    let from = stream.local_addr().expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    let start = Instant::now();
    let (mut bytes, mut last, mut longest_pause) = (0, start, Duration::ZERO);
    let mut buffer = vec![0; 256 << 10];
    loop {
        let len = stream.read(&mut buffer).expect("the transfer goes on");
        let now = Instant::now();
        longest_pause = longest_pause.max(now - last);
        last = now;
        if len == 0 {
            return Received { from, bytes, longest_pause };
        }
        for (byte, position) in buffer[..len].iter().zip(bytes..) {
            assert_eq!(*byte, pattern(position), "at byte {position}");
        }
        bytes += len as u64;
        progress.store(bytes, Ordering::Relaxed);
    }
}
