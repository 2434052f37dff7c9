//! Segments as IP packets.

use core::net::{IpAddr, SocketAddr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};

use crate::packet::{ip_header_len, transport};

/// Length of a TCP header without options, in bytes.
const TCP_HEADER: usize = 20;
/// Length of the timestamps option with its padding, in bytes (RFC 7323, appendix A).
pub(super) const TIMESTAMPS: usize = 12;
const NO_OPERATION: u8 = 1;

/// Parses the segment in `packet`; `None` if it is invalid or its checksum is wrong.
pub(super) fn parse(packet: &[u8], from: SocketAddr, to: SocketAddr) -> Option<TcpRepr<'_>> {
    let segment = TcpPacket::new_checked(transport(packet)).ok()?;
    let (from, to) = (IpAddress::from(from.ip()), IpAddress::from(to.ip()));
    TcpRepr::parse(&segment, &from, &to, &ChecksumCapabilities::default()).ok()
}

/// Payload of a full segment from or to `address` without options, in bytes.
pub(super) fn mss(mtu: usize, address: IpAddr) -> usize {
    mtu - ip_header_len(address) - TCP_HEADER
}

/// The offset of the sequence number `number` in a stream whose SYN has `initial`. It is near the
/// offset `near`.
pub(super) fn offset(initial: u32, number: u32, near: u64) -> u64 {
    let at_near = initial.wrapping_add(1).wrapping_add(near as u32);
    near.saturating_add_signed(i64::from(number.wrapping_sub(at_near) as i32))
}

/// A segment between these ends, with neither data nor options.
pub(super) fn empty(from: SocketAddr, to: SocketAddr, control: TcpControl) -> TcpRepr<'static> {
    TcpRepr {
        src_port: from.port(),
        dst_port: to.port(),
        control,
        seq_number: TcpSeqNumber(0),
        ack_number: None,
        window_len: u16::MAX,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    }
}

/// The packet with the segment `repr`.
pub(super) fn build(repr: &TcpRepr<'_>, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let (from, to) = (IpAddress::from(from.ip()), IpAddress::from(to.ip()));
    let caps = ChecksumCapabilities::default();
    let ip = IpRepr::new(from, to, IpProtocol::Tcp, repr.buffer_len(), 64);
    let mut packet = vec![0; ip.buffer_len()];
    ip.emit(&mut packet[..], &caps);
    let header = ip.header_len();
    let mut segment = TcpPacket::new_unchecked(&mut packet[header..]);
    repr.emit(&mut segment, &from, &to, &caps);
    let alone = !repr.sack_permitted && repr.sack_ranges[0].is_none();
    if repr.timestamp.is_some() && alone {
        // Before them is where others put the padding (RFC 7323, appendix A).
        let options = &mut packet[header + TCP_HEADER..][..TIMESTAMPS];
        options.rotate_right(2);
        options[..2].fill(NO_OPERATION);
        TcpPacket::new_unchecked(&mut packet[header..]).fill_checksum(&from, &to);
    }
    packet
}
