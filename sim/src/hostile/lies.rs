//! The lies of a hostile node.

use core::net::IpAddr;

use mpip_wire::{
    AckRange, CompactFrameHeader, EcnCounts, Feedback, Frame, NetworkFields, PacketFrameHeader,
    PathId, PathStatus, Ranges, RateLimit, SKIP_MAX, SessionFields, SessionId, TruncatedSequence,
    VARINT_MAX,
};

use super::Hostile;
use super::draft::{Draft, PLAINTEXT, SESSIONS, Session};
use super::spec::Lie;
use crate::packet::{self, Shape, protocol};

/// Protocols of inner packets, among them an unassigned one and IPv6 fragments.
const PROTOCOLS: [u8; 7] =
    [protocol::TCP, protocol::TCP, protocol::UDP, protocol::ICMP, protocol::ESP, 44, 253];

impl Hostile {
    /// Adds a lie of this kind. `false` if nothing more fits.
    pub(super) fn lie(&mut self, lie: Lie, draft: &mut Draft) -> bool {
        match lie {
            Lie::Feedback => self.lie_of_feedback(draft),
            Lie::Challenge => {
                let data = self.rng.word().to_be_bytes();
                let answer = self.rng.chance(0.5);
                draft.push(&if answer {
                    Frame::PathResponse(data)
                } else {
                    Frame::PathChallenge(data)
                })
            }
            Lie::Addresses => {
                let count = self.rng.pick(&[0, 1, 4, 16]);
                let list: Vec<_> = (0..count).map(|_| self.pools.claim(&mut self.rng)).collect();
                let generation = self.growing();
                draft.push_addresses(generation, &list)
            }
            Lie::PathStatus => {
                let status = [PathStatus::Available, PathStatus::Standby, PathStatus::Abandoned];
                let status = self.rng.pick(&status);
                let (path, sequence) = (self.some_path(), self.growing());
                let kbps = self.rng.between(64, 100_000) as u32;
                let limit = RateLimit::new(kbps).filter(|_| status != PathStatus::Abandoned);
                draft.push(&Frame::PathStatus { path, sequence, status, cost: 0, limit })
            }
            Lie::SessionOpen => {
                let session = SessionId(self.some_session());
                let fields = self.some_fields();
                draft.push(&Frame::SessionOpen { session, fields })
            }
            Lie::SessionClose => {
                let session = SessionId(self.some_session());
                draft.push(&Frame::SessionClose { session })
            }
            Lie::SessionUnknown => {
                let index = self.rng.below(2 * self.theirs.len() as u64) as usize;
                let session = self.theirs.get(index).copied();
                let session = session.unwrap_or_else(|| self.rng.below(100) as u32);
                draft.push(&Frame::SessionUnknown { session: SessionId(session) })
            }
            Lie::Skip => {
                let (id, next) = self.own_session();
                let first = next.wrapping_add(self.rng.pick(&[0, 1, 1_000, 32_000, 1 << 31]));
                let count = self.rng.pick(&[1, 100, 32_768, 1 << 20, SKIP_MAX]);
                draft.push(&Frame::Skip { session: SessionId(id), first, count })
            }
            Lie::Resequencing => {
                let sequence = self.growing();
                let max_wait = self.rng.pick(&[0, 1, 50_000, 2_000_000, VARINT_MAX]);
                draft.push(&Frame::Resequencing { sequence, max_wait })
            }
            Lie::Observed => {
                let (path, address) = (self.some_path(), self.pools.claim(&mut self.rng));
                let taken = self.rng.chance(0.5);
                draft.push(&Frame::AddressObserved { path, address, taken })
            }
            Lie::Playout => draft.push(&Frame::Playout { at: self.rng.word() as u16 }),
            Lie::Keepalive => {
                let interval = self.rng.pick(&[0, 1, 999, 15_000, 600_001, VARINT_MAX]);
                draft.push(&Frame::Keepalive { interval })
            }
            Lie::Packet => self.lie_of_packet(draft),
            Lie::Compact => {
                let (id, next) = self.own_session();
                let header = CompactFrameHeader {
                    session: SessionId(id),
                    sequence: TruncatedSequence::new(next.wrapping_add(self.gap())),
                    ordered: self.rng.chance(0.7),
                };
                let len = self.rng.between(1, 80);
                let mut compact: Vec<u8> = (0..len).map(|_| self.rng.word() as u8).collect();
                // Mostly the usual form.
                compact[0] &= self.rng.pick(&[0x00, 0x10, 0x3f, 0xff]);
                draft.push(&Frame::CompactPacket { header, compact: &compact })
            }
            Lie::Padding => {
                let len = self.rng.between(1, 1_200) as usize;
                draft.push(&Frame::Padding(len)) && draft.push(&Frame::Heartbeat)
            }
            Lie::Close if self.rng.chance(0.01) => {
                let reason = self.rng.word() as u8;
                draft.push(&Frame::Close { reason, message: "no more" })
            }
            Lie::Malformed if self.rng.chance(0.05) => {
                let len = self.rng.between(1, 60);
                let bytes: Vec<u8> = (0..len).map(|_| self.rng.word() as u8).collect();
                draft.push_raw(&bytes)
            }
            // The others are not frames.
            Lie::Close | Lie::Malformed | Lie::Handshake | Lie::Raw | Lie::NewPath | Lie::Spoof => {
                draft.push(&Frame::Heartbeat)
            }
        }
    }

