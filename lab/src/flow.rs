//! Results of flows.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::statistics::Statistics;

/// Shortest pause that receivers note one by one.
pub(crate) const NOTED_PAUSE: Duration = Duration::from_millis(20);

/// The result of a flow.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FlowResult {
    /// Name of the traffic.
    pub(crate) name: String,
    /// Whether it went by plain IP, beside the system under test.
    pub(crate) plain: bool,
    /// Payload received, in bit/s over the duration of the flow; 0 for flows whose goodput does
    /// not matter.
    pub(crate) goodput_bps: f64,
    /// Payload received in each interval of 100 ms, in bit/s.
    pub(crate) intervals_bps: Vec<f64>,
    /// TCP segments that the sender sent again, or QUIC packets that it declared lost.
    pub(crate) retransmits: u64,
    /// Longest time in which the receiver got nothing, after the first second, if the flow
    /// measures it.
    #[serde(default)]
    pub(crate) longest_pause_ms: Option<f64>,
    /// Pauses of at least [`NOTED_PAUSE`]: their end in seconds after the first byte, and length
    /// in ms.
    #[serde(default)]
    pub(crate) pauses: Vec<(f64, f64)>,
    /// Round-trip times, or durations of answers or transfers, in ms, if the flow measures them.
    pub(crate) rtt_ms: Option<Statistics>,
    /// Answers per second, if the flow measures them.
    #[serde(default)]
    pub(crate) per_second: Option<f64>,
    /// Share of datagrams that were lost, or of round trips that did not complete.
    pub(crate) loss: Option<f64>,
    /// Mean difference of the transit times of neighbouring datagrams (RFC 3550), in ms.
    pub(crate) jitter_ms: Option<f64>,
    /// Whether the checksum of a file was right.
    pub(crate) verified: Option<bool>,
    /// Why the flow failed.
    pub(crate) error: Option<String>,
}

impl FlowResult {
    /// The result over the planned duration: a flow that failed received nothing in the time that
    /// it missed.
    pub(crate) fn over(mut self, seconds: u64) -> Self {
        if self.error.is_some() {
            let intervals = seconds as usize * 10;
            self.intervals_bps.resize(intervals, 0.0);
            self.goodput_bps = self.intervals_bps.iter().sum::<f64>() / intervals as f64;
        }
        self
    }

    /// The longest pause that overlaps these `seconds`, in ms; 0 if none was noted. `None` if the
    /// flow did not note pauses.
    pub(crate) fn longest_pause_in(&self, seconds: std::ops::Range<f64>) -> Option<f64> {
        let longest = self.longest_pause_ms.filter(|_| self.error.is_none())?;
        if self.pauses.is_empty() && longest >= NOTED_PAUSE.as_secs_f64() * 1e3 {
            return None;
        }
        let within =
            |(end, pause): &&(f64, f64)| *end >= seconds.start && *end - *pause / 1e3 < seconds.end;
        Some(self.pauses.iter().filter(within).map(|(_, pause)| *pause).fold(0.0, f64::max))
    }

    /// The longest pause in ms, if the flow measures it. Else the longest time after the first byte
    /// in which each interval of 100 ms had less than a tenth of the mean.
    pub(crate) fn longest_stall_ms(&self) -> f64 {
        if let (Some(pause), None) = (self.longest_pause_ms, &self.error) {
            return pause;
        }
        let rates = &self.intervals_bps;
        let Some(first) = rates.iter().position(|rate| *rate > 0.0) else {
            return rates.len() as f64 * 100.0;
        };
        let threshold = rates.iter().sum::<f64>() / rates.len() as f64 / 10.0;
        let (mut longest, mut current) = (0, 0);
        for rate in &rates[first..] {
            current = if *rate < threshold { current + 1 } else { 0 };
            longest = longest.max(current);
        }
        f64::from(longest) * 100.0
    }
}

/// The goodput by name of flow. Flows with the same name are added up.
pub(crate) fn by_name(flows: &[FlowResult]) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for flow in flows {
        *sums.entry(flow.name.clone()).or_insert(0.0) += flow.goodput_bps;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(rates: &[f64]) -> FlowResult {
        FlowResult { intervals_bps: rates.to_vec(), ..FlowResult::default() }
    }

    #[test]
    fn a_stall_is_the_longest_time_below_a_tenth_of_the_mean() {
        let rates = [0.0, 0.0, 10.0, 10.0, 0.3, 0.0, 0.0, 10.0, 0.0, 10.0];
        assert_eq!(flow(&rates).longest_stall_ms(), 300.0);
        assert_eq!(flow(&[10.0; 5]).longest_stall_ms(), 0.0);
        assert_eq!(flow(&[0.0; 5]).longest_stall_ms(), 500.0);
        assert_eq!(flow(&[]).longest_stall_ms(), 0.0);
    }

    #[test]
    fn a_connection_that_breaks_has_the_goodput_of_all_the_time() {
        let broken = FlowResult {
            goodput_bps: 10.0,
            intervals_bps: vec![10.0; 7],
            error: Some("reset".to_owned()),
            ..FlowResult::default()
        };
        let result = broken.over(2);
        assert_eq!(result.goodput_bps, 3.5);
        assert_eq!(result.longest_stall_ms(), 1300.0);
        let whole = FlowResult { goodput_bps: 10.0, ..FlowResult::default() }.over(2);
        assert_eq!(whole.goodput_bps, 10.0);
    }
}
