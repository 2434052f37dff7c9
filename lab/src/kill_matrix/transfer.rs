//! A TCP connection between two hosts with bulk data in both directions. Every byte is checked.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::sockopt;

use crate::clock;
use crate::netns::Namespace;

const CONNECT: Duration = Duration::from_secs(5);
/// A transfer without progress for this long has failed.
const STALLED: Duration = Duration::from_secs(15);
const CHUNK: usize = 64 * 1024;
/// Send buffer in bytes: less than 0.1 s at the rate of a world's links.
const SEND_BUFFER: usize = 192 * 1024;
/// Shortest pause that counts; shorter ones are the ordinary time between two reads.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// Length in bytes after which the content repeats. It is no power of two, so misplaced data
/// differs.
const PERIOD: usize = 251 * 241;

/// The content of a transfer, long enough for a chunk from any place of a period.
fn content() -> Vec<u8> {
    (0..PERIOD + CHUNK).map(|at| (at % 251) as u8 ^ (at / 251 % 241) as u8).collect()
}

/// The result of one direction.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// Bytes that arrived.
    pub(super) bytes: u64,
    /// Whether all data arrived unaltered.
    pub(super) equal: bool,
    /// Pauses of the receiver: beginning and end, on the machine's monotonic clock.
    pauses: Vec<(Duration, Duration)>,
    /// Why one of its ends gave up.
    pub(super) errors: Vec<io::Error>,
}

impl Direction {
    /// The longest pause after `from`. Of a pause that began earlier, only the part after it
    /// counts.
    pub(super) fn longest_pause(&self, from: Duration) -> Duration {
        let pauses = self.pauses.iter().map(|(begin, end)| end.saturating_sub(from.max(*begin)));
        pauses.max().unwrap_or_default()
    }
}

/// A running transfer.
pub(super) struct Transfer {
    ending: Arc<AtomicBool>,
    /// Sender and receiver of each direction, the connecting host's first.
    directions: [(JoinHandle<Sent>, JoinHandle<Received>); 2],
}

type Sent = (u64, Option<io::Error>);

struct Received {
    bytes: u64,
    right: bool,
    pauses: Vec<(Duration, Duration)>,
    error: Option<io::Error>,
}

impl Transfer {
    /// Connects from `client` to `address` on `server`, and starts to send.
    ///
    /// # Errors
    /// There is no connection within 5 s.
    pub(super) fn start(
        client: &Namespace,
        server: &Namespace,
        address: IpAddr,
    ) -> io::Result<Self> {
        let listener = server.enter(|| TcpListener::bind((address, 0)))?;
        let to = listener.local_addr()?;
        let near = client.enter(|| TcpStream::connect_timeout(&to, CONNECT))?;
        let (far, _) = listener.accept()?;
        for stream in [&near, &far] {
            sockopt::set_tcp_congestion(stream, "cubic")?;
            sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER)?;
            stream.set_read_timeout(Some(STALLED))?;
            stream.set_write_timeout(Some(STALLED))?;
        }
        let ending = Arc::new(AtomicBool::new(false));
        let content = Arc::new(content());
        let direction = |from: &TcpStream, to: &TcpStream| -> io::Result<_> {
            let (from, to, flag) = (from.try_clone()?, to.try_clone()?, Arc::clone(&ending));
            let (sent, expected) = (Arc::clone(&content), Arc::clone(&content));
            Ok((
                std::thread::spawn(move || send(from, &sent, &flag)),
                std::thread::spawn(move || receive(to, &expected)),
            ))
        };
        let directions = [direction(&near, &far)?, direction(&far, &near)?];
        Ok(Self { ending, directions })
    }

    /// Ends both directions and waits until all data has arrived. The first result is that of the
    /// data that the connecting host sent.
    pub(super) fn finish(self) -> [Direction; 2] {
        self.ending.store(true, Ordering::Relaxed);
        self.directions.map(|(sender, receiver)| {
            let panicked = || Some(io::Error::other("a thread of the transfer panicked"));
            let (sent, send_error) = sender.join().unwrap_or_else(|_| (0, panicked()));
            let received = receiver.join().unwrap_or_else(|_| Received {
                bytes: 0,
                right: false,
                pauses: Vec::new(),
                error: panicked(),
            });
            Direction {
                bytes: received.bytes,
                equal: received.right && sent == received.bytes,
                pauses: received.pauses,
                errors: send_error.into_iter().chain(received.error).collect(),
            }
        })
    }
}

fn send(mut stream: TcpStream, content: &[u8], ending: &AtomicBool) -> Sent {
    let mut sent = 0u64;
    while !ending.load(Ordering::Relaxed) {
        let at = (sent % PERIOD as u64) as usize;
        match stream.write(&content[at..at + CHUNK]) {
            Ok(length) => sent += length as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (sent, Some(error)),
        }
    }
    (sent, stream.shutdown(Shutdown::Write).err())
}

fn receive(mut stream: TcpStream, content: &[u8]) -> Received {
    let mut received = Received { bytes: 0, right: true, pauses: Vec::new(), error: None };
    let mut last = clock::now();
    let mut chunk = vec![0; CHUNK];
    loop {
        let result = match stream.read(&mut chunk) {
            // The pause goes on.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            result => result,
        };
        let now = clock::now();
        if now - last >= PAUSE_MIN {
            received.pauses.push((last, now));
        }
        last = now;
        match result {
            Ok(0) => return received,
            Ok(length) => {
                let at = (received.bytes % PERIOD as u64) as usize;
                received.right &= chunk[..length] == content[at..at + length];
                received.bytes += length as u64;
            }
            Err(error) => {
                received.error = Some(error);
                return received;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A transfer that lasts for `time`.
    fn over_loopback(time: Duration, change: impl Fn(&mut [u8])) -> (Sent, Received) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (far, _) = listener.accept().expect("connected");
        let (good, mut expected) = (content(), content());
        change(&mut expected);
        let ending = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| send(stream, &good, &ending));
            let receiver = scope.spawn(|| receive(far, &expected));
            std::thread::sleep(time);
            ending.store(true, Ordering::Relaxed);
            (sender.join().expect("no panic"), receiver.join().expect("no panic"))
        })
    }

    #[test]
    fn all_bytes_arrive_as_they_were_sent() {
        // Time enough for a whole period, on a machine that is busy.
        let enough = (1..8).any(|round| {
            let time = Duration::from_millis(10 << round);
            let ((sent, send_error), received) = over_loopback(time, |_| {});
            assert!(send_error.is_none() && received.error.is_none());
            assert!(received.right && sent == received.bytes, "{sent}");
            sent > PERIOD as u64
        });
        assert!(enough);
    }

    #[test]
    fn one_bit_that_differs_is_noticed() {
        let differs = (1..8).any(|round| {
            let time = Duration::from_millis(10 << round);
            !over_loopback(time, |expected| expected[40_000] ^= 1).1.right
        });
        assert!(differs);
    }

    #[test]
    fn a_pause_counts_from_the_kill_on() {
        let ms = Duration::from_millis;
        let pauses = vec![(ms(100), ms(400)), (ms(900), ms(1_300)), (ms(2_000), ms(2_100))];
        let direction = Direction { pauses, ..Direction::default() };
        assert_eq!(direction.longest_pause(ms(1_000)), ms(300));
        assert_eq!(direction.longest_pause(ms(1_290)), ms(100));
        assert_eq!(direction.longest_pause(ms(3_000)), ms(0));
    }
}
