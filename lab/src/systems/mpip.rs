//! mpip between the two hosts, with the daemon and the front end of this workspace.
//!
//! - `mpip`: through a tunnel device with addresses of its own
//! - `mpip host`: host mode, with the hosts' own addresses, as the system of seeds 000 and 001
//! - `mpip+mptcp`: MPTCP above host mode. Each of its subflows uses all paths of mpip (seed 000,
//!   section 3.8.4); through the tunnel it would have one address at each end, and so one subflow.
//!
//! Settings of a `[system]` table:
//!
//! - `host_mode`: whether `mpip` uses host mode
//! - `gateway`: the host of the other daemon, if that is not where the traffic ends: the way to
//!   everything for the client, which loses its plain routes to where the traffic ends
//! - `clock`: see [`ClockSetting`]
//! - `program`: the path of the daemon, instead of this workspace's
//! - `rules`: an array of tables, as in the daemon's configuration
//! - `loss_thresholds`: a table of `loss_threshold` by the name of the interface
//! - `node`, `interface`: tables merged into those of the daemon's configuration
//! - every other key, for instance `scheduler`, goes into the daemon's `[[peer]]` table

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::mptcp;
use super::running::Running;
use crate::command;
use crate::estimates::{Watch, is_download};
use crate::flow::FlowResult;
use crate::scenario::{System, Traffic};
use crate::subject::{ClockSetting, ends, first_address};
use crate::testbed::Testbed;
use crate::traffic::Endpoint;

/// The kind of system: mpip in host mode.
pub(super) const HOST_MODE: &str = "mpip host";
/// The kind of system: MPTCP above mpip in host mode.
pub(super) const WITH_MPTCP: &str = "mpip+mptcp";

const LISTEN_PORT: u16 = 6182;
const INNER: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const READY_PORT: u16 = 5199;
/// Longest time for the handshake of the two daemons.
const READY: Duration = Duration::from_secs(15);

pub(super) struct Mpip {
    hosts: Vec<Daemon>,
    host_mode: bool,
    with_mptcp: bool,
}

struct Daemon {
    host: String,
    socket: PathBuf,
    log: PathBuf,
    process: command::Running,
}

/// A program of this workspace: from `MPIP_BIN`, beside this program, or from the search path.
fn program(name: &str) -> String {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.to_owned()));
    let chosen = std::env::var_os("MPIP_BIN").map(PathBuf::from);
    chosen
        .into_iter()
        .chain(beside)
        .map(|directory| directory.join(name))
        .find(|path| path.exists())
        .map_or_else(|| name.to_owned(), |path| path.to_string_lossy().into_owned())
}

