//! The distributions of `mpip-lab sweep`.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::figure::Figure;
use super::plot::{self, escape};
use crate::sweep::Measured;
use crate::sweep::summary::{self, COLUMNS, Measure};

/// A table and a plot of each figure, with all senders. Nothing without results.
pub(super) fn section(html: &mut String, results: &[Measured], figures: &mut Vec<Figure>) {
    let senders: BTreeSet<&str> = results.iter().map(|result| result.sender.as_str()).collect();
    if senders.is_empty() {
        return;
    }
    *html += "<section><h2 id=\"sweep\">Random links</h2><p>mpip over link sets drawn at random, in \
              the simulator (senders tcp-, quinn- and quic-go: on kernels), for each kind of inner \
              sender: bulk against what the links carry and \
              against the same sender on the best path alone; latency that bulk adds to a ping; \
              short transfers against the best path alone. <code>mpip-lab sweep</code></p>";
    for (number, measure) in summary::measures().iter().enumerate() {
        let sets: Vec<(String, Vec<f64>)> = senders
            .iter()
            .map(|sender| {
                let values = summary::values(results, sender, measure);
                ((*sender).to_owned(), values.into_iter().map(|(value, _)| value).collect())
            })
            .filter(|(_, values): &(String, Vec<f64>)| !values.is_empty())
            .collect();
        if sets.is_empty() {
            continue;
        }
        table(html, measure, &sets);
        let svg = plot::distribution(&measure.name, &measure.name, range(measure), &sets);
        *html += &svg;
        figures.push(Figure { name: format!("sweep-{}", number + 1), svg });
    }
    *html += "</section>";
}

/// The range of a figure in its plot.
fn range(measure: &Measure) -> (f64, f64) {
    match measure.name.as_str() {
        "bulk / limit" => (0.0, 1.0),
        "added latency, ms" => (0.0, 300.0),
        _ => (0.0, 3.0),
    }
}

fn table(html: &mut String, measure: &Measure, sets: &[(String, Vec<f64>)]) {
    let _ = write!(
        html,
        "<div class=\"wide\"><table><tr><th>{}</th><th>sets</th>",
        escape(&measure.name)
    );
    for (name, _) in COLUMNS {
        let _ = write!(html, "<th>{name}</th>");
    }
    *html += "</tr>";
    for (sender, sorted) in sets {
        let _ = write!(html, "<tr><td>{}</td><td>{}</td>", escape(sender), sorted.len());
        for (_, share) in COLUMNS {
            let _ = write!(html, "<td>{:.3}</td>", summary::rank(sorted, share));
        }
        *html += "</tr>";
    }
    *html += "</table></div>";
}
