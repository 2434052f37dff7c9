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
              short transfers against the best path alone, also by mpip with no other path, which \
              is what the tunnel costs, and the best path against itself (“again”), which is \
              chance. <code>mpip-lab sweep</code></p>";
    for (number, measure) in Measure::all().enumerate() {
        let name = measure.name();
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
        table(html, &name, &sets);
        if measure.explains() {
            continue;
        }
        let svg = plot::distribution(&name, &name, range(measure), &sets);
        *html += &svg;
        figures.push(Figure { name: format!("sweep-{}", number + 1), svg });
    }
    *html += "</section>";
}

/// The range of a figure in its plot.
fn range(measure: Measure) -> (f64, f64) {
    match measure {
        Measure::OfLimit => (0.0, 1.0),
        Measure::Latency => (0.0, 300.0),
        _ => (0.0, 3.0),
    }
}

fn table(html: &mut String, name: &str, sets: &[(String, Vec<f64>)]) {
    let _ = write!(html, "<div class=\"wide\"><table><tr><th>{}</th><th>sets</th>", escape(name));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_with_values_has_a_table_and_a_plot_unless_it_only_explains() {
        let line = |seed: u64, mpip: u64| {
            format!(
                r#"{{"seed":{seed},"sender":"quic-cubic","bulk":{{"limit":20.0,"alone":[8.0,5.0],
                "mpip":{mpip}.0,"ping_alone":20.0,"ping":25.0,"ping_lost":0.0}},
                "short":[{{"alone":[2.0,1.0],"mpip":1.5,"again":1.1,"tunnel":1.3}}],
                "violations":[]}}"#
            )
        };
        let results: Vec<Measured> = [(1, 5), (2, 10), (3, 15)]
            .map(|(seed, mpip)| serde_json::from_str(&line(seed, mpip)).expect("a result"))
            .to_vec();
        let (mut html, mut figures) = (String::new(), Vec::new());
        section(&mut html, &results, &mut figures);
        assert!(
            html.contains("<td>quic-cubic</td><td>3</td><td>0.250</td><td>0.250</td><td>0.500")
        );
        assert!(html.contains("20 kB, time / best path") && !html.contains("200 kB"));
        assert!(html.contains("20 kB, best path again") && html.contains("mpip on best path"));
        assert_eq!(figures.len(), 4);
        assert_eq!(html.matches("<svg").count(), 4);
        let (mut html, mut figures) = (String::new(), Vec::new());
        section(&mut html, &[], &mut figures);
        assert!(html.is_empty() && figures.is_empty());
    }
}
