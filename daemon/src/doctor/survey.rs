//! The state of the host, gathered once for all checks.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use mpip_api::{Client, ClientError, PeerAnswer, Status};
use mpip_net::netlink::{
    DefaultRoute, HostAddress, Link, Netlink, NetlinkError, Question, Route, RuleEntry,
};
use mpip_net::udp::Granted;
use mpip_net::{clock, privileges};

use super::ruleset::Ruleset;
use super::sockets::{self, OpenPort};
use super::subject::Subject;
use crate::config::{self, ConfigError, Settings};
use crate::kernel::IGNORES_SINKS;
use crate::local::{LocalAddresses, SOCKET_BUFFER};
use crate::record::Record;

/// Kernel parameters that the checks use, by their path below /proc/sys.
const PARAMETERS: [&str; 3] = ["net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem", IGNORES_SINKS];

/// Addresses on the Internet, of no host (RFC 5737, RFC 3849). Only routes are asked about them.
const SOMEWHERE: [(&str, IpAddr); 2] = [
    ("IPv4", IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
    ("IPv6", IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1))),
];

/// Longest wait for a peer: the daemon tries several of its addresses.
const ASKED: Duration = Duration::from_secs(30);

/// Resolvers of programs, and those that systemd-resolved asks for them.
const RESOLVERS: &str = "/etc/resolv.conf";
const RESOLVED: &str = "/run/systemd/resolve/resolv.conf";

/// What to examine.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The configuration; `None` for that of the running daemon.
    pub config: Option<PathBuf>,
    /// The control socket; `None` for the one that the configuration names.
    pub socket: Option<PathBuf>,
    /// The peer to ask for what it sees, too: its name, or `Some(None)` for the only one.
    pub peer: Option<Option<String>>,
}

/// Whether a daemon answers on the control socket.
#[derive(Debug)]
pub(super) enum Running {
    Yes(Box<Status>),
    /// Nobody listens there, or no socket is known.
    No,
    /// There may be a daemon, but it does not answer.
    Silent(ClientError),
}

impl Running {
    pub(super) fn status(&self) -> Option<&Status> {
        match self {
            Self::Yes(status) => Some(status),
            _ => None,
        }
    }
}

/// An address that paths start from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) link: u32,
    pub(super) interface: String,
    pub(super) address: IpAddr,
    /// Length of the on-link prefix, in bits.
    pub(super) prefix_len: u8,
}

/// How packets from one of this host's addresses get to one of a peer's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) start: Start,
    pub(super) destination: IpAddr,
    /// Index of the interface by which packets leave if their socket is not bound to one.
    pub(super) leaves_by: Option<u32>,
    /// Whether there is a route by the address's own interface.
    pub(super) by_its_own: bool,
}

/// A destination whose packets are captured, and the interface by which they leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Captured {
    pub(super) destination: IpAddr,
    pub(super) leaves_by: Option<u32>,
}

/// How packets for the Internet leave, of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outward {
    pub(super) family: &'static str,
    pub(super) leaves_by: Option<u32>,
}

/// A resolver of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolver {
    pub(super) address: IpAddr,
    /// Whether it is asked by the interface that it belongs to, whatever the routes say.
    pub(super) by_interface: bool,
}

