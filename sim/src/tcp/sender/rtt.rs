//! Round-trip time and retransmission timeout (RFC 6298).

use crate::clock::{MILLI, NEVER, Nanos, SECOND};

/// Timeout before there is a sample (RFC 6298, section 2.1).
const INITIAL_TIMEOUT: Nanos = SECOND;
/// Smallest margin of the timeout beyond the smoothed round-trip time (Linux, `TCP_RTO_MIN`).
const MIN_MARGIN: Nanos = 200 * MILLI;
const MAX_TIMEOUT: Nanos = 60 * SECOND;

/// The round-trip time of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtt {
    /// Minimum so far; [`NEVER`] before the first sample.
    pub(super) min: Nanos,
    /// Smoothed value; 0 before the first sample.
    pub(super) smoothed: Nanos,
    deviation: Nanos,
    /// Retransmission timeout.
    pub(super) timeout: Nanos,
}

impl Rtt {
    pub(super) fn new() -> Self {
        Self { min: NEVER, smoothed: 0, deviation: 0, timeout: INITIAL_TIMEOUT }
    }

    /// The handshake is complete: forgets the timeouts of the SYN.
    pub(super) fn reset_timeout(&mut self) {
        self.timeout = INITIAL_TIMEOUT;
    }

    /// The timer expired.
    pub(super) fn back_off(&mut self) {
        self.timeout = (self.timeout * 2).min(MAX_TIMEOUT);
    }

    pub(super) fn on_sample(&mut self, rtt: Nanos) {
        self.min = self.min.min(rtt);
        if self.smoothed == 0 {
            self.smoothed = rtt.max(1);
            self.deviation = rtt / 2;
        } else {
            self.deviation += self.smoothed.abs_diff(rtt) / 4;
            self.deviation -= self.deviation / 5;
            self.smoothed = (self.smoothed * 7 + rtt) / 8;
        }
        let timeout = self.smoothed + (4 * self.deviation).max(MIN_MARGIN);
        self.timeout = timeout.min(MAX_TIMEOUT);
    }
}
