//! Cost per full-size packet: sealing, opening, and the replay window.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use mpip_crypto::{
    Aead, Initiator, KEY_LEN, OpenKey, PresharedKey, PrivateKey, ReplayWindow, Responder, Rng,
    SealKey, TAG_LEN,
};

const PACKET: usize = 1400;
const HEADER: [u8; 16] = [4; 16];

fn seal_and_open(c: &mut Criterion) {
    let mut group = c.benchmark_group("aead");
    group.throughput(Throughput::Bytes(PACKET as u64));
    for aead in [Aead::Aes256Gcm, Aead::ChaCha20Poly1305] {
        let seal = SealKey::new(aead, &[7; KEY_LEN]);
        let open = OpenKey::new(aead, &[7; KEY_LEN]);
        let mut packet = vec![0x5a; PACKET];
        let mut number = 0;
        group.bench_function(format!("seal 1400 bytes, {aead}"), |b| {
            b.iter(|| {
                number += 1;
                black_box(seal.seal_in_place(1, number, &HEADER, &mut packet))
            });
        });

        let mut sealed = vec![0x5a; PACKET];
        let tag = seal.seal_in_place(1, 1, &HEADER, &mut sealed);
        sealed.extend_from_slice(&tag);
        let mut buffer = [0; PACKET + TAG_LEN];
        group.bench_function(format!("open 1400 bytes, {aead}"), |b| {
            b.iter(|| {
                // Opening consumes the ciphertext, so the time includes a copy of it.
                buffer.copy_from_slice(&sealed);
                black_box(open.open_in_place(1, 1, &HEADER, &mut buffer).is_ok())
            });
        });
    }
    group.finish();
}

fn replay_window(c: &mut Criterion) {
    let mut group = c.benchmark_group("replay window");
    let mut window = ReplayWindow::new();
    let mut number = 0;
    group.bench_function("check and commit, in order", |b| {
        b.iter(|| {
            number += 1;
            window.check(number).and_then(|()| window.commit(number))
        });
    });
    let mut window = ReplayWindow::new();
    let mut base = 0;
    group.bench_function("check and commit, 64 reversed", |b| {
        b.iter(|| {
            base += 64;
            for number in (base..base + 64).rev() {
                let _ = black_box(window.check(number).and_then(|()| window.commit(number)));
            }
        });
    });
    group.bench_function("refuse a duplicate", |b| b.iter(|| window.check(black_box(base))));
    group.finish();
}

fn handshake(c: &mut Criterion) {
    let mut rng = Rng::new([1; 32]);
    let local = PrivateKey::generate(&mut rng);
    let remote = PrivateKey::generate(&mut rng);
    let psk = PresharedKey::default();
    let mut group = c.benchmark_group("handshake");
    let start = |rng: &mut Rng| {
        Initiator::start(rng, &local, remote.public_key(), &psk, &[0; 24], 1).expect("a valid key")
    };
    group.bench_function("start", |b| b.iter(|| start(&mut rng)));
    let (_, initiation) = start(&mut rng);
    group.bench_function("read", |b| {
        b.iter(|| Responder::read(&mut rng, &remote, &initiation).expect("authentic"));
    });
    let mut other = rng.fork();
    group.bench_function("respond", |b| {
        b.iter_batched(
            || Responder::read(&mut rng, &remote, &initiation).expect("authentic"),
            |responder| responder.respond(&psk, &[0; 12], 2).expect("a valid key"),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("finish", |b| {
        b.iter_batched(
            || {
                let (initiator, initiation) = start(&mut other);
                let responder =
                    Responder::read(&mut other, &remote, &initiation).expect("authentic");
                (initiator, responder.respond(&psk, &[0; 12], 2).expect("a valid key").1)
            },
            |(mut initiator, response)| initiator.finish(&response).expect("authentic"),
            BatchSize::SmallInput,
        );
    });
    let mut forged = initiation;
    forged[140] ^= 1;
    group.bench_function("refuse by mac1", |b| {
        b.iter(|| Responder::read(&mut rng, &remote, black_box(&forged)).is_err());
    });
    group.finish();
}

criterion_group!(benches, seal_and_open, replay_window, handshake);
criterion_main!(benches);
