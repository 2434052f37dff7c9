//! Forged datagrams, generated from the fuzzer's bytes: path, packet number and source, then
//! frames.

use mpip_wire::{
    AckRange, AddressList, CompactFrameHeader, EcnCounts, Feedback, FrameWriter, NetworkFields,
    PacketFrameHeader, PathId, PathStatus, Ranges, RateLimit, SessionFields, SessionId,
    TruncatedSequence,
};

use super::*;

/// Maximum bytes of frames in a datagram.
const ROOM: usize = 1_400;

/// Source and destination addresses of forged packets: right and wrong ones of every mode.
const ADDRESSES: [[u8; 4]; 10] = [
    [198, 19, 0, 1],
    [198, 19, 0, 2],
    [198, 18, 0, 1],
    [198, 18, 0, 2],
    [198, 18, 1, 1],
    [198, 18, 1, 2],
    SHOWN.0,
    ELSEWHERE[0].0,
    OTHERS[0].0,
    [224, 0, 0, 1],
];

const PROTOCOLS: [u8; 8] =
    [protocol::TCP, protocol::UDP, protocol::ICMP, protocol::ICMPV6, 47, 4, 44, protocol::SCTP];

impl World {
    /// Seals frames, or the bytes themselves if `raw`, and sends them.
    pub(super) fn forge(&mut self, bytes: &mut Bytes<'_>, raw: bool) {
        if self.pair.engines[self.forger].associations.is_empty() {
            return;
        }
        let (path, number) = (self.path(bytes), bytes.byte());
        let source = bytes.byte();
        let mut room = [0; ROOM];
        let plain = match raw {
            true => bytes.rest(),
            false => {
                let mut writer = FrameWriter::new(&mut room);
                while !bytes.is_empty() && writer.remaining() > 0 {
                    self.frame(path, bytes, &mut writer);
                }
                let len = writer.len();
                &room[..len]
            }
        };
        let (now, forger) = (self.pair.now, self.forger);
        let association = self.pair.association(forger);
        // The next number of the engine, so that feedback names a number that the engine knows, or
        // one far ahead.
        let forged = match number {
            0..0xe0 => association.forge_plain(now, path, plain),
            _ => None,
        };
        let datagram = match forged {
            Some((_, datagram)) => datagram,
            None => {
                let known = association.lanes().into_iter().find(|(id, _)| *id == path);
                let next = self.lanes.entry(path).or_default();
                *next = (*next).max(known.map_or(0, |(_, next)| next));
                let ahead = u64::from(number.saturating_sub(0xe0));
                *next += 1 << (ahead * 2).min(40);
                let number = *next;
                let sealed = self.pair.association(forger).seal_plain(path, number, plain);
                let Some(datagram) = sealed else { return };
                datagram
            }
        };
        let from = self.source_of(path, source);
        self.deliver(from, &datagram);
        if number == 0xdf {
            self.deliver(from, &datagram);
        }
    }

    /// A path of the forger's engine, or any identifier.
    fn path(&mut self, bytes: &mut Bytes<'_>) -> u16 {
        let byte = bytes.byte();
        let forger = self.forger;
        let lanes = self.pair.association(forger).lanes();
        match byte {
            0..0xc0 if !lanes.is_empty() => lanes[usize::from(byte) % lanes.len()].0,
            _ => bytes.number() as u16,
        }
    }

    /// The source of a datagram, and the link on which the other host receives it.
    fn source_of(&mut self, path: u16, source: u8) -> PathAddress {
        let forger = self.forger;
        let own = self.pair.association(forger).address_of(path);
        let link = u16::from(source >> 7);
        let remote = match source & 0x7f {
            0..0x40 => {
                let to = own.unwrap_or(PathAddress {
                    local: LocalId(link),
                    remote: address(1 - forger, link),
                });
                return self.pair.source(forger, to);
            }
            0x40..0x50 => address(forger, u16::from(source & 1)),
            0x50..0x60 => ELSEWHERE[usize::from(source & 1)].into(),
            other => OTHERS[usize::from(other) % OTHERS.len()].into(),
        };
        PathAddress { local: LocalId(link), remote }
    }

