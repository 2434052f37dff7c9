//! The handshake of QUIC without TLS, and packets that are not encrypted, so that a simulation is
//! fast and repeats. Flights and packets have the lengths of a handshake with TLS 1.3 and of
//! AES-GCM.

use std::any::Any;
use std::io::Cursor;
use std::sync::Arc;

use quinn_proto::crypto::{
    AeadKey, ClientConfig, CryptoError, ExportKeyingMaterialError, HandshakeTokenKey, HeaderKey,
    HmacKey, KeyPair, Keys, PacketKey, ServerConfig, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};

/// Lengths of the flights of TLS 1.3 in bytes, with a short chain of certificates.
const CLIENT_HELLO: usize = 300;
const SERVER_HELLO: usize = 120;
const SERVER_FLIGHT: usize = 2_000;
const FINISHED: usize = 36;

/// Length of AES-GCM's tag, and of the sample for the protection of headers.
const TAG: usize = 16;

/// What stands for all secrets: nothing is encrypted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open;

/// A key that changes nothing. The tag holds the packet number and the key's generation, so that a
/// packet whose number was expanded wrongly because it is so late, or that is of another key, is
/// dropped as with an AEAD.
#[derive(Clone, Copy, Debug)]
struct Key {
    generation: u64,
}

impl Key {
    fn tag(self, packet: u64) -> [u8; TAG] {
        (u128::from(packet) << 64 | u128::from(self.generation)).to_be_bytes()
    }

    fn pair(self) -> KeyPair<Box<dyn PacketKey>> {
        KeyPair { local: Box::new(self), remote: Box::new(self) }
    }
}

impl PacketKey for Key {
    fn encrypt(&self, packet: u64, buf: &mut [u8], _header_len: usize) {
        let tag = buf.len() - TAG;
        buf[tag..].copy_from_slice(&self.tag(packet));
    }

    fn decrypt(
        &self,
        packet: u64,
        _header: &[u8],
        payload: &mut bytes::BytesMut,
    ) -> Result<(), CryptoError> {
        let len = payload.len().checked_sub(TAG).ok_or(CryptoError)?;
        if payload[len..] != self.tag(packet) {
            return Err(CryptoError);
        }
        payload.truncate(len);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        TAG
    }

    fn confidentiality_limit(&self) -> u64 {
        u64::MAX
    }

    fn integrity_limit(&self) -> u64 {
        u64::MAX
    }
}

impl HeaderKey for Open {
    fn decrypt(&self, _offset: usize, _packet: &mut [u8]) {}

    fn encrypt(&self, _offset: usize, _packet: &mut [u8]) {}

    fn sample_size(&self) -> usize {
        TAG
    }
}

/// For reset tokens, which no other host guesses here: the first bytes of the data.
impl HmacKey for Open {
    fn sign(&self, data: &[u8], out: &mut [u8]) {
        out.fill(0xa5);
        out.iter_mut().zip(data).for_each(|(to, from)| *to ^= from);
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, _data: &[u8], _signature: &[u8]) -> Result<(), CryptoError> {
        Err(CryptoError)
    }
}

impl HandshakeTokenKey for Open {
    fn aead_from_hkdf(&self, _random: &[u8]) -> Box<dyn AeadKey> {
        Box::new(Self)
    }
}

impl AeadKey for Open {
    fn seal(&self, data: &mut Vec<u8>, _additional: &[u8]) -> Result<(), CryptoError> {
        data.extend_from_slice(&[0; TAG]);
        Ok(())
    }

    fn open<'a>(
        &self,
        data: &'a mut [u8],
        _additional: &[u8],
    ) -> Result<&'a mut [u8], CryptoError> {
        let len = data.len().checked_sub(TAG).ok_or(CryptoError)?;
        Ok(&mut data[..len])
    }
}

fn keys() -> Keys {
    Keys {
        header: KeyPair { local: Box::new(Open), remote: Box::new(Open) },
        packet: Key { generation: 0 }.pair(),
    }
}

impl ClientConfig for Open {
    fn start_session(
        self: Arc<Self>,
        _version: u32,
        _server_name: &str,
        own: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        Ok(Box::new(Handshake::new(Side::Client, own)))
    }
}

impl ServerConfig for Open {
    fn initial_keys(&self, _version: u32, _to: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        Ok(keys())
    }

    fn retry_tag(&self, _version: u32, _to: &ConnectionId, _packet: &[u8]) -> [u8; 16] {
        [0; 16]
    }

