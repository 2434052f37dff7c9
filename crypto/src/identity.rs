//! Static keys and the node identifier that follows from them.

use core::fmt;
use core::net::Ipv6Addr;
use core::str::FromStr;
use std::sync::Arc;

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, DecodeSliceError, Engine, decoded_len_estimate};
use blake2::{Blake2s256, Digest};
use zeroize::{Zeroize, Zeroizing};

use crate::Rng;
use crate::erase::on_clean_stack;
use crate::handshake::x25519_public;

#[cfg(test)]
mod tests;

/// Bytes of each key in this module.
const KEY_LEN: usize = 32;

/// Context ID of ORCHIDs that are mpip node identifiers, drawn at random once (RFC 7343
/// section 2). It separates them from the Host Identity Tags of HIP over the same key.
const ORCHID_CONTEXT: [u8; 16] = [
    0x8b, 0x7b, 0x12, 0x20, 0x57, 0x84, 0x4c, 0x70, 0xcc, 0xf1, 0x2d, 0x92, 0xeb, 0xa7, 0x77, 0x9d,
];

/// The additional ORCHIDv2 prefix 2001:20::/28 (RFC 7343 section 6).
const ORCHID_PREFIX: u32 = 0x2001_0020;

/// ORCHID generation algorithm: an X25519 key under BLAKE2s-256. Meaningful only within
/// [`ORCHID_CONTEXT`] (RFC 7343 section 2); 15 is unassigned in HIP's registry of HIT suites, so
/// that no such address reads as a Host Identity Tag.
const ORCHID_OGA: u32 = 15;

/// 32 secret bytes in one place, whoever shares or moves them; erased when the last one drops them.
#[derive(Clone, Default)]
struct Secret(Arc<Zeroizing<[u8; KEY_LEN]>>);

impl Secret {
    /// Has `fill` write the secret to where it stays.
    fn filled(fill: impl FnOnce(&mut [u8; KEY_LEN])) -> Self {
        let mut secret = Self::default();
        fill(secret.place());
        secret
    }

    /// Where the secret is, as long as nobody shares it.
    fn place(&mut self) -> &mut [u8; KEY_LEN] {
        let zeroizing: &mut Zeroizing<_> = Arc::make_mut(&mut self.0);
        zeroizing
    }

    /// The secret with these bytes, of which the caller's copy is the caller's to erase.
    fn from_bytes(mut bytes: [u8; KEY_LEN]) -> Self {
        let secret = Self::filled(|secret| secret.copy_from_slice(&bytes));
        bytes.zeroize();
        secret
    }

    fn from_base64(text: &str) -> Result<Self, KeyParseError> {
        let mut secret = Self::default();
        on_clean_stack(|| parse_key(text, secret.place()))?;
        Ok(secret)
    }

    fn base64(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.0.as_slice()))
    }
}

/// A node's static X25519 private key. Erased when dropped, never shown by `Debug`.
#[derive(Clone)]
pub struct PrivateKey {
    secret: Secret,
    public: PublicKey,
}

impl PrivateKey {
    /// The key with these bytes. Any value is valid: X25519 clamps it (RFC 7748 section 5). The
    /// caller's copy of the bytes is not erased.
    pub fn from_bytes(secret: [u8; KEY_LEN]) -> Self {
        Self::of(Secret::from_bytes(secret))
    }

    /// A new key, already clamped (RFC 7748 section 5), so that other tools read the same text.
    pub fn generate(rng: &mut Rng) -> Self {
        Self::of(Secret::filled(|secret| {
            rng.fill(secret);
            secret[0] &= 248;
            secret[31] = (secret[31] & 127) | 64;
        }))
    }

    fn of(secret: Secret) -> Self {
        let public = PublicKey(on_clean_stack(|| x25519_public(&secret.0)));
        Self { secret, public }
    }

    /// The public key that belongs to this key.
    pub fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// The secret bytes, for the handshake and for the file that keeps them.
    pub fn secret_bytes(&self) -> &[u8; KEY_LEN] {
        &self.secret.0
    }

    /// The secret as 44 characters of base64, as in a key file; erased when dropped.
    pub fn secret_base64(&self) -> Zeroizing<String> {
        self.secret.base64()
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(redacted, public {})", self.public)
    }
}

impl FromStr for PrivateKey {
    type Err = KeyParseError;

    /// Reads base64, with white space around it ignored.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Secret::from_base64(text).map(Self::of)
    }
}

/// A node's static X25519 public key. Shown as 44 characters of base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_LEN]);

