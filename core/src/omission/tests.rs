//! `[O-n]` names the requirement of `docs/protocol.md` that a test proves.

mod corpus;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mpip_wire::{
    CompactFrameHeader, PathId, ReceiverIndex, SessionId, TAG_LEN, TransportHeader,
    TruncatedNumber, TruncatedSequence,
};
use proptest::prelude::*;

use super::*;

/// The one's complement sum, word by word (RFC 1071).
fn slow_sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).fold(0, |sum, word| {
        let sum = sum + (u32::from(word[0]) << 8) + u32::from(*word.get(1).unwrap_or(&0));
        (sum & 0xffff) + (sum >> 16)
    })
}

fn checksum(pieces: &[&[u8]]) -> u16 {
    let sum = pieces.iter().fold(0, |sum, bytes| {
        let sum = sum + slow_sum(bytes);
        (sum & 0xffff) + (sum >> 16)
    });
    !(sum as u16)
}

/// The fields that differ between packets of a session.
#[derive(Clone, Debug)]
struct Plan {
    class: u8,
    hops: u8,
    identification: u16,
    fragment: u16,
    flow: u32,
    tcp_numbers: [u8; 8],
    window: u16,
    flags: u16,
    urgent: u16,
    options: Vec<u8>,
    udp_checksum: bool,
    payload: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    v6: bool,
    protocol: u8,
}

