//! What each group of cases asks, and how far it is reached.

use super::row::Row;
use crate::measured::{Measured, PER_SECOND, direction, fill};
use crate::published::Measure;
use crate::results::RunResult;
use crate::statistics::{jain, mean};

fn mbps(bps: f64) -> String {
    format!("{:.2}", bps / 1e6)
}

/// The rows of multipath HIP, at 9.3 Mbit/s a path.
pub(super) fn mhip(measured: &Measured) -> Vec<Row> {
    (1..=14).map(|number| mhip_row(measured, &format!("mhip-{number:02}"))).collect()
}

fn mhip_row(measured: &Measured, scenario: &str) -> Row {
    let published = measured
        .published
        .iter()
        .filter(|p| p.scenario == scenario && p.measure == Measure::Goodput)
        .filter_map(|p| p.value)
        .fold(0.0, f64::max);
    let asked =
        format!("0.90 of the limit; 0.97 of the best of TCP and MPTCP; above {published} Mbit/s");
    let reached = (|| {
        let ours = measured.summary(scenario, "mpip")?;
        let best = ["tcp a", "tcp b", "mptcp"]
            .into_iter()
            .filter_map(|system| measured.summary(scenario, system))
            .max_by(|a, b| a.median_bps.total_cmp(&b.median_bps))?;
        let (share, against) = (ours.ratio?, ours.median_bps / best.median_bps);
        let text = format!(
            "{share:.3}; {against:.2} of {} ({}); {}",
            best.system,
            mbps(best.median_bps),
            mbps(ours.median_bps)
        );
        let yes = share >= 0.90 && against >= 0.97 && ours.median_bps / 1e6 > published;
        Some((text, yes))
    })();
    Row::new(scenario, &asked, reached)
}

/// The rows of MPIP's own table.
pub(super) fn mpip(measured: &Measured) -> Vec<Row> {
    // In these two all paths are alike and clean.
    let alike = ["mpip-no-limit", "mpip-delay"];
    let rows =
        ["mpip-no-limit", "mpip-nic-limit", "mpip-pair-limit", "mpip-delay", "mpip-wireless"];
    rows.into_iter()
        .map(|scenario| {
            let least = if alike.contains(&scenario) { 0.98 } else { 1.0 };
            let asked = format!("0.94 of the limit; {least:.2} of MPTCP");
            let reached = (|| {
                let ours = measured.summary(scenario, "mpip")?;
                let mptcp = measured.summary(scenario, "mptcp")?;
                let (share, against) = (ours.ratio?, ours.median_bps / mptcp.median_bps);
                let text = format!(
                    "{share:.3}; {against:.3} of {}; {}",
                    mbps(mptcp.median_bps),
                    mbps(ours.median_bps)
                );
                Some((text, share >= 0.94 && against >= least))
            })();
            Row::new(scenario, &asked, reached)
        })
        .collect()
}

/// What a full packet of an established TCP session is longer on the link than in the host.
pub(super) fn extra_bytes(measured: &Measured) -> Vec<Row> {
    let scenario = "two-100";
    let extra = measured.median(scenario, "mpip", |run| {
        let on_link = direction(run, "a")?.common_length;
        let status = run.status.as_object()?.get("client")?;
        let inner = status["interface"]["mtu_bytes"].as_f64()?;
        (on_link > 0).then_some(on_link as f64 - inner)
    });
    let reached = extra.map(|extra| (format!("{extra:.0}"), extra <= 34.0));
    vec![Row::new("extra bytes of a full packet", "at most 34", reached)]
}

/// Seconds until the following second's mean is 0.90 of the limit.
fn time_to_reach(run: &RunResult) -> Option<f64> {
    let intervals = &run.flows.first()?.intervals_bps;
    let reached =
        intervals.windows(PER_SECOND).position(|second| mean(second) >= 0.90 * run.limit_bps)?;
    Some(reached as f64 / PER_SECOND as f64)
}

/// 100 + 100 Mbit/s, one of them with a longer round trip.
pub(super) fn delay(measured: &Measured) -> Vec<Row> {
    ["delay-000", "delay-010", "delay-100", "delay-500", "delay-500-buffers"]
        .into_iter()
        .map(|scenario| {
            let timed = scenario == "delay-100";
            let within = if timed { ", reached within 3 s" } else { "" };
            let asked = format!("0.90 of the limit in the second half{within}");
            let later = measured.median(scenario, "mpip", |run| {
                let intervals = &run.flows.first()?.intervals_bps;
                Some(mean(&intervals[intervals.len() / 2..]) / run.limit_bps)
            });
            // A run that never reaches it counts as one that needs for ever.
            let start = measured
                .median(scenario, "mpip", |run| Some(time_to_reach(run).unwrap_or(f64::INFINITY)));
            let reached = later.zip(start).map(|(later, start)| {
                let yes = later >= 0.90 && (!timed || start <= 3.0);
                let start =
                    if start.is_finite() { format!("after {start:.1} s") } else { "never".into() };
                (format!("{later:.3}; 0.90 {start}"), yes)
            });
            Row::new(scenario, &asked, reached)
        })
        .collect()
}

/// Loss on link b, none on link a, of 100 Mbit/s each.
pub(super) fn loss(measured: &Measured) -> Vec<Row> {
    (1..=5)
        .map(|percent| {
            let scenario = format!("loss-{percent}");
            let clean = measured.median(&scenario, "mpip", |run| fill(run, "a"));
            let share = measured.summary(&scenario, "mpip").and_then(|ours| ours.ratio);
            let reached = share.zip(clean).map(|(share, clean)| {
                let text = format!("{share:.3}; clean link {clean:.3} full");
                (text, share >= 0.90 && clean >= 0.95)
            });
            Row::new(&scenario, "0.90 of the limit; clean link 0.95 full", reached)
        })
        .collect()
}

