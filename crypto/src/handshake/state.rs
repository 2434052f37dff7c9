//! The state of a handshake in `snow`, which leaves nothing behind.
//!
//! `snow` 0.10 erases nothing by itself. Its primitives are ours (`resolver.rs`) and erase what
//! they keep. What is left is in [`HandshakeState`]: the chaining key, which has no access from
//! outside, and a copy of the preshared key. So the state is in one place on the heap before a
//! secret enters it; it has the preshared key during one message only; and its memory is
//! overwritten with a state without secrets when it ends.

use core::hint::black_box;

use snow::{Builder, Error, HandshakeState};
use zeroize::Zeroizing;

use super::layout::{INITIATION_NOISE, NOISE_PROTOCOL, PROLOGUE, RESPONSE_NOISE};
use super::resolver;
use crate::aead::KEY_LEN;
use crate::{PresharedKey, PrivateKey, PublicKey, Rng};

/// Place of the preshared key in the pattern: after the second message's other tokens.
const PSK_POSITION: usize = 2;

/// A pattern of the same primitives for which no key is needed.
const BLANK_PROTOCOL: &str = "Noise_NN_25519_ChaChaPoly_BLAKE2s";

/// A directional secret.
pub(super) type Secret = Box<Zeroizing<[u8; KEY_LEN]>>;

/// A handshake of which one message at least is outstanding.
pub(super) struct State(Box<HandshakeState>);

impl State {
    /// The side that writes the first message, to the node `remote`.
    pub(super) fn initiator(rng: &mut Rng, local: &PrivateKey, remote: &PublicKey) -> Self {
        let state = builder(rng, local)
            .remote_public_key(remote.as_bytes())
            .and_then(Builder::build_initiator)
            .expect("the initiator of IKpsk2 has all that the first message needs");
        Self(Box::new(state))
    }

    /// The side that reads the first message.
    pub(super) fn responder(rng: &mut Rng, local: &PrivateKey) -> Self {
        let state = builder(rng, local)
            .build_responder()
            .expect("the responder of IKpsk2 has all that the first message needs");
        Self(Box::new(state))
    }

    /// The first message, into the datagram.
    pub(super) fn write_initiation(
        &mut self,
        payload: &[u8],
        datagram: &mut [u8],
    ) -> Result<(), Error> {
        self.0.write_message(payload, &mut datagram[INITIATION_NOISE]).map(drop)
    }

    /// Reads the first message; returns who sent it.
    pub(super) fn read_initiation(
        &mut self,
        datagram: &[u8],
        payload: &mut [u8],
    ) -> Result<PublicKey, Error> {
        self.0.read_message(&datagram[INITIATION_NOISE], payload)?;
        let remote = self.0.get_remote_static().and_then(|key| key.try_into().ok());
        let remote = remote.expect("the first message of IK carries a static key of 32 bytes");
        Ok(PublicKey::from_bytes(remote))
    }

    /// The second message, into the datagram; returns what this side sends and receives with.
    pub(super) fn write_response(
        &mut self,
        psk: &PresharedKey,
        payload: &[u8],
        datagram: &mut [u8],
    ) -> Result<(Secret, Secret), Error> {
        self.with_psk(psk, |state| state.write_message(payload, &mut datagram[RESPONSE_NOISE]))?;
        let (receive, send) = self.split();
        Ok((send, receive))
    }

    /// Reads the second message; returns what this side sends and receives with. After an error the
    /// message is still awaited.
    pub(super) fn read_response(
        &mut self,
        psk: &PresharedKey,
        datagram: &[u8],
        payload: &mut [u8],
    ) -> Result<(Secret, Secret), Error> {
        self.with_psk(psk, |state| state.read_message(&datagram[RESPONSE_NOISE], payload))?;
        Ok(self.split())
    }

    /// Lends the preshared key for one message.
    fn with_psk<T>(
        &mut self,
        psk: &PresharedKey,
        message: impl FnOnce(&mut HandshakeState) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.0.set_psk(PSK_POSITION, psk.secret_bytes())?;
        let done = message(&mut self.0);
        self.0.set_psk(PSK_POSITION, &[0; KEY_LEN])?;
        done
    }

    /// The secrets of what the initiator and of what the responder sends (Noise section 5.2,
    /// `Split`).
    fn split(&mut self) -> (Secret, Secret) {
        let (from_initiator, from_responder) = self.0.dangerously_get_raw_split();
        let secret = |bytes: &[u8; KEY_LEN]| {
            let mut secret = Secret::default();
            secret.copy_from_slice(bytes);
            secret
        };
        (secret(&from_initiator), secret(&from_responder))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        *self.0 = blank();
        // What nobody reads the compiler need not write.
        black_box(&mut *self.0);
    }
}

fn builder<'a>(rng: &mut Rng, local: &'a PrivateKey) -> Builder<'a> {
    let params = NOISE_PROTOCOL.parse().expect("the protocol name is valid");
    Builder::with_resolver(params, Box::new(resolver::Resolver::new(rng)))
        .local_private_key(local.secret_bytes())
        .and_then(|builder| builder.prologue(PROLOGUE))
        .expect("each parameter is set once")
}

/// A state that never had a secret.
fn blank() -> HandshakeState {
    let params = BLANK_PROTOCOL.parse().expect("the protocol name is valid");
    Builder::with_resolver(params, Box::new(resolver::Resolver::new(&mut Rng::new([0; 32]))))
        .build_initiator()
        .expect("NN needs no key")
}
