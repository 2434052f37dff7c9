//! Metrics of a path, for a trace.

use core::time::Duration;

/// Metrics of a path at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metrics {
    /// Smoothed round-trip time.
    pub smoothed_rtt: Duration,
    /// Lowest round-trip time of the last 10 s.
    pub min_rtt: Duration,
    /// Queuing delay: one-way delay above its windowed minimum.
    pub queuing_delay: Duration,
    /// Congestion window, bytes.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Pacing rate, bytes/s; `None` without pacing.
    pub pacing_rate: Option<u64>,
    /// Delivery rate, bytes/s.
    pub delivery_rate: u64,
    /// Reordering window: time after which an overtaken packet counts as lost.
    pub reordering_window: Duration,
}
