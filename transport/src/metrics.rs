//! What is known of a path, for a trace.

use core::time::Duration;

/// What is known of a path at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metrics {
    /// Smoothed round-trip time.
    pub smoothed_rtt: Duration,
    /// Lowest round-trip time of the last 10 s.
    pub min_rtt: Duration,
    /// One-way delay above its windowed minimum.
    pub queuing_delay: Duration,
    /// Bytes that may be in flight.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Rate at which packets may leave, bytes/s; `None` without pacing.
    pub pacing_rate: Option<u64>,
    /// Delivery rate that the feedback shows, bytes/s.
    pub delivery_rate: u64,
    /// How far behind its followers a packet may be before it counts as lost.
    pub reordering_window: Duration,
}
