use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[path = "../../../tests/kernel/common/packets.rs"]
mod packets;

use packets::{checksum_is_valid, complete, cut, header_len, make_partial, set_lengths};

/// Keeps the frames.
#[derive(Default)]
struct Frames(Vec<(VnetHeader, Vec<u8>)>);

impl FrameSink for Frames {
    fn frame(&mut self, header: VnetHeader, head: &[u8], tail: &[u8]) {
        self.0.push((header, [head, tail].concat()));
    }
}

impl Frames {
    /// What the kernel makes of them.
    fn cut(&self) -> Vec<Vec<u8>> {
        let cut_one = |(header, packet): &(VnetHeader, Vec<u8>)| {
            cut(packet, header.offload(packet.len()).expect("a valid frame"))
        };
        self.0.iter().flat_map(cut_one).collect()
    }
}

fn push_all<'a>(packets: impl IntoIterator<Item = &'a Packet>, udp: bool) -> Frames {
    let mut frames = Frames::default();
    let mut coalescer = Coalescer::new(udp);
    for packet in packets {
        let (head, tail) = packet.bytes.split_at(packet.split);
        coalescer.push(InnerPacket { head, tail, checksum: packet.checksum }, &mut frames);
    }
    coalescer.flush(&mut frames);
    assert_eq!(coalescer.spare.len(), MAX_FLOWS);
    frames
}

#[derive(Clone, Debug)]
struct Packet {
    bytes: Vec<u8>,
    split: usize,
    checksum: Checksum,
}

impl Packet {
    fn new(bytes: Vec<u8>) -> Self {
        let split = if bytes[0] >> 4 == 4 && bytes[9] == 1 { 20 } else { header_len(&bytes) };
        Self { bytes, split, checksum: Checksum::Complete }
    }

    fn partial(mut self) -> Self {
        make_partial(&mut self.bytes);
        self.checksum = Checksum::Partial;
        self
    }

    /// The packet as it has to arrive.
    fn expected(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        if self.checksum == Checksum::Partial {
            complete(&mut bytes);
        }
        bytes
    }
}

/// The fields of a TCP or UDP packet that matter here.
#[derive(Clone, Debug)]
struct Fields {
    ipv6: bool,
    tcp: bool,
    port: u16,
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    window: u16,
    timestamp: Option<u32>,
    id: u16,
    df: bool,
    tos: u8,
    ttl: u8,
    payload: usize,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            ipv6: false,
            tcp: true,
            port: 1,
            sequence: 1_000,
            acknowledgement: 1,
            flags: 0x10,
            window: 500,
            timestamp: None,
            id: 7,
            df: true,
            tos: 0,
            ttl: 64,
            payload: 1_000,
        }
    }
}

impl Fields {
    fn packet(&self) -> Packet {
        let mut bytes = if self.ipv6 {
            let mut ip = vec![0; 40];
            ip[0] = 0x60 | self.tos >> 4;
            ip[1] = self.tos << 4;
            ip[6] = if self.tcp { 6 } else { 17 };
            ip[7] = self.ttl;
            ip[8..24].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            ip[24..40].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            ip
        } else {
            let mut ip = vec![0; 20];
            ip[0] = 0x45;
            ip[1] = self.tos;
            ip[4..6].copy_from_slice(&self.id.to_be_bytes());
            ip[6] = if self.df { 0x40 } else { 0 };
            ip[8] = self.ttl;
            ip[9] = if self.tcp { 6 } else { 17 };
            ip[12..20].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
            ip
        };
        bytes.extend(self.port.to_be_bytes());
        bytes.extend(80_u16.to_be_bytes());
        if self.tcp {
            bytes.extend(self.sequence.to_be_bytes());
            bytes.extend(self.acknowledgement.to_be_bytes());
            bytes.push(if self.timestamp.is_some() { 8 << 4 } else { 5 << 4 });
            bytes.push(self.flags);
            bytes.extend(self.window.to_be_bytes());
            bytes.extend([0; 4]);
            if let Some(timestamp) = self.timestamp {
                bytes.extend([1, 1, 8, 10]);
                bytes.extend(timestamp.to_be_bytes());
                bytes.extend([0, 0, 0, 9]);
            }
        } else {
            bytes.extend([0; 4]);
        }
        let start = self.sequence;
        bytes.extend((0..self.payload).map(|n| (start as usize + n).wrapping_mul(31) as u8));
        set_lengths(&mut bytes);
        complete(&mut bytes);
        Packet::new(bytes)
    }

