//! Delivery opportunities in Mahimahi's trace format. Each line is the time of one opportunity in
//! whole milliseconds from the start; times do not decrease. 1500 bytes can pass at each; an
//! opportunity that is not used is lost. The trace repeats, and its period is the time of its last
//! line.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

/// Bytes that pass at one opportunity.
const OPPORTUNITY_BYTES: u64 = 1500;

/// A trace of delivery opportunities.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    times_ms: Arc<[u64]>,
}

/// Why a text is not a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceError {
    /// Line, from 1.
    pub line: usize,
    /// What was expected and what was found.
    pub message: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl core::error::Error for TraceError {}

impl Trace {
    /// Parses the text of a trace file.
    ///
    /// # Errors
    /// A line that is no number, times that decrease, or a trace whose last time is 0.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut times: Vec<u64> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let error = |message: String| TraceError { line: index + 1, message };
            let time = line
                .parse()
                .map_err(|_| error(format!("expected whole milliseconds, found {line:?}")))?;
            if times.last().is_some_and(|last| *last > time) {
                return Err(error(format!("{time} ms is before the line above it")));
            }
            times.push(time);
        }
        if times.last().is_none_or(|last| *last == 0) {
            let message = "expected at least one opportunity after 0 ms".to_owned();
            return Err(TraceError { line: text.lines().count(), message });
        }
        Ok(Self { times_ms: times.into() })
    }

    /// Mean rate in bit/s.
    pub fn mean_rate(&self) -> f64 {
        let bits = self.times_ms.len() as f64 * OPPORTUNITY_BYTES as f64 * 8.0;
        bits / (self.period_ms() as f64 / 1e3)
    }

    fn period_ms(&self) -> u64 {
        *self.times_ms.last().expect("a trace has at least one opportunity")
    }

    fn time_of(&self, index: u64) -> Duration {
        let len = self.times_ms.len() as u64;
        let within = self.times_ms[(index % len) as usize];
        Duration::from_millis(index / len * self.period_ms() + within)
    }

    /// The first opportunity at or after `at`.
    fn first_at(&self, at: Duration) -> u64 {
        let ms = u64::try_from(at.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let round = ms / self.period_ms();
        let within = ms % self.period_ms();
        let len = self.times_ms.len() as u64;
        let index = self.times_ms.partition_point(|time| *time < within) as u64;
        // The end of a round and the start of the next are the same moment.
        if within == 0 && round > 0 {
            let last_round = (round - 1) * len;
            let at_end = self.times_ms.partition_point(|time| *time < self.period_ms()) as u64;
            return last_round + at_end;
        }
        round * len + index
    }
}

/// Position of a link in its trace.
#[derive(Debug, Default)]
pub(crate) struct TraceCursor {
    next: u64,
    credit: u64,
    credit_at: Duration,
}

impl TraceCursor {
    /// Time at which a packet of `bytes` has passed that may start at `start`.
    pub(crate) fn transmit(&mut self, trace: &Trace, start: Duration, bytes: u64) -> Duration {
        if self.credit_at < start {
            self.credit = 0;
        }
        let mut remaining = bytes;
        let mut finish = start;
        if self.credit > 0 {
            let used = self.credit.min(remaining);
            self.credit -= used;
            remaining -= used;
            finish = self.credit_at;
        }
        while remaining > 0 {
            let index = self.next.max(trace.first_at(start));
            self.next = index + 1;
            finish = trace.time_of(index);
            let used = remaining.min(OPPORTUNITY_BYTES);
            remaining -= used;
            self.credit = OPPORTUNITY_BYTES - used;
            self.credit_at = finish;
        }
        finish
    }
}
