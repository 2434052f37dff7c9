//! The network of the demonstration, and how it goes away again.
//!
//! Namespaces have fixed names, so a start can remove what a killed run left. An abstract Unix
//! socket makes sure that only one demonstration runs; it leaves no file. A guard process, in a
//! process group of its own so that no Ctrl-C reaches it, waits for the end of this process,
//! however it ends, and removes everything that is left. It shares the lock until then.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::interrupt::Interrupt;
use crate::{command, netns};

/// The sending host.
pub(super) const HOST_A: &str = "mpip-demo-a";
/// The receiving host.
pub(super) const HOST_B: &str = "mpip-demo-b";
const SWITCH: &str = "mpip-demo-sw";
const DIRECTORY_PREFIX: &str = "mpip-demo-";
const LOCK: &[u8] = b"mpip-demo";
/// How long the guard of a killed run may take.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Rate of every link in each direction, bit/s, as in [`SHAPING`].
pub(super) const LINK_RATE: f64 = 100e6;
const SHAPING: [&str; 7] = ["tbf", "rate", "100mbit", "burst", "32k", "latency", "50ms"];

/// A network interface of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nic {
    pub(super) name: &'static str,
    pub(super) address: &'static str,
    pub(super) host: &'static str,
    /// The switch's end of the cable.
    port: &'static str,
}

/// The interfaces of host A.
pub(super) const A: [Nic; 2] = [
    Nic { name: "a1", address: "198.18.0.1", host: HOST_A, port: "to-a1" },
    Nic { name: "a2", address: "198.18.0.2", host: HOST_A, port: "to-a2" },
];
/// The interfaces of host B.
pub(super) const B: [Nic; 2] = [
    Nic { name: "b1", address: "198.18.0.11", host: HOST_B, port: "to-b1" },
    Nic { name: "b2", address: "198.18.0.12", host: HOST_B, port: "to-b2" },
];

/// Number of paths from A to B.
pub(super) const PATHS: usize = A.len() * B.len();

/// The ends of a path.
pub(super) fn path_ends(path: usize) -> (Nic, Nic) {
    (A[path / B.len()], B[path % B.len()])
}

/// The path between two addresses.
pub(super) fn path_between(local: &str, remote: &str) -> Option<usize> {
    (0..PATHS).find(|path| {
        let (a, b) = path_ends(*path);
        a.address == local && b.address == remote
    })
}

/// The right to run the demonstration on this machine.
pub(super) struct Lock(UnixListener);

impl Lock {
    /// Takes it; waits for a killed run's guard to finish.
    pub(super) fn take(interrupt: &Interrupt) -> io::Result<Self> {
        let address = SocketAddr::from_abstract_name(LOCK)?;
        let deadline = Instant::now() + LOCK_WAIT;
        loop {
            match UnixListener::bind_addr(&address) {
                Ok(listener) => return Ok(Self(listener)),
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
                Err(_) if Instant::now() >= deadline => {
                    return Err(io::Error::other("another demonstration runs on this machine"));
                }
                Err(_) => interrupt.sleep(Duration::from_millis(50))?,
            }
        }
    }

    /// Starts the guard process; it acts when the result is dropped or this process ends.
    pub(super) fn start_guard(&self) -> io::Result<ChildStdin> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["demo-part", "guard"])
            .stdin(Stdio::piped())
            .stdout(Stdio::from(OwnedFd::from(self.0.try_clone()?)))
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        child.stdin.take().ok_or_else(|| io::Error::other("the guard process has no input"))
    }
}

/// The guard process: waits for the end of its parent and removes what is left.
pub(super) fn guard() -> io::Result<()> {
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    clean()
}

/// Removes namespaces with the processes in them, and temporary directories.
pub(super) fn clean() -> io::Result<()> {
    let list = command::run(&["ip", "netns", "list"])?;
    for name in list.lines().filter_map(|line| line.split_whitespace().next()) {
        if [HOST_A, HOST_B, SWITCH].contains(&name) {
            end_processes(name);
            command::run(&["ip", "netns", "del", name])?;
        }
    }
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(std::env::temp_dir())?.flatten() {
        let ours = entry.file_name().to_str().is_some_and(is_our_directory);
        // Does not follow links.
        if ours && entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == user) {
            netns::remove_directory(&entry.path())?;
        }
    }
    Ok(())
}