fn table(pairs: impl IntoIterator<Item = (&'static str, toml::Value)>) -> toml::Table {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn strings(values: impl IntoIterator<Item = String>) -> toml::Value {
    toml::Value::Array(values.into_iter().map(toml::Value::String).collect())
}

impl Mpip {
    pub(super) fn start(system: &System, testbed: &Testbed, directory: &Path) -> io::Result<Self> {
        let scenario = testbed.scenario();
        let (client, server) = ends(scenario)?;
        let gateway = system.settings.get("gateway").and_then(toml::Value::as_str);
        let names = [client, gateway.unwrap_or(server)];
        if gateway.is_some() {
            forget_routes(testbed, client, server)?;
        }
        let with_mptcp = system.kind == WITH_MPTCP;
        let by_default = with_mptcp || system.kind == HOST_MODE;
        let host_mode =
            system.settings.get("host_mode").and_then(toml::Value::as_bool).unwrap_or(by_default);
        if with_mptcp {
            mptcp::configure(testbed, false)?;
        }
        let mut keys = Vec::new();
        for name in names {
            keys.push(keys_of(directory, name)?);
        }
        let chosen = system.settings.get("program").and_then(toml::Value::as_str);
        let daemon = chosen.map_or_else(|| program("mpipd"), str::to_owned);
        let mut hosts = Vec::new();
        for (own, name) in names.into_iter().enumerate() {
            let peer = 1 - own;
            let config = config(system, testbed, directory, names, own, &keys[peer], host_mode)?;
            let file = directory.join(format!("{name}.toml"));
            std::fs::write(&file, config)?;
            let log = directory.join(format!("{name}.log"));
            let clock = clock(system, name)?;
            let script = format!(
                "exec {clock}'{daemon}' --config '{}' 2>'{}'",
                file.display(),
                log.display()
            );
            let line = testbed.host(name)?.inside(&["sh", "-c", &script]);
            hosts.push(Daemon {
                host: name.to_owned(),
                socket: directory.join(format!("{name}.sock")),
                log,
                process: command::Running::start(&line)?,
            });
        }
        let mut mpip = Self { hosts, host_mode, with_mptcp };
        mpip.wait_until_ready(testbed)?;
        Ok(mpip)
    }

    fn target(&self, testbed: &Testbed, host: &str) -> io::Result<IpAddr> {
        if self.host_mode {
            return first_address(testbed.scenario(), host);
        }
        let inner = self.hosts.iter().position(|daemon| daemon.host == host);
        match inner.and_then(|index| INNER[index].parse().ok()) {
            Some(address) => Ok(address),
            // Beyond the gateway.
            None => first_address(testbed.scenario(), host),
        }
    }

    /// Waits until a round trip succeeds.
    fn wait_until_ready(&mut self, testbed: &Testbed) -> io::Result<()> {
        let deadline = Instant::now() + READY;
        let target = self.target(testbed, &self.hosts[1].host)?.to_string();
        let client = testbed.host(&self.hosts[0].host)?;
        let lab = command::own_program();
        let words = |text: String| -> Vec<String> {
            core::iter::once(lab.clone()).chain(text.split(' ').map(str::to_owned)).collect()
        };
        let echo = words(format!("echo 0.0.0.0:{READY_PORT}"));
        let _echo = command::Running::start(&testbed.host(&self.hosts[1].host)?.inside(&echo))?;
        // Ten datagrams within 0.2 s.
        let ask = words(format!("voip 0.0.0.0:0 {target}:{READY_PORT} 64 20000000 0.2"));
        loop {
            for daemon in &mut self.hosts {
                if daemon.process.has_ended() {
                    let log = std::fs::read_to_string(&daemon.log).unwrap_or_default();
                    let last = log.lines().last().unwrap_or("no output").to_owned();
                    return Err(io::Error::other(format!("mpipd at {}: {last}", daemon.host)));
                }
            }
            let answer = client.run(&ask).ok().and_then(|text| {
                let result: FlowResult = serde_json::from_str(&text).ok()?;
                result.loss
            });
            if answer.is_some_and(|loss| loss < 1.0) {
                // Leaves time to validate the other paths.
                std::thread::sleep(Duration::from_secs(1));
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(io::Error::other(format!("mpip: no answer from {target} in 15 s")));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Removes the routes of the host `from` to the addresses of `to`, but for those that packets from
/// one of its addresses have.
fn forget_routes(testbed: &Testbed, from: &str, to: &str) -> io::Result<()> {
    let scenario = testbed.scenario();
    for index in scenario.interfaces_of(to) {
        let address = scenario.interfaces[index].address.to_string();
        testbed.host(from)?.ip(&["route", "flush", "exact", &address])?;
    }
    Ok(())
}

/// The command that starts the daemon of a host in a time namespace with its clock. Such a clock
/// can have an offset but no drift.
fn clock(system: &System, host: &str) -> io::Result<String> {
    let setting = ClockSetting::of(system).map_err(io::Error::other)?;
    let Some(clock) = setting.filter(|clock| clock.host == host) else { return Ok(String::new()) };
    if clock.drift_ppb != 0 {
        let message = format!("{}: a clock that drifts needs --in sim", system.name);
        return Err(io::Error::other(message));
    }
    let seconds = clock.offset().map_err(io::Error::other)?.as_secs();
    Ok(format!("unshare --time --fork --kill-child --monotonic {seconds} --boottime {seconds} "))
}

/// Makes a key pair; returns the public key.
fn keys_of(directory: &Path, host: &str) -> io::Result<String> {
    let mpip = program("mpip");
    let file = directory.join(format!("{host}.key"));
    let script = format!(
        "umask 077; '{mpip}' genkey > '{file}' && '{mpip}' pubkey < '{file}'",
        file = file.display()
    );
    Ok(command::run(&["sh", "-c", &script])?.trim().to_owned())
}

fn config(
    system: &System,
    testbed: &Testbed,
    directory: &Path,
    names: [&str; 2],
    own: usize,
    peer_key: &str,
    host_mode: bool,
) -> io::Result<String> {
    let scenario = testbed.scenario();
    let (name, peer_name) = (names[own], names[1 - own]);
    let file = |suffix: &str| -> toml::Value {
        directory.join(format!("{name}.{suffix}")).display().to_string().into()
    };
    let addresses = |host: &str| -> Vec<IpAddr> {
        scenario.interfaces_of(host).map(|index| scenario.interfaces[index].address).collect()
    };
    let mut node = table([
        ("private_key_file", file("key")),
        ("listen_port", toml::Value::Integer(i64::from(LISTEN_PORT))),
        ("control_socket", file("sock")),
    ]);
    let mut interface = table([("name", "mpip0".into())]);
    if !host_mode {
        interface.insert("addresses".to_owned(), strings([format!("{}/24", INNER[own])]));
    }
    let allowed = if host_mode {
        addresses(peer_name).iter().map(|a| format!("{a}/32")).collect()
    } else {
        vec![format!("{}/32", INNER[1 - own])]
    };
    // The other side does not know addresses behind a NAT.
    let endpoints = scenario
        .interfaces_of(peer_name)
        .map(|index| &scenario.interfaces[index])
        .filter(|interface| !interface.private || interface.public.is_some())
        .map(|interface| {
            std::net::SocketAddr::new(interface.reached_at(), LISTEN_PORT).to_string()
        });
    let mut peer = table([
        ("name", peer_name.into()),
        ("public_key", peer_key.into()),
        ("endpoints", strings(endpoints)),
        ("allowed_prefixes", strings(allowed)),
        ("host_mode", host_mode.into()),
        ("policy", "require".into()),
    ]);
    let mut root = toml::Table::new();
    match (system.settings.contains_key("gateway"), own) {
        (false, _) => {}
        (true, 0) => drop(peer.insert("default_route".to_owned(), true.into())),
        (true, _) => {
            let forwards = table([("forward", true.into()), ("masquerade", true.into())]);
            root.insert("gateway".to_owned(), forwards.into());
        }
    }
    for (key, value) in &system.settings {
        match (key.as_str(), value) {
            ("host_mode" | "clock" | "gateway" | "loss_thresholds" | "program", _) => {}
            ("rules", rules) => drop(root.insert("rule".to_owned(), rules.clone())),
            ("node", toml::Value::Table(more)) => node.extend(more.clone()),
            ("interface", toml::Value::Table(more)) => interface.extend(more.clone()),
            _ => drop(peer.insert(key.clone(), value.clone())),
        }
    }
    let thresholds = system.settings.get("loss_thresholds").and_then(toml::Value::as_table);
    let paths = scenario.interfaces_of(name).map(|index| {
        let interface = &scenario.interfaces[index].name;
        let mut path = table([("interface", interface.clone().into())]);
        if let Some(threshold) = thresholds.and_then(|all| all.get(interface)) {
            path.insert("loss_threshold".to_owned(), threshold.clone());
        }
        path
    });
    root.insert("node".to_owned(), node.into());
    root.insert("interface".to_owned(), interface.into());
    root.insert("path".to_owned(), paths.map(toml::Value::Table).collect::<Vec<_>>().into());
    root.insert("peer".to_owned(), vec![toml::Value::Table(peer)].into());
    toml::to_string(&root).map_err(io::Error::other)
}

impl Running for Mpip {
    fn endpoint(&self, testbed: &Testbed, traffic: &Traffic) -> io::Result<Endpoint> {
        let remote = self.target(testbed, &traffic.to)?;
        let wrapper = if self.with_mptcp { mptcp::wrapper() } else { Vec::new() };
        Ok(Endpoint { local: None, remote, wrapper })
    }

    fn watch(&self, testbed: &Testbed) -> Option<Watch> {
        let sender = self.hosts.get(usize::from(is_download(testbed.scenario())))?;
        Some(Watch::start(sender.socket.clone(), testbed.scenario()))
    }

    fn status(&mut self, testbed: &Testbed) -> serde_json::Value {
        let mut all = serde_json::Map::new();
        for daemon in &self.hosts {
            let socket = daemon.socket.display().to_string();
            let line = [
                program("mpip"),
                "--socket".to_owned(),
                socket,
                "status".to_owned(),
                "--json".to_owned(),
            ];
            let status = testbed
                .host(&daemon.host)
                .and_then(|host| host.run(&line))
                .and_then(|text| Ok(serde_json::from_str(&text)?))
                .unwrap_or_else(|error: io::Error| error.to_string().into());
            all.insert(daemon.host.clone(), status);
        }
        serde_json::Value::Object(all)
    }
}
