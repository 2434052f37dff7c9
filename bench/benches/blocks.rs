//! The engine's building blocks, each alone: what they cost per packet or segment.

use core::convert::Infallible;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use mpip_core::omission::{HEAD_MAX, SessionHeader, fields};
use mpip_core::packet::{Header, Segments};
use mpip_core::parameters::ReleaseParameters;
use mpip_core::queue::SendQueue;
use mpip_core::resequencer::{Hold, HoldLimits, HoldPool, Resequencer, Share};
use mpip_core::rules::{KnownRules, Origin, RuleTable, matches};
use mpip_core::window::DuplicateWindow;
use mpip_core::{
    Checksum, InnerPacket, Instant, Offload, PacketBuf, PacketPool, PartialChecksum, Priority,
    Rule, Segmentation, SegmentationKind,
};

const SEGMENT: u16 = 1_400;

/// A TCP super-packet of `segments` full segments.
fn super_packet(segments: usize) -> PacketBuf {
    let len = 40 + segments * usize::from(SEGMENT);
    let partial_checksum = Some(PartialChecksum { start: 20, offset: 16 });
    let segmentation = Some(Segmentation { kind: SegmentationKind::Tcp, size: SEGMENT });
    let filled = PacketPool::new(1, 1).fill(|buffer| {
        buffer[..len].fill(0x5a);
        buffer[..12].copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0]);
        buffer[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        buffer[12..20].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
        buffer[32] = 0x50;
        Ok::<_, Infallible>((len, Offload { partial_checksum, segmentation }))
    });
    filled.expect("a buffer").expect("no error")
}

fn segments(packet: &PacketBuf) -> Segments {
    let header = Header::parse(packet.bytes()).expect("a valid packet");
    Segments::new(packet.clone(), &header).expect("a valid super-packet")
}

