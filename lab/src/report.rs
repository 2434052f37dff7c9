//! The report: one HTML file with everything in it, and its plots as SVG files beside it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

use crate::calibrate::Calibration;
use crate::emulator::DirectionRecord;
use crate::factorial::{self, CellResult};
use crate::results::{RunResult, Summary, median, summarise};
use crate::scenarios::{self, Loaded};

mod plot;

use plot::{Row, Series, escape};

const STYLE: &str = include_str!("report/style.css");
const PUBLISHED: &str = include_str!("../data/published.csv");

/// A figure that a seed published.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Published {
    pub(crate) scenario: String,
    pub(crate) system: String,
    pub(crate) value: f64,
    deviation: Option<f64>,
    pub(crate) unit: String,
    seed: String,
    note: String,
}

pub(crate) fn published() -> Vec<Published> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let [scenario, system, value, deviation, unit, seed, note] = fields.as_slice() else {
            return None;
        };
        Some(Published {
            scenario: (*scenario).to_owned(),
            system: (*system).to_owned(),
            value: value.parse().ok()?,
            deviation: deviation.parse().ok(),
            unit: (*unit).to_owned(),
            seed: (*seed).to_owned(),
            note: (*note).to_owned(),
        })
    };
    PUBLISHED.lines().skip(1).filter_map(line).collect()
}

/// A plot under the name of its file.
struct Figure {
    name: String,
    svg: String,
}

