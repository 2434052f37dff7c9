//! `mpip-lab figures`: the targets of the engine beside what was measured, in one table.
//!
//! This file has the cases, runs their scenarios and writes the table. `checks` makes a `row` of
//! each case from the results, and `table` formats the rows.

use std::io;

use crate::factorial::{self, Plan};
use crate::measured::Measured;
use crate::run::{self, Options};
use crate::scenarios::{self, Loaded};

mod checks;
mod row;
mod table;

use row::Row;

/// Cases that are run and shown together.
struct Group {
    name: &'static str,
    /// The scenarios, each with the systems to measure in it.
    scenarios: &'static [(&'static str, &'static [&'static str])],
    rows: fn(&Measured) -> Vec<Row>,
}

const COMPARED: &[&str] = &["tcp", "mptcp", "mpip"];
const AGAINST_MPTCP: &[&str] = &["mptcp", "mpip"];
const OURS: &[&str] = &["mpip"];
const COUPLED: &[&str] = &["mpip", "mpip lia", "mpip olia", "mpip balia"];

const GROUPS: &[Group] = &[
    Group {
        name: "mhip",
        scenarios: &[
            ("mhip-01", COMPARED),
            ("mhip-02", COMPARED),
            ("mhip-03", COMPARED),
            ("mhip-04", COMPARED),
            ("mhip-05", COMPARED),
            ("mhip-06", COMPARED),
            ("mhip-07", COMPARED),
            ("mhip-08", COMPARED),
            ("mhip-09", COMPARED),
            ("mhip-10", COMPARED),
            ("mhip-11", COMPARED),
            ("mhip-12", COMPARED),
            ("mhip-13", COMPARED),
            ("mhip-14", COMPARED),
        ],
        rows: checks::mhip,
    },
    Group {
        name: "mpip",
        scenarios: &[
            ("mpip-no-limit", AGAINST_MPTCP),
            ("mpip-nic-limit", AGAINST_MPTCP),
            ("mpip-pair-limit", AGAINST_MPTCP),
            ("mpip-delay", AGAINST_MPTCP),
            ("mpip-wireless", AGAINST_MPTCP),
        ],
        rows: checks::mpip,
    },
    Group { name: "extra-bytes", scenarios: &[("two-100", OURS)], rows: checks::extra_bytes },
    Group {
        name: "delay",
        scenarios: &[
            ("delay-000", OURS),
            ("delay-010", OURS),
            ("delay-100", OURS),
            ("delay-500", OURS),
            ("delay-500-buffers", OURS),
        ],
        rows: checks::delay,
    },
    Group {
        name: "loss",
        scenarios: &[
            ("loss-1", OURS),
            ("loss-2", OURS),
            ("loss-3", OURS),
            ("loss-4", OURS),
            ("loss-5", OURS),
        ],
        rows: checks::loss,
    },
    Group { name: "factorial", scenarios: &[], rows: checks::factorial },
    Group { name: "ping", scenarios: &[("ping-beside-bulk", OURS)], rows: checks::ping },
    Group {
        name: "cut",
        scenarios: &[
            ("cut-announced-a", OURS),
            ("cut-announced-b", OURS),
            ("cut-silent-a", OURS),
            ("cut-silent-b", OURS),
        ],
        rows: checks::cut,
    },
    Group {
        name: "fairness",
        scenarios: &[
            ("shared-paths-1", COUPLED),
            ("shared-paths-2", COUPLED),
            ("shared-paths-3", COUPLED),
            ("shared-paths-4", COUPLED),
        ],
        rows: checks::fairness,
    },
    Group { name: "udp", scenarios: &[("udp-150", OURS)], rows: checks::udp },
];

/// What to measure and how to show it.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Names of groups, or beginnings of names of scenarios; empty for all.
    pub(crate) cases: Vec<String>,
    /// Whether to measure nothing and show stored results.
    pub(crate) show: bool,
    /// Number of cells of the factorial to run, of 325.
    pub(crate) cells: usize,
    /// Whether to print Markdown instead of aligned columns.
    pub(crate) markdown: bool,
}

impl Wanted {
    fn wants(&self, group: &Group, scenario: &str) -> bool {
        let named = |case: &String| group.name == case || scenario.starts_with(case.as_str());
        self.cases.is_empty() || self.cases.iter().any(named)
    }
}

/// The wanted scenarios, with only the systems to measure.
fn load(wanted: &Wanted) -> io::Result<Vec<Loaded>> {
    let mut chosen = Vec::new();
    for group in GROUPS {
        for (name, systems) in group.scenarios.iter().filter(|(name, _)| wanted.wants(group, name))
        {
            let mut loaded = scenarios::find(name)?;
            loaded.scenario.systems.retain(|system| systems.contains(&system.name.as_str()));
            chosen.push(loaded);
        }
    }
    Ok(chosen)
}

/// Measures the runs without results, prints the table and writes it to `figures.md` beside the
/// results.
pub(crate) fn run(wanted: &Wanted, options: &Options) -> io::Result<()> {
    let groups: Vec<&Group> = GROUPS
        .iter()
        .filter(|group| {
            let named = |(name, _): &(&str, _)| wanted.wants(group, name);
            group.scenarios.iter().any(named) || wanted.wants(group, group.name)
        })
        .collect();
    if groups.is_empty() {
        let names: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
        let message = format!("expected cases of {names:?}, found {:?}", wanted.cases);
        return Err(io::Error::other(message));
    }
    let scenarios = options.adapt(load(wanted)?);
    let with_factorial = groups.iter().any(|group| group.name == "factorial");
    let runs = if wanted.show {
        run::stored(&scenarios, options)?
    } else {
        if !scenarios.is_empty() {
            run::announce(&scenarios, options)?;
        }
        let runs = run::in_namespaces(&scenarios, options)?.results;
        if with_factorial {
            let numbers = factorial::sample(wanted.cells);
            Plan { numbers, longest: factorial::LONGEST }.run(&options.directory)?;
        }
        runs
    };
    let cells = if with_factorial { factorial::read(&options.directory)? } else { Vec::new() };
    let measured = Measured { cells, ..Measured::of(runs) };
    let rows: Vec<Row> = groups
        .iter()
        .flat_map(|group| (group.rows)(&measured))
        .filter(|row| wanted.cases.is_empty() || row.yes.is_some())
        .collect();
    let markdown = table::markdown(&rows);
    std::fs::write(options.directory.join("figures.md"), &markdown)?;
    print!("{}", if wanted.markdown { markdown } else { table::aligned(&rows) });
    Ok(())
}

#[cfg(test)]
mod tests;
