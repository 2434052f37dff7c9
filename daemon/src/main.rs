//! `mpipd`: one mpip node on this host.

mod arguments;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use mpip_daemon::{config, doctor, listed, logging};

use arguments::Arguments;

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
        say(&config::control_socket(config)?.display().to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = config::load(config)?;
    if arguments.check {
        let (peers, rules) = (settings.peers.len(), settings.rules.len());
        let (file, interface) = (config.display(), &settings.interface);
        say(&format!("{file}: valid: interface {interface}, {peers} peers, {rules} rules"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.clean_up {
        let interface = &settings.interface;
        match mpip_daemon::clean_up(&settings)?.as_deref() {
            None => {}
            Some([]) => say(&format!("{interface}: what a former mpipd left is removed"))?,
            Some(refused) => {
                let refused = listed(refused);
                say(&format!("{interface}: packets to {refused} are not refused any more"))?;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    mpip_daemon::run(settings, arguments.qlog.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a line to standard output.
fn say(line: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{line}")
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
