//! Host mode of an association: the capture, and how packets travel.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use mpip_types::packet::Endpoint;
use mpip_types::{Bucket, Instant, Prefix, Rate};

use crate::capture::{Capture, Traffic};
use crate::config::{PeerConfig, Policy};
use crate::parts::plain_sessions::PlainSessions;
use crate::translation::{Fragments, PathConnections};

/// Time on the paths below which a fall-back counts as flapping, and delays the next return.
const BRIEF_RETURN: Duration = Duration::from_secs(10);
/// Hold-down before traffic returns to the paths after the first flap. It doubles with each
/// further one.
const HOLD_DOWN_MIN: Duration = Duration::from_millis(500);
/// Maximum hold-down.
const HOLD_DOWN_MAX: Duration = Duration::from_secs(30);
/// Rate limit for recomputing the capture. Each time may visit all sessions, and a peer can trigger
/// it with every datagram.
const REVIEWS: Rate = Rate { burst: 32, per_second: 4 };

/// The host-mode side of an association.
#[derive(Debug)]
pub(crate) struct HostMode {
    /// The peer's addresses, each with whether the peer has lost it while sessions still use it.
    pub(crate) addresses: BTreeMap<IpAddr, Held>,
    pub(crate) captured: Vec<Prefix>,
    pub(crate) translated: Vec<IpAddr>,
    pub(crate) nats: Vec<IpAddr>,
    pub(crate) traffic: Traffic,
    /// The capture has to be recomputed.
    stale: bool,
    reviews: Bucket,
    check_at: Option<Instant>,
    /// When packets held for resequencing are delivered after a fall-back: missing ones arrive as
    /// plain IP.
    pub(crate) release_at: Option<Instant>,
    /// Since when traffic uses the paths.
    pub(crate) returned_at: Option<Instant>,
    /// Since when no path works, after one did.
    left_at: Option<Instant>,
    hold_down: Duration,
    hold_until: Option<Instant>,
    /// Of an unknown peer: the addresses at which it is admitted.
    pub(crate) scope: Option<Vec<IpAddr>>,
    /// Our addresses that no path has proved to the peer: it would refuse packets from there.
    pub(crate) unknown_sources: Box<[IpAddr]>,
    /// Our addresses that are behind a NAT, as the peer sees it, and the connections from there.
    pub(crate) own_translated: Box<[IpAddr]>,
    /// Our addresses of which the peer has not yet told how it sees them.
    pub(crate) untold: Box<[IpAddr]>,
    pub(crate) path_connections: PathConnections,
    /// The run of the peer's daemon that knows these connections.
    pub(crate) instance: Option<u64>,
    /// The rewritten sources of fragmented packets, by their first fragments.
    pub(crate) fragments: Fragments<Endpoint>,
    /// Sessions that are plain although paths work; `None`: none was yet.
    pub(crate) plain_sessions: Option<Box<PlainSessions>>,
    /// Packets that left as plain IP although paths work.
    pub(crate) plain_packets: u64,
}

/// Whether the peer has lost an address that sessions still use.
pub(crate) type Held = bool;

impl HostMode {
    /// The state before anything is known of the peer.
    pub(crate) fn of(config: &PeerConfig) -> Self {
        Self {
            addresses: BTreeMap::new(),
            captured: Vec::new(),
            translated: Vec::new(),
            nats: Vec::new(),
            traffic: Traffic::default(),
            stale: config.host_mode,
            reviews: Bucket::new(),
            check_at: None,
            release_at: None,
            returned_at: None,
            left_at: None,
            hold_down: Duration::ZERO,
            hold_until: None,
            scope: None,
            unknown_sources: Box::default(),
            own_translated: Box::default(),
            untold: Box::default(),
            path_connections: PathConnections::new(),
            instance: None,
            fragments: Fragments::new(),
            plain_sessions: None,
            plain_packets: 0,
        }
    }

    /// Whether this is an unknown peer.
    pub(crate) fn is_unknown_peer(&self) -> bool {
        self.scope.is_some()
    }

