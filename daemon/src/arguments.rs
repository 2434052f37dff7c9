//! The command line of `mpipd`, also for `examples/manual.rs`.

use std::path::PathBuf;

use clap::Parser;
use log::LevelFilter;
use mpip_daemon::logging;

/// One mpip node: all paths between this host and its peers, used at the same time.
///
/// Runs in the foreground and logs to standard error; `mpip up FILE` starts it in the background.
/// It needs the capability CAP_NET_ADMIN; of the others it keeps what its configuration needs.
/// SIGTERM and SIGINT end it and remove the device, its routes and the control socket. When it
/// ends otherwise, packets of policy `require` are refused until it starts again.
#[derive(Debug, Parser)]
#[command(name = "mpipd", version)]
pub(crate) struct Arguments {
    /// The configuration, described in docs/configuration.md
    #[arg(long, value_name = "FILE", required_unless_present_any = ["doctor", "firewall_helper"])]
    pub(crate) config: Option<PathBuf>,
    /// Check the configuration and its key files, print what is wrong, and exit
    #[arg(long)]
    pub(crate) check: bool,
    /// Print the path of the control socket, and exit
    #[arg(long, conflicts_with = "check")]
    pub(crate) print_socket: bool,
    /// Remove what an mpipd with this configuration left on the host that was killed or ended by
    /// an error, say what, and end: also what refuses packets of policy `require`. None may
    /// run
    #[arg(long, conflicts_with_all = ["check", "print_socket", "doctor"])]
    pub(crate) clean_up: bool,
    /// Print what on this host keeps mpipd from working and how to mend it, and exit: with 0 if
    /// nothing is wrong, else with 1
    #[arg(long, conflicts_with_all = ["check", "print_socket"])]
    pub(crate) doctor: bool,
    /// With --doctor: the control socket of the running daemon
    #[arg(long, value_name = "PATH", requires = "doctor")]
    pub(crate) socket: Option<PathBuf>,
    /// With --doctor: ask the daemon of this peer (without a name, the only one) through the tunnel
    /// what it sees
    #[arg(long, value_name = "NAME", num_args = 0..=1, requires = "doctor")]
    pub(crate) peer: Option<Option<String>>,
    /// With --doctor: print one JSON object
    #[arg(long, requires = "doctor")]
    pub(crate) json: bool,
    /// Log level: off, error, warn, info, debug or trace (every packet); by default that of the
    /// environment variable RUST_LOG, else info
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<LevelFilter>,
    /// Form of the log: text, json (an object per line, with the fields of events), or journald (to
    /// systemd's journal, with fields)
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: logging::Format,
    /// Trace every path into this directory, as qlog: a file of up to 256 MB for each configured
    /// peer. For debugging; it costs performance
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) qlog: Option<PathBuf>,
    /// What mpipd starts to change the packet filter
    #[arg(long, hide = true)]
    pub(crate) firewall_helper: bool,
}