    /// Writes one frame.
    fn frame(&mut self, on: u16, bytes: &mut Bytes<'_>, writer: &mut FrameWriter<'_>) {
        let session = |bytes: &mut Bytes<'_>| match bytes.byte() {
            few @ 0..0xc0 => SessionId(u32::from(few % 16)),
            _ => SessionId(bytes.number32()),
        };
        let kind = bytes.byte() % 18;
        let frame = match kind {
            0 => Frame::Heartbeat,
            1 => Frame::Padding(usize::from(bytes.byte()) + 1),
            2 => return self.feedback(on, bytes, writer),
            3 => Frame::PathChallenge([bytes.byte(); 8]),
            4 => {
                let byte = bytes.byte();
                let latest = self.challenges.iter().rev().nth(usize::from(byte & 15));
                Frame::PathResponse(latest.copied().unwrap_or([byte; 8]))
            }
            5 => return self.addresses(bytes, writer),
            6 => {
                let path = PathId(self.path(bytes));
                let status = [PathStatus::Available, PathStatus::Standby, PathStatus::Abandoned];
                let status = bytes.pick(&status);
                let sequence = next(&mut self.status_sequence, bytes);
                let limits = status != PathStatus::Abandoned && sequence % 2 == 1;
                let kbps = (sequence % 1_000_000) as u32 + RateLimit::RANGE.start();
                let limit = RateLimit::new(kbps).filter(|_| limits);
                Frame::PathStatus { path, sequence, status, cost: 0, limit }
            }
            7 => {
                let session = session(bytes);
                Frame::SessionOpen { session, fields: fields(bytes) }
            }
            8 => Frame::SessionClose { session: session(bytes) },
            9 => {
                let (session, first) = (session(bytes), bytes.number32());
                Frame::Skip { session, first, count: bytes.number32().max(1) }
            }
            10 => {
                let sequence = next(&mut self.status_sequence, bytes);
                Frame::Resequencing { sequence, max_wait: bytes.number() }
            }
            11 => Frame::AddressObserved {
                path: PathId(self.path(bytes)),
                address: some_address(bytes),
                taken: bytes.byte() & 1 != 0,
            },
            12 => Frame::SessionUnknown { session: session(bytes) },
            13 => Frame::Playout { at: bytes.number() as u16 },
            14 => Frame::Keepalive { interval: bytes.number() },
            15 => {
                let (session, what) = (session(bytes), bytes.byte());
                let header = PacketFrameHeader {
                    session,
                    sequence: bytes.number32(),
                    ordered: what & 1 != 0,
                };
                let packet = packet(what, bytes);
                let _ = writer.push(&Frame::Packet { header, packet: &packet });
                return;
            }
            16 => {
                let (session, what) = (session(bytes), bytes.byte());
                let sequence = TruncatedSequence::new(bytes.number32());
                let header = CompactFrameHeader { session, sequence, ordered: what & 1 != 0 };
                // Mostly a header that can be restored: no flags, and the fields of every TCP
                // packet.
                let rest = bytes.rest();
                let compact = match what & 2 {
                    0 => [&[0; 12], rest].concat(),
                    _ => rest.to_vec(),
                };
                let _ = writer.push(&Frame::CompactPacket { header, compact: &compact });
                return;
            }
            // Rare, because it ends the association.
            _ if bytes.byte() != 0xcc => Frame::Heartbeat,
            _ => Frame::Close { reason: bytes.byte(), message: "" },
        };
        let _ = writer.push(&frame);
    }

    /// Feedback for packets that were sent, or were not.
    fn feedback(&mut self, on: u16, bytes: &mut Bytes<'_>, writer: &mut FrameWriter<'_>) {
        let (which, back) = (bytes.byte(), bytes.number());
        let path = if which & 1 == 0 { on } else { self.path(bytes) };
        let other = self.other();
        let associations = &self.pair.engines[other].associations;
        let lanes = associations.first().map_or(Vec::new(), Association::lanes);
        let lane = lanes.into_iter().find(|(id, _)| *id == path);
        let sent = lane.map_or(0, |(_, next)| next);
        let largest = match which & 2 {
            0 => sent.saturating_sub(1).saturating_sub(back),
            _ => back,
        };
        let (received_at, delay) = match which & 4 {
            // A delay of a few milliseconds.
            0 => ((self.pair.now.as_micros() as u32).wrapping_sub(bytes.byte().into()), 0),
            _ => (bytes.number32(), bytes.number()),
        };
        let ecn = (which & 8 != 0).then(|| EcnCounts {
            ect0: bytes.number(),
            ect1: bytes.byte().into(),
            ce: bytes.number(),
        });
        let mut ranges = Vec::new();
        let mut last = Some(largest.min(mpip_wire::PACKET_NUMBER_MAX));
        for _ in 0..=which >> 4 {
            let Some(end) = last else { break };
            let first = end.saturating_sub(bytes.number());
            ranges.push(AckRange { first, last: end });
            last = first.checked_sub(bytes.number().saturating_add(2));
        }
        let ranges = Ranges::new(&ranges).expect("from the largest down");
        let feedback = Feedback { path: PathId(path), received_at, delay, ranges, ecn };
        let _ = writer.push(&Frame::Feedback(feedback));
    }

    fn addresses(&mut self, bytes: &mut Bytes<'_>, writer: &mut FrameWriter<'_>) {
        let generation = next(&mut self.generation, bytes);
        let count = usize::from(bytes.byte() & 15) + 1;
        let list: Vec<SocketAddr> = (0..count).map(|_| some_address(bytes)).collect();
        let list = AddressList::new(&list).expect("16 at most");
        let _ = writer.push(&Frame::Addresses { generation, list });
    }
}

