//! What the two ends of a path tell each other about it: how each sees the other's address, whether
//! the path is a backup path, what it costs, and at which rate it may be used.

use core::net::SocketAddr;

use mpip_wire::RateLimit;

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

/// Whether a path is a backup path, what it costs, and its upper rate, as each end has told the
/// other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reserve {
    /// We tell the peer to use the path as a backup.
    told: bool,
    /// What the path costs us.
    own_cost: u8,
    /// The cost that we have told.
    told_cost: u8,
    /// What the peer may send at most, and what of that we have told.
    own_limit: Option<RateLimit>,
    told_limit: Option<RateLimit>,
    /// Sequence number of our latest status; 0 before the first.
    sequence: u64,
    /// The peer wants the path as a backup.
    wanted: bool,
    /// What it costs the peer.
    peer_cost: u8,
    /// What the peer lets us send at most.
    peer_limit: Option<RateLimit>,
    /// Sequence number of the peer's latest status.
    heard: Option<u64>,
}

impl Reserve {
    /// Sets what the path costs us. The peer has to be [told](Self::tell).
    pub fn set_cost(&mut self, cost: u8) {
        self.own_cost = cost;
    }

    /// Sets what the peer may send on the path at most. It has to be [told](Self::tell).
    pub fn set_limit(&mut self, limit: Option<RateLimit>) {
        self.own_limit = limit;
    }

    /// Whether the peer was told another cost or upper rate than ours.
    pub fn owes(&self) -> bool {
        (self.own_cost, self.own_limit) != (self.told_cost, self.told_limit)
    }

    /// What the path costs: the larger one of both ends' costs.
    pub fn cost(&self) -> u8 {
        self.own_cost.max(self.peer_cost)
    }

    /// Sets whether the peer is to use the path as a backup. Returns whether this, our cost or our
    /// upper rate is new and has to be sent.
    pub fn tell(&mut self, reserve: bool) -> bool {
        let news = self.told != reserve || self.owes();
        (self.told, self.told_cost, self.told_limit) = (reserve, self.own_cost, self.own_limit);
        self.sequence += u64::from(news);
        news
    }

    /// The cost that we tell the peer.
    pub fn told_cost(&self) -> u8 {
        self.told_cost
    }

    /// What we tell the peer that it may send at most.
    pub fn told_limit(&self) -> Option<RateLimit> {
        self.told_limit
    }

    /// What the peer lets us send at most, as it has told us.
    pub fn peer_limit(&self) -> Option<RateLimit> {
        self.peer_limit
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

    /// Processes the peer's status, cost and upper rate. Returns whether the status changes
    /// anything; an older one does not.
    pub fn on_peer(
        &mut self,
        sequence: u64,
        reserve: bool,
        cost: u8,
        limit: Option<RateLimit>,
    ) -> bool {
        if self.heard.is_some_and(|newest| sequence <= newest) {
            return false;
        }
        self.heard = Some(sequence);
        (self.peer_cost, self.peer_limit) = (cost, limit);
        core::mem::replace(&mut self.wanted, reserve) != reserve
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_was_overtaken_changes_nothing() {
        let mut reserve = Reserve::default();
        let limit = RateLimit::new(2_000);
        assert!(reserve.on_peer(5, true, 3, limit));
        assert!(!reserve.on_peer(4, false, 0, None) && !reserve.on_peer(5, false, 0, None));
        assert!(reserve.is_wanted());
        assert_eq!((reserve.cost(), reserve.peer_limit()), (3, limit));
        assert!(reserve.on_peer(6, false, 0, None));
        assert_eq!(reserve.peer_limit(), None);
        assert!(!reserve.on_peer(7, false, 0, None), "nothing new");
    }

    #[test]
    fn a_path_costs_what_it_costs_the_end_that_pays_more() {
        let mut reserve = Reserve::default();
        reserve.set_cost(2);
        for (sequence, theirs, cost) in [(1, 0, 2), (2, 5, 5), (3, 1, 2)] {
            assert!(!reserve.on_peer(sequence, false, theirs, None));
            assert_eq!(reserve.cost(), cost);
        }
        assert!(reserve.owes() && reserve.tell(false) && !reserve.tell(false));
        assert_eq!((reserve.told_cost(), reserve.sequence()), (2, 1));
        reserve.set_cost(0);
        assert!(reserve.tell(false), "also that it costs nothing any more");
        assert!(!reserve.owes());
    }

    #[test]
    fn an_upper_rate_is_told_once_and_also_that_there_is_none_any_more() {
        let mut reserve = Reserve::default();
        for (sequence, limit) in [(1, RateLimit::new(64)), (2, RateLimit::new(65)), (3, None)] {
            reserve.set_limit(limit);
            assert!(reserve.owes() && reserve.tell(false));
            assert!(!reserve.owes() && !reserve.tell(false));
            assert_eq!((reserve.told_limit(), reserve.sequence()), (limit, sequence));
        }
        assert_eq!(reserve.peer_limit(), None, "what we tell does not limit us");
    }

    #[test]
    fn what_is_told_again_is_no_news() {
        let mut reserve = Reserve::default();
        assert!(!reserve.tell(false));
        assert!(reserve.tell(true) && !reserve.tell(true));
        assert_eq!(reserve.sequence(), 1);
    }
}
