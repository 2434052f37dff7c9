//! Replays the seed corpora of the fuzz targets without a fuzzer.
//!
//! `cargo test -p mpip-wire --test corpus -- --ignored` writes the seeds anew after a change of the
//! formats; what a fuzzer found is kept beside them under its own names.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "corpora are files")]

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use mpip_wire::*;

fn directory(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target)
}

/// Runs every file through `check`. Seeds with a name that begins with `bad-` must not parse, other
/// seeds must; the names that a fuzzer gives (40 hexadecimal digits) promise nothing.
fn replay(target: &str, check: fn(&[u8]) -> bool) {
    let mut seeds = 0;
    for entry in fs::read_dir(directory(target)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let parsed = check(&fs::read(&path).unwrap());
        if name.len() != 40 {
            assert_eq!(parsed, !name.starts_with("bad-"), "{target}/{name}");
            seeds += 1;
        }
    }
    assert!(seeds >= 5, "{target}: {seeds} seeds");
}

#[test]
fn corpus_of_handshake_messages_holds() {
    replay("handshake", check::handshake);
}

#[test]
fn corpus_of_transport_messages_holds() {
    replay("transport", check::transport);
}

#[test]
fn corpus_of_frames_holds() {
    replay("frames", check::frames);
}

#[test]
fn corpus_of_availability_messages_holds() {
    replay("availability", check::availability);
}

#[test]
fn corpus_of_packet_numbers_holds() {
    replay("packet_number", check::packet_number);
}

#[test]
#[ignore = "writes the corpus"]
fn write_the_seeds() {
    write_handshake();
    write_transport();
    write_frames();
    write_availability();
    write_packet_numbers();
}

fn write(target: &str, name: &str, bytes: &[u8]) {
    fs::create_dir_all(directory(target)).unwrap();
    fs::write(directory(target).join(name), bytes).unwrap();
}

fn emitted(emit: impl Fn(&mut [u8]) -> Result<usize, Error>) -> Vec<u8> {
    let mut buffer = vec![0; 2048];
    let len = emit(&mut buffer).unwrap();
    buffer.truncate(len);
    buffer
}

/// Bytes that look random and are the same every time.
fn noise<const N: usize>() -> [u8; N] {
    let mut state = 0x9e37_79b9_u32;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
}

fn write_handshake() {
    let (sender, receiver) = (ReceiverIndex(0x1a2b_3c4d), ReceiverIndex(0x5e6f_7081));
    let long = noise();
    let initiation = InitiationRepr { sender, noise: &long, mac1: noise(), mac2: [0; 16] };
    let bytes = emitted(|buffer| initiation.emit(buffer));
    write("handshake", "initiation", &bytes);
    write("handshake", "bad-initiation-short", &bytes[..159]);
    let with_cookie = InitiationRepr { mac2: noise(), ..initiation };
    write("handshake", "initiation-with-cookie", &emitted(|buffer| with_cookie.emit(buffer)));

    let short = noise();
    let response = ResponseRepr { sender, receiver, noise: &short, mac1: noise(), mac2: [0; 16] };
    let mut bytes = emitted(|buffer| response.emit(buffer));
    write("handshake", "response", &bytes);
    bytes[3] = 1;
    write("handshake", "bad-response-reserved", &bytes);

    let cookie = CookieReplyRepr { receiver, nonce: noise(), sealed: &noise() };
    write("handshake", "cookie-reply", &emitted(|buffer| cookie.emit(buffer)));

    let timestamp = Timestamp { seconds: 0x4000_0000_6912_3456, nanoseconds: 999_999_999 };
    let (instance, association) = (u64::MAX / 3, 0x8192);
    let payload = InitiationPayload { timestamp, instance, aeads: AeadSet::ALL, association };
    let mut bytes = emitted(|buffer| payload.emit(buffer));
    write("handshake", "initiation-payload", &bytes);
    bytes[8..12].copy_from_slice(&1_000_000_000_u32.to_be_bytes());
    write("handshake", "bad-initiation-payload-nanoseconds", &bytes);
    let payload = ResponsePayload { instance, aead: Aead::Aes256Gcm, association };
    write("handshake", "response-payload", &emitted(|buffer| payload.emit(buffer)));
}

