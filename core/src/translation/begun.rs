//! Which connections of a node behind a translator go on the paths: those that began there.
//!
//! The other end shows them to its host with another port than the translator would. So one that
//! began as plain IP has to stay so, and one that began on the paths cannot leave them.

use core::time::Duration;

use super::aging::Aging;
use super::fragments::Fragments;
use super::rewrite::Subject;
use super::{Act, Life};
use mpip_types::Instant;
use mpip_types::packet::{Header, SessionKey, protocol};

/// How long the first connections may go without an answer by the paths, until others are plain:
/// less than until TCP repeats a SYN (RFC 6298, section 2).
const UNANSWERED: Duration = Duration::from_millis(900);
/// And how long those are, before one is tried again.
const DOUBT: Duration = Duration::from_secs(60);

/// Connections that are remembered; beyond it one goes that carried nothing for long.
const CONNECTIONS: usize = 16_384;

/// How long those that wait for a path are remembered without one: as long as TCP tries (RFC 9293,
/// section 3.8.3, with Linux's 15 repetitions).
pub(crate) const PATIENCE: Duration = Duration::from_secs(924);

/// How a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Egress {
    /// On the paths.
    Paths,
    /// As it would without us.
    Plain,
}

/// What may begin on the paths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    /// Connections may.
    pub(crate) open: bool,
    /// Those of UDP too: there are no plain ones. Otherwise a datagram may be one of a connection
    /// that began as plain IP, here or at the other end, and nothing in it tells.
    pub(crate) udp: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PathConnections {
    /// By the ends of what this host sends.
    connections: Aging<SessionKey, Life>,
    fragments: Fragments<Egress>,
    trust: Trust,
}

/// Whether the peer's host answers what comes by the paths: its daemon may not translate, or its
/// firewall may be in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    Unknown,
    /// A connection was tried then.
    Tried(Instant),
    Proved,
    /// There was no answer; until then connections are plain.
    DoubtedUntil(Instant),
}

impl PathConnections {
    pub(crate) fn new() -> Self {
        let connections = Aging::new(CONNECTIONS);
        Self { connections, fragments: Fragments::new(), trust: Trust::Unknown }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    pub(crate) fn contains(&self, key: &SessionKey) -> bool {
        self.connections.contains(key)
    }

    /// The ends of all connections.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &SessionKey> {
        self.connections.iter().map(|(key, _)| key)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// The peer's host has sent something to an address of ours that the peer sees elsewhere.
    pub(crate) fn on_answer(&mut self) {
        self.trust = Trust::Proved;
    }

    /// Whether a connection may be tried on the paths.
    fn is_trusted(&mut self, now: Instant) -> bool {
        match self.trust {
            Trust::Proved => true,
            Trust::DoubtedUntil(until) if now < until => false,
            Trust::Tried(since) if now.since(since) >= UNANSWERED => {
                log::warn!(
                    "nothing that comes through the translator is answered: plain for {DOUBT:?}"
                );
                self.trust = Trust::DoubtedUntil(now + DOUBT);
                false
            }
            Trust::Tried(_) => true,
            Trust::Unknown | Trust::DoubtedUntil(_) => {
                self.trust = Trust::Tried(now);
                true
            }
        }
    }

    /// Forgets what carried nothing for long.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.connections.expire(now).is_some() {}
    }

    /// How a packet of this host leaves.
    pub(crate) fn egress(
        &mut self,
        now: Instant,
        header: &Header,
        packet: &[u8],
        admission: Admission,
    ) -> Egress {
        let way = match Subject::of(header, packet) {
            Some(Subject::Own(key)) => self.way_of(now, key, Act::of(header, packet), admission),
            Some(Subject::Quoted(key)) => self.known(now, &key.reversed(), Act::Touch),
            Some(Subject::Fragment) => self.fragments.find(header, packet),
            None => None,
        };
        let way = way.unwrap_or(Egress::Plain);
        if header.ports.is_some() {
            self.fragments.on_first(header, packet, way);
        }
        way
    }

    fn way_of(
        &mut self,
        now: Instant,
        key: SessionKey,
        act: Act,
        admission: Admission,
    ) -> Option<Egress> {
        let begins =
            matches!(act, Act::Begin(_)) && (key.protocol != protocol::UDP || admission.udp);
        let known = key.protocol != protocol::TCP && self.connections.contains(&key);
        if !begins || (known && self.trust == Trust::Proved) {
            return self.known(now, &key, act);
        }
        if !admission.open || !(self.is_trusted(now) || admission.udp) {
            self.connections.remove(&key);
            return None;
        }
        let life = Life::Begins;
        self.connections.insert(now, key, life, life.idle(key.protocol));
        Some(Egress::Paths)
    }

    fn known(&mut self, now: Instant, key: &SessionKey, act: Act) -> Option<Egress> {
        let life = self.connections.touch(now, key)?;
        *life = life.after(act, key.protocol);
        let idle = life.idle(key.protocol);
        self.connections.set_idle(key, idle);
        Some(Egress::Paths)
    }
}