fn packet(criterion: &mut Criterion) {
    let packet = super_packet(46);
    let cut = segments(&packet);
    let mut group = criterion.benchmark_group("packet");
    group.throughput(Throughput::Bytes(cut.segment_len(0) as u64));
    let mut out = [0; 2_048];
    let mut index = 0;
    group.bench_function("segment_write", |bencher| {
        bencher.iter(|| {
            index = (index + 1) % cut.count();
            cut.write(black_box(index), &mut out)
        });
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("parse_and_plan", |bencher| bencher.iter(|| segments(black_box(&packet))));
    group.finish();
}

fn resequencer(criterion: &mut Criterion) {
    let limits = HoldLimits {
        max_wait: Duration::from_millis(100),
        max_bytes: 1 << 20,
        not_before: Instant::ZERO,
        in_bursts: false,
    };
    let packet = InnerPacket { head: &[0; 40], tail: &[0; 1_400], checksum: Checksum::Complete };
    let now = Instant::from_millis(1);
    let mut group = criterion.benchmark_group("resequencer");
    group.throughput(Throughput::Elements(1));
    let mut pool = HoldPool::new(1 << 25, ReleaseParameters::default());
    let mut share = Share::new(1 << 24);
    let mut hold = Hold::new(&mut pool, &mut share);
    let mut session = Resequencer::new();
    let mut sequence = 0;
    let mut delivered = 0usize;
    group.bench_function("in_order", |bencher| {
        bencher.iter(|| {
            session.receive(now, black_box(sequence), packet, limits, &mut hold, |packet| {
                delivered += packet.len();
            });
            sequence = sequence.wrapping_add(1);
        });
    });
    let mut session = Resequencer::new();
    let mut at = 0u32;
    group.throughput(Throughput::Elements(8));
    group.bench_function("reordered_by_7", |bencher| {
        bencher.iter(|| {
            for ahead in [1, 2, 3, 4, 5, 6, 7, 0] {
                let sequence = at.wrapping_add(ahead);
                session.receive(now, black_box(sequence), packet, limits, &mut hold, |packet| {
                    delivered += packet.len();
                });
            }
            at = at.wrapping_add(8);
        });
    });
    let mut window = DuplicateWindow::new();
    let mut sequence = 0u32;
    group.throughput(Throughput::Elements(1));
    group.bench_function("duplicate_window", |bencher| {
        bencher.iter(|| {
            sequence = sequence.wrapping_add(1);
            window.accept(black_box(sequence))
        });
    });
    group.finish();
    black_box(delivered);
}

fn queue(criterion: &mut Criterion) {
    let now = Instant::from_millis(1);
    let single = segments(&super_packet(1));
    let many = segments(&super_packet(46));
    let mut group = criterion.benchmark_group("queue");
    group.throughput(Throughput::Elements(1));
    let mut queue = SendQueue::new(1 << 24, 64);
    let mut flow = 0;
    group.bench_function("push_and_take", |bencher| {
        bencher.iter(|| {
            flow = (flow + 1) % 64;
            queue.push(now, flow, Priority::Throughput, single.clone());
            black_box(queue.next(now).map(|candidate| candidate.len));
            queue.take()
        });
    });
    group.throughput(Throughput::Elements(many.count() as u64));
    group.bench_function("super_packet_push_and_take_all", |bencher| {
        bencher.iter_batched(
            || many.clone(),
            |item| {
                queue.push(now, 0, Priority::Throughput, item);
                while queue.next(now).is_some() {
                    queue.take();
                }
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// A thousand rules, of which the last one matches.
fn rules(criterion: &mut Criterion) {
    let rule = |number: u16| Rule {
        protocol: Some(6),
        remote_prefix: format!("198.19.{}.{}", number / 256, number % 256).parse().ok(),
        remote_port: Some(1_000 + number..=1_000 + number),
        ..Rule::default()
    };
    let all: Vec<Rule> = (0..999).map(rule).chain([Rule::default()]).collect();
    let table = RuleTable::new(all.clone());
    // One that matches every session, and none of these packets.
    let short = Rule { length: Some(0..=60), ..Rule::default() };
    let with_length = RuleTable::new([short].into_iter().chain(all).collect());
    let packet = super_packet(1);
    let header = Header::parse(packet.bytes()).expect("a valid packet");
    let mut group = criterion.benchmark_group("rules");
    group.throughput(Throughput::Elements(1));
    let len = packet.bytes().len();
    group.bench_function("1000_new_session", |bencher| {
        bencher.iter(|| {
            let mut known = KnownRules::default();
            table.treatment_in(&mut known, "peer", black_box(&header), len)
        });
    });
    for (name, table) in [("1000_known_session", &table), ("1001_one_by_length", &with_length)] {
        let mut known = KnownRules::default();
        group.bench_function(name, |bencher| {
            bencher.iter(|| table.treatment_in(&mut known, "peer", black_box(&header), len));
        });
    }
    group.bench_function("1000_not_remembered", |bencher| {
        bencher.iter(|| table.treatment("peer", black_box(&header), len));
    });
    // What the index saves.
    group.bench_function("1000_compared", |bencher| {
        let origin = Origin { peer: Some("peer"), interface: None };
        let rules = table.rules();
        bencher
            .iter(|| rules.iter().position(|rule| matches(rule, origin, black_box(&header), len)));
    });
    group.bench_function("1000_build", |bencher| {
        bencher.iter_batched(|| table.rules().to_vec(), RuleTable::new, BatchSize::LargeInput);
    });
    group.finish();
}

fn omission(criterion: &mut Criterion) {
    let cut = segments(&super_packet(2));
    let mut packet = [0; 2_048];
    let len = cut.write(0, &mut packet);
    // The data of a segment serves as timestamps.
    packet[32] = 0x80;
    packet[40..44].copy_from_slice(&[1, 1, 8, 10]);
    packet[33] = 0x10;
    let packet = &packet[..len];
    let Some(fields) = fields(7, packet) else { return };
    let Some(known) = SessionHeader::new(&fields) else { return };
    let Some(compact) = known.compress_valid(8, packet, len) else { return };
    let form = [compact.bytes(), &packet[compact.payload()..]].concat();
    let mut head = [0; HEAD_MAX];
    let Ok(whole) = known.restore(8, &form, Checksum::Complete, &mut head) else { return };
    let packet = [&head[..whole.head_len], &form[whole.payload..]].concat();
    let mut group = criterion.benchmark_group("omission");
    group.throughput(Throughput::Elements(1));
    group.bench_function("compress_valid", |bencher| {
        bencher.iter(|| known.compress_valid(8, black_box(&packet), len).map(|c| c.bytes().len()));
    });
    group.bench_function("compress_and_verify", |bencher| {
        bencher.iter(|| known.compress(8, black_box(&packet)).map(|c| c.bytes().len()));
    });
    for (name, checksum) in
        [("restore_partial", Checksum::Partial), ("restore_complete", Checksum::Complete)]
    {
        group.bench_function(name, |bencher| {
            bencher.iter(|| known.restore(8, black_box(&form), checksum, &mut head));
        });
    }
    group.finish();
}

criterion_group!(benches, packet, resequencer, queue, rules, omission);
criterion_main!(benches);