fn write_transport() {
    for (name, path, number, len) in [
        ("path-0-number-1-byte", 0, 5, 1),
        ("path-30-number-2-bytes", 30, 0x1234, 2),
        ("path-31-number-3-bytes", 31, 0x0012_3456, 3),
        ("path-65535-number-4-bytes", u16::MAX, u64::MAX, 4),
    ] {
        let header = TransportHeader {
            path: PathId(path),
            receiver: ReceiverIndex(0x1a2b_3c4d),
            number: TruncatedNumber::new(number, len),
        };
        let mut bytes = emitted(|buffer| header.emit(buffer));
        bytes.extend(noise::<17>());
        write("transport", name, &bytes);
        bytes.pop();
        write("transport", &format!("bad-{name}-without-frames"), &bytes);
    }
    let mut bytes = vec![0x9f, 0x00, 0x1e];
    bytes.extend(noise::<40>());
    write("transport", "bad-short-path-in-long-form", &bytes);
}

fn write_frames() {
    let ranges: Vec<_> = (0..32)
        .rev()
        .map(|n: u64| AckRange { first: n * n * 100, last: n * n * 100 + n })
        .collect();
    let feedback = |ranges, ecn| {
        let ranges = Ranges::new(ranges).unwrap();
        let path = PathId(2);
        Frame::Feedback(Feedback { path, received_at: 0xffff_fff0, delay: 25_000, ranges, ecn })
    };
    let ecn = Some(EcnCounts { ect0: 100_000, ect1: 0, ce: 17 });
    let addresses: Vec<SocketAddr> = (0..16)
        .map(|n| match n % 2 {
            0 => SocketAddr::new([198, 18, 0, n].into(), 6182),
            _ => SocketAddr::new([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n)].into(), 6182),
        })
        .collect();
    let list = |len| AddressList::new(&addresses[..len]).unwrap();
    let open = |network| Frame::SessionOpen {
        session: SessionId(5),
        fields: SessionFields {
            sequence: 7,
            protocol: 6,
            traffic_class: 2,
            hop_limit: 64,
            network,
            source_port: 40_000,
            destination_port: 22,
        },
    };
    let v4 = NetworkFields::V4 {
        source: [10, 77, 0, 1].into(),
        destination: [10, 77, 0, 2].into(),
        identification: 0x1234,
        dont_fragment: true,
    };
    let v6 = NetworkFields::V6 {
        source: noise().into(),
        destination: noise().into(),
        flow_label: 0x1_2345,
    };
    let header = |session, ordered| PacketFrameHeader {
        session: SessionId(session),
        sequence: 0xffff_ffff,
        ordered,
    };
    let packet = noise::<40>();
    let compact = Frame::CompactPacket {
        header: CompactFrameHeader {
            session: SessionId(5),
            sequence: TruncatedSequence::new(u32::MAX),
            ordered: true,
        },
        compact: &packet,
    };
    let path = PathId(3);
    let told =
        |status, cost, limit| Frame::PathStatus { path, sequence: 1 << 14, status, cost, limit };
    let status = |status| told(status, 0, None);
    let cases: Vec<(&str, Vec<Frame<'_>>)> = vec![
        ("padding", vec![Frame::Padding(24)]),
        ("heartbeat", vec![Frame::Heartbeat]),
        ("feedback-1-range", vec![feedback(&ranges[31..], None)]),
        ("feedback-32-ranges", vec![feedback(&ranges, None)]),
        ("feedback-ecn", vec![feedback(&ranges[20..], ecn)]),
        ("path-challenge", vec![Frame::PathChallenge(noise()), Frame::Padding(64)]),
        ("path-response", vec![Frame::PathResponse(noise())]),
        ("addresses-0", vec![Frame::Addresses { generation: 0, list: list(0) }]),
        ("addresses-16", vec![Frame::Addresses { generation: 70_000, list: list(16) }]),
        ("path-available", vec![status(PathStatus::Available)]),
        ("path-standby", vec![status(PathStatus::Standby)]),
        ("path-abandoned", vec![status(PathStatus::Abandoned)]),
        ("path-cost", vec![told(PathStatus::Available, 15, None)]),
        ("path-limit", vec![told(PathStatus::Available, 15, RateLimit::new(20_000))]),
        ("session-open-v4", vec![open(v4)]),
        ("session-open-v6", vec![open(v6)]),
        ("playout", vec![Frame::Playout { at: 1 }, Frame::Heartbeat]),
        ("keepalive", vec![Frame::Keepalive { interval: 15_000 }, Frame::Heartbeat]),
        ("session-unknown", vec![Frame::SessionUnknown { session: SessionId(70_000) }]),
        ("compact-packet", vec![Frame::Heartbeat, compact]),
        ("session-close", vec![Frame::SessionClose { session: SessionId(u32::MAX) }]),
        ("skip", vec![Frame::Skip { session: SessionId(64), first: u32::MAX, count: SKIP_MAX }]),
        ("resequencing", vec![Frame::Resequencing { sequence: 3, max_wait: 120_000 }]),
        ("close", vec![Frame::Close { reason: 2, message: "Aufwiedersehen, \u{e9}" }]),
        (
            "address-observed",
            vec![Frame::AddressObserved { path, address: addresses[1], taken: true }],
        ),
        ("packet", vec![Frame::Packet { header: header(63, false), packet: &packet }]),
        (
            "feedback-and-packet",
            vec![
                feedback(&ranges[28..], ecn),
                open(v4),
                Frame::Packet { header: header(1 << 20, true), packet: &packet },
            ],
        ),
    ];
    for (name, frames) in cases {
        let mut buffer = [0; 2048];
        let mut writer = FrameWriter::new(&mut buffer);
        frames.iter().for_each(|frame| writer.push(frame).unwrap());
        let len = writer.len();
        write("frames", name, &buffer[..len]);
    }
    write("frames", "bad-varint-not-minimal", &[0x09, 0x40, 0x3f]);
    write("frames", "bad-range-below-zero", &[0x02, 0, 5, 0, 0, 0, 0, 0, 0, 6]);
    write("frames", "bad-type-reserved", &[0x01, 0x2a, 0x00]);
    write("frames", "bad-compact-packet-empty", &[0x28, 0, 0, 0, 1]);
    write("frames", "bad-packet-empty", &[0x20, 0, 0, 0, 0, 1]);
    // 63 kbit/s, and a limit of an abandoned path.
    write("frames", "bad-path-limit-too-low", &[0x07, 3, 1, 0x08, 63]);
    write("frames", "bad-path-limit-abandoned", &[0x07, 3, 1, 0x0a, 0x40, 64]);
    write("frames", "bad-close-not-utf-8", &[0x0c, 0, 2, b'a', 0xc3]);
}

