//! Path identifiers that may not be reused yet.

use mpip_wire::PathId;

/// Identifiers per word of the bitmap.
const WORD: usize = u64::BITS as usize;

/// A set of path identifiers: a bitmap up to the largest of them, 8 KiB at most.
#[derive(Clone, Debug, Default)]
struct Set(Vec<u64>);

impl Set {
    fn insert(&mut self, id: PathId) {
        let (word, bit) = (usize::from(id.0) / WORD, usize::from(id.0) % WORD);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    fn contains(&self, id: PathId) -> bool {
        let (word, bit) = (usize::from(id.0) / WORD, usize::from(id.0) % WORD);
        self.0.get(word).is_some_and(|word| word >> bit & 1 == 1)
    }
}

/// Identifiers of abandoned paths, for as long as keys exist under which they were used.
///
/// Nonces and replay windows belong to an identifier and a key. Keys are erased at the second
/// renewal after the one that made them, so an identifier is free again after two renewals.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetiredIds {
    /// Abandoned under the current keys.
    newer: Set,
    /// Abandoned under the previous keys.
    older: Set,
}

impl RetiredIds {
    /// Reserves `id`: nothing is sent or accepted on that path any more.
    pub(crate) fn insert(&mut self, id: PathId) {
        self.newer.insert(id);
    }

    /// Whether `id` may not be reused yet.
    pub(crate) fn contains(&self, id: PathId) -> bool {
        self.newer.contains(id) || self.older.contains(id)
    }

    /// New keys are in use, and those before the previous ones are erased.
    pub(crate) fn on_renewal(&mut self) {
        core::mem::swap(&mut self.newer, &mut self.older);
        self.newer.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// [P-2]
        #[test]
        fn an_identifier_is_free_after_two_renewals(
            steps in prop::collection::vec(prop::option::weighted(0.9, any::<u16>()), 1..200),
            asked in any::<u16>(),
        ) {
            let mut ids = RetiredIds::default();
            let mut model = [BTreeSet::new(), BTreeSet::new()];
            for step in steps {
                match step {
                    Some(id) => {
                        ids.insert(PathId(id));
                        model[0].insert(id);
                    }
                    None => {
                        ids.on_renewal();
                        model = [BTreeSet::new(), core::mem::take(&mut model[0])];
                    }
                }
                for id in model.iter().flatten().copied().chain([asked, 0, u16::MAX]) {
                    let retired = model.iter().any(|generation| generation.contains(&id));
                    prop_assert_eq!(ids.contains(PathId(id)), retired, "{}", id);
                }
            }
        }
    }

    #[test]
    fn a_hostile_choice_of_identifiers_takes_no_more_than_16_kib() {
        let mut ids = RetiredIds::default();
        for _ in 0..3 {
            for id in 0..=u16::MAX {
                ids.insert(PathId(id));
            }
            ids.on_renewal();
        }
        let bytes = (ids.newer.0.capacity() + ids.older.0.capacity()) * size_of::<u64>();
        assert!(bytes <= 16 << 10, "{bytes}");
    }
}
