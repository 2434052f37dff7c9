//! The handshake of two nodes. The initiator must know the static public key of the responder.
//!
//! `Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s` (Noise revision 34, sections 7.5 and 9) with the
//! prologue "mpip v1", one round trip:
//!
//! | initiation | bytes | | response | bytes |
//! |---|---|---|---|---|
//! | type 1, three zeros | 4 | | type 2, three zeros | 4 |
//! | sender index, big-endian | 4 | | sender index, big-endian | 4 |
//! | | | | receiver index, big-endian | 4 |
//! | Noise `e` | 32 | | Noise `e` | 32 |
//! | Noise `s`, encrypted | 48 | | | |
//! | payload, encrypted | 24 + 16 | | payload, encrypted | 12 + 16 |
//! | mac1 | 16 | | mac1 | 16 |
//! | mac2 | 16 | | mac2 | 16 |
//! | together | 160 | | together | 104 |
//!
//! The preshared key enters only the response. So the responder learns who the initiator is before
//! it needs the preshared key. Payloads are opaque here. An initiation authenticates the initiator,
//! but may be a replay: hence the timestamp in the payload, and
//! [`ReplayGuard`](crate::ReplayGuard). The initiator's first packet proves that it is alive;
//! before it, the responder must send no data (Noise section 7.7).
//!
//! Private keys, the resulting [`Secrets`] and what `snow` had for them are erased when dropped
//! (`state.rs`), and with them the copies on the stack of who computed with them (`erase.rs`).

use core::fmt;

use self::state::{Secret, State};
use crate::aead::{Aead, Keys, OpenKey, SealKey};
use crate::erase::on_clean_stack;
use crate::mac::Mac1Key;
use crate::{PresharedKey, PrivateKey, PublicKey, Rng};

mod layout;
mod resolver;
mod state;
#[cfg(test)]
mod tests;

pub use layout::{INITIATION_LEN, NOISE_PROTOCOL, PROLOGUE, RESPONSE_LEN};
pub(crate) use resolver::x25519_public;

/// Bytes of the initiation's payload.
pub const INITIATION_PAYLOAD_LEN: usize = 24;

/// Bytes of the response's payload.
pub const RESPONSE_PAYLOAD_LEN: usize = 12;

/// First bytes of both datagrams: the type and three zeros.
const INITIATION_HEADER: [u8; 4] = [1, 0, 0, 0];
const RESPONSE_HEADER: [u8; 4] = [2, 0, 0, 0];

/// A handshake that this node began and whose response it awaits.
pub struct Initiator {
    /// Until the response came.
    state: Option<State>,
    psk: PresharedKey,
    mac1_key: Mac1Key,
    sender_index: u32,
}

impl Initiator {
    /// Begins a handshake with the node whose static public key is `remote`.
    ///
    /// `sender_index` is what the responder will address its datagrams to. The datagram has mac1,
    /// and mac2 zero: [`CookieMemory::stamp`](crate::CookieMemory::stamp) sets that.
    ///
    /// # Errors
    /// [`HandshakeError::Key`] when `remote` is a point of small order, which no node has as key.
    pub fn start(
        rng: &mut Rng,
        local: &PrivateKey,
        remote: &PublicKey,
        psk: &PresharedKey,
        payload: &[u8; INITIATION_PAYLOAD_LEN],
        sender_index: u32,
    ) -> Result<(Self, [u8; INITIATION_LEN]), HandshakeError> {
        let mut datagram = [0; INITIATION_LEN];
        datagram[..4].copy_from_slice(&INITIATION_HEADER);
        datagram[4..8].copy_from_slice(&sender_index.to_be_bytes());
        let state = on_clean_stack(|| {
            let mut state = State::initiator(rng, local, remote);
            state.write_initiation(payload, &mut datagram).map(|()| state)
        });
        let state = Some(state.map_err(|_| HandshakeError::Key)?);
        Mac1Key::of(remote).stamp(&mut datagram);

        let (psk, mac1_key) = (psk.clone(), Mac1Key::of(local.public_key()));
        Ok((Self { state, psk, mac1_key, sender_index }, datagram))
    }