    /// The segment that follows a segment like this one.
    fn next(&self) -> Self {
        let sequence = self.sequence.wrapping_add(self.payload as u32);
        Self { sequence, id: self.id.wrapping_add(1), ..self.clone() }
    }
}

/// `count` consecutive segments.
fn run(first: &Fields, count: usize) -> Vec<Packet> {
    let mut fields = first.clone();
    (0..count)
        .map(|_| {
            let packet = fields.packet();
            fields = fields.next();
            packet
        })
        .collect()
}

fn expected(packets: &[Packet]) -> Vec<Vec<u8>> {
    packets.iter().map(Packet::expected).collect()
}

#[test]
fn consecutive_segments_are_one_frame() {
    for fields in [
        Fields::default(),
        Fields { ipv6: true, ..Fields::default() },
        Fields { tcp: false, ..Fields::default() },
        Fields { tcp: false, ipv6: true, ..Fields::default() },
        Fields { df: false, ..Fields::default() },
        Fields { timestamp: Some(5), tos: 2, ..Fields::default() },
        Fields { sequence: u32::MAX - 2_500, id: u16::MAX - 2, ..Fields::default() },
    ] {
        let mut packets = run(&fields, 40);
        // The last is shorter and ends the super-packet.
        let mut last = fields.clone();
        for _ in 0..40 {
            last = last.next();
        }
        packets.push(Fields { payload: 10, flags: 0x18, ..last }.packet());
        let frames = push_all(&packets, true);
        assert_eq!(frames.0.len(), 1, "{fields:?}");
        assert_eq!(frames.cut(), expected(&packets), "{fields:?}");
    }
}

#[test]
fn a_super_packet_ends_at_64_kib() {
    let packets = run(&Fields::default(), 100);
    let frames = push_all(&packets, true);
    assert_eq!(frames.0.len(), 2);
    assert_eq!(frames.cut(), expected(&packets));
    let datagrams = run(&Fields { tcp: false, payload: 100, ..Fields::default() }, 130);
    let frames = push_all(&datagrams, true);
    assert_eq!(frames.0.len(), 3);
    assert_eq!(frames.cut(), expected(&datagrams));
}

#[test]
fn without_udp_offload_datagrams_are_alone() {
    let datagrams = run(&Fields { tcp: false, ..Fields::default() }, 5);
    let frames = push_all(&datagrams, false);
    assert_eq!(frames.0.len(), 5);
    assert_eq!(frames.cut(), expected(&datagrams));
}

#[test]
fn what_gro_would_not_join_is_not_joined() {
    let first = Fields { df: false, timestamp: Some(5), ..Fields::default() };
    let next = first.next();
    let same = push_all(&[first.packet(), next.packet()], true);
    assert_eq!(same.0.len(), 1);
    let others = [
        Fields { sequence: next.sequence + 1, ..next.clone() },
        Fields { sequence: first.sequence, ..next.clone() },
        Fields { acknowledgement: 2, ..next.clone() },
        Fields { window: 501, ..next.clone() },
        Fields { timestamp: Some(6), ..next.clone() },
        Fields { timestamp: None, ..next.clone() },
        Fields { id: 20, ..next.clone() },
        Fields { df: true, ..next.clone() },
        Fields { tos: 3, ..next.clone() },
        Fields { ttl: 63, ..next.clone() },
        Fields { payload: 1_001, ..next.clone() },
        Fields { payload: 0, ..next.clone() },
        Fields { flags: 0x50, ..next.clone() },
        Fields { flags: 0x90, ..next.clone() },
        Fields { flags: 0x12, ..next.clone() },
        Fields { flags: 0x14, ..next.clone() },
        Fields { flags: 0x30, ..next.clone() },
        Fields { port: 2, ..next.clone() },
        Fields { ipv6: true, ..next.clone() },
        Fields { tcp: false, ..next.clone() },
    ];
    for other in others {
        let packets = [first.packet(), other.packet()];
        let frames = push_all(&packets, true);
        assert_eq!(frames.0.len(), 2, "{other:?}");
        let mut cut = frames.cut();
        if other.port != first.port || other.ipv6 || !other.tcp {
            // Another flow may overtake.
            cut.sort_by_key(|bytes| *bytes != packets[0].expected());
        }
        assert_eq!(cut, expected(&packets), "{other:?}");
    }
}

