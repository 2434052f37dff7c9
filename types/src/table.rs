//! A bounded hash table with LRU eviction: sessions by 4-tuple, sessions of the peer by identifier.
//!
//! Entries are in slots whose 32-bit index stays the same while the entry exists, so that queues
//! and timers can refer to entries by index. All observable behaviour, including the order of
//! iteration and eviction, depends only on the calls, not on the hashes.

#![allow(
    clippy::disallowed_types,
    reason = "the map only finds the slot of a key; it is never iterated"
)]

use core::hash::{BuildHasher, Hash};
use core::mem;
use core::time::Duration;
use std::collections::HashMap;

use siphasher::sip::SipHasher13;

use crate::time::Instant;

const NONE: u32 = u32::MAX;

/// SipHash-1-3 with a secret key, so that a peer cannot choose keys that collide.
#[derive(Clone, Debug)]
struct KeyedHash([u8; 16]);

impl BuildHasher for KeyedHash {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.0)
    }
}

#[derive(Clone, Debug)]
enum Slot<K, V> {
    /// The next vacant slot.
    Vacant(u32),
    Used(Entry<K, V>),
}

#[derive(Clone, Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    used: Instant,
    /// Neighbours in the order of use.
    older: u32,
    newer: u32,
}

/// An entry that left the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed<K, V> {
    /// Its former slot, which another entry may use already.
    pub index: u32,
    /// Its key.
    pub key: K,
    /// Its value.
    pub value: V,
}

/// The result of an insertion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inserted<K, V> {
    /// The slot of the new entry.
    pub index: u32,
    /// The replaced entry with the same key, or at the limit the evicted, least recently used one.
    /// The new entry may have its slot.
    pub removed: Option<Removed<K, V>>,
}

/// A table of at most `limit` entries. Inserting at the limit evicts the least recently used entry
/// and counts it. Memory grows with the peak number of entries and is kept.
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    slots: Vec<Slot<K, V>>,
    index: HashMap<K, u32, KeyedHash>,
    limit: usize,
    vacant: u32,
    oldest: u32,
    newest: u32,
    evictions: u64,
}

impl<K, V> Table<K, V> {
    /// Bytes of memory of an entry: in its slot, and in the index at its lowest load: 16 of 28
    /// places in use after it has grown, each with a control byte.
    pub const BYTES: (usize, usize) =
        (size_of::<Slot<K, V>>(), (size_of::<(K, u32)>() + 1) * 16 / 7);
}

