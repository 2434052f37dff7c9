//! Invitations: how a node learns the key of another one that was handed a token.
//!
//! A gateway makes an [`Invitation`] with a one-time secret and hands it out as a [token].
//! Whoever has the token sends a [`JoinRequest`] with the static key that it will use. It is sealed
//! under the secret, so it proves that its sender has the token, unaltered. The gateway answers
//! whether it takes the key ([`Verdict`]), sealed likewise. Afterwards both have each other's
//! static keys and a preshared key that follows from the secret, and handshakes are as ever.
//!
//! | request | bytes | | answer | bytes |
//! |---|---|---|---|---|
//! | type 7, three zeros | 4 | | type 8, note, two zeros | 4 |
//! | invitation | 8 | | invitation | 8 |
//! | nonce | 12 | | nonce | 12 |
//! | static key, sealed | 32 + 16 | | verdict, sealed | 1 + 16 |
//! | mac1, zeros | 32 | | | |
//! | together | 104 | | together | 41 |
//!
//! A node that does not have the secret cannot seal an answer. It sends the first 24 bytes only,
//! with a [note](Note) of why, and the request's nonce. Anybody on the way can forge that.
//!
//! The AEAD is ChaCha20-Poly1305 with random nonces; a secret seals a handful of messages. The
//! secret is not forward secret: what it protects is the name of a public key, and who is named.

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};
use blake2::{Blake2s256, Digest};

use crate::mac::MAC_LEN;
use crate::{Mac1Key, PublicKey, Rng, TAG_LEN};

mod secret;
mod token;

pub use secret::{InvitationId, InvitationSecret};
pub use token::{Invitation, TokenError};

/// Bytes of a request to join.
pub const JOIN_REQUEST_LEN: usize = HEAD_LEN + SEALED_KEY_LEN + 2 * MAC_LEN;
/// Bytes of a sealed answer to one.
pub const JOIN_ANSWER_LEN: usize = HEAD_LEN + 1 + TAG_LEN;

/// Type, invitation and nonce.
const HEAD_LEN: usize = 4 + 8 + NONCE_LEN;
const NONCE_LEN: usize = 12;
const SEALED_KEY_LEN: usize = 32 + TAG_LEN;

const REQUEST_HEADER: [u8; 4] = [7, 0, 0, 0];
const ANSWER: u8 = 8;

const REQUEST_LABEL: &[u8] = b"mpip join request v1";
const ANSWER_LABEL: &[u8] = b"mpip join answer v1";

/// What a gateway says to a request that has its secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It knows the key from now on.
    Accepted,
    /// The invitation's time is over.
    Expired,
    /// Another key has used the invitation.
    Used,
    /// The token is not as it was made.
    Altered,
    /// The invitation was withdrawn, or its peer removed.
    Withdrawn,
    /// The key is that of another peer, or the gateway's own.
    KeyInUse,
    /// The gateway could not write the key down.
    NotStored,
    /// A verdict of a later version.
    Other(u8),
}

impl Verdict {
    fn code(self) -> u8 {
        match self {
            Self::Accepted => 0,
            Self::Expired => 1,
            Self::Used => 2,
            Self::Altered => 3,
            Self::Withdrawn => 4,
            Self::KeyInUse => 5,
            Self::NotStored => 6,
            Self::Other(code) => code,
        }
    }

    fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Accepted,
            1 => Self::Expired,
            2 => Self::Used,
            3 => Self::Altered,
            4 => Self::Withdrawn,
            5 => Self::KeyInUse,
            6 => Self::NotStored,
            other => Self::Other(other),
        }
    }
}

/// What a node says that does not have the secret; anybody on the way can forge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// It has not made this invitation, or has forgotten it.
    Unknown,
    /// The token is for a node with another key.
    AnotherNode,
}

/// A request as its sender has it: what it sent, and what opens the answer.
#[derive(Debug)]
pub struct JoinRequest {
    datagram: [u8; JOIN_REQUEST_LEN],
    secret: InvitationSecret,
}

impl JoinRequest {
    /// The request of the node with `own` static key for what `invitation` says.
    pub fn new(rng: &mut Rng, invitation: &Invitation, own: &PublicKey) -> Self {
        let mut datagram = [0; JOIN_REQUEST_LEN];
        datagram[..4].copy_from_slice(&REQUEST_HEADER);
        datagram[4..12].copy_from_slice(&invitation.secret.id().0);
        rng.fill(&mut datagram[12..HEAD_LEN]);
        let (head, rest) = datagram.split_at_mut(HEAD_LEN);
        rest[..32].copy_from_slice(own.as_bytes());
        let digest = invitation.digest();
        let tag = seal(&invitation.secret.key(REQUEST_LABEL), head, &digest, &mut rest[..32]);
        rest[32..SEALED_KEY_LEN].copy_from_slice(&tag);
        Mac1Key::of(&invitation.gateway).stamp(&mut datagram);
        Self { datagram, secret: invitation.secret.clone() }
    }

    /// The datagram to send, however often.
    pub fn datagram(&self) -> &[u8; JOIN_REQUEST_LEN] {
        &self.datagram
    }

