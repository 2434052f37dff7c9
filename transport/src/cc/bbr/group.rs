//! Paths that share a bottleneck: all of them together are one flow.
//!
//! Each believes the most that it has delivered of late. Whatever one of them takes in a round trip
//! the others miss, and what all believe together grows beyond what the bottleneck ever gave them:
//! a queue stands, and others lose their share (the reason for coupling in seed 002; Han et al.,
//! "Leveraging coupled BBR and adaptive packet scheduling to boost MPTCP", IEEE Transactions on
//! Wireless Communications 2021). So while a queue stands, the belief of all is bounded by what all
//! have delivered at the same time, and what a flow sends and keeps beyond it is shared. Without a
//! queue nobody is harmed, and where rates vary the bound, which is below the mean of all then,
//! would take more each time.

use super::model::MaxFilter;

/// What a path knows of those with which it shares a bottleneck.
#[derive(Debug)]
pub(super) struct Group {
    /// The paths, this one included.
    paths: f64,
    /// Bytes/s that this one delivered in the last round trip.
    last: f64,
    /// Bytes/s that all delivered in the same round trip.
    together: MaxFilter,
    part: f64,
    /// A queue stands although this path does not probe.
    queue: bool,
}

impl Default for Group {
    fn default() -> Self {
        Self { paths: 1.0, last: 0.0, together: MaxFilter::default(), part: 1.0, queue: false }
    }
}

impl Group {
    /// This path has delivered at `rate` in a round trip and believes `believed`, bytes/s; `others`
    /// are what the others have delivered and believe.
    pub(super) fn on_round(
        &mut self,
        rate: f64,
        believed: f64,
        others: impl Iterator<Item = (u64, u64)>,
    ) {
        let (mut paths, mut together, mut believed) = (1.0, rate, believed);
        for (delivered, most) in others {
            paths += 1.0;
            together += delivered as f64;
            believed += most as f64;
        }
        if paths != self.paths {
            *self = Self { paths, queue: self.queue, ..Self::default() };
        }
        self.last = rate;
        self.together.update(together);
        let alone = paths == 1.0 || believed <= 0.0;
        self.part = if alone { 1.0 } else { (self.together.max() / believed).min(1.0) };
    }

    /// Whether a queue stands while this path sends no more than it believes to be delivered.
    pub(super) fn on_queue(&mut self, stands: bool) {
        self.queue = stands;
    }

    /// The paths that share a queue.
    fn sharing(&self) -> f64 {
        if self.queue { self.paths } else { 1.0 }
    }

    /// A round trip has shown what the path delivers.
    pub(super) fn advance(&mut self) {
        self.together.advance();
    }

    /// Bytes/s of the last round trip.
    pub(super) fn last(&self) -> f64 {
        self.last
    }

    /// The share of what this path believes that the bottleneck has for it, up to 1.
    pub(super) fn part(&self) -> f64 {
        if self.queue { self.part } else { 1.0 }
    }

    /// The gain with which one of the paths probes, where `gain` is that of a flow alone: so that
    /// all add what one would.
    pub(super) fn probe_gain(&self, gain: f64) -> f64 {
        1.0 + (gain - 1.0) / self.sharing()
    }

    /// The same for windows. What is kept in flight beyond the volume is for what varies from round
    /// trip to round trip, which the paths have in common only partly: it adds up with the root
    /// of their number.
    pub(super) fn window_gain(&self, gain: f64) -> f64 {
        1.0 + (gain - 1.0) / self.sharing().sqrt()
    }

    /// This path's share of bytes that the bottleneck delivers in one burst.
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
        assert_eq!((group.part(), group.last()), (1.0, 1_000.0));
        assert_eq!((group.probe_gain(1.25), group.window_gain(2.0)), (1.25, 2.0));
        assert_eq!(group.burst(5_000.0), 5_000.0);
    }

    /// One behind a queue.
    fn queued() -> Group {
        Group { queue: true, ..Group::default() }
    }

    #[test]
    fn what_all_believe_is_bounded_by_what_all_delivered_at_once() {
        let mut group = queued();
        // They take turns: 3,000 and 1,000 of 4,000, and each remembers its better round.
        group.on_round(3_000.0, 3_000.0, [(1_000, 1_000)].into_iter());
        assert_eq!(group.part(), 1.0);
        group.on_round(1_000.0, 3_000.0, [(3_000, 3_000)].into_iter());
        assert!((group.part() - 4_000.0 / 6_000.0).abs() < 1e-9);
        // What was delivered stays known for as long as a path's own rate.
        (0..9).for_each(|_| group.advance());
        group.on_round(500.0, 3_000.0, [(500, 3_000)].into_iter());
        assert!((group.part() - 4_000.0 / 6_000.0).abs() < 1e-9);
        group.advance();
        group.on_round(500.0, 500.0, [(500, 500)].into_iter());
        assert_eq!(group.part(), 1.0);
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
        assert!(group.part() < 0.5);
        group.on_round(1_000.0, 3_000.0, [].into_iter());
        assert_eq!(group.part(), 1.0);
    }

    #[test]
    fn without_a_queue_nothing_is_shared() {
        let mut group = queued();
        group.on_round(1_000.0, 3_000.0, [(1_000, 3_000)].into_iter());
        group.on_queue(false);
        assert_eq!((group.part(), group.probe_gain(1.25)), (1.0, 1.25));
        group.on_queue(true);
        assert!(group.part() < 0.5 && group.probe_gain(1.25) < 1.25);
    }
}
