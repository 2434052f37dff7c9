//! The report: one HTML file with everything in it, and its plots as SVG files beside it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

use crate::calibration::{self, Calibration};
use crate::factorial;
use crate::links::DirectionRecord;
use crate::published::{Measure, Published, published};
use crate::results::{RunResult, Store};
use crate::scenarios::{self, Loaded};
use crate::statistics::jain;
use crate::summary::{Summary, summarise};

mod benefit;
mod clocks;
mod figure;
pub(crate) mod markdown;
pub(crate) mod plot;
mod sweep;

use figure::Figure;
use plot::{Row, Series, escape};

/// The systems with columns, because most scenarios have them. All others have rows of their own,
/// or share the last column.
const SYSTEMS: [&str; 6] = ["tcp a", "tcp b", "mptcp", "mpip", "mpip host", "mpip+mptcp"];

const STYLE: &str = include_str!("report/style.css");
/// Writes `report.html` and `plots/*.svg` into a directory with results.
///
/// # Errors
/// There are no results, or files cannot be written.
pub(crate) fn write(directory: &Path) -> io::Result<()> {
    let store = Store::open(directory)?;
    let results = store.results();
    let swept = crate::sweep::read(directory)?;
    if results.is_empty() && swept.is_empty() && !directory.join(factorial::FILE).exists() {
        let message = format!("{} has no results", directory.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    let calibration = calibration::stored(directory);
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
    benefit::scenarios(&mut body, &summaries, &mut figures);
    benefit::factorial(&mut body, &factorial::read(directory)?, &mut figures);
    sweep::section(&mut body, &swept, &mut figures);
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
    // Commits of one machine share a line.
    let mut machines: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for e in results.iter().map(|run| &run.environment) {
        let machine = format!("{}, Linux {}, {} x {}", e.version, e.kernel, e.cpus, e.cpu);
        let commits = machines.entry(machine).or_default();
        if !e.commit.is_empty() && !commits.contains(&e.commit.as_str()) {
            commits.push(&e.commit);
        }
    }
    for (machine, commits) in machines {
        let text = format!("mpip-lab {machine}; commits {}", commits.join(", "));
        let _ = write!(html, "<p class=\"dim\">{}</p>", escape(&text));
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
    *html += "<h2 id=\"overview\">Ratio to the limit</h2>\
              <p class=\"dim\">Plain TCP against the limit of its own path, all others against \
              that of all paths together. Values in parentheses do not count.</p>\
              <div class=\"wide\"><table><thead><tr><th>scenario</th>";
    for system in SYSTEMS {
        let _ = write!(html, "<th>{system}</th>");
    }
    *html += "<th class=\"others\">others</th></tr></thead>";
    let cell = |s: &Summary| match s.ratio {
        Some(ratio) if s.counts => format!("{ratio:.3}"),
        Some(ratio) => format!("({ratio:.3})"),
        None => String::new(),
    };
    for name in names {
        let own: Vec<&Summary> = summaries.iter().filter(|s| s.scenario == *name).collect();
        if own.iter().all(|s| s.ratio.is_none()) {
            continue;
        }
        let _ = write!(html, "<tr><td><a href=\"#{name}\">{name}</a></td>");
        for system in SYSTEMS {
            let found = own.iter().find(|s| s.system == system);
            let _ = write!(html, "<td>{}</td>", found.map_or(String::new(), |s| cell(s)));
        }
        let others: Vec<String> = own
            .iter()
            .filter(|s| !SYSTEMS.contains(&s.system.as_str()) && s.ratio.is_some())
            .map(|s| format!("{} {}", escape(&s.system), cell(s)))
            .collect();
        let _ = write!(html, "<td class=\"others\">{}</td></tr>", others.join(", "));
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
    clocks::section(html, runs);
    let mut add = |kind: &str, svg: String| {
        let kind: String =
            kind.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
        *html += &svg;
        figures.push(Figure { name: format!("{name}-{kind}"), svg });
    };
    if summaries.iter().any(|s| s.median_bps > 0.0) {
        add("goodput", goodput_plot(summaries, published));
    }
    for run in first_runs(runs) {
        let system = &run.system;
        if let Some(svg) = throughput_plot(run, loaded) {
            add(&format!("{system}-throughput"), svg);
        }
        if let Some(svg) = queue_plot(run, loaded) {
            add(&format!("{system}-queue"), svg);
        }
        if let Some(svg) = estimate_plot(run, loaded) {
            add(&format!("{system}-estimate"), svg);
        }
    }
    *html += "</section>";
}

/// A published figure of a system as a cell says it.
fn published_cell(published: &[&Published], system: &str) -> String {
    let figure = published.iter().find_map(|p| {
        let of_it = p.system == system && matches!(p.measure, Measure::Goodput | Measure::Gain);
        p.value.filter(|_| of_it).map(|value| (value, p))
    });
    figure.map_or(String::new(), |(value, p)| match p.deviation {
        _ if p.measure == Measure::Gain => format!("{value:+} %"),
        Some(deviation) => format!("{} ± {}", plot::label(value), plot::label(deviation)),
        None => plot::label(value),
    })
}

fn goodput_table(html: &mut String, summaries: &[&Summary], published: &[&Published]) {
    if summaries.iter().all(|s| s.median_bps == 0.0) {
        return;
    }
    // What more than one path gains, which some publish in place of a rate.
    let alone = summaries.iter().filter(|s| s.system.starts_with("tcp ")).map(|s| s.median_bps);
    let best = alone.fold(0.0, f64::max);
    *html += "<div class=\"wide\"><table><tr><th>system</th><th>published, Mbit/s</th>\
              <th>median, Mbit/s</th><th>deviation</th><th>limit</th><th>ratio</th>\
              <th>over one path</th><th>longest stall, ms</th><th>CPU s/Gbit</th>\
              <th>runs that count</th></tr>";
    for s in summaries {
        let figure = published_cell(published, &s.system);
        let limit = s.limit_bps.map_or(String::new(), |limit| format!("{:.2}", limit / 1e6));
        let ratio = s.ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
        let cost = s.cpu_seconds_per_gbit.map_or(String::new(), |cost| format!("{cost:.1}"));
        let gain = if best > 0.0 && !s.system.starts_with("tcp ") {
            format!("{:+.0} %", (s.median_bps / best - 1.0) * 100.0)
        } else {
            String::new()
        };
        let note = if s.invalid.is_empty() {
            String::new()
        } else {
            format!("<div class=\"bad\">{}</div>", escape(&s.invalid.join("; ")))
        };
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{figure}</td><td>{:.2}</td><td>{:.2}</td><td>{limit}</td>\
             <td>{ratio}</td><td>{gain}</td><td>{:.0}</td><td>{cost}</td>\
             <td class=\"note\">{} of {}{note}</td></tr>",
            escape(&s.system),
            s.median_bps / 1e6,
            s.deviation_bps / 1e6,
            s.longest_stall_ms,
            s.counting,
            s.repetitions,
        );
    }
    *html += "</table></div>";
    other_flows(html, summaries);
    datagram_table(html, summaries);
}

/// Loss and jitter of flows of datagrams.
fn datagram_table(html: &mut String, summaries: &[&Summary]) {
    if summaries.iter().all(|s| s.datagrams.is_empty()) {
        return;
    }
    *html += "<div class=\"wide\"><table><tr><th>datagrams</th><th>lost, %</th>\
              <th>jitter, ms</th></tr>";
    for s in summaries {
        for (flow, datagrams) in &s.datagrams {
            let _ = write!(
                html,
                "<tr><td>{}, {}</td><td>{:.3}</td><td>{:.2}</td></tr>",
                escape(&s.system),
                escape(flow),
                datagrams.loss * 100.0,
                datagrams.jitter_ms
            );
        }
    }
    *html += "</table></div>";
}

/// What flows beside the system under test got, with Jain's index over all of them.
fn other_flows(html: &mut String, summaries: &[&Summary]) {
    let bulk = |s: &&Summary| s.flows_bps.values().filter(|value| **value > 0.0).count();
    if summaries.iter().all(|s| bulk(s) < 2) {
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

fn round_trip_table(html: &mut String, summaries: &[&Summary], published: &[&Published]) {
    if summaries.iter().all(|s| s.rtt_ms.is_empty()) {
        return;
    }
    *html += "<div class=\"wide\"><table><tr><th>round trips</th><th>published mean, ms</th>\
              <th>mean, ms</th><th>median</th><th>99th percentile</th><th>deviation</th>\
              <th>count</th></tr>";
    for s in summaries {
        for (flow, rtt) in &s.rtt_ms {
            let own = |p: &&&Published| p.system == s.system && p.measure == Measure::RoundTrip;
            let figure = published.iter().find(own).and_then(|p| p.value);
            let _ = write!(
                html,
                "<tr><td>{}, {}</td><td>{}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td>\
                 <td>{:.2}</td><td>{}</td></tr>",
                escape(&s.system),
                escape(flow),
                figure.map_or(String::new(), plot::label),
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
                .find(|p| p.system == s.system && p.measure == Measure::Goodput)
                .and_then(|p| p.value),
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

/// Samples of a plot: a flow that does not end is waited for, and nothing is seen then.
fn samples(run: &RunResult, loaded: Option<&Loaded>) -> usize {
    let Some(loaded) = loaded else { return usize::MAX };
    let planned = loaded.scenario.duration.as_secs_f64() * 1e3 / run.emulator.sample_ms;
    planned.ceil() as usize + 5
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
                .take(samples(run, loaded))
                .map(|bytes| *bytes as f64 * 8.0 / sample / 1e6)
                .collect(),
        })
        .filter(|series| series.values.iter().any(|value| *value > 0.0))
        .collect();
    let title = format!("{}: IP packets delivered by each link", run.system);
    (!series.is_empty()).then(|| plot::over_time(&title, "Mbit/s", sample, &series, &marks(loaded)))
}

/// Queuing delay of each path as the sending end estimates it (seed 000, figure 8(b)).
fn estimate_plot(run: &RunResult, loaded: Option<&Loaded>) -> Option<String> {
    let series: Vec<Series> = run
        .estimates
        .iter()
        .map(|estimate| {
            let samples = estimate.queuing_ms.iter().take(samples(run, loaded));
            let values = samples.map(|delay| delay.unwrap_or(f64::NAN)).collect();
            Series { name: estimate.path.clone(), values }
        })
        .filter(|series| series.values.iter().any(|value| value.is_finite()))
        .collect();
    let title = format!("{}: queuing delay that the sender estimates", run.system);
    let interval = run.emulator.sample_ms / 1e3;
    (!series.is_empty()).then(|| plot::over_time(&title, "ms", interval, &series, &marks(loaded)))
}

/// Queueing delay: what waits, at the rate of the link.
fn queue_plot(run: &RunResult, loaded: Option<&Loaded>) -> Option<String> {
    let sample = run.emulator.sample_ms / 1e3;
    let loaded = loaded?;
    let scenario = &loaded.scenario;
    let series: Vec<Series> = main_directions(run)
        .into_iter()
        .filter_map(|direction| {
            let link = scenario.links.iter().find(|link| link.name == direction.link)?;
            let rate = link.direction(direction.forward).mean_rate()?;
            let queued = direction.queued.iter().take(samples(run, Some(loaded)));
            let values: Vec<f64> = queued.map(|bytes| *bytes as f64 * 8.0 / rate * 1e3).collect();
            values
                .iter()
                .any(|value| *value > 0.0)
                .then(|| Series { name: direction.link.clone(), values })
        })
        .collect();
    let title = format!("{}: queueing delay in front of each link", run.system);
    (!series.is_empty())
        .then(|| plot::over_time(&title, "ms", sample, &series, &marks(Some(loaded))))
}

#[cfg(test)]
mod tests;
