//! Overhead of datagrams and frames, bytes.

use mpip_wire::{CHALLENGE_DATAGRAM_LEN, PathId, TAG_LEN};

/// Bytes of a packet number on the wire: fixed, so that datagrams of one length can share a GSO
/// batch, and long enough that reordering never makes numbers ambiguous.
pub(crate) const NUMBER_LEN: usize = 4;
/// Bytes of a datagram around its frames, with a long path identifier.
pub(crate) const MAX_OVERHEAD: usize = 1 + 2 + 4 + NUMBER_LEN + TAG_LEN;
/// Maximum bytes of a datagram around its packet: clear header with a short path identifier, frame
/// header with a four-byte session number, tag.
pub(crate) const INNER_OVERHEAD: usize = 9 + 9 + TAG_LEN;
/// Bytes of frames in one control datagram, which every path carries.
pub(crate) const CONTROL_ROOM: usize = CHALLENGE_DATAGRAM_LEN - MAX_OVERHEAD;

/// Bytes of a datagram on `path` around its frames.
pub(crate) fn datagram_overhead(path: PathId) -> usize {
    if path.0 < 31 { MAX_OVERHEAD - 2 } else { MAX_OVERHEAD }
}
