//! How many SYNs are answered.
//!
//! An answer goes to the source address of the SYN, which may be forged. Without a limit, an
//! attacker could make a node flood others, and a flooded node would do little else.

use core::time::Duration;

use mpip_types::Instant;

/// Limit of answers to all sources together. At 5 µs each, they take 5 % of a core. Range: 100 to
/// 100,000 per second; the lower it is, the easier a flood keeps others from opening connections.
const OVERALL: Rate = Rate { per_second: 10_000, burst: 1_000 };
/// Limit of answers to one source. It suffices for a hundred hosts behind one address that restart
/// at once (each repeats its SYN), and sends at most 4 kB/s to a victim. Range: 5 to 500 per
/// second.
const OF_SOURCE: Rate = Rate { per_second: 50, burst: 100 };
/// Number of hash values of sources. Their limits add up to five times the overall limit, so a
/// flood from forged addresses meets that limit before it exhausts those of other sources.
const BUCKETS: usize = 1_024;

/// A rate limit.
#[derive(Clone, Copy, Debug)]
struct Rate {
    per_second: u32,
    burst: u32,
}

/// A bucket of tokens, as the time at which it will be full.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket(Instant);

impl Bucket {
    fn take(&mut self, now: Instant, rate: Rate) -> bool {
        let token = Duration::from_secs(1) / rate.per_second;
        let full = self.0.max(now);
        let allowed = full.since(now) <= token * (rate.burst - 1);
        if allowed {
            self.0 = full + token;
        }
        allowed
    }
}

/// Counts the answers of one endpoint.
#[derive(Debug)]
pub(crate) struct Limiter {
    overall: Bucket,
    sources: Box<[Bucket; BUCKETS]>,
}

impl Default for Limiter {
    fn default() -> Self {
        Self { overall: Bucket::default(), sources: Box::new([Bucket::default(); BUCKETS]) }
    }
}

impl Limiter {
    /// Whether one more answer may go to the source with this keyed hash.
    pub(crate) fn take(&mut self, now: Instant, hash: u64) -> bool {
        let source = &mut self.sources[hash as usize % BUCKETS];
        // In this order, a source over its limit takes nothing from the others.
        source.take(now, OF_SOURCE) && self.overall.take(now, OVERALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(limiter: &mut Limiter, now: Instant, hashes: impl Iterator<Item = u64>) -> usize {
        hashes.filter(|hash| limiter.take(now, *hash)).count()
    }

    #[test]
    fn one_source_has_its_limit_and_leaves_the_others_theirs() {
        let mut limiter = Limiter::default();
        let mut now = Instant::from_millis(5);
        assert_eq!(taken(&mut limiter, now, [7; 5_000].into_iter()), 100);
        assert_eq!(taken(&mut limiter, now, 8..1_000), 900);
        for _ in 0..10 {
            now += Duration::from_secs(1);
            assert_eq!(taken(&mut limiter, now, [7; 5_000].into_iter()), 50);
        }
        now += Duration::from_secs(1_000);
        assert_eq!(taken(&mut limiter, now, [7; 5_000].into_iter()), 100);
    }

    #[test]
    fn all_sources_together_have_a_limit() {
        let mut limiter = Limiter::default();
        let mut now = Instant::from_millis(5);
        let mut sum = 0;
        for round in 0..1_000 {
            sum += taken(&mut limiter, now, round * 100..round * 100 + 100);
            now += Duration::from_millis(1);
        }
        assert_eq!(sum, 1_000 + 10 * 999);
    }
}