#[test]
fn push_and_fin_end_a_super_packet() {
    let first = Fields::default();
    let second = Fields { flags: 0x18, ..first.next() };
    let third = Fields { flags: 0x10, ..second.next() };
    let fourth = Fields { flags: 0x11, ..third.next() };
    let packets = [first, second, third, fourth].map(|fields| fields.packet());
    let frames = push_all(&packets, true);
    assert_eq!(frames.0.len(), 2);
    assert_eq!(frames.cut(), expected(&packets));
}

#[test]
fn a_segment_with_a_wrong_checksum_stays_wrong() {
    for wrong in 0..4 {
        let mut packets = run(&Fields::default(), 4);
        *packets[wrong].bytes.last_mut().expect("a payload") ^= 1;
        let cut = push_all(&packets, true).cut();
        assert_eq!(cut, expected(&packets), "segment {wrong}");
        let valid: Vec<bool> = cut.iter().map(|packet| checksum_is_valid(packet)).collect();
        assert_eq!(valid.iter().position(|valid| !valid), Some(wrong));
        assert_eq!(valid.iter().filter(|valid| **valid).count(), 3);
    }
}

#[test]
fn a_wrong_ipv4_header_checksum_stays_wrong() {
    let mut packets = run(&Fields::default(), 3);
    packets[1].bytes[10] ^= 1;
    let frames = push_all(&packets, true);
    assert_eq!(frames.0.len(), 3);
    assert_eq!(frames.cut(), expected(&packets));
}

#[test]
fn partial_checksums_are_completed() {
    let packets: Vec<Packet> =
        run(&Fields::default(), 3).into_iter().map(Packet::partial).collect();
    let frames = push_all(&packets, true);
    assert_eq!(frames.0.len(), 1);
    assert_eq!(frames.cut(), expected(&packets));
    for fields in [
        Fields { payload: 0, ..Fields::default() },
        Fields { payload: 0, ipv6: true, ..Fields::default() },
        Fields { tcp: false, ..Fields::default() },
        Fields::default(),
    ] {
        let single = [fields.packet().partial()];
        assert_eq!(push_all(&single, false).cut(), expected(&single), "{fields:?}");
    }
}

#[test]
fn interleaved_flows_are_joined_each_for_itself() {
    let runs: Vec<Vec<Packet>> =
        (0..8).map(|port| run(&Fields { port, ..Fields::default() }, 10)).collect();
    let mixed: Vec<Packet> =
        (0..10).flat_map(|turn| runs.iter().map(move |run| run[turn].clone())).collect();
    let frames = push_all(&mixed, true);
    assert_eq!(frames.0.len(), 8);
    assert_eq!(frames.cut(), runs.iter().flat_map(|run| expected(run)).collect::<Vec<_>>());
}

#[test]
fn a_flow_too_many_sends_the_oldest_on() {
    let packets: Vec<Packet> =
        (0..=MAX_FLOWS as u16).map(|port| Fields { port, ..Fields::default() }.packet()).collect();
    let frames = push_all(&packets, true);
    assert_eq!(frames.cut(), expected(&packets));
}

#[test]
fn fragments_keep_their_place_and_other_protocols_do_not_wait() {
    let segments = run(&Fields::default(), 2);
    let mut fragment = Fields { tcp: false, ..Fields::default() }.packet();
    fragment.bytes[6] = 0x20;
    set_lengths(&mut fragment.bytes);
    let packets = [segments[0].clone(), fragment, segments[1].clone()];
    assert_eq!(push_all(&packets, true).cut(), expected(&packets));

    let mut ping = Fields::default().packet().bytes[..40].to_vec();
    ping[9] = 1;
    set_ping_lengths(&mut ping);
    let packets = [segments[0].clone(), Packet::new(ping), segments[1].clone()];
    let frames = push_all(&packets, true);
    assert_eq!(frames.0.len(), 2);
    assert_eq!(frames.0[0], (VnetHeader::COMPLETE, packets[1].bytes.clone()));
}

