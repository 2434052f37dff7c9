//! Path MTU discovery without ICMP.
//!
//! Datagram packetization layer path MTU discovery (RFC 8899), as QUIC uses it (RFC 9000, section
//! 14.3). A probe is a padded datagram without data; feedback says whether it arrived. All sizes
//! are those of outer IP packets, in bytes.
//!
//! ```text
//!               the first probe is lost
//!   ┌──────────┐ ──────────────────────► ┌───────────┐ ◄──────────────────────────┐
//!   │ untested │                         │ searching │     the probes are lost     │
//!   └──────────┘                         └───────────┘                             │
//!        │ it arrived                         │  ▲ after 600 s, or the       ┌────────────┐
//!        │                  nothing is left   ▼  │ interface carries more    │ confirming │
//!        └────────────────────────────────► ┌──────────┐ ──────────────────► └────────────┘
//!                                           │ complete │  only large ones are lost   │
//!                                           └──────────┘ ◄───────────────────────────┘
//!                                                   one arrives, or data of a lost size
//! ```
//!
//! The base is the size of datagrams with path challenges, one of which has validated the path.

use core::time::Duration;

use mpip_types::Instant;

/// Common path MTUs: tunnels, mobile networks, PPPoE, Ethernet with and without jumbo frames.
/// Searching a table takes fewer steps than searching all sizes (RFC 8899, section 5.3.2).
const COMMON: [u16; 22] = [
    1_280, 1_300, 1_320, 1_340, 1_360, 1_380, 1_400, 1_410, 1_420, 1_430, 1_440, 1_450, 1_460,
    1_472, 1_480, 1_492, 1_500, 2_000, 4_000, 8_000, 8_900, 9_000,
];
/// Lost probes in a row after which a size is too big (RFC 8899, section 5.1.2), on a path that
/// loses nothing else.
const MAX_PROBES: u8 = 3;
/// Most probes of a size, however much the path loses.
const MOST_PROBES: f64 = 16.0;
/// Probability with which a size that fits may be taken for too big, because all its probes were
/// lost by chance.
const FALSE_VERDICT: f64 = 1e-4;
/// Lost probes in a row after which a confirmed size is not used any more, and is searched for like
/// any other, after [`BLACK_HOLE_LOSSES`].
const MAX_CONFIRMATIONS: u8 = 3;
/// Pause between these. A queue that overflows loses several packets within a few milliseconds, and
/// in the pause data of that size can prove that it arrives.
const CONFIRMATION_PAUSE: Duration = Duration::from_millis(100);
/// Lost datagrams above the base, with none of their size arriving in between, after which the size
/// is probed again (black hole detection).
const BLACK_HOLE_LOSSES: u32 = 3;
/// Time after which a larger size is probed again (RFC 8899, section 5.1.1).
pub(crate) const RAISE_AFTER: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No probe has had a result.
    Untested,
    /// A size above the confirmed one is probed.
    Searching,
    /// The confirmed size is probed again, from this instant on.
    Confirming(Instant),
    /// Nothing is probed before this instant.
    Complete(Option<Instant>),
}

/// The search for the path MTU.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    base: u16,
    /// The interface's MTU.
    limit: u16,
    /// The largest size that has arrived.
    confirmed: u16,
    /// The smallest size found to be too big.
    too_big: Option<u16>,
    state: State,
    /// The size to probe, in any state but `Complete`.
    target: u16,
    /// A probe is in flight.
    probe_in_flight: bool,
    /// Probes of this size that were lost.
    lost: u8,
    /// The search has completed at least once since it started from the base.
    settled: bool,
    /// Datagrams above the base lost since one of their size arrived, and the smallest size among
    /// them.
    suspicious_losses: u32,
    smallest_lost: u16,
}

impl Search {
    /// A search from `base` up to `limit`, the interface's MTU; it is the base if that is larger.
    pub(crate) fn new(base: u16, limit: u16) -> Self {
        let confirmed = base.min(limit);
        let state = if confirmed < limit { State::Untested } else { State::Complete(None) };
        Self {
            base,
            limit,
            confirmed,
            too_big: None,
            state,
            target: limit,
            probe_in_flight: false,
            lost: 0,
            settled: confirmed == limit,
            suspicious_losses: 0,
            smallest_lost: u16::MAX,
        }
    }

    /// The largest size that has arrived.
    pub(crate) fn confirmed(&self) -> u16 {
        self.confirmed
    }

    /// The interface's MTU.
    pub(crate) fn limit(&self) -> u16 {
        self.limit
    }

    /// The largest size that may be hoped to arrive: until a first probe has had a result, what the
    /// interface carries.
    pub(crate) fn hoped(&self) -> u16 {
        if self.state == State::Untested { self.limit } else { self.confirmed }
    }

    /// The result of discovery; `None` while it goes on.
    pub(crate) fn lasting(&self) -> Option<u16> {
        (self.settled || self.state == State::Untested).then(|| self.hoped())
    }

