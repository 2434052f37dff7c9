//! Two hosts and two links between them, of which host b's configuration changes.

use std::fs;
use std::path::PathBuf;

use mpip_api::{ClientError, ReloadReport, Request, Response};

use super::{Configuration, Daemon, Directory, Family, Host, two_hosts};

/// Host a's configuration.
pub(crate) const A: Configuration<'static> = Configuration {
    number: 1,
    keys: (1, 2),
    endpoints: &["198.18.0.2:6182", "198.18.1.2:6182"],
    peer: "",
};
/// Host b's, which host a calls.
pub(crate) const B: Configuration<'static> =
    Configuration { number: 2, keys: (2, 1), endpoints: &[], peer: "" };

/// Both hosts with their daemons, and the file of host b.
pub(crate) struct World {
    pub(crate) a: Host,
    pub(crate) b: Host,
    pub(crate) daemon_a: Daemon,
    pub(crate) daemon_b: Daemon,
    pub(crate) file: PathBuf,
    /// What it said at the start.
    pub(crate) text: String,
    directory: Directory,
}

impl World {
    pub(crate) fn new(test: &str) -> Self {
        let (a, b) = two_hosts(test, 2, &[Family::V4]);
        let directory = Directory::new();
        let file = B.write(&directory, "");
        let daemon_b = Daemon::spawn_file(&b, &directory, B.number, &file).ready();
        let daemon_a = Daemon::start(&a, &directory, &A);
        daemon_a.wait_for_paths(2);
        daemon_b.wait_for_paths(2);
        let text = fs::read_to_string(&file).expect("written");
        Self { a, b, daemon_a, daemon_b, file, text, directory }
    }

    /// Starts host b's daemon anew, with its file as it is.
    pub(crate) fn restart_b(&mut self) {
        let Self { b, directory, file, .. } = self;
        self.daemon_b = Daemon::spawn_file(b, directory, B.number, file).ready();
    }

    /// Changes the file of host b and has it applied.
    pub(crate) fn reload(&self, text: &str) -> Result<ReloadReport, String> {
        fs::write(&self.file, text).expect("writable");
        match self.ask(&Request::Reload) {
            Ok(Response::Reloaded { changes }) => Ok(changes),
            Ok(other) => panic!("{other:?}"),
            Err(ClientError::Refused(message)) => Err(message),
            Err(error) => panic!("{error}\n{}", self.daemon_b.log()),
        }
    }

    /// Asks host b's daemon.
    pub(crate) fn ask(&self, request: &Request) -> Result<Response, ClientError> {
        self.daemon_b.ask(request)
    }
}
