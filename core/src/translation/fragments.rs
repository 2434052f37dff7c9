//! Fragments: only the first one of a packet has the ports.

use core::net::IpAddr;
use std::collections::VecDeque;

use super::rewrite::fragment_id;
use mpip_types::packet::Header;

/// Fragmented packets tracked; later fragments of older ones are not recognised.
const PACKETS: usize = 64;

/// Fragmented packets, with a value from the first fragment of each.
#[derive(Debug)]
pub(crate) struct Fragments<T>(VecDeque<(Key, T)>);

/// The key that the fragments of one packet share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    id: u32,
}

impl Key {
    fn of(header: &Header, packet: &[u8]) -> Option<Self> {
        let Header { source, destination, protocol, fragment, .. } = *header;
        let id = fragment.then(|| fragment_id(packet)).flatten()?;
        Some(Self { source, destination, protocol, id })
    }
}

impl<T: Copy> Fragments<T> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Records `said` if the packet is a first fragment.
    pub(crate) fn on_first(&mut self, header: &Header, packet: &[u8], said: T) {
        let Some(key) = Key::of(header, packet) else { return };
        if self.0.len() >= PACKETS {
            self.0.pop_front();
        }
        self.0.push_back((key, said));
    }

    /// The value recorded with the first fragment of the same packet.
    pub(crate) fn find(&self, header: &Header, packet: &[u8]) -> Option<T> {
        let key = Key::of(header, packet)?;
        self.0.iter().rev().find(|(other, _)| *other == key).map(|(_, said)| *said)
    }
}
