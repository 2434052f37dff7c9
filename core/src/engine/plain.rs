//! Packets that the host is to send itself, as plain IP.
//!
//! When a peer in host mode falls back to plain IP, the host has handed over packets that no path
//! has delivered. Lost, they would cost the inner TCP its time-out, since often the whole of its
//! window is among them; so they go back to the host. So do, behind translators, packets that were
//! captured and are none of ours.

use std::collections::VecDeque;

use super::Engine;
use mpip_types::packet::Segments;
use mpip_types::{Checksum, InnerPacket, PacketSink};

/// Packets that wait to be taken; beyond it the newest go. These are some 1.4 MB: a tenth of a second
/// at 100 Mbit/s, and no more at once than the queues of interfaces take.
const MAX_PACKETS: usize = 1_024;

/// What waits to be taken by [`Engine::take_plain`].
#[derive(Debug, Default)]
pub(crate) struct Plain {
    packets: VecDeque<(Segments, usize)>,
    room: Vec<u8>,
}

impl Plain {
    /// Adds segment `index` of `segments`. `false` if there are too many.
    pub(crate) fn push(&mut self, segments: Segments, index: usize) -> bool {
        let room = self.packets.len() < MAX_PACKETS;
        if room {
            self.packets.push_back((segments, index));
        }
        room
    }
}

impl Engine {
    /// Hands over the packets that the host gave to the engine and has to send itself, because a
    /// peer in host mode is reached as plain IP now, or they are none of a peer's. They must not come back by the TUN device. To
    /// be called after each batch.
    pub fn take_plain(&mut self, packets: &mut impl PacketSink) {
        while let Some((segments, index)) = self.plain.packets.pop_front() {
            let room = &mut self.plain.room;
            if room.len() < segments.segment_len(index) {
                room.resize(segments.segment_len(index), 0);
            }
            let len = segments.write(index, room);
            let head = &room[..len];
            packets.packet(InnerPacket { head, tail: &[], checksum: Checksum::Complete });
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::super::harness::{Packets, Pair, SECOND, sequences, tcp};
    use super::*;
    use crate::Traffic;
    use crate::config::{CongestionControlKind, Policy};
    use mpip_types::Offload;

    const MS: Duration = Duration::from_millis(1);

    fn pair(policy: Policy) -> Pair {
        let mut pair = Pair::with(|_, config| {
            config.peers[0].host_mode = true;
            config.peers[0].policy = policy;
            config.peers[0].congestion_control = CongestionControlKind::Bbr;
        });
        pair.run_for(SECOND * 2);
        pair
    }

    fn send(pair: &mut Pair, numbers: core::ops::Range<u32>) {
        for number in numbers {
            pair.send(0, &tcp(0, number, 1_000), Offload::default());
        }
    }

    fn taken(pair: &mut Pair) -> Vec<u32> {
        let mut packets = Vec::new();
        pair.engines[0].take_plain(&mut Packets(&mut packets));
        for packet in &packets {
            assert_eq!(packet.len(), 1_040);
        }
        sequences(&packets)
    }

    #[test]
    fn at_a_fall_back_what_was_not_delivered_goes_back_to_the_host() {
        let mut pair = pair(Policy::Prefer);
        send(&mut pair, 0..100);
        pair.run_for(MS * 50);
        assert_eq!(taken(&mut pair), []);
        pair.dead = vec![0, 1];
        send(&mut pair, 100..400);
        pair.run_for(MS * 500);
        // Those that the TUN device still held.
        send(&mut pair, 400..410);
        let mut all = sequences(&pair.out[1].packets);
        let mut plain = taken(&mut pair);
        all.append(&mut plain);
        all.sort_unstable();
        assert_eq!(all, (0..410).collect::<Vec<_>>());

        // The receiver waits for none of them when packets take the paths again.
        pair.dead = vec![];
        pair.run_for(SECOND * 2);
        pair.out[1].packets.clear();
        send(&mut pair, 410..430);
        pair.run_for(MS * 10);
        assert_eq!(sequences(&pair.out[1].packets), (410..430).collect::<Vec<_>>());
        assert_eq!(taken(&mut pair), []);
    }

    #[test]
    fn at_a_fall_back_nobody_waits_for_what_comes_as_plain_ip() {
        let mut pair = pair(Policy::Prefer);
        let held = |pair: &Pair| pair.engines[1].status(pair.now, false).peers[0].resequencing;
        let plain = |pair: &Pair| {
            pair.engines[1].status(pair.now, false).peers[0].traffic == Some(Traffic::Plain)
        };
        // Its silence shows at once.
        pair.send(1, &tcp(1, 0, 1_000), Offload::default());
        pair.lose = Some(7);
        send(&mut pair, 0..50);
        pair.run_for(MS);
        pair.dead = vec![0, 1];
        let mut waited = 0;
        while !plain(&pair) {
            waited = waited.max(held(&pair));
            pair.send(1, &tcp(1, 1, 1_000), Offload::default());
            pair.run_for(MS);
        }
        assert!(waited > 0, "there was a gap");
        pair.run_for(MS);
        assert_eq!(held(&pair), 0);
    }

    #[test]
    fn what_may_not_leave_as_plain_ip_does_not() {
        let mut pair = pair(Policy::Require);
        pair.dead = vec![0, 1];
        send(&mut pair, 0..300);
        pair.run_for(SECOND * 5);
        assert_eq!(taken(&mut pair), []);
    }

    #[test]
    fn the_packets_that_wait_are_bounded() {
        let mut pair = pair(Policy::Prefer);
        pair.dead = vec![0, 1];
        for number in 0..10 {
            send(&mut pair, number * 200..number * 200 + 200);
            pair.run_for(MS * 5);
        }
        pair.run_for(MS * 500);
        send(&mut pair, 2_000..2_100);
        let plain = taken(&mut pair);
        assert_eq!(plain.len(), MAX_PACKETS);
        assert_eq!(plain[..50], (0..50).collect::<Vec<_>>());
    }
}
