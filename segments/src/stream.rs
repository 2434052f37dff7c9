//! Datagrams in a byte stream: each follows its length in two bytes.
//!
//! Each segment is sent with one datagram. On the way, segments may be merged (GRO, LRO) or split
//! at other places. Then the rest of a datagram comes with the next segment.
//!
//! Segments with data serve whatever their checksum. A wrong length, by damage or forged, would
//! shift the boundaries of all datagrams behind it: so a segment of whole datagrams ends the wait
//! for the rest of another.

use core::net::SocketAddr;
use std::collections::VecDeque;

/// Size of the length before each datagram, in bytes.
pub(crate) const PREFIX: usize = 2;
/// Most partial datagrams of all connections of a kind. When there are more, the oldest is dropped.
const MAX_PARTIAL: usize = 16;
/// Least bytes of a datagram: those of an authentication tag. The rest of a datagram that was cut
/// looks like whole datagrams of this size by chance once in 65,536 times.
const MIN_DATAGRAM: usize = 16;

/// The beginning of a datagram whose rest has not arrived.
#[derive(Debug)]
pub(crate) struct Partial {
    from: SocketAddr,
    /// Sequence number of the next byte.
    next: u32,
    /// The bytes received, length included.
    bytes: Vec<u8>,
}

impl Partial {
    /// Takes the bytes of the datagram from `bytes`, and returns the rest.
    fn append<'a>(&mut self, bytes: &'a mut [u8]) -> &'a mut [u8] {
        let mut rest = bytes;
        while self.missing() > 0 && !rest.is_empty() {
            let (own, others) = rest.split_at_mut(self.missing().min(rest.len()));
            self.bytes.extend_from_slice(own);
            self.next = self.next.wrapping_add(own.len() as u32);
            rest = others;
        }
        rest
    }

    /// Bytes known to be missing.
    fn missing(&self) -> usize {
        match self.bytes.first_chunk() {
            Some(prefix) => PREFIX + usize::from(u16::from_be_bytes(*prefix)) - self.bytes.len(),
            None => PREFIX - self.bytes.len(),
        }
    }
}

/// Finds the datagrams in segments.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    partial: VecDeque<Partial>,
}

impl Splitter {
    /// Calls `take` with each datagram that `payload` contains or completes. `payload` has the
    /// sequence number `sequence` in the stream from `from`. If it does not continue a partial
    /// datagram, it begins with a datagram.
    pub(crate) fn split(
        &mut self,
        from: SocketAddr,
        sequence: u32,
        payload: &mut [u8],
        take: &mut impl FnMut(&mut [u8]),
    ) {
        let mut rest = payload;
        let mut position = sequence;
        if let Some(mut partial) = self.remove(from)
            && partial.next == sequence
            && !is_whole(rest)
        {
            let before = rest.len();
            rest = partial.append(rest);
            position = position.wrapping_add((before - rest.len()) as u32);
            if partial.missing() > 0 {
                self.partial.push_back(partial);
                return;
            }
            if partial.bytes.len() > PREFIX {
                take(&mut partial.bytes[PREFIX..]);
            }
        }
        while let Some(prefix) = rest.first_chunk() {
            let end = PREFIX + usize::from(u16::from_be_bytes(*prefix));
            if end > rest.len() {
                break;
            }
            let (datagram, others) = rest.split_at_mut(end);
            if end > PREFIX {
                take(&mut datagram[PREFIX..]);
            }
            position = position.wrapping_add(end as u32);
            rest = others;
        }
        if !rest.is_empty() {
            let next = position.wrapping_add(rest.len() as u32);
            self.put(Partial { from, next, bytes: rest.to_vec() });
        }
    }

    /// Removes the partial datagram from `from`.
    pub(crate) fn remove(&mut self, from: SocketAddr) -> Option<Partial> {
        let index = self.partial.iter().position(|partial| partial.from == from)?;
        self.partial.remove(index)
    }

    /// Adds a partial datagram. There must be no other from the same address.
    pub(crate) fn put(&mut self, partial: Partial) {
        if self.partial.len() == MAX_PARTIAL {
            self.partial.pop_front();
        }
        self.partial.push_back(partial);
    }

    /// Drops the partial datagram from `from`, whose stream has ended.
    pub(crate) fn forget(&mut self, from: SocketAddr) {
        self.partial.retain(|partial| partial.from != from);
    }
}