/// Writes `report.html` and `plots/*.svg` into a directory with results.
///
/// # Errors
/// There are no results, or files cannot be written.
pub(crate) fn write(directory: &Path) -> io::Result<()> {
    let store = crate::results::Store::open(directory)?;
    let results = store.results();
    if results.is_empty() && !directory.join(factorial::FILE).exists() {
        let message = format!("{} has no results", directory.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    let calibration = std::fs::read_to_string(directory.join("calibration.json"))
        .ok()
        .and_then(|text| serde_json::from_str::<Calibration>(&text).ok());
    let mut loaded: BTreeMap<String, Loaded> = BTreeMap::new();
    for scenario in scenarios::all()? {
        loaded.insert(scenario.name.clone(), scenario);
    }
    let summaries = summarise(results);
    let mut names: Vec<&str> = summaries.iter().map(|s| s.scenario.as_str()).collect();
    names.dedup();
    names.sort_unstable();
    names.dedup();
    let published = published();
    let mut figures = Vec::new();
    let mut body = head(results, calibration.as_ref());
    navigation(&mut body, &names, &loaded);
    if !names.is_empty() {
        overview(&mut body, &names, &summaries);
    }
    benefit_section(&mut body, &summaries, &mut figures);
    factorial_section(&mut body, &factorial::read(directory)?, &mut figures);
    for name in &names {
        let own: Vec<&Summary> = summaries.iter().filter(|s| s.scenario == *name).collect();
        let runs: Vec<&RunResult> = results.iter().filter(|r| r.scenario == *name).collect();
        let published: Vec<&Published> = published.iter().filter(|p| p.scenario == *name).collect();
        section(&mut body, name, loaded.get(*name), &own, &runs, &published, &mut figures);
    }
    let html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>mpip-lab report</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    );
    std::fs::write(directory.join("report.html"), html)?;
    let plots = directory.join("plots");
    std::fs::create_dir_all(&plots)?;
    for figure in figures {
        let styled = figure.svg.replacen("<title>", &format!("<style>{STYLE}</style><title>"), 1);
        std::fs::write(plots.join(format!("{}.svg", figure.name)), styled)?;
    }
    Ok(())
}

fn head(results: &[RunResult], calibration: Option<&Calibration>) -> String {
    let mut html = String::from("<h1>mpip-lab report</h1>");
    let mut environments: Vec<String> = results
        .iter()
        .map(|run| {
            let e = &run.environment;
            format!(
                "mpip-lab {} ({}), Linux {}, {} x {}",
                e.version, e.commit, e.kernel, e.cpus, e.cpu
            )
        })
        .collect();
    environments.sort_unstable();
    environments.dedup();
    for environment in environments {
        let _ = write!(html, "<p class=\"dim\">{}</p>", escape(&environment));
    }
    html += "<p>Every system runs over the same emulated links between real kernels. The limit is \
             the payload that the links can carry with plain TCP/IP headers, no tunnel and no \
             encryption, less what the links lose; the ratio to it is the figure that counts. Runs \
             in which the emulator or the processors were the bottleneck do not count.</p>";
    match calibration {
        Some(calibration) => {
            let verdict = if calibration.failures(1.0).is_empty() {
                "within its bounds"
            } else {
                "outside its bounds"
            };
            let _ = write!(
                html,
                "<details><summary>Calibration of the emulator: {verdict}</summary>\
                 <pre>{}</pre></details>",
                escape(&calibration.to_string())
            );
        }
        None if results.is_empty() => {}
        None => html += "<p class=\"bad\">The emulator was not calibrated for these results.</p>",
    }
    html
}

fn title<'a>(name: &'a str, loaded: &'a BTreeMap<String, Loaded>) -> &'a str {
    loaded.get(name).map_or(name, |loaded| loaded.scenario.title.as_str())
}

fn navigation(html: &mut String, names: &[&str], loaded: &BTreeMap<String, Loaded>) {
    if names.is_empty() {
        return;
    }
    *html += "<nav>";
    for name in names {
        let _ = write!(html, "<a href=\"#{name}\">{}</a>", escape(title(name, loaded)));
    }
    *html += "</nav>";
}

/// Ratios to the limit of all scenarios and systems.
fn overview(html: &mut String, names: &[&str], summaries: &[Summary]) {
    const FIRST: [&str; 5] = ["tcp a", "tcp b", "mptcp", "mpip", "mpip+mptcp"];
    let mut systems: Vec<&str> = Vec::new();
    for summary in summaries {
        if !systems.contains(&summary.system.as_str()) {
            systems.push(&summary.system);
        }
    }
    systems.sort_by_key(|s| FIRST.iter().position(|first| first == s).unwrap_or(FIRST.len()));
    *html += "<h2 id=\"overview\">Ratio to the limit</h2>\
              <p class=\"dim\">Plain TCP against the limit of its own path, all others against \
              that of all paths together. Values in parentheses do not count.</p>\
              <div class=\"wide\"><table><tr><th>scenario</th>";
    for system in &systems {
        let _ = write!(html, "<th>{}</th>", escape(system));
    }
    *html += "</tr>";
    for name in names {
        let _ = write!(html, "<tr><td><a href=\"#{name}\">{name}</a></td>");
        for system in &systems {
            let found = summaries.iter().find(|s| s.scenario == *name && s.system == *system);
            let cell = match found.and_then(|s| Some((s, s.ratio?))) {
                Some((s, ratio)) if s.counts => format!("{ratio:.3}"),
                Some((_, ratio)) => format!("({ratio:.3})"),
                None => String::new(),
            };
            let _ = write!(html, "<td>{cell}</td>");
        }
        *html += "</tr>";
    }
    *html += "</table></div>";
}

fn section(
    html: &mut String,
    name: &str,
    loaded: Option<&Loaded>,
    summaries: &[&Summary],
    runs: &[&RunResult],
    published: &[&Published],
    figures: &mut Vec<Figure>,
) {
    let heading = loaded.map_or(name, |loaded| loaded.scenario.title.as_str());
    let _ = write!(html, "<section><h2 id=\"{name}\">{}</h2>", escape(heading));
    if let Some(loaded) = loaded {
        let scenario = &loaded.scenario;
        if !scenario.description.is_empty() {
            let _ = write!(html, "<p>{}</p>", escape(&scenario.description));
        }
        let source = if scenario.source.is_empty() {
            String::new()
        } else {
            format!(" Published: {}.", scenario.source)
        };
        let _ = write!(
            html,
            "<p class=\"dim\"><code>mpip-lab run {name}</code>, {} s.{}</p>",
            scenario.duration.as_secs(),
            escape(&source)
        );
    }
    goodput_table(html, summaries, published);
    round_trip_table(html, summaries, published);
    let mut add = |kind: &str, svg: String| {
        *html += &svg;
        figures.push(Figure { name: format!("{name}-{kind}"), svg });
    };
    if summaries.iter().any(|s| s.median_bps > 0.0) {
        add("goodput", goodput_plot(summaries, published));
    }
    for run in first_runs(runs) {
        let system: String =
            run.system.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
        if let Some(svg) = throughput_plot(run, loaded) {
            add(&format!("{system}-throughput"), svg);
        }
        if let Some(svg) = queue_plot(run, loaded) {
            add(&format!("{system}-queue"), svg);
        }
    }
    *html += "</section>";
}

fn goodput_table(html: &mut String, summaries: &[&Summary], published: &[&Published]) {
    if summaries.iter().all(|s| s.median_bps == 0.0) {
        return;
    }
    *html += "<div class=\"wide\"><table><tr><th>system</th><th>published, Mbit/s</th>\
              <th>median, Mbit/s</th><th>deviation</th><th>limit</th><th>ratio</th>\
              <th>longest stall, ms</th><th>CPU s/Gbit</th><th>runs that count</th><th></th></tr>";
    for s in summaries {
        let figure = published.iter().find(|p| p.system == s.system && p.unit == "Mbit/s");
        let figure = figure.map_or(String::new(), |p| match p.deviation {
            Some(deviation) => format!("{} ± {}", plot::label(p.value), plot::label(deviation)),
            None => plot::label(p.value),
        });
        let limit = s.limit_bps.map_or(String::new(), |limit| format!("{:.2}", limit / 1e6));
        let ratio = s.ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
        let cost = s.cpu_seconds_per_gbit.map_or(String::new(), |cost| format!("{cost:.1}"));
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{figure}</td><td>{:.2}</td><td>{:.2}</td><td>{limit}</td>\
             <td>{ratio}</td><td>{:.0}</td><td>{cost}</td><td>{} of {}</td><td class=\"note bad\">{}</td></tr>",
            escape(&s.system),
            s.median_bps / 1e6,
            s.deviation_bps / 1e6,
            s.longest_stall_ms,
            s.counting,
            s.repetitions,
            escape(&s.invalid.join("; "))
        );
    }
    *html += "</table></div>";
    other_flows(html, summaries);
}

