//! How many challenges repeat sooner while traffic flows.
//!
//! An address that did not answer may begin to work without a sign: a modem finds its network
//! again, a firewall is opened. Challenges back off to 20 s, and a transfer would miss the path for
//! as long. So a small share of what the other paths carry is spent on repeating them sooner.

/// Bytes carried for each byte of such challenges: 0.25 % is too little to notice, and pays for one
/// challenge a second at 4 Mbit/s.
const CARRIED_PER_BYTE: u64 = 400;
/// Challenges that can be sent at once after a long time without any.
const BURST: u64 = 8;

/// Bytes that may be spent.
#[derive(Debug, Default)]
pub(crate) struct ChallengeBudget {
    /// Bytes carried so far, in both directions.
    carried: u64,
    /// Of these, what has not been spent; a challenge costs its bytes times [`CARRIED_PER_BYTE`].
    unspent: u64,
}

impl ChallengeBudget {
    /// `carried` bytes have been carried in all, and a challenge has `len` bytes.
    pub(crate) fn earn(&mut self, carried: u64, len: usize) {
        let new = carried.saturating_sub(self.carried);
        self.carried = carried;
        let most = len as u64 * CARRIED_PER_BYTE * BURST;
        self.unspent = (self.unspent + new).min(most);
    }

    /// Spends the bytes of a challenge, if there are enough.
    pub(crate) fn spend(&mut self, len: usize) -> bool {
        let left = self.unspent.checked_sub(len as u64 * CARRIED_PER_BYTE);
        self.unspent = left.unwrap_or(self.unspent);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 1_200;

    #[test]
    fn a_small_share_of_what_is_carried_is_spent() {
        let mut budget = ChallengeBudget::default();
        let mut spent = 0;
        for carried in (0..=12_000_000).step_by(10_000) {
            budget.earn(carried, LEN);
            while budget.spend(LEN) {
                spent += LEN;
            }
        }
        assert_eq!(spent, 30_000);
    }

    #[test]
    fn little_is_saved_up() {
        let mut budget = ChallengeBudget::default();
        budget.earn(u64::MAX, LEN);
        let count = (0..).take_while(|_| budget.spend(LEN)).count();
        assert_eq!(count, 8);
        budget.earn(u64::MAX, LEN);
        assert!(!budget.spend(LEN));
    }
}