impl PublicKey {
    /// The key with these bytes.
    pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// The key as sent on the wire.
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// The identifier of the node that holds this key.
    pub fn node_id(&self) -> NodeId {
        NodeId::of(self)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        base64::display::Base64Display::new(&self.0, &STANDARD).fmt(f)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = KeyParseError;

    /// Reads base64, with white space around it ignored.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut key = Self([0; KEY_LEN]);
        parse_key(text, &mut key.0)?;
        Ok(key)
    }
}

/// A secret that two nodes share beforehand, mixed into the handshake's second message (psk2,
/// Noise revision 34 section 9). All zeros when none is configured.
#[derive(Clone, Default)]
pub struct PresharedKey(Secret);

/// In the same time, whatever the keys are.
impl PartialEq for PresharedKey {
    fn eq(&self, other: &Self) -> bool {
        let pairs = self.0.0.iter().zip(other.0.0.iter());
        pairs.fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

impl PresharedKey {
    /// The key with these bytes. The caller's copy of them is not erased.
    pub fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(Secret::from_bytes(bytes))
    }

    /// A new random key.
    pub fn generate(rng: &mut Rng) -> Self {
        Self(Secret::filled(|secret| rng.fill(secret)))
    }

    /// The secret bytes.
    pub fn secret_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0.0
    }

    /// The secret as 44 characters of base64, as in a configuration; erased when dropped.
    pub fn secret_base64(&self) -> Zeroizing<String> {
        self.0.base64()
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(redacted)")
    }
}

impl FromStr for PresharedKey {
    type Err = KeyParseError;

    /// Reads base64, with white space around it ignored.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Secret::from_base64(text).map(Self)
    }
}

/// A node's identifier: the ORCHIDv2 of its static public key (RFC 7343).
///
/// `2001:20::/28`, 4 bits of OGA ID (15), then 96 bits from the middle of
/// BLAKE2s-256(context ID, public key). All of them begin with `2001:2f:`. It names a node in
/// logs and status and may be routed inside an association; it never appears outside.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(Ipv6Addr);

impl NodeId {
    /// The identifier of the node with this static public key.
    pub fn of(key: &PublicKey) -> Self {
        let hash = Blake2s256::new().chain_update(ORCHID_CONTEXT).chain_update(key.0).finalize();
        let mut octets = [0; 16];
        octets[..4].copy_from_slice(&(ORCHID_PREFIX | ORCHID_OGA).to_be_bytes());
        // Encode_96 takes the middle 96 of the 256 bits.
        octets[4..].copy_from_slice(&hash[10..22]);
        Self(Ipv6Addr::from(octets))
    }

    /// The identifier as an IPv6 address.
    pub const fn address(&self) -> Ipv6Addr {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({})", self.0)
    }
}

/// Why a text is not a key. Says where, never what: the text may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyParseError {
    /// A character that is not base64 (or bits beyond the last byte), counted from 0 in the
    /// trimmed text.
    Character {
        /// Byte offset of the character.
        position: usize,
    },
    /// Base64 whose padding is missing or misplaced.
    Padding {
        /// Characters in the trimmed text.
        characters: usize,
    },
    /// Base64 of another number of bytes than a key has.
    Length {
        /// Bytes that came.
        received: usize,
    },
}

impl fmt::Display for KeyParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a key of 32 bytes as 44 characters of base64, received ")?;
        match self {
            Self::Character { position } => {
                write!(f, "a character that does not belong there at position {position}")
            }
            Self::Padding { characters } => {
                write!(f, "{characters} characters without the right padding")
            }
            Self::Length { received } => write!(f, "{received} bytes"),
        }
    }
}

impl core::error::Error for KeyParseError {}

/// Reads the base64 of a key into `key`. What was decoded elsewhere is erased.
fn parse_key(text: &str, key: &mut [u8; KEY_LEN]) -> Result<(), KeyParseError> {
    let text = text.trim();
    let mut bytes = Zeroizing::new(vec![0; decoded_len_estimate(text.len())]);
    let len = STANDARD.decode_slice(text, &mut bytes).map_err(|error| match error {
        DecodeSliceError::DecodeError(
            DecodeError::InvalidByte(position, _) | DecodeError::InvalidLastSymbol(position, _),
        ) => KeyParseError::Character { position },
        _ => KeyParseError::Padding { characters: text.len() },
    })?;
    let decoded = bytes.get(..len).and_then(|bytes| <&[u8; KEY_LEN]>::try_from(bytes).ok());
    key.copy_from_slice(decoded.ok_or(KeyParseError::Length { received: len })?);
    Ok(())
}
