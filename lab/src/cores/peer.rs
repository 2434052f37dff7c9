//! A peer that is not there: it has made the handshake, and says that everything arrived.

use std::io;

use mpip_core::Instant;
use mpip_crypto::{Aead, Keys, PresharedKey, PrivateKey, Responder, Rng};
use mpip_wire::{
    AckRange, Feedback, Frame, Frames, InitiationPayload, MessageType, PathId, Ranges,
    ReceiverIndex, ResponsePayload, TAG_LEN, TransportHeader, TransportPacket, TruncatedNumber,
};

/// The path that the other node opens first.
const PATH: PathId = PathId(0);
/// How the peer numbers its end of the association.
const INDEX: u32 = 1;
/// Bytes of packet numbers on the wire.
const NUMBER_LEN: usize = 4;

/// See the [module](self).
pub(super) struct Peer {
    key: PrivateKey,
    rng: Rng,
    /// Keys, and how the other node numbers its end.
    keys: Option<(Keys, u32)>,
    /// Its next packet number.
    next: u64,
    /// The largest number of the other node.
    largest: Option<u64>,
}

impl Peer {
    pub(super) fn new(key: PrivateKey) -> Self {
        Self { key, rng: Rng::new([7; 32]), keys: None, next: 0, largest: None }
    }

    /// The largest packet number that the other node has used, as far as the peer took its
    /// datagrams.
    pub(super) fn largest(&self) -> Option<u64> {
        self.largest
    }

    /// Takes a datagram of the other node; returns the answer.
    pub(super) fn take(&mut self, now: Instant, datagram: &mut [u8]) -> io::Result<Vec<u8>> {
        match MessageType::of(datagram) {
            Ok(MessageType::Initiation) => self.respond(datagram),
            Ok(MessageType::Transport) => self.answer(now, datagram),
            _ => Err(io::Error::other("expected an initiation or a transport message")),
        }
    }

    fn respond(&mut self, datagram: &[u8]) -> io::Result<Vec<u8>> {
        let responder = Responder::read(&mut self.rng, &self.key, datagram).map_err(other)?;
        let asked = InitiationPayload::parse(responder.payload()).map_err(other)?;
        let aead = match asked.aeads.contains(mpip_wire::Aead::Aes256Gcm) {
            true => mpip_wire::Aead::Aes256Gcm,
            false => mpip_wire::Aead::ChaCha20Poly1305,
        };
        let mut payload = [0; ResponsePayload::LEN];
        ResponsePayload { instance: 1, aead, association: 0 }.emit(&mut payload).map_err(other)?;
        let theirs = responder.sender_index();
        let psk = PresharedKey::default();
        let (secrets, response) = responder.respond(&psk, &payload, INDEX).map_err(other)?;
        let aead = Aead::from_code(aead.code()).expect("both name the same algorithms");
        self.keys = Some((secrets.into_keys(aead), theirs));
        Ok(response.to_vec())
    }

    fn answer(&mut self, now: Instant, datagram: &mut [u8]) -> io::Result<Vec<u8>> {
        let view = TransportPacket::new_checked(datagram).map_err(other)?;
        let (header, header_len) = (view.header(), view.header_len());
        let (keys, _) = self.keys.as_ref().ok_or_else(|| io::Error::other("no keys yet"))?;
        let number = header.number.expand(self.largest);
        let (clear, sealed) = datagram.split_at_mut(header_len);
        let plain =
            keys.receive.open_in_place(header.path.0, number, clear, sealed).map_err(other)?;
        let response = Frames::new(plain).find_map(|frame| match frame {
            Ok(Frame::PathChallenge(data)) => Some(Frame::PathResponse(data)),
            _ => None,
        });
        Ok(self.acknowledge_with(now, number, response))
    }

    /// Everything up to the packet number `largest` arrived now.
    pub(super) fn acknowledge(&mut self, now: Instant, largest: u64) -> Vec<u8> {
        self.acknowledge_with(now, largest, None)
    }

    fn acknowledge_with(
        &mut self,
        now: Instant,
        largest: u64,
        response: Option<Frame<'static>>,
    ) -> Vec<u8> {
        let first = self.largest.map_or(0, |known| known + 1).min(largest);
        self.largest = self.largest.max(Some(largest));
        let ranges = [AckRange { first, last: largest }];
        let feedback = Frame::Feedback(Feedback {
            path: PATH,
            received_at: now.since(Instant::ZERO).as_micros() as u32,
            delay: 0,
            ranges: Ranges::new(&ranges).expect("one range"),
            ecn: None,
        });
        match response {
            Some(response) => self.seal(&[response, feedback]),
            None => self.seal(&[feedback]),
        }
    }

    fn seal(&mut self, frames: &[Frame<'_>]) -> Vec<u8> {
        let (keys, theirs) = self.keys.as_ref().expect("the handshake was made");
        let header = TransportHeader {
            path: PATH,
            receiver: ReceiverIndex(*theirs),
            number: TruncatedNumber::new(self.next, NUMBER_LEN),
        };
        let mut datagram = vec![0; header.encoded_len()];
        header.emit(&mut datagram).expect("the room is its length");
        let plain_len: usize = frames.iter().map(Frame::encoded_len).sum();
        let mut sealed = vec![0; plain_len + TAG_LEN];
        let mut at = 0;
        for frame in frames {
            at += frame.emit(&mut sealed[at..]).expect("the room is their length");
        }
        keys.send.seal_into(PATH.0, self.next, &datagram, &[], &mut sealed);
        self.next += 1;
        datagram.extend(sealed);
        datagram
    }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}
