//! The aggregation benefit under loss (seed 003): of the scenarios, and of the factorial.

use std::fmt::Write;

use super::figure::Figure;
use super::plot;
use crate::factorial::CellResult;
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
            benefits: runs().map(CellResult::benefit).collect(),
            ratios: runs().map(|r| r.goodput_bps / r.limit_bps).collect(),
        }
    };
    losses.into_iter().map(group).collect()
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
         seed 003, {} of them valid. Each box is over all pairs of bandwidths (10 to 50 Mbit/s \
         each) and their repetitions.</p>",
        results.len(),
        valid
    );
    *html += "<div class=\"wide\"><table><tr><th>lossy link</th><th>loss, %</th><th>runs</th>\
              <th>median benefit</th><th>least</th><th>below 0</th>\
              <th>median ratio to the limit</th></tr>";
    for (lossy, network) in NETWORKS {
        let groups = groups(results, lossy);
        for group in &groups {
            let _ = write!(
                html,
                "<tr><td>{network}</td><td>{}</td><td>{}</td><td>{:.3}</td><td>{:.3}</td>\
                 <td>{}</td><td>{:.3}</td></tr>",
                plot::label(group.loss),
                group.benefits.len(),
                median(&group.benefits),
                group.least(),
                group.below(),
                median(&group.ratios)
            );
        }
        let labels: Vec<String> = groups.iter().map(|group| plot::label(group.loss)).collect();
        let benefits = groups.into_iter().map(|group| group.benefits).collect();
        let title = format!("Loss on {network}, the other link clean");
        let svg = plot::benefit(&title, &labels, &[("mpip".to_owned(), benefits)]);
        figures.push(Figure { name: format!("factorial-{lossy}"), svg });
    }
    *html += "</table></div>";
    for figure in figures.iter().filter(|figure| figure.name.starts_with("factorial-")) {
        *html += &figure.svg;
    }
}
