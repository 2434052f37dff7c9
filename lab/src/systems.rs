//! Systems under test: how each is brought up in the hosts, and which addresses its traffic uses.

use std::io;
use std::net::IpAddr;

use mpip_link::scenario::{Scenario, System, Traffic};

use crate::testbed::Testbed;
use crate::traffic::Endpoint;

mod adapter;
mod mpip;
mod mptcp;

/// A system that is up.
pub(crate) trait Running {
    /// Where a flow of the system goes.
    fn endpoint(&self, testbed: &Testbed, traffic: &Traffic) -> io::Result<Endpoint>;

    /// An interface went up or down and the hosts know it.
    fn interface_changed(&mut self, _testbed: &Testbed, _port: usize, _up: bool) -> io::Result<()> {
        Ok(())
    }

    /// What the system says of itself at the end of a run.
    fn status(&mut self, _testbed: &Testbed) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// One thing to measure: a system, and for plain TCP the path.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// The name in tables.
    pub(crate) name: String,
    /// The system.
    pub(crate) system: System,
    /// The path of plain TCP, as sending and receiving interface.
    pub(crate) path: Option<(usize, usize)>,
}

/// What there is to measure in a scenario: every system, and plain TCP for each path alone (the
/// first path of every interface of the sender, to different interfaces of the receiver where
/// there are).
pub(crate) fn subjects(scenario: &Scenario) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for system in &scenario.systems {
        if system.kind != "tcp" {
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

/// Brings a subject up. `directory` is for its files.
pub(crate) fn start(
    subject: &Subject,
    testbed: &Testbed,
    directory: &std::path::Path,
) -> io::Result<Box<dyn Running>> {
    Ok(match subject.system.kind.as_str() {
        "tcp" => Box::new(PlainTcp { path: subject.path }),
        "mptcp" => Box::new(mptcp::Mptcp::start(testbed)?),
        "mpip" | "mpip+mptcp" => Box::new(mpip::Mpip::start(&subject.system, testbed, directory)?),
        _ => Box::new(adapter::Adapter::start(&subject.system, testbed, directory)?),
    })
}

/// Plain IP over one path.
struct PlainTcp {
    path: Option<(usize, usize)>,
}

impl Running for PlainTcp {
    fn endpoint(&self, testbed: &Testbed, traffic: &Traffic) -> io::Result<Endpoint> {
        let interfaces = &testbed.scenario().interfaces;
        // A traffic in the other direction uses the same path backwards.
        let path = self.path.map(|(from, to)| {
            if interfaces[from].host == traffic.from { (from, to) } else { (to, from) }
        });
        match path {
            Some((from, to)) => Ok(Endpoint {
                local: Some(interfaces[from].address),
                remote: interfaces[to].reached_at(),
                wrapper: Vec::new(),
            }),
            None => plain(testbed, traffic, None),
        }
    }
}

/// The endpoint of plain IP, over `interface` of the sender or its first.
pub(crate) fn plain(
    testbed: &Testbed,
    traffic: &Traffic,
    interface: Option<&str>,
) -> io::Result<Endpoint> {
    let scenario = testbed.scenario();
    let path = scenario
        .paths(&traffic.from, &traffic.to)
        .into_iter()
        .find(|path| interface.is_none_or(|name| scenario.interfaces[path.from].name == name))
        .ok_or_else(|| io::Error::other(format!("no path for traffic {:?}", traffic.name)))?;
    Ok(Endpoint {
        local: Some(scenario.interfaces[path.from].address),
        remote: scenario.interfaces[path.to].reached_at(),
        wrapper: Vec::new(),
    })
}

/// The first address of a host, as others reach it.
pub(crate) fn first_address(scenario: &Scenario, host: &str) -> io::Result<IpAddr> {
    scenario
        .interfaces_of(host)
        .next()
        .map(|index| scenario.interfaces[index].reached_at())
        .ok_or_else(|| io::Error::other(format!("host {host:?} has no interface")))
}

/// The two hosts between which the system under test works: those of its first flow.
pub(crate) fn ends(scenario: &Scenario) -> io::Result<(&str, &str)> {
    scenario
        .traffic
        .iter()
        .find(|traffic| traffic.plain.is_none())
        .map(|traffic| (traffic.from.as_str(), traffic.to.as_str()))
        .ok_or_else(|| io::Error::other("the scenario has no traffic for the system under test"))
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
        assert_eq!(subjects[0].path, Some((0, 2)));
        assert_eq!(subjects[1].path, Some((1, 3)));
    }
}