fn is_our_directory(name: &str) -> bool {
    let number = name.strip_prefix(DIRECTORY_PREFIX).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn end_processes(namespace: &str) {
    for signal in [Signal::TERM, Signal::KILL, Signal::KILL] {
        let Ok(list) = command::run(&["ip", "netns", "pids", namespace]) else { return };
        let pids = list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
        let pids: Vec<Pid> = pids.collect();
        if pids.is_empty() {
            return;
        }
        for pid in pids {
            let _ = rustix::process::kill_process(pid, signal);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The network and a temporary directory. Dropping it removes both.
pub(super) struct World {
    directory: PathBuf,
}

impl World {
    /// Builds everything, after removing what earlier runs left. The caller holds the [`Lock`].
    pub(super) fn build(interrupt: &Interrupt) -> io::Result<Self> {
        clean()?;
        let name = format!("{DIRECTORY_PREFIX}{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let world = Self { directory };
        for name in [HOST_A, HOST_B, SWITCH] {
            command::run(&["ip", "netns", "add", name])?;
            ip(name, "link set lo up")?;
        }
        for host in [HOST_A, HOST_B] {
            prepare_host(host)?;
        }
        ip(SWITCH, "link add name switch type bridge")?;
        ip(SWITCH, "link set switch up")?;
        for (index, nic) in A.iter().chain(&B).enumerate() {
            interrupt.check()?;
            attach(nic, 101 + index)?;
        }
        Ok(world)
    }

    /// Holds keys, configurations, sockets and the file that is copied.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Pulls the cable of an interface out of the switch, or puts it in. `silently` nothing
    /// passes but the interface keeps its carrier, as when the cable is one behind the switch.
    pub(super) fn plug(&self, nic: Nic, plugged: bool, silently: bool) -> io::Result<()> {
        let port = nic.port;
        ip(
            SWITCH,
            &match (silently, plugged) {
                (false, true) => format!("link set {port} up"),
                (false, false) => format!("link set {port} down"),
                (true, true) => format!("link set {port} master switch"),
                (true, false) => format!("link set {port} nomaster"),
            },
        )
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Err(error) = clean() {
            eprintln!("mpip-lab: cleaning up: {error}");
        }
    }
}

/// Settings of a host with two interfaces in one network: each address answers and is used on
/// its own interface only.
fn prepare_host(host: &str) -> io::Result<()> {
    let settings = [
        ("net.ipv4.conf.all.arp_ignore", 1),
        ("net.ipv4.conf.all.arp_announce", 2),
        ("net.ipv4.conf.all.rp_filter", 0),
        ("net.ipv4.conf.default.rp_filter", 0),
        // Each run starts without what the last one learned of the links.
        ("net.ipv4.tcp_no_metrics_save", 1),
        ("net.ipv6.conf.default.addr_gen_mode", 1),
    ];
    let mut script = String::new();
    for (key, value) in settings {
        let file = format!("/proc/sys/{}", key.replace('.', "/"));
        script += &format!("[ ! -e {file} ] || echo {value} > {file} || exit 1\n");
    }
    command::run(&inside(host, &["sh", "-c", &script])).map(drop)
}

/// Connects an interface to the switch, shaped in both directions.
fn attach(nic: &Nic, table: usize) -> io::Result<()> {
    let Nic { name, address, host, port } = nic;
    ip(SWITCH, &format!("link add {port} type veth peer name {name} netns {host}"))?;
    ip(SWITCH, &format!("link set {port} master switch up"))?;
    ip(host, &format!("addr add {address}/24 dev {name}"))?;
    ip(host, &format!("link set {name} up"))?;
    ip(host, &format!("rule add from {address} table {table}"))?;
    ip(host, &format!("route add 198.18.0.0/24 dev {name} src {address} table {table}"))?;
    for (namespace, device) in [(*host, *name), (SWITCH, *port)] {
        let line = ["tc", "-n", namespace, "qdisc", "add", "dev", device, "root"];
        command::run(&[&line[..], &SHAPING[..]].concat())?;
    }
    Ok(())
}

/// Runs `ip` in a namespace.
pub(super) fn ip(namespace: &str, arguments: &str) -> io::Result<()> {
    let line = ["ip", "-n", namespace].into_iter().chain(arguments.split_whitespace());
    command::run(&line.collect::<Vec<_>>()).map(drop)
}

/// `arguments` as a command that runs in a namespace.
pub(super) fn inside(namespace: &str, arguments: &[impl AsRef<str>]) -> Vec<OsString> {
    let enter = ["ip", "netns", "exec", namespace].map(OsString::from);
    enter.into_iter().chain(arguments.iter().map(|word| word.as_ref().into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_addresses_is_a_path() {
        let all: Vec<_> = (0..PATHS).map(path_ends).collect();
        for (a, b) in &all {
            assert_eq!(all.iter().filter(|ends| *ends == &(*a, *b)).count(), 1);
            let path = path_between(a.address, b.address).expect("a path");
            assert_eq!(path_ends(path), (*a, *b));
        }
        assert_eq!(path_between(B[0].address, A[0].address), None);
    }

    #[test]
    fn only_numbered_directories_are_ours() {
        assert!(is_our_directory("mpip-demo-123"));
        for name in ["mpip-demo-", "mpip-demo-a", "mpip-demo-1.txt", "mpip-123", "123"] {
            assert!(!is_our_directory(name), "{name}");
        }
    }
}
