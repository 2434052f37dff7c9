//! The associations that are flushed after a batch.

use std::collections::BTreeSet;

/// Places of associations.
#[derive(Debug, Default)]
pub(super) struct Touched {
    places: BTreeSet<usize>,
    /// The one that was added last, if it is still there.
    newest: Option<usize>,
}

impl Touched {
    pub(super) fn insert(&mut self, place: usize) {
        // Packets come in runs of one peer, and a comparison takes less than a search.
        if self.newest != Some(place) {
            self.places.insert(place);
            self.newest = Some(place);
        }
    }

    pub(super) fn remove(&mut self, place: usize) {
        self.places.remove(&place);
        self.newest = None;
    }

    /// Removes the next one, in round-robin order from `first`.
    pub(super) fn next(&mut self, first: usize) -> Option<usize> {
        let from_first = self.places.range(first..).next();
        let place = *from_first.or_else(|| self.places.first())?;
        self.remove(place);
        Some(place)
    }
}
