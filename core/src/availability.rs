//! Availability: whether an mpip node answers at an address that belongs to no configured peer.
//!
//! The host reports the destinations that it talks to. Each is queried by a separate datagram,
//! never by changing the host's packets, and the result is kept until it expires:
//!
//! ```text
//!            noted              no answer, 1, 2, 4, 8 s              after the fifth, 16 s
//!  unknown ────────► queried 1 ────────────────────────► queried 5 ───────────────────────┐
//!                        │ answer                            │ answer                     ▼
//!                        ▼                                   ▼        10 min,      ┌─────────────┐
//!                    ┌───────────────────────────────────────────┐    noted again, │ not enabled │
//!                    │ enabled (1 h), or refused: its key changed│ ◄──── answer ── └─────────────┘
//!                    └───────────────────────────────────────────┘
//! ```
//!
//! The limits match: at the permitted query rate, the oldest entry of a full table was queried more
//! than ten minutes ago, so evicting it does not break the limit of one query per ten minutes.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use mpip_crypto::PublicKey;

use mpip_types::Instant;
use mpip_types::table::Table;
use mpip_types::{Bucket, Rate};

/// Unanswered queries after which a destination counts as not enabled.
pub(crate) const QUERIES: u8 = 5;
/// Interval after the first query; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// After the first [`QUERIES`], shortest interval between queries to one destination.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(600);
/// Lifetime of an answer.
const ENABLED_FOR: Duration = Duration::from_secs(3_600);
/// Time to wait for the answer to a later query.
const LAST_PAUSE: Duration = Duration::from_secs(16);
/// Rate limit of new destinations to query, and of answers.
pub(crate) const PER_SECOND: Rate = Rate { burst: 50, per_second: 50 };
/// Size of the table of destinations.
pub(crate) const DESTINATIONS: usize = 32_768;

// Every destination queried in the last ten minutes took a token within that time plus the 15 s of
// its first five queries.
const _: () =
    assert!(DESTINATIONS as u64 >= PER_SECOND.per_second as u64 * (ASK_AGAIN.as_secs() + 15 + 1));

/// State of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AvailabilityState {
    /// Queried this many times, without an answer so far.
    Queried(u8),
    /// A node answered.
    Enabled {
        /// Its public key.
        public_key: PublicKey,
    },
    /// No answer, or no handshake succeeded.
    NotEnabled,
    /// A node answered that names another key than the one pinned to this address.
    KeyChanged {
        /// Its public key.
        public_key: PublicKey,
    },
}

impl AvailabilityState {
    /// The name in status output.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Queried(_) => "queried",
            Self::Enabled { .. } => "enabled",
            Self::NotEnabled => "not-enabled",
            Self::KeyChanged { .. } => "key-changed",
        }
    }
}

/// Status of a destination.
#[derive(Clone, Copy, Debug)]
pub struct AvailabilityStatus {
    /// The destination.
    pub address: IpAddr,
    /// What is known of it.
    pub state: AvailabilityState,
    /// Queries sent so far.
    pub queries: u32,
    /// Time until it may be queried again; zero if it may be now.
    pub expires_in: Duration,
}

#[derive(Debug)]
struct Entry {
    state: AvailabilityState,
    /// The host's address that talks to it; the first query leaves from there.
    source: IpAddr,
    /// Nonce of the latest query, which an answer must repeat.
    nonce: u64,
    queries: u32,
    /// When the state ends or the next query is due.
    until: Instant,
    /// Whether `until` is in the list of timers.
    due: bool,
}

/// A query to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) to: IpAddr,
    /// The host's address that talks to it.
    pub(crate) source: IpAddr,
    pub(crate) nonce: u64,
    /// Number of queries before it.
    pub(crate) attempt: u32,
}

/// The table of destinations.
#[derive(Debug)]
pub(crate) struct Availability {
    table: Table<IpAddr, Entry>,
    due: BTreeSet<(Instant, u32)>,
    begun: Bucket,
}

impl Availability {
    /// An empty table, hashing under `seed`.
    pub(crate) fn new(seed: [u8; 16]) -> Self {
        Self { table: Table::new(DESTINATIONS, seed), due: BTreeSet::new(), begun: Bucket::new() }
    }

