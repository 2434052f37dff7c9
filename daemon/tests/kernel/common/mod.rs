//! Hosts as network namespaces, links as veth pairs between them, a daemon on each, and transfers.
//!
//! Everything goes when its guard is dropped, also when a test fails.

mod daemon;
pub(crate) mod host_mode;
pub(crate) mod nat;
pub(crate) mod reloadable;
mod transfer;
pub(crate) mod world;

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub(crate) use daemon::{Configuration, Daemon, key};
pub(crate) use mpip_testing::Directory;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
pub(crate) use transfer::Transfer;

/// Runs a program; its failure fails the test.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
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
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// Waits until `condition` holds; fails if it does not before [`HANG`] has passed.
pub(crate) fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    assert!(soon(condition), "not within {HANG:?}: {what}");
}

/// Waits until `condition` holds; whether it did before [`HANG`] has passed.
pub(crate) fn soon(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() >= HANG {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Runs a test for each of `cases`, beside each other.
pub(crate) fn for_each<T: Send>(cases: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
    thread::scope(|scope| {
        let test = &test;
        let running = cases.into_iter().map(|case| scope.spawn(move || test(case)));
        for one in running.collect::<Vec<_>>() {
            one.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

/// A name that nothing else has in this program or in another one that runs.
fn unique(test: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("mpip-d-{}-{number}-{test}", std::process::id())
}

/// A host.
pub(crate) struct Host {
    pub(crate) name: String,
}

impl Host {
    pub(crate) fn new(test: &str, letter: &str) -> Self {
        let name = format!("{}-{letter}", unique(test));
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
    pub(crate) fn ip(&self, arguments: &[&str]) -> String {
        run("ip", &[&["-n", self.name.as_str()], arguments].concat())
    }

    /// Renames an interface that is up. Says that the test is skipped, and returns `false`, where
    /// the kernel does not do that.
    pub(crate) fn rename(&self, interface: &str, name: &str) -> bool {
        let arguments = ["-n", &self.name, "link", "set", interface, "name", name];
        let done = output("ip", &arguments).status.success();
        if !done {
            mpip_testing::skip_always("needs Linux 6.2, which renames interfaces that are up");
        }
        done
    }

    /// Sets a kernel parameter of this host, named by its path below /proc/sys.
    pub(crate) fn sysctl(&self, name: &str, value: &str) {
        let (file, value) = (format!("/proc/sys/{name}"), value.to_owned());
        self.spawn(move || fs::write(file, value)).join().expect("no panic").expect("a parameter");
    }

    /// Adds a ruleset for nft on this host.
    pub(crate) fn nft(&self, ruleset: &str) {
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
    pub(crate) fn nft_output(&self, arguments: &[&str]) -> String {
        run("ip", &[&["netns", "exec", &self.name, "nft"], arguments].concat())
    }

    /// A counter of /proc/net/snmp on this host.
    pub(crate) fn snmp(&self, group: &str, name: &str) -> u64 {
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
    pub(crate) fn transmitted(&self, interface: &str, statistic: &str) -> u64 {
        let file = format!("/sys/class/net/{interface}/statistics/{statistic}");
        run("ip", &["netns", "exec", &self.name, "cat", &file]).trim().parse().expect("a number")
    }

    /// Takes a port of this host, which `bind` binds a socket to.
    pub(crate) fn take<S>(&self, bind: fn() -> io::Result<S>) -> Taken<'_, S>
    where
        S: Send + 'static,
    {
        let socket = self.spawn(bind).join().expect("no panic").expect("a free port");
        Taken { host: self, bind, socket }
    }

    /// Runs `f` in a thread on this host.
    pub(crate) fn spawn<T: Send + 'static>(
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
    pub(crate) fn ping(&self, address: &str, count: u16) -> bool {
        self.ping_with(address, count, 56)
    }

    /// As [`ping`](Self::ping), with so many bytes of payload.
    pub(crate) fn ping_with(&self, address: &str, count: u16, payload: usize) -> bool {
        let address: IpAddr = address.parse().expect("valid");
        let ping = move || {
            let answered = |sequence| soon(|| echo(address, sequence, payload, None));
            (1..=count).all(answered)
        };
        self.spawn(ping).join().expect("no panic")
    }

    /// Pings `address` once; whether it was answered within a second. For what is not to be
    /// answered.
    pub(crate) fn ping_once(&self, address: &str) -> bool {
        self.ping_once_with(address, 56)
    }

    /// As [`ping_once`](Self::ping_once), with so many bytes of payload.
    pub(crate) fn ping_once_with(&self, address: &str, payload: usize) -> bool {
        let address: IpAddr = address.parse().expect("valid");
        self.spawn(move || echo(address, 1, payload, None)).join().expect("no panic")
    }

    /// Sends a ping to `address`, if the kernel does not refuse that, and waits for nothing.
    pub(crate) fn send_ping(&self, address: &str) -> Option<Echo> {
        let address: IpAddr = address.parse().expect("valid");
        self.spawn(move || Echo::send(address, 1, 56, None)).join().expect("no panic")
    }

    /// Pings `address` once so that no more than `hops` routers are passed; whether it was
    /// answered.
    pub(crate) fn ping_within(&self, address: &str, hops: u8) -> bool {
        let address: IpAddr = address.parse().expect("valid");
        self.spawn(move || echo(address, 1, 56, Some(hops))).join().expect("no panic")
    }
}

/// A port that a test has taken.
pub(crate) struct Taken<'a, S> {
    host: &'a Host,
    bind: fn() -> io::Result<S>,
    socket: S,
}

impl<S: Send + 'static> Taken<'_, S> {
    /// Gives it back. Children of other tests have the socket, too, until their execve(2).
    pub(crate) fn release(self) {
        let Self { host, bind, socket } = self;
        drop(socket);
        wait_for("the port is free", || host.spawn(bind).join().expect("no panic").is_ok());
    }
}

/// Sets the TTL, or hop limit, of what a socket sends to `address`.
pub(crate) fn set_hops(socket: &UdpSocket, address: IpAddr, hops: u8) {
    use rustix::net::sockopt::{set_ip_ttl, set_ipv6_unicast_hops};
    let set = match address {
        IpAddr::V4(_) => set_ip_ttl(socket, hops.into()),
        IpAddr::V6(_) => set_ipv6_unicast_hops(socket, Some(hops)),
    };
    set.expect("a number of hops");
}

/// An echo request that was sent, and its answer (icmp(7)).
pub(crate) struct Echo {
    socket: UdpSocket,
    answer: Vec<u8>,
}

impl Echo {
    /// Sends one from the network namespace of the calling thread, unless the kernel refuses that.
    fn send(address: IpAddr, sequence: u16, payload: usize, hops: Option<u8>) -> Option<Self> {
        use rustix::net::{AddressFamily, SocketType, ipproto, socket};
        let (family, protocol, request, reply) = match address {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, 8, 0),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, 128, 129),
        };
        let socket = socket(family, SocketType::DGRAM, Some(protocol)).expect("allowed by sysctl");
        let socket = UdpSocket::from(socket);
        if let Some(hops) = hops {
            set_hops(&socket, address, hops);
        }
        socket.connect((address, 0)).ok()?;
        let [high, low] = sequence.to_be_bytes();
        let mut packet = vec![request, 0, 0, 0, 0, 0, high, low];
        packet.extend(transfer::pattern(0, payload));
        socket.send(&packet).ok()?;
        packet[0] = reply;
        Some(Self { socket, answer: packet })
    }

    /// Waits for the answer; whether it is right.
    fn is_answered_within(&self, time: Duration) -> bool {
        self.socket.set_read_timeout(Some(time)).expect("a time-out");
        let mut buffer = vec![0; self.answer.len() + 1];
        self.socket.recv(&mut buffer).is_ok_and(|len| {
            // The kernel writes the checksum and the identifier.
            let (found, expected) = (&buffer[..len], &self.answer);
            len == expected.len() && found[0] == expected[0] && found[6..] == expected[6..]
        })
    }

    /// Whether the answer is there by now.
    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered_within(Duration::from_millis(1))
    }
}

/// Sends an echo request; whether it is answered within a second.
fn echo(address: IpAddr, sequence: u16, payload: usize, hops: Option<u8>) -> bool {
    let sent = Echo::send(address, sequence, payload, hops);
    sent.is_some_and(|echo| echo.is_answered_within(Duration::from_secs(1)))
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = output("ip", &["netns", "del", &self.name]);
    }
}

/// Two hosts with `links` veth pairs between them: `eth0`, `eth1` … on both, numbered
/// 198.18.N.1 and .2, and 2001:db8:N::1 and ::2.
pub(crate) fn two_hosts(test: &str, links: u8, families: &[Family]) -> (Host, Host) {
    let (a, b) = (Host::new(test, "a"), Host::new(test, "b"));
    for link in 0..links {
        add_link(&a, &b, link, families);
    }
    (a, b)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// Adds link number `link` between the hosts.
pub(crate) fn add_link(a: &Host, b: &Host, link: u8, families: &[Family]) {
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
