//! Builds the topology of a scenario on a real kernel: a network namespace for each host, and a
//! links process ([`links`](crate::links)) between them.
//!
//! An interface of a host is a TAP device whose other end the links process holds. Addresses have
//! no on-link prefix. Each interface has a routing table, chosen by source address, with the remote
//! addresses that its links reach and nothing else. So a socket bound to an address uses the
//! interface of that address, and pairs of addresses without a link between them fail at once.

use std::io::{self, BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::command;
use crate::links::{Record, Setup, device_name, hardware_address};
use crate::netns::Namespace;
use crate::scenario::Scenario;

/// Real-time priority of the links process. Traffic generators have ordinary priority.
const EMULATOR_PRIORITY: &str = "50";

/// How many topologies this process has built. Those that are there at once need different names.
static BUILT: AtomicU32 = AtomicU32::new(0);

/// The links process.
struct LinksProcess {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl LinksProcess {
    fn start(namespace: &Namespace, setup: &Setup) -> io::Result<Self> {
        let program = command::own_program();
        let worker = if setup.netem { "netem" } else { "emulate" };
        // At real-time priority if that is permitted. The accuracy is recorded either way.
        let script = format!(
            "if chrt -f {EMULATOR_PRIORITY} true 2>/dev/null; \
             then exec chrt -f {EMULATOR_PRIORITY} '{program}' {worker}; \
             else exec '{program}' {worker}; fi"
        );
        let line = namespace.inside(&["sh", "-c", &script]);
        let mut child = Command::new(&line[0])
            .args(&line[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let missing = || io::Error::other("the links process has no standard input or output");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let mut process = Self { child, stdin, stdout };
        writeln!(process.stdin, "{}", serde_json::to_string(setup)?)?;
        let answer = process.line()?;
        if answer.trim() != "ready" {
            let reason = answer.trim();
            return Err(io::Error::other(match setup.netem {
                true => format!("no links: {reason}"),
                false => format!("the emulator did not start: {reason:?}"),
            }));
        }
        Ok(process)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line)
    }
}

impl Drop for LinksProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The topology of a scenario. Dropping it removes everything.
pub(crate) struct Testbed {
    scenario: Scenario,
    process: LinksProcess,
    hosts: Vec<(String, Namespace)>,
    _network: Namespace,
}

impl Testbed {
    /// Builds the topology of the scenario in `setup`.
    pub(crate) fn build(scenario: &Scenario, setup: &Setup) -> io::Result<Self> {
        let number = BUILT.fetch_add(1, Ordering::Relaxed);
        let create = |name: &str| Namespace::create(&format!("{number}-{name}"));
        let network = create("net")?;
        let process = LinksProcess::start(&network, setup)?;
        let hosts = scenario
            .hosts()
            .iter()
            .map(|host| Ok(((*host).to_owned(), create(host)?)))
            .collect::<io::Result<Vec<_>>>()?;
        let testbed = Self { scenario: scenario.clone(), process, hosts, _network: network };
        for (_, host) in &testbed.hosts {
            host.sysctl(&[
                ("net.ipv4.tcp_no_metrics_save", "1"),
                ("net.ipv4.conf.all.rp_filter", "0"),
                ("net.ipv4.conf.default.rp_filter", "0"),
                ("net.ipv4.conf.all.arp_ignore", "1"),
                ("net.ipv4.conf.all.arp_announce", "2"),
                ("net.ipv6.conf.all.accept_ra", "0"),
                ("net.ipv6.conf.default.accept_ra", "0"),
                ("net.ipv6.conf.default.addr_gen_mode", "1"),
            ])?;
        }
        for (port, interface) in testbed.scenario.interfaces.iter().enumerate() {
            let host = testbed.host(&interface.host)?;
            let (device, name) = (device_name(port), interface.name.as_str());
            testbed._network.ip(&["link", "set", "dev", &device, "netns", host.name()])?;
            let mac = mac(port);
            let mtu = interface.mtu.to_string();
            host.ip(&["link", "set", "dev", &device, "name", name, "address", &mac, "mtu", &mtu])?;
            testbed.add_address(port)?;
            host.ip(&["link", "set", "dev", name, "up"])?;
        }
        for port in 0..testbed.scenario.interfaces.len() {
            let interface = &testbed.scenario.interfaces[port];
            let host = testbed.host(&interface.host)?;
            let (address, table) = (interface.address.to_string(), table(port));
            host.ip(&[
                family(interface.address),
                "rule",
                "add",
                "from",
                &address,
                "table",
                &table,
            ])?;
            testbed.add_routes(port)?;
        }
        for router in &testbed.scenario.routers {
            let host = testbed.host(&router.host)?;
            host.sysctl(&[("net.ipv4.ip_forward", "1"), ("net.ipv6.conf.all.forwarding", "1")])?;
            host.run(&["sh", "-ec", &router.setup])?;
        }
        Ok(testbed)
    }

    /// Adds the routes and neighbours of an interface. Needed again after it was down.
    pub(crate) fn add_routes(&self, port: usize) -> io::Result<()> {
        let interface = &self.scenario.interfaces[port];
        let host = self.host(&interface.host)?;
        let (name, own) = (interface.name.as_str(), interface.address.to_string());
        let (table, family) = (table(port), family(interface.address));
        host.ip(&[family, "route", "replace", "unreachable", "default", "table", &table])?;
        for (other, peer) in self.scenario.interfaces.iter().enumerate() {
            let same_family = peer.address.is_ipv4() == interface.address.is_ipv4();
            if peer.host == interface.host || !same_family {
                continue;
            }
            let Some(path) = self.scenario.path(port, other) else { continue };
            let through_router = path.next != other;
            if through_router && peer.private {
                continue;
            }
            let next = &self.scenario.interfaces[path.next];
            let (next_address, mac) = (next.address.to_string(), mac(path.next));
            let via: &[&str] = if through_router { &["via", &next_address, "onlink"] } else { &[] };
            let far = prefix(peer.address);
            let route = [&["route", "replace", &far], via, &["dev", name, "src", &own]].concat();
            host.ip(&[&[family], &route[..], &["table", &table]].concat())?;
            // Prefers the interface with the same name, then the first in the file.
            let metric = if peer.name == interface.name { 10 } else { 100 + port };
            host.ip(&[&[family], &route[..], &["metric", &metric.to_string()]].concat())?;
            host.ip(&[
                "neigh",
                "replace",
                &next_address,
                "lladdr",
                &mac,
                "dev",
                name,
                "nud",
                "permanent",
            ])?;
        }
        Ok(())
    }

    /// Sets an interface down or up, as `ip link set` does.
    pub(crate) fn set_interface(&self, port: usize, up: bool) -> io::Result<()> {
        let interface = &self.scenario.interfaces[port];
        let host = self.host(&interface.host)?;
        host.ip(&["link", "set", "dev", &interface.name, if up { "up" } else { "down" }])?;
        if up { self.set_address(port, true) } else { Ok(()) }
    }

    /// Removes the address of an interface, or adds it with its routes.
    pub(crate) fn set_address(&self, port: usize, there: bool) -> io::Result<()> {
        if there {
            self.add_address(port)?;
            return self.add_routes(port);
        }
        let interface = &self.scenario.interfaces[port];
        let address = prefix(interface.address);
        let host = self.host(&interface.host)?;
        host.ip(&["addr", "del", &address, "dev", &interface.name]).map(drop)
    }

    /// Adds the address of an interface. An IPv6 address is lost when the interface goes down.
    fn add_address(&self, port: usize) -> io::Result<()> {
        let interface = &self.scenario.interfaces[port];
        let address = prefix(interface.address);
        let nodad: &[&str] = if interface.address.is_ipv6() { &["nodad"] } else { &[] };
        let line = [&["addr", "replace", &address, "dev", &interface.name], nodad].concat();
        self.host(&interface.host)?.ip(&line).map(drop)
    }

    /// The namespace of a host.
    pub(crate) fn host(&self, name: &str) -> io::Result<&Namespace> {
        self.hosts
            .iter()
            .find(|(host, _)| host == name)
            .map(|(_, namespace)| namespace)
            .ok_or_else(|| io::Error::other(format!("no host named {name:?}")))
    }

    pub(crate) fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Starts the schedule and the counters.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        writeln!(self.process.stdin, "start")
    }

    /// Applies an event to the links after its interfaces have gone down.
    pub(crate) fn follow(&mut self, event: usize) -> io::Result<()> {
        writeln!(self.process.stdin, "event {event}")
    }

    /// Ends the links process. Returns its record, and how many frames the hosts' devices dropped
    /// because it did not read them in time.
    pub(crate) fn stop(mut self) -> io::Result<(Record, u64)> {
        let mut overrun = 0;
        for interface in &self.scenario.interfaces {
            let file = format!("/sys/class/net/{}/statistics/tx_dropped", interface.name);
            let host = self.host(&interface.host)?;
            // sysfs shows the namespace in which it was mounted. `ip netns exec` mounts it again.
            overrun += host.run(&["cat", &file])?.trim().parse::<u64>().unwrap_or(0);
        }
        writeln!(self.process.stdin, "stop")?;
        let line = self.process.line()?;
        let record = serde_json::from_str(&line)?;
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.process.child.try_wait()?.is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok((record, overrun))
    }
}

fn mac(port: usize) -> String {
    let bytes = hardware_address(port).map(|byte| format!("{byte:02x}"));
    bytes.join(":")
}

fn table(port: usize) -> String {
    (1000 + port).to_string()
}

fn prefix(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "-4" } else { "-6" }
}