/// Whether `payload` consists of whole datagrams.
fn is_whole(mut payload: &[u8]) -> bool {
    while let Some((prefix, rest)) = payload.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes(*prefix));
        if len < MIN_DATAGRAM {
            return false;
        }
        let Some(others) = rest.get(len..) else { return false };
        payload = others;
    }
    payload.is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn remote(port: u16) -> SocketAddr {
        ([198, 18, 0, 2], port).into()
    }

    fn stream(datagrams: &[Vec<u8>]) -> Vec<u8> {
        let mut stream = Vec::new();
        for datagram in datagrams {
            stream.extend_from_slice(&(datagram.len() as u16).to_be_bytes());
            stream.extend_from_slice(datagram);
        }
        stream
    }

    fn split(splitter: &mut Splitter, at: u32, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut take = |datagram: &mut [u8]| found.push(datagram.to_vec());
        splitter.split(remote(1), at, &mut bytes.to_vec(), &mut take);
        found
    }

    #[test]
    fn the_rest_of_a_datagram_is_awaited_in_sequence_only() {
        let bytes = stream(&[vec![1; 10], vec![2; 10]]);
        let mut splitter = Splitter::default();
        assert_eq!(split(&mut splitter, 0, &bytes[..15]), [vec![1; 10]]);
        // The rest is lost. The next segment begins with a datagram.
        assert_eq!(split(&mut splitter, 24, &stream(&[vec![3; 4]])), [vec![3; 4]]);
        assert_eq!(split(&mut splitter, 15, &stream(&[vec![4; 4]])), [vec![4; 4]]);
        assert!(splitter.partial.is_empty());
    }

    /// [E-14]
    #[test]
    fn a_wrong_length_costs_no_datagram_of_the_segments_behind_it() {
        let mut splitter = Splitter::default();
        let mut damaged = stream(&[vec![1; 20]]);
        damaged[0] |= 0x40;
        assert!(split(&mut splitter, 0, &damaged).is_empty());
        assert_eq!(split(&mut splitter, 22, &stream(&[vec![2; 20]])), [vec![2; 20]]);
        let joined = [vec![3; 16], vec![4; 1_000]];
        assert!(split(&mut splitter, 44, &damaged).is_empty());
        assert_eq!(split(&mut splitter, 66, &stream(&joined)), joined);
        assert!(splitter.partial.is_empty());
    }

    #[test]
    fn beginnings_are_bounded() {
        let mut splitter = Splitter::default();
        for port in 0..1_000 {
            splitter.split(remote(port), 0, &mut [0xff; 9], &mut |_| panic!("nothing is whole"));
        }
        assert_eq!(splitter.partial.len(), MAX_PARTIAL);
        splitter.forget(remote(999));
        assert_eq!(splitter.partial.len(), MAX_PARTIAL - 1);
    }

    proptest! {
        #[test]
        fn however_a_stream_is_cut_its_datagrams_come_out(
            // A length that begins with such a byte is longer than all of these.
            datagrams in prop::collection::vec(prop::collection::vec(1_u8.., 1..40), 1..8),
            cuts in prop::collection::vec(1_usize..60, 0..20),
            start: u32,
        ) {
            let bytes = stream(&datagrams);
            let mut splitter = Splitter::default();
            let (mut found, mut at) = (Vec::new(), 0_usize);
            for len in cuts.into_iter().chain([usize::MAX]) {
                let end = at.max(bytes.len().min(at.saturating_add(len)));
                let sequence = start.wrapping_add(at as u32);
                found.extend(split(&mut splitter, sequence, &bytes[at..end]));
                at = end;
            }
            prop_assert_eq!(found, datagrams);
            prop_assert!(splitter.partial.is_empty());
        }

        #[test]
        fn nothing_that_is_received_can_break_the_splitter(
            segments: Vec<(u8, Vec<u8>)>,
        ) {
            let mut splitter = Splitter::default();
            for (at, mut bytes) in segments {
                let most = bytes.len();
                splitter.split(remote(1), at.into(), &mut bytes, &mut |datagram| {
                    assert!(!datagram.is_empty() && datagram.len() <= most + 65_535);
                });
                assert!(splitter.partial.len() <= 1);
            }
        }
    }
}
