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
//! `{HOST.INTERFACE}` stands for an address, `{dir}` for a directory of the run.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use mpip_link::scenario::{System, Traffic};
use mpip_link::units;
use serde::Deserialize;

use super::running::Running;
use crate::command;
use crate::testbed::Testbed;
use crate::traffic::Endpoint;

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
}

fn fill(text: &str, testbed: &Testbed, directory: &Path) -> String {
    let mut text = text.replace("{dir}", &directory.display().to_string());
    for interface in &testbed.scenario().interfaces {
        let name = format!("{{{}}}", interface.full_name());
        text = text.replace(&name, &interface.address.to_string());
    }
    text
}

fn load(kind: &str) -> io::Result<File> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("adapters").join(format!("{kind}.toml"));
    let path = if own.exists() { own } else { PathBuf::from(kind) };
    let text = std::fs::read_to_string(&path)
        .map_err(|e| io::Error::new(e.kind(), format!("adapter {}: {e}", path.display())))?;
    toml::from_str(&text).map_err(|e| io::Error::other(format!("{}: {e}", path.display())))
}

impl Adapter {
    pub(super) fn start(system: &System, testbed: &Testbed, directory: &Path) -> io::Result<Self> {
        let file = load(&system.kind)?;
        let mut adapter = Self { file, directory: directory.to_owned(), running: Vec::new() };
        for step in &adapter.file.start {
            let script = fill(&step.command, testbed, directory);
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

    fn status(&mut self, testbed: &Testbed) -> serde_json::Value {
        for step in &self.file.stop {
            let script = fill(&step.command, testbed, &self.directory);
            let _ = testbed.host(&step.host).and_then(|host| host.run(&["sh", "-c", &script]));
        }
        serde_json::Value::Null
    }
}
