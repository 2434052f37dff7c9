//! Which connections of a node behind a NAT use the paths: those that were opened there.
//!
//! The other end shows them to its host with another port than the NAT would. So a connection
//! opened as plain IP has to stay plain, and one opened on the paths cannot leave them.
//!
//! TCP shows where a connection begins. UDP does not: so the host lists the ports that are in use
//! when the capture begins ([`Capture`](crate::Capture)), whose flows stay plain. All others begin
//! on the paths. Without a path they are plain for that time, because applications of UDP do not
//! wait.

use core::net::IpAddr;
use core::time::Duration;

use super::aging::Aging;
use super::fragments::Fragments;
use super::rewrite::Subject;
use super::{Act, Life};
use mpip_types::packet::{Header, SessionKey, protocol};
use mpip_types::{Instant, PortSet};

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
    /// Which of UDP, while `open` is set.
    pub(crate) udp: UdpAdmission,
}

/// Which UDP flows may begin on the paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UdpAdmission {
    /// None.
    None,
    /// Those from ports whose UDP does not stay plain.
    New,
    /// All, because nothing is plain.
    All,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PathConnections {
    /// Keyed by the ends of this host's packets.
    connections: Aging<SessionKey, Life>,
    fragments: Fragments<Egress>,
    trust: Trust,
    udp: Udp,
}

/// What concerns UDP alone.
#[derive(Debug)]
struct Udp {
    /// Apart from TCP's, because many datagrams need no answer.
    trust: Trust,
    /// Ports whose flows stay plain: those that the host has listed, and those of flows that had
    /// to begin as plain IP since. `None` until it has listed them.
    plain_ports: Option<PortSet>,
    /// The host has to list them.
    asks: bool,
    /// Some ports are plain only because of a doubt that is over.
    stale: bool,
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

impl Trust {
    /// Whether a connection may be opened on the paths at `now`.
    fn admits(&mut self, now: Instant, what: &str) -> bool {
        match *self {
            Self::Proved => true,
            Self::DoubtedUntil(until) if now < until => false,
            Self::Tried(since) if now.since(since) >= UNANSWERED => {
                log::warn!("no {what} that comes through the NAT is answered: plain for {DOUBT:?}");
                *self = Self::DoubtedUntil(now + DOUBT);
                false
            }
            Self::Tried(_) => true,
            Self::Unknown | Self::DoubtedUntil(_) => {
                *self = Self::Tried(now);
                true
            }
        }
    }

    /// No answer is expected any more to what was tried.
    fn forget_trial(&mut self) {
        if matches!(self, Self::Tried(_)) {
            *self = Self::Unknown;
        }
    }
}

impl Udp {
    fn new() -> Self {
        Self { trust: Trust::Unknown, plain_ports: None, asks: false, stale: false }
    }

    /// Whether a new flow may begin on the paths at `now`.
    fn admits(&mut self, now: Instant) -> bool {
        match self.trust {
            // The host first has to list which flows have begun as plain IP meanwhile.
            Trust::DoubtedUntil(until) if now >= until => {
                (self.trust, self.stale) = (Trust::Unknown, true);
                false
            }
            _ => self.trust.admits(now, "UDP"),
        }
    }

