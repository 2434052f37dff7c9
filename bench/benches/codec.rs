//! Cost per datagram of writing and reading headers and frames, without cryptography.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use mpip_wire::{
    AckRange, EcnCounts, Feedback, Frame, FrameWriter, Frames, PacketFrameHeader, PathId, Ranges,
    ReceiverIndex, SessionId, TransportHeader, TransportPacket, TruncatedNumber, truncated_len,
};

const PACKET: [u8; 1400] = [0x45; 1400];

fn headers_of_a_packet(c: &mut Criterion) {
    let mut datagram = vec![0; 1500];
    let mut number = 1000;
    let mut group = c.benchmark_group("headers of a packet");
    group.bench_function("emit", |b| {
        b.iter(|| {
            number += 1;
            let header = TransportHeader {
                path: PathId(3),
                receiver: ReceiverIndex(0x1a2b_3c4d),
                number: TruncatedNumber::new(number, truncated_len(number, Some(number - 300))),
            };
            let frame =
                PacketFrameHeader { session: SessionId(5), sequence: number as u32, ordered: true };
            let start = header.emit(&mut datagram).unwrap_or(0);
            black_box(start + frame.emit(&mut datagram[start..]).unwrap_or(0))
        });
    });
    group.bench_function("parse", |b| {
        b.iter(|| {
            let packet = TransportPacket::new_checked(black_box(&datagram)).ok()?;
            let number = packet.header().number.expand(Some(1000));
            let frame = Frames::new(packet.sealed()).next()?.ok()?;
            Some((number, black_box(frame).is_ack_eliciting()))
        });
    });
    group.finish();
}

fn feedback(c: &mut Criterion) {
    let mut group = c.benchmark_group("feedback");
    let ranges: Vec<_> =
        (0..32).rev().map(|n| AckRange { first: 100 * n, last: 100 * n + 70 }).collect();
    for count in [1, 32] {
        let Ok(ranges) = Ranges::new(&ranges[..count]) else { return };
        let ecn = Some(EcnCounts { ect0: 70_000, ect1: 0, ce: 12 });
        let frame = Frame::Feedback(Feedback {
            path: PathId(3),
            received_at: 123_456_789,
            delay: 1000,
            ranges,
            ecn,
        });
        let header = PacketFrameHeader { session: SessionId(5), sequence: 1, ordered: true };
        let mut plaintext = vec![0; 2000];
        let mut write = || {
            let mut writer = FrameWriter::new(&mut plaintext);
            let written = writer.push(&frame).is_ok()
                && writer.push(&Frame::Packet { header, packet: &PACKET }).is_ok();
            black_box(written).then_some(writer.len())
        };
        let len = write().unwrap_or(0);
        group.bench_function(format!("write {count} ranges and a packet"), |b| b.iter(&mut write));
        group.bench_function(format!("read {count} ranges and a packet"), |b| {
            b.iter(|| {
                Frames::new(black_box(&plaintext[..len]))
                    .flatten()
                    .map(|frame| match frame {
                        Frame::Feedback(feedback) => {
                            feedback.ranges.iter().map(|range| range.last - range.first).sum()
                        }
                        Frame::Packet { packet, .. } => packet.len() as u64,
                        _ => 0,
                    })
                    .sum::<u64>()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, headers_of_a_packet, feedback);
criterion_main!(benches);
