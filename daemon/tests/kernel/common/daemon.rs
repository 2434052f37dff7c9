//! `mpipd` on a host: its configuration, its life, what it tells.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use mpip_api::{
    Client, ClientError, DestinationStatus, PathStatus, PeerStatus, Request, Response, Status,
};

use super::{Directory, HANG, Host, run, wait_for};

/// A key pair made from a number.
pub(crate) fn key(number: u8) -> mpip_crypto::PrivateKey {
    mpip_crypto::PrivateKey::generate(&mut mpip_crypto::Rng::new([number; 32]))
}

/// A configuration, to be written into a test's directory.
pub(crate) struct Configuration<'a> {
    /// 1 for host a (10.77.0.1, fd77::1), 2 for host b.
    pub(crate) number: u8,
    /// Numbers of the own key and of the peer's.
    pub(crate) keys: (u8, u8),
    pub(crate) endpoints: &'a [&'a str],
    /// Lines for the peer's section.
    pub(crate) peer: &'a str,
}

impl Configuration<'_> {
    /// Writes key and configuration, with lines for the node's section; returns the
    /// configuration's file.
    pub(crate) fn write(&self, directory: &Directory, node: &str) -> PathBuf {
        let Self { number, keys: (own, theirs), endpoints, peer } = self;
        let other = 3 - number;
        let key_file = directory.join(format!("{number}.key"));
        fs::write(&key_file, key(*own).secret_base64().as_str()).expect("writable");
        fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600)).expect("ours");
        let text = format!(
            "[node]\nprivate_key_file = '{number}.key'\nlisten_port = 6182\n\
             control_socket = '{}'\n{node}\
             [interface]\nname = 'mpip0'\naddresses = ['10.77.0.{number}/24', 'fd77::{number}/64']\n\
             [[peer]]\nname = 'host{other}'\npublic_key = '{}'\nendpoints = {endpoints:?}\n\
             allowed_prefixes = ['10.77.0.{other}/32', 'fd77::{other}/128']\n{peer}\n",
            self.socket(directory).display(),
            key(*theirs).public_key(),
        );
        let file = directory.join(format!("{number}.toml"));
        fs::write(&file, text).expect("writable");
        file
    }

    pub(crate) fn socket(&self, directory: &Directory) -> PathBuf {
        directory.join(format!("{}.sock", self.number))
    }
}

/// A running daemon; killed when dropped.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) socket: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// Starts `configuration` on `host` and waits until it answers.
    pub(crate) fn start(
        host: &Host,
        directory: &Directory,
        configuration: &Configuration<'_>,
    ) -> Self {
        Self::start_with(host, directory, configuration, "")
    }

    /// As [`start`](Self::start), with lines for the node's section.
    pub(crate) fn start_with(
        host: &Host,
        directory: &Directory,
        configuration: &Configuration<'_>,
        node: &str,
    ) -> Self {
        Self::spawn_with(host, directory, configuration, node).ready()
    }

    /// Waits until it answers.
    pub(crate) fn ready(mut self) -> Self {
        wait_for("the daemon answers", || {
            let ended = self.child.try_wait().expect("our child");
            assert!(ended.is_none(), "{ended:?}: {}", self.log());
            mpip_api::status(&self.socket, false).is_ok()
        });
        self
    }

    /// Starts `configuration` on `host`.
    pub(crate) fn spawn(
        host: &Host,
        directory: &Directory,
        configuration: &Configuration<'_>,
    ) -> Self {
        Self::spawn_with(host, directory, configuration, "")
    }

    fn spawn_with(
        host: &Host,
        directory: &Directory,
        configuration: &Configuration<'_>,
        node: &str,
    ) -> Self {
        let file = configuration.write(directory, node);
        Self::spawn_file(host, directory, configuration.number, &file)
    }

    /// Starts the configuration `file` of host `number`, whose control socket is the usual one.
    pub(crate) fn spawn_file(host: &Host, directory: &Directory, number: u8, file: &Path) -> Self {
        let log = directory.join(format!("{number}.log"));
        let out = File::create(&log).expect("writable");
        let child = Command::new("ip")
            .args(["netns", "exec", &host.name, env!("CARGO_BIN_EXE_mpipd"), "--config"])
            .arg(file)
            .args(["--log-level", "debug"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(out)
            .spawn()
            .expect("ip");
        Self { child, socket: directory.join(format!("{number}.sock")), log }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn status(&self) -> Status {
        self.answer(|| mpip_api::status(&self.socket, true))
    }

    /// What it answers to `request`.
    pub(crate) fn ask(&self, request: &Request) -> Result<Response, ClientError> {
        let mut client = Client::connect(&self.socket)?;
        client.wait_up_to(HANG)?;
        client.request(request)
    }

    /// What the daemon answers to `ask`. A client gives up after 5 s, but the kernel may hold a
    /// daemon for longer: all changes of devices and routes wait for one lock of the whole machine.
    fn answer<T>(&self, ask: impl Fn() -> Result<T, ClientError>) -> T {
        let start = Instant::now();
        loop {
            match ask() {
                Ok(answer) => return answer,
                Err(ClientError::Timeout { .. }) if start.elapsed() < HANG => {}
                Err(error) => panic!("{error}\n{}", self.log()),
            }
        }
    }

    /// The destinations that may be peers.
    pub(crate) fn destinations(&self) -> Vec<DestinationStatus> {
        self.answer(|| mpip_api::availability(&self.socket))
    }

    pub(crate) fn peer(&self) -> PeerStatus {
        self.status().peers.swap_remove(0)
    }

    pub(crate) fn active_paths(&self) -> Vec<PathStatus> {
        let mut paths = self.peer().paths;
        paths.retain(|path| path.state == "active");
        paths
    }

    /// The first path that works: on a machine that stands still none may for a moment.
    pub(crate) fn path(&self) -> PathStatus {
        let mut found = None;
        wait_for("a path", || {
            found = self.active_paths().into_iter().next();
            found.is_some()
        });
        found.expect("it was waited for")
    }

    /// Waits until at least `count` paths are active.
    pub(crate) fn wait_for_paths(&self, count: usize) {
        wait_for(&format!("{count} active paths"), || self.active_paths().len() >= count);
    }

    /// Waits until each active path has carried this share of all bytes, at least.
    pub(crate) fn wait_for_shares(&self, least: f64) {
        wait_for(&format!("a share of {least} on all paths"), || {
            self.active_paths().iter().all(|path| path.share > least)
        });
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        run("kill", &["-s", name, &self.child.id().to_string()]);
    }

    /// Kills it, and waits for the end.
    pub(crate) fn kill(&mut self) {
        self.signal("KILL");
        assert!(!self.wait(), "it was killed");
    }

    /// Waits for the end; whether it was a success.
    pub(crate) fn wait(&mut self) -> bool {
        let mut status = None;
        wait_for("the daemon ends", || {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        });
        status.is_some_and(|status| status.success())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}:\n{}", self.log.display(), self.log());
            if let Ok(status) = mpip_api::status(&self.socket, true) {
                eprintln!("{status:?}");
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
