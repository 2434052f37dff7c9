//! Small packets that are held back so that a later one reaches the host before them: see
//! [`HiddenThinning`](crate::thinning::HiddenThinning).

use mpip_types::{Checksum, InnerPacket, Instant, PacketSink};

/// Longest packet that is held, bytes: 40 of IP, some extensions, and 60 of TCP; 80 and more of
/// QUIC.
pub(crate) const LONGEST: usize = 128;
/// Most packets that one association holds.
const MOST: usize = 64;

/// A held packet.
#[derive(Debug)]
struct Held {
    /// The slot of its session.
    slot: u32,
    /// When it is delivered at the latest.
    until: Instant,
    len: usize,
    head_len: usize,
    checksum: Checksum,
    bytes: [u8; LONGEST],
}

/// The packets held for one association, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Withheld {
    packets: Vec<Held>,
}

impl Withheld {
    /// Whether none is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// When the first one is to be delivered.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.packets.iter().map(|packet| packet.until).min()
    }

    /// Holds a packet of the session in `slot`, `until` then at the latest. Returns `false` if
    /// there is no room for it.
    pub(crate) fn hold(&mut self, slot: u32, until: Instant, packet: &InnerPacket<'_>) -> bool {
        let len = packet.len();
        if len > LONGEST || self.packets.len() >= MOST {
            return false;
        }
        let head_len = packet.head.len();
        let mut bytes = [0; LONGEST];
        bytes[..head_len].copy_from_slice(packet.head);
        bytes[head_len..len].copy_from_slice(packet.tail);
        let checksum = packet.checksum;
        self.packets.push(Held { slot, until, len, head_len, checksum, bytes });
        true
    }

    /// Drops what is held of the session in `slot`, which is gone.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.packets.retain(|packet| packet.slot != slot);
    }

    /// Delivers what is held of the session in `slot`, newest first.
    pub(crate) fn release(&mut self, slot: u32, sink: &mut impl PacketSink) {
        self.release_of(|packet| packet.slot == slot, sink);
    }

    /// Delivers what is held of sessions with an overdue packet.
    pub(crate) fn release_overdue(&mut self, now: Instant, sink: &mut impl PacketSink) {
        while let Some(overdue) = self.packets.iter().find(|packet| packet.until <= now) {
            let slot = overdue.slot;
            self.release(slot, sink);
        }
    }

    /// Delivers all.
    pub(crate) fn release_all(&mut self, sink: &mut impl PacketSink) {
        self.release_of(|_| true, sink);
    }

    fn release_of(&mut self, which: impl Fn(&Held) -> bool, sink: &mut impl PacketSink) {
        for packet in self.packets.iter().rev().filter(|packet| which(packet)) {
            let (head, tail) = packet.bytes[..packet.len].split_at(packet.head_len);
            sink.packet(InnerPacket { head, tail, checksum: packet.checksum });
        }
        self.packets.retain(|packet| !which(packet));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(Vec<u8>);

    impl PacketSink for Seen {
        fn packet(&mut self, packet: InnerPacket<'_>) {
            assert_eq!((packet.head.len(), packet.tail), (20, &[7, 7][..]));
            self.0.push(packet.head[0]);
        }
    }

    fn hold(held: &mut Withheld, slot: u32, until: u64, name: u8) -> bool {
        let (head, checksum) = (&[name; 20], Checksum::Complete);
        let packet = InnerPacket { head, tail: &[7, 7], checksum };
        held.hold(slot, Instant::from_millis(until), &packet)
    }

    #[test]
    fn the_packets_of_a_session_are_delivered_newest_first() {
        let (mut held, mut seen) = (Withheld::default(), Seen::default());
        for (slot, name) in [(1, 10), (2, 20), (1, 11), (1, 12)] {
            assert!(hold(&mut held, slot, 50, name));
        }
        held.release(1, &mut seen);
        assert_eq!(seen.0, [12, 11, 10]);
        held.release_all(&mut seen);
        assert_eq!(seen.0[3..], [20]);
        assert!(held.is_empty() && held.next_timeout().is_none());
    }

    #[test]
    fn an_overdue_packet_takes_those_of_its_session_along() {
        let (mut held, mut seen) = (Withheld::default(), Seen::default());
        for (slot, until, name) in [(1, 50, 10), (2, 40, 20), (1, 90, 11)] {
            assert!(hold(&mut held, slot, until, name));
        }
        assert_eq!(held.next_timeout(), Some(Instant::from_millis(40)));
        held.release_overdue(Instant::from_millis(39), &mut seen);
        assert!(seen.0.is_empty());
        held.release_overdue(Instant::from_millis(50), &mut seen);
        assert_eq!(seen.0, [11, 10, 20]);
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut held = Withheld::default();
        assert!((0..MOST).all(|_| hold(&mut held, 1, 50, 1)));
        assert!(!hold(&mut held, 1, 50, 1));
        let long = InnerPacket { head: &[0; LONGEST], tail: &[0], checksum: Checksum::Complete };
        assert!(!Withheld::default().hold(1, Instant::ZERO, &long));
    }
}
