//! How many challenges repeat sooner while traffic flows.
//!
//! An address that did not answer may begin to work without a sign: a modem finds its network
//! again, a firewall is opened. Challenges back off to 20 s, and a transfer would miss the path for
//! as long. So a small share of what the other paths carry is spent on repeating them sooner.

use mpip_wire::CHALLENGE_DATAGRAM_LEN;

/// Bytes carried for each such challenge: 0.25 % is too little to notice, and pays for one
/// challenge a second at 4 Mbit/s.
const PRICE: u64 = 400 * CHALLENGE_DATAGRAM_LEN as u64;
/// Challenges that can be sent at once after a long time without any.
const BURST: u64 = 8;

/// Bytes that may be spent.
#[derive(Debug, Default)]
pub(crate) struct ChallengeBudget {
    /// Bytes carried so far, in both directions.
    carried: u64,
    /// Those of them that have not been spent.
    unspent: u64,
}

impl ChallengeBudget {
    /// `carried` bytes have been carried in all.
    pub(crate) fn earn(&mut self, carried: u64) {
        let new = carried.saturating_sub(self.carried);
        self.carried = carried;
        self.unspent = (self.unspent + new).min(BURST * PRICE);
    }

    /// Spends what a challenge costs, if there is enough.
    pub(crate) fn spend(&mut self) -> bool {
        let left = self.unspent.checked_sub(PRICE);
        self.unspent = left.unwrap_or(self.unspent);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_share_of_what_is_carried_is_spent() {
        let mut budget = ChallengeBudget::default();
        let mut spent = 0;
        for carried in (0..=12_000_000).step_by(10_000) {
            budget.earn(carried);
            while budget.spend() {
                spent += CHALLENGE_DATAGRAM_LEN;
            }
        }
        assert_eq!(spent, 30_000);
    }

    #[test]
    fn little_is_saved_up() {
        let mut budget = ChallengeBudget::default();
        budget.earn(u64::MAX);
        let count = (0..).take_while(|_| budget.spend()).count();
        assert_eq!(count, 8);
        budget.earn(u64::MAX);
        assert!(!budget.spend());
    }
}
