//! The data of a measurement, and how they are counted.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use mpip_core::Instant;
use mpip_net::clock;
use serde::{Deserialize, Serialize};

/// Bytes of one read or write.
const CHUNK: usize = 128 << 10;
/// Interval of the points at which the amount is noted.
const POINT: Duration = Duration::from_millis(10);
/// Share of the time that the start takes: slow start, and paths that wake up.
const START: f64 = 0.3;
/// How long a read or write waits before it is looked whether to go on.
const TURN: Duration = Duration::from_millis(50);
/// Longest silence of the other end.
const SILENCE: Duration = Duration::from_secs(5);

/// What was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    /// All of it.
    pub(super) bytes: u64,
    /// From the first byte to the last, ms.
    pub(super) duration_ms: f64,
    /// Goodput after the start.
    pub(super) rate_bps: u64,
}

/// Counts what arrives.
#[derive(Debug, Default)]
pub(super) struct Meter {
    first: Option<Instant>,
    bytes: u64,
    /// Times since the first byte, and the amounts then.
    points: Vec<(Duration, u64)>,
}

impl Meter {
    /// `len` more bytes have arrived.
    pub(super) fn add(&mut self, now: Instant, len: usize) {
        let first = *self.first.get_or_insert(now);
        self.bytes += len as u64;
        let since = now.since(first);
        // The last point is always that of the last byte.
        match self.points.as_mut_slice() {
            [.., before, last] if since < before.0 + POINT => *last = (since, self.bytes),
            _ => self.points.push((since, self.bytes)),
        }
    }

    /// Time since the first byte.
    fn elapsed(&self, now: Instant) -> Duration {
        self.first.map_or(Duration::ZERO, |first| now.since(first))
    }

    /// Everything so far.
    pub(super) fn measured(&self) -> Measured {
        let Some((end, bytes)) = self.points.last().copied() else { return Measured::default() };
        let start = end.mul_f64(START);
        let from = self.points.iter().find(|(at, _)| *at >= start).copied().unwrap_or_default();
        let span = (end - from.0).as_secs_f64();
        let rate = if span > 0.0 { (bytes - from.1) as f64 * 8.0 / span } else { 0.0 };
        Measured { bytes, duration_ms: end.as_secs_f64() * 1e3, rate_bps: rate as u64 }
    }
}

/// Sends until `limit` is over or `max` bytes are sent, the other end closes, or `goes_on` (asked
/// with the bytes so far) says no. Returns how many bytes were sent.
pub(super) fn send(
    mut stream: &TcpStream,
    limit: Duration,
    max: u64,
    mut goes_on: impl FnMut(u64) -> bool,
) -> u64 {
    let (chunk, start, mut sent) = (vec![0; CHUNK], clock::now(), 0);
    if stream.set_write_timeout(Some(TURN)).is_err() {
        return 0;
    }
    while sent < max && clock::now().since(start) < limit && goes_on(sent) {
        let len = usize::try_from(max - sent).unwrap_or(CHUNK).min(CHUNK);
        match stream.write(&chunk[..len]) {
            Ok(len) => sent += len as u64,
            Err(error) if is_wait(error.kind()) => {}
            Err(_) => break,
        }
    }
    sent
}

/// Receives until `limit` after the first byte, or the other end closes or is silent, or `goes_on`
/// (asked with the bytes so far) says no.
pub(super) fn receive(
    mut stream: &TcpStream,
    limit: Duration,
    mut goes_on: impl FnMut(u64) -> bool,
) -> Meter {
    let (mut meter, mut chunk) = (Meter::default(), vec![0; CHUNK]);
    let mut heard = clock::now();
    if stream.set_read_timeout(Some(TURN)).is_err() {
        return meter;
    }
    while goes_on(meter.bytes) {
        let read = stream.read(&mut chunk);
        let now = clock::now();
        match read {
            Ok(0) => break,
            Ok(len) => {
                meter.add(now, len);
                heard = now;
            }
            Err(error) if is_wait(error.kind()) && now.since(heard) < SILENCE => {}
            Err(_) => break,
        }
        if meter.elapsed(now) >= limit {
            break;
        }
    }
    meter
}

/// Whether a read or write with a time limit ended without a result: after that time, or because
/// the process was frozen and thawed.
pub(crate) fn is_wait(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Shutdown, TcpListener};
    use std::thread;

    use super::*;

    #[test]
    fn the_start_does_not_count() {
        let mut meter = Meter::default();
        let start = Instant::ZERO;
        // Nothing but the first byte for a second, then 1 MB/s.
        meter.add(start, 1);
        for ms in 1_000..4_000 {
            meter.add(start + Duration::from_millis(ms), 1_000);
        }
        let measured = meter.measured();
        assert_eq!(measured.bytes, 3_000_001);
        assert!((measured.duration_ms - 3_999.0).abs() < 1e-6);
        assert!((measured.rate_bps as f64 / 8e6 - 1.0).abs() < 0.01, "{measured:?}");
        assert!(meter.points.len() < 450, "{} points in 4 s", meter.points.len());
        assert_eq!(Meter::default().measured(), Measured::default());
    }

    #[test]
    fn data_end_at_their_limit_and_all_of_them_are_counted() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let sender = thread::spawn(move || {
            let stream = TcpStream::connect(address).expect("it listens");
            let sent = send(&stream, Duration::from_secs(60), 300_000, |_| true);
            stream.shutdown(Shutdown::Write).expect("open");
            sent
        });
        let (stream, _) = listener.accept().expect("a connection");
        let meter = receive(&stream, Duration::from_secs(60), |_| true);
        assert_eq!((sender.join().expect("ends"), meter.measured().bytes), (300_000, 300_000));
    }
}
