//! Sealing that can be done later, on another thread: it needs a key, a number and a buffer.

use core::fmt;
use core::ops::Range;
use std::sync::Arc;

use crate::buffer::{PacketBuf, PacketPart};

/// A key that seals datagrams, shared with whoever seals later. It is erased with its last user.
pub trait Seal: fmt::Debug + Send + Sync {
    /// Seals a datagram. `clear` is its clear header. Its plaintext is the beginning of `out` and
    /// `body`; what is left of `out` is the room for the sealed `body` and the tag.
    ///
    /// `path` and `number` must not repeat together under one key.
    fn seal(&self, path: u16, number: u64, clear: &[u8], body: &[u8], out: &mut [u8]);
}

/// How the datagram in a slot is sealed.
#[derive(Clone, Debug)]
pub struct Sealing<'a> {
    /// The key.
    pub key: &'a Arc<dyn Seal>,
    /// The path identifier of the nonce.
    pub path: u16,
    /// The packet number of the nonce.
    pub number: u64,
    /// Bytes of the clear header at the start of the datagram.
    pub clear_len: usize,
    /// The end of the plaintext, which is not in the slot.
    pub body: Option<PacketPart<'a>>,
}

impl Sealing<'_> {
    /// Seals `datagram`.
    pub(crate) fn run(&self, datagram: &mut [u8]) {
        let (clear, out) = datagram.split_at_mut(self.clear_len);
        let body = self.body.as_ref().map_or(&[][..], PacketPart::bytes);
        self.key.seal(self.path, self.number, clear, body, out);
    }
}

/// Datagrams of one buffer that are still to be sealed, with all that this takes.
#[derive(Debug, Default)]
pub struct Sealings {
    waiting: Vec<Waiting>,
    // Datagrams of one buffer mostly have one key, and bodies from one super-packet.
    keys: Vec<Arc<dyn Seal>>,
    packets: Vec<PacketBuf>,
}

#[derive(Debug)]
struct Waiting {
    datagram: Range<usize>,
    clear_len: usize,
    path: u16,
    number: u64,
    key: usize,
    /// Index and bytes of the packet with the body.
    body: Option<(usize, Range<usize>)>,
}

impl Sealings {
    /// Whether nothing is to be sealed.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Notes that the bytes `datagram` of the buffer are to be sealed.
    pub(crate) fn push(&mut self, datagram: Range<usize>, sealing: &Sealing<'_>) {
        if self.keys.last().is_none_or(|last| !Arc::ptr_eq(last, sealing.key)) {
            self.keys.push(Arc::clone(sealing.key));
        }
        let body = sealing.body.as_ref().map(|body| {
            if self.packets.last().is_none_or(|last| !last.shares_bytes(body.packet())) {
                self.packets.push(body.packet().clone());
            }
            (self.packets.len() - 1, body.range())
        });
        self.waiting.push(Waiting {
            datagram,
            clear_len: sealing.clear_len,
            path: sealing.path,
            number: sealing.number,
            key: self.keys.len() - 1,
            body,
        });
    }

    /// Seals all datagrams in `buffer` and lets go of keys and packets.
    pub fn run(&mut self, buffer: &mut [u8]) {
        for waiting in self.waiting.drain(..) {
            let body = waiting.body.map(|(index, range)| self.packets[index].part(range));
            let sealing = Sealing {
                key: &self.keys[waiting.key],
                path: waiting.path,
                number: waiting.number,
                clear_len: waiting.clear_len,
                body,
            };
            sealing.run(&mut buffer[waiting.datagram]);
        }
        self.keys.clear();
        self.packets.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{PacketPool, Slot};

    /// Adds up all that it is given, so that every argument shows in the result.
    #[derive(Debug)]
    struct Sum(u8);

    impl Seal for Sum {
        fn seal(&self, path: u16, number: u64, clear: &[u8], body: &[u8], out: &mut [u8]) {
            let room = out.len() - body.len() - 1;
            out[room..room + body.len()].copy_from_slice(body);
            let all = [&[self.0, path as u8, number as u8], clear, &*out].concat();
            let sum = all.iter().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
            *out.last_mut().expect("room for the tag") = sum;
        }
    }

    proptest! {
        #[test]
        fn what_is_sealed_later_equals_what_is_sealed_at_once(
            list in prop::collection::vec((0..3_usize, 0..4_usize, 0..60_usize, 0..9_usize), 1..20),
        ) {
            let keys: Vec<Arc<dyn Seal>> =
                (0..3).map(|key| Arc::new(Sum(key)) as Arc<dyn Seal>).collect();
            let mut pool = PacketPool::new(4, 4);
            let packets: Vec<_> = (1..=3_u8)
                .map(|byte| pool.copy_from(&[byte; 64]).expect("a free buffer"))
                .collect();
            let mut later = Sealings::default();
            let (mut buffer, mut at_once) = (vec![0; 4_096], vec![0; 4_096]);
            let mut at = 0;
            for (number, (key, packet, body_len, clear_len)) in list.into_iter().enumerate() {
                let body = packets.get(packet).map(|packet| packet.part(2..2 + body_len));
                let body_len = body.as_ref().map_or(0, |body| body.bytes().len());
                let range = at..at + clear_len + 5 + body_len + 1;
                let sealing = Sealing {
                    key: &keys[key],
                    path: packet as u16,
                    number: number as u64,
                    clear_len,
                    body,
                };
                let mut committed = false;
                let mut slot = Slot::new(&mut at_once[range.clone()], &mut committed);
                slot.bytes()[..clear_len + 5].fill(number as u8);
                slot.seal(&sealing);
                prop_assert!(core::mem::take(&mut committed));
                let mut slot = Slot::sealed_later(
                    &mut buffer[range.clone()],
                    &mut committed,
                    &mut later,
                    range.start,
                );
                slot.bytes()[..clear_len + 5].fill(number as u8);
                slot.seal(&sealing);
                prop_assert!(committed);
                at = range.end;
            }
            later.run(&mut buffer);
            prop_assert_eq!(buffer, at_once);
            prop_assert!(later.is_empty());
            // Nobody refers to the keys any more.
            prop_assert!(keys.iter().all(|key| Arc::strong_count(key) == 1));
        }
    }

    #[test]
    fn a_packet_is_held_once_until_its_datagrams_are_sealed() {
        let key: Arc<dyn Seal> = Arc::new(Sum(0));
        let mut pool = PacketPool::new(1, 0);
        let packet = pool.copy_from(&[1; 3_000]).expect("a free buffer");
        let mut later = Sealings::default();
        for number in 0..40 {
            let body = Some(packet.part(0..50));
            let sealing = Sealing { key: &key, path: 0, number, clear_len: 1, body };
            later.push(number as usize * 60..(number as usize + 1) * 60, &sealing);
        }
        assert_eq!((later.keys.len(), later.packets.len()), (1, 1));
        drop(packet);
        assert!(pool.copy_from(&[1; 3_000]).is_none(), "it is still to be sealed");
        later.run(&mut [0; 2_400]);
        assert!(pool.copy_from(&[1; 3_000]).is_some());
    }
}
