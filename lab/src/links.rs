//! The process that makes the links of a testbed, as the testbed sees it.
//!
//! The lab has two such programs, `emulator` and `netem`; the simulator's results have the same
//! form. The process takes one JSON line on standard input ([`Setup`]), prints a line once the
//! devices exist, and then takes commands, one per line: `start` (time 0 of the schedule), `event
//! NUMBER` (apply an event that follows the hosts' interfaces), and `stop`. After `stop` it prints
//! its [`Record`] and ends. It also ends when its input does.

use std::time::Duration;

use mpip_link::Counters;
use serde::{Deserialize, Serialize};

/// A packet that leaves more than this after it was due is late.
pub(crate) const LATE: Duration = Duration::from_millis(1);
/// Interval of the samples in a [`Record`].
pub(crate) const SAMPLE: Duration = Duration::from_millis(100);

/// The task of a links process, its first line of input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Path of the scenario file; traces that it names are relative to it.
    pub(crate) file: String,
    /// Text of the scenario.
    pub(crate) text: String,
    /// Number of the run, which selects the seed.
    pub(crate) repetition: u32,
    /// Directory for packet traces of every link; `None` for no traces.
    pub(crate) pcap: Option<String>,
    /// Whether to use the kernel's links instead of the emulator's.
    pub(crate) netem: bool,
}

/// One direction of a link over time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct DirectionRecord {
    /// The link's name.
    pub(crate) link: String,
    /// Whether from the first end to the second.
    pub(crate) forward: bool,
    /// Counts since `start`.
    pub(crate) counters: Counters,
    /// Most frequent length of the IP packets delivered since `start`, in bytes; 0 if there were
    /// none.
    #[serde(default)]
    pub(crate) common_length: usize,
    /// Bytes of IP packets delivered in each interval of 100 ms since `start`.
    pub(crate) delivered: Vec<u64>,
    /// Bytes in the queue at the end of each interval.
    pub(crate) queued: Vec<u64>,
    /// Packets dropped in each interval, for any cause.
    pub(crate) dropped: Vec<u64>,
}

/// What the links did between `start` and `stop`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Every direction of every link.
    pub(crate) directions: Vec<DirectionRecord>,
    /// Milliseconds between samples.
    #[serde(default = "sample_ms")]
    pub(crate) sample_ms: f64,
    /// Frames that left the links.
    pub(crate) frames: u64,
    /// Of these, frames that left more than [`LATE`] after they were due.
    pub(crate) late: u64,
    /// Upper bounds of the lateness in µs: median, 99th percentile, largest.
    pub(crate) lateness_us: [u64; 3],
    /// Frames that the kernel refused because the interface was down.
    pub(crate) refused: u64,
    /// Frames of the measured traffic that travelled as they are, without a tunnel around them, to
    /// or from the host at which it begins. Always 0 with the kernel's links.
    #[serde(default)]
    pub(crate) bare: u64,
}

/// [`SAMPLE`] in milliseconds.
pub(crate) fn sample_ms() -> f64 {
    SAMPLE.as_secs_f64() * 1e3
}

impl Record {
    /// The share of frames that left late.
    pub(crate) fn late_share(&self) -> f64 {
        if self.frames == 0 { 0.0 } else { self.late as f64 / self.frames as f64 }
    }
}

/// The hardware address of the interface with index `port` (locally administered).
pub(crate) fn hardware_address(port: usize) -> [u8; 6] {
    [0x02, 0x6d, 0x70, 0x69, 0x70, port as u8]
}

/// The name of the device of the interface with index `port` before it is moved into its host.
pub(crate) fn device_name(port: usize) -> String {
    format!("port{port}")
}
