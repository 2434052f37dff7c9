//! `mpip debug`: one file with what helps others to help, and without secrets.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use mpip_api::{Client, KnownPeer, Request, Response, Status};

use crate::failure::Failure;
use crate::output::print;
use crate::progress;
use crate::redact::redact;
use crate::units::unix_time;
use crate::{daemon, explain, socket};

/// Last lines of the log that are taken.
const LOG_LINES: usize = 500;
/// Most bytes of the output of one program.
const OUTPUT_MAX: usize = 200_000;

/// What is asked of the host, by programs that change nothing.
const PROGRAMS: [&[&str]; 7] = [
    &["uname", "-srm"],
    &["ip", "-brief", "address"],
    &["ip", "rule"],
    &["ip", "-6", "rule"],
    &["ip", "route", "show", "table", "all"],
    &["ip", "-6", "route", "show", "table", "all"],
    &["nft", "list", "ruleset"],
];

/// Files of the host that say something.
const FILES: [&str; 4] = [
    "/etc/os-release",
    "/etc/resolv.conf",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/net/ipv4/conf/all/rp_filter",
];

/// A report, section by section.
#[derive(Default)]
struct Report {
    text: String,
    /// Keys that everybody may know.
    public: Vec<String>,
}

impl Report {
    fn section(&mut self, title: &str, content: &str) {
        let end = if content.ends_with('\n') || content.is_empty() { "" } else { "\n" };
        self.text += &format!("\n== {title}\n{content}{end}");
    }

    fn finish(&self) -> String {
        redact(&self.text, &self.public)
    }
}

/// Collects a report about the daemon with the configuration `config`, or on `given`, and writes it
/// to `out`, `-` for standard output.
pub(crate) fn collect(
    given: Option<&Path>,
    config: Option<&Path>,
    out: Option<&Path>,
) -> Result<(), Failure> {
    let socket = match config {
        Some(file) => daemon::socket_of(file).ok(),
        None => socket::find_any(given)?,
    };
    let report = progress::during("collecting", None, || gather(socket.as_deref(), config));
    let text = report.finish();
    if out == Some(Path::new("-")) {
        return print(&text);
    }
    let default = || PathBuf::from(format!("mpip-debug-{}.txt", unix_time()));
    let file = out.map_or_else(default, Path::to_owned);
    let failed = |error: std::io::Error| {
        Failure(format!("cannot write the report `{}`: {error}", file.display()))
    };
    let mut options = fs::File::options();
    options.write(true).create_new(true).mode(0o600);
    let mut opened = options.open(&file).map_err(failed)?;
    std::io::Write::write_all(&mut opened, text.as_bytes()).map_err(failed)?;
    print(&format!(
        "wrote `{}` ({} lines). Keys, tokens and passwords are taken out; names, addresses and routes \
         of this host are in it: look through it before you give it away\n",
        file.display(),
        text.lines().count()
    ))
}

fn gather(socket: Option<&Path>, config: Option<&Path>) -> Report {
    let mut report = Report::default();
    let head = format!("mpip {}\ntime {} s since 1970\n", env!("CARGO_PKG_VERSION"), unix_time());
    report.section("mpip debug", &head);
    let status = socket.map(|socket| mpip_api::status(socket, false));
    let running = status.as_ref().and_then(|status| status.as_ref().ok()).cloned();
    if let Some(running) = &running {
        report.public.push(running.public_key.clone());
    }
    let config = config.map(Path::to_owned).or_else(|| running.as_ref().map(config_of));
    if let Some(file) = &config {
        let text = read(file);
        report.public.extend(public_keys(&text));
        report.public.push(file.display().to_string());
        report.section(&format!("configuration {}", file.display()), &text);
    }
    // A failed examination says why.
    let mut examination = daemon::examination(config.as_deref(), socket);
    report.section("mpip doctor", &output(&mut examination));
    match &status {
        Some(Ok(status)) => report.section("mpip status --json", &json(status)),
        Some(Err(error)) => report.section("mpip status", &error.to_string()),
        None => report.section("mpip status", "no daemon runs, and no configuration was given"),
    }
    if let (Some(socket), Some(_)) = (socket, &running) {
        let explained = explain::text(socket).unwrap_or_else(|error| error.to_string());
        report.section("mpip explain", &explained);
        ask(&mut report, socket);
    }
    if let Some(socket) = socket {
        report.section("log", &log(socket, running.as_ref()));
    }
    for program in PROGRAMS {
        let text = output(Command::new(program[0]).args(&program[1..]));
        report.section(&program.join(" "), &text);
    }
    for file in FILES {
        report.section(file, &read(Path::new(file)));
    }
    report
}