/// The factorial of seed 003, from what the simulator has of it.
pub(super) fn factorial(measured: &Measured) -> Vec<Row> {
    let valid = || measured.cells.iter().filter(|result| result.violations.is_empty());
    let all = crate::factorial::cells().len();
    let mut cells: Vec<usize> = valid().map(|result| result.number % all).collect();
    cells.sort_unstable();
    cells.dedup();
    let benefits: Vec<f64> = valid().map(|result| result.measured.benefit()).collect();
    let worst = valid().min_by(|a, b| a.measured.benefit().total_cmp(&b.measured.benefit()));
    let reached = worst.map(|worst| {
        let below = benefits.iter().filter(|benefit| **benefit <= 0.0).count();
        let mean = mean(&benefits);
        let [wifi, lte] = worst.cell.bandwidths_mbps;
        let lossy = match worst.cell.lossy.as_str() {
            "" => "no loss".to_owned(),
            network => format!("{network} {} %", worst.cell.loss_percent),
        };
        let strict: Vec<f64> = valid().map(|result| result.measured.strict_benefit()).collect();
        let text = format!(
            "mean {mean:.3}, least {:.3} ({wifi} and {lte} Mbit/s, {lossy}); {below} of {} runs not \
             above 0; by the links' limits mean {:.3}, least {:.3}; {} of {all} cells",
            worst.measured.benefit(),
            benefits.len(),
            self::mean(&strict),
            strict.iter().copied().fold(f64::INFINITY, f64::min),
            cells.len()
        );
        (text, below == 0 && mean > 0.8)
    });
    let asked = "benefit above 0 in every cell, mean above 0.8";
    vec![Row::new("factorial, in the simulator", asked, reached)]
}

/// Round trips beside a bulk transfer.
pub(super) fn ping(measured: &Measured) -> Vec<Row> {
    let asked = "99th percentile at most 20 ms over the idle one";
    let reached = measured.summary("ping-beside-bulk", "mpip").and_then(|summary| {
        let (idle, loaded) = (summary.rtt_ms.get("idle")?, summary.rtt_ms.get("loaded")?);
        let more = loaded.p99 - idle.p99;
        let text = format!(
            "{more:.1} ms more ({:.1} after {:.1}); bulk {:.3} of the limit",
            loaded.p99,
            idle.p99,
            summary.ratio.unwrap_or_default()
        );
        Some((text, more < 20.0))
    });
    vec![Row::new("ping beside bulk", asked, reached)]
}

/// Seconds of a transfer in which a link is cut, at 8 s: what the cut makes of it shows in these.
const CUT: std::ops::Range<f64> = 7.5..10.0;

/// The longest pause of a transfer when one of two links is cut.
pub(super) fn cut(measured: &Measured) -> Vec<Row> {
    [
        ("cut-announced-a", 50.0),
        ("cut-announced-b", 50.0),
        ("cut-silent-a", 150.0),
        ("cut-silent-b", 150.0),
    ]
    .into_iter()
    .map(|(scenario, bound)| {
        let asked = format!("longest stall below {bound} ms");
        let pause = |run: &RunResult| run.flows.first()?.longest_pause_in(CUT);
        let whole = |run: &RunResult| Some(run.longest_stall_ms);
        let reached = measured
            .median(scenario, "mpip", pause)
            .zip(measured.median(scenario, "mpip", whole))
            .map(|(pause, whole)| {
                (format!("{pause:.0} ms at the cut; in all of it {whole:.0} ms"), pause < bound)
            });
        Row::new(scenario, &asked, reached)
    })
    .collect()
}

/// Several paths over one link beside one TCP.
pub(super) fn fairness(measured: &Measured) -> Vec<Row> {
    (1..=4)
        .map(|paths| {
            let scenario = format!("shared-paths-{paths}");
            let index = |system: &str| {
                let flows = &measured.summary(&scenario, system)?.flows_bps;
                Some(jain(&flows.values().copied().collect::<Vec<_>>()))
            };
            let coupled: Option<Vec<f64>> =
                ["mpip lia", "mpip olia", "mpip balia"].into_iter().map(index).collect();
            let reached = coupled.map(|coupled| {
                let [lia, olia, balia] = [coupled[0], coupled[1], coupled[2]];
                let default = index("mpip").unwrap_or_default();
                let text =
                    format!("lia {lia:.3}, olia {olia:.3}, balia {balia:.3}; default {default:.3}");
                (text, coupled.iter().all(|index| *index >= 0.95))
            });
            Row::new(&scenario, "Jain's index 0.95 with coupled control", reached)
        })
        .collect()
}

/// More UDP than one link carries.
pub(super) fn udp(measured: &Measured) -> Vec<Row> {
    let loss = measured.median("udp-150", "mpip", |run| run.flows.first()?.loss);
    let jitter = measured.median("udp-150", "mpip", |run| run.flows.first()?.jitter_ms);
    let reached = loss.zip(jitter).map(|(loss, jitter)| {
        (format!("{:.3} %, {jitter:.2} ms", loss * 100.0), loss < 0.001 && jitter < 2.0)
    });
    vec![Row::new("udp-150", "loss below 0.1 %, jitter below 2 ms", reached)]
}