    /// What `datagram` answers to this request; `None` if it is no answer to it.
    pub fn read_answer(&self, datagram: &[u8]) -> Option<Result<Verdict, Note>> {
        let (head, rest) = datagram.split_first_chunk::<HEAD_LEN>()?;
        let (&[ANSWER, note, 0, 0], true) =
            (head.first_chunk()?, head[4..12] == self.datagram[4..12])
        else {
            return None;
        };
        let same_nonce = head[12..] == self.datagram[12..HEAD_LEN];
        match (note, rest) {
            (1, []) if same_nonce => return Some(Err(Note::Unknown)),
            (2, []) if same_nonce => return Some(Err(Note::AnotherNode)),
            (0, _) if rest.len() == 1 + TAG_LEN => {}
            _ => return None,
        }
        let mut sealed: [u8; 1 + TAG_LEN] = rest.try_into().ok()?;
        let key = self.secret.key(ANSWER_LABEL);
        open(&key, head, &request_digest(&self.datagram), &mut sealed)?;
        Some(Ok(Verdict::from_code(sealed[0])))
    }
}

/// A request as its receiver has it, not yet opened.
#[derive(Clone, Debug)]
pub struct ReceivedJoin([u8; JOIN_REQUEST_LEN]);

impl ReceivedJoin {
    /// Whether `datagram` has the form of a request, whoever it is for.
    pub fn is_one(datagram: &[u8]) -> bool {
        // Handshakes have mac2 where a request has zeros.
        datagram.len() == JOIN_REQUEST_LEN
            && datagram.starts_with(&REQUEST_HEADER)
            && datagram.ends_with(&[0; MAC_LEN])
    }

    /// The request in `datagram`, if it is one to the node with `mac1_key`; what to answer if it is
    /// one to another node.
    ///
    /// # Errors
    /// `Some` answer to a request to another node, `None` if `datagram` is no request.
    pub fn new(datagram: &[u8], mac1_key: &Mac1Key) -> Result<Self, Option<[u8; HEAD_LEN]>> {
        if !Self::is_one(datagram) {
            return Err(None);
        }
        let request = Self(datagram.try_into().map_err(|_| None)?);
        match mac1_key.verify(datagram) {
            Ok(()) => Ok(request),
            Err(_) => Err(Some(request.note(Note::AnotherNode))),
        }
    }

    /// The invitation that it names.
    pub fn id(&self) -> InvitationId {
        InvitationId(*self.0[4..].first_chunk().expect("a request has an invitation"))
    }

    /// The static key of its sender; `None` if the sender's token was altered. `digest` is that of
    /// the invitation as it was made.
    pub fn open(&self, secret: &InvitationSecret, digest: &[u8; 32]) -> Option<PublicKey> {
        let mut sealed = [0; SEALED_KEY_LEN];
        sealed.copy_from_slice(&self.0[HEAD_LEN..HEAD_LEN + SEALED_KEY_LEN]);
        open(&secret.key(REQUEST_LABEL), &self.0[..HEAD_LEN], digest, &mut sealed)?;
        sealed.first_chunk().copied().map(PublicKey::from_bytes)
    }

    /// The answer, sealed.
    pub fn answer(
        &self,
        rng: &mut Rng,
        secret: &InvitationSecret,
        verdict: Verdict,
    ) -> [u8; JOIN_ANSWER_LEN] {
        let mut datagram = [0; JOIN_ANSWER_LEN];
        datagram[0] = ANSWER;
        datagram[4..12].copy_from_slice(&self.0[4..12]);
        rng.fill(&mut datagram[12..HEAD_LEN]);
        let (head, rest) = datagram.split_at_mut(HEAD_LEN);
        rest[0] = verdict.code();
        let digest = request_digest(&self.0);
        let tag = seal(&secret.key(ANSWER_LABEL), head, &digest, &mut rest[..1]);
        rest[1..].copy_from_slice(&tag);
        datagram
    }

    /// The answer of a node without the secret.
    pub fn note(&self, note: Note) -> [u8; HEAD_LEN] {
        let mut datagram: [u8; HEAD_LEN] = *self.0.first_chunk().expect("a request has a head");
        datagram[..4].copy_from_slice(&match note {
            Note::Unknown => [ANSWER, 1, 0, 0],
            Note::AnotherNode => [ANSWER, 2, 0, 0],
        });
        datagram
    }
}

/// What an answer is an answer to.
fn request_digest(datagram: &[u8; JOIN_REQUEST_LEN]) -> [u8; 32] {
    Blake2s256::digest(datagram).into()
}

fn associated(head: &[u8], digest: &[u8; 32]) -> [u8; HEAD_LEN + 32] {
    let mut associated = [0; HEAD_LEN + 32];
    associated[..HEAD_LEN].copy_from_slice(head);
    associated[HEAD_LEN..].copy_from_slice(digest);
    associated
}

fn nonce(head: &[u8]) -> Nonce {
    let nonce: [u8; NONCE_LEN] = *head[12..].first_chunk().expect("a head has a nonce");
    Nonce::assume_unique_for_key(nonce)
}

fn seal(key: &LessSafeKey, head: &[u8], digest: &[u8; 32], plain: &mut [u8]) -> [u8; TAG_LEN] {
    let aad = Aad::from(associated(head, digest));
    let tag = key.seal_in_place_separate_tag(nonce(head), aad, plain);
    tag.expect("a few bytes are not too many").as_ref().try_into().expect("a tag has 16 bytes")
}

fn open(key: &LessSafeKey, head: &[u8], digest: &[u8; 32], sealed: &mut [u8]) -> Option<()> {
    let aad = Aad::from(associated(head, digest));
    key.open_in_place(nonce(head), aad, sealed).ok().map(drop)
}

#[cfg(test)]
mod tests;