impl Plan {
    /// A full packet in the middle of a transfer, as Linux sends it.
    fn full(identification: u16) -> Self {
        let mut options = vec![1, 1, 8, 10];
        options.extend([0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
        Self {
            class: 2,
            hops: 64,
            identification,
            fragment: DONT_FRAGMENT,
            flow: 0xb_cdef,
            tcp_numbers: [0, 1, 2, 3, 0xf4, 0xf5, 0xf6, 0xf7],
            window: 0x01f6,
            flags: TCP_ACK,
            urgent: 0,
            options,
            udp_checksum: true,
            payload: (0..1_448_u32).map(|n| (n * 31) as u8).collect(),
        }
    }

    fn transport(&self, protocol: u8) -> Vec<u8> {
        let mut bytes = vec![];
        match protocol {
            6 => {
                bytes.extend([0x9c, 0x40, 0x14, 0x51]);
                bytes.extend(self.tcp_numbers);
                let words = 5 + self.options.len() as u16 / 4;
                bytes.extend((words << 12 | self.flags).to_be_bytes());
                bytes.extend(self.window.to_be_bytes());
                bytes.extend([0, 0]);
                bytes.extend(self.urgent.to_be_bytes());
                bytes.extend(&self.options);
            }
            17 => {
                bytes.extend([0x9c, 0x40, 0x14, 0x51]);
                bytes.extend((8 + self.payload.len() as u16).to_be_bytes());
                bytes.extend([0, 0]);
            }
            // ICMP echo and other protocols: sent unchanged.
            _ => bytes.extend([8, 0, 0x12, 0x34, 0x9c, 0x40, 0, 1]),
        }
        bytes.extend(&self.payload);
        bytes
    }

    fn packet(&self, session: Session) -> Vec<u8> {
        let Session { v6, protocol } = session;
        let mut transport = self.transport(protocol);
        let len = transport.len() as u16;
        let mut network = vec![];
        if v6 {
            let first = 6 << 28 | u32::from(self.class) << 20 | self.flow;
            network.extend(first.to_be_bytes());
            network.extend(len.to_be_bytes());
            network.extend([protocol, self.hops]);
            network.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            network.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 2]);
        } else {
            network.extend([0x45, self.class]);
            network.extend((20 + len).to_be_bytes());
            network.extend(self.identification.to_be_bytes());
            network.extend(self.fragment.to_be_bytes());
            network.extend([self.hops, protocol, 0, 0, 198, 18, 0, 1, 198, 19, 0, 2]);
            let sum = checksum(&[&network]);
            network[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let field = if protocol == 6 { 16 } else { 6 };
        if protocol == 6 || protocol == 17 && self.udp_checksum {
            let addresses = if v6 { &network[8..] } else { &network[12..] };
            let pseudo = [(len).to_be_bytes(), [0, protocol]].concat();
            let sum = checksum(&[addresses, &pseudo, &transport]);
            let sum = if protocol == 17 && sum == 0 { 0xffff } else { sum };
            transport[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        }
        [network, transport].concat()
    }
}

impl Session {
    const TCP: Self = Self { v6: false, protocol: 6 };

    /// The session header, from a packet with identification 100 at sequence 7.
    fn header(self) -> SessionHeader {
        let fields = fields(7, &Plan::full(100).packet(self)).unwrap();
        SessionHeader::new(&fields).unwrap()
    }
}

/// The frame without its header.
fn compact_form(compact: &CompactHeader, packet: &[u8]) -> Vec<u8> {
    [compact.bytes(), &packet[compact.payload()..]].concat()
}

fn restored(known: &SessionHeader, sequence: u32, form: &[u8]) -> Result<Vec<u8>, RestoreError> {
    let mut head = [0xa5; HEAD_MAX];
    let restored = known.restore(sequence, form, Checksum::Complete, &mut head)?;
    Ok([&head[..restored.head_len], &form[restored.payload..]].concat())
}

fn session() -> impl Strategy<Value = Session> {
    (any::<bool>(), prop::sample::select(&[6_u8, 17, 1, 50, 132][..]))
        .prop_map(|(v6, protocol)| Session { v6, protocol })
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    let timestamps = any::<[u8; 8]>().prop_map(|value| [&TIMESTAMPS[..], &value].concat());
    let other = |max: usize| {
        (0..=max, any::<[u8; 40]>()).prop_map(|(words, bytes)| bytes[..words * 4].to_vec())
    };
    prop_oneof![
        3 => timestamps.clone(),
        1 => other(10),
        2 => (timestamps, other(7)).prop_map(|(first, rest)| [first, rest].concat()),
    ]
}

prop_compose! {
    /// Usual and odd values of every field.
    fn plan()(
        class in prop_oneof![Just(2_u8), any::<u8>()],
        hops in prop_oneof![Just(64_u8), any::<u8>()],
        identification in prop_oneof![90..400_u16, Just(0), any::<u16>()],
        fragment in prop::sample::select(&[0, DONT_FRAGMENT][..]),
        flow in prop_oneof![Just(0xb_cdef_u32), 0..0x10_0000_u32],
        tcp_numbers in any::<[u8; 8]>(),
        (window, urgent) in (any::<u16>(), prop_oneof![Just(0), any::<u16>()]),
        flags in prop_oneof![Just(0x10_u16), Just(0x18), 0..0x1000_u16],
        options in options(),
        udp_checksum in any::<bool>(),
        payload in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..4),
            prop::collection::vec(any::<u8>(), 0..1_500),
        ],
    ) -> Plan {
        Plan {
            class, hops, identification, fragment, flow, tcp_numbers, window, flags, urgent,
            options, udp_checksum, payload,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None, ..ProptestConfig::with_cases(400)
    })]

    /// [O-1]
    #[test]
    fn restored_packets_are_bit_identical(
        session in session(), plan in plan(), sequence in prop_oneof![0..300_u32, any::<u32>()],
    ) {
        let known = session.header();
        let packet = plan.packet(session);
        let compact = known.compress(sequence, &packet).unwrap();
        prop_assert!(compact.bytes().len() <= COMPACT_MAX);
        let form = compact_form(&compact, &packet);
        prop_assert_eq!(restored(&known, sequence, &form), Ok(packet));
    }

