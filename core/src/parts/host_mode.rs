//! Host mode of an association: what is captured, and how packets travel.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use mpip_types::packet::Endpoint;
use mpip_types::{Bucket, Instant, Prefix, Rate};

use crate::capture::{Capture, Traffic};
use crate::config::{PeerConfig, Policy};
use crate::translation::{Fragments, PathConnections};

/// Whoever falls back within this time after a return waits before the next one.
const BRIEF_RETURN: Duration = Duration::from_secs(10);
/// First and longest such wait; it doubles.
const HOLD_DOWN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How often is looked at what is to be captured: each time all sessions may be, and a peer can
/// give reasons for it with every datagram.
const REVIEWS: Rate = Rate { burst: 32, per_second: 4 };

/// The host-mode side of an association.
#[derive(Debug)]
pub(crate) struct HostMode {
    /// The peer's addresses, and whether it has lost them while sessions use them.
    pub(crate) addresses: BTreeMap<IpAddr, Held>,
    pub(crate) captured: Vec<Prefix>,
    pub(crate) translated: Vec<IpAddr>,
    pub(crate) translators: Vec<IpAddr>,
    pub(crate) traffic: Traffic,
    /// Something changed from which another capture may follow.
    stale: bool,
    reviews: Bucket,
    check_at: Option<Instant>,
    /// When what waits for a gap to close is delivered as it is: what is missing comes as plain
    /// IP.
    pub(crate) release_at: Option<Instant>,
    /// Since when packets take the paths.
    pub(crate) returned_at: Option<Instant>,
    /// Since when they do not although they did.
    left_at: Option<Instant>,
    hold_down: Duration,
    hold_until: Option<Instant>,
    /// Of a node that nobody configured: the addresses at which it is dealt with.
    pub(crate) scope: Option<Vec<IpAddr>>,
    /// Our addresses that the peer has not been shown by a path: it would refuse packets from
    /// there.
    pub(crate) unknown_sources: Vec<IpAddr>,
    /// Our addresses that the peer sees elsewhere, and the connections from there.
    pub(crate) own_translated: Vec<IpAddr>,
    pub(crate) path_connections: PathConnections,
    /// The run of the peer's daemon that knows them.
    pub(crate) instance: Option<u64>,
    /// Which sources the first fragments of the peer's packets got.
    pub(crate) fragments: Fragments<Endpoint>,
}

/// Whether the peer has lost an address that sessions still use.
pub(crate) type Held = bool;

impl HostMode {
    /// The prefixes of a peer that is captured before anything is known of it.
    pub(crate) fn of(config: &PeerConfig) -> Self {
        Self {
            addresses: BTreeMap::new(),
            captured: Vec::new(),
            translated: Vec::new(),
            translators: Vec::new(),
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
            unknown_sources: Vec::new(),
            own_translated: Vec::new(),
            path_connections: PathConnections::new(),
            instance: None,
            fragments: Fragments::new(),
        }
    }

    /// Whether nobody configured the peer.
    pub(crate) fn is_unknown_peer(&self) -> bool {
        self.scope.is_some()
    }

    /// Whether the peer is dealt with at `ip`.
    pub(crate) fn deals_at(&self, ip: IpAddr) -> bool {
        self.scope.as_ref().is_none_or(|scope| scope.contains(&ip))
    }

    /// Destinations whose packets are captured, if not all of them.
    pub(crate) fn captured(&self) -> Vec<Prefix> {
        all_captured(&self.captured, &self.translated)
    }

    /// Another capture may follow from what just happened.
    pub(crate) fn review(&mut self) {
        self.stale = true;
    }

    /// What is captured is looked at once more without delay, for the last time.
    pub(crate) fn review_at_last(&mut self) {
        self.reviews = Bucket::new();
        self.review();
    }

    /// Whether what is to be captured has to be found out at `now`.
    pub(crate) fn start_review(&mut self, now: Instant) -> bool {
        if !self.stale && self.check_at.is_none_or(|at| now < at) {
            return false;
        }
        let may = self.reviews.take(now, REVIEWS);
        self.check_at = (!may).then(|| self.reviews.ready_at(REVIEWS));
        self.stale &= !may;
        may
    }

    /// It has to be found out again at `at`, or sooner.
    pub(crate) fn review_by(&mut self, at: Instant) {
        self.check_at = Some(self.check_at.map_or(at, |other| other.min(at)));
    }

    /// When what is to be captured has to be found out again.
    pub(crate) fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// Since when no path works, now that one `works` or none does.
    pub(crate) fn left_since(&mut self, now: Instant, works: bool) -> Option<Instant> {
        match works {
            true => self.left_at.take(),
            false => Some(*self.left_at.get_or_insert(now)),
        }
    }

    /// How packets are to travel, now that a path `works` or none does. Who falls back soon after a
    /// return waits before the next one.
    pub(crate) fn follow(&mut self, now: Instant, works: bool, policy: Policy) -> Traffic {
        let was = self.returned_at.is_some();
        match (was, works) {
            (true, false) => {
                let (first, longest) = HOLD_DOWN;
                let brief = self.returned_at.take().is_some_and(|at| now.since(at) < BRIEF_RETURN);
                self.hold_down = match brief {
                    true => (self.hold_down * 2).clamp(first, longest),
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

    /// What the host of `config`'s peer is to capture now.
    pub(crate) fn capture(&self, config: &PeerConfig) -> Capture {
        Capture {
            peer: config.name.clone(),
            prefixes: self.captured.clone(),
            translated: self.translated.clone(),
            translators: self.translators.clone(),
            fail_closed: config.policy == Policy::Require,
        }
    }
}

/// Prefixes and addresses that are captured, in order.
pub(crate) fn all_captured(prefixes: &[Prefix], translated: &[IpAddr]) -> Vec<Prefix> {
    let translated = translated.iter().copied().map(Prefix::host);
    let mut all: Vec<_> = prefixes.iter().copied().chain(translated).collect();
    all.sort_unstable();
    all
}
