//! Sinks: a layer writes its output in place into the caller's batches.

use crate::address::PathAddress;
use crate::ecn::Ecn;
use crate::sealing::{Sealing, Sealings};

/// Buffer for one datagram. It is sent only after [`commit`](Slot::commit) or [`seal`](Slot::seal);
/// dropping it cancels the reservation.
#[derive(Debug)]
pub struct Slot<'a> {
    bytes: &'a mut [u8],
    committed: &'a mut bool,
    /// Where it is noted what is to be sealed, and where `bytes` begin in that buffer.
    later: Option<(&'a mut Sealings, usize)>,
}

impl<'a> Slot<'a> {
    /// A slot over `bytes`, which are sealed at once; `committed` is set when it is handed over.
    pub fn new(bytes: &'a mut [u8], committed: &'a mut bool) -> Self {
        *committed = false;
        Self { bytes, committed, later: None }
    }

    /// A slot over `bytes`, which begin at `at` of a buffer whose owner runs `later`.
    pub fn sealed_later(
        bytes: &'a mut [u8],
        committed: &'a mut bool,
        later: &'a mut Sealings,
        at: usize,
    ) -> Self {
        *committed = false;
        Self { bytes, committed, later: Some((later, at)) }
    }

    /// The bytes to fill, exactly as many as were reserved.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Hands the datagram over.
    pub fn commit(self) {
        *self.committed = true;
    }

    /// Seals the datagram, now or later, and hands it over.
    pub fn seal(self, sealing: &Sealing<'_>) {
        match self.later {
            None => sealing.run(self.bytes),
            Some((later, at)) => later.push(at..at + self.bytes.len(), sealing),
        }
        *self.committed = true;
    }
}

/// Receives datagrams for the network.
pub trait DatagramSink {
    /// Reserves a buffer for a datagram of exactly `len` bytes to `to`, with `ecn` in its IP
    /// header.
    ///
    /// `None` if the local address cannot take more now; the engine then keeps the packet until it
    /// is told that the address is writable.
    fn reserve(&mut self, to: PathAddress, ecn: Ecn, len: usize) -> Option<Slot<'_>>;

    /// Sends a copy of the complete `datagram`. `false` if there is no buffer for it now.
    fn send(&mut self, to: PathAddress, datagram: &[u8]) -> bool {
        let Some(mut slot) = self.reserve(to, Ecn::NotEct, datagram.len()) else { return false };
        slot.bytes().copy_from_slice(datagram);
        slot.commit();
        true
    }
}

/// State of an inner packet's transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The checksum is complete, as made by the sender's host.
    Complete,
    /// The field holds the pseudo-header sum only; the packet was authenticated in transit.
    Partial,
}

/// An inner packet that is ready for the host.
#[derive(Clone, Copy, Debug)]
pub struct InnerPacket<'a> {
    /// The start of the packet, with all headers including the transport header.
    pub head: &'a [u8],
    /// The rest of the packet, possibly nothing.
    pub tail: &'a [u8],
    /// The state of its transport checksum.
    pub checksum: Checksum,
}

impl InnerPacket<'_> {
    /// Bytes of the whole packet.
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Receives packets for the host, in the order of delivery.
pub trait PacketSink {
    /// Receives one packet; it must copy the packet before it returns.
    fn packet(&mut self, packet: InnerPacket<'_>);
}

impl<T: DatagramSink + ?Sized> DatagramSink for &mut T {
    fn reserve(&mut self, to: PathAddress, ecn: Ecn, len: usize) -> Option<Slot<'_>> {
        (**self).reserve(to, ecn, len)
    }
}

impl<T: PacketSink + ?Sized> PacketSink for &mut T {
    fn packet(&mut self, packet: InnerPacket<'_>) {
        (**self).packet(packet);
    }
}
