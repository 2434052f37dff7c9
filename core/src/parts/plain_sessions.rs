//! Sessions that leave as plain IP alone, although paths work (seed 000, section 3.7.2).
//!
//! The seed lets a session fall back when nothing arrives on it for 500 ms, which takes an idle
//! session for a broken one. Here the inner TCP tells: it repeats the same segment, and nothing new
//! follows, while the paths acknowledge what they carry. So the paths deliver, and what is beyond
//! them does not: a firewall of the other host refuses what comes from its TUN device, or its
//! daemon has no port left for one more connection through a NAT.

use core::time::Duration;

use mpip_types::Instant;
use mpip_types::packet::SessionKey;

use crate::status::PlainSessionStatus;
use crate::translation::aging::Aging;

/// Most sessions that are kept; beyond this an idle one tries the paths again.
const SESSIONS: usize = 1_024;

/// See the module.
#[derive(Debug)]
pub(crate) struct PlainSessions {
    /// Since when each is plain.
    sessions: Aging<SessionKey, Instant>,
}

impl Default for PlainSessions {
    fn default() -> Self {
        Self { sessions: Aging::new(SESSIONS) }
    }
}

impl PlainSessions {
    /// The session `key` is plain until nothing was sent on it for `idle`.
    pub(crate) fn add(&mut self, now: Instant, key: SessionKey, idle: Duration) {
        self.sessions.insert(now, key, now, idle);
    }

    /// Whether a packet of the session `key`, which is sent now, leaves as plain IP.
    pub(crate) fn takes(&mut self, now: Instant, key: &SessionKey) -> bool {
        self.sessions.touch(now, key).is_some()
    }

    /// Forgets sessions that are idle.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.sessions.expire(now).is_some() {}
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// The sessions, in the order of their ends.
    pub(crate) fn status(&self, now: Instant) -> impl Iterator<Item = PlainSessionStatus> {
        self.sessions.iter().map(move |(key, since)| PlainSessionStatus {
            protocol: key.protocol,
            source: key.source.into(),
            destination: key.destination.into(),
            since: now.since(*since),
        })
    }
}

#[cfg(test)]
mod tests {
    use mpip_types::packet::{Endpoint, protocol};

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn key(port: u16) -> SessionKey {
        let end = |port| Endpoint { address: [198, 18, 0, 1].into(), port };
        SessionKey { protocol: protocol::TCP, source: end(port), destination: end(80) }
    }

    #[test]
    fn a_session_is_plain_until_it_is_idle_and_the_table_is_bounded() {
        let idle = Duration::from_secs(120);
        let mut plain = PlainSessions::default();
        plain.add(at(0), key(1), idle);
        assert!(!plain.takes(at(0), &key(2)));
        for second in (0..600).step_by(100) {
            plain.expire(at(second * 1_000));
            assert!(plain.takes(at(second * 1_000), &key(1)), "{second}");
        }
        let status: Vec<_> = plain.status(at(500_000)).collect();
        assert_eq!(status.len(), 1);
        assert_eq!(status[0].since, Duration::from_secs(500));
        plain.expire(at(621_000));
        assert!(!plain.takes(at(621_000), &key(1)));
        for port in 0..2_000 {
            plain.add(at(700_000), key(port), idle);
        }
        assert_eq!(plain.len(), SESSIONS);
    }
}
