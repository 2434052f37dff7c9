//! What a scenario measures: its systems, their hosts and their settings.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;

use crate::scenario::{Scenario, System};
use crate::units;

/// One thing to measure: a system, and for plain TCP a path.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// The name in tables.
    pub(crate) name: String,
    /// The system.
    pub(crate) system: System,
    /// The path of plain TCP: sending and receiving interface.
    pub(crate) path: Option<(usize, usize)>,
}

impl Subject {
    /// Whether it carries nothing but TCP.
    pub(crate) fn is_tcp_only(&self) -> bool {
        self.system.kind == "mptcp"
    }
}

/// The kind of system over which an adapter's program is to run, if the scenario says so.
pub(crate) fn over(system: &System) -> Option<&str> {
    system.settings.get("over").and_then(toml::Value::as_str)
}

/// The subjects of a scenario: every system, and plain TCP, or what runs over it, for each
/// interface of the sender, alone. These paths lead to different interfaces of the receiver if
/// there are enough.
pub(crate) fn subjects(scenario: &Scenario) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for system in &scenario.systems {
        if system.kind != "tcp" && over(system) != Some("tcp") {
            subjects.push(Subject {
                name: system.name.clone(),
                system: system.clone(),
                path: None,
            });
            continue;
        }
        for (from, to) in single_paths(scenario) {
            let name = format!("{} {}", system.name, scenario.interfaces[from].name);
            subjects.push(Subject { name, system: system.clone(), path: Some((from, to)) });
        }
    }
    subjects
}

fn single_paths(scenario: &Scenario) -> Vec<(usize, usize)> {
    let Some(traffic) = scenario.traffic.iter().find(|t| t.plain.is_none()) else {
        return Vec::new();
    };
    let mut chosen: Vec<(usize, usize)> = Vec::new();
    for path in scenario.paths(&traffic.from, &traffic.to) {
        if chosen.iter().any(|(from, _)| *from == path.from) {
            continue;
        }
        let fresh = scenario
            .paths(&traffic.from, &traffic.to)
            .into_iter()
            .filter(|other| other.from == path.from)
            .find(|other| chosen.iter().all(|(_, to)| *to != other.to));
        let best = fresh.unwrap_or(path);
        chosen.push((best.from, best.to));
    }
    chosen
}

/// The first address of a host at which others reach it.
pub(crate) fn first_address(scenario: &Scenario, host: &str) -> io::Result<IpAddr> {
    scenario
        .interfaces_of(host)
        .next()
        .map(|index| scenario.interfaces[index].reached_at())
        .ok_or_else(|| io::Error::other(format!("host {host:?} has no interface")))
}

/// The two hosts of the system under test: those of its first flow.
pub(crate) fn ends(scenario: &Scenario) -> io::Result<(&str, &str)> {
    scenario
        .traffic
        .iter()
        .find(|traffic| traffic.plain.is_none())
        .map(|traffic| (traffic.from.as_str(), traffic.to.as_str()))
        .ok_or_else(|| io::Error::other("the scenario has no traffic for the system under test"))
}

/// The clock of a host: the setting `clock` of a system.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClockSetting {
    /// The host.
    pub(crate) host: String,
    /// How far it is ahead of the other clocks at the start.
    #[serde(default)]
    offset: String,
    /// Drift: nanoseconds gained per second.
    #[serde(default)]
    pub(crate) drift_ppb: i64,
}

impl ClockSetting {
    /// The setting of a system; `None` if all clocks are alike.
    pub(crate) fn of(system: &System) -> Result<Option<Self>, String> {
        let Some(value) = system.settings.get("clock") else { return Ok(None) };
        let clock: Self = value.clone().try_into().map_err(|error: toml::de::Error| {
            format!("clock of system {:?}: {}", system.name, error.message())
        })?;
        clock.offset()?;
        Ok(Some(clock))
    }

    /// How far it is ahead at the start.
    pub(crate) fn offset(&self) -> Result<Duration, String> {
        if self.offset.is_empty() {
            return Ok(Duration::ZERO);
        }
        units::parse_duration(&self.offset).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_tcp_is_measured_once_for_each_interface() {
        let mut text = String::from(
            "title = \"t\"\nduration = \"10 s\"\nsystems = [\"tcp\", \"mptcp\"]\n\
             [[traffic]]\nkind = \"tcp\"\nfrom = \"client\"\nto = \"server\"\n",
        );
        for (index, host) in ["client", "server"].into_iter().enumerate() {
            for (number, name) in ["a", "b"].into_iter().enumerate() {
                text += &format!(
                    "[[interface]]\nhost = \"{host}\"\nname = \"{name}\"\n\
                     address = \"198.18.{number}.{index}\"\n\
                     [[link]]\nends = [\"{host}.{name}\", \"switch\"]\n"
                );
            }
        }
        let scenario = crate::scenarios::parse("t", &text).expect("valid");
        let subjects = subjects(&scenario);
        let names: Vec<&str> = subjects.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["tcp a", "tcp b", "mptcp"]);
        let vpn = "systems = [\"vpn\", \"vpn over mpip\"]\n\
                   [system.vpn]\nkind = \"wireguard-go\"\nover = \"tcp\"\n\
                   [system.\"vpn over mpip\"]\nkind = \"wireguard-go\"\nover = \"mpip\"\n";
        let text = text.replace("systems = [\"tcp\", \"mptcp\"]\n", vpn);
        let above = super::subjects(&crate::scenarios::parse("t", &text).expect("valid"));
        let names: Vec<&str> = above.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["vpn a", "vpn b", "vpn over mpip"]);
        assert_eq!((above[1].path, above[2].path), (Some((1, 3)), None));
        assert_eq!(subjects[0].path, Some((0, 2)));
        assert_eq!(subjects[1].path, Some((1, 3)));
    }
}
