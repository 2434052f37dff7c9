//! The lab's own traffic programs: round trips of small datagrams, requests and files over TCP.
//! Each client prints a [`FlowResult`] as JSON.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use rustix::net::sockopt;

use crate::clock;
use crate::flow::FlowResult;
use crate::statistics::{Statistics, mean_difference};

/// Sends every datagram back to its source. Runs until it is killed.
pub(crate) fn echo(at: SocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind(at)?;
    let mut buffer = vec![0u8; 65536];
    loop {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

/// Sends a datagram each `interval` and measures its round-trip time.
pub(crate) fn voip(
    from: SocketAddr,
    to: SocketAddr,
    length: usize,
    interval: Duration,
    duration: Duration,
) -> io::Result<FlowResult> {
    clock::sharpen_timers();
    let socket = UdpSocket::bind(from)?;
    socket.connect(to)?;
    let receiver = socket.try_clone()?;
    receiver.set_read_timeout(Some(Duration::from_millis(100)))?;
    let start = clock::now();
    // A round trip of more than 3 s counts as lost: it is useless for a conversation.
    let last_answer = start + duration + Duration::from_secs(3);
    let count = (duration.as_nanos() / interval.as_nanos().max(1)) as u32;
    let reader = std::thread::spawn(move || collect_round_trips(&receiver, count, last_answer));
    let mut datagram = vec![0u8; length.max(12)];
    for number in 0..count {
        clock::sleep_until(start + interval * number);
        datagram[..4].copy_from_slice(&number.to_le_bytes());
        datagram[4..12].copy_from_slice(&(clock::now().as_nanos() as u64).to_le_bytes());
        let _ = socket.send(&datagram);
    }
    let mut round_trips =
        reader.join().map_err(|_| io::Error::other("the receiving thread panicked"))?;
    let jitter = mean_difference(&round_trips);
    let received = round_trips.len();
    Ok(FlowResult {
        rtt_ms: Some(Statistics::of(&mut round_trips)),
        loss: Some(1.0 - received as f64 / f64::from(count.max(1))),
        jitter_ms: Some(jitter),
        ..FlowResult::default()
    })
}

fn collect_round_trips(socket: &UdpSocket, count: u32, until: Duration) -> Vec<f64> {
    let mut seen = vec![false; count as usize];
    let mut round_trips = Vec::new();
    let mut buffer = [0u8; 2048];
    while clock::now() < until && round_trips.len() < seen.len() {
        let Ok(length) = socket.recv(&mut buffer) else { continue };
        let now = clock::now();
        if length < 12 {
            continue;
        }
        let number = u32::from_le_bytes(buffer[..4].try_into().expect("4 bytes"));
        let sent = u64::from_le_bytes(buffer[4..12].try_into().expect("8 bytes"));
        if let Some(seen @ false) = seen.get_mut(number as usize) {
            *seen = true;
            round_trips.push((now.as_secs_f64() - Duration::from_nanos(sent).as_secs_f64()) * 1e3);
        }
    }
    round_trips
}

/// A TCP server for [`request`], [`file()`] and [`short`]. The client says how many bytes follow
/// and how many it wants back; the answer to a file is its checksum. Runs until it is ended.
pub(crate) fn serve(at: SocketAddr, congestion_control: Option<&str>) -> io::Result<()> {
    let listener = TcpListener::bind(at)?;
    // What it accepts inherits it.
    if let Some(name) = congestion_control {
        sockopt::set_tcp_congestion(&listener, name)?;
    }
    loop {
        if let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || serve_one(stream));
        }
    }
}

fn serve_one(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0u8; 65536];
    loop {
        let mut head = [0u8; 16];
        stream.read_exact(&mut head)?;
        let mut left = u64::from_le_bytes(head[..8].try_into().expect("8 bytes"));
        let wanted = u64::from_le_bytes(head[8..].try_into().expect("8 bytes")) as usize;
        let mut checksum = Checksum::default();
        while left > 0 {
            let part = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let length = stream.read(&mut buffer[..part])?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            checksum.add(&buffer[..length]);
            left -= length as u64;
        }
        let mut answer = vec![0u8; wanted.max(8)];
        answer[..8].copy_from_slice(&checksum.0.to_le_bytes());
        stream.write_all(&answer)?;
    }
}

/// An HTTP server that answers every request with `size` bytes. Runs until it is ended.
pub(crate) fn http(at: SocketAddr, size: u64) -> io::Result<()> {
    let listener = TcpListener::bind(at)?;
    loop {
        if let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || answer_http(stream, size));
        }
    }
}

