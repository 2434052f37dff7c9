//! The cases: scenarios with a number of paths and a kind of traffic, and the systems of each.

use std::fmt::Write;
use std::io;
use std::path::Path;

use crate::scenarios::{self, Loaded};

/// What a case measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// Round trips alone.
    Idle,
    /// TCP connections, and round trips beside them.
    Streams(u32),
    /// UDP datagrams of [`PAYLOAD`] bytes, more than arrive.
    Packets,
    /// Answers of 100 kB on 64 TCP connections.
    Answers,
    /// Answers of 1 kB on 64 TCP connections at once, each on a new one.
    Connections,
}

/// Payload of a small datagram, in bytes.
pub(super) const PAYLOAD: u32 = 64;
/// Offered rate of small datagrams: about 390,000 per second, more than one sender of iperf3 makes.
const OFFERED: &str = "200 Mbit/s";
/// Time between two round trips.
const INTERVAL: &str = "10 ms";
/// Seconds of a case without load: 200 round trips.
const IDLE_SECONDS: u64 = 2;

/// A system of a case: its name, and the lines of its `[system]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct System {
    pub(super) name: &'static str,
    pub(super) table: String,
}

impl System {
    /// The floor that seals: what a program between TUN and UDP reaches that has no engine.
    pub(super) fn floor() -> Self {
        Self { name: "floor", table: "kind = \"floor\"\nseals = true\n".to_owned() }
    }

    pub(super) fn of_kind(name: &'static str, kind: &str) -> Self {
        Self { name, table: format!("kind = {kind:?}\n") }
    }

    /// mpip with an encapsulation, by the daemon `program` if that is not this workspace's.
    pub(super) fn mpip(name: &'static str, encapsulation: &str, program: Option<&Path>) -> Self {
        let mut table = format!("kind = \"mpip\"\nencapsulation = {encapsulation:?}\n");
        if let Some(program) = program {
            let _ = writeln!(table, "program = {:?}", program.display().to_string());
        }
        Self { name, table }
    }
}

/// The name of a case in tables.
fn name(paths: usize, load: Load) -> String {
    let paths = if paths == 1 { "1 path".to_owned() } else { format!("{paths} paths") };
    match load {
        Load::Idle => format!("{paths}, idle"),
        Load::Streams(1) => format!("{paths}, 1 stream"),
        Load::Streams(streams) => format!("{paths}, {streams} streams"),
        Load::Packets => format!("{paths}, {PAYLOAD}-byte UDP"),
        Load::Answers => format!("{paths}, answers of 100 kB"),
        Load::Connections => format!("{paths}, new connections"),
    }
}

/// A case with these systems, under load for `seconds`.
///
/// # Errors
/// The scenario is not valid.
pub(super) fn case(
    paths: usize,
    load: Load,
    systems: &[System],
    seconds: u64,
) -> io::Result<Loaded> {
    let name = name(paths, load);
    let names: Vec<&str> = systems.iter().map(|system| system.name).collect();
    let seconds = if load == Load::Idle { IDLE_SECONDS } else { seconds };
    let mut text = format!(
        "title = \"Benchmark: {name}\"\nsets = [\"bench\"]\nduration = \"{seconds} s\"\n\
         seed = 190\nsystems = {names:?}\n"
    );
    for system in systems {
        let _ = write!(text, "\n[system.{:?}]\n{}", system.name, system.table);
    }
    for path in 1..=paths {
        for (host, end) in [("client", 1), ("server", 2)] {
            let _ = write!(
                text,
                "\n[[interface]]\nhost = \"{host}\"\nname = \"p{path}\"\n\
                 address = \"198.18.{path}.{end}\"\n"
            );
        }
        let _ = write!(
            text,
            "\n[[link]]\nname = \"p{path}\"\nends = [\"client.p{path}\", \"server.p{path}\"]\n"
        );
    }
    let mut flow = |lines: &str| {
        let _ = write!(text, "\n[[traffic]]\nfrom = \"client\"\nto = \"server\"\n{lines}");
    };
    match load {
        Load::Idle => {}
        Load::Answers => flow("kind = \"web\"\nsize = \"100 kB\"\n"),
        Load::Connections => flow("kind = \"web\"\nkeep = false\n"),
        Load::Streams(streams) => flow(&format!("kind = \"tcp\"\nstreams = {streams}\n")),
        Load::Packets => {
            flow(&format!("kind = \"udp\"\nrate = \"{OFFERED}\"\nlength = {PAYLOAD}\n"));
        }
    }
    if matches!(load, Load::Idle | Load::Streams(_)) {
        flow(&format!("kind = \"voip\"\ninterval = \"{INTERVAL}\"\nlength = {PAYLOAD}\n"));
    }
    let file = format!("{name}.toml");
    let scenario = scenarios::parse(&file, &text)?;
    Ok(Loaded { name, file, text, scenario })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::subjects;

    #[test]
    fn every_case_is_a_valid_scenario_with_one_subject_for_each_system() {
        let old = Path::new("/tmp/a \"b\"/mpipd");
        let systems = [
            System::mpip("old", "udp", Some(old)),
            System::mpip("mpip tcp", "tcp", None),
            System::of_kind("mptcp", "mptcp"),
        ];
        for paths in [1, 2, 4, 8] {
            for load in [
                Load::Idle,
                Load::Streams(1),
                Load::Streams(8),
                Load::Packets,
                Load::Answers,
                Load::Connections,
            ] {
                let loaded = case(paths, load, &systems, 3).expect("valid");
                assert_eq!(subjects(&loaded.scenario).len(), 3, "{}", loaded.name);
                assert_eq!(loaded.scenario.links.len(), paths);
                assert!(!loaded.name.contains('/'), "{}: part of a file's name", loaded.name);
                let program = loaded.scenario.systems[0].settings["program"].as_str();
                assert_eq!(program, old.to_str());
            }
        }
    }
}
