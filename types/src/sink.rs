//! Sinks: where a layer puts what it produces, written in place into its caller's batches.

use crate::address::PathAddress;
use crate::ecn::Ecn;

/// Room for one datagram. It counts only once [`commit`](Slot::commit) was called; dropping it
/// rolls the reservation back.
#[derive(Debug)]
pub struct Slot<'a> {
    bytes: &'a mut [u8],
    committed: &'a mut bool,
}

impl<'a> Slot<'a> {
    /// A slot over `bytes`; `committed` is set by [`commit`](Slot::commit).
    pub fn new(bytes: &'a mut [u8], committed: &'a mut bool) -> Self {
        *committed = false;
        Self { bytes, committed }
    }

    /// The bytes to fill, exactly as many as were asked for.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Hands the datagram over.
    pub fn commit(self) {
        *self.committed = true;
    }
}

/// Takes datagrams toward the network.
pub trait DatagramSink {
    /// Room for a datagram of exactly `len` bytes toward `to`, with `ecn` in its IP header.
    ///
    /// `None` when that local address cannot take more now; the engine then keeps the packet until
    /// it is told that the address is writable.
    fn reserve(&mut self, to: PathAddress, ecn: Ecn, len: usize) -> Option<Slot<'_>>;

    /// Sends a copy of `datagram`, which is complete. `false` if there is no room for it now.
    fn send(&mut self, to: PathAddress, datagram: &[u8]) -> bool {
        let Some(mut slot) = self.reserve(to, Ecn::NotEct, datagram.len()) else { return false };
        slot.bytes().copy_from_slice(datagram);
        slot.commit();
        true
    }
}

/// Whether an inner packet's transport checksum is to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The field is as the sender's host made it.
    Complete,
    /// The field holds the pseudo-header sum only; the packet was authenticated on its way.
    Partial,
}

/// An inner packet that is ready for the host.
#[derive(Clone, Copy, Debug)]
pub struct InnerPacket<'a> {
    /// The packet from the IP header on; all headers up to the transport's are in here.
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

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Takes packets toward the host, in the order in which they are to be delivered.
pub trait PacketSink {
    /// Takes one packet; it is copied before this returns.
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
