//! What the two ends of a path tell each other about it: how each sees the other's address, and
//! whether the path is a backup path.

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

/// Whether a path is a backup path, as each end has told the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reserve {
    /// We tell the peer to use the path as a backup.
    told: bool,
    /// Sequence number of our latest status; 0 before the first.
    sequence: u64,
    /// The peer wants the path as a backup.
    wanted: bool,
    /// Sequence number of the peer's latest status.
    heard: Option<u64>,
}

impl Reserve {
    /// Sets whether the peer is to use the path as a backup. Returns whether this is new and has to
    /// be sent.
    pub fn tell(&mut self, reserve: bool) -> bool {
        let news = core::mem::replace(&mut self.told, reserve) != reserve;
        self.sequence += u64::from(news);
        news
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

    /// Processes the peer's status. Returns whether it changes anything; an older status does not.
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