    /// What the response must name as receiver.
    pub fn sender_index(&self) -> u32 {
        self.sender_index
    }

    /// Reads the response to this initiation.
    ///
    /// # Errors
    /// [`HandshakeError`]; the handshake then still awaits its response, so that a forged one
    /// does not end it. [`HandshakeError::Finished`] after it has succeeded.
    pub fn finish(&mut self, datagram: &[u8]) -> Result<Completed, HandshakeError> {
        let state = self.state.as_mut().ok_or(HandshakeError::Finished)?;
        let datagram = checked::<RESPONSE_LEN>(datagram, RESPONSE_HEADER, &self.mac1_key)?;
        let receiver_index = index_at(datagram, 8);
        if receiver_index != self.sender_index {
            return Err(HandshakeError::ReceiverIndex {
                expected: self.sender_index,
                received: receiver_index,
            });
        }
        let mut payload = [0; RESPONSE_PAYLOAD_LEN];
        let psk = &self.psk;
        let (send, receive) = on_clean_stack(|| state.read_response(psk, datagram, &mut payload))
            .map_err(|_| HandshakeError::Authentication)?;
        self.state = None;
        let secrets = Secrets { send, receive };
        Ok(Completed { secrets, payload, responder_index: index_at(datagram, 4) })
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initiator")
            .field("sender_index", &self.sender_index)
            .finish_non_exhaustive()
    }
}

/// What the initiator has when the response proved authentic.
#[derive(Debug)]
pub struct Completed {
    /// Keys of the new association.
    pub secrets: Secrets,
    /// The responder's payload.
    pub payload: [u8; RESPONSE_PAYLOAD_LEN],
    /// What the responder wants packets to be addressed to.
    pub responder_index: u32,
}

/// A handshake that another node began, read and not yet answered.
///
/// Dropping it answers nothing and costs nothing further.
pub struct Responder {
    state: State,
    remote: PublicKey,
    payload: [u8; INITIATION_PAYLOAD_LEN],
    sender_index: u32,
}

impl Responder {
    /// Reads a handshake initiation to the node with the static key `local`, mac1 included.
    ///
    /// What is returned proves that the initiator holds the private key of
    /// [`remote`](Self::remote), but the datagram may be a replay: check the timestamp in the
    /// payload before anything else. `rng` gives the ephemeral key of the answer.
    ///
    /// # Errors
    /// [`HandshakeError`]; nothing must be answered then.
    pub fn read(
        rng: &mut Rng,
        local: &PrivateKey,
        datagram: &[u8],
    ) -> Result<Self, HandshakeError> {
        let mac1_key = Mac1Key::of(local.public_key());
        let datagram = checked::<INITIATION_LEN>(datagram, INITIATION_HEADER, &mac1_key)?;
        let mut payload = [0; INITIATION_PAYLOAD_LEN];
        let read = on_clean_stack(|| {
            let mut state = State::responder(rng, local);
            state.read_initiation(datagram, &mut payload).map(|remote| (state, remote))
        });
        let (state, remote) = read.map_err(|_| HandshakeError::Authentication)?;
        Ok(Self { state, remote, payload, sender_index: index_at(datagram, 4) })
    }

    /// The initiator's static public key.
    pub fn remote(&self) -> &PublicKey {
        &self.remote
    }

    /// The initiator's payload.
    pub fn payload(&self) -> &[u8; INITIATION_PAYLOAD_LEN] {
        &self.payload
    }

    /// What the initiator wants packets to be addressed to.
    pub fn sender_index(&self) -> u32 {
        self.sender_index
    }

