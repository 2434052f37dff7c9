//! The aggregation benefit under loss (seed 003): of the scenarios, and of the factorial.

use std::fmt::Write;

use super::figure::Figure;
use super::plot;
use crate::factorial::{Cell, CellResult, cells};
use crate::statistics::median;
use crate::summary::Summary;

/// The networks of the factorial, by their names there.
pub(super) const NETWORKS: [(&str, &str); 2] = [("wifi", "Wi-Fi"), ("lte", "LTE")];

/// The benefits and ratios of a loss on one of the networks, over all bandwidths.
pub(super) struct Group {
    /// Percent.
    pub(super) loss: f64,
    pub(super) benefits: Vec<f64>,
    pub(super) ratios: Vec<f64>,
    /// Losses that are expected over all its runs while the lossy link is full.
    pub(super) losses: f64,
    /// Seconds of virtual time, of the shortest and of the longest run.
    pub(super) seconds: [f64; 2],
}

impl Group {
    pub(super) fn least(&self) -> f64 {
        self.benefits.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(super) fn below(&self) -> usize {
        self.benefits.iter().filter(|benefit| **benefit < 0.0).count()
    }
}

/// The valid results where `lossy` loses packets, by loss; those without loss first.
pub(super) fn groups(results: &[CellResult], lossy: &str) -> Vec<Group> {
    let of_it = |r: &&CellResult| {
        r.violations.is_empty() && (r.cell.loss_percent == 0.0 || r.cell.lossy == lossy)
    };
    let mut losses: Vec<f64> = results.iter().filter(of_it).map(|r| r.cell.loss_percent).collect();
    losses.sort_by(f64::total_cmp);
    losses.dedup();
    let group = |loss: f64| {
        let runs = || results.iter().filter(of_it).filter(|r| r.cell.loss_percent == loss);
        Group {
            loss,
            benefits: runs().map(|r| r.measured.benefit()).collect(),
            ratios: runs().map(|r| r.measured.goodput_bps / r.measured.limit_bps).collect(),
            losses: runs().map(|r| r.cell.expected_losses(r.seconds)).sum(),
            seconds: [
                runs().map(|r| r.seconds).fold(f64::INFINITY, f64::min),
                runs().map(|r| r.seconds).fold(0.0, f64::max),
            ],
        }
    };
    losses.into_iter().map(group).collect()
}

/// The names of the columns that a row of a [`Group`] has.
pub(super) const GROUP_COLUMNS: [&str; 9] = [
    "lossy link",
    "loss, %",
    "runs",
    "seconds",
    "losses expected",
    "median benefit",
    "least",
    "below 0",
    "median ratio to the limit",
];

/// The cells of a group's row.
pub(super) fn group_row(network: &str, group: &Group) -> [String; 9] {
    let [shortest, longest] = group.seconds.map(plot::label);
    let seconds = if shortest == longest { shortest } else { format!("{shortest} to {longest}") };
    [
        network.to_owned(),
        plot::label(group.loss),
        group.benefits.len().to_string(),
        seconds,
        format!("{:.0}", group.losses),
        format!("{:.3}", median(&group.benefits)),
        format!("{:.3}", group.least()),
        group.below().to_string(),
        format!("{:.3}", median(&group.ratios)),
    ]
}

/// Every cell of the factorial in one table: a row for each pair of bandwidths, a column for each
/// loss on either link. A cell's benefit is the median over its valid runs.
pub(super) fn whole(results: &[CellResult]) -> Vec<Vec<String>> {
    let cells = cells();
    let mut losses: Vec<(&str, f64)> = Vec::new();
    let mut pairs: Vec<[f64; 2]> = Vec::new();
    for cell in &cells {
        let loss = (cell.lossy.as_str(), cell.loss_percent);
        if !losses.contains(&loss) {
            losses.push(loss);
        }
        if !pairs.contains(&cell.bandwidths_mbps) {
            pairs.push(cell.bandwidths_mbps);
        }
    }
    let place = |lossy: &str| NETWORKS.iter().position(|(name, _)| *name == lossy);
    losses.sort_by(|a, b| place(a.0).cmp(&place(b.0)).then(a.1.total_cmp(&b.1)));
    let column = |(lossy, loss): &(&str, f64)| match place(lossy) {
        None => "no loss".to_owned(),
        Some(network) => format!("{} {} %", NETWORKS[network].1, plot::label(*loss)),
    };
    let first = NETWORKS.map(|(_, network)| format!("{network}, Mbit/s"));
    let mut rows: Vec<Vec<String>> =
        vec![first.into_iter().chain(losses.iter().map(column)).collect()];
    for bandwidths_mbps in pairs {
        let benefit = |(lossy, loss_percent): &(&str, f64)| {
            let cell =
                Cell { lossy: (*lossy).to_owned(), loss_percent: *loss_percent, bandwidths_mbps };
            let own = results.iter().filter(|r| r.violations.is_empty() && r.cell == cell);
            let benefits: Vec<f64> = own.map(|r| r.measured.benefit()).collect();
            if benefits.is_empty() { "–".to_owned() } else { format!("{:.2}", median(&benefits)) }
        };
        let bandwidths = bandwidths_mbps.map(plot::label);
        rows.push(bandwidths.into_iter().chain(losses.iter().map(benefit)).collect());
    }
    rows
}

/// Rows as a table, the first of them its head.
fn table(html: &mut String, rows: impl IntoIterator<Item = Vec<String>>) {
    *html += "<div class=\"wide\"><table>";
    for (number, row) in rows.into_iter().enumerate() {
        let tag = if number == 0 { "th" } else { "td" };
        *html += "<tr>";
        for cell in row {
            let _ = write!(html, "<{tag}>{cell}</{tag}>");
        }
        *html += "</tr>";
    }
    *html += "</table></div>";
}

/// The aggregation benefit of the loss-aware scenarios, from the limits of each path alone.
pub(super) fn scenarios(html: &mut String, summaries: &[Summary], figures: &mut Vec<Figure>) {
    const SCENARIOS: [(&str, &str, &[&str]); 2] = [
        ("Wi-Fi", "loss-aware-wifi-", &["0_01", "1", "10"]),
        ("LTE", "loss-aware-lte-", &["0_01", "1", "10"]),
    ];
    for (network, prefix, losses) in SCENARIOS {
        let mut systems: Vec<(String, Vec<Vec<f64>>)> = Vec::new();
        for (index, loss) in losses.iter().enumerate() {
            let name = format!("{prefix}{loss}");
            let own = || summaries.iter().filter(|s| s.scenario == name);
            let alone: Vec<f64> = own()
                .filter(|s| s.system.starts_with("tcp "))
                .filter_map(|s| s.limit_bps)
                .collect();
            if alone.len() < 2 {
                continue;
            }
            for s in own().filter(|s| !s.system.starts_with("tcp ")) {
                let values: Vec<f64> = s
                    .goodput_bps
                    .iter()
                    .map(|goodput| crate::factorial::benefit(*goodput, &alone))
                    .collect();
                let position = systems.iter().position(|(name, _)| *name == s.system);
                let position = position.unwrap_or_else(|| {
                    systems.push((s.system.clone(), vec![Vec::new(); losses.len()]));
                    systems.len() - 1
                });
                systems[position].1[index] = values;
            }
        }
        if systems.is_empty() {
            continue;
        }
        let labels: Vec<String> = losses.iter().map(|loss| loss.replace('_', ".")).collect();
        let title = format!("Loss on {network}, the other link clean");
        let svg = plot::benefit(&title, &labels, &systems);
        if !html.contains("id=\"benefit\"") {
            *html += "<h2 id=\"benefit\">Aggregation benefit under loss</h2>\
                      <p>1: all that the paths can carry together; 0: as much as the best path \
                      alone; below 0: less than that (seed 003). Capacities are the limits of \
                      each path.</p>";
        }
        *html += &svg;
        figures.push(Figure { name: format!("benefit-{}", network.to_lowercase()), svg });
    }
}

/// The simulator's factorial: the benefit at each loss, over all pairs of bandwidths.
pub(super) fn factorial(html: &mut String, results: &[CellResult], figures: &mut Vec<Figure>) {
    if results.is_empty() {
        return;
    }
    let valid = results.iter().filter(|r| r.violations.is_empty()).count();
    let _ = write!(
        html,
        "<h2 id=\"factorial\">Aggregation benefit under loss, in the simulator</h2>\
         <p>mpip in virtual time, the same links and TCP above it: {} runs of the factorial of \
         seed 003, {} of them valid. A run lasts until 20 losses are expected, within bounds. Each \
         box is over all pairs of bandwidths (10 to 50 Mbit/s each) and their repetitions.</p>",
        results.len(),
        valid
    );
    let mut rows: Vec<Vec<String>> = vec![GROUP_COLUMNS.map(str::to_owned).into()];
    for (lossy, network) in NETWORKS {
        let groups = groups(results, lossy);
        rows.extend(groups.iter().map(|group| group_row(network, group).into()));
        let labels: Vec<String> = groups.iter().map(|group| plot::label(group.loss)).collect();
        let benefits = groups.into_iter().map(|group| group.benefits).collect();
        let title = format!("Loss on {network}, the other link clean");
        let svg = plot::benefit(&title, &labels, &[("mpip".to_owned(), benefits)]);
        figures.push(Figure { name: format!("factorial-{lossy}"), svg });
    }
    table(html, rows);
    for figure in figures.iter().filter(|figure| figure.name.starts_with("factorial-")) {
        *html += &figure.svg;
    }
    let cells = cells().len();
    let _ = write!(html, "<p>The benefit in each of the {cells} cells, median of its runs:</p>");
    table(html, whole(results));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::factorial::tests::run;

    #[test]
    fn every_cell_has_a_place_in_the_whole_table() {
        let all = cells();
        let result =
            |number: usize, goodput_bps: f64| run(number, all[number].clone(), goodput_bps);
        let at = |lossy: &str, loss: f64, bandwidths: [f64; 2]| {
            let wanted = |cell: &Cell| {
                cell.lossy == lossy
                    && cell.loss_percent == loss
                    && cell.bandwidths_mbps == bandwidths
            };
            all.iter().position(wanted).expect("a cell")
        };
        let mut results = vec![
            result(at("", 0.0, [10.0, 10.0]), 20e6),
            result(at("wifi", 0.0001, [10.0, 20.0]), 15e6),
            result(at("lte", 10.0, [50.0, 50.0]), 5e6),
        ];
        let rows = whole(&results);
        assert_eq!(rows.len(), 26);
        assert!(rows.iter().all(|row| row.len() == 2 + 13));
        assert_eq!(rows[0][..4], ["Wi-Fi, Mbit/s", "LTE, Mbit/s", "no loss", "Wi-Fi 0.0001 %"]);
        assert_eq!(rows[0][14], "LTE 10 %");
        assert_eq!(rows[1][..4], ["10", "10", "1.00", "–"]);
        assert_eq!(rows[2][..4], ["10", "20", "–", "0.50"]);
        assert_eq!(rows[25][14], "-0.50");
        results.push(result(at("lte", 10.0, [40.0, 50.0]), 5e6));
        let groups = groups(&results, "lte");
        let rare = groups.iter().find(|group| group.loss == 10.0).expect("a group");
        let row = group_row("LTE", rare);
        // 10 s x 50 Mbit/s of packets of 1,514 bytes, a tenth of them, twice.
        assert_eq!(row[..5], ["LTE", "10", "2", "10", "8256"]);
    }
}
