//! The commands that run `mpipd`: `up`, `down`, `check` and `doctor`.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use mpip_api::{Client, ClientError, Request};

use crate::failure::Failure;
use crate::output::print;
use crate::progress::{self, Progress};

/// Longest time until a daemon that starts answers, and until one that ends is gone.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Interval at which both are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// `mpipd` in the directory of this program, or in `sbin` beside that, which is not in every user's
/// `PATH`; else as `PATH` finds it.
fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let beside = [own.with_file_name("mpipd"), own.with_file_name("../sbin/mpipd")];
    beside.into_iter().find(|path| path.is_file()).unwrap_or_else(|| PathBuf::from("mpipd"))
}

fn mpipd(file: &Path) -> Command {
    let mut command = Command::new(program());
    command.arg("--config").arg(file);
    command
}

fn not_started(error: &std::io::Error) -> Failure {
    Failure(format!("cannot run mpipd, expected beside mpip or in a directory of PATH: {error}"))
}

/// The control socket that the configuration in `file` names.
pub(crate) fn socket_of(file: &Path) -> Result<PathBuf, Failure> {
    let output = mpipd(file).arg("--print-socket").output().map_err(|error| not_started(&error))?;
    if !output.status.success() {
        return Err(Failure(message_of(&output.stderr)));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end()))
}

/// What mpipd wrote to standard error, without its name in front.
fn message_of(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim_end();
    text.strip_prefix("mpipd: ").unwrap_or(text).to_owned()
}