/// The state of the host.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) subject: Subject,
    pub(super) refused: Option<ConfigError>,
    pub(super) socket: Option<PathBuf>,
    pub(super) running: Running,
    /// Capabilities that the running daemon has, else those of this process (capabilities(7)).
    pub(super) capabilities: u64,
    /// Result of opening the TUN driver.
    pub(super) tun: io::Result<()>,
    /// Release of the kernel.
    pub(super) kernel: String,
    pub(super) granted: Option<Granted>,
    /// Whether this process may configure the network.
    pub(super) privileged: bool,
    /// The wall clock, since the Unix epoch.
    pub(super) unix_time: Duration,
    /// Time of the last change of configuration and pins, since the Unix epoch.
    pub(super) newest_file: Duration,
    pub(super) udp: Vec<OpenPort>,
    pub(super) tcp: Vec<OpenPort>,
    pub(super) ruleset: Option<Ruleset>,
    pub(super) links: Vec<Link>,
    pub(super) starts: Vec<Start>,
    pub(super) rules: Vec<RuleEntry>,
    pub(super) default_routes: Vec<DefaultRoute>,
    pub(super) own_routes: Vec<Route>,
    pub(super) reach: Vec<Reach>,
    pub(super) captured: Vec<Captured>,
    /// How packets for the Internet leave, if a peer is to be their way.
    pub(super) outward: Vec<Outward>,
    pub(super) resolvers: Vec<Resolver>,
    /// Whether the host forwards, by IPv4 and by IPv6, if that is known.
    pub(super) forwarding: [Option<bool>; 2],
    /// File in which a daemon recorded the original values of forwarding, and its text.
    pub(super) forwarding_record: Option<(PathBuf, String)>,
    /// Values of the reverse path filters of the interfaces with paths, by name.
    pub(super) reverse_path: BTreeMap<String, u8>,
    /// Whether /proc/sys is read-only, so that nobody can change them.
    pub(super) sysctl_read_only: bool,
    /// File in which a daemon recorded the original filters, and its text.
    pub(super) reverse_path_record: Option<(PathBuf, String)>,
    pub(super) parameters: BTreeMap<&'static str, String>,
    /// What the peer sees, if it was asked and has answered.
    pub(super) answer: Option<Box<PeerAnswer>>,
    pub(super) not_checked: Vec<String>,
}