/// What flows beside the system under test got, with Jain's index over all of them.
fn other_flows(html: &mut String, summaries: &[&Summary]) {
    if summaries.iter().all(|s| s.flows_bps.len() < 2) {
        return;
    }
    *html += "<div class=\"wide\"><table><tr><th>flows beside each other, Mbit/s</th>\
              <th>each</th><th>Jain's index</th></tr>";
    for s in summaries {
        let bulk: Vec<(&String, f64)> =
            s.flows_bps.iter().map(|(n, v)| (n, *v)).filter(|(_, v)| *v > 0.0).collect();
        let parts: Vec<String> =
            bulk.iter().map(|(name, value)| format!("{name} {:.1}", value / 1e6)).collect();
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{:.3}</td></tr>",
            escape(&s.system),
            escape(&parts.join(", ")),
            jain(&bulk.iter().map(|(_, value)| *value).collect::<Vec<_>>())
        );
    }
    *html += "</table></div>";
}

/// Jain's fairness index: 1 where all get the same, 1/n where one gets all.
pub(crate) fn jain(values: &[f64]) -> f64 {
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares == 0.0 {
        return 0.0;
    }
    values.iter().sum::<f64>().powi(2) / (values.len() as f64 * squares)
}

fn round_trip_table(html: &mut String, summaries: &[&Summary], published: &[&Published]) {
    if summaries.iter().all(|s| s.rtt_ms.is_empty()) {
        return;
    }
    *html += "<div class=\"wide\"><table><tr><th>round trips</th><th>published mean, ms</th>\
              <th>mean, ms</th><th>median</th><th>99th percentile</th><th>deviation</th>\
              <th>count</th></tr>";
    for s in summaries {
        for (flow, rtt) in &s.rtt_ms {
            let figure = published.iter().find(|p| p.system == s.system && p.unit == "ms");
            let _ = write!(
                html,
                "<tr><td>{}, {}</td><td>{}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td>\
                 <td>{:.2}</td><td>{}</td></tr>",
                escape(&s.system),
                escape(flow),
                figure.map_or(String::new(), |p| plot::label(p.value)),
                rtt.mean,
                rtt.median,
                rtt.p99,
                rtt.deviation,
                rtt.count
            );
        }
    }
    *html += "</table></div>";
}

