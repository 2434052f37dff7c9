//! A stream of numbered and time-stamped UDP datagrams and its receiver: measures rate, loss,
//! one-way delay (both processes share the machine's clock) and reordering.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::statistics::Statistics;

/// Length in bytes of number (8) and time of sending in nanoseconds (8).
const HEADER: usize = 16;

/// Sends `count` datagrams of `length` payload bytes, one each `interval`.
pub(crate) fn send(
    from: SocketAddr,
    to: SocketAddr,
    length: usize,
    interval: Duration,
    count: u64,
) -> io::Result<()> {
    clock::sharpen_timers();
    let socket = UdpSocket::bind(from)?;
    rustix::net::sockopt::set_socket_send_buffer_size(&socket, 4 << 20)?;
    socket.connect(to)?;
    let mut datagram = vec![0u8; length.max(HEADER)];
    let start = clock::now();
    for number in 0..count {
        clock::sleep_until(start + interval * u32::try_from(number).unwrap_or(u32::MAX));
        datagram[..8].copy_from_slice(&number.to_le_bytes());
        datagram[8..16].copy_from_slice(&(clock::now().as_nanos() as u64).to_le_bytes());
        // If the device's queue is full or nobody receives, the datagram counts as lost.
        let _ = socket.send(&datagram);
    }
    Ok(())
}

/// What a receiver measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Reception {
    /// Datagrams received, duplicates included.
    pub(crate) received: u64,
    /// Payload bytes.
    pub(crate) bytes: u64,
    /// Seconds from the first to the last datagram.
    pub(crate) seconds: f64,
    /// Largest number received, plus one.
    pub(crate) highest: u64,
    /// Datagrams with a smaller number than one before them.
    pub(crate) reordered: u64,
    /// One-way delay, milliseconds.
    pub(crate) delay_ms: Statistics,
}

/// Receives until `silence` passes without a datagram after the first one, at most for `limit`.
pub(crate) fn receive(at: SocketAddr, silence: Duration, limit: Duration) -> io::Result<Reception> {
    clock::sharpen_timers();
    let socket = UdpSocket::bind(at)?;
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 16 << 20).is_err() {
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 16 << 20)?;
    }
    let end = clock::now() + limit;
    socket.set_read_timeout(Some(silence))?;
    let mut buffer = vec![0u8; 65536];
    let mut delays: Vec<f64> = Vec::new();
    let mut reception = Reception::default();
    let mut first = Duration::ZERO;
    let mut last = Duration::ZERO;
    while clock::now() < end {
        let length = match socket.recv(&mut buffer) {
            Ok(length) if length >= HEADER => length,
            Ok(_) => continue,
            Err(_) if reception.received == 0 => continue,
            Err(_) => break,
        };
        let now = clock::now();
        let number = u64::from_le_bytes(buffer[..8].try_into().expect("8 bytes"));
        let sent = u64::from_le_bytes(buffer[8..16].try_into().expect("8 bytes"));
        if reception.received == 0 {
            first = now;
        }
        last = now;
        reception.received += 1;
        reception.bytes += length as u64;
        if number < reception.highest {
            reception.reordered += 1;
        }
        reception.highest = reception.highest.max(number + 1);
        delays.push((now.as_secs_f64() - Duration::from_nanos(sent).as_secs_f64()) * 1e3);
    }
    reception.seconds = (last - first).as_secs_f64();
    reception.delay_ms = Statistics::of(&mut delays);
    Ok(reception)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_over_loopback_arrives_complete() {
        let stream = |pause: Duration| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
            let to = socket.local_addr().expect("an address");
            drop(socket);
            let receiver =
                std::thread::spawn(move || receive(to, pause * 3, Duration::from_secs(20)));
            std::thread::sleep(pause);
            let from = "127.0.0.1:0".parse().expect("an address");
            send(from, to, 100, Duration::from_millis(1), 50).expect("sent");
            receiver.join().expect("no panic").expect("received")
        };
        // The receiver is there before the sender, and does not give up before it, on a machine
        // that is not too busy.
        let complete = (0..5).any(|round| {
            let seen = stream(Duration::from_millis(100 << round));
            (seen.received, seen.highest, seen.bytes) == (50, 50, 5000)
                && seen.delay_ms.median >= 0.0
        });
        assert!(complete);
    }
}
