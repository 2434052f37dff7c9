//! The one-time secret, and what follows from it.

use core::fmt;

use aws_lc_rs::aead::{CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use blake2::{Blake2s256, Digest};
use zeroize::Zeroizing;

use crate::{PresharedKey, Rng};

/// The identifier of an invitation. It follows from the secret and does not show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InvitationId(pub [u8; 8]);

/// The one-time secret of an invitation; erased when dropped.
#[derive(Clone)]
pub struct InvitationSecret(Zeroizing<[u8; 32]>);

impl InvitationSecret {
    /// The secret with these bytes. The caller's copy of them is not erased.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// A new secret.
    pub fn generate(rng: &mut Rng) -> Self {
        let mut secret = Self(Zeroizing::new([0; 32]));
        rng.fill(&mut *secret.0);
        secret
    }

    /// The secret bytes, for the file that keeps them.
    pub fn secret_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The identifier of its invitation.
    pub fn id(&self) -> InvitationId {
        let hash = self.derive(b"mpip invitation id v1");
        InvitationId(*hash.first_chunk().expect("a hash has 32 bytes"))
    }

    /// The preshared key of all handshakes of the two nodes.
    pub fn preshared_key(&self) -> PresharedKey {
        PresharedKey::from_bytes(*self.derive(b"mpip invitation psk v1"))
    }

    pub(super) fn key(&self, label: &[u8]) -> LessSafeKey {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &*self.derive(label));
        LessSafeKey::new(key.expect("the AEAD takes 32-byte keys"))
    }

    fn derive(&self, label: &[u8]) -> Zeroizing<[u8; 32]> {
        let hash = Blake2s256::new().chain_update(label).chain_update(*self.0);
        Zeroizing::new(hash.finalize().into())
    }
}

impl fmt::Debug for InvitationSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InvitationSecret(redacted)")
    }
}
