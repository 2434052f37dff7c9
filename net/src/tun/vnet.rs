//! The header that stands before each packet on a TUN device with `IFF_VNET_HDR`
//! (`struct virtio_net_hdr`, virtio 1.2, section 5.1.6, in the host's byte order).

use core::fmt;

use mpip_types::{Offload, PartialChecksum, Segmentation, SegmentationKind};

/// Bytes of the header.
pub(crate) const VNET_HEADER_LEN: usize = 10;

const F_NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// A modifier of the TCP kinds: the first segment carries CWR, later ones must not.
const GSO_ECN: u8 = 0x80;

/// The header's fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VnetHeader {
    flags: u8,
    gso_type: u8,
    header_len: u16,
    gso_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

/// Why a frame from the TUN device is not a packet with a known offload state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Shorter than the header that precedes each packet: so many bytes.
    Truncated(usize),
    /// A kind of segmentation that was not asked for.
    UnknownSegmentation(u8),
    /// Segments of no bytes, or a super-packet whose checksum is not partial.
    InvalidSegmentation,
    /// The checksum field lies outside the packet.
    ChecksumOutside {
        /// Where the checksum field ends.
        end: usize,
        /// Bytes of the packet.
        len: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(len) => write!(
                f,
                "expected a frame of at least {VNET_HEADER_LEN} bytes from the TUN device, \
                 found {len}"
            ),
            Self::UnknownSegmentation(kind) => write!(
                f,
                "expected no segmentation or one of TCP or UDP from the TUN device, \
                 found kind {kind}"
            ),
            Self::InvalidSegmentation => {
                f.write_str("a super-packet from the TUN device has no segment size or checksum")
            }
            Self::ChecksumOutside { end, len } => write!(
                f,
                "expected the checksum within the {len} bytes of a packet from the TUN device, \
                 found it to end at {end}"
            ),
        }
    }
}

impl core::error::Error for FrameError {}

impl VnetHeader {
    /// A packet that is complete.
    pub(crate) const COMPLETE: Self = Self {
        flags: 0,
        gso_type: GSO_NONE,
        header_len: 0,
        gso_size: 0,
        checksum_start: 0,
        checksum_offset: 0,
    };

    /// A packet whose transport checksum is partial.
    pub(crate) fn partial(checksum: PartialChecksum) -> Self {
        Self {
            flags: F_NEEDS_CSUM,
            checksum_start: checksum.start,
            checksum_offset: checksum.offset,
            ..Self::COMPLETE
        }
    }

    /// A super-packet with headers of `header_len` bytes, to be cut into segments of
    /// `segmentation.size`.
    pub(crate) fn super_packet(
        ipv6: bool,
        segmentation: Segmentation,
        header_len: u16,
        checksum: PartialChecksum,
    ) -> Self {
        let gso_type = match (segmentation.kind, ipv6) {
            (SegmentationKind::Tcp, false) => GSO_TCPV4,
            (SegmentationKind::Tcp, true) => GSO_TCPV6,
            (SegmentationKind::Udp, _) => GSO_UDP_L4,
        };
        Self { gso_type, header_len, gso_size: segmentation.size, ..Self::partial(checksum) }
    }

    pub(crate) fn from_bytes(bytes: [u8; VNET_HEADER_LEN]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            header_len: word(2),
            gso_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; VNET_HEADER_LEN] {
        let mut bytes = [0; VNET_HEADER_LEN];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        bytes[2..4].copy_from_slice(&self.header_len.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.gso_size.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.checksum_start.to_ne_bytes());
        bytes[8..10].copy_from_slice(&self.checksum_offset.to_ne_bytes());
        bytes
    }

    /// What the kernel left undone on a packet of `len` bytes with this header.
    pub(crate) fn offload(self, len: usize) -> Result<Offload, FrameError> {
        let partial_checksum = if self.flags & F_NEEDS_CSUM == 0 {
            None
        } else {
            let end = usize::from(self.checksum_start) + usize::from(self.checksum_offset) + 2;
            if end > len {
                return Err(FrameError::ChecksumOutside { end, len });
            }
            Some(PartialChecksum { start: self.checksum_start, offset: self.checksum_offset })
        };
        let kind = match self.gso_type & !GSO_ECN {
            GSO_NONE => return Ok(Offload { partial_checksum, segmentation: None }),
            GSO_TCPV4 | GSO_TCPV6 => SegmentationKind::Tcp,
            GSO_UDP_L4 => SegmentationKind::Udp,
            _ => return Err(FrameError::UnknownSegmentation(self.gso_type)),
        };
        if self.gso_size == 0 || partial_checksum.is_none() {
            return Err(FrameError::InvalidSegmentation);
        }
        let segmentation = Some(Segmentation { kind, size: self.gso_size });
        Ok(Offload { partial_checksum, segmentation })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_complete_packet_has_nothing_left_to_do() {
        let header = VnetHeader::from_bytes([0; VNET_HEADER_LEN]);
        assert_eq!(header, VnetHeader::COMPLETE);
        assert_eq!(header.offload(20), Ok(Offload::default()));
    }

    #[test]
    fn the_ecn_modifier_is_stripped() {
        let checksum = PartialChecksum { start: 20, offset: 16 };
        let segmentation = Segmentation { kind: SegmentationKind::Tcp, size: 1_448 };
        let mut header = VnetHeader::super_packet(false, segmentation, 52, checksum);
        header.gso_type |= GSO_ECN;
        let expected =
            Offload { partial_checksum: Some(checksum), segmentation: Some(segmentation) };
        assert_eq!(header.offload(4_000), Ok(expected));
    }

    #[test]
    fn what_cannot_be_done_is_an_error() {
        let checksum = PartialChecksum { start: 20, offset: 16 };
        let header = VnetHeader::partial(checksum);
        assert_eq!(header.offload(37), Err(FrameError::ChecksumOutside { end: 38, len: 37 }));
        assert!(header.offload(38).is_ok());
        let fragments = VnetHeader { gso_type: 3, gso_size: 8, ..header };
        assert_eq!(fragments.offload(100), Err(FrameError::UnknownSegmentation(3)));
        let empty = VnetHeader { gso_type: GSO_TCPV4, ..header };
        assert_eq!(empty.offload(100), Err(FrameError::InvalidSegmentation));
        let complete = VnetHeader { gso_type: GSO_TCPV4, gso_size: 8, ..VnetHeader::COMPLETE };
        assert_eq!(complete.offload(100), Err(FrameError::InvalidSegmentation));
    }

    proptest! {
        #[test]
        fn every_header_survives_the_way_to_bytes_and_back(bytes: [u8; VNET_HEADER_LEN]) {
            prop_assert_eq!(VnetHeader::from_bytes(bytes).to_bytes(), bytes);
        }

        #[test]
        fn a_header_that_is_accepted_points_into_the_packet(
            bytes: [u8; VNET_HEADER_LEN],
            len in 0_usize..70_000,
        ) {
            if let Ok(offload) = VnetHeader::from_bytes(bytes).offload(len) {
                if let Some(checksum) = offload.partial_checksum {
                    let end = usize::from(checksum.start) + usize::from(checksum.offset) + 2;
                    prop_assert!(end <= len);
                }
                prop_assert!(offload.segmentation.is_none_or(|s| s.size > 0));
            }
        }
    }
}
