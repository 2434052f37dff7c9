//! Which connections of a node behind a NAT use the paths: those that were opened there.
//!
//! The other end shows them to its host with another port than the NAT would. So a connection
//! opened as plain IP has to stay plain, and one opened on the paths cannot leave them.

use core::time::Duration;

use super::aging::Aging;
use super::fragments::Fragments;
use super::rewrite::Subject;
use super::{Act, Life};
use mpip_types::Instant;
use mpip_types::packet::{Header, SessionKey, protocol};

/// Time without an answer on the paths after which new connections are plain; shorter than TCP's
/// first SYN retransmission (RFC 6298, section 2).
const UNANSWERED: Duration = Duration::from_millis(900);
/// Time for which new connections are plain before the paths are tried again.
const DOUBT: Duration = Duration::from_secs(60);

/// Most connections kept; beyond this, an idle one is dropped.
const CONNECTIONS: usize = 16_384;

/// Time for which connections are kept while there is no path: as long as TCP retransmits (RFC
/// 9293, section 3.8.3, with Linux's 15 retransmissions).
pub(crate) const PATIENCE: Duration = Duration::from_secs(924);

/// How a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Egress {
    /// On the paths.
    Paths,
    /// As plain IP.
    Plain,
}

/// Which connections may be opened on the paths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    /// Connections may be opened on the paths.
    pub(crate) open: bool,
    /// UDP, too, because nothing is plain. Otherwise a datagram may belong to a flow that was
    /// opened as plain IP, here or at the other end, and nothing in it tells.
    pub(crate) udp: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PathConnections {
    /// Keyed by the ends of this host's packets.
    connections: Aging<SessionKey, Life>,
    fragments: Fragments<Egress>,
    trust: Trust,
}

/// Whether the peer's host answers connections opened on the paths. Its daemon may not translate,
/// or its firewall may drop them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    Unknown,
    /// A connection was opened at this time; no answer yet.
    Tried(Instant),
    Proved,
    /// There was no answer; connections are plain until this time.
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

    /// The peer's host has sent a packet to an address of ours that is behind a NAT.
    pub(crate) fn on_answer(&mut self) {
        self.trust = Trust::Proved;
    }

    /// Whether a connection may be opened on the paths.
    fn is_trusted(&mut self, now: Instant) -> bool {
        match self.trust {
            Trust::Proved => true,
            Trust::DoubtedUntil(until) if now < until => false,
            Trust::Tried(since) if now.since(since) >= UNANSWERED => {
                log::warn!("nothing that comes through the NAT is answered: plain for {DOUBT:?}");
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

    /// Whether the connection `key` may leave the paths from now on: it has not begun there, or
    /// is still opening. Then it is none of these any more.
    pub(crate) fn give_up(&mut self, key: &SessionKey) -> bool {
        match self.connections.get(key) {
            None => true,
            Some(Life::Begins) => self.connections.remove(key).is_some(),
            Some(Life::Open | Life::Ends) => false,
        }
    }

    /// Drops idle connections.
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
