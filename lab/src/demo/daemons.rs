//! `mpipd` on both hosts.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mpip_api::{PeerStatus, Status};
use rustix::process::Signal;

use super::interrupt::Interrupt;
use super::world::{self, B, HOST_A, HOST_B, PATHS, World};
use crate::command::{self, Running};

/// Inner address of host A.
pub(super) const INNER_A: &str = "198.19.0.1";
/// Inner address of host B.
pub(super) const INNER_B: &str = "198.19.0.2";
const PORT: u16 = 6182;
/// Longest time for the handshake and the validation of all paths.
const READY: Duration = Duration::from_secs(10);

/// The two daemons. Dropping this ends them.
pub(super) struct Daemons {
    a: Daemon,
    b: Daemon,
}

struct Daemon {
    host: &'static str,
    socket: PathBuf,
    log: PathBuf,
    process: Running,
}

/// A program of this workspace, which is beside this one.
fn program(name: &str) -> io::Result<String> {
    let own = std::env::current_exe()?;
    let path = own.with_file_name(name);
    if !path.exists() {
        let message = format!("{} is missing: build it with `cargo build`", path.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    Ok(path.display().to_string())
}

impl Daemons {
    /// Makes keys, writes configurations and starts both; their logs go to `output`.
    pub(super) fn start(world: &World, output: &Path) -> io::Result<Self> {
        let (key_a, key_b) = (make_key(world, "a")?, make_key(world, "b")?);
        let endpoints = B.map(|nic| format!("\"{}:{PORT}\"", nic.address)).join(", ");
        write_config(world, "a", INNER_A, ("b", &key_b, INNER_B), &endpoints)?;
        write_config(world, "b", INNER_B, ("a", &key_a, INNER_A), "")?;
        // The responder first.
        let b = Daemon::start(world, HOST_B, "b", output)?;
        let a = Daemon::start(world, HOST_A, "a", output)?;
        Ok(Self { a, b })
    }

    /// Waits until every path is active; returns how many are after a while.
    ///
    /// # Errors
    /// A daemon ended, or there is no path at all.
    pub(super) fn wait_until_ready(&mut self, interrupt: &Interrupt) -> io::Result<usize> {
        let deadline = Instant::now() + READY;
        loop {
            self.check()?;
            let active = [&self.a, &self.b].map(Daemon::active_paths);
            let fewest = active[0].min(active[1]);
            if fewest == PATHS || (fewest > 0 && Instant::now() >= deadline) {
                return Ok(fewest);
            }
            if Instant::now() >= deadline {
                let message = format!(
                    "no path is active after {} s; the daemons' logs: {}, {}",
                    READY.as_secs(),
                    self.a.log.display(),
                    self.b.log.display()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            interrupt.sleep(Duration::from_millis(50))?;
        }
    }

    /// # Errors
    /// A daemon ended.
    pub(super) fn check(&mut self) -> io::Result<()> {
        for daemon in [&mut self.a, &mut self.b] {
            if daemon.process.has_ended() {
                let log = fs::read_to_string(&daemon.log).unwrap_or_default();
                let last = log.lines().last().unwrap_or("it said nothing");
                let message = format!(
                    "mpipd in {} ended: {last} (log: {})",
                    daemon.host,
                    daemon.log.display()
                );
                return Err(io::Error::other(message));
            }
        }
        Ok(())
    }

    /// Of each path's daemon-side number: which path it is, and what host A has sent on it, outer
    /// headers included.
    pub(super) fn path_bytes(&self) -> io::Result<BTreeMap<u16, (usize, u64)>> {
        let mut bytes = BTreeMap::new();
        for path in self.a.peer()?.paths {
            let [local, remote] = [path.local, path.remote].map(|end| end.ip().to_string());
            if let Some(index) = world::path_between(&local, &remote) {
                bytes.insert(path.id, (index, path.sent_bytes));
            }
        }
        Ok(bytes)
    }

    /// Asks both to end and waits for them.
    ///
    /// # Errors
    /// One did not end properly.
    pub(super) fn stop(self) -> io::Result<()> {
        for daemon in [self.a, self.b] {
            daemon.process.signal(Signal::TERM);
            let output = daemon.process.finish(Instant::now() + Duration::from_secs(3));
            if !output.succeeded() {
                let how = output.status.map_or("still ran 3 s later".to_owned(), |s| s.to_string());
                let message = format!("mpipd in {}, asked to end: {how}", daemon.host);
                return Err(io::Error::other(message));
            }
        }
        Ok(())
    }
}

impl Daemon {
    fn start(world: &World, host: &'static str, name: &str, output: &Path) -> io::Result<Self> {
        let log = output.join(format!("mpipd-{name}.log"));
        let config = world.directory().join(format!("{name}.toml"));
        // Passed as arguments of the shell, so that file names need no quoting.
        let script = "exec \"$0\" --config \"$1\" 2>\"$2\"";
        let (mpipd, config) = (program("mpipd")?, config.display().to_string());
        let words = ["sh", "-c", script, &mpipd, &config, &log.display().to_string()];
        let process = Running::start(&world::inside(host, &words))?;
        Ok(Self { host, socket: socket(world, name), log, process })
    }

    fn peer(&self) -> io::Result<PeerStatus> {
        let status: Status = mpip_api::status(&self.socket, false)
            .map_err(|error| io::Error::other(format!("mpipd in {}: {error}", self.host)))?;
        status.peers.into_iter().next().ok_or_else(|| io::Error::other("mpipd knows no peer"))
    }

    fn active_paths(&self) -> usize {
        let Ok(peer) = self.peer() else { return 0 };
        peer.paths.iter().filter(|path| path.state == "active").count()
    }
}

fn socket(world: &World, name: &str) -> PathBuf {
    world.directory().join(format!("{name}.sock"))
}

/// Returns the public key.
fn make_key(world: &World, name: &str) -> io::Result<String> {
    let file = world.directory().join(format!("{name}.key")).display().to_string();
    Ok(command::run(&[&program("mpip")?, "genkey", "--out", &file])?.trim().to_owned())
}

fn write_config(
    world: &World,
    name: &str,
    address: &str,
    (peer, key, peer_address): (&str, &str, &str),
    endpoints: &str,
) -> io::Result<()> {
    let socket = socket(world, name);
    let config = format!(
        "[node]\n\
         private_key_file = \"{name}.key\"\n\
         listen_port = {PORT}\n\
         control_socket = {socket:?}\n\
         \n\
         [interface]\n\
         name = \"mpip0\"\n\
         addresses = [\"{address}/24\"]\n\
         \n\
         [[peer]]\n\
         name = \"{peer}\"\n\
         public_key = \"{key}\"\n\
         endpoints = [{endpoints}]\n\
         allowed_prefixes = [\"{peer_address}/32\"]\n"
    );
    fs::write(world.directory().join(format!("{name}.toml")), config)
}