    /// Answers. `sender_index` is what the initiator will address its packets to; `psk` is the
    /// key shared with [`remote`](Self::remote). The datagram has mac1, and mac2 zero.
    ///
    /// # Errors
    /// [`HandshakeError::Key`] when the initiator sent a key of small order that the first
    /// message did not show, which needs a deviating initiator.
    pub fn respond(
        mut self,
        psk: &PresharedKey,
        payload: &[u8; RESPONSE_PAYLOAD_LEN],
        sender_index: u32,
    ) -> Result<(Secrets, [u8; RESPONSE_LEN]), HandshakeError> {
        let mut datagram = [0; RESPONSE_LEN];
        datagram[..4].copy_from_slice(&RESPONSE_HEADER);
        datagram[4..8].copy_from_slice(&sender_index.to_be_bytes());
        datagram[8..12].copy_from_slice(&self.sender_index.to_be_bytes());
        let state = &mut self.state;
        let (send, receive) = on_clean_stack(|| state.write_response(psk, payload, &mut datagram))
            .map_err(|_| HandshakeError::Key)?;
        Mac1Key::of(&self.remote).stamp(&mut datagram);
        Ok((Secrets { send, receive }, datagram))
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder")
            .field("remote", &self.remote)
            .field("sender_index", &self.sender_index)
            .finish_non_exhaustive()
    }
}

/// The two directional secrets of a finished handshake (Noise section 5.2, `Split`), before the
/// AEAD is known. Erased when dropped.
pub struct Secrets {
    send: Secret,
    receive: Secret,
}

impl Secrets {
    /// The keys for the AEAD that the responder chose. Only one AEAD may be used with one
    /// handshake's secrets.
    pub fn into_keys(self, aead: Aead) -> Keys {
        on_clean_stack(|| Keys {
            send: SealKey::new(aead, &self.send),
            receive: OpenKey::new(aead, &self.receive),
        })
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(redacted)")
    }
}

/// Why a handshake datagram was refused or could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeError {
    /// The datagram has another length than its type.
    Length {
        /// Bytes of this type of datagram.
        expected: usize,
        /// Bytes that came.
        received: usize,
    },
    /// The first four bytes are not the expected type and three zeros.
    Header {
        /// The expected bytes.
        expected: [u8; 4],
        /// The bytes that came.
        received: [u8; 4],
    },
    /// mac1 is not the one for this node: the sender does not know its public key.
    Mac1,
    /// The response is for another handshake.
    ReceiverIndex {
        /// This handshake's index.
        expected: u32,
        /// The index that came.
        received: u32,
    },
    /// The Noise message is not authentic: another static or preshared key, another version, or
    /// changed on the way.
    Authentication,
    /// A public key is a point of small order, with which no secret can be agreed.
    Key,
    /// This handshake has its response already.
    Finished,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { expected, received } => {
                write!(f, "expected a datagram of {expected} bytes, received {received}")
            }
            Self::Header { expected, received } => {
                write!(f, "expected a datagram that begins {expected:?}, received {received:?}")
            }
            Self::Mac1 => f.write_str("mac1 is not made with this node's public key"),
            Self::ReceiverIndex { expected, received } => {
                write!(f, "expected a response to index {expected}, received one to {received}")
            }
            Self::Authentication => f.write_str(
                "the Noise message is not authentic (other static or preshared key, or altered)",
            ),
            Self::Key => f.write_str("the public key is a point of small order"),
            Self::Finished => f.write_str("the handshake is finished already"),
        }
    }
}

impl core::error::Error for HandshakeError {}

/// The datagram with its length, header and mac1 checked.
fn checked<'a, const LEN: usize>(
    datagram: &'a [u8],
    header: [u8; 4],
    mac1_key: &Mac1Key,
) -> Result<&'a [u8; LEN], HandshakeError> {
    let datagram: &[u8; LEN] = datagram
        .try_into()
        .map_err(|_| HandshakeError::Length { expected: LEN, received: datagram.len() })?;
    let received = *datagram.first_chunk().expect("handshake datagrams have a header");
    if received != header {
        return Err(HandshakeError::Header { expected: header, received });
    }
    mac1_key.verify(datagram).map_err(|_| HandshakeError::Mac1)?;
    Ok(datagram)
}

fn index_at(datagram: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(datagram[at..at + 4].try_into().expect("an index has 4 bytes"))
}