/// What the daemon tells besides its status.
fn ask(report: &mut Report, socket: &Path) {
    for (title, request) in [
        ("recent events", Request::RecentEvents),
        ("set for the time being", Request::Overrides),
        ("peers that were invited", Request::Peers),
    ] {
        let answer = Client::connect(socket).and_then(|mut client| client.request(&request));
        let text = match answer {
            Ok(Response::RecentEvents { events }) => {
                events.iter().map(|event| format!("{}\n", event.message)).collect()
            }
            Ok(Response::Peers { peers }) => {
                report.public.extend(peers.iter().filter_map(public_key_of));
                json(&peers)
            }
            Ok(other) => json(&other),
            Err(error) => error.to_string(),
        };
        report.section(title, &text);
    }
}

fn public_key_of(peer: &KnownPeer) -> Option<String> {
    peer.public_key.clone()
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|error| error.to_string())
}

/// The configuration of a running daemon.
fn config_of(status: &Status) -> PathBuf {
    PathBuf::from(&status.config_file)
}

/// The public keys in a configuration.
fn public_keys(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("public_key"));
    let values = lines.filter_map(|rest| rest.trim().strip_prefix('='));
    let value = |rest: &str| {
        let rest = rest.trim();
        let quote = rest.chars().next().filter(|c| ['"', '\''].contains(c))?;
        Some(rest[1..].split(quote).next()?.to_owned())
    };
    values.filter_map(value).collect()
}

/// The last lines of the daemon's log: its file, else systemd's journal.
fn log(socket: &Path, running: Option<&Status>) -> String {
    let file = socket.with_extension("log");
    let text = match fs::read(&file) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => {
            let name = running.map_or("mpip0", |status| status.interface.name.as_str());
            let unit = format!("mpip@{name}.service");
            output(Command::new("journalctl").args(["--no-pager", "-n", "500", "-u", &unit]))
        }
    };
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

fn read(file: &Path) -> String {
    match fs::read(file) {
        Ok(bytes) => limited(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) => format!("cannot read `{}`: {error}", file.display()),
    }
}

/// What a program says, on both its outputs.
fn output(command: &mut Command) -> String {
    match command.output() {
        Ok(output) => {
            let words = [output.stdout, output.stderr].concat();
            limited(String::from_utf8_lossy(&words).into_owned())
        }
        Err(error) => format!("cannot run {}: {error}", command.get_program().display()),
    }
}

fn limited(mut text: String) -> String {
    if text.len() > OUTPUT_MAX {
        let end = (0..=OUTPUT_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text += "\n[the rest is left out]\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use mpip_crypto::{PrivateKey, Rng};

    use super::*;

    #[test]
    fn a_report_keeps_public_keys_and_has_no_private_one() {
        let private = PrivateKey::generate(&mut Rng::new([3; 32]));
        let (public, secret) = (private.public_key().to_string(), private.secret_base64());
        let config = format!(
            "[node]\nprivate_key_file = \"mpip0.key\" # {}\n[[peer]]\npublic_key = \"{public}\"\n",
            secret.as_str()
        );
        assert_eq!(public_keys(&config), std::slice::from_ref(&public));
        let mut report = Report { public: public_keys(&config), ..Report::default() };
        report.section("configuration", &config);
        report.section("log", &format!("`{}` is no key\n", secret.as_str()));
        let text = report.finish();
        assert!(text.contains(&public) && !text.contains(secret.as_str()), "{text}");
        assert!(text.contains("== log\n`[removed]` is no key\n"), "{text}");
    }

    #[test]
    fn long_outputs_are_cut_between_characters() {
        let text = limited("é".repeat(OUTPUT_MAX));
        assert!(text.len() < OUTPUT_MAX + 40 && text.ends_with("left out]\n"));
    }
}
