//! The Noise protocol of handshakes, and where its messages are in the datagrams.

use crate::mac::MAC_LEN;

/// The Noise protocol name.
pub const NOISE_PROTOCOL: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";

/// The Noise prologue: both sides speak this version of mpip.
pub const PROLOGUE: &[u8] = b"mpip v1";

/// Bytes of a handshake initiation datagram.
pub const INITIATION_LEN: usize = 160;

/// Bytes of a handshake response datagram.
pub const RESPONSE_LEN: usize = 104;

/// Where the Noise message is in each.
pub(super) const INITIATION_NOISE: core::ops::Range<usize> = 8..INITIATION_LEN - 2 * MAC_LEN;
/// The same of a response.
pub(super) const RESPONSE_NOISE: core::ops::Range<usize> = 12..RESPONSE_LEN - 2 * MAC_LEN;