    fn start_session(
        self: Arc<Self>,
        _version: u32,
        own: &TransportParameters,
    ) -> Box<dyn Session> {
        Box::new(Handshake::new(Side::Server, own))
    }
}

/// The flights, each in its turn. A flight is its whole length, what follows it of transport
/// parameters, those, and zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    ClientHello,
    ServerHello,
    ServerFlight,
    Finished,
    Done,
}

impl Turn {
    fn len(self) -> usize {
        match self {
            Self::ClientHello => CLIENT_HELLO,
            Self::ServerHello => SERVER_HELLO,
            Self::ServerFlight => SERVER_FLIGHT,
            Self::Finished | Self::Done => FINISHED,
        }
    }

    fn sender(self) -> Option<Side> {
        match self {
            Self::ClientHello | Self::Finished => Some(Side::Client),
            Self::ServerHello | Self::ServerFlight => Some(Side::Server),
            Self::Done => None,
        }
    }

    fn next(self) -> Self {
        match self {
            Self::ClientHello => Self::ServerHello,
            Self::ServerHello => Self::ServerFlight,
            Self::ServerFlight => Self::Finished,
            Self::Finished | Self::Done => Self::Done,
        }
    }
}

/// One end's handshake.
struct Handshake {
    side: Side,
    own: Vec<u8>,
    turn: Turn,
    incoming: Vec<u8>,
    peer: Option<TransportParameters>,
    /// The client has keys to take after a flight of the server.
    owes_keys: bool,
    /// Of the newest key.
    generation: u64,
}

impl Handshake {
    fn new(side: Side, own: &TransportParameters) -> Self {
        let mut encoded = Vec::new();
        own.write(&mut encoded);
        let (turn, incoming) = (Turn::ClientHello, Vec::new());
        Self { side, own: encoded, turn, incoming, peer: None, owes_keys: false, generation: 0 }
    }

    /// A flight carries the sender's transport parameters, if it is the first one that may.
    fn carries(turn: Turn) -> bool {
        matches!(turn, Turn::ClientHello | Turn::ServerFlight)
    }
}

impl Session for Handshake {
    fn initial_keys(&self, _to: &ConnectionId, _side: Side) -> Keys {
        keys()
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.turn != Turn::Done
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        self.incoming.extend_from_slice(bytes);
        while self.turn.sender().is_some_and(|sender| sender != self.side)
            && self.incoming.len() >= self.turn.len()
        {
            let flight: Vec<u8> = self.incoming.drain(..self.turn.len()).collect();
            if Self::carries(self.turn) {
                let len = usize::from(u16::from_be_bytes([flight[0], flight[1]]));
                let encoded = flight.get(2..2 + len);
                let encoded = encoded.ok_or_else(|| TransportError {
                    code: TransportErrorCode::PROTOCOL_VIOLATION,
                    frame: None,
                    reason: "transport parameters are missing".into(),
                })?;
                let read = TransportParameters::read(self.side, &mut Cursor::new(encoded));
                self.peer = Some(read?);
            }
            self.turn = self.turn.next();
            self.owes_keys = self.side.is_client();
        }
        Ok(false)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        Ok(self.peer)
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        if self.turn.sender() == Some(self.side) {
            let start = out.len();
            if Self::carries(self.turn) {
                out.extend_from_slice(&(self.own.len() as u16).to_be_bytes());
                out.extend_from_slice(&self.own);
            }
            out.resize(start + self.turn.len(), 0);
            let sent = self.turn;
            self.turn = self.turn.next();
            // The client takes keys for each flight that it has read, its `Finished` leaves
            // meanwhile.
            if sent == Turn::ClientHello {
                return None;
            }
            self.owes_keys = false;
            return Some(keys());
        }
        core::mem::take(&mut self.owes_keys).then(keys)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.generation += 1;
        Some(Key { generation: self.generation }.pair())
    }

    fn is_valid_retry(&self, _to: &ConnectionId, _header: &[u8], _payload: &[u8]) -> bool {
        false
    }

    fn export_keying_material(
        &self,
        _output: &mut [u8],
        _label: &[u8],
        _context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_under_another_number_or_key_is_refused() {
        let mut packet = vec![1; 100 + TAG];
        Key { generation: 2 }.encrypt(300, &mut packet, 10);
        let open = |number, generation| {
            let mut payload = bytes::BytesMut::from(&packet[10..]);
            let opened = Key { generation }.decrypt(number, &packet[..10], &mut payload);
            opened.map(|()| payload.len()).ok()
        };
        assert_eq!([open(300, 2), open(44, 2), open(300, 3)], [Some(90), None, None]);
    }
}
