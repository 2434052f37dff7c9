//! Access to the inside of an association for tests and the fuzzer.

#![cfg_attr(not(test), allow(dead_code, reason = "the fuzzer uses a part"))]

use mpip_wire::{
    Frame, Frames, PathId, ReceiverIndex, SessionId, TAG_LEN, TransportHeader, TransportPacket,
    TruncatedNumber,
};

use super::Association;
use crate::parts::keys;
use crate::parts::sizes::NUMBER_LEN;
#[cfg(test)]
use crate::session::{Incoming, Outgoing};
use mpip_types::Instant;
use mpip_types::PathAddress;
#[cfg(test)]
use mpip_types::packet::SessionKey;
#[cfg(test)]
use mpip_types::table::Table;

/// An opened transport message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peeked {
    pub(crate) path: u16,
    pub(crate) number: u64,
    /// The receiver index, which identifies the keys.
    pub(crate) index: u32,
    pub(crate) plain: Vec<u8>,
}

impl Association {
    /// Opens a transport message for this end without changing anything. `None` without the keys.
    pub(crate) fn peek(&self, datagram: &[u8]) -> Option<Peeked> {
        let view = TransportPacket::new_checked(datagram).ok()?;
        let (header, header_len) = (view.header(), view.header_len());
        let epoch = self.keys.by_index(header.receiver.0)?;
        let path = self.paths.get(header.path);
        let number = header.number.expand(path.and_then(|path| path.replay.largest()));
        let mut sealed = datagram[header_len..].to_vec();
        let receive = &epoch.keys.receive;
        let clear = &datagram[..header_len];
        let plain = receive.open_in_place(header.path, number, clear, &mut sealed).ok()?.to_vec();
        Some(Peeked { path: header.path.0, number, index: header.receiver.0, plain })
    }

    /// Paths have just been opened, and the peer has not told how it sees them. Returns the paths
    /// and what it had told.
    #[cfg(test)]
    pub(crate) fn forget_observed(&mut self, now: Instant) -> Vec<(u16, core::net::SocketAddr)> {
        let mut known = Vec::new();
        for index in self.paths.indices() {
            let path = &mut self.paths[index];
            known.extend(path.seen.ours.map(|seen| (path.id.0, seen)));
            (path.seen.ours, path.seen.is_ours, path.opened) = (None, true, now);
        }
        self.review_capture();
        known
    }

    /// Seals `frames` for the peer as this end's next message on `path`.
    pub(crate) fn forge(
        &mut self,
        now: Instant,
        path: u16,
        frames: &[Frame<'_>],
    ) -> Option<(PathAddress, Vec<u8>)> {
        self.forge_plain(now, path, &plaintext(frames))
    }

    /// As [`forge`](Self::forge), with any plaintext.
    pub(crate) fn forge_plain(
        &mut self,
        now: Instant,
        path: u16,
        plain: &[u8],
    ) -> Option<(PathAddress, Vec<u8>)> {
        let index = self.paths.find(PathId(path))?;
        let number = self.paths[index].flight.next_number();
        let datagram = self.seal_plain(path, number, plain)?;
        let path = &mut self.paths[index];
        let asks = Frames::new(plain).flatten().any(|frame| frame.is_ack_eliciting());
        path.flight.on_sent(now, datagram.len() as u16, asks, false, None);
        Some((path.address, datagram))
    }

    /// Seals `frames` for any path and number; returns the datagram and the plaintext.
    pub(crate) fn seal(
        &self,
        path: u16,
        number: u64,
        frames: &[Frame<'_>],
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let plain = plaintext(frames);
        Some((self.seal_plain(path, number, &plain)?, plain))
    }

    /// Seals any plaintext for any path and number.
    pub(crate) fn seal_plain(&self, path: u16, number: u64, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal_numbered(path, (number, NUMBER_LEN), plain)
    }

    /// As [`seal_plain`](Self::seal_plain), with as many bytes of the number as stand beside it.
    pub(crate) fn seal_numbered(
        &self,
        path: u16,
        (number, len): (u64, usize),
        plain: &[u8],
    ) -> Option<Vec<u8>> {
        let epoch = self.keys.current()?;
        let header = TransportHeader {
            path: PathId(path),
            receiver: ReceiverIndex(epoch.peer_index),
            number: TruncatedNumber::new(number, len),
        };
        let mut datagram = vec![0; header.encoded_len()];
        header.emit(&mut datagram).expect("room for the header");
        let mut sealed = [plain, &[0; TAG_LEN]].concat();
        epoch.keys.send.seal(path, number, &datagram, &[], &mut sealed);
        datagram.extend(sealed);
        Some(datagram)
    }

    /// The paths, each with its next packet number.
    pub(crate) fn lanes(&self) -> Vec<(u16, u64)> {
        self.paths.iter().map(|path| (path.id.0, path.flight.next_number())).collect()
    }

    /// The next packet number of `path`.
    pub(crate) fn next_number(&self, path: u16) -> Option<u64> {
        self.paths.get(PathId(path)).map(|path| path.flight.next_number())
    }

    /// Whether this end opens paths.
    pub(crate) fn is_opener(&self) -> bool {
        self.identity.opens()
    }

    /// The receiver indices of the current keys: ours and the peer's.
    pub(crate) fn indices(&self) -> Option<(u32, u32)> {
        self.keys.current().map(|epoch| (epoch.local_index, epoch.peer_index))
    }

    /// The number of key epochs, including the previous and the offered ones.
    pub(crate) fn epochs(&self) -> usize {
        self.keys.len()
    }

    /// Sets the current keys to their packet limit.
    pub(crate) fn wear_out_keys(&mut self) {
        self.keys.current_mut().expect("there are keys").sealed = keys::REKEY_PACKETS;
    }

    /// The receiver index of the pending initiation.
    pub(crate) fn pending_index(&self) -> Option<u32> {
        self.handshakes.pending().map(|pending| pending.index)
    }

    /// The limit of incoming sessions.
    pub(crate) fn most_sessions(&self) -> usize {
        self.limits.sessions
    }

    /// Path and packet number of the packets that wait for retransmission.
    pub(crate) fn repairs(&self) -> Vec<(u16, u64)> {
        self.sending.repairs().iter().map(|packet| (packet.path.0, packet.number)).collect()
    }

    /// The addresses of a path.
    pub(crate) fn address_of(&self, path: u16) -> Option<PathAddress> {
        self.paths.get(PathId(path)).map(|path| path.address)
    }

    /// Whether the peer accepts this end's address on a path as this end's own.
    pub(crate) fn is_taken(&self, path: u16) -> Option<bool> {
        self.paths.get(PathId(path)).map(|path| path.seen.is_ours)
    }

    /// Assigns path identifiers from `id` on.
    pub(crate) fn number_paths_from(&mut self, id: u16) {
        self.paths.number_from(id);
    }

    /// Identifiers of the outgoing sessions.
    pub(crate) fn sending(&self) -> Vec<u32> {
        self.sending.sessions().iter().map(|(_, _, session)| session.id.0).collect()
    }
}

/// The encoded frames.
fn plaintext(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut plain = vec![0; 2_000];
    let mut at = 0;
    for frame in frames {
        at += frame.emit(&mut plain[at..]).expect("room for the frame");
    }
    plain.truncate(at);
    plain
}

/// Bytes of a session's table entry, in its slot and in the index: sending and receiving.
#[cfg(test)]
pub(crate) fn table_entries() -> [(usize, usize); 2] {
    [Table::<SessionKey, Outgoing>::BYTES, Table::<SessionId, Incoming>::BYTES]
}
