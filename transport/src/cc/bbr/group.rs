//! Paths that share a bottleneck act as one flow.
//!
//! Each path estimates its bandwidth as the maximum that it has delivered lately. What one path
//! delivers in a round trip is missing on the others, so the sum of the estimates exceeds the
//! bottleneck's rate. A queue forms, and other flows lose their share (the reason for coupling in
//! seed 002; Han et al., "Leveraging coupled BBR and adaptive packet scheduling to boost MPTCP",
//! IEEE Transactions on Wireless Communications 2021). So while there is a queue, the sum of the
//! estimates is bounded by what all paths have delivered in the same round trip, and probing and
//! headroom are shared. Without a queue there is no bound: it harms nobody, and with varying rates
//! the bound would shrink each time.

use super::model::MaxFilter;

/// What a path knows about the paths that share its bottleneck.
#[derive(Debug)]
pub(super) struct Group {
    /// Number of paths, this one included.
    paths: f64,
    /// Delivery rate of this path in the last round trip, bytes/s.
    last: f64,
    /// Sum of all delivery rates in the same round trip, bytes/s.
    together: MaxFilter,
    share: f64,
    /// There is a queue although this path does not probe.
    queue: bool,
}

impl Default for Group {
    fn default() -> Self {
        Self { paths: 1.0, last: 0.0, together: MaxFilter::default(), share: 1.0, queue: false }
    }
}

impl Group {
    /// This path has delivered at `rate` in a round trip; `max_bw` is its estimate. `others` are
    /// the same two values of the other paths. All in bytes/s.
    pub(super) fn on_round(
        &mut self,
        rate: f64,
        max_bw: f64,
        others: impl Iterator<Item = (u64, u64)>,
    ) {
        let (mut paths, mut together, mut max_bw) = (1.0, rate, max_bw);
        for (delivered, other_max_bw) in others {
            paths += 1.0;
            together += delivered as f64;
            max_bw += other_max_bw as f64;
        }
        if paths != self.paths {
            *self = Self { paths, queue: self.queue, ..Self::default() };
        }
        self.last = rate;
        self.together.update(together);
        let alone = paths == 1.0 || max_bw <= 0.0;
        self.share = if alone { 1.0 } else { (self.together.max() / max_bw).min(1.0) };
    }

    /// Whether there is a queue while this path sends no more than its estimated bandwidth.
    pub(super) fn on_queue(&mut self, stands: bool) {
        self.queue = stands;
    }

    /// Number of paths that share a queue.
    fn sharing(&self) -> f64 {
        if self.queue { self.paths } else { 1.0 }
    }

    /// Ends a round trip that has measured the path.
    pub(super) fn advance(&mut self) {
        self.together.advance();
    }

    /// Delivery rate of the last round trip, bytes/s.
    pub(super) fn last(&self) -> f64 {
        self.last
    }

    /// Factor for this path's estimate, so that all estimates together match the bottleneck; at
    /// most 1.
    pub(super) fn share(&self) -> f64 {
        if self.queue { self.share } else { 1.0 }
    }

    /// Probing gain of one path if a single flow uses `gain`: all paths together add what one flow
    /// would add.
    pub(super) fn probe_gain(&self, gain: f64) -> f64 {
        1.0 + (gain - 1.0) / self.sharing()
    }

    /// Window gain of one path if a single flow uses `gain`. The window beyond the bandwidth-delay
    /// product absorbs variation between round trips. The paths share it only in part, so it adds
    /// up with the square root of their number.
    pub(super) fn window_gain(&self, gain: f64) -> f64 {
        1.0 + (gain - 1.0) / self.sharing().sqrt()
    }

    /// This path's share of a burst of `bytes` at the bottleneck.
    pub(super) fn burst(&self, bytes: f64) -> f64 {
        bytes / self.sharing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_alone_is_a_flow_of_its_own() {
        let mut group = Group::default();
        group.on_round(1_000.0, 4_000.0, [].into_iter());
        assert_eq!((group.share(), group.last()), (1.0, 1_000.0));
        assert_eq!((group.probe_gain(1.25), group.window_gain(2.0)), (1.25, 2.0));
        assert_eq!(group.burst(5_000.0), 5_000.0);
    }

    /// A group with a queue.
    fn queued() -> Group {
        Group { queue: true, ..Group::default() }
    }

    #[test]
    fn what_all_believe_is_bounded_by_what_all_delivered_at_once() {
        let mut group = queued();
        // They take turns: 3,000 and 1,000 of 4,000. Each remembers its better round.
        group.on_round(3_000.0, 3_000.0, [(1_000, 1_000)].into_iter());
        assert_eq!(group.share(), 1.0);
        group.on_round(1_000.0, 3_000.0, [(3_000, 3_000)].into_iter());
        assert!((group.share() - 4_000.0 / 6_000.0).abs() < 1e-9);
        // The sum of the delivery rates is kept for as long as a path's own maximum.
        (0..9).for_each(|_| group.advance());
        group.on_round(500.0, 3_000.0, [(500, 3_000)].into_iter());
        assert!((group.share() - 4_000.0 / 6_000.0).abs() < 1e-9);
        group.advance();
        group.on_round(500.0, 500.0, [(500, 500)].into_iter());
        assert_eq!(group.share(), 1.0);
    }

    #[test]
    fn all_probe_and_wait_as_one() {
        let mut group = queued();
        group.on_round(1.0, 1.0, [(1, 1); 3].into_iter());
        assert_eq!((group.probe_gain(1.25), group.window_gain(2.0)), (1.0625, 1.5));
        assert_eq!(group.burst(4_000.0), 1_000.0);
    }

    #[test]
    fn a_path_that_leaves_the_group_is_free() {
        let mut group = queued();
        group.on_round(1_000.0, 3_000.0, [(1_000, 3_000)].into_iter());
        assert!(group.share() < 0.5);
        group.on_round(1_000.0, 3_000.0, [].into_iter());
        assert_eq!(group.share(), 1.0);
    }

    #[test]
    fn without_a_queue_nothing_is_shared() {
        let mut group = queued();
        group.on_round(1_000.0, 3_000.0, [(1_000, 3_000)].into_iter());
        group.on_queue(false);
        assert_eq!((group.share(), group.probe_gain(1.25)), (1.0, 1.25));
        group.on_queue(true);
        assert!(group.share() < 0.5 && group.probe_gain(1.25) < 1.25);
    }
}
