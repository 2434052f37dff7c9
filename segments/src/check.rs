//! Properties for arbitrary bytes, shared by the fuzz target `tcp_segments` and the test that
//! replays its corpus.

use core::net::SocketAddr;
use core::time::Duration;

use mpip_types::{Ecn, Instant};

use crate::endpoint::Endpoint;
use crate::segment::{Header, flag, is_intact};

/// Remote ends.
const REMOTES: usize = 4;

/// Reads `bytes` as the header of a segment, and as a list of events of an endpoint. Returns the
/// number of datagrams that it received.
///
/// Each event is a byte with its kind and remote end, the number of bytes that follow, and these
/// bytes:
///
/// | bits 2 to 4 | |
/// |---|---|
/// | 0, 1, 2 | a segment comes |
/// | 3 | one that acknowledges what was sent last |
/// | 4 | the bytes are sent as a datagram |
/// | 5 | the endpoint sends nothing for ten times so many milliseconds |
/// | 6 | as many seconds pass |
/// | 7 | all connections are closed |
///
/// # Panics
///
/// If a property is violated.
pub fn segments(bytes: &[u8]) -> usize {
    header(bytes);
    let mut world = World::new();
    let mut rest = bytes;
    while let [what, len, following @ ..] = rest {
        let (data, others) = following.split_at(usize::from(*len).min(following.len()));
        rest = others;
        world.happens(*what, data);
    }
    world.datagrams
}

/// A parsed header can be written, and parsing it again gives the same.
fn header(bytes: &[u8]) {
    let ends: [SocketAddr; 2] = [([198, 18, 0, 1], 1).into(), ([198, 18, 0, 2], 2).into()];
    let _ = is_intact(ends[0], ends[1], bytes);
    let Ok((header, len)) = Header::parse(bytes) else { return };
    assert!((20..=60).contains(&len) && len <= bytes.len(), "a header of {len} bytes");
    let written = |header: &Header| {
        let mut bytes = vec![0; header.encoded_len()];
        assert_eq!(header.write(&mut bytes), bytes.len());
        bytes
    };
    let first = written(&header);
    let (again, len) = Header::parse(&first).expect("what we write is a header");
    assert_eq!((len, written(&again)), (first.len(), first));
}

struct World {
    endpoint: Endpoint,
    now: Instant,
    /// Acknowledgement number of the last segment sent to each remote end, and its timestamp.
    last: [(u32, u32); REMOTES],
    datagrams: usize,
}

impl World {
    fn new() -> Self {
        let endpoint = Endpoint::new(([198, 18, 0, 1], 6182).into(), 1_500, [7; 32]);
        Self {
            endpoint,
            now: Instant::ZERO + Duration::from_secs(1),
            last: [(0, 0); REMOTES],
            datagrams: 0,
        }
    }

    fn happens(&mut self, what: u8, data: &[u8]) {
        let index = usize::from(what) % REMOTES;
        let remote = remote(index);
        match what >> 2 & 7 {
            kind @ 0..=3 => self.receive(index, data, kind == 3),
            4 if data.is_empty() => {}
            4 => match self.endpoint.data(self.now, remote, data.len(), true) {
                Some(header) => {
                    // With the length before the datagram.
                    self.sent(index, &header, data.len() as u32 + 2);
                }
                None => self.endpoint.hold(self.now, remote, Ecn::NotEct, data.to_vec()),
            },
            5 => self.pass(Duration::from_millis(10) * data.len() as u32),
            6 => self.pass(Duration::from_secs(data.len() as u64)),
            _ => self.endpoint.close(self.now),
        }
        self.drain();
        let most = REMOTES * 3;
        assert!(self.endpoint.connections() <= most, "one of each kind for each remote end");
    }

    fn receive(&mut self, index: usize, bytes: &[u8], acknowledges: bool) {
        let Ok((mut header, len)) = Header::parse(bytes) else { return };
        if acknowledges {
            let (acknowledgement, clock) = self.last[index];
            header.acknowledgement = acknowledgement;
            header.timestamps = header.timestamps.map(|(value, _)| (value, clock));
            header.flags |= flag::ACK;
        }
        let mut payload = bytes[len..].to_vec();
        let mut found = 0;
        let mut take = |datagram: &mut [u8]| {
            assert!(!datagram.is_empty());
            found += 1;
            // Every second value of the first byte counts as authentic.
            datagram[0].is_multiple_of(2)
        };
        self.endpoint.receive(self.now, remote(index), &header, &mut payload, &mut take);
        self.datagrams += found;
    }

    fn sent(&mut self, index: usize, header: &Header, len: u32) {
        let clock = header.timestamps.map_or(0, |(value, _)| value);
        self.last[index] = (header.sequence.wrapping_add(len), clock);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.endpoint.handle_timeout(self.now);
        assert!(self.endpoint.next_timeout().is_none_or(|at| at > self.now));
    }

    fn drain(&mut self) {
        while let Some(control) = self.endpoint.poll_control() {
            let own = control.header.flags & (flag::SYN | flag::FIN) != 0;
            let index = usize::from(control.to.port()) % REMOTES;
            self.sent(index, &control.header, own.into());
            assert_eq!(control.to, remote(index));
            assert_eq!(control.header.flags & flag::RST, 0, "we reset nothing");
        }
        while let Some((_, _, datagram)) = self.endpoint.poll_released() {
            assert!(!datagram.is_empty());
        }
    }
}

fn remote(index: usize) -> SocketAddr {
    ([198, 18, 0, 2], 1_000 + index as u16).into()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "corpora are files")]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    /// Seeds whose names begin with `data` deliver datagrams; others deliver none, except those of
    /// a fuzzer (40 hexadecimal digits).
    #[test]
    fn the_corpus_passes() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/tcp_segments");
        let mut seeds = 0;
        for entry in fs::read_dir(&corpus).expect("a corpus") {
            let entry = entry.expect("readable");
            let name = entry.file_name().into_string().expect("ASCII");
            let datagrams = segments(&fs::read(entry.path()).expect("readable"));
            if name.len() != 40 {
                assert_eq!(datagrams > 0, name.starts_with("data"), "{name}: {datagrams}");
            }
            seeds += 1;
        }
        assert!(seeds >= 8, "{seeds} in {}", corpus.display());
    }

    proptest! {
        #[test]
        fn nothing_that_is_received_can_break_an_endpoint(bytes: Vec<u8>) {
            segments(&bytes);
        }

        #[test]
        fn nothing_that_happens_can_break_an_endpoint(
            things in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..40)), 0..60),
            flags in prop::collection::vec(0_u8..0x20, 60),
        ) {
            let mut bytes = Vec::new();
            for ((what, mut data), flags) in things.into_iter().zip(flags) {
                // Mostly a header without options.
                if data.len() >= 20 {
                    (data[12], data[13]) = (0x50, flags);
                    data[4..8].fill(what >> 5);
                }
                bytes.extend([what, data.len() as u8]);
                bytes.extend(data);
            }
            segments(&bytes);
        }
    }
}
