//! Identities, handshake, packet protection and replay windows of mpip.
//!
//! Nothing here owns a socket, a clock or a source of randomness: datagrams are slices, time is a
//! [`Duration`](core::time::Duration) since an origin of the caller's, and randomness comes from
//! an [`Rng`] that the caller seeds. The same inputs give the same bytes, so a simulated run
//! replays from its seed.
//!
//! The parts in the order in which two nodes use them:
//!
//! 1. [`PrivateKey`] and [`PublicKey`] are a node's static X25519 keys; [`NodeId`] is the hash of
//!    the public key, shown as an ORCHIDv2 IPv6 address. [`PresharedKey`] may be added per peer.
//! 2. [`Initiator::start`] writes the handshake initiation. Its payload carries a [`Timestamp`]
//!    from a [`TimestampSource`], and the AEADs on offer ([`Aead::offers`]).
//! 3. The receiver checks mac1 ([`Mac1Key::verify`], no public-key operation), under load also the
//!    cookie ([`CookieJar`]), then reads it ([`Responder::read`]), learns who it is, applies that
//!    peer's [`ReplayGuard`] and answers ([`Responder::respond`]).
//! 4. [`Initiator::finish`] reads the answer. Both sides now hold [`Secrets`], which become a
//!    [`SealKey`] and an [`OpenKey`] for the AEAD that the responder chose.
//! 5. Every packet is sealed under the nonce (path identifier, packet number); each lane of the
//!    receiver has a [`ReplayWindow`].
//!
//! A node that has no key of the other one joins it by an [`Invitation`].
//!
//! An initiator that is answered with a cookie reply keeps it in a [`CookieMemory`].
//!
//! ```
//! use mpip_crypto::{Aead, Initiator, PresharedKey, PrivateKey, Responder, Rng};
//!
//! let mut rng = Rng::new([1; 32]); // in a daemon: from the operating system
//! let (alice, bob) = (PrivateKey::generate(&mut rng), PrivateKey::generate(&mut rng));
//! let psk = PresharedKey::default();
//!
//! let (mut initiator, initiation) =
//!     Initiator::start(&mut rng, &alice, bob.public_key(), &psk, &[0; 24], 7)?;
//! let responder = Responder::read(&mut rng, &bob, &initiation)?;
//! assert_eq!(responder.remote(), alice.public_key());
//! let (secrets, response) = responder.respond(&psk, &[0; 12], 8)?;
//! let completed = initiator.finish(&response)?;
//!
//! let alice = completed.secrets.into_keys(Aead::ChaCha20Poly1305);
//! let bob = secrets.into_keys(Aead::ChaCha20Poly1305);
//! let mut packet = *b"frames................";
//! let tag = alice.send.seal_in_place(0, 1, b"header", &mut packet[..6]);
//! packet[6..].copy_from_slice(&tag);
//! assert_eq!(bob.receive.open_in_place(0, 1, b"header", &mut packet)?, b"frames");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod aead;
mod cookie;
mod erase;
mod handshake;
mod identity;
mod invitation;
mod mac;
mod replay;
mod rng;
mod timestamp;

pub use aead::{Aead, KEY_LEN, Keys, OpenError, OpenKey, SealKey, TAG_LEN, cpu_has_aes};
pub use cookie::{
    COOKIE_LIFETIME, COOKIE_REPLY_LEN, CookieError, CookieJar, CookieMemory, SECRET_LIFETIME,
};
pub use handshake::{
    Completed, HandshakeError, INITIATION_LEN, INITIATION_PAYLOAD_LEN, Initiator, NOISE_PROTOCOL,
    PROLOGUE, RESPONSE_LEN, RESPONSE_PAYLOAD_LEN, Responder, Secrets,
};
pub use identity::{KeyParseError, NodeId, PresharedKey, PrivateKey, PublicKey};
pub use invitation::{
    Invitation, InvitationId, InvitationSecret, JOIN_ANSWER_LEN, JOIN_REQUEST_LEN, JoinRequest,
    Note, ReceivedJoin, TokenError, Verdict,
};
pub use mac::{MAC_LEN, Mac1Key, MacError};
pub use replay::{Replay, ReplayWindow};
pub use rng::Rng;
pub use timestamp::{ReplayGuard, StaleTimestamp, TIMESTAMP_LEN, Timestamp, TimestampSource};
