//! Rates between two samples of the status.

use std::collections::BTreeMap;

use mpip_api::{PathStatus, Status};

/// What a path carries, in bits per second of outer data where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) sent_bps: u64,
    pub(crate) received_bps: u64,
    /// Inner data sent.
    pub(crate) carried_bps: u64,
    /// Copies of inner data that went by another path at the same time.
    pub(crate) copied_bps: u64,
}

/// The rates of all paths between two samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates(BTreeMap<(String, u16), Rate>);

impl Rates {
    /// The rates from `before` to `after`. None for paths that are in one of them only, and if the
    /// daemon was started in between.
    pub(crate) fn between(before: &Status, after: &Status) -> Self {
        let elapsed_ms = after.uptime_ms - before.uptime_ms;
        if before.pid != after.pid || elapsed_ms <= 0.0 {
            return Self::default();
        }
        let former: BTreeMap<_, _> = paths(before).collect();
        let rate = |from: u64, to: u64| {
            // The cast saturates.
            to.checked_sub(from).map(|bytes| (bytes as f64 * 8e3 / elapsed_ms) as u64)
        };
        let rates = paths(after).filter_map(|(key, path)| {
            let from = former.get(&key).filter(|from| from.local == path.local)?;
            let sent_bps = rate(from.sent_bytes, path.sent_bytes)?;
            let received_bps = rate(from.received_bytes, path.received_bytes)?;
            let carried_bps = rate(from.carried_bytes, path.carried_bytes)?;
            let copied_bps = rate(from.copied_bytes, path.copied_bytes)?;
            let rate = Rate { sent_bps, received_bps, carried_bps, copied_bps };
            Some(((key.0.to_owned(), key.1), rate))
        });
        Self(rates.collect())
    }

    /// The rate of `path` of the peer with this name.
    pub(crate) fn of(&self, peer: &str, path: u16) -> Option<Rate> {
        self.0.get(&(peer.to_owned(), path)).copied()
    }
}

fn paths(status: &Status) -> impl Iterator<Item = ((&str, u16), &PathStatus)> {
    status
        .peers
        .iter()
        .flat_map(|peer| peer.paths.iter().map(move |path| ((peer.name.as_str(), path.id), path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_rate_is_what_was_carried_by_the_daemons_own_clock() {
        let before = example::status();
        let mut after = before.clone();
        after.uptime_ms += 250.0;
        after.peers[0].paths[0].sent_bytes += 125_000;
        after.peers[0].paths[0].received_bytes += 25;
        after.peers[0].paths[0].carried_bytes += 100_000;
        after.peers[0].paths[0].copied_bytes += 50_000;
        let rate = Rates::between(&before, &after).of("gateway", 0);
        let expected = Rate {
            sent_bps: 4_000_000,
            received_bps: 800,
            carried_bps: 3_200_000,
            copied_bps: 1_600_000,
        };
        assert_eq!(rate, Some(expected));
    }

    #[test]
    fn there_is_no_rate_across_a_restart_or_of_another_path_with_the_number() {
        let before = example::status();
        let mut after = before.clone();
        assert_eq!(Rates::between(&before, &after).of("gateway", 0), None, "no time passed");
        after.uptime_ms += 250.0;
        assert_eq!(Rates::between(&before, &after).of("gateway", 0), Some(Rate::default()));
        assert_eq!(Rates::between(&before, &after).of("gateway", 9), None);
        after.peers[0].paths[0].sent_bytes = 0;
        assert_eq!(Rates::between(&before, &after).of("gateway", 0), None, "a counter went back");
        after.pid += 1;
        assert_eq!(Rates::between(&before, &after).of("gateway", 1), None);
    }
}
