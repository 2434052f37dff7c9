//! Buffers of outgoing packets: pooled, reference-counted, with the offload state of the TUN
//! device.
//!
//! A super-packet of up to 64 KiB stays in one buffer from the TUN read until its last segment has
//! been acknowledged: the queue, the send path and retransmission all refer to it. The pool reuses
//! a buffer once there is no reference to it, so nothing is allocated per packet.

use core::ops::Range;
use std::sync::Arc;

/// Largest packet of a TUN device (RFC 791: 16-bit total length).
pub const MAX_PACKET: usize = 65_535;

/// Packets up to this length are copied to small buffers, so that a queued acknowledgement does not
/// occupy 64 KiB.
pub const SMALL_PACKET: usize = 2_048;

/// Offloaded work on a packet from the TUN device, which the kernel has not done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The transport checksum holds the pseudo-header sum only and has to be completed.
    pub partial_checksum: Option<PartialChecksum>,
    /// The packet is a super-packet that has to be segmented.
    pub segmentation: Option<Segmentation>,
}

/// Where to complete a checksum (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Offset of the first byte that the checksum covers, from the start of the IP header.
    pub start: u16,
    /// Offset of the checksum field from `start`.
    pub offset: u16,
}

/// How to segment a super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// The transport protocol, which decides what each segment's header needs.
    pub kind: SegmentationKind,
    /// Transport payload bytes of every segment but the last, at least 1.
    pub size: u16,
}

/// The transport protocols of super-packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentationKind {
    /// TCP over IPv4 or IPv6 (`VIRTIO_NET_HDR_GSO_TCPV4`, `…_TCPV6`).
    Tcp,
    /// UDP over either (`VIRTIO_NET_HDR_GSO_UDP_L4`).
    Udp,
}

/// An inner packet or super-packet. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct PacketBuf {
    storage: Arc<[u8]>,
    len: usize,
    offload: Offload,
}

impl PacketBuf {
    /// The packet's bytes, beginning with the IP header.
    pub fn bytes(&self) -> &[u8] {
        &self.storage[..self.len]
    }

    /// The bytes `range` of the packet.
    pub fn part(&self, range: Range<usize>) -> PacketPart<'_> {
        PacketPart { packet: self, range }
    }

    /// Whether both refer to the same buffer.
    pub fn shares_bytes(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
    }

    /// The offloaded work.
    pub fn offload(&self) -> Offload {
        self.offload
    }
}

/// Bytes of a packet, with the packet.
#[derive(Clone, Debug)]
pub struct PacketPart<'a> {
    packet: &'a PacketBuf,
    range: Range<usize>,
}

impl<'a> PacketPart<'a> {
    /// The packet.
    pub fn packet(&self) -> &'a PacketBuf {
        self.packet
    }

    /// Where the bytes are in the packet.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The bytes.
    ///
    /// # Panics
    ///
    /// If the packet is shorter.
    pub fn bytes(&self) -> &'a [u8] {
        &self.packet.bytes()[self.range.clone()]
    }
}

/// A bounded set of buffers of one size.
#[derive(Debug)]
struct Class {
    buffers: Vec<Arc<[u8]>>,
    size: usize,
    limit: usize,
    cursor: usize,
    /// For how many calls it counts as full after a look at all buffers that found none free.
    rest: u32,
    /// How many of these calls are left.
    full: u32,
}

/// Buffers examined before a new one is allocated. Buffers become free nearly in the order of their
/// allocation, so the first one examined is usually free.
const PROBES: usize = 8;
/// For how many packets small buffers count as full: a look at all of them takes longer than
/// everything else that is done for a packet, which stays in its large buffer instead. Those that
/// have no large one are refused, so large buffers are looked at each time.
const FULL: u32 = 64;

impl Class {
    fn new(size: usize, limit: usize, rest: u32) -> Self {
        Self { buffers: Vec::new(), size, limit, cursor: 0, rest, full: 0 }
    }

    /// The index of a free buffer.
    fn vacant(&mut self) -> Option<usize> {
        let looks = if self.buffers.len() < self.limit { PROBES } else { self.buffers.len() };
        for _ in 0..looks.min(self.buffers.len()) {
            self.cursor = if self.cursor + 1 < self.buffers.len() { self.cursor + 1 } else { 0 };
            if Arc::strong_count(&self.buffers[self.cursor]) == 1 {
                return Some(self.cursor);
            }
        }
        if self.buffers.len() < self.limit {
            self.buffers.push(vec![0; self.size].into());
            self.cursor = self.buffers.len() - 1;
            return Some(self.cursor);
        }
        None
    }

    /// A free buffer.
    fn buffer(&mut self) -> Option<&mut Arc<[u8]>> {
        if self.full > 0 {
            self.full -= 1;
            return None;
        }
        let Some(index) = self.vacant() else {
            self.full = self.rest;
            return None;
        };
        Some(&mut self.buffers[index])
    }
}