    /// When the search goes on by timer.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Complete(raise_at) => raise_at,
            State::Confirming(probe_at) => (!self.probe_in_flight).then_some(probe_at),
            _ => None,
        }
    }

    /// The size of the probe that is to be sent now, if one is due.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<u16> {
        if let State::Complete(Some(raise_at)) = self.state
            && now >= raise_at
        {
            self.search_anew();
        }
        let due = match self.state {
            State::Complete(_) => false,
            State::Confirming(probe_at) => now >= probe_at,
            State::Untested | State::Searching => true,
        };
        (due && !self.probe_in_flight).then_some(self.target)
    }

    /// The probe that [`poll`](Self::poll) asked for has left.
    pub(crate) fn on_probe_sent(&mut self) {
        self.probe_in_flight = true;
    }

    /// The path has failed: results of probes in flight do not count.
    pub(crate) fn on_interruption(&mut self) {
        self.probe_in_flight = false;
        self.forget_losses();
    }

    /// The path has changed or recovered: the result may be out of date.
    pub(crate) fn on_path_change(&mut self, now: Instant) {
        self.on_interruption();
        if let State::Complete(_) = self.state {
            if self.confirmed > self.base { self.confirm(now) } else { self.search_anew() }
        }
    }

    /// The interface's MTU is `limit` from now on.
    pub(crate) fn on_limit(&mut self, limit: u16) {
        if limit == self.limit {
            return;
        }
        self.limit = limit;
        self.confirmed = self.confirmed.min(limit);
        self.search_anew();
    }

    /// A datagram, probe or not, arrived in an outer packet of `size`.
    pub(crate) fn on_arrived(&mut self, now: Instant, size: u16) {
        let refutes = size >= self.smallest_lost;
        if refutes {
            self.forget_losses();
        }
        if size > self.limit {
            return;
        }
        self.confirmed = self.confirmed.max(size);
        if self.too_big.is_some_and(|too_big| too_big <= size) {
            self.too_big = None;
        }
        let decides = match self.state {
            State::Complete(_) => false,
            State::Confirming(_) => refutes || size >= self.target,
            State::Untested | State::Searching => size >= self.target,
        };
        if decides {
            self.advance(now);
        }
    }

    /// A probe of `size` was lost on a path that works, and lately lost this share of all packets.
    pub(crate) fn on_probe_lost(&mut self, now: Instant, size: u16, loss: f64) {
        if !self.probe_in_flight || size != self.target {
            return;
        }
        self.probe_in_flight = false;
        self.lost += 1;
        match self.state {
            State::Complete(_) => {}
            State::Confirming(_) if self.lost >= MAX_CONFIRMATIONS => {
                self.confirmed = self.base.min(self.limit);
                self.settled = false;
                self.state = State::Searching;
                self.begin(size);
            }
            State::Confirming(_) => self.state = State::Confirming(now + CONFIRMATION_PAUSE),
            State::Untested | State::Searching => {
                self.state = State::Searching;
                if self.lost >= probes_needed(loss) {
                    self.too_big = Some(size);
                    self.advance(now);
                }
            }
        }
    }

    /// `count` datagrams above the base were lost, probes not counted; the smallest had `smallest`
    /// bytes.
    pub(crate) fn on_lost(&mut self, now: Instant, count: u32, smallest: u16) {
        if count == 0 || matches!(self.state, State::Confirming(_)) {
            return;
        }
        self.suspicious_losses = self.suspicious_losses.saturating_add(count);
        self.smallest_lost = self.smallest_lost.min(smallest);
        let known = matches!(self.state, State::Searching | State::Complete(_));
        if known && self.suspicious_losses >= BLACK_HOLE_LOSSES && self.confirmed > self.base {
            self.confirm(now);
        }
    }

    fn forget_losses(&mut self) {
        self.suspicious_losses = 0;
        self.smallest_lost = u16::MAX;
    }

    fn confirm(&mut self, now: Instant) {
        self.state = State::Confirming(now);
        self.begin(self.confirmed);
    }

    fn search_anew(&mut self) {
        self.too_big = None;
        if self.confirmed < self.limit {
            if self.state != State::Untested {
                self.state = State::Searching;
            }
            self.begin(self.limit);
        } else {
            self.complete(None);
        }
    }

    fn begin(&mut self, target: u16) {
        self.target = target;
        self.probe_in_flight = false;
        self.lost = 0;
    }

    fn complete(&mut self, raise_at: Option<Instant>) {
        self.state = State::Complete(raise_at);
        self.settled = true;
        self.probe_in_flight = false;
    }

    /// Continues with the next size, if one is left.
    fn advance(&mut self, now: Instant) {
        match self.next_size() {
            Some(size) => {
                self.state = State::Searching;
                self.begin(size);
            }
            None => self.complete((self.confirmed < self.limit).then(|| now + RAISE_AFTER)),
        }
    }

    /// The interface's MTU at first, then the middle of the remaining table entries.
    fn next_size(&self) -> Option<u16> {
        let Some(too_big) = self.too_big else {
            return (self.confirmed < self.limit).then_some(self.limit);
        };
        let end = too_big.min(self.limit.saturating_add(1));
        let first = COMMON.partition_point(|&size| size <= self.confirmed);
        let left = &COMMON[first..COMMON.partition_point(|&size| size < end).max(first)];
        left.get(left.len() / 2).copied()
    }
}

/// Lost probes in a row that show a size to be too big on a path that loses this share of packets.
fn probes_needed(loss: f64) -> u8 {
    let needed = FALSE_VERDICT.ln() / loss.clamp(0.01, 0.99).ln();
    needed.ceil().clamp(f64::from(MAX_PROBES), MOST_PROBES) as u8
}

#[cfg(test)]
mod tests;
