//! Figures that were published, to compare results with (`data/published.csv`).

use mpip_core::named;

const PUBLISHED: &str = include_str!("../data/published.csv");

/// What a figure is of, by its unit in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Goodput, Mbit/s.
    Goodput,
    /// Gain over the best path alone, percent.
    Gain,
    /// Goodput, as a share of what the links can carry.
    OfLimit,
    /// What the link `part` carries, as a share of its rate.
    OfLink,
    /// Mean round trip of the flow `part`, ms.
    RoundTrip,
    /// Longest time without progress, ms.
    Stall,
    /// Jain's index over all flows.
    Jain,
    /// Processor time per bit, as a multiple of what one path costs.
    Cpu,
    /// Aggregation benefit (seed 003, III.A), median over the cells of the factorial in which the
    /// network and its loss are `part`.
    Benefit,
    /// What balia with the loss-aware rule carries more than without it (seed 003, IV.C), percent,
    /// median over the same cells.
    OverBalia,
    /// Delay in queues at the end, as the sender estimates it, ms; in the simulator.
    Queue,
    /// Delay in the queues of the path `part`, as the daemon that sends estimates it: mean over the
    /// run, ms.
    Queuing,
    /// What the least used path carries, percent of all.
    LeastShare,
}

named!(Measure {
    Goodput = "Mbit/s",
    Gain = "% over one",
    OfLimit = "of the limit",
    OfLink = "of the link",
    RoundTrip = "ms",
    Stall = "ms stalled",
    Jain = "Jain",
    Cpu = "CPU of one path",
    Benefit = "benefit",
    OverBalia = "% over balia",
    Queue = "ms queued",
    Queuing = "ms queuing",
    LeastShare = "% on the least used path",
});

impl Measure {
    /// Whether less is better.
    pub(crate) fn is_cost(self) -> bool {
        matches!(self, Self::RoundTrip | Self::Stall | Self::Cpu | Self::Queue | Self::Queuing)
    }
}

/// A published figure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Published {
    /// Its name in tables: the seed, its figure or experiment, and what tells it from others there.
    pub(crate) id: String,
    /// The scenario that repeats it; `factorial` for cells of that.
    pub(crate) scenario: String,
    pub(crate) system: String,
    /// What of the result it is about: a flow, a link, or a network and its loss.
    pub(crate) part: String,
    /// `None` where the text gives no number.
    pub(crate) value: Option<f64>,
    pub(crate) deviation: Option<f64>,
    pub(crate) measure: Measure,
    /// The share of the value that is asked, where that is not all of it: what headers leave, or
    /// what noise hides.
    pub(crate) asks: Option<f64>,
    /// The document.
    pub(crate) seed: String,
    /// Where in the document.
    pub(crate) section: String,
    /// What the publication says.
    pub(crate) note: String,
}

fn read(line: &str) -> Result<Published, String> {
    let fields: Vec<&str> = line.split(',').collect();
    let [id, scenario, system, part, value, deviation, unit, asks, seed, section, note] =
        fields.as_slice()
    else {
        return Err(format!("expected 11 fields, found {}: {line}", fields.len()));
    };
    let text = |field: &&str| (*field).to_owned();
    let number = |field: &str| match field {
        "" => Ok(None),
        _ => field.parse().map(Some).map_err(|_| format!("expected a number, found {field:?}")),
    };
    Ok(Published {
        id: text(id),
        scenario: text(scenario),
        system: text(system),
        part: text(part),
        value: number(value)?,
        deviation: number(deviation)?,
        measure: Measure::from_name(unit).ok_or_else(|| {
            let units = Measure::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>();
            format!("expected a unit of {units:?}, found {unit:?}")
        })?,
        asks: number(asks)?,
        seed: text(seed),
        section: text(section),
        note: text(note),
    })
}

/// All published figures.
pub(crate) fn published() -> Vec<Published> {
    PUBLISHED.lines().skip(1).map(|line| read(line).expect("the file is tested")).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::run::NETEM;
    use crate::scenarios;

    #[test]
    fn every_published_figure_is_read_and_has_a_scenario_that_measures_it() {
        let lines = PUBLISHED.lines().skip(1);
        let all: Vec<Published> = lines
            .map(|line| read(line).unwrap_or_else(|error| panic!("{line}: {error}")))
            .collect();
        let row = all.iter().find(|p| p.scenario == "mhip-05" && p.system == "mptcp");
        assert_eq!(row.map(|p| (p.value, p.deviation)), Some((Some(4.5), Some(0.01))));
        let mut ids = BTreeSet::new();
        for figure in &all {
            assert!(ids.insert(&figure.id), "{} twice", figure.id);
            assert!(figure.id.starts_with(&figure.seed), "{}", figure.id);
            assert!(!figure.section.is_empty() && !figure.note.contains('|'), "{}", figure.id);
            if figure.scenario == "factorial" {
                continue;
            }
            let loaded = scenarios::find(&figure.scenario).expect(&figure.scenario);
            let subjects = crate::subject::subjects(&loaded.scenario);
            let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
            let system = figure.system.strip_suffix(NETEM).unwrap_or(&figure.system);
            assert!(names.contains(&system), "{}: {names:?}", figure.id);
        }
    }

    #[test]
    fn a_line_that_is_no_figure_is_refused_with_what_was_expected() {
        assert!(read("a,b").expect_err("short").starts_with("expected 11 fields, found 2"));
        let line = |value: &str, unit: &str| format!("i,s,y,,{value},,{unit},,000,1,");
        assert!(read(&line("1", "Mbit/s")).is_ok() && read(&line("", "Jain")).is_ok());
        assert!(read(&line("x", "Jain")).expect_err("value").contains("a number, found \"x\""));
        assert!(read(&line("1", "kg")).expect_err("unit").starts_with("expected a unit of"));
    }
}