/// A bounded pool of buffers for packets from the TUN device.
#[derive(Debug)]
pub struct PacketPool {
    large: Class,
    small: Class,
    exhausted: u64,
}

impl PacketPool {
    /// A pool of at most `large` buffers of 64 KiB and `small` buffers of 2 KiB; memory is
    /// allocated when it is first needed, and kept.
    pub fn new(large: usize, small: usize) -> Self {
        Self {
            large: Class::new(MAX_PACKET + 1, large, 0),
            small: Class::new(SMALL_PACKET, small, FULL),
            exhausted: 0,
        }
    }

    /// Fills a buffer through `read`, which gets the whole 64 KiB and returns the packet's length
    /// and offload state, or an error.
    ///
    /// Returns `None` without calling `read` if every buffer is in use; this is counted.
    pub fn fill<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<(usize, Offload), E>,
    ) -> Option<Result<PacketBuf, E>> {
        let Some(large) = self.large.buffer() else {
            self.exhausted += 1;
            return None;
        };
        let bytes = Arc::get_mut(large).expect("a vacant buffer has one owner");
        let (len, offload) = match read(bytes) {
            Ok(filled) => filled,
            Err(error) => return Some(Err(error)),
        };
        let len = len.min(bytes.len());
        if len <= SMALL_PACKET
            && let Some(small) = self.small.buffer()
        {
            let copy = Arc::get_mut(small).expect("a vacant buffer has one owner");
            copy[..len].copy_from_slice(&bytes[..len]);
            return Some(Ok(PacketBuf { storage: Arc::clone(small), len, offload }));
        }
        Some(Ok(PacketBuf { storage: Arc::clone(large), len, offload }))
    }

    /// A packet copied from `bytes`, without offloaded work; `None` if every buffer is in use or
    /// `bytes` is longer than [`MAX_PACKET`].
    pub fn copy_from(&mut self, bytes: &[u8]) -> Option<PacketBuf> {
        if bytes.len() > MAX_PACKET {
            return None;
        }
        let filled = self.fill(|buffer| {
            buffer[..bytes.len()].copy_from_slice(bytes);
            Ok::<_, core::convert::Infallible>((bytes.len(), Offload::default()))
        })?;
        filled.ok()
    }

    /// Packets refused because every buffer was in use.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }

    /// Buffers that packets are in.
    pub fn in_use(&self) -> usize {
        let buffers = self.large.buffers.iter().chain(&self.small.buffers);
        buffers.filter(|buffer| Arc::strong_count(buffer) > 1).count()
    }

    /// Memory of the pool, bytes.
    pub fn memory(&self) -> usize {
        self.large.buffers.len() * self.large.size + self.small.buffers.len() * self.small.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_once_nobody_refers_to_it() {
        let mut pool = PacketPool::new(1, 1);
        let first = pool.copy_from(&[1; 3_000]).expect("a free buffer");
        assert!(pool.copy_from(&[2; 3_000]).is_none());
        assert_eq!((pool.exhausted(), pool.in_use()), (1, 1));
        let again = first.clone();
        drop(first);
        assert!(pool.copy_from(&[2; 3_000]).is_none());
        drop(again);
        assert_eq!(pool.in_use(), 0);
        let second = pool.copy_from(&[2; 3_000]).expect("the buffer came back");
        assert_eq!(second.bytes(), &[2; 3_000]);
        assert_eq!(pool.memory(), MAX_PACKET + 1);
    }

    #[test]
    fn small_packets_do_not_hold_large_buffers() {
        let mut pool = PacketPool::new(1, 64);
        let held: Vec<_> = (0..64).map(|n| pool.copy_from(&[n; 40]).expect("free")).collect();
        assert!(held.iter().enumerate().all(|(n, packet)| packet.bytes() == [n as u8; 40]));
        assert!(pool.copy_from(&[0; 9_000]).is_some());
    }

    #[test]
    fn full_small_buffers_are_looked_at_again_after_a_while() {
        let mut pool = PacketPool::new(200, 2);
        let mut held: Vec<_> = (0..3).map(|n| pool.copy_from(&[n; 40]).expect("free")).collect();
        held.remove(0);
        held.extend((0..=FULL).map(|_| pool.copy_from(&[9; 40]).expect("free")));
        let small: Vec<usize> =
            (0..held.len()).filter(|at| held[*at].storage.len() == SMALL_PACKET).collect();
        assert_eq!(small, [0, held.len() - 1]);
    }

    #[test]
    fn a_failed_read_leaves_the_buffer_free() {
        let mut pool = PacketPool::new(1, 1);
        assert!(matches!(pool.fill(|_| Err("nothing there")), Some(Err("nothing there"))));
        assert!(pool.copy_from(&[1; 3_000]).is_some());
    }
}
