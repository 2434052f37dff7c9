//! What the two ends of a path tell each other about it: how each sees the other's address, whether
//! the path is a backup path, and what it costs.

use core::net::SocketAddr;

/// How each end sees the other's address. They differ from the real ones behind a NAT.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Our address as the peer sees it, once it has told.
    pub ours: Option<SocketAddr>,
    /// Whether the peer takes that address for ours alone; `true` until it has told.
    pub is_ours: bool,
    /// Whether the peer was ever told how we see it.
    pub told: bool,
    /// Whether we take the peer's address, as we see it, for its own.
    pub is_theirs: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self { ours: None, is_ours: true, told: false, is_theirs: true }
    }
}

/// Whether a path is a backup path, and what it costs, as each end has told the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reserve {
    /// We tell the peer to use the path as a backup.
    told: bool,
    /// What the path costs us.
    own_cost: u8,
    /// The cost that we have told.
    told_cost: u8,
    /// Sequence number of our latest status; 0 before the first.
    sequence: u64,
    /// The peer wants the path as a backup.
    wanted: bool,
    /// What it costs the peer.
    peer_cost: u8,
    /// Sequence number of the peer's latest status.
    heard: Option<u64>,
}

impl Reserve {
    /// Sets what the path costs us. The peer has to be [told](Self::tell).
    pub fn set_cost(&mut self, cost: u8) {
        self.own_cost = cost;
    }

    /// Whether the peer was told another cost than ours.
    pub fn owes_cost(&self) -> bool {
        self.own_cost != self.told_cost
    }

    /// What the path costs: the larger one of both ends' costs.
    pub fn cost(&self) -> u8 {
        self.own_cost.max(self.peer_cost)
    }

    /// Sets whether the peer is to use the path as a backup. Returns whether this, or our cost, is
    /// new and has to be sent.
    pub fn tell(&mut self, reserve: bool) -> bool {
        let former = (self.told, self.told_cost);
        (self.told, self.told_cost) = (reserve, self.own_cost);
        let news = former != (self.told, self.told_cost);
        self.sequence += u64::from(news);
        news
    }

    /// The cost that we tell the peer.
    pub fn told_cost(&self) -> u8 {
        self.told_cost
    }

    /// Whether we tell the peer to use the path as a backup.
    pub fn is_told(&self) -> bool {
        self.told
    }

    /// Advances the sequence number, for a status about something else.
    pub fn advance(&mut self) {
        self.sequence += 1;
    }

    /// Sequence number of our latest status; 0 before the first.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether the peer wants the path as a backup.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Processes the peer's status and cost. Returns whether the status changes anything; an older
    /// one does not.
    pub fn on_peer(&mut self, sequence: u64, reserve: bool, cost: u8) -> bool {
        if self.heard.is_some_and(|newest| sequence <= newest) {
            return false;
        }
        self.heard = Some(sequence);
        self.peer_cost = cost;
        core::mem::replace(&mut self.wanted, reserve) != reserve
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_was_overtaken_changes_nothing() {
        let mut reserve = Reserve::default();
        assert!(reserve.on_peer(5, true, 3));
        assert!(!reserve.on_peer(4, false, 0) && !reserve.on_peer(5, false, 0));
        assert!(reserve.is_wanted());
        assert_eq!(reserve.cost(), 3);
        assert!(reserve.on_peer(6, false, 0));
        assert!(!reserve.on_peer(7, false, 0), "nothing new");
    }

    #[test]
    fn a_path_costs_what_it_costs_the_end_that_pays_more() {
        let mut reserve = Reserve::default();
        reserve.set_cost(2);
        for (sequence, theirs, cost) in [(1, 0, 2), (2, 5, 5), (3, 1, 2)] {
            assert!(!reserve.on_peer(sequence, false, theirs));
            assert_eq!(reserve.cost(), cost);
        }
        assert!(reserve.owes_cost() && reserve.tell(false) && !reserve.tell(false));
        assert_eq!((reserve.told_cost(), reserve.sequence()), (2, 1));
        reserve.set_cost(0);
        assert!(reserve.tell(false), "also that it costs nothing any more");
        assert!(!reserve.owes_cost());
    }

    #[test]
    fn what_is_told_again_is_no_news() {
        let mut reserve = Reserve::default();
        assert!(!reserve.tell(false));
        assert!(reserve.tell(true) && !reserve.tell(true));
        assert_eq!(reserve.sequence(), 1);
    }
}
