//! The way of inner packets to the host.

use std::io;
use std::sync::Arc;

use mpip_types::{InnerPacket, PacketSink};

use super::Tun;
use super::coalesce::{Coalescer, FrameSink};
use super::vnet::VnetHeader;

/// What a [`TunWriter`] did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunCounters {
    /// Packets taken.
    pub packets: u64,
    /// Frames handed to the kernel, each a packet or a super-packet.
    pub frames: u64,
    /// Frames that the kernel had no room for; dropped.
    pub no_room: u64,
    /// Frames that the kernel refused: malformed packets, or the device is down; dropped.
    pub refused: u64,
}

/// Takes packets from the engine and writes them to the TUN device, consecutive segments of a flow
/// as one super-packet. Nothing is written for certain before [`flush`](Self::flush), which is to
/// be called after each batch.
#[derive(Debug)]
pub struct TunWriter {
    coalescer: Coalescer,
    frames: Frames,
}

/// The device with its counters.
#[derive(Debug)]
struct Frames {
    tun: Arc<Tun>,
    counters: TunCounters,
}

impl TunWriter {
    /// A writer to `tun`. Its memory is taken now: 64 KiB for each of 32 flows.
    pub fn new(tun: Arc<Tun>) -> Self {
        let coalescer = Coalescer::new(tun.udp_segmentation());
        Self { coalescer, frames: Frames { tun, counters: TunCounters::default() } }
    }

    /// Writes everything that still waits for more of its flow.
    pub fn flush(&mut self) {
        self.coalescer.flush(&mut self.frames);
    }

    /// What was done so far.
    pub fn counters(&self) -> TunCounters {
        self.frames.counters
    }
}

impl PacketSink for TunWriter {
    fn packet(&mut self, packet: InnerPacket<'_>) {
        self.frames.counters.packets += 1;
        self.coalescer.push(packet, &mut self.frames);
    }
}

impl FrameSink for Frames {
    fn frame(&mut self, header: VnetHeader, head: &[u8], tail: &[u8]) {
        match self.tun.write(header, head, tail) {
            Ok(()) => self.counters.frames += 1,
            Err(error) => {
                log::trace!("dropped a packet of {} bytes: {error}", head.len() + tail.len());
                match (error.kind(), error.raw_os_error()) {
                    (io::ErrorKind::WouldBlock, _) | (_, Some(libc::ENOBUFS | libc::ENOMEM)) => {
                        self.counters.no_room += 1;
                    }
                    _ => self.counters.refused += 1,
                }
            }
        }
    }
}