fn answer_http(mut stream: TcpStream, size: u64) -> io::Result<()> {
    let mut request = Vec::new();
    let mut byte = [0u8; 1];
    while !request.ends_with(b"\r\n\r\n") && request.len() < 8192 {
        stream.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
         Content-Length: {size}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    io::copy(&mut io::repeat(0x55).take(size), &mut stream).map(drop)
}

/// FNV-1a.
struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

fn head(sent: u64, wanted: u64) -> [u8; 16] {
    let mut head = [0u8; 16];
    head[..8].copy_from_slice(&sent.to_le_bytes());
    head[8..].copy_from_slice(&wanted.to_le_bytes());
    head
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Requests one after the other for `duration`.
pub(crate) fn request(
    to: SocketAddr,
    request: u64,
    response: u64,
    duration: Duration,
) -> io::Result<FlowResult> {
    let mut stream = connect(to)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let end = clock::now() + duration;
    let message = [&head(request, response)[..], &vec![0u8; request as usize]].concat();
    let mut answer = vec![0u8; response.max(8) as usize];
    let mut times = Vec::new();
    let mut error = None;
    while clock::now() < end {
        let start = clock::now();
        let exchange = stream.write_all(&message).and_then(|()| stream.read_exact(&mut answer));
        if let Err(failure) = exchange {
            error = Some(failure.to_string());
            break;
        }
        times.push((clock::now() - start).as_secs_f64() * 1e3);
    }
    Ok(FlowResult { rtt_ms: Some(Statistics::of(&mut times)), error, ..FlowResult::default() })
}

/// Transfers for `duration`, each on a new connection: sends the first number of bytes of `size`
/// and receives the second. Measures the time of each from the beginning of the handshake to the
/// last byte, the receiver's answer included.
pub(crate) fn short(
    to: SocketAddr,
    size: (u64, u64),
    interval: Duration,
    congestion_control: &str,
    duration: Duration,
) -> io::Result<FlowResult> {
    let (sent, wanted) = size;
    let message = [&head(sent, wanted)[..], &vec![0x55; sent as usize]].concat();
    let mut answer = vec![0u8; wanted.max(8) as usize];
    let begin = clock::now();
    let mut next = begin;
    let mut times = Vec::new();
    let mut error = None;
    while next < begin + duration {
        clock::sleep_until(next);
        let start = clock::now();
        let mut transfer = || -> io::Result<()> {
            let mut stream = connect(to)?;
            sockopt::set_tcp_congestion(&stream, congestion_control)?;
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            stream.write_all(&message)?;
            stream.read_exact(&mut answer)
        };
        if let Err(failure) = transfer() {
            error = Some(failure.to_string());
            break;
        }
        let now = clock::now();
        times.push((now - start).as_secs_f64() * 1e3);
        next = now.max(next + interval);
    }
    Ok(FlowResult { rtt_ms: Some(Statistics::of(&mut times)), error, ..FlowResult::default() })
}

/// Sends `size` bytes and compares the receiver's checksum with its own.
pub(crate) fn file(to: SocketAddr, size: u64, limit: Duration) -> io::Result<FlowResult> {
    let mut stream = connect(to)?;
    stream.set_write_timeout(Some(limit))?;
    stream.set_read_timeout(Some(limit))?;
    let start = clock::now();
    stream.write_all(&head(size, 8))?;
    let mut checksum = Checksum::default();
    let mut block = vec![0u8; 65536];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut left = size;
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            // xorshift64: content that repeats nowhere, so that swapped blocks are noticed.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let part = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        checksum.add(&block[..part]);
        stream.write_all(&block[..part])?;
        left -= part as u64;
    }
    let mut answer = [0u8; 8];
    stream.read_exact(&mut answer)?;
    let seconds = (clock::now() - start).as_secs_f64();
    Ok(FlowResult {
        goodput_bps: size as f64 * 8.0 / seconds,
        verified: Some(u64::from_le_bytes(answer) == checksum.0),
        ..FlowResult::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                std::thread::spawn(move || serve_one(stream));
            }
        });
        at
    }

    #[test]
    fn a_file_arrives_with_its_checksum() {
        let result = file(server(), 300_001, Duration::from_secs(5)).expect("transferred");
        assert_eq!(result.verified, Some(true));
        assert!(result.goodput_bps > 0.0);
    }

    #[test]
    fn a_web_server_sends_as_much_as_it_says() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a client");
            answer_http(stream, 70_000)
        });
        let mut stream = TcpStream::connect(at).expect("connected");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("answered");
        server.join().expect("no panic").expect("served");
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a header");
        assert!(answer.starts_with(b"HTTP/1.1 200"));
        assert_eq!(answer.len() - end - 4, 70_000);
    }

    #[test]
    fn requests_are_answered_one_after_the_other() {
        // Time enough for more than ten, on a machine that is busy.
        let enough = (0..5).any(|round| {
            let time = Duration::from_millis(100 << round);
            let result = request(server(), 10, 1000, time).expect("answered");
            assert!(result.error.is_none());
            result.rtt_ms.is_some_and(|rtt| rtt.count > 10 && rtt.median > 0.0)
        });
        assert!(enough);
    }

    #[test]
    fn short_transfers_follow_one_another() {
        for size in [(20_000, 0), (0, 20_000)] {
            let (interval, duration) = (Duration::from_millis(20), Duration::from_millis(50));
            let result = short(server(), size, interval, "cubic", duration).expect("measured");
            assert!(result.error.is_none(), "{result:?}");
            assert!((1..=3).contains(&result.rtt_ms.expect("measured").count), "{result:?}");
        }
    }

    #[test]
    fn every_datagram_has_its_round_trip() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let at = socket.local_addr().expect("an address");
        std::thread::spawn(move || {
            let mut buffer = [0u8; 2048];
            // Answers every second datagram only.
            for number in 0.. {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { return };
                if number % 2 == 0 {
                    let _ = socket.send_to(&buffer[..length], from);
                }
            }
        });
        let from = "127.0.0.1:0".parse().expect("an address");
        let (interval, duration) = (Duration::from_millis(2), Duration::from_millis(100));
        let result = voip(from, at, 160, interval, duration).expect("measured");
        assert_eq!((result.loss, result.rtt_ms.map(|rtt| rtt.count)), (Some(0.5), Some(25)));
    }
}
