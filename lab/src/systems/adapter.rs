//! Any other program, by an adapter file `NAME.toml` under `lab/adapters` (or the path that the
//! system's `kind` names):
//!
//! ```toml
//! address = "10.9.0.2"                 # where the traffic goes
//! wrapper = []                         # put before the command lines of the traffic
//! wait = "2 s"                         # from the start until the traffic may begin
//!
//! [[start]]                            # in order; run in the host's namespace by `sh -c`
//! host = "server"
//! command = "exec myvpn --listen {server.a} --state {dir}"
//! background = true                    # runs on until the end; otherwise it has 10 s
//!
//! [[stop]]
//! host = "server"
//! command = "rm -f {dir}/state"
//! ```
//!
//! `{HOST.INTERFACE}` stands for an address, `{dir}` for a directory of the run, `{go:NAME}` for a
//! program of [`go`], and `{client}` and `{server}` for the addresses at which the system below
//! reaches these hosts: `over` in the settings of the system, plain IP without it.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::running::Running;
use crate::scenario::{Scenario, System, Traffic};
use crate::subject::first_address;
use crate::testbed::Testbed;
use crate::traffic::Endpoint;
use crate::units;
use crate::{command, go};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    address: IpAddr,
    #[serde(default)]
    wrapper: Vec<String>,
    wait: Option<String>,
    start: Vec<Step>,
    #[serde(default)]
    stop: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    host: String,
    command: String,
    #[serde(default)]
    background: bool,
}

pub(super) struct Adapter {
    file: File,
    directory: PathBuf,
    running: Vec<command::Running>,
    /// Ends after what runs above it.
    below: Option<Box<dyn Running>>,
}

fn fill(
    text: &str,
    testbed: &Testbed,
    directory: &Path,
    below: Option<&dyn Running>,
) -> io::Result<String> {
    let scenario = testbed.scenario();
    let mut text = text.replace("{dir}", &directory.display().to_string());
    for interface in &scenario.interfaces {
        let name = format!("{{{}}}", interface.full_name());
        text = text.replace(&name, &interface.address.to_string());
    }
    for host in scenario.hosts() {
        let name = format!("{{{host}}}");
        if text.contains(&name) {
            let address = match below {
                Some(system) => system.endpoint(testbed, &flow_to(scenario, host)?)?.remote,
                None => first_address(scenario, host)?,
            };
            text = text.replace(&name, &address.to_string());
        }
    }
    while let Some((before, name, after)) = placeholder(&text) {
        text = format!("{before}{}{after}", go::program(name)?.display());
    }
    Ok(text)
}

/// The text before, in and after the first `{go:NAME}`.
fn placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("{go:")?;
    let (name, after) = rest.split_once('}')?;
    Some((before, name, after))
}

/// A flow to `host` between the hosts of the system under test.
fn flow_to(scenario: &Scenario, host: &str) -> io::Result<Traffic> {
    let mut traffic = scenario
        .traffic
        .iter()
        .find(|traffic| {
            traffic.plain.is_none() && [&traffic.from, &traffic.to].contains(&&host.to_owned())
        })
        .cloned()
        .ok_or_else(|| io::Error::other(format!("no traffic for the host {host:?}")))?;
    if traffic.to != host {
        core::mem::swap(&mut traffic.from, &mut traffic.to);
    }
    Ok(traffic)
}

fn load(kind: &str) -> io::Result<File> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("adapters").join(format!("{kind}.toml"));
    let path = if own.exists() { own } else { PathBuf::from(kind) };
    let text = std::fs::read_to_string(&path)
        .map_err(|e| io::Error::new(e.kind(), format!("adapter {}: {e}", path.display())))?;
    toml::from_str(&text).map_err(|e| io::Error::other(format!("{}: {e}", path.display())))
}

impl Adapter {
    /// Starts the program above the system `below`, or above plain IP.
    pub(super) fn start(
        system: &System,
        below: Option<Box<dyn Running>>,
        testbed: &Testbed,
        directory: &Path,
    ) -> io::Result<Self> {
        let file = load(&system.kind)?;
        let directory = directory.to_owned();
        let mut adapter = Self { file, directory, running: Vec::new(), below };
        for step in &adapter.file.start {
            let below = adapter.below.as_deref();
            let script = fill(&step.command, testbed, &adapter.directory, below)?;
            let host = testbed.host(&step.host)?;
            if step.background {
                let line = host.inside(&["sh", "-c", &script]);
                adapter.running.push(command::Running::start(&line)?);
            } else {
                host.run(&["sh", "-c", &script])?;
            }
        }
        let wait = adapter.file.wait.as_deref().unwrap_or("2 s");
        std::thread::sleep(units::parse_duration(wait).map_err(io::Error::other)?);
        for running in &mut adapter.running {
            if running.has_ended() {
                return Err(io::Error::other(format!("{} ended at once", running.line())));
            }
        }
        Ok(adapter)
    }
}

impl Running for Adapter {
    fn endpoint(&self, _testbed: &Testbed, _traffic: &Traffic) -> io::Result<Endpoint> {
        let wrapper = self.file.wrapper.clone();
        Ok(Endpoint { local: None, remote: self.file.address, wrapper })
    }

    fn interface_changed(&mut self, testbed: &Testbed, port: usize, up: bool) -> io::Result<()> {
        self.below.as_mut().map_or(Ok(()), |below| below.interface_changed(testbed, port, up))
    }

    fn status(&mut self, testbed: &Testbed) -> serde_json::Value {
        for step in &self.file.stop {
            let script = fill(&step.command, testbed, &self.directory, self.below.as_deref());
            let _ = script.and_then(|script| testbed.host(&step.host)?.run(&["sh", "-c", &script]));
        }
        self.below.as_mut().map_or(serde_json::Value::Null, |below| below.status(testbed))
    }
}
