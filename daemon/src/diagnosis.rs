//! What two daemons ask each other through the tunnel: what the other one sees, and measurements.
//!
//! A daemon listens by TCP on its TUN device alone, so every packet that reaches it came from a
//! peer: the engine has opened it with the association's keys and found its source among the peer's
//! addresses (docs/protocol.md, section 14). A request is one line of JSON, and so is its answer;
//! in a measurement the data follow. Everything is bounded: lines, connections, time and data.
//!
//! - `message`: the lines
//! - `load`: the data of a measurement, and how they are counted
//! - `answer`: the peer's side
//! - `ask`: this side: finds and asks the peer. `bench` uses it to measure

mod answer;
mod ask;
mod bench;
mod load;
mod message;

use std::fs;
use std::time::Duration;

pub(crate) use answer::serve;
pub(crate) use ask::ask_peer;
pub(crate) use bench::{Wish, bench};
pub(crate) use load::is_wait;

/// What peers may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits {
    /// What this node sees of them.
    pub view: bool,
    /// Measurements.
    pub bench: bool,
}

impl Permits {
    /// Nothing: nobody listens.
    pub(crate) const NOTHING: Self = Self { view: false, bench: false };
}

impl Default for Permits {
    fn default() -> Self {
        Self { view: true, bench: true }
    }
}

/// Longest measurement, and most data of one.
const DURATION_MAX: Duration = Duration::from_secs(10);
const BYTES_MAX: u64 = 4_000_000_000;

/// Processor time of the thread that carries the packets, which is the process's first.
fn packets_cpu() -> Option<Duration> {
    let text = fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}