/// Runs `mpipd --check`, which prints what is wrong with `file`.
pub(crate) fn check(file: &Path) -> Result<ExitCode, Failure> {
    let status = mpipd(file).arg("--check").status().map_err(|error| not_started(&error))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs `mpipd --doctor`, which prints what it finds on the host.
pub(crate) fn doctor(
    file: Option<&Path>,
    socket: Option<&Path>,
    peer: Option<Option<&str>>,
    json: bool,
) -> Result<ExitCode, Failure> {
    let mut command = examination(file, socket);
    command.args(peer.map(|_| "--peer")).args(peer.flatten());
    if json {
        command.arg("--json");
    }
    let what = match peer {
        Some(_) => "looking at this host, and asking the peer",
        None => "looking at this host",
    };
    let status = progress::during(what, None, || command.status());
    let status = status.map_err(|error| not_started(&error))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `mpipd --doctor`.
pub(crate) fn examination(file: Option<&Path>, socket: Option<&Path>) -> Command {
    let mut command = Command::new(program());
    command.arg("--doctor");
    for (option, value) in [("--config", file), ("--socket", socket)] {
        if let Some(value) = value {
            command.arg(option).arg(value);
        }
    }
    command
}

/// Starts a daemon and waits until it answers: by systemd where it runs and has a unit for it, and
/// no level of the log is asked for; otherwise in the background.
pub(crate) fn up(file: &Path, log_level: Option<&str>) -> Result<(), Failure> {
    match unit_of(file).filter(|_| log_level.is_none()) {
        None => in_background(file, log_level),
        Some(unit) => {
            by_systemd(file, &["start"], &unit)?;
            print(&format!("{unit} is up; `systemctl enable {unit}` starts it with the host\n"))
        }
    }
}

fn in_background(file: &Path, log_level: Option<&str>) -> Result<(), Failure> {
    let socket = socket_of(file)?;
    if mpip_api::is_served(&socket)? {
        return Err(Failure(format!(
            "already running: an mpipd answers on the control socket `{}`",
            socket.display()
        )));
    }
    let log = socket.with_extension("log");
    let mut child = spawn(file, log_level, &log)?;
    let (start, mut progress) = (Instant::now(), Progress::new(Some(TIMEOUT)));
    while start.elapsed() < TIMEOUT {
        progress.tell("mpipd starts and does not answer yet");
        if let Some(status) = child.try_wait()? {
            let mut message = message_of(&fs::read(&log).unwrap_or_default());
            if message.is_empty() {
                message = format!("mpipd ended: {status}");
            }
            return Err(Failure(format!("the daemon did not start\n{message}")));
        }
        if let Ok(status) = mpip_api::status(&socket, false) {
            return print(&format!(
                "{} is up (process {}, log {})\n",
                status.interface.name,
                status.pid,
                log.display()
            ));
        }
        thread::sleep(POLL_INTERVAL);
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(Failure(format!(
        "the daemon did not answer on `{}` within {} s; its log is {}",
        socket.display(),
        TIMEOUT.as_secs(),
        log.display()
    )))
}

/// Starts the daemon with the configuration `file`: by systemd where it runs and has a unit for it,
/// so that it starts with the host, too; otherwise in the background.
pub(crate) fn start(file: &Path) -> Result<(), Failure> {
    let Some(unit) = unit_of(file) else {
        in_background(file, None)?;
        return print(&format!(
            "it does not start with the host: after a restart run `mpip up {}`\n",
            file.display()
        ));
    };
    by_systemd(file, &["enable", "--now"], &unit)?;
    print(&format!("{unit} is up, and starts with the host\n"))
}

/// Has systemd start `unit`, by `systemctl VERB`, and waits until the daemon answers.
fn by_systemd(file: &Path, verb: &[&str], unit: &str) -> Result<(), Failure> {
    let socket = socket_of(file)?;
    let done = Command::new("systemctl").args(verb).arg(unit).output()?;
    if !done.status.success() {
        let journal = ["--unit", unit, "--lines=3", "--output=cat", "--no-pager"];
        let journal = Command::new("journalctl").args(journal).output();
        return Err(Failure(format!(
            "`systemctl {} {unit}` failed: {}\n{}",
            verb.join(" "),
            String::from_utf8_lossy(&done.stderr).trim(),
            journal.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned())?
        )));
    }
    let (start, mut progress) = (Instant::now(), Progress::new(Some(TIMEOUT)));
    while mpip_api::status(&socket, false).is_err() {
        progress.tell(&format!("{unit} starts and does not answer yet"));
        if start.elapsed() > TIMEOUT {
            return Err(Failure(format!(
                "{unit} was started and does not answer after {} s: see `journalctl -u {unit}`",
                TIMEOUT.as_secs()
            )));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// The systemd unit for the configuration `file`, if systemd runs and has the template.
fn unit_of(file: &Path) -> Option<String> {
    if !Path::new("/run/systemd/system").exists() || file.parent()? != Path::new("/etc/mpip") {
        return None;
    }
    let unit = format!("mpip@{}.service", file.file_stem()?.to_str()?);
    let known = Command::new("systemctl").args(["cat", &unit]).output().ok()?;
    known.status.success().then_some(unit)
}

fn spawn(file: &Path, log_level: Option<&str>, log: &Path) -> Result<Child, Failure> {
    let open = || {
        fs::create_dir_all(log.parent().unwrap_or(Path::new("/")))?;
        let out = File::create(log)?;
        Ok((out.try_clone()?, out))
    };
    let (out, err) = open().map_err(|error: std::io::Error| {
        Failure(format!("cannot write the daemon's log `{}`: {error}", log.display()))
    })?;
    let mut command = mpipd(file);
    if let Some(level) = log_level {
        command.args(["--log-level", level]);
    }
    // In a process group of its own, Ctrl-C in this terminal does not reach the daemon.
    command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
    command.spawn().map_err(|error| not_started(&error))
}

/// Stops the daemon with the configuration in `file`. If none runs, removes what one left that was
/// killed or ended by an error.
pub(crate) fn down_of(file: &Path) -> Result<(), Failure> {
    let socket = socket_of(file)?;
    let Err(error) = Client::connect(&socket) else { return down(&socket) };
    if !error.is_not_running() {
        return Err(error.into());
    }
    let what = "removing what a former mpipd left";
    let output = progress::during(what, None, || mpipd(file).arg("--clean-up").output());
    let output = output.map_err(|error| not_started(&error))?;
    if !output.status.success() {
        let message = message_of(&output.stderr);
        return Err(Failure(format!("{error}\nwhat it may have left is not removed: {message}")));
    }
    // It says what it removed.
    if output.stdout.is_empty() {
        return Err(error.into());
    }
    print(&String::from_utf8_lossy(&output.stdout))
}

/// Stops the daemon that listens on `socket` and waits until its process is gone.
pub(crate) fn down(socket: &Path) -> Result<(), Failure> {
    let mut client = Client::connect(socket).map_err(|error| match error {
        ClientError::Socket { error: ref reason, .. }
            if reason.kind() == ErrorKind::ConnectionRefused =>
        {
            Failure(format!("{error}; `mpip down FILE` removes what it left"))
        }
        error => error.into(),
    })?;
    let status = mpip_api::status(socket, false);
    client.wait_up_to(TIMEOUT)?;
    progress::during("mpipd ends", Some(TIMEOUT), || client.request(&Request::Down))?;
    let Ok(status) = status else { return Ok(()) };
    let process = PathBuf::from(format!("/proc/{}", status.pid));
    let (start, mut progress) = (Instant::now(), Progress::new(Some(TIMEOUT)));
    while process.exists() && !is_zombie(&process) {
        progress.tell("mpipd has closed its paths, and its process still runs");
        if start.elapsed() > TIMEOUT {
            return Err(Failure(format!(
                "the daemon accepted the request, but its process {} still runs after {} s",
                status.pid,
                TIMEOUT.as_secs()
            )));
        }
        thread::sleep(POLL_INTERVAL);
    }
    print(&format!("{} is down\n", status.interface.name))
}

/// Whether the process has ended but its parent has not waited for it (proc_pid_stat(5)).
fn is_zombie(process: &Path) -> bool {
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}
