//! Things that several threads work on at the same time, and that come out in the order in which
//! they went in.

use std::collections::VecDeque;

/// Things in the order in which they went in. A place is the number of a thing.
///
/// ```text
///   push ──► to do ──► take: somebody works on it ──► put ──► done ──► next, in order
/// ```
#[derive(Debug)]
pub(crate) struct InOrder<T> {
    to_do: VecDeque<T>,
    /// The place of the first of `to_do`.
    next: u64,
    /// From the place `first` on: what is done, and gaps for what is still to be done.
    done: VecDeque<Option<T>>,
    first: u64,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self { to_do: VecDeque::new(), next: 0, done: VecDeque::new(), first: 0 }
    }
}

impl<T> InOrder<T> {
    /// Adds a thing to work on.
    pub(crate) fn push(&mut self, thing: T) {
        self.to_do.push_back(thing);
    }

    /// Takes the next thing to work on, with its place.
    pub(crate) fn take(&mut self) -> Option<(u64, T)> {
        let thing = self.to_do.pop_front()?;
        self.next += 1;
        Some((self.next - 1, thing))
    }

    /// Puts a thing back that was taken from `place`, when it is done.
    pub(crate) fn put(&mut self, place: u64, thing: T) {
        let index = usize::try_from(place - self.first).expect("places are near each other");
        if index >= self.done.len() {
            self.done.resize_with(index + 1, || None);
        }
        self.done[index] = Some(thing);
    }

    /// The next thing that comes out, if it is done.
    pub(crate) fn next(&mut self) -> Option<T> {
        let thing = self.done.front_mut()?.take()?;
        self.done.pop_front();
        self.first += 1;
        Some(thing)
    }

    /// Whether the next thing that comes out is done.
    pub(crate) fn has_next(&self) -> bool {
        self.done.front().is_some_and(Option::is_some)
    }

    /// Removes all that nobody works on.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        let done = self.done.iter_mut().filter_map(Option::take);
        done.chain(self.to_do.drain(..))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn things_come_out_in_order_whoever_works_on_them(
            steps in prop::collection::vec((0..3_u8, any::<prop::sample::Index>()), 0..400),
        ) {
            let mut line = InOrder::default();
            let (mut pushed, mut out) = (0_u32, 0_u32);
            let mut taken: Vec<(u64, u32)> = Vec::new();
            let mut put = std::collections::BTreeSet::new();
            for (step, pick) in steps {
                match step {
                    0 => {
                        line.push(pushed);
                        pushed += 1;
                    }
                    1 => taken.extend(line.take()),
                    _ if taken.is_empty() => {}
                    _ => {
                        let (place, thing) = taken.swap_remove(pick.index(taken.len()));
                        line.put(place, thing);
                        put.insert(thing);
                    }
                }
                // What comes out is the next, as soon as it is done and not before.
                while let Some(thing) = line.next() {
                    prop_assert_eq!(thing, out);
                    prop_assert!(put.remove(&thing));
                    out += 1;
                }
                prop_assert!(!put.contains(&out));
            }
            let left = line.drain().count();
            prop_assert_eq!(left + taken.len() + out as usize, pushed as usize);
        }
    }
}
