//! A bounded table whose entries expire, each after its own idle time.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use mpip_types::Instant;

/// Entries examined at the limit to find one that has been idle for long.
const LOOKS: usize = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Aging<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    /// Times at which to check whether an entry was used meanwhile; never later than it expires.
    reviews: BTreeSet<(Instant, K)>,
    limit: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    used: Instant,
    idle: Duration,
    review: Instant,
}

impl<K: Ord + Copy, V> Aging<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { entries: BTreeMap::new(), reviews: BTreeSet::new(), limit }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, entry)| (key, &entry.value))
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// The entry of `key`, marked as used at `now`.
    pub(crate) fn touch(&mut self, now: Instant, key: &K) -> Option<&mut V> {
        let entry = self.entries.get_mut(key)?;
        entry.used = now;
        Some(&mut entry.value)
    }

    /// Sets the idle time of the entry to `idle`.
    pub(crate) fn set_idle(&mut self, key: &K, idle: Duration) {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.idle != idle) else {
            return;
        };
        entry.idle = idle;
        let review = entry.used + idle;
        if review < entry.review {
            self.reviews.remove(&(entry.review, *key));
            entry.review = review;
            self.reviews.insert((review, *key));
        }
    }

    /// Adds or replaces an entry. Returns the one that was evicted to make room.
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        key: K,
        value: V,
        idle: Duration,
    ) -> Option<(K, V)> {
        self.remove(&key);
        let removed = (self.entries.len() >= self.limit).then(|| self.evict()).flatten();
        let review = now + idle;
        self.entries.insert(key, Entry { value, used: now, idle, review });
        self.reviews.insert((review, key));
        removed
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.reviews.remove(&(entry.review, *key));
        Some(entry.value)
    }

    /// Removes an expired entry.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<(K, V)> {
        while self.reviews.first().is_some_and(|(review, _)| *review <= now) {
            if let Some(removed) = self.settle_first(|gone| gone <= now) {
                return Some(removed);
            }
        }
        None
    }

    fn evict(&mut self) -> Option<(K, V)> {
        for _ in 0..LOOKS {
            let (review, _) = *self.reviews.first()?;
            if let Some(removed) = self.settle_first(|gone| gone <= review) {
                return Some(removed);
            }
        }
        self.settle_first(|_| true)
    }

    /// Reviews the first entry: removes it if its expiry time is `over`; otherwise schedules the
    /// next review at that time.
    fn settle_first(&mut self, over: impl FnOnce(Instant) -> bool) -> Option<(K, V)> {
        let (_, key) = self.reviews.pop_first()?;
        let entry = self.entries.get_mut(&key).expect("a review belongs to an entry");
        let gone = entry.used + entry.idle;
        if over(gone) {
            return self.entries.remove(&key).map(|entry| (key, entry.value));
        }
        entry.review = gone;
        self.reviews.insert((gone, key));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Instant {
        Instant::ZERO + SECOND * seconds
    }

    #[test]
    fn an_entry_goes_after_its_own_time_without_use() {
        let mut table = Aging::new(8);
        table.insert(at(0), 1, 'a', SECOND * 10);
        table.insert(at(0), 2, 'b', SECOND * 5);
        assert_eq!(table.touch(at(4), &2), Some(&mut 'b'));
        assert_eq!(table.expire(at(8)), None);
        assert_eq!(table.expire(at(9)), Some((2, 'b')));
        assert_eq!(table.expire(at(9)), None);
        table.set_idle(&1, SECOND * 20);
        assert_eq!(table.expire(at(19)), None);
        table.set_idle(&1, SECOND * 15);
        assert_eq!(table.expire(at(15)), Some((1, 'a')));
        assert!(table.is_empty() && table.reviews.is_empty());
    }

    #[test]
    fn at_the_bound_one_that_was_not_used_for_long_goes() {
        let mut table = Aging::new(4);
        for key in 0..4 {
            assert_eq!(table.insert(at(key), key, (), SECOND * 100), None);
        }
        for used in [0, 1, 3] {
            table.touch(at(50), &used);
        }
        assert_eq!(table.insert(at(51), 4, (), SECOND * 100), Some((2, ())));
        assert_eq!(table.len(), 4);
        // Replacing an entry evicts none.
        assert_eq!(table.insert(at(52), 4, (), SECOND), None);
        assert_eq!(table.len(), 4);
    }
}
