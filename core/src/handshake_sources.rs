//! Sources of initiations and their rates.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use mpip_types::table::Table;
use mpip_types::{Bucket, Instant, Rate};

use crate::handshake::{Class, Source};

/// Initiations in a second above which their senders have to show a cookie.
pub(crate) const UNDER_LOAD: u32 = 50;
/// Rate limit of initiations with a cookie that are read from one source. Attempts are a second or
/// more apart, so this is enough for dozens of nodes behind one address that lost their peer at the
/// same time. It is a three-hundredth of what a thread can read (140 µs each on a slow core).
pub(crate) const PER_SOURCE: Rate = Rate { burst: 40, per_second: 20 };
/// Most sources whose rate is remembered, and most sources at which peers have authenticated; at
/// the bound the least recently seen one is forgotten. A bucket is full again after 2 s: to profit
/// from that, an attacker would have to show cookies of as many networks in this time.
const SOURCES: usize = 4_096;

/// The sources of initiations.
#[derive(Debug)]
pub(crate) struct HandshakeSources {
    /// Initiations in this second.
    pub(crate) initiations: u32,
    pub(crate) initiations_since: Instant,
    /// Of senders that have shown a cookie: others may have forged their address.
    rates: Table<Source, Bucket>,
    /// Sources at which configured peers have authenticated.
    proven: Table<Source, ()>,
    /// Sources of configured endpoints.
    endpoints: BTreeSet<Source>,
}

impl HandshakeSources {
    /// Without any source. `endpoints`: addresses of configured peers.
    pub(crate) fn new(
        now: Instant,
        endpoints: impl Iterator<Item = IpAddr>,
        seeds: [[u8; 16]; 2],
    ) -> Self {
        Self {
            initiations: 0,
            initiations_since: now,
            rates: Table::new(SOURCES, seeds[0]),
            proven: Table::new(SOURCES, seeds[1]),
            endpoints: endpoints.map(Source::of).collect(),
        }
    }

    /// Replaces the addresses of configured peers.
    pub(crate) fn set_endpoints(&mut self, endpoints: impl Iterator<Item = IpAddr>) {
        self.endpoints = endpoints.map(Source::of).collect();
    }

    /// Counts an initiation. Returns whether its sender has to show a cookie.
    pub(crate) fn is_under_load(&mut self, now: Instant) -> bool {
        if now.since(self.initiations_since) >= Duration::from_secs(1) {
            self.initiations_since = now;
            self.initiations = 0;
        }
        self.initiations = self.initiations.saturating_add(1);
        self.initiations > UNDER_LOAD
    }

    /// Whether another initiation of `source`, which has shown a cookie, may be read.
    pub(crate) fn take(&mut self, now: Instant, source: Source) -> bool {
        let slot = match self.rates.find(&source) {
            Some(slot) => slot,
            None => self.rates.insert(now, source, Bucket::new()).index,
        };
        self.rates.touch(slot, now);
        self.rates.get_mut(slot).is_none_or(|bucket| bucket.take(now, PER_SOURCE))
    }

    /// The class of initiations from `source`.
    pub(crate) fn class(&self, source: Source) -> Class {
        let known = self.endpoints.contains(&source) || self.proven.find(&source).is_some();
        if known { Class::Known } else { Class::Unknown }
    }

    /// A configured peer has authenticated at `source`.
    pub(crate) fn note(&mut self, now: Instant, source: Source) {
        match self.proven.find(&source) {
            Some(slot) => self.proven.touch(slot, now),
            None => drop(self.proven.insert(now, source, ())),
        }
    }
}
