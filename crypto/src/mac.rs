//! The two message authentication codes at the end of handshake datagrams.
//!
//! As in WireGuard (Donenfeld, NDSS 2017, section 5.4.4): mac1 shows, before any public-key
//! operation, that the sender knows whom it addresses; mac2 shows that it received a cookie at its
//! address.

use core::fmt;

use blake2::digest::Mac;
use blake2::digest::consts::U16;
use blake2::{Blake2s256, Blake2sMac, Digest};

use crate::PublicKey;

/// Bytes of mac1, of mac2 and of a cookie.
pub const MAC_LEN: usize = 16;

const MAC1_LABEL: &[u8] = b"mpip mac1 key v1";

/// Key of mac1 in every handshake datagram *to* one node: BLAKE2s-256("mpip mac1 key v1", that
/// node's static public key). Not a secret, since the public key is not.
#[derive(Clone)]
pub struct Mac1Key([u8; 32]);

impl Mac1Key {
    /// The key for datagrams that `receiver` is to accept.
    pub fn of(receiver: &PublicKey) -> Self {
        Self(labelled_hash(MAC1_LABEL, receiver, &[]))
    }

    /// Checks mac1 of a received handshake initiation or response, in constant time.
    ///
    /// # Errors
    /// [`MacError`] when the datagram is too short to have one or it is another.
    pub fn verify(&self, datagram: &[u8]) -> Result<(), MacError> {
        let (covered, mac1) = split_mac1(datagram).ok_or(MacError)?;
        verify(&self.0, covered, mac1)
    }

    /// Writes mac1 and zeros for mac2 into the last 32 bytes of `datagram`.
    ///
    /// # Panics
    /// If `datagram` is shorter than that.
    pub fn stamp(&self, datagram: &mut [u8]) {
        let start = datagram.len() - 2 * MAC_LEN;
        let mac1 = keyed(&self.0, &datagram[..start]);
        datagram[start..start + MAC_LEN].copy_from_slice(&mac1);
        datagram[start + MAC_LEN..].fill(0);
    }
}

impl fmt::Debug for Mac1Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mac1Key")
    }
}

/// A message authentication code is absent or differs from the expected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacError;

impl fmt::Display for MacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the message authentication code differs from the expected one")
    }
}

impl core::error::Error for MacError {}

/// BLAKE2s-256(label, key, suffix): a key for one purpose toward one node.
pub(crate) fn labelled_hash(label: &[u8], key: &PublicKey, suffix: &[u8]) -> [u8; 32] {
    Blake2s256::new()
        .chain_update(label)
        .chain_update(key.as_bytes())
        .chain_update(suffix)
        .finalize()
        .into()
}

/// Keyed BLAKE2s-128 (RFC 7693); `key` has at most 32 bytes.
pub(crate) fn keyed(key: &[u8], message: &[u8]) -> [u8; MAC_LEN] {
    keyed_state(key, message).finalize().into_bytes().into()
}

/// Compares in constant time.
pub(crate) fn verify(key: &[u8], message: &[u8], mac: &[u8]) -> Result<(), MacError> {
    keyed_state(key, message).verify_slice(mac).map_err(|_| MacError)
}

fn keyed_state(key: &[u8], message: &[u8]) -> Blake2sMac<U16> {
    let state = <Blake2sMac<U16> as Mac>::new_from_slice(key);
    state.expect("keys have at most 32 bytes").chain_update(message)
}

/// The bytes that mac1 covers, and mac1.
pub(crate) fn split_mac1(datagram: &[u8]) -> Option<(&[u8], &[u8; MAC_LEN])> {
    let (rest, _mac2) = datagram.split_last_chunk::<MAC_LEN>()?;
    rest.split_last_chunk::<MAC_LEN>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BLAKE2s-128 keyed with 00..0f over nothing, as RFC 7693's parameter block defines it;
    /// computed with Python's `hashlib.blake2s(b"", digest_size=16, key=bytes(range(16)))`.
    #[test]
    fn keyed_blake2s_128_has_its_length_and_the_keys_in_the_parameter_block() {
        let key: Vec<u8> = (0..16).collect();
        assert_eq!(hex(&keyed(&key, b"")), "af4e5d3bb230e9ff9096ca6f7c501f76");
        let key: Vec<u8> = (0..32).collect();
        assert_eq!(hex(&keyed(&key, b"mpip")), "7dcd559aae6abd395bdd9c55513fb635");
    }

    #[test]
    fn mac1_covers_every_byte_before_it_and_is_bound_to_the_receiver() {
        let key = Mac1Key::of(&PublicKey::from_bytes([1; 32]));
        let mut datagram: Vec<u8> = (0..104).collect();
        key.stamp(&mut datagram);
        assert_eq!(key.verify(&datagram), Ok(()));
        assert_eq!(datagram[88..], [0; 16]);
        for at in 0..88 {
            datagram[at] ^= 1;
            assert_eq!(key.verify(&datagram), Err(MacError), "byte {at}");
            datagram[at] ^= 1;
        }
        assert_eq!(key.verify(&datagram), Ok(()));
        let other = Mac1Key::of(&PublicKey::from_bytes([2; 32]));
        assert_eq!(other.verify(&datagram), Err(MacError));
        for len in 0..104 {
            assert_eq!(key.verify(&datagram[..len]), Err(MacError), "{len} bytes");
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