fn goodput_plot(summaries: &[&Summary], published: &[&Published]) -> String {
    let rows: Vec<Row> = summaries
        .iter()
        .map(|s| Row {
            name: s.system.clone(),
            values: s.goodput_bps.iter().map(|value| value / 1e6).collect(),
            published: published
                .iter()
                .find(|p| p.system == s.system && p.unit == "Mbit/s")
                .map(|p| p.value),
            limit: s.limit_bps.map(|limit| limit / 1e6),
            faded: !s.counts,
        })
        .collect();
    let title = "Goodput over the repetitions; bar: limit; diamond: published";
    plot::boxes(title, "Mbit/s", &rows)
}

/// One run of each system that uses several paths: the first that counts, or the first.
fn first_runs<'a>(runs: &[&'a RunResult]) -> Vec<&'a RunResult> {
    let mut chosen: Vec<&RunResult> = Vec::new();
    for run in runs.iter().filter(|run| run.kind != "tcp") {
        match chosen.iter_mut().find(|other| other.system == run.system) {
            None => chosen.push(run),
            Some(other) if !other.counts() && run.counts() => *other = run,
            Some(_) => {}
        }
    }
    chosen
}

fn marks(loaded: Option<&Loaded>) -> Vec<f64> {
    let events = loaded.map_or(&[][..], |loaded| &loaded.scenario.events);
    let mut marks: Vec<f64> = events.iter().map(|event| event.at.as_secs_f64()).collect();
    marks.dedup();
    marks
}

/// Of each link the direction that carried more.
fn main_directions(run: &RunResult) -> Vec<&DirectionRecord> {
    let carried = |d: &DirectionRecord| d.delivered.iter().sum::<u64>();
    let mut chosen: Vec<&DirectionRecord> = Vec::new();
    for direction in &run.emulator.directions {
        match chosen.iter_mut().find(|other| other.link == direction.link) {
            None => chosen.push(direction),
            Some(other) if carried(direction) > carried(other) => *other = direction,
            Some(_) => {}
        }
    }
    chosen
}

fn throughput_plot(run: &RunResult, loaded: Option<&Loaded>) -> Option<String> {
    let sample = run.emulator.sample_ms / 1e3;
    let series: Vec<Series> = main_directions(run)
        .into_iter()
        .map(|direction| Series {
            name: direction.link.clone(),
            values: direction
                .delivered
                .iter()
                .map(|bytes| *bytes as f64 * 8.0 / sample / 1e6)
                .collect(),
        })
        .filter(|series| series.values.iter().any(|value| *value > 0.0))
        .collect();
    let title = format!("{}: IP packets delivered by each link", run.system);
    (!series.is_empty()).then(|| plot::over_time(&title, "Mbit/s", sample, &series, &marks(loaded)))
}

/// Queueing delay: what waits, at the rate of the link.
fn queue_plot(run: &RunResult, loaded: Option<&Loaded>) -> Option<String> {
    let sample = run.emulator.sample_ms / 1e3;
    let scenario = &loaded?.scenario;
    let series: Vec<Series> = main_directions(run)
        .into_iter()
        .filter_map(|direction| {
            let link = scenario.links.iter().find(|link| link.name == direction.link)?;
            let rate = link.direction(direction.forward).mean_rate()?;
            let values: Vec<f64> =
                direction.queued.iter().map(|bytes| *bytes as f64 * 8.0 / rate * 1e3).collect();
            values
                .iter()
                .any(|value| *value > 0.0)
                .then(|| Series { name: direction.link.clone(), values })
        })
        .collect();
    let title = format!("{}: queueing delay in front of each link", run.system);
    (!series.is_empty()).then(|| plot::over_time(&title, "ms", sample, &series, &marks(loaded)))
}

