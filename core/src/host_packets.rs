//! Packets that wait to be delivered to the host.

use std::collections::VecDeque;

use mpip_types::packet::Segments;
use mpip_types::{Checksum, InnerPacket, Instant, PacketSink};

/// Most ICMP messages to the host that wait for the next timeout; beyond this the newest are
/// dropped.
pub(crate) const HOST_MESSAGES: usize = 64;
/// Most packets that wait for [`Engine::take_plain`](crate::Engine::take_plain); beyond this the
/// newest are dropped. These are about 1.4 MB: a tenth of a second at 100 Mbit/s, and no more at
/// once than interface queues hold.
pub(crate) const PLAIN_PACKETS: usize = 1_024;

/// ICMP messages of the engine that wait to be delivered to the host, and since when.
#[derive(Debug, Default)]
pub(crate) struct HostMessages {
    packets: VecDeque<Vec<u8>>,
    since: Instant,
}

impl HostMessages {
    pub(crate) fn push(&mut self, now: Instant, packet: Vec<u8>) {
        if self.packets.is_empty() {
            self.since = now;
        }
        if self.packets.len() < HOST_MESSAGES {
            self.packets.push_back(packet);
        }
    }

    /// The number of waiting messages.
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        (!self.packets.is_empty()).then_some(self.since)
    }

    pub(crate) fn deliver(&mut self, sink: &mut impl PacketSink) {
        while let Some(packet) = self.packets.pop_front() {
            sink.packet(InnerPacket { head: &packet, tail: &[], checksum: Checksum::Complete });
        }
    }
}

/// Packets that wait for [`Engine::take_plain`](crate::Engine::take_plain).
#[derive(Debug, Default)]
pub(crate) struct PlainPackets {
    packets: VecDeque<(Segments, usize)>,
    room: Vec<u8>,
}

impl PlainPackets {
    /// Adds segment `index` of `segments`. Returns `false` if too many packets wait.
    pub(crate) fn push(&mut self, segments: Segments, index: usize) -> bool {
        let room = self.packets.len() < PLAIN_PACKETS;
        if room {
            self.packets.push_back((segments, index));
        }
        room
    }

    /// Delivers all of them.
    pub(crate) fn deliver(&mut self, sink: &mut impl PacketSink) {
        while let Some((segments, index)) = self.packets.pop_front() {
            let room = &mut self.room;
            if room.len() < segments.segment_len(index) {
                room.resize(segments.segment_len(index), 0);
            }
            let len = segments.write(index, room);
            let head = &room[..len];
            sink.packet(InnerPacket { head, tail: &[], checksum: Checksum::Complete });
        }
    }
}
