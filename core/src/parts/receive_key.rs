//! The key that opens what a node receives in one epoch. Threads that open datagrams before the
//! engine gets them share it.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use mpip_crypto::{Aead, OpenError, OpenKey};
use mpip_types::{Open, Opened};
use mpip_wire::{PathId, TransportPacket};

/// A change of the keys that open datagrams, see [`Engine::poll_key`](crate::Engine::poll_key).
#[derive(Clone, Debug)]
pub struct KeyChange {
    /// The [receiver index](receiver_index) of the datagrams that it concerns.
    pub index: u32,
    /// What opens them from now on; `None` if nothing does any more.
    pub key: Option<Arc<dyn Open>>,
}

/// The receiver index of a transport message, which says what key opens it. `None` for other
/// messages.
pub fn receiver_index(datagram: &[u8]) -> Option<u32> {
    TransportPacket::new_checked(datagram).ok().map(|view| view.header().receiver.0)
}

/// A key, with what its other users need to know of the lanes.
#[derive(Debug)]
pub(crate) struct ReceiveKey {
    key: OpenKey,
    /// Distinguishes it from all other keys of this engine that are shared; 0 if it is not shared.
    name: u64,
    lanes: Lanes,
}

impl ReceiveKey {
    /// A key that only the engine uses.
    pub(crate) fn new(key: OpenKey) -> Self {
        Self { key, name: 0, lanes: Lanes::new(0) }
    }

    /// A key that is shared, under a `name` of its own, for at most `paths` paths.
    pub(crate) fn shared(key: OpenKey, name: u64, paths: usize) -> Self {
        Self { key, name, lanes: Lanes::new(paths) }
    }

    pub(crate) fn aead(&self) -> Aead {
        self.key.aead()
    }

    /// Whether it has this name.
    pub(crate) fn is_named(&self, name: u64) -> bool {
        self.name == name
    }

    /// Opens a datagram in place, given as its clear header and the rest.
    pub(crate) fn open_in_place<'a>(
        &self,
        path: PathId,
        number: u64,
        clear: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        self.key.open_in_place(path.0, number, clear, sealed)
    }

    /// Tells the other users the largest number received on each path that exists, if any was.
    pub(crate) fn tell(&self, lanes: impl Iterator<Item = (PathId, u64)> + Clone) {
        self.lanes.replace(lanes);
    }
}

impl Open for ReceiveKey {
    fn open(&self, datagram: &mut [u8]) -> Opened {
        let Ok(view) = TransportPacket::new_checked(datagram) else { return Opened::NotYet };
        let (header, header_len) = (view.header(), view.header_len());
        let Some(largest) = self.lanes.largest(header.path) else { return Opened::NotYet };
        let number = header.number.expand(largest);
        let (clear, sealed) = datagram.split_at_mut(header_len);
        match self.key.open_in_place(header.path.0, number, clear, sealed) {
            Ok(_) => Opened::Authentic { number, key: self.name },
            Err(_) => Opened::Forged,
        }
    }
}

/// Bits of a path identifier.
const PATH_BITS: u32 = u16::BITS;

/// Content of a slot without a path.
const UNUSED: u64 = u64::MAX;

/// Stands for numbers that are too large for a slot. A path does not carry so many in years.
const TOO_LARGE: u64 = (1 << (u64::BITS - PATH_BITS)) - 2;

/// Largest packet number received on each path, as the engine has told.
///
/// What is read may be older than what the engine knows, but it is not older than the feedback that
/// the engine sends afterwards. The peer shortens a number so that it can be restored from any
/// number between what feedback told and its own (`[W-13]`), so that is enough.
#[derive(Debug)]
struct Lanes {
    /// [`UNUSED`], or the number above the path.
    slots: Box<[AtomicU64]>,
    /// Slots from here on have never been used.
    used: AtomicUsize,
}

impl Lanes {
    fn new(paths: usize) -> Self {
        Self {
            slots: (0..paths).map(|_| AtomicU64::new(UNUSED)).collect(),
            used: AtomicUsize::new(0),
        }
    }

    /// A path keeps its slot, so that readers do not miss it.
    fn replace(&self, lanes: impl Iterator<Item = (PathId, u64)> + Clone) {
        let used = self.used.load(Ordering::Relaxed);
        for slot in &self.slots[..used] {
            let path = path_of(slot.load(Ordering::Relaxed));
            let lane = lanes.clone().find(|(id, _)| path == Some(*id));
            slot.store(lane.map_or(UNUSED, pack), Ordering::Relaxed);
        }
        let known = |id| {
            let used = self.used.load(Ordering::Relaxed);
            self.slots[..used].iter().any(|slot| path_of(slot.load(Ordering::Relaxed)) == Some(id))
        };
        for lane in lanes.filter(|(id, _)| !known(*id)) {
            let free = self.slots.iter().position(|slot| slot.load(Ordering::Relaxed) == UNUSED);
            let Some(free) = free else { return };
            self.slots[free].store(pack(lane), Ordering::Relaxed);
            self.used.fetch_max(free + 1, Ordering::Release);
        }
    }

    /// The largest number received on a path, if one was; `None` if that cannot be told.
    fn largest(&self, id: PathId) -> Option<Option<u64>> {
        let used = self.used.load(Ordering::Acquire);
        let mut slots = self.slots[..used].iter().map(|slot| slot.load(Ordering::Relaxed));
        let Some(lane) = slots.find(|lane| path_of(*lane) == Some(id)) else { return Some(None) };
        let number = lane >> PATH_BITS;
        (number < TOO_LARGE).then_some(Some(number))
    }
}

fn pack((id, largest): (PathId, u64)) -> u64 {
    (largest.min(TOO_LARGE) << PATH_BITS) | u64::from(id.0)
}

fn path_of(lane: u64) -> Option<PathId> {
    (lane != UNUSED).then_some(PathId((lane & u64::from(u16::MAX)) as u16))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lanes_are_those_told_last(
            told in prop::collection::vec(
                prop::collection::btree_map(0_u16..9, 0_u64..=mpip_wire::PACKET_NUMBER_MAX, 0..4),
                1..20,
            ),
        ) {
            let lanes = Lanes::new(4);
            for list in told {
                lanes.replace(list.iter().map(|(id, largest)| (PathId(*id), *largest)));
                for id in 0..9 {
                    let expected = match list.get(&id) {
                        Some(largest) if *largest >= TOO_LARGE => None,
                        largest => Some(largest.copied()),
                    };
                    prop_assert_eq!(lanes.largest(PathId(id)), expected);
                }
            }
        }
    }

    #[test]
    fn the_largest_path_with_the_largest_number_is_none_without() {
        let lanes = Lanes::new(1);
        lanes.replace([(PathId(u16::MAX), mpip_wire::PACKET_NUMBER_MAX)].into_iter());
        assert_eq!(lanes.largest(PathId(u16::MAX)), None, "not told");
        assert_eq!(lanes.largest(PathId(0)), Some(None), "nothing received");
    }
}