/// The next of increasing numbers; sometimes any number.
fn next(latest: &mut u64, bytes: &mut Bytes<'_>) -> u64 {
    match bytes.byte() {
        0..0xe0 => {
            *latest += 1;
            *latest
        }
        _ => bytes.number(),
    }
}

fn some_address(bytes: &mut Bytes<'_>) -> SocketAddr {
    match bytes.byte() {
        own @ 0..0x40 => address(usize::from(own & 1), u16::from(own >> 1 & 1)),
        elsewhere @ 0x40..0x80 => ELSEWHERE[usize::from(elsewhere & 1)].into(),
        others @ 0x80..0xc0 => OTHERS[usize::from(others) % OTHERS.len()].into(),
        0xc0..0xe0 => SocketAddr::from(([203, 0, 112, bytes.byte()], 53)),
        0xe0..0xf0 => SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, bytes.byte().into()], 53)),
        _ => {
            let ip = bytes.take(4);
            let mut octets = [0; 4];
            octets[..ip.len()].copy_from_slice(ip);
            SocketAddr::from((octets, bytes.number() as u16))
        }
    }
}

fn fields(bytes: &mut Bytes<'_>) -> SessionFields {
    let (what, ports) = (bytes.byte(), bytes.byte());
    let (from, to) = (bytes.pick(&ADDRESSES), bytes.pick(&ADDRESSES));
    let network = match what & 0x80 {
        0 => NetworkFields::V4 {
            source: from.into(),
            destination: to.into(),
            identification: 7,
            dont_fragment: true,
        },
        _ => NetworkFields::V6 {
            source: [0x2001, 0xdb8, 0, 0, 0, 0, 0, from[3].into()].into(),
            destination: [0x2001, 0xdb8, 0, 0, 0, 0, 0, to[3].into()].into(),
            flow_label: 7,
        },
    };
    SessionFields {
        sequence: bytes.number32(),
        protocol: PROTOCOLS[usize::from(what & 7)],
        traffic_class: what >> 5 & 3,
        hop_limit: 64,
        network,
        source_port: 0x2000 + u16::from(ports >> 4),
        destination_port: 80 + u16::from(ports & 3),
    }
}

/// A full packet: one that a host would send, or any bytes.
fn packet(what: u8, bytes: &mut Bytes<'_>) -> Vec<u8> {
    if what & 2 != 0 {
        let rest = bytes.rest();
        return if rest.is_empty() { vec![0] } else { rest.to_vec() };
    }
    let ends = [bytes.pick(&ADDRESSES), bytes.pick(&ADDRESSES)];
    let protocol = PROTOCOLS[usize::from(what >> 5)];
    let (port, len, kind) = (bytes.byte() & 15, bytes.byte(), bytes.byte());
    let (mut packet, _) = sent(protocol, ends, port, len.into(), (kind, 0));
    // Changes a few bytes, but not the length.
    for change in bytes.rest().chunks_exact(2) {
        let at = usize::from(change[0]) % packet.len();
        if !(2..4).contains(&at) {
            packet[at] = change[1];
        }
    }
    packet
}