    /// Acknowledges packets received on `path`, as an honest node does.
    pub(super) fn acknowledge(&mut self, path: u16, draft: &mut Draft) {
        let Some(state) = self.paths.get(&path) else { return };
        let mut numbers: Vec<u64> = state.received.iter().copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut ranges: Vec<AckRange> = Vec::new();
        for number in numbers.into_iter().rev() {
            let full = ranges.len() == Ranges::MAX;
            match ranges.last_mut() {
                Some(range) if range.first == number + 1 => range.first = number,
                _ if full => break,
                _ => ranges.push(AckRange { first: number, last: number }),
            }
        }
        let received_at = self.micros();
        self.push_feedback(path, &ranges, (received_at, 0), None, draft);
    }

    fn micros(&self) -> u32 {
        (self.clock.at(self.now).as_nanos() / 1_000) as u32
    }

    fn push_feedback(
        &self,
        path: u16,
        ranges: &[AckRange],
        (received_at, delay): (u32, u64),
        ecn: Option<EcnCounts>,
        draft: &mut Draft,
    ) -> bool {
        let Ok(ranges) = Ranges::new(ranges) else { return true };
        let path = PathId(path);
        draft.push(&Frame::Feedback(Feedback { path, received_at, delay, ranges, ecn }))
    }

    fn lie_of_feedback(&mut self, draft: &mut Draft) -> bool {
        let path = self.some_path().0;
        let largest = self.paths.get(&path).and_then(|state| state.largest).unwrap_or(0);
        let rng = &mut self.rng;
        let ranges = match rng.below(5) {
            // Packets never received, or never sent.
            0 => vec![AckRange { first: 0, last: largest }],
            1 => vec![AckRange { first: 0, last: largest + 1 + rng.below(1_000) }],
            2 => vec![AckRange { first: VARINT_MAX - 1, last: VARINT_MAX }],
            // Every other number.
            3 => (0..Ranges::MAX as u64)
                .map_while(|hole| largest.checked_sub(2 * hole))
                .map(|number| AckRange { first: number, last: number })
                .collect(),
            // Only the newest.
            _ => vec![AckRange { first: largest, last: largest }],
        };
        let delay = rng.pick(&[0, 1_000, 10_000_000, VARINT_MAX]);
        let ecn = match rng.below(3) {
            0 => None,
            1 => Some(EcnCounts { ect0: rng.below(20), ect1: rng.below(2), ce: rng.below(20) }),
            _ => Some(EcnCounts { ect0: VARINT_MAX, ect1: 0, ce: VARINT_MAX }),
        };
        let wrong = rng.word() as u32;
        let received_at = if rng.chance(0.5) { self.micros() } else { wrong };
        self.push_feedback(path, &ranges, (received_at, delay), ecn, draft)
    }