    /// [O-1]
    #[test]
    fn whatever_is_compressed_is_restored_also_when_it_is_broken(
        session in session(), plan in plan(), at in 0..100_usize, mask in 1..=255_u8,
        also in prop::option::of((0..100_usize, any::<u8>())),
    ) {
        let known = session.header();
        let mut packet = plan.packet(session);
        for (at, mask) in [Some((at, mask)), also].into_iter().flatten() {
            let len = packet.len();
            packet[at % len] ^= mask;
        }
        if let Some(compact) = known.compress(300, &packet) {
            let form = compact_form(&compact, &packet);
            prop_assert_eq!(restored(&known, 300, &form), Ok(packet));
        }
    }

    /// [O-5]
    #[test]
    fn partial_checksums_are_the_sum_of_the_pseudo_header(session in session(), plan in plan()) {
        let known = session.header();
        let packet = plan.packet(session);
        let compact = known.compress(9, &packet).unwrap();
        let form = compact_form(&compact, &packet);
        let mut head = [0xa5; HEAD_MAX];
        let restored = known.restore(9, &form, Checksum::Partial, &mut head).unwrap();
        let mut whole = [&head[..restored.head_len], &form[restored.payload..]].concat();
        let has_checksum = session.protocol == 6 || session.protocol == 17 && plan.udp_checksum;
        prop_assert_eq!(restored.checksum == Checksum::Partial, has_checksum);
        if has_checksum {
            // As a network card completes it: the sum from the transport header on, field included.
            let start = if session.v6 { 40 } else { 20 };
            let field = start + if session.protocol == 6 { 16 } else { 6 };
            let sum = checksum(&[&whole[start..]]);
            let sum = if session.protocol == 17 && sum == 0 { 0xffff } else { sum };
            whole[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        }
        prop_assert_eq!(whole, packet);
    }

    /// [O-2]
    #[test]
    fn arbitrary_compact_packets_never_panic(
        session in session(), mut bytes in prop::collection::vec(any::<u8>(), 0..120),
        control in any::<u8>(),
    ) {
        let known = session.header();
        for first in [bytes.first().copied(), Some(control)] {
            if let (Some(first), Some(byte)) = (first, bytes.first_mut()) {
                *byte = first;
            }
            if let Ok(packet) = restored(&known, 5, &bytes) {
                let compact = known.compress(5, &packet).expect("what is restored has a form");
                prop_assert_eq!(restored(&known, 5, &compact_form(&compact, &packet)), Ok(packet));
            }
        }
    }

    /// [O-2]
    #[test]
    fn headers_that_end_early_are_refused(session in session(), plan in plan()) {
        let known = session.header();
        let packet = plan.packet(session);
        let compact = known.compress(9, &packet).unwrap();
        for len in 0..compact.bytes().len() {
            let refused = matches!(
                restored(&known, 9, &compact.bytes()[..len]),
                Err(RestoreError::Truncated { found, needed }) if found == len && needed > len
            );
            prop_assert!(refused, "{} of {:?}", len, compact);
        }
    }
}

/// [O-1]
#[test]
fn checksums_that_computation_does_not_give_go_in_full() {
    for session in [Session::TCP, Session { v6: true, ..Session::TCP }] {
        for protocol in [6, 17] {
            let session = Session { protocol, ..session };
            let known = session.header();
            let packet = Plan::full(100).packet(session);
            assert!(known.compress(7, &packet).is_some());
            let mut wrong = packet.clone();
            *wrong.last_mut().unwrap() ^= 1;
            assert!(known.compress(7, &wrong).is_none(), "{session:?}: payload");
            // Checksums declared valid are not verified.
            assert!(known.compress_valid(7, &wrong[..100], wrong.len()).is_some());
        }
    }
    let mut packet = Plan::full(100).packet(Session::TCP);
    packet[10] ^= 1;
    assert!(Session::TCP.header().compress(7, &packet).is_none(), "IPv4 header");
}

/// [O-1]
#[test]
fn the_other_form_of_a_zero_checksum_goes_in_full() {
    for session in [Session::TCP, Session { v6: true, ..Session::TCP }] {
        let network_len = if session.v6 { 40 } else { 20 };
        let known = session.header();
        let with = |window| Plan { window, payload: vec![], ..Plan::full(100) }.packet(session);
        // What is missing in the sum makes the checksum zero as the window.
        let missing = with(0)[network_len + 16..][..2].try_into().unwrap();
        let mut packet = with(u16::from_be_bytes(missing));
        assert_eq!(packet[network_len + 16..][..2], [0, 0]);
        let compact = known.compress(7, &packet).unwrap();
        assert_eq!(restored(&known, 7, compact.bytes()), Ok(packet.clone()));
        packet[network_len + 16..][..2].fill(0xff);
        assert!(known.compress(7, &packet).is_none());
        assert!(known.compress_valid(7, &packet, packet.len()).is_none());
    }
    let known = Session::TCP.header();
    let with = |id| Plan { payload: vec![], ..Plan::full(id) }.packet(Session::TCP);
    let mut packet = with(u16::from_be_bytes(with(0)[10..12].try_into().unwrap()));
    assert_eq!(packet[10..12], [0, 0]);
    assert!(known.compress(7, &packet).is_some());
    packet[10..12].fill(0xff);
    assert!(known.compress(7, &packet).is_none());
    assert!(known.compress_valid(7, &packet, packet.len()).is_none());
}

/// [O-1]
#[test]
fn what_the_form_cannot_express_goes_in_full() {
    let known = Session::TCP.header();
    let packet = Plan::full(100).packet(Session::TCP);
    let with = |at: usize, value: u8| {
        let mut packet = packet.clone();
        packet[at] = value;
        known.compress_valid(7, &packet, packet.len())
    };
    assert!(with(1, 0x33).is_some());
    for (at, value, what) in [
        (0, 0x46, "IPv4 options"),
        (0, 0x65, "version 6"),
        (3, 0, "another length"),
        (6, 0xc0, "reserved flag"),
        (6, 0x20, "more fragments"),
        (7, 1, "fragment offset"),
        (9, 17, "another protocol"),
        (15, 9, "another source"),
        (19, 9, "another destination"),
        (20, 9, "another source port"),
        (23, 9, "another destination port"),
        (32, 0x40, "a TCP header too short"),
    ] {
        assert!(with(at, value).is_none(), "{what}");
    }
    // TCP headers beyond what is given, and beyond the packet.
    assert!(known.compress_valid(7, &packet[..51], packet.len()).is_none());
    assert!(known.compress_valid(7, &packet[..52], packet.len()).is_some());
    let mut short = Plan { payload: vec![], ..Plan::full(100) }.packet(Session::TCP);
    short[32] = 0x90;
    assert!(known.compress_valid(7, &[&short[..], &[0; 60]].concat(), short.len()).is_none());
    for session in [Session::TCP, Session { v6: true, ..Session::TCP }] {
        let packet = Plan::full(100).packet(session);
        for len in 0..40 {
            assert!(session.header().compress(7, &packet[..len]).is_none(), "{len}");
        }
    }
    let udp = Session { protocol: 17, ..Session::TCP };
    let mut packet = Plan::full(100).packet(udp);
    packet[25] -= 1;
    assert!(udp.header().compress_valid(7, &packet, packet.len()).is_none(), "UDP length");
}

/// [O-2]
#[test]
fn bits_without_a_meaning_are_refused() {
    for (session, meant) in [
        (Session::TCP, 0xff),
        (Session { v6: false, protocol: 17 }, 0x0f),
        (Session { v6: false, protocol: 47 }, 0x07),
        (Session { v6: true, protocol: 6 }, 0xf9),
        (Session { v6: true, protocol: 17 }, 0x09),
        (Session { v6: true, protocol: 47 }, 0x01),
    ] {
        let known = session.header();
        for control in 0..=255_u8 {
            let result = restored(&known, 7, &[&[control][..], &[0; 60]].concat());
            let refused = Err(RestoreError::Bits { found: control, allowed: meant });
            assert_eq!(result == refused, control & !meant != 0, "{session:?} {control:#x}");
        }
        let meant = if session.v6 { 0x0b } else { 0x07 };
        for network in 0..=255_u8 {
            let result = restored(&known, 7, &[&[0x01, network][..], &[0; 60]].concat());
            let refused = Err(RestoreError::Bits { found: network, allowed: meant });
            assert_eq!(result == refused, network & !meant != 0, "{session:?} {network:#x}");
        }
    }
    let known = Session::TCP.header();
    let flags = |control, first| {
        restored(&known, 7, &[&[control][..], &[0; 10], &[first, 0x02], &[0; 40]].concat())
    };
    assert!(flags(0x20, 0x0f).is_ok());
    assert_eq!(flags(0x20, 0x10), Err(RestoreError::Bits { found: 0x10, allowed: 0x0f }));
    assert_eq!(flags(0x30, 0x00), Err(RestoreError::Bits { found: 0x30, allowed: 0xef }));
    let known = Session { v6: true, ..Session::TCP }.header();
    let label = |high| restored(&known, 7, &[&[0x01, 0x08, high][..], &[0; 40]].concat());
    assert!(label(0x0f).is_ok());
    assert_eq!(label(0x1f), Err(RestoreError::Bits { found: 0x1f, allowed: 0x0f }));
}

/// [O-2]
#[test]
fn packets_too_long_for_their_fields_are_refused() {
    for (v6, longest) in [(false, 65_535), (true, 65_575)] {
        let known = Session { v6, protocol: 47 }.header();
        let network_len = if v6 { 40 } else { 20 };
        let mut form = vec![0; 1 + longest - network_len];
        assert_eq!(restored(&known, 0, &form).unwrap().len(), longest);
        form.push(0);
        let found = longest + 1;
        assert_eq!(restored(&known, 0, &form), Err(RestoreError::Length { found }));
    }
    let known = Session::TCP.header();
    let options = |control, words| {
        restored(&known, 7, &[&[control][..], &[0; 10], &[words], &[0; 60]].concat())
    };
    assert!(options(0x80, 10).is_ok());
    assert_eq!(options(0x80, 11), Err(RestoreError::Options { found: 64 }));
}

/// [O-3]
#[test]
fn loss_and_reordering_of_others_do_not_matter() {
    for protocol in [6, 17, 132] {
        let session = Session { v6: false, protocol };
        let known = session.header();
        let far = 65_500..65_600_u32;
        let sent: Vec<_> = (0..300_u32)
            .chain(far)
            .map(|sequence| {
                // The queue dropped some packets before they got a number.
                let identification = (93 + sequence + sequence / 7) as u16;
                let packet = Plan::full(identification).packet(session);
                let compact = known.compress(sequence, &packet).unwrap();
                (sequence, compact_form(&compact, &packet), packet)
            })
            .collect();
        for (sequence, form, packet) in sent.iter().rev().step_by(3) {
            assert_eq!(restored(&known, *sequence, form).as_ref(), Ok(packet));
        }
    }
}

/// [O-3]
#[test]
fn fields_told_again_later_restore_the_same() {
    for v6 in [false, true] {
        let session = Session { v6, ..Session::TCP };
        let first = fields(7, &Plan::full(100).packet(session)).unwrap();
        let known = SessionHeader::new(&first).unwrap();
        for sequence in [0, 7, 70_000, u32::MAX] {
            let again = SessionHeader::new(&first.at(sequence)).unwrap();
            assert_eq!(first.at(sequence).sequence, sequence);
            let packet = Plan::full(9_000).packet(session);
            let compact = known.compress(80_000, &packet).unwrap();
            let form = compact_form(&compact, &packet);
            assert_eq!(restored(&again, 80_000, &form), Ok(packet));
            let packet = Plan::full((100 + 80_000 - 7) as u16).packet(session);
            assert_eq!(again.compress(80_000, &packet).unwrap().bytes().len(), 19);
        }
    }
}

/// [O-4]
#[test]
fn a_full_packet_of_an_established_tcp_session_costs_at_most_34_bytes_more() {
    let known = Session::TCP.header();
    let cases = [
        ("session below 64, as predicted", 5, Plan::full(100)),
        ("identification near", 5, Plan::full(133)),
        ("identification anywhere", 5, Plan::full(99)),
        ("with PSH", 5, Plan { flags: 0x18, ..Plan::full(100) }),
        ("with a CE mark", 5, Plan { class: 3, ..Plan::full(100) }),
        ("all that and session below 2^30", 1 << 20, Plan { class: 3, ..Plan::full(99) }),
    ];
    let mut costs = vec![];
    for (what, session, plan) in cases {
        let packet = plan.packet(Session::TCP);
        assert_eq!(packet.len(), 1_500);
        let compact = known.compress(7, &packet).unwrap();
        let transport = TransportHeader {
            path: PathId(3),
            receiver: ReceiverIndex(0x1a2b_3c4d),
            number: TruncatedNumber::new(0x0102_0304, 4),
        };
        let frame = CompactFrameHeader {
            session: SessionId(session),
            sequence: TruncatedSequence::new(7),
            ordered: true,
        };
        let outer = 20 + 8;
        let payload = packet.len() - compact.payload();
        let parts = [
            ("outer IPv4 and UDP", outer),
            ("clear header", transport.encoded_len()),
            ("frame header", frame.encoded_len()),
            ("compact header", compact.bytes().len()),
            ("payload", payload),
            ("tag", TAG_LEN),
        ];
        let sent: usize = parts.iter().map(|(_, len)| len).sum();
        let extra = sent - packet.len();
        println!("{what}: {parts:?} = {sent} for {}: {extra} more", packet.len());
        assert!(extra <= 34, "{what}: {extra}");
        costs.push(extra);
    }
    // The table of section 10.
    assert_eq!(costs, [25, 26, 27, 25, 27, 32]);
}

#[test]
fn compact_headers_have_the_specified_layout() {
    let numbers = [0, 1, 2, 3, 0xf4, 0xf5, 0xf6, 0xf7];
    let fixed = [&numbers[..], &[0x01, 0xf6]].concat();
    let times = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
    let sack = [1, 1, 5, 10, 1, 2, 3, 4, 5, 6, 7, 8];
    let full = Plan::full(100);
    let with_sack = [&full.options[..], &sack].concat();
    let tcp6 = Session { v6: true, ..Session::TCP };
    let udp = Session { protocol: 17, ..Session::TCP };
    let cases: [(Session, Plan, Vec<u8>); 9] = [
        (Session::TCP, full.clone(), [&[0x08], &fixed[..], &times].concat()),
        (
            Session::TCP,
            Plan { flags: 0x18, identification: 102, ..full.clone() },
            [&[0x1a, 2], &fixed[..], &times].concat(),
        ),
        (
            Session::TCP,
            Plan { identification: 0xabcd, options: sack.to_vec(), ..full.clone() },
            [&[0x84, 0xab, 0xcd], &fixed[..], &[3], &sack].concat(),
        ),
        (
            Session::TCP,
            Plan { class: 3, hops: 63, fragment: 0, identification: 0, ..full.clone() },
            [&[0x0f, 0x07, 3, 63], &fixed[..], &times].concat(),
        ),
        (
            Session::TCP,
            Plan { flags: 0x1b9, urgent: 0x0a0b, options: with_sack, ..full.clone() },
            [&[0xe8], &fixed[..], &[0x01, 0xb9, 0x0a, 0x0b], &times, &[3], &sack].concat(),
        ),
        (
            tcp6,
            Plan { class: 0xb8, flow: 0xf_1234, ..full.clone() },
            [&[0x09, 0x09, 0xb8, 0x0f, 0x12, 0x34], &fixed[..], &times].concat(),
        ),
        (udp, full.clone(), vec![0x00]),
        (udp, Plan { udp_checksum: false, ..full.clone() }, vec![0x08]),
        (Session { protocol: 1, ..udp }, Plan { identification: 0, ..full }, vec![0x06]),
    ];
    for (session, plan, expected) in cases {
        let packet = plan.packet(session);
        let compact = session.header().compress(7, &packet).unwrap();
        assert_eq!(compact.bytes(), expected, "{session:?} {plan:?}");
        let restored = restored(&session.header(), 7, &compact_form(&compact, &packet));
        assert_eq!(restored, Ok(packet));
    }
}

#[test]
fn the_longest_compact_header_fits() {
    for v6 in [false, true] {
        let session = Session { v6, ..Session::TCP };
        let plan = Plan {
            class: 1,
            hops: 1,
            flow: 1,
            fragment: 0,
            flags: 0xfff,
            urgent: 1,
            options: [&Plan::full(0).options[..], &[1; 28]].concat(),
            ..Plan::full(9_999)
        };
        let packet = plan.packet(session);
        let compact = session.header().compress(7, &packet).unwrap();
        assert!(compact.bytes().len() <= COMPACT_MAX);
        assert_eq!(restored(&session.header(), 7, &compact_form(&compact, &packet)), Ok(packet));
        let without = Plan { options: vec![1; 40], ..plan };
        let packet = without.packet(session);
        let compact = session.header().compress(7, &packet).unwrap();
        assert!(compact.bytes().len() <= COMPACT_MAX);
    }
}

#[test]
fn fields_come_from_packets_that_are_examples_of_those_that_follow() {
    let of = |packet: &[u8]| fields(7, packet);
    let packet = Plan::full(100).packet(Session::TCP);
    assert!(of(&packet).is_some());
    let change = |at: usize, value: u8| {
        let mut packet = packet.clone();
        packet[at] = value;
        packet
    };
    assert_eq!(of(&change(33, 0x02)), None, "SYN");
    assert_eq!(of(&change(33, 0x12)), None, "SYN and ACK");
    assert_eq!(of(&change(0, 0x46)), None, "IPv4 options");
    assert_eq!(of(&change(6, 0x20)), None, "fragment");
    assert_eq!(of(&change(0, 0x55)), None, "neither version");
    assert_eq!(of(&packet[..1_499]), None, "cut");
    assert_eq!(of(&[&packet[..], &[0]].concat()), None, "bytes behind the packet");
    let udp6 = Session { v6: true, protocol: 17 };
    let mut packet = Plan::full(100).packet(udp6);
    assert!(of(&packet).is_some());
    packet[6] = 60;
    packet[40] = 17;
    packet[41] = 0;
    assert_eq!(of(&packet), None, "extension header");
    let mut fields = of(&Plan::full(100).packet(udp6)).unwrap();
    assert!(SessionHeader::new(&fields).is_some());
    for extension in [0, 43, 44, 60] {
        fields.protocol = extension;
        assert!(SessionHeader::new(&fields).is_none(), "{extension}");
    }
}

/// The `n` of all `[O-n]` in `text`.
fn cited(text: &str) -> BTreeSet<u32> {
    text.split("[O-").skip(1).filter_map(|rest| rest.split(']').next()?.parse().ok()).collect()
}

#[test]
fn every_requirement_on_compact_packets_has_a_test_that_cites_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let required = cited(&fs::read_to_string(root.join("../docs/protocol.md")).unwrap());
    let tests = fs::read_to_string(root.join("src/omission/tests.rs")).unwrap();
    assert_eq!(cited(&tests), required);
    assert_eq!(required, (1..=required.len() as u32).collect(), "numbers without a hole");
}