impl Survey {
    /// Gathers everything.
    pub(super) fn take(target: &Target) -> Self {
        let mut running = target.socket.as_deref().map_or(Running::No, ask);
        let file = target.config.clone().or_else(|| running.status().and_then(config_of));
        let loaded = file.as_deref().map(config::load);
        let (settings, refused) = match loaded {
            Some(Ok(settings)) => (Some(settings), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        let named = || file.as_deref().and_then(|file| config::control_socket(file).ok());
        let socket = target.socket.clone().or_else(named);
        if let (Running::No, Some(socket)) = (&running, &socket) {
            running = ask(socket);
        }
        let subject = settings.as_ref().map_or_else(Subject::default, Subject::of);
        let mut not_checked = Vec::new();
        if file.is_none() {
            not_checked.push("the configuration: none was given, and no daemon names one".into());
        }
        let process = running.status().map_or("self".to_owned(), |status| status.pid.to_string());
        let mut survey = Self {
            refused,
            running,
            capabilities: capabilities(&process),
            tun: fs::File::options().read(true).write(true).open(mpip_net::tun::DEVICE).map(drop),
            kernel: read("/proc/sys/kernel/osrelease"),
            granted: Granted::ask(SOCKET_BUFFER).ok(),
            privileged: privileges::has_net_admin().unwrap_or(false),
            unix_time: clock::unix_time(),
            newest_file: newest_file(settings.as_ref()),
            udp: sockets::open("udp"),
            tcp: sockets::open("tcp"),
            ruleset: ruleset(&mut not_checked),
            links: Vec::new(),
            starts: Vec::new(),
            rules: Vec::new(),
            default_routes: Vec::new(),
            own_routes: Vec::new(),
            reach: Vec::new(),
            captured: Vec::new(),
            outward: Vec::new(),
            resolvers: resolvers(),
            forwarding: crate::forwarding::forwards(),
            forwarding_record: socket
                .as_deref()
                .and_then(|socket| record(&crate::forwarding::record(socket))),
            reverse_path: BTreeMap::new(),
            sysctl_read_only: is_read_only(Path::new("/proc/sys/net/ipv4/conf/all/rp_filter")),
            reverse_path_record: socket
                .as_deref()
                .and_then(|socket| record(&crate::reverse_path::record(socket))),
            parameters: PARAMETERS
                .map(|name| (name, read(&format!("/proc/sys/{name}"))))
                .into_iter()
                .collect(),
            answer: target.peer.as_ref().and_then(|peer| {
                let answer = ask_peer(socket.as_deref(), peer.clone());
                answer.map_err(|reason| not_checked.push(format!("the other end: {reason}"))).ok()
            }),
            socket,
            subject,
            not_checked,
        };
        if let Err(error) = survey.read_network(settings.as_ref()) {
            survey.not_checked.push(format!("addresses, routes and rules: {error}"));
        }
        survey
    }

    fn read_network(&mut self, settings: Option<&Settings>) -> Result<(), NetlinkError> {
        let mut netlink = Netlink::new()?;
        self.links = netlink.links()?;
        let addresses = netlink.addresses()?;
        self.rules = netlink.rules()?;
        self.default_routes = netlink.default_routes()?;
        self.own_routes = netlink.own_routes()?;
        self.starts = starts(&self.subject, settings, &self.links, &addresses);
        for start in &self.starts {
            let strictness = crate::reverse_path::effective(&start.interface);
            self.reverse_path.insert(start.interface.clone(), strictness);
        }
        let mark = self.subject.host_mode.mark;
        let peers = self.peer_addresses();
        for start in &self.starts {
            let peers = peers.iter().copied();
            for destination in peers.filter(|peer| peer.is_ipv4() == start.address.is_ipv4()) {
                let source = Some(start.address);
                let free = Question { destination, source, mark, bound_to: None };
                let bound = Question { bound_to: Some(start.link), ..free };
                self.reach.push(Reach {
                    start: start.clone(),
                    destination,
                    leaves_by: netlink.way(free)?.map(|way| way.link),
                    by_its_own: netlink.way(bound)?.is_some(),
                });
            }
        }
        let peers = self.running.status().into_iter().flat_map(|status| &status.peers);
        let captured = peers.flat_map(|peer| &peer.captured);
        let hosts = captured.filter_map(|prefix| prefix.split('/').next()?.parse().ok());
        for destination in hosts.collect::<Vec<IpAddr>>() {
            let question = Question { destination, source: None, mark: 0, bound_to: None };
            let leaves_by = netlink.way(question)?.map(|way| way.link);
            self.captured.push(Captured { destination, leaves_by });
        }
        if self.subject.default_route {
            for (family, destination) in SOMEWHERE {
                let question = Question { destination, source: None, mark: 0, bound_to: None };
                let leaves_by = netlink.way(question)?.map(|way| way.link);
                self.outward.push(Outward { family, leaves_by });
            }
        }
        Ok(())
    }

    /// Addresses of peers: those of the configuration, and those that peers have told.
    fn peer_addresses(&self) -> Vec<IpAddr> {
        let paths = self.running.status().into_iter().flat_map(|status| &status.peers);
        let told = paths.flat_map(|peer| &peer.paths).map(|path| path.remote.ip());
        let mut addresses = self.subject.peer_addresses();
        addresses.extend(told);
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// The name of an interface.
    pub(super) fn link_name(&self, index: u32) -> &str {
        let link = self.links.iter().find(|link| link.index == index);
        link.map_or("?", |link| link.name.as_str())
    }
}

fn ask(socket: &Path) -> Running {
    match mpip_api::status(socket, false) {
        Ok(status) => Running::Yes(Box::new(status)),
        Err(error) if error.is_not_running() => Running::No,
        Err(error) => Running::Silent(error),
    }
}

/// Has the daemon ask its peer.
fn ask_peer(socket: Option<&Path>, peer: Option<String>) -> Result<Box<PeerAnswer>, String> {
    let socket = socket.ok_or("no control socket is known, so the daemon cannot ask the peer")?;
    let asked = Client::connect(socket).and_then(|mut client| {
        client.wait_up_to(ASKED)?;
        client.ask_peer(peer, None)
    });
    asked.map(Box::new).map_err(|error| error.to_string())
}

/// The configuration of a running daemon. Its path may be relative to the daemon's directory.
fn config_of(status: &Status) -> Option<PathBuf> {
    let directory = fs::read_link(format!("/proc/{}/cwd", status.pid)).unwrap_or_default();
    Some(directory.join(&status.config_file)).filter(|file| file.is_file())
}

/// Permitted capabilities of the process; 0 if they cannot be read.
fn capabilities(process: &str) -> u64 {
    let status = read(&format!("/proc/{process}/status"));
    let line = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default().trim().to_owned()
}

/// Whether the file system is read-only, whatever this user may write.
fn is_read_only(file: &Path) -> bool {
    let opened = fs::File::options().write(true).open(file);
    opened.is_err_and(|error| error.kind() == io::ErrorKind::ReadOnlyFilesystem)
}

/// Time of the last change of configuration and pins.
fn newest_file(settings: Option<&Settings>) -> Duration {
    let files = settings.into_iter().flat_map(|settings| {
        let pins = settings.opportunistic.as_ref().map(|settings| settings.pins_file.clone());
        [Some(settings.file.clone()), pins].into_iter().flatten()
    });
    let times = files.filter_map(|file| fs::metadata(file).ok()?.modified().ok());
    times.filter_map(|time| time.duration_since(UNIX_EPOCH).ok()).max().unwrap_or_default()
}

fn starts(
    subject: &Subject,
    settings: Option<&Settings>,
    links: &[Link],
    addresses: &[HostAddress],
) -> Vec<Start> {
    let ours = links.iter().find(|link| link.name == subject.interface);
    let local = settings.map(LocalAddresses::new).unwrap_or_default();
    let usable = local.usable(links, addresses, ours.map_or(0, |link| link.index));
    let starts = usable.into_iter().filter_map(|usable| {
        let same = |host: &&HostAddress| host.link == usable.link && host.address == usable.ip;
        let prefix_len = addresses.iter().find(same)?.prefix_len;
        let (link, interface, address) = (usable.link, usable.interface, usable.ip);
        Some(Start { link, interface, address, prefix_len })
    });
    starts.collect()
}

fn record(record: &Record) -> Option<(PathBuf, String)> {
    Some((record.file().to_owned(), record.read()?))
}

/// Who is asked for names.
fn resolvers() -> Vec<Resolver> {
    let direct = addresses_in(&read(RESOLVERS));
    // The stub of systemd-resolved (systemd-resolved.service(8)).
    let stub = direct.iter().any(|address| *address == Ipv4Addr::new(127, 0, 0, 53));
    let list = if stub { addresses_in(&read(RESOLVED)) } else { direct };
    list.into_iter().map(|address| Resolver { address, by_interface: stub }).collect()
}

/// The addresses in the text of a resolv.conf(5).
fn addresses_in(text: &str) -> Vec<IpAddr> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    lines.filter_map(|rest| rest.trim().split('%').next()?.parse().ok()).collect()
}

/// The host's packet filter, from `nft`.
fn ruleset(not_checked: &mut Vec<String>) -> Option<Ruleset> {
    let legacy =
        ["ip", "ip6"].map(|family| read(&format!("/proc/thread-self/net/{family}_tables_names")));
    if legacy.iter().any(|tables| tables.lines().any(|table| table == "filter")) {
        not_checked.push("the firewall's rules in iptables-legacy, which nft does not show".into());
    }
    let output = match Command::new("nft").args(["-j", "list", "ruleset"]).output() {
        Ok(output) if output.status.success() => output.stdout,
        Ok(output) => {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            not_checked.push(format!("the firewall: nft says: {words}"));
            return None;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            not_checked.push("the firewall: the program nft is not installed".into());
            return None;
        }
        Err(error) => {
            not_checked.push(format!("the firewall: cannot run nft: {error}"));
            return None;
        }
    };
    let ruleset = Ruleset::parse(&String::from_utf8_lossy(&output));
    if ruleset.is_none() {
        not_checked.push("the firewall: what nft prints is no JSON that this release knows".into());
    }
    ruleset
}
