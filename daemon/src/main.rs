//! `mpipd`: one mpip node on this host.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use log::LevelFilter;
use mpip_daemon::{config, doctor, listed, logging};

/// One mpip node: all paths between this host and its peers, used at the same time.
///
/// Runs in the foreground and logs to standard error; `mpip up FILE` starts it in the background.
/// It needs the capability CAP_NET_ADMIN and drops all others. SIGTERM and SIGINT end it and
/// remove the device, its routes and the control socket. When it ends otherwise, packets of policy
/// `require` are refused until it starts again.
#[derive(Debug, Parser)]
#[command(name = "mpipd", version)]
struct Arguments {
    /// The configuration, described in docs/configuration.md
    #[arg(long, value_name = "FILE", required_unless_present_any = ["doctor", "firewall_helper"])]
    config: Option<PathBuf>,
    /// Check the configuration and its key files, print what is wrong, and exit
    #[arg(long)]
    check: bool,
    /// Print the path of the control socket, and exit
    #[arg(long, conflicts_with = "check")]
    print_socket: bool,
    /// Remove what an mpipd with this configuration left on the host that was killed or ended by
    /// an error, say what, and end: also what refuses packets of policy `require`. None may
    /// run
    #[arg(long, conflicts_with_all = ["check", "print_socket", "doctor"])]
    clean_up: bool,
    /// Print what on this host keeps mpipd from working and how to mend it, and exit: with 0 if
    /// nothing is wrong, else with 1
    #[arg(long, conflicts_with_all = ["check", "print_socket"])]
    doctor: bool,
    /// With --doctor: the control socket of the running daemon
    #[arg(long, value_name = "PATH", requires = "doctor")]
    socket: Option<PathBuf>,
    /// With --doctor: ask the daemon of this peer (without a name, the only one) through the tunnel
    /// what it sees
    #[arg(long, value_name = "NAME", num_args = 0..=1, requires = "doctor")]
    peer: Option<Option<String>>,
    /// With --doctor: print one JSON object
    #[arg(long, requires = "doctor")]
    json: bool,
    /// Log level: off, error, warn, info, debug or trace (every packet); by default that of the
    /// environment variable RUST_LOG, else info
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<LevelFilter>,
    /// Form of the log: text, json (an object per line, with the fields of events), or journald (to
    /// systemd's journal, with fields)
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: logging::Format,
    /// Trace every path into this directory, as qlog: a file of up to 256 MB for each configured
    /// peer. For debugging; it costs performance
    #[arg(long, value_name = "DIRECTORY")]
    qlog: Option<PathBuf>,
    /// What mpipd starts to change the packet filter
    #[arg(long, hide = true)]
    firewall_helper: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = logging::start(arguments.log_level, arguments.log_format) {
        eprintln!("mpipd: {error}");
        return ExitCode::FAILURE;
    }
    match act(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("mpipd: {error}");
            ExitCode::FAILURE
        }
    }
}

fn act(arguments: &Arguments) -> Result<ExitCode, Box<dyn std::error::Error>> {
    if arguments.firewall_helper {
        mpip_daemon::firewall_helper()?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.doctor {
        return examine(arguments);
    }
    let config = arguments.config.as_deref().expect("clap requires it");
    if arguments.print_socket {
        println!("{}", config::control_socket(config)?.display());
        return Ok(ExitCode::SUCCESS);
    }
    let settings = config::load(config)?;
    if arguments.check {
        let (peers, rules) = (settings.peers.len(), settings.rules.len());
        println!(
            "{}: valid: interface {}, {peers} peers, {rules} rules",
            config.display(),
            settings.interface
        );
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.clean_up {
        let interface = &settings.interface;
        match mpip_daemon::clean_up(&settings)?.as_deref() {
            None => {}
            Some([]) => println!("{interface}: what a former mpipd left is removed"),
            Some(refused) => {
                println!("{interface}: packets to {} are not refused any more", listed(refused));
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    mpip_daemon::run(settings, arguments.qlog.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

fn examine(arguments: &Arguments) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let Arguments { config, socket, peer, json, .. } = arguments;
    let (config, socket, peer) = (config.clone(), socket.clone(), peer.clone());
    let report = doctor::examine(&doctor::Target { config, socket, peer });
    let text = match json {
        true => format!("{}\n", serde_json::to_string_pretty(&report)?),
        false => report.to_string(),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(if report.is_healthy() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