    /// Whether flows from `port` stay plain.
    fn is_plain(&self, port: u16) -> bool {
        self.plain_ports.as_ref().is_none_or(|ports| ports.contains(port))
    }
}

impl PathConnections {
    pub(crate) fn new() -> Self {
        let connections = Aging::new(CONNECTIONS);
        let (fragments, trust, udp) = (Fragments::new(), Trust::Unknown, Udp::new());
        Self { connections, fragments, trust, udp }
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

    /// Forgets all connections. The ports of flows that began as plain IP stay plain.
    pub(crate) fn clear(&mut self) {
        let udp = core::mem::replace(&mut self.udp, Udp::new());
        *self = Self { udp: Udp { trust: Trust::Unknown, ..udp }, ..Self::new() };
    }

    /// Forgets the connections from `source`, which may leave the paths as any others.
    pub(crate) fn forget_source(&mut self, source: IpAddr) {
        let from = self.iter().filter(|key| key.source.address == source);
        for key in from.copied().collect::<Vec<_>>() {
            self.connections.remove(&key);
        }
        self.forget_trials();
    }

    /// No path works any more. UDP flows that begin from now on are plain, and stay so.
    pub(crate) fn on_fall_back(&mut self) {
        (self.udp.plain_ports, self.udp.asks) = (None, false);
        self.forget_trials();
    }

    fn forget_trials(&mut self) {
        self.trust.forget_trial();
        self.udp.trust.forget_trial();
    }

    /// From now on the host has to list the ports whose UDP stays plain; until then, all do.
    pub(crate) fn ask_udp_ports(&mut self) {
        (self.udp.plain_ports, self.udp.asks, self.udp.stale) = (None, true, false);
    }

    /// Whether the host has to list these ports.
    pub(crate) fn asks_udp_ports(&self) -> bool {
        self.udp.asks
    }

    /// Whether a new list may have fewer ports.
    pub(crate) fn has_stale_udp_ports(&self) -> bool {
        self.udp.stale
    }

    /// The host has listed the ports whose UDP stays plain. Ignored unless it was asked.
    pub(crate) fn on_plain_udp_ports(&mut self, ports: PortSet) {
        if core::mem::take(&mut self.udp.asks) {
            self.udp.plain_ports = Some(ports);
        }
    }

    /// The peer's host has sent a packet of this protocol to an address of ours that is behind a
    /// NAT.
    pub(crate) fn on_answer(&mut self, protocol: u8) {
        match protocol {
            protocol::UDP => self.udp.trust = Trust::Proved,
            _ => self.trust = Trust::Proved,
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
            Some(Subject::Own(key)) if key.protocol == protocol::UDP => {
                self.way_of_udp(now, key, admission)
            }
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

    /// TCP, or an ICMP echo.
    fn way_of(
        &mut self,
        now: Instant,
        key: SessionKey,
        act: Act,
        admission: Admission,
    ) -> Option<Egress> {
        let known = key.protocol != protocol::TCP && self.connections.contains(&key);
        if !matches!(act, Act::Begin(_)) || (known && self.trust == Trust::Proved) {
            return self.known(now, &key, act);
        }
        let nothing_is_plain = admission.udp == UdpAdmission::All;
        if !admission.open || !(self.trust.admits(now, "connection") || nothing_is_plain) {
            self.connections.remove(&key);
            return None;
        }
        Some(self.begin(now, key))
    }

    fn way_of_udp(
        &mut self,
        now: Instant,
        key: SessionKey,
        admission: Admission,
    ) -> Option<Egress> {
        let known = self.connections.contains(&key);
        let tries = match admission.udp {
            // It is plain now, and returns to the paths with them.
            _ if !admission.open => {
                self.connections.touch(now, &key);
                return None;
            }
            UdpAdmission::New => self.udp.trust != Trust::Proved,
            UdpAdmission::None | UdpAdmission::All => false,
        };
        if known && !tries {
            return self.known(now, &key, Act::Use);
        }
        let begins = match admission.udp {
            UdpAdmission::None => false,
            UdpAdmission::New => known || !self.udp.is_plain(key.source.port),
            UdpAdmission::All => true,
        };
        if !begins {
            return None;
        }
        if tries && !self.udp.admits(now) {
            self.connections.remove(&key);
            if let Some(ports) = &mut self.udp.plain_ports {
                ports.insert(key.source.port);
            }
            return None;
        }
        Some(self.begin(now, key))
    }

    fn begin(&mut self, now: Instant, key: SessionKey) -> Egress {
        let life = Life::Begins;
        self.connections.insert(now, key, life, life.idle(key.protocol));
        Egress::Paths
    }

    fn known(&mut self, now: Instant, key: &SessionKey, act: Act) -> Option<Egress> {
        let life = self.connections.touch(now, key)?;
        *life = life.after(act, key.protocol);
        let idle = life.idle(key.protocol);
        self.connections.set_idle(key, idle);
        Some(Egress::Paths)
    }
}

#[cfg(test)]
mod tests;