/// The aggregation benefit of the loss-aware scenarios, from the limits of each path alone.
fn benefit_section(html: &mut String, summaries: &[Summary], figures: &mut Vec<Figure>) {
    const SCENARIOS: [(&str, &str, &[&str]); 2] = [
        ("Wi-Fi", "loss-aware-wifi-", &["0_01", "1", "10"]),
        ("LTE", "loss-aware-lte-", &["0_01", "1", "10"]),
    ];
    for (network, prefix, losses) in SCENARIOS {
        let mut systems: Vec<(String, Vec<Vec<f64>>)> = Vec::new();
        for (index, loss) in losses.iter().enumerate() {
            let name = format!("{prefix}{loss}");
            let own = || summaries.iter().filter(|s| s.scenario == name);
            // Each path's capacity, as the seed defines it.
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
                    .map(|goodput| factorial::benefit(*goodput, &alone))
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
fn factorial_section(html: &mut String, results: &[CellResult], figures: &mut Vec<Figure>) {
    if results.is_empty() {
        return;
    }
    let valid: Vec<&CellResult> = results.iter().filter(|r| r.violations.is_empty()).collect();
    let _ = write!(
        html,
        "<h2 id=\"factorial\">Aggregation benefit under loss, in the simulator</h2>\
         <p>mpip in virtual time, the same links and TCP above it: {} runs of the factorial of \
         seed 003, {} of them valid. Each box is over all pairs of bandwidths (10 to 50 Mbit/s \
         each) and their repetitions.</p>",
        results.len(),
        valid.len()
    );
    *html += "<div class=\"wide\"><table><tr><th>lossy link</th><th>loss, %</th><th>runs</th>\
              <th>median benefit</th><th>least</th><th>below 0</th>\
              <th>median ratio to the limit</th></tr>";
    for (lossy, network) in [("wifi", "Wi-Fi"), ("lte", "LTE")] {
        let mut losses: Vec<f64> =
            valid.iter().filter(|r| r.cell.lossy == lossy).map(|r| r.cell.loss_percent).collect();
        losses.push(0.0);
        losses.sort_by(f64::total_cmp);
        losses.dedup();
        let mut groups = Vec::new();
        for loss in &losses {
            let runs: Vec<&&CellResult> = valid
                .iter()
                .filter(|r| r.cell.loss_percent == *loss)
                .filter(|r| *loss == 0.0 || r.cell.lossy == lossy)
                .collect();
            let benefits: Vec<f64> = runs.iter().map(|r| r.benefit()).collect();
            let ratios: Vec<f64> = runs.iter().map(|r| r.goodput_bps / r.limit_bps).collect();
            let below = benefits.iter().filter(|benefit| **benefit < 0.0).count();
            if !benefits.is_empty() {
                let _ = write!(
                    html,
                    "<tr><td>{network}</td><td>{}</td><td>{}</td><td>{:.3}</td><td>{:.3}</td>\
                     <td>{below}</td><td>{:.3}</td></tr>",
                    plot::label(*loss),
                    benefits.len(),
                    median(&benefits),
                    benefits.iter().copied().fold(f64::INFINITY, f64::min),
                    median(&ratios)
                );
            }
            groups.push(benefits);
        }
        let labels: Vec<String> = losses.iter().map(|loss| plot::label(*loss)).collect();
        let title = format!("Loss on {network}, the other link clean");
        let svg = plot::benefit(&title, &labels, &[("mpip".to_owned(), groups)]);
        figures.push(Figure { name: format!("factorial-{lossy}"), svg });
    }
    *html += "</table></div>";
    for figure in figures.iter().filter(|figure| figure.name.starts_with("factorial-")) {
        *html += &figure.svg;
    }
}

#[cfg(test)]
mod tests;
