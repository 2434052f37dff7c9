//! The keys of hosts.

use mpip_crypto::{PresharedKey, PrivateKey, PublicKey};

/// That of host `host`.
pub(crate) fn private_key(host: usize) -> PrivateKey {
    let mut bytes = [0x42; 32];
    // Not the first byte: clamping clears its low bits (RFC 7748, section 5).
    bytes[1] = host as u8;
    PrivateKey::from_bytes(bytes)
}

/// That of host `host`.
pub(crate) fn public_key(host: usize) -> PublicKey {
    *private_key(host).public_key()
}

/// The preshared key of every pair of nodes.
pub(crate) fn preshared_key() -> PresharedKey {
    PresharedKey::from_bytes([7; 32])
}
