//! A deterministic random generator with fast key erasure.

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use rand_core::{CryptoRng, RngCore, SeedableRng};
use zeroize::{Zeroize, Zeroizing};

use crate::erase::on_clean_stack;

/// Cryptographic random generator that depends only on its 32-byte seed.
///
/// Each request runs ChaCha20 (RFC 8439 section 2.4, nonce 0) under the current key; the first 32
/// bytes of key stream replace the key, the rest is the output ("fast key erasure", D. J.
/// Bernstein, 2017). Who steals the state later cannot compute earlier output.
///
/// The seed must come from the operating system in a daemon; a simulation uses a fixed one. Each
/// request costs at least one ChaCha20 block, so choices made per packet, which need not be secret,
/// are better drawn from a plain generator seeded by this one.
pub struct Rng {
    /// In one place, whoever moves the generator: from a key that was left somewhere follows all
    /// later output.
    key: Box<Zeroizing<[u8; 32]>>,
}

impl Rng {
    /// A generator whose whole output follows from `seed`, of which the caller's copy is the
    /// caller's to erase.
    pub fn new(mut seed: [u8; 32]) -> Self {
        let mut key = Box::<Zeroizing<[u8; 32]>>::default();
        key.copy_from_slice(&seed);
        seed.zeroize();
        Self { key }
    }

    /// Fills `out`, up to 256 GiB less one block, with random bytes and replaces the key.
    pub fn fill(&mut self, out: &mut [u8]) {
        on_clean_stack(|| {
            let key: &mut [u8; 32] = &mut self.key;
            let mut stream = ChaCha20::new((&*key).into(), &[0; 12].into());
            key.fill(0);
            stream.apply_keystream(key);
            out.fill(0);
            stream.apply_keystream(out);
        });
    }

    /// `N` random bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.fill(&mut out);
        out
    }

    /// A generator that is independent of the later output of this one.
    pub fn fork(&mut self) -> Self {
        let mut fork = Self { key: Box::default() };
        self.fill(&mut **fork.key);
        fork
    }
}

impl core::fmt::Debug for Rng {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Rng(redacted)")
    }
}

impl SeedableRng for Rng {
    type Seed = [u8; 32];

    fn from_seed(seed: Self::Seed) -> Self {
        Self::new(seed)
    }
}

impl RngCore for Rng {
    fn next_u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    fn next_u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    fn fill_bytes(&mut self, out: &mut [u8]) {
        self.fill(out);
    }
}

impl CryptoRng for Rng {}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439 appendix A.1, test vector 1: key stream of the zero key and nonce, counter 0.
    const ZERO_KEY_STREAM: [u8; 64] = [
        0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90, 0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86, 0xbd,
        0x28, 0xbd, 0xd2, 0x19, 0xb8, 0xa0, 0x8d, 0xed, 0x1a, 0xa8, 0x36, 0xef, 0xcc, 0x8b, 0x77,
        0x0d, 0xc7, 0xda, 0x41, 0x59, 0x7c, 0x51, 0x57, 0x48, 0x8d, 0x77, 0x24, 0xe0, 0x3f, 0xb8,
        0xd8, 0x4a, 0x37, 0x6a, 0x43, 0xb8, 0xf4, 0x15, 0x18, 0xa1, 0x1c, 0xc3, 0x87, 0xb6, 0x69,
        0xb2, 0xee, 0x65, 0x86,
    ];

    #[test]
    fn output_is_the_key_stream_after_the_next_key() {
        let mut rng = Rng::new([0; 32]);
        assert_eq!(rng.bytes::<32>(), ZERO_KEY_STREAM[32..]);
        assert_eq!(**rng.key, ZERO_KEY_STREAM[..32]);
    }

    #[test]
    fn the_same_seed_repeats_and_each_request_rekeys() {
        let (mut a, mut b) = (Rng::new([7; 32]), Rng::from_seed([7; 32]));
        let mut keys = std::collections::BTreeSet::new();
        for len in [0, 1, 31, 32, 33, 1000] {
            let (mut x, mut y) = (vec![0; len], vec![1; len]);
            a.fill(&mut x);
            b.fill_bytes(&mut y);
            assert_eq!(x, y);
            assert!(keys.insert(**a.key), "the key did not change after {len} bytes");
        }
        assert_eq!(a.next_u64(), b.next_u64());
        assert_ne!(a.next_u32(), a.next_u32());
    }

    #[test]
    fn a_fork_is_another_stream() {
        let mut parent = Rng::new([3; 32]);
        let mut child = parent.fork();
        assert_ne!(parent.bytes::<32>(), child.bytes::<32>());
    }

    #[test]
    fn debug_shows_no_key() {
        assert_eq!(format!("{:?}", Rng::new([0xab; 32])), "Rng(redacted)");
    }
}
