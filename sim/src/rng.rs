//! The source of all randomness of a world.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A seeded generator. Each purpose has its own [`stream`](Self::stream), so a change in one part
/// of a world does not change the choices of the others.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// The stream numbered `purpose` of the generator seeded with `seed`.
    pub fn stream(seed: u64, purpose: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(purpose);
        Self(rng)
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `0..bound`; 0 when `bound` is 0. The bias is below 2^-32 for the small bounds of
    /// a world.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Uniform in 0..1.
    pub fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with `probability`.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// 32 random bytes.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, purpose| {
            let mut rng = Rng::stream(seed, purpose);
            (0..8).map(|_| rng.word()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 1), draw(1, 1));
        assert_ne!(draw(1, 1), draw(1, 2));
        assert_ne!(draw(1, 1), draw(2, 1));
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut rng = Rng::stream(7, 0);
        let drawn: Vec<u64> = (0..200).map(|_| rng.between(3, 6)).collect();
        assert!(drawn.iter().all(|n| (3..=6).contains(n)));
        assert!((3..=6).all(|n| drawn.contains(&n)));
        assert_eq!(rng.below(0), 0);
    }
}
