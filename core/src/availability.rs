//! What is known of addresses that no peer has: whether an mpip node answers there.
//!
//! The host says to which destinations it talks. Each is asked by a datagram of its own, never by a
//! change to the host's packets, and what came of it is kept until it expires:
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
//! The bounds fit each other: so many destinations may be asked in a second that when the table is
//! full, the one asked longest ago was asked more than ten minutes ago. Forgetting it breaks no
//! promise.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use mpip_crypto::PublicKey;

use mpip_types::Instant;
use mpip_types::table::Table;
use mpip_types::{Bucket, Rate};

/// Queries to one destination before it counts as not enabled.
pub(crate) const QUERIES: u8 = 5;
/// Pause after the first query; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// After the first [`QUERIES`], one destination is asked at most once in this time.
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(600);
/// How long an answer is believed.
const ENABLED_FOR: Duration = Duration::from_secs(3_600);
/// How long the answer to a query of later times is waited for.
const LAST_PAUSE: Duration = Duration::from_secs(16);
/// Destinations that may begin to be asked in a second, and answers that may be given.
pub(crate) const PER_SECOND: Rate = Rate { burst: 50, per_second: 50 };
/// Destinations that are remembered.
pub(crate) const DESTINATIONS: usize = 32_768;

// Whoever was asked in the last ten minutes took from the bucket in these and in the 15 s that its
// first five queries take.
const _: () =
    assert!(DESTINATIONS as u64 >= PER_SECOND.per_second as u64 * (ASK_AGAIN.as_secs() + 15 + 1));

/// What is known of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AvailabilityState {
    /// Asked so many times, and an answer is waited for.
    Queried(u8),
    /// A node answered.
    Enabled {
        /// The key that it named.
        public_key: PublicKey,
    },
    /// Nothing answered, or no handshake came about.
    NotEnabled,
    /// A node answered that names another key than the one pinned to this address.
    KeyChanged {
        /// The key that it named.
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

/// A destination as its statistics show it.
#[derive(Clone, Copy, Debug)]
pub struct AvailabilityStatus {
    /// The destination.
    pub address: IpAddr,
    /// What is known of it.
    pub state: AvailabilityState,
    /// Queries sent so far.
    pub queries: u32,
    /// Time until it may be asked again; zero when it may be.
    pub expires_in: Duration,
}

#[derive(Debug)]
struct Entry {
    state: AvailabilityState,
    /// The host's address that talks to it: a query leaves from there first.
    source: IpAddr,
    /// Of the latest query; an answer has to show it.
    nonce: u64,
    queries: u32,
    /// When the state ends or the next query is due.
    until: Instant,
    /// Whether `until` is in the list of what is due.
    due: bool,
}

/// A query to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) to: IpAddr,
    /// The host's address that talks to it.
    pub(crate) source: IpAddr,
    pub(crate) nonce: u64,
    /// How many there were before it.
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

    /// The host's address `source` talks to `destination`. Whether a query follows from it.
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

    /// Something is due for the entry in `slot` at `at`.
    fn wait(&mut self, slot: u32, at: Instant) {
        if let Some(entry) = self.table.get_mut(slot) {
            self.due.remove(&(entry.until, slot));
            (entry.until, entry.due) = (at, true);
            self.due.insert((at, slot));
        }
    }

    /// Nothing is due for the entry in `slot`, which is in `state` until `until` at least.
    fn settle(&mut self, slot: u32, state: AvailabilityState, until: Instant) {
        if let Some(entry) = self.table.get_mut(slot) {
            self.due.remove(&(entry.until, slot));
            (entry.state, entry.until, entry.due) = (state, until, false);
        }
    }

    /// When [`poll_query`](Self::poll_query) has something to do.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The next query that is due, which takes its nonce from `nonce`.
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
            // Of a destination that did not answer the first queries, or that is asked at a later
            // time, this is the end of the wait for an answer.
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

    /// `from` answered with `nonce` and named a key. The host's
    /// address that talks to it, if that answers a query of ours.
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
        // From now on it counts as asked five times.
        entry.queries = entry.queries.max(u32::from(QUERIES));
        let source = entry.source;
        self.settle(slot, AvailabilityState::Enabled { public_key }, now + ENABLED_FOR);
        Some(source)
    }

    /// No association came about with `address`, or it ended. It is asked again when it may be.
    pub(crate) fn refuse(&mut self, now: Instant, address: IpAddr, state: AvailabilityState) {
        let Some(slot) = self.table.find(&address) else { return };
        let asked = self.table.used(slot).unwrap_or(now);
        self.settle(slot, state, asked + ASK_AGAIN);
    }

    /// Statistics: every destination, in no particular order.
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
