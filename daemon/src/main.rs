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
