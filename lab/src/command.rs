//! Child processes that always end: by themselves, at their time limit, or with their owner.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// `None` if the time limit ended it.
    pub(crate) status: Option<ExitStatus>,
}

impl Output {
    pub(crate) fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// A running child in a process group of its own. Dropping it ends the group.
pub(crate) struct Running {
    child: Child,
    line: String,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

fn collect(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Path of this program, to start it again: the very file that runs, even if it has been replaced.
pub(crate) fn own_program() -> String {
    format!("/proc/{}/exe", std::process::id())
}

/// Nice value during measurements.
const NICE: i32 = -10;

/// Gives this process and its later children precedence over other processes, if that is permitted.
/// With two other processes that never sleep, mpip reached 0.94 of the limit of `two-100` with it
/// and
/// 0.85 without.
pub(crate) fn take_precedence() {
    let _ = rustix::process::setpriority_process(None, NICE);
}

/// Whether `program` is in a directory of `PATH`.
pub(crate) fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    })
}

/// The command line as a person would read it.
pub(crate) fn line_of(arguments: &[impl AsRef<OsStr>]) -> String {
    let words: Vec<_> = arguments.iter().map(|a| a.as_ref().to_string_lossy()).collect();
    words.join(" ")
}

impl Running {
    /// Starts `arguments[0]`. Its output is collected; its standard input is empty.
    pub(crate) fn start(arguments: &[impl AsRef<OsStr>]) -> io::Result<Self> {
        let line = line_of(arguments);
        let mut child = Command::new(&arguments[0])
            .args(&arguments[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("{line}: {e}")))?;
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Ok(Self { child, line, stdout, stderr })
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal to the whole group.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }

    /// Waits for its end until `deadline`. Then sends SIGINT, and SIGKILL two seconds later.
    pub(crate) fn finish(mut self, deadline: Instant) -> Output {
        let mut status = self.wait_until(deadline);
        let in_time = status.is_some();
        if !in_time {
            self.signal(Signal::INT);
            status = self.wait_until(Instant::now() + Duration::from_secs(2));
        }
        if status.is_none() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
        let join = |reader: Option<JoinHandle<String>>| {
            reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
        };
        let (stdout, stderr) = (join(self.stdout.take()), join(self.stderr.take()));
        Output { stdout, stderr, status: if in_time { status } else { None } }
    }

    fn wait_until(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn line(&self) -> &str {
        &self.line
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Runs a short command (10 s at most).
///
/// # Errors
/// It cannot be started, fails, or takes too long; the error has its command line and message.
pub(crate) fn run(arguments: &[impl AsRef<OsStr>]) -> io::Result<String> {
    let running = Running::start(arguments)?;
    let line = running.line().to_owned();
    let output = running.finish(Instant::now() + Duration::from_secs(10));
    if output.succeeded() {
        return Ok(output.stdout);
    }
    let how = match output.status {
        Some(status) => status.to_string(),
        None => "no end within 10 s".to_owned(),
    };
    Err(io::Error::other(format!("{line}: {how}: {}", output.stderr.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_status_are_collected() {
        let output = Running::start(&["sh", "-c", "echo out; echo err >&2; exit 3"])
            .expect("sh")
            .finish(Instant::now() + Duration::from_secs(5));
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!(output.status.and_then(|s| s.code()), Some(3));
    }

    #[test]
    fn a_child_that_does_not_end_is_killed_with_its_children() {
        let start = Instant::now();
        let output = Running::start(&["sh", "-c", "trap '' INT; sleep 100 & wait; sleep 100"])
            .expect("sh")
            .finish(Instant::now() + Duration::from_millis(50));
        assert!(output.status.is_none());
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn errors_have_the_command_line_and_the_message() {
        let error = run(&["sh", "-c", "echo no such thing >&2; exit 1"]).expect_err("fails");
        assert!(error.to_string().contains("no such thing"), "{error}");
        assert!(run(&["/nonexistent/program"]).is_err());
    }
}
