//! `mpip-lab shell`: a shell in a host of a scenario.

use std::io;
use std::process::ExitCode;

use crate::links::Setup;
use crate::scenarios::Loaded;
use crate::subject::subjects;
use crate::systems;
use crate::testbed::Testbed;
use crate::work_directory::WorkDirectory;

/// Builds the topology, starts `system` if given, and runs a shell or the script `exec` in a host.
pub(crate) fn run(
    loaded: &Loaded,
    host: &str,
    system: Option<&str>,
    exec: Option<&str>,
) -> io::Result<ExitCode> {
    let directory = WorkDirectory::create()?;
    let setup = Setup {
        file: loaded.file.clone(),
        text: loaded.text.clone(),
        repetition: 0,
        pcap: None,
        netem: false,
    };
    let mut testbed = Testbed::build(&loaded.scenario, &setup)?;
    let subjects = subjects(&loaded.scenario);
    let subject = match system {
        Some(name) => Some(subjects.iter().find(|s| s.name == name).ok_or_else(|| {
            let names: Vec<&str> = subjects.iter().map(|s| s.name.as_str()).collect();
            io::Error::other(format!("expected one of {names:?}, found {name:?}"))
        })?),
        None => None,
    };
    let _system =
        subject.map(|subject| systems::start(subject, &testbed, &directory.path)).transpose()?;
    testbed.start()?;
    for name in loaded.scenario.hosts() {
        eprintln!("{name}: ip netns exec {} sh", testbed.host(name)?.name());
    }
    let program = std::env::var("SHELL").unwrap_or_else(|_| "sh".to_owned());
    let line = match exec {
        Some(script) => vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()],
        None => vec![program],
    };
    let line = testbed.host(host)?.inside(&line);
    let mut command = std::process::Command::new(&line[0]);
    command.args(&line[1..]).env("PS1", format!("{host}# "));
    for name in loaded.scenario.hosts() {
        command.env(format!("NS_{}", name.to_uppercase()), testbed.host(name)?.name());
    }
    let status = command.status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
