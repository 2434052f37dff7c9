//! Which connection the fragments of a packet belong to: only the first one says it.

use core::net::IpAddr;
use std::collections::VecDeque;

use super::rewrite::fragment_id;
use mpip_types::packet::Header;

/// Packets in fragments that are under way; of the oldest, later fragments are not known.
const PACKETS: usize = 64;

/// What the first fragments said.
#[derive(Debug)]
pub(crate) struct Fragments<T>(VecDeque<(Key, T)>);

/// What fragments of one packet have in common.
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

    /// Takes note of `said` if the packet is the first fragment of one.
    pub(crate) fn on_first(&mut self, header: &Header, packet: &[u8], said: T) {
        let Some(key) = Key::of(header, packet) else { return };
        if self.0.len() >= PACKETS {
            self.0.pop_front();
        }
        self.0.push_back((key, said));
    }

    /// What the first fragment of the same packet said.
    pub(crate) fn find(&self, header: &Header, packet: &[u8]) -> Option<T> {
        let key = Key::of(header, packet)?;
        self.0.iter().rev().find(|(other, _)| *other == key).map(|(_, said)| *said)
    }
}