    /// Whether the peer is admitted at `ip`.
    pub(crate) fn deals_at(&self, ip: IpAddr) -> bool {
        self.scope.as_ref().is_none_or(|scope| scope.contains(&ip))
    }

    /// Destinations whose packets are captured, some of them only in part.
    pub(crate) fn captured(&self) -> Vec<Prefix> {
        all_captured(&self.captured, &self.translated)
    }

    /// The capture has to be recomputed.
    pub(crate) fn review(&mut self) {
        self.stale = true;
    }

    /// Recomputes the capture without rate limit, for the last time.
    pub(crate) fn review_at_last(&mut self) {
        self.reviews = Bucket::new();
        self.review();
    }

    /// Whether to recompute the capture at `now`.
    pub(crate) fn start_review(&mut self, now: Instant) -> bool {
        if !self.stale && self.check_at.is_none_or(|at| now < at) {
            return false;
        }
        let may = self.reviews.take(now, REVIEWS);
        self.check_at = (!may).then(|| self.reviews.ready_at(REVIEWS));
        self.stale &= !may;
        may
    }

    /// Recomputes the capture at `at` or sooner.
    pub(crate) fn review_by(&mut self, at: Instant) {
        self.check_at = Some(self.check_at.map_or(at, |other| other.min(at)));
    }

    /// When the capture has to be recomputed.
    pub(crate) fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// Since when no path works. `works`: whether one does now.
    pub(crate) fn left_since(&mut self, now: Instant, works: bool) -> Option<Instant> {
        match works {
            true => self.left_at.take(),
            false => Some(*self.left_at.get_or_insert(now)),
        }
    }

    /// How packets are to travel. `works`: whether a path works now. After a fall-back soon after a
    /// return, the next return is held down.
    pub(crate) fn follow(&mut self, now: Instant, works: bool, policy: Policy) -> Traffic {
        let was = self.returned_at.is_some();
        match (was, works) {
            (true, false) => {
                let brief = self.returned_at.take().is_some_and(|at| now.since(at) < BRIEF_RETURN);
                self.hold_down = match brief {
                    true => (self.hold_down * 2).clamp(HOLD_DOWN_MIN, HOLD_DOWN_MAX),
                    false => Duration::ZERO,
                };
                self.hold_until = Some(now + self.hold_down);
            }
            (false, true) => match self.hold_until.filter(|until| now < *until) {
                Some(until) if policy == Policy::Prefer => {
                    self.check_at = Some(until);
                }
                _ => {
                    self.hold_until = None;
                    self.returned_at = Some(now);
                }
            },
            _ => {}
        }
        match (policy, self.returned_at) {
            (Policy::Off, _) => Traffic::Plain,
            (_, Some(_)) => Traffic::Multipath,
            (Policy::Prefer, None) => Traffic::Plain,
            (Policy::Require, None) => Traffic::Blocked,
        }
    }

    /// Time until packets may return to the paths after a fall-back, if that is held down.
    pub(crate) fn held_down(&self, now: Instant) -> Option<Duration> {
        let until = self.hold_until.filter(|until| now < *until && self.returned_at.is_none());
        until.map(|until| until.since(now))
    }

    /// Whether our packets from `source` may mean nothing to the peer, as far as is known.
    pub(crate) fn may_be_elsewhere(&self, source: IpAddr) -> bool {
        self.own_translated.contains(&source) || self.untold.contains(&source)
    }

    /// The capture for the peer of `config`.
    pub(crate) fn capture(&self, config: &PeerConfig) -> Capture {
        Capture {
            peer: config.name.clone(),
            prefixes: self.captured.clone(),
            translated: self.translated.clone(),
            asks_udp_ports: self.path_connections.asks_udp_ports(),
            nats: self.nats.clone(),
            fail_closed: config.policy == Policy::Require,
        }
    }
}

/// Captured prefixes and addresses, sorted.
pub(crate) fn all_captured(prefixes: &[Prefix], translated: &[IpAddr]) -> Vec<Prefix> {
    let translated = translated.iter().copied().map(Prefix::host);
    let mut all: Vec<_> = prefixes.iter().copied().chain(translated).collect();
    all.sort_unstable();
    all
}
