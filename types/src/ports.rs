//! Sets of ports.

/// Ports in a word.
const WORD: usize = u64::BITS as usize;
const WORDS: usize = (u16::MAX as usize + 1) / WORD;

/// A set of ports of TCP or UDP; 8 KiB, however many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSet(Box<[u64; WORDS]>);

impl PortSet {
    /// The set without ports.
    pub fn empty() -> Self {
        Self(Box::new([0; WORDS]))
    }

    /// The set of all ports.
    pub fn full() -> Self {
        Self(Box::new([u64::MAX; WORDS]))
    }

    /// Whether `port` is in the set.
    pub fn contains(&self, port: u16) -> bool {
        let (word, bit) = place(port);
        self.0[word] & bit != 0
    }

    /// Adds `port`.
    pub fn insert(&mut self, port: u16) {
        let (word, bit) = place(port);
        self.0[word] |= bit;
    }

    /// Removes `port`.
    pub fn remove(&mut self, port: u16) {
        let (word, bit) = place(port);
        self.0[word] &= !bit;
    }
}

impl Extend<u16> for PortSet {
    fn extend<I: IntoIterator<Item = u16>>(&mut self, ports: I) {
        ports.into_iter().for_each(|port| self.insert(port));
    }
}

/// The word of `port`, and its bit there.
fn place(port: u16) -> (usize, u64) {
    (usize::from(port) / WORD, 1 << (usize::from(port) % WORD))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(changes in prop::collection::vec((any::<u16>(), any::<bool>()), 0..200)) {
            let (mut ports, mut model) = (PortSet::empty(), BTreeSet::new());
            for (port, add) in changes {
                if add {
                    ports.insert(port);
                    model.insert(port);
                } else {
                    ports.remove(port);
                    model.remove(&port);
                }
            }
            for port in 0..=u16::MAX {
                prop_assert_eq!(ports.contains(port), model.contains(&port));
            }
        }
    }

    #[test]
    fn all_ports_are_in_the_full_set_and_none_in_the_empty_one() {
        let (full, empty) = (PortSet::full(), PortSet::empty());
        assert!((0..=u16::MAX).all(|port| full.contains(port) && !empty.contains(port)));
    }
}
