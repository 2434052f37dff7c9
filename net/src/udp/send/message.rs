//! Datagrams that leave together.

use core::ffi::c_int;
use std::net::SocketAddr;

use mpip_types::{Ecn, Sealings};

/// Most datagrams in a message (`UDP_MAX_SEGMENTS` until Linux 6.9).
const MAX_SEGMENTS: usize = 64;

/// Most bytes in a message: together with the headers of IPv6 and UDP it has to fit an IP packet.
pub(super) const MAX_MESSAGE: usize = 65_535 - 48;

/// Datagrams to one address. All have the length of the first, but the last may be shorter.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) remote: SocketAddr,
    pub(super) ecn: Ecn,
    bytes: Box<[u8]>,
    /// How those of the datagrams are sealed that are not yet.
    sealings: Sealings,
    /// Bytes that have left, if datagrams are sent one by one.
    sent: usize,
    len: usize,
    pub(super) segment: usize,
    /// Why the kernel did not split it; its datagrams leave one by one.
    pub(super) refusal: Option<c_int>,
    /// Whether no datagram may follow.
    closed: bool,
}

impl Message {
    /// A message to `remote` whose datagrams have `segment` bytes. It has the memory of `spare`.
    pub(super) fn new(remote: SocketAddr, ecn: Ecn, segment: usize, spare: Option<Self>) -> Self {
        let (bytes, sealings) = match spare {
            Some(spare) => (spare.bytes, spare.sealings),
            None => (vec![0; MAX_MESSAGE].into(), Sealings::default()),
        };
        Self {
            remote,
            ecn,
            bytes,
            sealings,
            sent: 0,
            len: 0,
            segment,
            refusal: None,
            closed: false,
        }
    }

    /// Whether a datagram of `len` bytes can follow.
    pub(super) fn takes(&self, remote: SocketAddr, ecn: Ecn, len: usize) -> bool {
        self.remote == remote && self.ecn == ecn && len <= self.segment && self.has_room_for(len)
    }

    fn has_room_for(&self, len: usize) -> bool {
        !self.closed && self.len + len <= self.bytes.len() && self.len < MAX_SEGMENTS * self.segment
    }

    /// Whether no full datagram can follow.
    pub(super) fn is_full(&self) -> bool {
        !self.has_room_for(self.segment)
    }

    /// Room for a datagram of `len` bytes, and where it begins.
    pub(super) fn room(&mut self, len: usize) -> (&mut [u8], &mut Sealings, usize) {
        (&mut self.bytes[self.len..self.len + len], &mut self.sealings, self.len)
    }

    /// The room for `len` bytes holds a datagram now.
    pub(super) fn commit(&mut self, len: usize) {
        self.len += len;
        self.closed = len < self.segment;
    }

    /// Seals what is not sealed yet.
    pub(super) fn seal(&mut self) {
        self.sealings.run(&mut self.bytes);
    }

    /// Bytes of all datagrams.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that have not left.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..self.len]
    }

    /// `bytes` more have left.
    pub(super) fn on_sent(&mut self, bytes: usize) {
        self.sent += bytes;
    }

    /// Datagrams that have not left.
    pub(super) fn datagrams(&self) -> usize {
        self.unsent().len().div_ceil(self.segment)
    }
}