    fn lie_of_packet(&mut self, draft: &mut Draft) -> bool {
        let room = PLAINTEXT.saturating_sub(draft.plain.len() + PacketFrameHeader::MAX_LEN);
        let (id, next) = self.own_session();
        let own = self.sessions.iter().find(|session| session.id == id).map(|own| own.shape);
        let shape = match own.filter(|_| self.rng.chance(0.8)) {
            Some(shape) => shape,
            None => self.some_shape(),
        };
        let len = self.rng.between(20, 1_300) as usize;
        let mut bytes = Vec::new();
        packet::build(&shape, u64::from(next), next, len.min(room), &mut bytes);
        if self.rng.chance(0.2) {
            let at = self.rng.below(bytes.len() as u64) as usize;
            bytes[at] = self.rng.word() as u8;
        }
        if self.rng.chance(0.05) {
            bytes.truncate(1 + self.rng.below(bytes.len() as u64) as usize);
        }
        let header = PacketFrameHeader {
            session: SessionId(id),
            sequence: next.wrapping_add(self.gap()),
            ordered: self.rng.chance(0.8),
        };
        draft.push(&Frame::Packet { header, packet: &bytes })
    }

    /// A gap in sequence numbers.
    fn gap(&mut self) -> u32 {
        self.rng.pick(&[0, 0, 1, 1, 1, 2, 3, 50, 5_000, 32_767, 32_768, 1 << 31])
    }

    /// A number that mostly grows.
    fn growing(&mut self) -> u64 {
        self.counter += 1;
        match self.rng.below(50) {
            0 => 0,
            1 => self.rng.below(self.counter),
            _ => self.counter,
        }
    }

    fn some_path(&mut self) -> PathId {
        let known = self.rng.below(2 * self.paths.len() as u64) as usize;
        let known = self.paths.keys().nth(known).copied();
        PathId(known.unwrap_or_else(|| self.rng.pick(&[0, 1, 2, 3, 31, 65_535])))
    }

    /// A session number, its own or any.
    fn some_session(&mut self) -> u32 {
        if self.rng.chance(0.5) {
            self.own_session().0
        } else {
            self.rng.pick(&[0, 5, 63, 64, u32::MAX])
        }
    }

    /// A session that it continues or starts: its number and next sequence number.
    fn own_session(&mut self) -> (u32, u32) {
        let index = self.rng.below(SESSIONS + 2) as usize;
        if let Some(session) = self.sessions.get_mut(index) {
            session.next = session.next.wrapping_add(1);
            return (session.id, session.next);
        }
        let session =
            Session { id: self.rng.below(4_000) as u32, shape: self.some_shape(), next: 0 };
        let begun = (session.id, session.next);
        if (self.sessions.len() as u64) < SESSIONS {
            self.sessions.push(session);
        } else if self.rng.chance(0.1) {
            let index = self.rng.below(SESSIONS) as usize;
            self.sessions[index] = session;
        }
        begun
    }

    fn some_shape(&mut self) -> Shape {
        let (source, destination) = self.pools.ends(&mut self.rng);
        let protocol = self.rng.pick(&PROTOCOLS);
        Shape { protocol, source, destination, ecn: self.rng.below(4) as u8 }
    }

    fn some_fields(&mut self) -> SessionFields {
        let shape = self.some_shape();
        let network = match (shape.source.ip(), shape.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => NetworkFields::V4 {
                source,
                destination,
                identification: self.rng.word() as u16,
                dont_fragment: self.rng.chance(0.5),
            },
            (IpAddr::V6(source), IpAddr::V6(destination)) => NetworkFields::V6 {
                source,
                destination,
                flow_label: self.rng.below(1 << 20) as u32,
            },
            _ => unreachable!("both ends have one address family"),
        };
        SessionFields {
            sequence: self.rng.pick(&[0, 1, 1 << 31, u32::MAX]),
            protocol: shape.protocol,
            traffic_class: self.rng.word() as u8,
            hop_limit: self.rng.word() as u8,
            network,
            source_port: shape.source.port(),
            destination_port: shape.destination.port(),
        }
    }
}
