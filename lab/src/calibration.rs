//! The accuracy of the emulator on a machine, as `calibrate` measures it and results keep it.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The accuracy of the emulator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Calibration {
    /// The rate of each link, bit/s.
    pub(crate) rate: f64,
    /// Relative error of the rate of each link: 0.01 is 1 % too fast.
    pub(crate) rate_errors: Vec<f64>,
    /// 99th percentile of the delay beyond the configured one, in ms, of each link, at a load
    /// equal to its rate.
    pub(crate) added_delay_p99_ms: Vec<f64>,
    /// Median of it.
    pub(crate) added_delay_median_ms: Vec<f64>,
    /// Loss of each link.
    pub(crate) losses: Vec<f64>,
    /// The configured loss.
    pub(crate) loss_set: f64,
    /// Bound of the difference between the two (99.9 % confidence).
    pub(crate) loss_bound: f64,
    /// Relative errors of the mean delay of each link.
    pub(crate) jitter_mean_errors: Vec<f64>,
    /// Relative errors of the standard deviation of the delay of each link.
    pub(crate) jitter_deviation_errors: Vec<f64>,
    /// Share of frames that left the emulator more than 1 ms late, in all measurements.
    pub(crate) late_share: f64,
    /// Lateness in the emulator, in µs: median, 99th percentile, largest.
    pub(crate) lateness_us: [u64; 3],
    /// Frames that the hosts' devices dropped because the emulator was too slow.
    pub(crate) overrun: u64,
}

fn worst(values: &[f64]) -> f64 {
    values.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(0.0)
}

/// Name of the file in a directory with results.
pub(crate) const FILE: &str = "calibration.json";

/// The calibration in a directory with results, if there is one.
pub(crate) fn stored(directory: &Path) -> Option<Calibration> {
    let text = std::fs::read_to_string(directory.join(FILE)).ok()?;
    serde_json::from_str(&text).ok()
}

impl Calibration {
    /// What is outside of its bound, times `slack`. The bounds are 1 % for the rate, 0.3 ms for the
    /// delay, the confidence interval for loss, and 3 % for jitter.
    pub(crate) fn failures(&self, slack: f64) -> Vec<String> {
        let mut failures = Vec::new();
        let mut check = |name: &str, value: f64, bound: f64| {
            if value.abs().is_nan() || value.abs() > bound * slack {
                failures.push(format!("{name}: {value:.5}, bound {:.5}", bound * slack));
            }
        };
        check("rate error", worst(&self.rate_errors), 0.01);
        check("added delay, 99th percentile, ms", worst(&self.added_delay_p99_ms), 0.3);
        for loss in &self.losses {
            check("loss against the one set", loss - self.loss_set, self.loss_bound);
        }
        check("mean of jitter", worst(&self.jitter_mean_errors), 0.03);
        check("deviation of jitter", worst(&self.jitter_deviation_errors), 0.03);
        failures
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &[f64], scale: f64, digits: usize| -> String {
            let texts: Vec<_> =
                values.iter().map(|value| format!("{:.digits$}", value * scale)).collect();
            texts.join("  ")
        };
        writeln!(f, "{} links of {} Mbit/s at once:", self.rate_errors.len(), self.rate / 1e6)?;
        writeln!(
            f,
            "  rate error, %                {}   (bound 1)",
            list(&self.rate_errors, 1e2, 3)
        )?;
        writeln!(
            f,
            "  added delay, median, ms      {}",
            list(&self.added_delay_median_ms, 1.0, 3)
        )?;
        writeln!(
            f,
            "  added delay, 99th pct., ms   {}   (bound 0.3)",
            list(&self.added_delay_p99_ms, 1.0, 3)
        )?;
        writeln!(
            f,
            "  loss of {} %, %               {}   (bound {:.3} either way)",
            self.loss_set * 1e2,
            list(&self.losses, 1e2, 3),
            self.loss_bound * 1e2
        )?;
        writeln!(
            f,
            "  jitter, error of mean, %     {}   (bound 3)",
            list(&self.jitter_mean_errors, 1e2, 2)
        )?;
        writeln!(
            f,
            "  jitter, error of deviation, % {}   (bound 3)",
            list(&self.jitter_deviation_errors, 1e2, 2)
        )?;
        writeln!(
            f,
            "  late frames (> 1 ms)         {:.4} %; lateness median {} us, 99th pct. {} us, largest {} us",
            self.late_share * 1e2,
            self.lateness_us[0],
            self.lateness_us[1],
            self.lateness_us[2]
        )?;
        write!(f, "  frames dropped before the emulator: {}", self.overrun)
    }
}
