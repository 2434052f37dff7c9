//! Capacity of an idle path, by how much longer many bytes take than few (variable packet size
//! probing: Bellovin 1992; Jacobson's `pathchar`, 1997).
//!
//! What leaves at the same instant on an idle path is a train. Its last datagram arrives later than
//! a small one alone by the time in which the slowest link transmits the rest. One-way delays
//! count, by the receiver's clock: the peer's own probes may fill the way back meanwhile. Jitter
//! only ever makes a train later, so the fastest of a few counts.

use core::num::NonZeroU32;

use mpip_types::Instant;

use crate::parameters::CapacityParameters;

/// Most bytes of a small train: a heartbeat, or an acknowledgement of the inner TCP.
const SMALL: u32 = 300;
/// Least bytes of a large one.
const LARGE: u32 = 1_000;
/// Trains of each kind that are compared.
const SAMPLES: usize = 4;

/// How long a train took.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    /// From its departure, by our clock, to the arrival of its last datagram, by the peer's: µs
    /// modulo 2^32.
    took: u32,
    bytes: NonZeroU32,
}

impl Sample {
    /// By how much it took longer than `other`, µs; negative if it was faster.
    fn longer_than(&self, other: &Self) -> i32 {
        self.took.wrapping_sub(other.took) as i32
    }
}

/// What the fastest large train says.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    /// Bytes/s.
    rate: u64,
    /// By how much it took longer than the fastest small one, µs.
    longer: u32,
}

/// The measurement.
#[derive(Clone, Debug)]
pub(crate) struct Capacity {
    parameters: CapacityParameters,
    /// When the newest train left, its bytes, and the number of its last datagram.
    left_at: Instant,
    bytes: u32,
    last: u64,
    /// Small trains to compare them with, the first ones in the window: as many as large ones, so
    /// that the fastest of both had the same luck with jitter.
    small: [Option<Sample>; SAMPLES],
    /// Mean deviation of how long small trains take, µs, 0 before the second. Only these show the
    /// jitter: large ones are slower by the time in which the link transmits them, and a
    /// transfer's packets by its queue.
    small_deviation: f64,
    large: [Option<Sample>; SAMPLES],
    newest_is_small: bool,
    estimate: Option<Estimate>,
    /// Large trains so far, and long heartbeats.
    taken: u32,
    long: u32,
}

impl Capacity {
    /// Nothing is known.
    pub(crate) fn new(parameters: &CapacityParameters) -> Self {
        Self {
            parameters: *parameters,
            left_at: Instant::ZERO,
            bytes: 0,
            last: 0,
            small: [None; SAMPLES],
            large: [None; SAMPLES],
            small_deviation: 0.0,
            newest_is_small: false,
            estimate: None,
            taken: 0,
            long: 0,
        }
    }

    /// A datagram of `size` bytes leaves, for which feedback is expected. `idle`: nothing was in
    /// flight.
    pub(crate) fn on_sent(&mut self, now: Instant, number: u64, size: usize, idle: bool) {
        if self.left_at != now {
            if !idle {
                return;
            }
            (self.left_at, self.bytes) = (now, 0);
        }
        self.bytes = self.bytes.saturating_add(size as u32);
        self.last = number;
    }

    /// Datagram `number` is the newest that has arrived, at `received_at` by the peer's clock.
    pub(crate) fn on_arrived(&mut self, now: Instant, number: u64, received_at: u32) {
        let Some(bytes) = NonZeroU32::new(self.bytes).filter(|_| number == self.last) else {
            return;
        };
        self.bytes = 0;
        let took = received_at.wrapping_sub(self.left_at.as_micros() as u32);
        let sample = Sample { at: now, took, bytes };
        let fresh = |sample: &Sample| now.since(sample.at) < self.parameters.window;
        self.newest_is_small = bytes.get() <= SMALL;
        if self.newest_is_small {
            let free = self.small.iter_mut().find(|small| !small.as_ref().is_some_and(fresh));
            if let Some(free) = free {
                *free = Some(sample);
                let deviation = self.deviation(|sample| fresh(sample));
                self.small_deviation = deviation.unwrap_or(self.small_deviation);
            }
        } else if bytes.get() >= LARGE {
            self.large.rotate_right(1);
            self.large[0] = Some(sample);
            self.taken = self.taken.saturating_add(1);
        } else {
            return;
        }
        let small = self.small.iter().flatten().filter(|sample| fresh(sample));
        let Some(small) = small.min_by(|a, b| a.longer_than(b).cmp(&0)) else { return };
        let large = self.large.iter().flatten().filter(|sample| fresh(sample));
        let resolution = self.parameters.resolution.as_micros() as i32;
        let estimates = large.map(|large| {
            let longer = large.longer_than(small).max(resolution).max(1) as u32;
            let bytes = u64::from(large.bytes.get() - small.bytes.get());
            Estimate { rate: bytes * 1_000_000 / u64::from(longer), longer }
        });
        self.estimate = estimates.max_by_key(|estimate| estimate.rate).or(self.estimate);
    }

