//! Interactive flows, recognised by what they do: they send little, in small packets.
//!
//! Voice, games, keystrokes, requests and DNS answers do; bulk transfers do not. Segments of TCP
//! without data never count: an inner TCP learns from them what its paths are like. Each session
//! has a credit in bytes that grows with time and that all its packets spend. A small packet for
//! which there is credit is interactive, and is treated as
//! [`Priority::Response`](crate::Priority::Response) unless a rule says something else.

use mpip_types::Instant;

use crate::parameters::InteractiveParameters;

/// Nanoseconds in a second.
const SECOND: u128 = 1_000_000_000;

/// The credit of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credit {
    /// What the session has spent, bytes; it sinks with time, to zero.
    spent: u64,
    /// When that was so.
    at: Option<Instant>,
}

impl Credit {
    /// Spends what `count` packets of `len` bytes cost. Returns whether they are interactive.
    pub(crate) fn spend(
        &mut self,
        now: Instant,
        count: usize,
        len: usize,
        parameters: &InteractiveParameters,
    ) -> bool {
        let since = self.at.map_or(0, |at| now.since(at).as_nanos());
        let earned = u128::from(parameters.rate) * since / SECOND;
        // Whole bytes only: the rest of the time counts again.
        if self.at.is_none() || earned > 0 {
            self.at = Some(now);
        }
        self.spent = self.spent.saturating_sub(u64::try_from(earned).unwrap_or(u64::MAX));
        let cost = (count * len) as u64;
        let permitted = self.spent + cost <= u64::from(parameters.burst);
        self.spent = (self.spent + cost).min(u64::from(parameters.burst));
        parameters.enabled && permitted && len <= parameters.small as usize
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    /// The share of `packets` packets of `len` bytes, one each `interval`, that are interactive.
    fn share(packets: u64, len: usize, interval: Duration) -> f64 {
        let parameters = InteractiveParameters::default();
        let mut credit = Credit::default();
        let interactive = (0..packets).filter(|packet| {
            let now = Instant::ZERO + interval * *packet as u32;
            credit.spend(now, 1, len, &parameters)
        });
        interactive.count() as f64 / packets as f64
    }

    #[test]
    fn voice_games_and_keystrokes_are_interactive() {
        assert_eq!(share(1_000, 200, Duration::from_millis(20)), 1.0, "voice");
        assert_eq!(share(1_000, 120, Duration::from_millis(16)), 1.0, "a game");
        assert_eq!(share(100, 76, Duration::from_millis(150)), 1.0, "keystrokes");
    }

    #[test]
    fn transfers_and_their_acknowledgements_are_not() {
        assert!(share(10_000, 1_400, Duration::from_millis(1)) < 0.001, "a transfer");
        assert!(share(10_000, 52, Duration::from_micros(250)) < 0.15, "acknowledgements");
        assert!(share(1_000, 1_100, Duration::from_millis(30)) < 0.01, "video");
    }

    #[test]
    fn small_packets_in_between_the_packets_of_a_transfer_are_not_interactive_until_it_rests() {
        let parameters = InteractiveParameters::default();
        let mut credit = Credit::default();
        let mut now = Instant::ZERO;
        for _ in 0..100 {
            now += Duration::from_millis(1);
            credit.spend(now, 10, 1_400, &parameters);
            assert!(!credit.spend(now, 1, 60, &parameters));
        }
        now += Duration::from_secs(1);
        assert!(credit.spend(now, 1, 60, &parameters), "it has rested");
    }

    #[test]
    fn credit_grows_however_often_it_is_asked_for() {
        let parameters = InteractiveParameters::default();
        let mut credit = Credit::default();
        let burst = parameters.burst as usize;
        assert!(!credit.spend(Instant::ZERO, 1, burst, &parameters), "not small");
        let mut now = Instant::ZERO;
        // A packet each 10 µs, for less than a byte of credit each.
        for _ in 0..200_000 {
            now += Duration::from_micros(10);
            credit.spend(now, 0, 0, &parameters);
        }
        assert!(credit.spend(now, 1, 300, &parameters), "two seconds have passed");
    }

    #[test]
    fn nothing_is_interactive_when_it_is_switched_off() {
        let parameters = InteractiveParameters { enabled: false, ..Default::default() };
        assert!(!Credit::default().spend(Instant::ZERO, 1, 60, &parameters));
    }
}
