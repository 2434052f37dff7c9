//! Packets that the host has to send itself, as plain IP.
//!
//! When a peer in host mode falls back to plain IP, the host has already handed over packets that
//! no path has delivered. If they were lost, the inner TCP would run into its timeout, since they
//! are often its whole window; so they go back to the host. With NAT, so do captured packets that
//! belong to no peer.

use super::Engine;
use mpip_types::PacketSink;

impl Engine {
    /// Delivers the packets that the host gave to the engine and has to send itself, because a peer
    /// in host mode has fallen back to plain IP, or because they belong to no peer. They must not
    /// come back by the TUN device. Call it after each batch.
    pub fn take_plain(&mut self, packets: &mut impl PacketSink) {
        self.shared.plain.deliver(packets);
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use mpip_wire::{Frame, PacketFrameHeader, SessionId};

    use super::super::harness::{Packets, Pair, SECOND, sequences, tcp};
    use crate::Traffic;
    use crate::config::Policy;
    use crate::drops::DropReason;
    use crate::host_packets::PLAIN_PACKETS;
    use mpip_transport::cc::CongestionControlKind;
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
    fn at_a_fall_back_undelivered_packets_return_to_the_host() {
        let mut pair = pair(Policy::Prefer);
        send(&mut pair, 0..100);
        pair.run_for(MS * 50);
        assert_eq!(taken(&mut pair), []);
        pair.dead = vec![0, 1];
        send(&mut pair, 100..400);
        pair.run_for(MS * 500);
        // Packets that were still in the TUN device.
        send(&mut pair, 400..410);
        let mut all = sequences(&pair.out[1].packets);
        let mut plain = taken(&mut pair);
        all.append(&mut plain);
        all.sort_unstable();
        assert_eq!(all, (0..410).collect::<Vec<_>>());

        // The receiver does not wait for them when traffic returns to the paths.
        pair.dead = vec![];
        pair.run_for(SECOND * 2);
        pair.out[1].packets.clear();
        send(&mut pair, 410..430);
        pair.run_for(MS * 10);
        assert_eq!(sequences(&pair.out[1].packets), (410..430).collect::<Vec<_>>());
        assert_eq!(taken(&mut pair), []);
    }

    /// Sessions that CoDel has been signalling when all paths fall silent. Returns the numbers of
    /// the packets that were queued after that.
    fn overdue(policy: Policy) -> (Pair, core::ops::Range<u32>) {
        let mut pair = Pair::with(|_, config| {
            config.peers[0].host_mode = true;
            config.peers[0].policy = policy;
            config.peers[0].congestion_control = CongestionControlKind::Reno;
        });
        pair.run_for(SECOND * 2);
        let mut number = 0;
        let mut burst = |pair: &mut Pair| {
            for session in 0..20 {
                let mut packet = tcp(0, number, 1_000);
                packet[21] = session;
                pair.send(0, &packet, Offload::default());
                number += 1;
            }
            pair.run_for(MS);
            number
        };
        pair.lose = Some(2);
        let first = (0..1_000).map(|_| match status(&pair).queued < 500_000 {
            true => burst(&mut pair),
            false => {
                pair.run_for(MS);
                0
            }
        });
        let first = first.max();
        assert!(status(&pair).queue_drops > 0, "{:?}", status(&pair));
        pair.dead = vec![0, 1];
        // The congestion windows may still have room for packets sent now.
        pair.run_for(MS * 10);
        let end = (0..20).map(|_| burst(&mut pair)).max();
        (pair, first.expect("300")..end.expect("20"))
    }

    fn status(pair: &Pair) -> crate::PeerStatus {
        pair.engines[0].status(pair.now, false).peers.remove(0)
    }

    #[test]
    fn packets_that_return_to_the_host_are_not_dropped_by_codel() {
        let (mut pair, packets) = overdue(Policy::Prefer);
        let mut before = status(&pair);
        while status(&pair).traffic != Some(Traffic::Plain) {
            before = status(&pair);
            pair.run_for(MS);
        }
        assert_eq!(status(&pair).queue_drops, before.queue_drops, "{before:?}");
        let plain = taken(&mut pair);
        let of_late = plain.iter().filter(|number| packets.contains(number)).count();
        assert_eq!(of_late, packets.len());
    }

    #[test]
    fn packets_dropped_without_a_path_are_counted_as_no_path() {
        let (mut pair, packets) = overdue(Policy::Require);
        pair.run_for(SECOND);
        let (before, drops) = (status(&pair), pair.drops(0, DropReason::NoPath));
        assert!(before.queued > packets.len() * 1_000);
        pair.run_for(SECOND * 10);
        let after = status(&pair);
        assert_eq!((after.queued, after.queue_drops), (0, before.queue_drops));
        let dropped = pair.drops(0, DropReason::NoPath) - drops;
        assert_eq!(dropped, before.queued as u64 / 1_040);
    }

    #[test]
    fn at_a_fall_back_resequencing_does_not_wait_for_packets_that_come_as_plain_ip() {
        let mut pair = pair(Policy::Prefer);
        let held = |pair: &Pair| pair.engines[1].status(pair.now, false).peers[0].resequencing;
        let plain = |pair: &Pair| {
            pair.engines[1].status(pair.now, false).peers[0].traffic == Some(Traffic::Plain)
        };
        // Its failure is detected at once.
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

    /// Packets that wait for their playout time are delivered before the fall-back.
    #[test]
    fn at_a_fall_back_packets_waiting_for_their_playout_time_are_delivered_at_once() {
        let mut pair = pair(Policy::Prefer);
        pair.send(1, &tcp(1, 0, 1_000), Offload::default());
        pair.run_for(MS * 20);
        pair.out[1].packets.clear();
        let due = pair.now.as_micros() as u32 + 490_000;
        let (session, packet) = (SessionId(900), tcp(0, 7, 1_000));
        let header = PacketFrameHeader { session, sequence: 0, ordered: true };
        let wait = Frame::Resequencing { sequence: 1_000, max_wait: 2_000_000 };
        let playout = Frame::Playout { at: (due >> 8) as u16 };
        pair.inject(0, 0, &[wait, playout, Frame::Packet { header, packet: &packet }]);
        pair.run_for(MS);
        pair.dead = vec![0, 1];
        pair.send(1, &tcp(1, 1, 1_000), Offload::default());
        pair.run_for(MS * 400);
        let status = pair.engines[1].status(pair.now, false).peers.swap_remove(0);
        assert_eq!((status.traffic, status.resequencing), (Some(Traffic::Plain), 0));
        assert_eq!(sequences(&pair.out[1].packets), [7]);
    }

    #[test]
    fn packets_that_may_not_leave_as_plain_ip_are_not_returned() {
        let mut pair = pair(Policy::Require);
        pair.dead = vec![0, 1];
        send(&mut pair, 0..300);
        pair.run_for(SECOND * 5);
        assert_eq!(taken(&mut pair), []);
    }

    #[test]
    fn the_packets_that_wait_for_take_plain_are_bounded() {
        let mut pair = pair(Policy::Prefer);
        pair.dead = vec![0, 1];
        for number in 0..10 {
            send(&mut pair, number * 200..number * 200 + 200);
            pair.run_for(MS * 5);
        }
        pair.run_for(MS * 500);
        send(&mut pair, 2_000..2_100);
        let plain = taken(&mut pair);
        assert_eq!(plain.len(), PLAIN_PACKETS);
        assert_eq!(plain[..50], (0..50).collect::<Vec<_>>());
    }
}
