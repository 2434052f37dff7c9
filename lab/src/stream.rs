//! Bulk TCP whose receiver measures every pause; iperf3 only reports sums over 100 ms. The receiver
//! sends its result back over the connection when the sender has closed its side.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::sockopt;

use crate::clock;
use crate::flow::{FlowResult, NOTED_PAUSE};

const CHUNK: usize = 64 * 1024;
const CONNECT: Duration = Duration::from_secs(5);
/// A transfer without progress for this long has failed.
const STALLED: Duration = Duration::from_secs(20);
/// Pauses within this time of the first byte belong to the start and do not count.
const START: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(100);
/// Most pauses that are noted.
const PAUSES: usize = 1_000;

/// Receives one transfer.
pub(crate) fn receive(at: SocketAddr) -> io::Result<()> {
    let (stream, _) = TcpListener::bind(at)?.accept()?;
    receive_from(stream)
}

fn receive_from(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(STALLED))?;
    let mut reception = Reception::default();
    let mut chunk = vec![0; CHUNK];
    loop {
        match stream.read(&mut chunk)? {
            0 => break,
            length => reception.note(clock::now(), length),
        }
    }
    stream.write_all(&serde_json::to_vec(&reception.result())?)
}

/// Sends for `duration` and returns the result of the receiver.
pub(crate) fn send(
    to: SocketAddr,
    congestion_control: &str,
    duration: Duration,
) -> io::Result<FlowResult> {
    let mut stream = TcpStream::connect_timeout(&to, CONNECT)?;
    sockopt::set_tcp_congestion(&stream, congestion_control)?;
    stream.set_write_timeout(Some(STALLED))?;
    stream.set_read_timeout(Some(STALLED))?;
    let end = clock::now() + duration;
    let chunk = vec![0x55; CHUNK];
    while clock::now() < end {
        stream.write_all(&chunk)?;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}

/// What a receiver has measured so far. Times are those of the machine's clock.
#[derive(Debug, Default)]
pub(crate) struct Reception {
    bytes: u64,
    first: Option<Duration>,
    last: Duration,
    longest_pause: Duration,
    /// The noted pauses: time of their end after the first byte, and length.
    pauses: Vec<(Duration, Duration)>,
    /// Bytes of each [`INTERVAL`] since the first byte.
    intervals: Vec<u64>,
}

impl Reception {
    /// Notes that `length` bytes of payload have arrived.
    pub(crate) fn note(&mut self, now: Duration, length: usize) {
        let first = *self.first.get_or_insert(now);
        if now >= first + START {
            // Of a pause that began in the first second, only the part after it counts.
            let since = self.last.max(first + START);
            let pause = now - since;
            self.longest_pause = self.longest_pause.max(pause);
            if pause >= NOTED_PAUSE && self.pauses.len() < PAUSES {
                self.pauses.push((now - first, pause));
            }
        }
        self.last = now;
        self.bytes += length as u64;
        let interval = ((now - first).as_nanos() / INTERVAL.as_nanos()) as usize;
        if self.intervals.len() <= interval {
            self.intervals.resize(interval + 1, 0);
        }
        self.intervals[interval] += length as u64;
    }

    /// The result of a flow that was to last `duration`. What came late or never lowers its
    /// goodput.
    pub(crate) fn over(&self, duration: Duration) -> FlowResult {
        let mut result = self.result();
        let intervals = (duration.as_nanos() / INTERVAL.as_nanos()) as usize;
        result.intervals_bps.resize(intervals, 0.0);
        result.goodput_bps = self.bytes as f64 * 8.0 / duration.as_secs_f64();
        result
    }

    fn result(&self) -> FlowResult {
        let seconds = (self.last - self.first.unwrap_or(self.last)).as_secs_f64();
        let rate = |bytes: u64, seconds: f64| bytes as f64 * 8.0 / seconds;
        // The last interval is incomplete.
        let whole = self.intervals.len().saturating_sub(1);
        FlowResult {
            goodput_bps: if seconds > 0.0 { rate(self.bytes, seconds) } else { 0.0 },
            intervals_bps: self.intervals[..whole]
                .iter()
                .map(|bytes| rate(*bytes, INTERVAL.as_secs_f64()))
                .collect(),
            longest_pause_ms: Some(self.longest_pause.as_secs_f64() * 1e3),
            pauses: self
                .pauses
                .iter()
                .map(|(end, pause)| (end.as_secs_f64(), pause.as_secs_f64() * 1e3))
                .collect(),
            ..FlowResult::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_after_the_first_second_are_noted() {
        let mut reception = Reception::default();
        let start = Duration::from_secs(77);
        for at in [0, 700, 1_040, 1_100, 1_290, 1_300, 2_000] {
            reception.note(start + Duration::from_millis(at), 1_000);
        }
        let result = reception.result();
        assert_eq!(result.longest_pause_ms, Some(700.0));
        assert_eq!(result.longest_stall_ms(), 700.0);
        assert_eq!(result.longest_pause_in(1.0..1.29), Some(190.0));
        assert_eq!(result.longest_pause_in(1.4..1.5), Some(700.0), "it lasts all that time");
        assert_eq!(result.longest_pause_in(3.0..4.0), Some(0.0));
        let earlier = FlowResult { pauses: Vec::new(), ..result.clone() };
        assert_eq!(earlier.longest_pause_in(1.0..1.29), None, "they were not noted");
        assert_eq!(result.goodput_bps, 7_000.0 * 8.0 / 2.0);
        assert_eq!(result.intervals_bps.len(), 20);
        assert_eq!(result.intervals_bps[10], 80_000.0);
        let mut early = Reception::default();
        early.note(start, 1);
        early.note(start + Duration::from_millis(1_030), 1);
        assert_eq!(early.result().longest_pause_ms, Some(30.0));
        assert_eq!(Reception::default().result().goodput_bps, 0.0);
        let planned = reception.over(Duration::from_secs(4));
        assert_eq!((planned.goodput_bps, planned.intervals_bps.len()), (7_000.0 * 8.0 / 4.0, 40));
    }

    #[test]
    fn a_transfer_has_the_receivers_figures() {
        let transfer = |time| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let at = listener.local_addr().expect("an address");
            let receiver =
                std::thread::spawn(move || receive_from(listener.accept().expect("a sender").0));
            let result = send(at, "cubic", time).expect("sent");
            receiver.join().expect("no panic").expect("received");
            assert!(result.error.is_none(), "{result:?}");
            result
        };
        // Time enough, on a machine that is busy.
        let enough = (0..5).any(|round| {
            let result = transfer(Duration::from_millis(300 << round));
            result.goodput_bps > 1e6 && result.intervals_bps.len() >= 2
        });
        assert!(enough);
    }
}
