//! A file over TCP: a sender and a receiver that know nothing about paths, like any program. Both
//! run as processes in their host's namespace.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};

use crate::clock;

const CHUNK: usize = 64 * 1024;
/// Most chunks queued between receiver and disk, so that a slow disk causes no pause.
const CHUNKS_QUEUED: usize = 1024;
/// A transfer without progress for this long has failed.
const STALLED: Duration = Duration::from_secs(20);
const CONNECT: Duration = Duration::from_secs(5);
/// Shortest pause that counts; shorter ones are the ordinary time between two chunks.
const PAUSE_MIN_MS: f64 = 2.0;
const WITNESS_SLEEP: Duration = Duration::from_millis(5);

/// A time in which the receiver got nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Pause {
    /// Its beginning, seconds on the machine's monotonic clock.
    pub(super) at: f64,
    /// Its length.
    pub(super) ms: f64,
}

/// What the receiver measured.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reception {
    pub(super) bytes: u64,
    /// The first chunk, seconds on the machine's monotonic clock.
    pub(super) first: f64,
    /// The last one.
    pub(super) last: f64,
    /// Every pause of at least 2 ms between two chunks, in order.
    pub(super) pauses: Vec<Pause>,
    /// Longest delay of the wake-up of a thread that only sleeps. It shows how busy the machine
    /// was.
    pub(super) overslept_ms: f64,
}

/// Makes a file of random content.
pub(super) fn make_file(file: &Path, bytes: u64) -> io::Result<()> {
    let mut random = File::open("/dev/urandom")?.take(bytes);
    io::copy(&mut random, &mut File::create_new(file)?).map(drop)
}

/// SHA-256 of a file, in hexadecimal.
pub(super) fn sha256(file: &Path) -> io::Result<String> {
    let mut file = File::open(file)?;
    let mut context = digest::Context::new(&digest::SHA256);
    let mut chunk = vec![0; CHUNK];
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            length => context.update(&chunk[..length]),
        }
    }
    Ok(context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Sends a file and waits until the receiver has all of it.
pub(super) fn send(file: &Path, to: SocketAddr) -> io::Result<()> {
    let mut file = File::open(file)?;
    let deadline = Instant::now() + CONNECT;
    let mut stream = loop {
        match TcpStream::connect_timeout(&to, Duration::from_secs(1)) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    // A kernel without it has its own default.
    let _ = sockopt::set_tcp_congestion(&stream, "cubic");
    stream.set_write_timeout(Some(STALLED))?;
    stream.set_read_timeout(Some(STALLED))?;
    io::copy(&mut file, &mut stream)?;
    stream.shutdown(Shutdown::Write)?;
    // The receiver closes after it has written the last byte.
    match stream.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::other("the receiver sent something")),
    }
}

/// Takes one file.
pub(super) fn receive(at: SocketAddr, file: &Path) -> io::Result<Reception> {
    let listener = TcpListener::bind(at)?;
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(STALLED))?;
    let mut file = File::create_new(file)?;
    let (queue, chunks) = mpsc::sync_channel::<Vec<u8>>(CHUNKS_QUEUED);
    let writer = std::thread::spawn(move || -> io::Result<()> {
        for chunk in chunks {
            file.write_all(&chunk)?;
        }
        Ok(())
    });
    let witness = Witness::start();
    let mut reception =
        Reception { bytes: 0, first: 0.0, last: 0.0, pauses: Vec::new(), overslept_ms: 0.0 };
    loop {
        let mut chunk = vec![0; CHUNK];
        let length = stream.read(&mut chunk)?;
        if length == 0 {
            break;
        }
        reception.note(clock::now().as_secs_f64(), length);
        chunk.truncate(length);
        if queue.send(chunk).is_err() {
            break;
        }
    }
    reception.overslept_ms = witness.finish();
    drop(queue);
    writer.join().map_err(|_| io::Error::other("the writing thread panicked"))??;
    Ok(reception)
}

/// A thread that only sleeps, and notices when the machine wakes it late.
struct Witness {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<f64>,
}

impl Witness {
    fn start() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !flag.load(Ordering::Relaxed) {
                let before = clock::now();
                std::thread::sleep(WITNESS_SLEEP);
                longest = longest.max((clock::now() - before).saturating_sub(WITNESS_SLEEP));
            }
            longest.as_secs_f64() * 1e3
        });
        Self { ended, thread }
    }

    fn finish(self) -> f64 {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

impl Reception {
    fn note(&mut self, now: f64, length: usize) {
        if self.bytes == 0 {
            self.first = now;
        } else {
            let pause = Pause { at: self.last, ms: (now - self.last) * 1e3 };
            self.pauses.extend((pause.ms >= PAUSE_MIN_MS).then_some(pause));
        }
        self.last = now;
        self.bytes += length as u64;
    }

    /// The longest of the pauses that began between two times, in seconds of the monotonic clock.
    pub(super) fn longest_pause_ms(&self, from: f64, to: f64) -> Option<f64> {
        let pauses = self.pauses.iter().filter(|pause| (from..to).contains(&pause.at));
        pauses.map(|pause| pause.ms).max_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_arrives_as_it_was() {
        let directory = mpip_testing::Directory::new();
        let (from, to) = (directory.join("from"), directory.join("to"));
        make_file(&from, 1_000_000).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let reception = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(address, &to));
            send(&from, address).unwrap();
            receiver.join().unwrap().unwrap()
        });
        assert_eq!(reception.bytes, 1_000_000);
        assert_eq!(std::fs::metadata(&to).unwrap().len(), 1_000_000);
        assert_eq!(sha256(&from).unwrap(), sha256(&to).unwrap());
        std::fs::write(&to, "abc").unwrap();
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&to).unwrap(), expected);
    }

    #[test]
    fn pauses_are_noted_with_their_times() {
        let mut reception =
            Reception { bytes: 0, first: 0.0, last: 0.0, pauses: Vec::new(), overslept_ms: 0.0 };
        for now in [5.0, 5.2, 5.201, 5.301] {
            reception.note(now, 100);
        }
        assert_eq!((reception.bytes, reception.first, reception.last), (400, 5.0, 5.301));
        assert_eq!(reception.pauses.len(), 2);
        assert!((reception.longest_pause_ms(0.0, 9.0).unwrap() - 200.0).abs() < 1e-6);
        assert!((reception.longest_pause_ms(5.1, 5.3).unwrap() - 100.0).abs() < 1e-6);
        assert_eq!(reception.longest_pause_ms(100.0, 200.0), None);
    }
}
