//! Packets on their way out: pooled, shared by reference, with the offload state of the TUN device.
//!
//! A super-packet of up to 64 KiB stays in one buffer from the TUN read until its last segment has
//! been acknowledged: the queue, the send path and the repair all refer to it. The pool hands a
//! buffer out again once nobody refers to it, so nothing is allocated per packet.

use std::sync::Arc;

/// Largest packet that a TUN device hands over (RFC 791: 16-bit total length).
pub const MAX_PACKET: usize = 65_535;

/// Packets up to this length are copied out of the 64 KiB buffers, so that a queued
/// acknowledgement does not hold one of them.
pub const SMALL_PACKET: usize = 2_048;

/// What the kernel left undone on a packet that came from the TUN device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The transport checksum holds the pseudo-header sum only and has to be completed.
    pub partial_checksum: Option<PartialChecksum>,
    /// The packet is a super-packet that has to be cut into segments.
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

/// How to cut a super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// The transport protocol, which decides what each segment's header needs.
    pub kind: SegmentationKind,
    /// Transport payload bytes of every segment but the last, at least 1.
    pub size: u16,
}

/// The transport protocols that the kernel hands over as super-packets.
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

    /// What the kernel left undone.
    pub fn offload(&self) -> Offload {
        self.offload
    }
}

/// A bounded set of buffers of one size.
#[derive(Debug)]
struct Class {
    buffers: Vec<Arc<[u8]>>,
    size: usize,
    limit: usize,
    cursor: usize,
}

/// How many buffers in use are looked at before a new one is made: buffers come free nearly in the
/// order in which they were handed out, so the first look nearly always succeeds.
const PROBES: usize = 8;

impl Class {
    fn new(size: usize, limit: usize) -> Self {
        Self { buffers: Vec::new(), size, limit, cursor: 0 }
    }

    /// The index of a buffer that nobody else refers to.
    fn vacant(&mut self) -> Option<usize> {
        let looks = if self.buffers.len() < self.limit { PROBES } else { self.buffers.len() };
        for _ in 0..looks.min(self.buffers.len()) {
            self.cursor = if self.cursor + 1 < self.buffers.len() { self.cursor + 1 } else { 0 };
            if Arc::get_mut(&mut self.buffers[self.cursor]).is_some() {
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

    fn buffer(&mut self) -> Option<&mut Arc<[u8]>> {
        let index = self.vacant()?;
        Some(&mut self.buffers[index])
    }
}

/// Buffers for packets from the TUN device, bounded in number.
#[derive(Debug)]
pub struct PacketPool {
    large: Class,
    small: Class,
    exhausted: u64,
}

impl PacketPool {
    /// A pool of at most `large` buffers of 64 KiB and `small` buffers of 2 KiB; memory is taken
    /// when it is first needed and kept.
    pub fn new(large: usize, small: usize) -> Self {
        Self {
            large: Class::new(MAX_PACKET + 1, large),
            small: Class::new(SMALL_PACKET, small),
            exhausted: 0,
        }
    }

    /// Fills a buffer through `read`, which gets the whole 64 KiB and returns the packet's length
    /// and what is left to do on it, or an error.
    ///
    /// Returns `None` without calling `read` when every buffer is in use; the refusal is counted.
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

    /// A packet copied from `bytes`, with nothing left to do on it; `None` when every buffer is in
    /// use or `bytes` is longer than [`MAX_PACKET`].
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

    /// How many times a packet was refused because every buffer was in use.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }

    /// Bytes of memory that the pool holds.
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
        assert_eq!(pool.exhausted(), 1);
        let again = first.clone();
        drop(first);
        assert!(pool.copy_from(&[2; 3_000]).is_none());
        drop(again);
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
    fn a_failed_read_leaves_the_buffer_free() {
        let mut pool = PacketPool::new(1, 1);
        assert!(matches!(pool.fill(|_| Err("nothing there")), Some(Err("nothing there"))));
        assert!(pool.copy_from(&[1; 3_000]).is_some());
    }
}
