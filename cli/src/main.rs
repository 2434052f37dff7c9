//! `mpip`: keys, starting and stopping a daemon, and what it reports.

mod availability;
mod daemon;
mod events;
mod keys;
mod show;
mod socket;
mod table;

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// All paths between two hosts, used at the same time.
///
/// A first setup, on each of two hosts:
///
///   mpip genkey --out /etc/mpip/mpip0.key      prints the public key, for the other host
///   mpip check /etc/mpip/mpip0.toml            is the configuration right?
///   mpip up /etc/mpip/mpip0.toml               start
///   mpip status                                are the paths active?
///   mpip doctor                                if not: what is in the way?
#[derive(Debug, Parser)]
#[command(name = "mpip", version, verbatim_doc_comment)]
struct Arguments {
    /// The control socket of the daemon; without it the only one in /run/mpip
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a private key
    ///
    /// Prints it, or with --out writes it to a new file that only its owner can read and prints
    /// the public key that belongs to it.
    Genkey {
        /// The file to write; it must not exist yet
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Read a private key from standard input and print its public key
    ///
    /// mpip pubkey < /etc/mpip/mpip0.key
    Pubkey,
    /// Make a preshared key, for `preshared_key_file` of both ends
    Genpsk {
        /// The file to write; it must not exist yet
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Start a daemon in the background and wait until it works (needs CAP_NET_ADMIN)
    ///
    /// What the daemon logs goes to a file beside its control socket, by default
    /// /run/mpip/INTERFACE.log.
    Up {
        /// The configuration, described in docs/configuration.md
        file: PathBuf,
        /// How much the daemon logs: off, error, warn, info, debug or trace
        #[arg(long, value_name = "LEVEL")]
        log_level: Option<String>,
    },
    /// End a daemon and wait until its device and routes are gone
    ///
    /// If none runs with the configuration FILE, remove what one left that was killed or ended by an
    /// error: also the routes that refuse packets of policy `require` (as root).
    Down {
        /// The configuration it was started with; without it the daemon of --socket
        #[arg(conflicts_with = "socket")]
        file: Option<PathBuf>,
    },
    /// Show peers and paths
    ///
    /// Per path: its state; round-trip time and the lowest of the last 10 s; one-way delay
    /// compared with the fastest path; delay in queues; loss of the last seconds; delivery rate;
    /// weight (scheduler `weighted`); share of the data sent.
    Status {
        /// As one JSON object, with everything there is
        #[arg(long)]
        json: bool,
        /// Sessions too, the most recently used first
        #[arg(long)]
        sessions: bool,
    },
    /// Show which destinations of the host speak mpip
    ///
    /// Those that the host talks to, within the prefixes of `[opportunistic]`: whether they were asked
    /// (queried), a node answered (enabled), nothing came of it (not-enabled), or a node named
    /// another key than the one pinned to its address (key-changed).
    Availability {
        /// As a JSON list
        #[arg(long)]
        json: bool,
    },
    /// Print events as they happen, until interrupted
    Events {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Say what on this host keeps mpip from working, and how to mend it
    ///
    /// A line for each thing that is `wrong`, each `note`, and what could not be checked. Ends with 0
    /// when nothing is wrong, else with 1. Changes nothing; as root it sees most.
    Doctor {
        /// The configuration, whether or not its daemon runs; without it that of the running one
        file: Option<PathBuf>,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Check a configuration and its key files
    Check {
        /// The configuration
        file: PathBuf,
    },
}

/// What ends the program with an error: words for the user.
#[derive(Debug)]
struct Failure(String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match act(&arguments) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("mpip: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn act(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let socket = || socket::find(arguments.socket.as_deref());
    match &arguments.command {
        Command::Genkey { out } => keys::generate_private(out.as_deref())?,
        Command::Pubkey => keys::public()?,
        Command::Genpsk { out } => keys::generate_preshared(out.as_deref())?,
        Command::Up { file, log_level } => daemon::up(file, log_level.as_deref())?,
        Command::Down { file: Some(file) } => daemon::down_of(file)?,
        Command::Down { file: None } => daemon::down(&socket()?)?,
        Command::Status { json, sessions } => show::status(&socket()?, *json, *sessions)?,
        Command::Availability { json } => availability::show(&socket()?, *json)?,
        Command::Events { json } => events::follow(&socket()?, *json)?,
        Command::Doctor { file, json } => {
            let socket = match (file, &arguments.socket) {
                (Some(_), None) => None,
                (_, given) => socket::find_any(given.as_deref())?,
            };
            return daemon::doctor(file.as_deref(), socket.as_deref(), *json);
        }
        Command::Check { file } => return daemon::check(file),
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes `text` to standard output. A reader that has seen enough is no error.
fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_has_help() {
        let command = Arguments::command();
        for sub in command.get_subcommands() {
            assert!(sub.get_about().is_some(), "{}", sub.get_name());
            for argument in sub.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", sub.get_name(), argument.get_id());
            }
        }
    }
}