impl<K: Copy + Eq + Hash, V> Table<K, V> {
    /// An empty table for `limit` entries (at least 1, below 2^32), hashing under `seed`.
    pub fn new(limit: usize, seed: [u8; 16]) -> Self {
        Self {
            slots: Vec::new(),
            index: HashMap::with_hasher(KeyedHash(seed)),
            limit: limit.clamp(1, NONE as usize - 1),
            vacant: NONE,
            oldest: NONE,
            newest: NONE,
            evictions: 0,
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Number of entries evicted because the table was full.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// The slot of `key`.
    pub fn find(&self, key: &K) -> Option<u32> {
        // Packets come in runs of one session, and a comparison takes less than a hash.
        if self.key(self.newest) == Some(key) {
            return Some(self.newest);
        }
        self.index.get(key).copied()
    }

    /// The value in slot `index`.
    pub fn get(&self, index: u32) -> Option<&V> {
        self.entry(index).map(|entry| &entry.value)
    }

    /// The value in slot `index`, mutable. Does not count as use: see [`Table::touch`].
    pub fn get_mut(&mut self, index: u32) -> Option<&mut V> {
        self.get_key_value_mut(index).map(|(_, value)| value)
    }

    /// The key and the mutable value in slot `index`.
    pub fn get_key_value_mut(&mut self, index: u32) -> Option<(&K, &mut V)> {
        match self.slots.get_mut(index as usize) {
            Some(Slot::Used(entry)) => Some((&entry.key, &mut entry.value)),
            _ => None,
        }
    }

    /// The key in slot `index`.
    pub fn key(&self, index: u32) -> Option<&K> {
        self.entry(index).map(|entry| &entry.key)
    }

    /// When the entry in slot `index` was last used.
    pub fn used(&self, index: u32) -> Option<Instant> {
        self.entry(index).map(|entry| entry.used)
    }

    /// Marks the entry in slot `index` as used; `now` must not decrease. No effect without such an
    /// entry.
    pub fn touch(&mut self, index: u32, now: Instant) {
        if let Some(Slot::Used(entry)) = self.slots.get_mut(index as usize) {
            entry.used = now;
            if index != self.newest {
                self.unlink(index);
                self.link(index);
            }
        }
    }

    /// Inserts `value` with `key`, used `now`.
    pub fn insert(&mut self, now: Instant, key: K, value: V) -> Inserted<K, V> {
        let removed = match self.find(&key) {
            Some(index) => self.remove(index),
            None if self.len() >= self.limit => {
                self.evictions += 1;
                self.remove(self.oldest)
            }
            None => None,
        };
        let entry = Slot::Used(Entry { key, value, used: now, older: NONE, newer: NONE });
        let index = match self.slots.get_mut(self.vacant as usize) {
            Some(slot) => {
                let index = self.vacant;
                if let Slot::Vacant(next) = mem::replace(slot, entry) {
                    self.vacant = next;
                }
                index
            }
            None => {
                self.slots.push(entry);
                self.slots.len() as u32 - 1
            }
        };
        self.index.insert(key, index);
        self.link(index);
        Inserted { index, removed }
    }

    /// Removes the entry in slot `index`.
    pub fn remove(&mut self, index: u32) -> Option<Removed<K, V>> {
        self.entry(index)?;
        self.unlink(index);
        let slot = mem::replace(&mut self.slots[index as usize], Slot::Vacant(self.vacant));
        self.vacant = index;
        match slot {
            Slot::Used(Entry { key, value, .. }) => {
                self.index.remove(&key);
                Some(Removed { index, key, value })
            }
            Slot::Vacant(_) => None,
        }
    }

    /// Removes one entry that was not used for `idle` or longer, the least recently used one first;
    /// to be called until it returns `None`.
    pub fn expire(&mut self, now: Instant, idle: Duration) -> Option<Removed<K, V>> {
        let entry = self.entry(self.oldest)?;
        if now.since(entry.used) < idle {
            return None;
        }
        self.remove(self.oldest)
    }

    /// When the least recently used entry expires, if entries expire after `idle`.
    pub fn next_expiry(&self, idle: Duration) -> Option<Instant> {
        self.entry(self.oldest).map(|entry| entry.used + idle)
    }

    /// Every entry with its slot, in the order of the slots.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &K, &V)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| match slot {
            Slot::Used(entry) => Some((index, &entry.key, &entry.value)),
            Slot::Vacant(_) => None,
        })
    }

    /// Every entry with its slot, in the order of the slots, with mutable values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &K, &mut V)> {
        (0..).zip(&mut self.slots).filter_map(|(index, slot)| match slot {
            Slot::Used(entry) => Some((index, &entry.key, &mut entry.value)),
            Slot::Vacant(_) => None,
        })
    }

    fn entry(&self, index: u32) -> Option<&Entry<K, V>> {
        match self.slots.get(index as usize) {
            Some(Slot::Used(entry)) => Some(entry),
            _ => None,
        }
    }

    fn entry_mut(&mut self, index: u32) -> Option<&mut Entry<K, V>> {
        match self.slots.get_mut(index as usize) {
            Some(Slot::Used(entry)) => Some(entry),
            _ => None,
        }
    }

    /// Removes the entry from the order of use.
    fn unlink(&mut self, index: u32) {
        let Some(&Entry { older, newer, .. }) = self.entry(index) else { return };
        match self.entry_mut(older) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match self.entry_mut(newer) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }

    /// Adds the entry as the most recently used one.
    fn link(&mut self, index: u32) {
        let last = self.newest;
        match self.entry_mut(last) {
            Some(entry) => entry.newer = index,
            None => self.oldest = index,
        }
        self.newest = index;
        if let Some(entry) = self.entry_mut(index) {
            entry.older = last;
            entry.newer = NONE;
        }
    }
}

#[cfg(test)]
mod tests;
