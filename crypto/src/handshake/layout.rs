//! Names, lengths and places of the two messages.

use crate::mac::MAC_LEN;

/// The Noise protocol name.
pub const NOISE_PROTOCOL: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";

/// The Noise prologue: both sides speak this version of mpip.
pub const PROLOGUE: &[u8] = b"mpip v1";

/// Bytes of a handshake initiation datagram.
pub const INITIATION_LEN: usize = 160;

/// Bytes of a handshake response datagram.
pub const RESPONSE_LEN: usize = 104;

/// Bytes of the initiation's payload.
pub const INITIATION_PAYLOAD_LEN: usize = 24;

/// Bytes of the response's payload.
pub const RESPONSE_PAYLOAD_LEN: usize = 12;

/// First bytes of both datagrams: the type and three zeros.
pub(super) const INITIATION_HEADER: [u8; 4] = [1, 0, 0, 0];
pub(super) const RESPONSE_HEADER: [u8; 4] = [2, 0, 0, 0];

pub(super) const INITIATION_NOISE: core::ops::Range<usize> = 8..INITIATION_LEN - 2 * MAC_LEN;
pub(super) const RESPONSE_NOISE: core::ops::Range<usize> = 12..RESPONSE_LEN - 2 * MAC_LEN;
