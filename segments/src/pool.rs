//! A bounded number of connections, shared fairly between sources.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use mpip_types::Instant;
use mpip_types::table::{Removed, Table};

use crate::connection::Connection;
use crate::stream::Splitter;

/// A source: an IPv4 address, or the /64 of an IPv6 address, because one host can have all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source(u64);

impl From<IpAddr> for Source {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Self(v4.to_bits().into()),
            IpAddr::V6(v6) => Self((v6.to_bits() >> 64) as u64),
        }
    }
}

impl Source {
    /// A number that is different for any two sources of one address family.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// Connections of one kind, and their partial datagrams.
///
/// When it is full, a new connection replaces one of the source with the most connections, or of
/// its own source if none has more. So a source never evicts connections of a source that has
/// fewer.
#[derive(Debug)]
pub(crate) struct Pool {
    table: Table<SocketAddr, Connection>,
    limit: usize,
    /// The slots of each source, and their number.
    slots: BTreeMap<Source, Vec<u32>>,
    sizes: BTreeSet<(usize, Source)>,
    pub(crate) splitter: Splitter,
    evicted: u64,
}

impl Pool {
    /// An empty pool for `limit` connections, hashing addresses under `seed`.
    pub(crate) fn new(limit: usize, seed: [u8; 16]) -> Self {
        Self {
            table: Table::new(limit, seed),
            limit,
            slots: BTreeMap::new(),
            sizes: BTreeSet::new(),
            splitter: Splitter::default(),
            evicted: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Number of connections evicted.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The slot of the connection with `address`.
    pub(crate) fn find(&self, address: &SocketAddr) -> Option<u32> {
        self.table.find(address)
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Connection> {
        self.table.get_mut(index)
    }

    /// The connection with `address`.
    pub(crate) fn with(&self, address: &SocketAddr) -> Option<&Connection> {
        self.table.get(self.find(address)?)
    }

    /// Records that the connection in slot `index` was used.
    pub(crate) fn touch(&mut self, index: u32, now: Instant) {
        self.table.touch(index, now);
    }

    /// Every connection with its slot and address.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &SocketAddr, &mut Connection)> {
        self.table.iter_mut()
    }

    /// Adds a connection with `address`. Returns its slot, and the connection that it replaces or
    /// that was evicted for it.
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        address: SocketAddr,
        connection: Connection,
    ) -> (u32, Option<Connection>) {
        let source = Source::from(address.ip());
        let removed = match self.find(&address) {
            Some(former) => self.remove(former),
            None if self.len() >= self.limit => {
                self.evicted += 1;
                self.make_room(now, source)
            }
            None => None,
        };
        let index = self.table.insert(now, address, connection).index;
        self.resize(source, |slots| slots.push(index));
        (index, removed)
    }

    /// Removes the connection in slot `index`.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Connection> {
        let removed = self.table.remove(index);
        self.removed(removed)
    }

    /// Evicts a connection for a new one from `source`: of those of one source, the least recently
    /// used.
    fn make_room(&mut self, now: Instant, source: Source) -> Option<Connection> {
        let &(most, fattest) = self.sizes.last()?;
        let own = self.slots.get(&source).map_or(0, Vec::len);
        if most == 1 && own == 0 {
            // Each is of another source.
            let removed = self.table.expire(now, Duration::ZERO);
            return self.removed(removed);
        }
        let slots = self.slots.get(if own == most { &source } else { &fattest })?;
        let oldest = slots.iter().copied().min_by_key(|index| self.table.used(*index))?;
        self.remove(oldest)
    }

    fn removed(&mut self, removed: Option<Removed<SocketAddr, Connection>>) -> Option<Connection> {
        let Removed { index, key, value } = removed?;
        self.splitter.forget(key);
        self.resize(key.ip().into(), |slots| slots.retain(|slot| *slot != index));
        Some(value)
    }

    /// Changes the slots of `source`.
    fn resize(&mut self, source: Source, change: impl FnOnce(&mut Vec<u32>)) {
        let slots = self.slots.entry(source).or_default();
        self.sizes.remove(&(slots.len(), source));
        change(slots);
        if slots.is_empty() {
            self.slots.remove(&source);
        } else {
            self.sizes.insert((slots.len(), source));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 16;

    fn address(source: u8, port: u16) -> SocketAddr {
        ([198, 18, 1, source], port).into()
    }

    fn add(pool: &mut Pool, now: u64, address: SocketAddr) {
        let now = Instant::from_millis(now);
        pool.insert(now, address, Connection::open(now, 0, 0, None));
    }

    fn of(pool: &Pool, source: u8) -> usize {
        pool.slots.get(&Source::from(address(source, 0).ip())).map_or(0, Vec::len)
    }

    #[test]
    fn an_ipv6_host_is_one_source_with_all_its_64_bits() {
        let source = |text: &str| Source::from(text.parse::<IpAddr>().expect("valid"));
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1:2:3"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_ne!(source("198.18.0.1"), source("198.18.0.2"));
    }

    #[test]
    fn among_sources_with_one_each_the_one_unused_for_longest_makes_room() {
        let mut pool = Pool::new(LIMIT, [7; 16]);
        for number in 0..LIMIT as u8 {
            add(&mut pool, number.into(), address(number, 1));
        }
        let first = pool.find(&address(0, 1)).expect("there");
        pool.touch(first, Instant::from_millis(100));
        add(&mut pool, 101, address(100, 1));
        assert!(pool.find(&address(0, 1)).is_some() && pool.find(&address(1, 1)).is_none());
        assert_eq!((pool.len(), pool.evicted()), (LIMIT, 1));
    }

    proptest! {
        /// [E-11]
        #[test]
        fn a_source_drives_out_none_of_another_that_has_fewer(
            steps in prop::collection::vec((0_u8..20, 0_u16..40, any::<bool>()), 0..400),
        ) {
            let mut pool = Pool::new(LIMIT, [7; 16]);
            for (time, (source, port, remove)) in steps.into_iter().enumerate() {
                let address = address(source, port);
                if remove {
                    let _ = pool.find(&address).and_then(|index| pool.remove(index));
                    prop_assert!(pool.find(&address).is_none());
                    continue;
                }
                let before: Vec<usize> = (0..20).map(|other| of(&pool, other)).collect();
                add(&mut pool, time as u64, address);
                let own = of(&pool, source);
                prop_assert!(pool.find(&address).is_some() && pool.len() <= LIMIT);
                for (other, before) in (0..20).zip(before).filter(|(other, _)| *other != source) {
                    let after = of(&pool, other);
                    prop_assert!(after == before || before >= own, "{before} and {own}");
                }
                let sum: usize = pool.slots.values().map(Vec::len).sum();
                prop_assert_eq!((sum, pool.sizes.len()), (pool.len(), pool.slots.len()));
            }
        }
    }
}
