//! The floor: [`floor`](crate::floor) in both hosts, over the path between their first addresses.
//!
//! The setting `seals` (default `false`) says whether packets are sealed and opened too.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::running::Running;
use crate::command;
use crate::floor::INNER_MTU;
use crate::scenario::{System, Traffic};
use crate::subject::{ends, first_address};
use crate::testbed::Testbed;
use crate::traffic::Endpoint;

/// The kind of system.
pub(super) const KIND: &str = "floor";

/// The UDP port of both hosts.
const PORT: u16 = 6183;
/// The TUN device of both hosts.
const DEVICE: &str = "floor0";
/// The addresses in the tunnel: of the host at which the traffic begins, and of the other.
const INNER: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
/// How long a program must live to count as started.
const STARTED: Duration = Duration::from_millis(500);

pub(super) struct Floor {
    /// The hosts, in the order of [`INNER`].
    hosts: [String; 2],
    /// Ended when this is dropped.
    _processes: Vec<command::Running>,
}

/// The setting `seals`.
fn seals(system: &System) -> io::Result<bool> {
    let mut seals = false;
    for (key, value) in &system.settings {
        seals = match (key.as_str(), value) {
            ("seals", toml::Value::Boolean(value)) => *value,
            _ => {
                let expected = "expected no setting but `seals = true` or `seals = false`";
                let name = &system.name;
                let message = format!("system {name:?}: {expected}, found `{key} = {value}`");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        };
    }
    Ok(seals)
}

impl Floor {
    pub(super) fn start(system: &System, testbed: &Testbed) -> io::Result<Self> {
        let seals = seals(system)?;
        let (client, server) = ends(testbed.scenario())?;
        let names = [client, server];
        let outer = |name: &str| -> io::Result<String> {
            Ok(SocketAddr::new(first_address(testbed.scenario(), name)?, PORT).to_string())
        };
        let mut processes = Vec::new();
        for (own, name) in names.into_iter().enumerate() {
            let host = testbed.host(name)?;
            let (address, mtu) = (format!("{}/24", INNER[own]), INNER_MTU.to_string());
            // The device exists and is up before the program attaches to it.
            host.ip(&["tuntap", "add", "dev", DEVICE, "mode", "tun", "vnet_hdr"])?;
            host.ip(&["address", "add", &address, "dev", DEVICE])?;
            host.ip(&["link", "set", "dev", DEVICE, "mtu", &mtu, "up"])?;
            let (local, remote) = (outer(name)?, outer(names[1 - own])?);
            let mut line = vec![command::own_program()];
            let options = ["floor", "--tun", DEVICE, "--local", &local, "--remote", &remote];
            line.extend(options.map(str::to_owned));
            line.extend(seals.then(|| "--seals".to_owned()));
            processes.push(command::Running::start(&host.inside(&line))?);
        }
        std::thread::sleep(STARTED);
        for process in &mut processes {
            if process.has_ended() {
                return Err(io::Error::other(format!("{} ended at once", process.line())));
            }
        }
        Ok(Self { hosts: names.map(str::to_owned), _processes: processes })
    }
}

impl Running for Floor {
    fn endpoint(&self, _testbed: &Testbed, traffic: &Traffic) -> io::Result<Endpoint> {
        let inner = self.hosts.iter().position(|host| *host == traffic.to).ok_or_else(|| {
            let [client, server] = &self.hosts;
            let to = &traffic.to;
            io::Error::other(format!(
                "the floor joins {client:?} and {server:?}, found traffic to {to:?}"
            ))
        })?;
        let remote = INNER[inner].parse().map_err(io::Error::other)?;
        Ok(Endpoint { local: None, remote, wrapper: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(settings: &str) -> System {
        let settings = toml::from_str(settings).expect("TOML");
        System { name: "floor".to_owned(), kind: KIND.to_owned(), settings }
    }

    #[test]
    fn it_seals_only_if_the_setting_says_so() {
        assert!(!seals(&system("")).expect("no setting"));
        assert!(!seals(&system("seals = false")).expect("a setting"));
        assert!(seals(&system("seals = true")).expect("a setting"));
    }

    #[test]
    fn settings_that_it_does_not_have_are_named() {
        for text in ["seals = 1", "seal = true"] {
            let error = seals(&system(text)).expect_err("no such setting").to_string();
            assert!(error.contains(text) && error.contains("\"floor\""), "{error}");
        }
    }
}
