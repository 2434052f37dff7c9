//! What the two ends of a path tell each other about it: how each sees the other's address, and
//! whether the path is to be kept in reserve.

use core::net::SocketAddr;

/// How each end sees the other's address. They differ from the real ones behind a NAT.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Our end as the peer sees it, once it has told.
    pub ours: Option<SocketAddr>,
    /// Whether the peer takes packets from there for ours as they are; so as long as it has not
    /// told.
    pub is_ours: bool,
    /// Whether the peer was ever told how we see it.
    pub told: bool,
    /// Whether the peer's address as we see it is taken for its own.
    pub is_theirs: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self { ours: None, is_ours: true, told: false, is_theirs: true }
    }
}

/// Whether a path is to be used or kept in reserve, as each end has told the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reserve {
    /// The peer is told to keep the path in reserve.
    told: bool,
    /// Sequence of the latest status that was told; 0 before the first.
    sequence: u64,
    /// The peer wants the path kept in reserve.
    wanted: bool,
    /// The sequence of the status that said so.
    heard: Option<u64>,
}

impl Reserve {
    /// Tells the peer whether to keep the path in reserve. Whether that is new and has to be said.
    pub fn tell(&mut self, reserve: bool) -> bool {
        let news = core::mem::replace(&mut self.told, reserve) != reserve;
        self.sequence += u64::from(news);
        news
    }

    /// Whether the peer is told to keep the path in reserve.
    pub fn is_told(&self) -> bool {
        self.told
    }

    /// Something else about the path is said with a status: the next sequence.
    pub fn advance(&mut self) {
        self.sequence += 1;
    }

    /// Sequence of the latest status; 0 when there was none.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether the peer wants the path kept in reserve.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// The peer has told what it wants. Whether that changes anything; an older status does not.
    pub fn on_peer(&mut self, sequence: u64, reserve: bool) -> bool {
        if self.heard.is_some_and(|newest| sequence <= newest) {
            return false;
        }
        self.heard = Some(sequence);
        core::mem::replace(&mut self.wanted, reserve) != reserve
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_was_overtaken_changes_nothing() {
        let mut reserve = Reserve::default();
        assert!(reserve.on_peer(5, true));
        assert!(!reserve.on_peer(4, false) && !reserve.on_peer(5, false));
        assert!(reserve.is_wanted());
        assert!(reserve.on_peer(6, false));
        assert!(!reserve.on_peer(7, false), "nothing new");
    }

    #[test]
    fn what_is_told_again_is_no_news() {
        let mut reserve = Reserve::default();
        assert!(!reserve.tell(false));
        assert!(reserve.tell(true) && !reserve.tell(true));
        assert_eq!(reserve.sequence(), 1);
    }
}