fn set_ping_lengths(ping: &mut [u8]) {
    ping[3] = ping.len() as u8;
    ping[10..12].fill(0);
    let sum = !packets::sum(&[&ping[..20]]);
    ping[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// One step of a random sequence on one of a few flows.
#[derive(Clone, Debug)]
enum Step {
    Next,
    Short(usize),
    Flags(u8),
    Gap,
    Window,
    NewId(bool),
    Corrupt(usize),
    Partial,
    Split(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Next),
        1 => (0_usize..200).prop_map(Step::Short),
        1 => any::<u8>().prop_map(Step::Flags),
        1 => Just(Step::Gap),
        1 => Just(Step::Window),
        1 => any::<bool>().prop_map(Step::NewId),
        1 => any::<usize>().prop_map(Step::Corrupt),
        2 => Just(Step::Partial),
        2 => any::<usize>().prop_map(Step::Split),
    ]
}

fn take_step(fields: &mut Fields, step: &Step) -> Packet {
    let mut this = fields.clone();
    match step {
        Step::Short(payload) => this.payload = *payload,
        Step::Flags(flags) => this.flags = *flags,
        Step::Gap => this.sequence = this.sequence.wrapping_add(5_000),
        Step::Window => this.window = this.window.wrapping_add(1),
        Step::NewId(df) => {
            this.id = this.id.wrapping_add(100);
            this.df = *df;
        }
        _ => {}
    }
    let mut packet = this.packet();
    match step {
        Step::Corrupt(place) => {
            let at = place % packet.bytes.len();
            packet.bytes[at] ^= 0x11;
        }
        Step::Partial => packet = packet.partial(),
        Step::Split(place) => {
            let (header, len) = (packet.split, packet.bytes.len());
            packet.split = header + place % (len - header + 1);
        }
        _ => {}
    }
    *fields = Fields { payload: fields.payload, flags: 0x10, ..this.next() };
    packet
}

/// A packet without what nobody has to keep: the identification of an atomic datagram.
fn without_atomic_id(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes[0] >> 4 == 4 && bytes[6] & 0x40 != 0 {
        bytes[4..6].fill(0);
        bytes[10..12].fill(0);
    }
    bytes
}

/// Addresses, protocol and ports, read blindly.
fn key(bytes: &[u8]) -> Vec<u8> {
    if bytes[0] >> 4 == 4 {
        [&bytes[9..10], &bytes[12..24]].concat()
    } else {
        [&bytes[6..7], &bytes[8..44]].concat()
    }
}

fn by_flow(packets: impl IntoIterator<Item = Vec<u8>>) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut flows = BTreeMap::<_, Vec<_>>::new();
    for packet in packets {
        flows.entry(key(&packet)).or_default().push(without_atomic_id(packet));
    }
    flows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn cutting_what_was_joined_gives_the_same_packets_in_the_order_of_each_flow(
        steps in prop::collection::vec((0_usize..12, step()), 1..150),
        udp: bool,
    ) {
        let mut flows: Vec<Fields> = (0..12_u16)
            .map(|n| Fields {
                ipv6: n % 2 == 1,
                tcp: n % 3 != 2,
                port: n,
                payload: 100 + 1_200 * usize::from(n % 2),
                df: n % 4 < 2,
                ..Fields::default()
            })
            .collect();
        let packets: Vec<Packet> =
            steps.iter().map(|(flow, step)| take_step(&mut flows[*flow], step)).collect();
        let cut = push_all(&packets, udp).cut();
        prop_assert_eq!(by_flow(cut), by_flow(expected(&packets)));
    }

    #[test]
    fn nothing_that_the_peer_sends_can_break_it(
        packets in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..120), any::<prop::sample::Index>(), any::<bool>()),
            1..20,
        ),
    ) {
        let mut frames = Frames::default();
        let mut coalescer = Coalescer::new(true);
        let mut pushed = Vec::new();
        for (mut bytes, split, partial) in packets {
            if let Some(version) = bytes.first_mut() {
                *version = [0x45, 0x46, 0x60, *version][usize::from(*version % 4)];
            }
            let (head, tail) = bytes.split_at(split.index(bytes.len() + 1));
            let checksum = if partial { Checksum::Partial } else { Checksum::Complete };
            coalescer.push(InnerPacket { head, tail, checksum }, &mut frames);
            pushed.push(bytes.clone());
        }
        coalescer.flush(&mut frames);
        let total: usize = frames.0.iter().map(|(_, bytes)| bytes.len()).sum();
        prop_assert!(total <= pushed.iter().map(Vec::len).sum());
    }
}