fn write_availability() {
    for len in [44, 45, 1200] {
        let query = QueryRepr { nonce: u64::from_be_bytes(noise()), len };
        write("availability", &format!("query-{len}"), &emitted(|buffer| query.emit(buffer)));
    }
    let answer = AnswerRepr { flags: 0, nonce: u64::from_be_bytes(noise()), public_key: noise() };
    let bytes = emitted(|buffer| answer.emit(buffer));
    write("availability", "answer", &bytes);
    write("availability", "bad-answer-short", &bytes[..43]);
    let mut bytes = vec![5, 1, 0, 0];
    bytes.resize(43, 0);
    write("availability", "bad-query-smaller-than-answer", &bytes);
}

fn write_packet_numbers() {
    for (name, received, acked, number) in [
        ("next", 1000, 1000, 1001),
        ("rfc-9000-a-3", 0xa82f_30ea, 0xa82f_30ea, 0xa82f_9b32),
        ("half-of-1-byte", 1127, 1000, 1128),
        ("half-of-2-bytes", 1000, 1000, 1000 + 0x8000),
        ("half-of-4-bytes", 0, 0, (1 << 31) - 1),
        ("last", PACKET_NUMBER_MAX - 1, PACKET_NUMBER_MAX - 2, PACKET_NUMBER_MAX),
        ("bad-acked-already", 1000, 1000, 1000),
        ("bad-beyond-the-largest", u64::MAX, u64::MAX - 1, u64::MAX),
    ] {
        let bytes: Vec<u8> = [received, acked, number].map(u64::to_be_bytes).concat();
        write("packet_number", name, &bytes);
    }
}