    /// The host's address `source` talks to `destination`. Returns whether a query follows.
    pub(crate) fn note(&mut self, now: Instant, source: IpAddr, destination: IpAddr) -> bool {
        let known = self.table.find(&destination);
        let expired = |entry: &Entry| !entry.due && now >= entry.until;
        if known.and_then(|slot| self.table.get(slot)).is_some_and(|entry| !expired(entry)) {
            return false;
        }
        if !self.begun.take(now, PER_SECOND) {
            return false;
        }
        let slot = match known {
            Some(slot) => slot,
            None => {
                let entry = Entry {
                    state: AvailabilityState::Queried(0),
                    source,
                    nonce: 0,
                    queries: 0,
                    until: now,
                    due: false,
                };
                let inserted = self.table.insert(now, destination, entry);
                if let Some(removed) = inserted.removed {
                    self.due.remove(&(removed.value.until, removed.index));
                }
                inserted.index
            }
        };
        if let Some(entry) = self.table.get_mut(slot) {
            entry.source = source;
        }
        self.wait(slot, now);
        true
    }

    /// Sets the timer of the entry in `slot` to `at`.
    fn wait(&mut self, slot: u32, at: Instant) {
        if let Some(entry) = self.table.get_mut(slot) {
            self.due.remove(&(entry.until, slot));
            (entry.until, entry.due) = (at, true);
            self.due.insert((at, slot));
        }
    }

    /// Sets the entry in `slot` to `state` until `until`, without a timer.
    fn settle(&mut self, slot: u32, state: AvailabilityState, until: Instant) {
        if let Some(entry) = self.table.get_mut(slot) {
            self.due.remove(&(entry.until, slot));
            (entry.state, entry.until, entry.due) = (state, until, false);
        }
    }

    /// When [`poll_query`](Self::poll_query) is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The next query that is due, with a nonce from `nonce`.
    pub(crate) fn poll_query(
        &mut self,
        now: Instant,
        mut nonce: impl FnMut() -> u64,
    ) -> Option<Query> {
        while let Some(&(at, slot)) = self.due.first()
            && at <= now
        {
            self.due.pop_first();
            let Some(to) = self.table.key(slot).copied() else { continue };
            let Some(entry) = self.table.get_mut(slot) else { continue };
            entry.due = false;
            // The destination has not answered its first queries, or a later one: the wait is over.
            if let AvailabilityState::Queried(QUERIES..) = entry.state {
                let asked = self.table.used(slot).unwrap_or(now);
                self.settle(slot, AvailabilityState::NotEnabled, asked + ASK_AGAIN);
                continue;
            }
            let attempt = entry.queries;
            let first = u8::try_from(attempt).ok().filter(|before| *before + 1 < QUERIES);
            let pause = match first {
                Some(before) => FIRST_PAUSE * (1 << before),
                None => LAST_PAUSE,
            };
            entry.state = AvailabilityState::Queried(first.map_or(QUERIES, |before| before + 1));
            entry.queries += 1;
            entry.nonce = nonce();
            let query = Query { to, source: entry.source, nonce: entry.nonce, attempt };
            self.table.touch(slot, now);
            self.wait(slot, now + pause);
            return Some(query);
        }
        None
    }

    /// `from` answered with `nonce` and a public key. If this answers a query of ours, returns the
    /// host's address that talks to it.
    pub(crate) fn on_answer(
        &mut self,
        now: Instant,
        from: IpAddr,
        nonce: u64,
        public_key: PublicKey,
    ) -> Option<IpAddr> {
        let slot = self.table.find(&from)?;
        let entry = self.table.get_mut(slot)?;
        if !entry.due || entry.queries == 0 || entry.nonce != nonce {
            return None;
        }
        // From now on it counts as queried five times.
        entry.queries = entry.queries.max(u32::from(QUERIES));
        let source = entry.source;
        self.settle(slot, AvailabilityState::Enabled { public_key }, now + ENABLED_FOR);
        Some(source)
    }

    /// No association with `address` was established, or it ended. It is queried again when
    /// permitted.
    pub(crate) fn refuse(&mut self, now: Instant, address: IpAddr, state: AvailabilityState) {
        let Some(slot) = self.table.find(&address) else { return };
        let asked = self.table.used(slot).unwrap_or(now);
        self.settle(slot, state, asked + ASK_AGAIN);
    }

    /// Status of every destination, in no particular order.
    pub(crate) fn status(&self, now: Instant) -> impl Iterator<Item = AvailabilityStatus> {
        self.table.iter().map(move |(_, address, entry)| AvailabilityStatus {
            address: *address,
            state: entry.state,
            queries: entry.queries,
            expires_in: entry.until.since(now),
        })
    }
}

#[cfg(test)]
mod tests;
