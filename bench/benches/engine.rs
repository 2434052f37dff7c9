//! What a packet costs on its way out of one engine and into the other: full-size segments of
//! super-packets, and small packets. `aead` is the part of it that seals and opens full-size ones;
//! the rest is the engine's own.

mod pair;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use mpip_core::CongestionControlKind;
use mpip_crypto::{Aead, OpenKey, SealKey};
use pair::{PAYLOAD, Pair, SEGMENTS, SMALL};

fn engine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine");
    let mut pair = Pair::new(CongestionControlKind::default(), 1);
    let before = pair.delivered();
    pair.bulk();
    assert_eq!(pair.delivered() - before, u64::from(SEGMENTS), "every segment arrives");
    pair.small();
    let after = before + u64::from(SEGMENTS + SMALL);
    assert_eq!(pair.delivered(), after, "every packet arrives");
    group.throughput(Throughput::Elements(u64::from(SMALL)));
    group.bench_function("small", |bencher| bencher.iter(|| pair.small()));
    group.throughput(Throughput::Elements(u64::from(SEGMENTS)));
    group.bench_function("bulk", |bencher| bencher.iter(|| pair.bulk()));

    let aead = Aead::preferred(mpip_crypto::cpu_has_aes());
    let (seal, open) = (SealKey::new(aead, &[7; 32]), OpenKey::new(aead, &[7; 32]));
    let mut datagram = vec![0; usize::from(PAYLOAD) + 30];
    let mut number = 0;
    group.bench_function("aead", |bencher| {
        bencher.iter(|| {
            for _ in 0..SEGMENTS {
                let len = datagram.len() - 16;
                let (plain, tag) = datagram.split_at_mut(len);
                tag.copy_from_slice(&seal.seal_in_place(0, number, &[0; 9], plain));
                open.open_in_place(0, number, &[0; 9], &mut datagram).expect("sealed above");
                number += 1;
            }
        });
    });
    group.finish();
}

criterion_group!(benches, engine);
criterion_main!(benches);
