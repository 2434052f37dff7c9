//! Network namespaces of a run, and their removal.
//!
//! Their names are `mpip-lab-PID-NAME` with the process that made them, so those left behind by a
//! process that has ended are recognised. A guard process waits for the end of the lab process,
//! however it ends, and removes its namespaces.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::command;

const PREFIX: &str = "mpip-lab-";

/// A namespace that is removed, with the processes in it, when this is dropped.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace with its loopback interface up.
    pub(crate) fn create(name: &str) -> io::Result<Self> {
        let name = format!("{PREFIX}{}-{name}", std::process::id());
        command::run(&["ip", "netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// `arguments` as a command that runs inside.
    pub(crate) fn inside<S: Into<OsString> + Clone>(&self, arguments: &[S]) -> Vec<OsString> {
        let enter = ["ip", "netns", "exec", &self.name].map(OsString::from);
        enter.into_iter().chain(arguments.iter().cloned().map(Into::into)).collect()
    }

    /// Runs a short command inside.
    pub(crate) fn run<S: Into<OsString> + Clone>(&self, arguments: &[S]) -> io::Result<String> {
        command::run(&self.inside(arguments))
    }

    /// Runs `ip` inside.
    pub(crate) fn ip(&self, arguments: &[&str]) -> io::Result<String> {
        let line: Vec<&str> = ["ip", "-n", &self.name].iter().chain(arguments).copied().collect();
        command::run(&line)
    }

    /// Calls `f` in a thread inside; sockets that it opens stay there.
    ///
    /// # Errors
    /// Those of `f`, and without CAP_SYS_ADMIN.
    pub(crate) fn enter<T: Send>(&self, f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let namespace = File::open(Path::new("/run/netns").join(&self.name))?;
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                f()
            });
            inside.join().map_err(|_| io::Error::other("a thread panicked"))?
        })
    }

    /// Sets kernel parameters. Skips those that this kernel does not have.
    pub(crate) fn sysctl(&self, settings: &[(&str, &str)]) -> io::Result<()> {
        let mut script = String::new();
        for (key, value) in settings {
            let file = format!("/proc/sys/{}", key.replace('.', "/"));
            script += &format!("[ ! -e {file} ] || echo '{value}' > {file} || exit 1\n");
        }
        self.run(&["sh", "-c", &script]).map(drop)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

fn pids(name: &str) -> Vec<Pid> {
    let Ok(list) = command::run(&["ip", "netns", "pids", name]) else { return Vec::new() };
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw).collect()
}

fn remove(name: &str) {
    for signal in [Signal::TERM, Signal::KILL] {
        let pids = pids(name);
        for pid in &pids {
            let _ = rustix::process::kill_process(*pid, signal);
        }
        if !pids.is_empty() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let _ = command::run(&["ip", "netns", "del", name]);
}

/// The directory for files of process `owner`: keys, sockets, logs.
pub(crate) fn work_directory(owner: u32) -> PathBuf {
    std::env::temp_dir().join(format!("{PREFIX}{owner}"))
}

/// Removes the directories that `wanted` selects by the process that made them.
fn clean_directories(wanted: impl Fn(u32) -> bool) -> io::Result<()> {
    for entry in std::fs::read_dir(std::env::temp_dir())?.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.parse().ok());
        if owner.is_some_and(&wanted) {
            remove_directory(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a directory, unless another process that cleans up was faster.
pub(crate) fn remove_directory(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let message = format!("cannot remove {}: {error}", path.display());
            Err(io::Error::new(error.kind(), message))
        }
        _ => Ok(()),
    }
}

/// Removes the namespaces that `wanted` selects by the process that made them; returns their
/// names.
fn clean(wanted: impl Fn(u32) -> bool + Copy) -> io::Result<Vec<String>> {
    let list = command::run(&["ip", "netns", "list"])?;
    let mut removed = Vec::new();
    for name in list.lines().filter_map(|line| line.split_whitespace().next()) {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let Some(owner) = rest.split('-').next().and_then(|pid| pid.parse().ok()) else { continue };
        if wanted(owner) {
            remove(name);
            removed.push(name.to_owned());
        }
    }
    clean_directories(wanted)?;
    Ok(removed)
}

/// Removes what processes that have ended left behind.
pub(crate) fn clean_stale() -> io::Result<Vec<String>> {
    clean(|owner| !Path::new(&format!("/proc/{owner}")).exists())
}

/// Holds the guard process; when it is dropped or the process ends, the guard cleans up.
pub(crate) struct Guard {
    _stdin: ChildStdin,
}

impl Guard {
    /// Starts the guard of this process.
    pub(crate) fn start() -> io::Result<Self> {
        let mut child = Command::new(command::own_program())
            .args(["guard", &std::process::id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let stdin = child.stdin.take().ok_or_else(|| io::Error::other("guard without input"))?;
        Ok(Self { _stdin: stdin })
    }
}

/// The guard process: waits for the end of `owner` and removes its namespaces.
pub(crate) fn guard(owner: u32) -> io::Result<()> {
    let mut rest = Vec::new();
    io::stdin().read_to_end(&mut rest)?;
    clean(|pid| pid == owner).map(drop)
}

#[cfg(test)]
mod tests {
    use mpip_testing::Directory;

    use super::*;

    #[test]
    fn a_directory_that_another_process_removed_first_is_no_error() {
        let parent = Directory::new();
        let directory = parent.join("left");
        std::fs::create_dir_all(directory.join("deeper")).expect("made");
        for _ in 0..2 {
            remove_directory(&directory).expect("removed, or gone");
            assert!(!directory.exists());
        }
        std::fs::write(parent.join("file"), "").expect("written");
        let error = remove_directory(&parent.join("file/none")).expect_err("no directory");
        assert!(error.to_string().contains("file/none: "), "{error}");
    }
}
