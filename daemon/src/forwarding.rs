//! Whether the host forwards packets: kernel parameters that are switched on while the daemon runs.
//!
//! Former values are recorded in a file beside the control socket, to be restored even after the
//! daemon was killed. A host that forwards IPv6 ignores router advertisements unless `accept_ra` is
//! 2, so interfaces that follow them (1) are set to that.
//!
//! When the switch goes back, the kernel sets anew what depends on it: interfaces that forwarded on
//! their own do not any more, and redirects of IPv4 are accepted. That is recorded too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;

const SETTINGS: &str = "/proc/sys/net";
/// By IPv4 and by IPv6.
const FORWARDING: [&str; 2] = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"];

/// Switches forwarding on and back.
#[derive(Debug)]
pub(crate) struct Forwarding {
    /// The file with the former values.
    record: PathBuf,
    /// Names, and former and present values.
    changed: Vec<(String, String, String)>,
}

impl Forwarding {
    /// Nothing is changed yet by the daemon with this control socket.
    pub(crate) fn new(control_socket: &Path) -> Self {
        Self { record: record_beside(control_socket), changed: Vec::new() }
    }

    /// Whether the host forwards nothing, by IPv4 and by IPv6.
    pub(crate) fn off(&self) -> [bool; 2] {
        forwards().map(|forwards| forwards == Some(false))
    }

    /// Switches it on. The former values are written down first.
    pub(crate) fn switch_on(&mut self) -> Result<(), Error> {
        let advertised = read(FORWARDING[1]).is_ok_and(|value| value == "0").then(|| links("ipv6"));
        let advertised = advertised.into_iter().flatten();
        let advertised = advertised.map(|link| (format!("ipv6/conf/{link}/accept_ra"), "1", "2"));
        let wanted = advertised.chain(FORWARDING.map(|name| (name.to_owned(), "0", "1")));
        self.changed.extend(with_values(wanted));
        // What is put back last is first.
        let lines = lost_when_off().into_iter().chain(self.changed.iter().cloned());
        let lines = lines.map(|(name, from, to)| format!("{name} {from} {to}\n"));
        let failed = |name: &str, error: io::Error| {
            Error::Firewall(format!("cannot switch forwarding on: `{name}`: {error}"))
        };
        if let Some(directory) = self.record.parent() {
            fs::create_dir_all(directory).map_err(|error| failed("the record", error))?;
        }
        fs::write(&self.record, lines.collect::<String>())
            .map_err(|error| failed(&self.record.display().to_string(), error))?;
        for (name, _, to) in &self.changed {
            let ipv6 = name.starts_with("ipv6");
            match fs::write(Path::new(SETTINGS).join(name), to) {
                Ok(()) => {}
                // Without IPv6 there is nothing to forward by it.
                Err(error) if ipv6 => log::warn!("`{name}` stays as it is: {error}"),
                Err(error) => return Err(failed(name, error)),
            }
        }
        log::info!("this host forwards packets while mpipd runs");
        Ok(())
    }

    /// Restores the former values, also those recorded by a daemon that was killed. Returns whether
    /// there were any.
    pub(crate) fn restore(&mut self) -> bool {
        self.changed.clear();
        let Ok(recorded) = fs::read_to_string(&self.record) else { return false };
        let lines = recorded.lines().rev().filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?, words.next()?))
        });
        for (name, from, to) in lines {
            // Another program may have changed it since.
            if read(name).is_ok_and(|present| present == to)
                && let Err(error) = fs::write(Path::new(SETTINGS).join(name), from)
            {
                log::warn!("cannot put back `{name}` to {from}: {error}");
            }
        }
        if let Err(error) = fs::remove_file(&self.record) {
            log::warn!("cannot remove {}: {error}", self.record.display());
        }
        true
    }
}

/// What the kernel sets anew when forwarding is switched off again: names, values now, and values
/// then.
fn lost_when_off() -> Vec<(String, String, String)> {
    let mut lost = Vec::new();
    for (family, switch) in ["ipv4", "ipv6"].into_iter().zip(FORWARDING) {
        if read(switch).is_ok_and(|value| value != "0") {
            continue;
        }
        let forwarding = links(family)
            .filter(|link| link != "all")
            .map(|link| (format!("{family}/conf/{link}/forwarding"), "1", "0"));
        let redirects =
            (family == "ipv4").then(|| ("ipv4/conf/all/accept_redirects".to_owned(), "0", "1"));
        lost.extend(with_values(forwarding.chain(redirects)));
    }
    lost
}

/// The interfaces that have parameters of `family`, `all` and `default` included.
fn links(family: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(Path::new(SETTINGS).join(family).join("conf"));
    entries.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}

/// Those of `parameters` that have the first of their values.
fn with_values<'a>(
    parameters: impl Iterator<Item = (String, &'a str, &'a str)>,
) -> impl Iterator<Item = (String, String, String)> {
    let holds =
        |(name, value, _): &(String, &str, &str)| read(name).is_ok_and(|found| found == *value);
    parameters.filter(holds).map(|(name, from, to)| (name, from.to_owned(), to.to_owned()))
}

/// The file in which the daemon with this control socket records the former values.
pub(crate) fn record_beside(control_socket: &Path) -> PathBuf {
    let mut record = control_socket.to_owned().into_os_string();
    record.push(".forwarding");
    record.into()
}

/// Whether the host forwards, by IPv4 and by IPv6; `None` where it cannot.
pub(crate) fn forwards() -> [Option<bool>; 2] {
    FORWARDING.map(|name| read(name).ok().map(|value| value != "0"))
}

fn read(name: &str) -> io::Result<String> {
    fs::read_to_string(Path::new(SETTINGS).join(name)).map(|value| value.trim().to_owned())
}
