//! Counts the bytes on each path during a transfer.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use super::daemons::Daemons;
use super::screen::View;
use super::world::{self, HOST_A, PATHS};
use crate::command;

/// Time over which rates are computed.
const WINDOW: Duration = Duration::from_secs(1);

/// Bytes since the meter started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    /// Payload.
    pub(super) total: u64,
    /// On each path: payload for TCP and MPTCP, whole datagrams for mpip.
    pub(super) paths: [u64; PATHS],
}

/// Watches what host A sends.
pub(super) struct Meter<'a> {
    mpip: Option<&'a Daemons>,
    /// The daemon's counters when last read, by the number of the path.
    counters: BTreeMap<u16, (usize, u64)>,
    sent: [u64; PATHS],
    connections: Connections,
    started: Instant,
    samples: VecDeque<(Instant, Bytes)>,
}

impl<'a> Meter<'a> {
    /// Starts to count: with the daemons of `mpip`, or else with the kernel's TCP.
    pub(super) fn start(mpip: Option<&'a Daemons>) -> io::Result<Self> {
        Ok(Self {
            mpip,
            counters: mpip.map(Daemons::path_bytes).transpose()?.unwrap_or_default(),
            sent: [0; PATHS],
            connections: Connections::default(),
            started: Instant::now(),
            samples: VecDeque::new(),
        })
    }

    /// Counts.
    pub(super) fn sample(&mut self) -> io::Result<Bytes> {
        self.connections.update(&command::run(&["ss", "-N", HOST_A, "-tinHO"])?);
        let mut bytes = self.connections.bytes();
        if let Some(mpip) = self.mpip {
            let counters = mpip.path_bytes()?;
            for (id, (path, now)) in &counters {
                // New and renewed paths count from zero.
                let before =
                    self.counters.get(id).filter(|(old, count)| old == path && count <= now);
                self.sent[*path] += now - before.map_or(0, |(_, count)| *count);
            }
            self.counters = counters;
            bytes.paths = self.sent;
        }
        let now = Instant::now();
        self.samples.push_back((now, bytes));
        while self.samples.len() > 2 && now - self.samples[1].0 >= WINDOW {
            self.samples.pop_front();
        }
        Ok(bytes)
    }

    /// The last second, as far as it was sampled.
    pub(super) fn view(&self) -> View {
        let mut view = View { seconds: self.started.elapsed().as_secs_f64(), ..View::default() };
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else {
            return view;
        };
        let seconds = (last.0 - first.0).as_secs_f64();
        if seconds > 0.0 {
            let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 * 8.0 / seconds;
            view.rate = rate(first.1.total, last.1.total);
            for path in 0..PATHS {
                view.paths[path] = rate(first.1.paths[path], last.1.paths[path]);
            }
        }
        view
    }
}

/// Bytes acknowledged on TCP connections, by their two ends. Those of closed connections are kept.
#[derive(Debug, Default)]
struct Connections(BTreeMap<(String, String), u64>);

impl Connections {
    /// Reads the output of `ss -tinHO`: state, two queues, the two ends, then `name:value`.
    fn update(&mut self, list: &str) {
        for line in list.lines() {
            let mut words = line.split_whitespace().skip(3);
            let (Some(local), Some(remote)) = (words.next(), words.next()) else { continue };
            let mut acknowledged = words.filter_map(|word| word.strip_prefix("bytes_acked:"));
            let Some(bytes) = acknowledged.next().and_then(|number| number.parse::<u64>().ok())
            else {
                continue;
            };
            let seen = self.0.entry((local.to_owned(), remote.to_owned())).or_default();
            *seen = bytes.max(*seen);
        }
    }

    fn bytes(&self) -> Bytes {
        let mut bytes = Bytes::default();
        for ((local, remote), count) in &self.0 {
            bytes.total += count;
            if let Some(path) = world::path_between(address(local), address(remote)) {
                bytes.paths[path] += count;
            }
        }
        bytes
    }
}

/// The address of `ADDRESS[%DEVICE]:PORT`.
fn address(end: &str) -> &str {
    let address = end.rsplit_once(':').map_or(end, |(address, _)| address);
    address.split_once('%').map_or(address, |(address, _)| address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_connections_are_added_up_by_path() {
        let mut connections = Connections::default();
        connections.update(
            "ESTAB 0 0 198.18.0.1:40000 198.18.0.11:5201 cubic bytes_sent:900 bytes_acked:800\n\
             ESTAB 0 9 198.18.0.1:40002 198.18.0.11:5201 cubic bytes_acked:20 rtt:1/2\n\
             ESTAB 0 0 198.18.0.2%a2:4 198.18.0.12:5201 tcp-ulp-mptcp bytes_acked:7\n\
             LISTEN 0 5 198.18.0.1:9 0.0.0.0:* cubic\n\
             ESTAB 0 0 198.19.0.1:5 198.19.0.2:5201 cubic bytes_acked:1000\n\
             nonsense\n",
        );
        assert_eq!(connections.bytes(), Bytes { total: 1827, paths: [820, 0, 0, 7] });
        // A closed connection still counts.
        connections.update("ESTAB 0 0 198.18.0.1:40000 198.18.0.11:5201 cubic bytes_acked:900\n");
        assert_eq!(connections.bytes(), Bytes { total: 1927, paths: [920, 0, 0, 7] });
    }
}