    /// Whether the heartbeat that is about to be sent is to be long: few large trains have been
    /// sent, and the newest one was small.
    pub(crate) fn take_long(&mut self) -> bool {
        let CapacityParameters { enabled, wanted, long, .. } = self.parameters;
        let takes = enabled && self.newest_is_small && self.taken < wanted && self.long < long;
        self.long += u32::from(takes);
        takes
    }

    /// Mean deviation of how long the small trains `in_window` took, µs, without bias; `None` for
    /// fewer than two.
    fn deviation(&self, in_window: impl Fn(&&Sample) -> bool) -> Option<f64> {
        let samples = || self.small.iter().flatten().filter(&in_window);
        let first = samples().next()?;
        let times = || samples().map(|sample| f64::from(sample.longer_than(first)));
        let count = times().count() as f64;
        let mean = times().sum::<f64>() / count;
        let sum: f64 = times().map(|time| (time - mean).abs()).sum();
        (count >= 2.0).then(|| sum / (count * (count - 1.0)).sqrt())
    }

    /// The capacity, bytes/s, if it is known. A difference within the jitter says nothing.
    pub(crate) fn rate(&self) -> Option<u64> {
        let CapacityParameters { enabled, deviations, .. } = self.parameters;
        let least = self.small_deviation * deviations;
        let estimate = self.estimate.filter(|found| enabled && f64::from(found.longer) >= least);
        estimate.map(|estimate| estimate.rate)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use proptest::prelude::*;

    /// An idle path, a train of which arrives alone.
    struct Link {
        capacity: Capacity,
        now: Instant,
        number: u64,
        bytes_per_ms: u64,
        /// The peer's clock is ahead by this, µs.
        ahead: u32,
    }

    impl Link {
        fn new(bytes_per_ms: u64) -> Self {
            let now = Instant::from_millis(1_000);
            Self {
                capacity: Capacity::new(&CapacityParameters::default()),
                now,
                number: 0,
                bytes_per_ms,
                ahead: u32::MAX - 9,
            }
        }

        /// Sends datagrams of these sizes at once; the last arrives late by `jitter` µs.
        fn train(&mut self, sizes: &[usize], jitter: u64) {
            for (index, size) in sizes.iter().enumerate() {
                self.number += 1;
                self.capacity.on_sent(self.now, self.number, *size, index == 0);
            }
            let bytes: u64 = sizes.iter().map(|size| *size as u64).sum();
            let took = 20_000 + bytes * 1_000 / self.bytes_per_ms + jitter;
            let arrived = (self.now.as_micros() + took) as u32;
            self.now += Duration::from_micros(took + 20_000);
            self.capacity.on_arrived(self.now, self.number, arrived.wrapping_add(self.ahead));
        }
    }

    #[test]
    fn the_capacity_is_what_more_bytes_take_longer() {
        for bytes_per_ms in [125, 1_000, 12_500] {
            let mut link = Link::new(bytes_per_ms);
            link.train(&[1_500, 40], 0);
            assert_eq!(link.capacity.rate(), None, "nothing to compare with");
            link.train(&[40], 0);
            let rate = link.capacity.rate().expect("both are known");
            let error = rate.abs_diff(bytes_per_ms * 1_000) as f64 / rate as f64;
            assert!(error < 0.02, "{rate} of {bytes_per_ms} kB/s");
        }
    }

    #[test]
    fn the_fastest_trains_count() {
        let mut link = Link::new(1_000);
        for jitter in [300, 0, 150] {
            link.train(&[40], jitter);
        }
        for jitter in [9_000, 4_000, 200] {
            link.train(&[1_040], jitter);
        }
        let rate = link.capacity.rate().expect("both are known");
        assert!((800_000..=1_000_000).contains(&rate), "{rate}");
    }

    #[test]
    fn a_difference_within_the_jitter_of_small_trains_says_nothing() {
        let rate = |jitter| {
            let mut link = Link::new(1_000);
            for round in 0..40 {
                link.train(&[40], if round % 2 == 0 { 0 } else { jitter });
            }
            link.train(&[1_040], 0);
            link.capacity.rate()
        };
        assert_eq!((rate(400), rate(600)), (Some(1_000_000), None));
    }

    #[test]
    fn two_small_trains_show_the_jitter() {
        let mut link = Link::new(12_500);
        link.train(&[40], 0);
        link.train(&[1_040], 60_000);
        link.train(&[40], 40_000);
        assert_eq!(link.capacity.rate(), None);
    }

    #[test]
    fn a_slow_links_own_large_trains_are_no_jitter() {
        let mut link = Link::new(125);
        for size in [40, 1_500, 40, 1_500, 40, 1_500, 40] {
            link.train(&[size], 0);
        }
        assert_eq!(link.capacity.rate(), Some(125_000));
    }

    #[test]
    fn a_datagram_behind_others_in_flight_says_nothing() {
        let mut link = Link::new(1_000);
        link.train(&[40], 0);
        link.capacity.on_sent(link.now, 7, 1_400, false);
        link.capacity.on_arrived(link.now + Duration::from_millis(90), 7, 0);
        assert_eq!(link.capacity.rate(), None);
    }

    #[test]
    fn every_other_heartbeat_is_long_until_there_are_three_large_trains() {
        let mut link = Link::new(1_000);
        let mut long = Vec::new();
        for _ in 0..10 {
            long.push(link.capacity.take_long());
            link.train(&[if long[long.len() - 1] { 1_400 } else { 40 }], 0);
        }
        assert_eq!(long[..7], [false, true, false, true, false, true, false]);
        assert!(long[7..].iter().all(|long| !long));
    }

    #[test]
    fn six_long_heartbeats_are_sent_at_most() {
        let mut capacity = Link::new(1_000);
        capacity.train(&[40], 0);
        let long = (0..20).filter(|_| capacity.capacity.take_long());
        assert_eq!(long.count(), 6, "none is known to have arrived");
    }

    #[test]
    fn what_is_old_is_not_compared_with_what_is_new() {
        let mut link = Link::new(1_000);
        for size in [40, 40, 1_040] {
            link.train(&[size], 0);
        }
        let before = link.capacity.rate();
        assert_eq!(before, Some(1_000_000));
        // The clocks drift apart by 2 ms, and nothing large is sent.
        link.now += CapacityParameters::default().window;
        link.ahead = link.ahead.wrapping_add(2_000);
        link.train(&[40], 0);
        assert_eq!(link.capacity.rate(), before, "the old estimate stays");
        link.train(&[1_040], 0);
        assert_eq!(link.capacity.rate(), before, "both are new");
    }

    proptest! {
        #[test]
        fn it_takes_whatever_arrives(
            steps in prop::collection::vec(
                (0u64..20_000_000, 0u64..4, 0usize..70_000, any::<bool>(), any::<u32>()), 0..60)
        ) {
            let mut capacity = Capacity::new(&CapacityParameters::default());
            let mut now = Instant::ZERO;
            for (pause, number, size, idle, received_at) in steps {
                now += Duration::from_micros(pause);
                capacity.on_sent(now, number, size, idle);
                capacity.on_arrived(now, number, received_at);
                let rate = capacity.rate();
                prop_assert!(rate.is_none_or(|rate| rate <= 70_000 * 61 * 10_000));
            }
        }
    }
}
