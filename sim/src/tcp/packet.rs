//! Segments as IP packets.

use core::net::SocketAddr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};

use crate::packet::transport;

/// Length of a TCP header without options, in bytes.
pub(super) const TCP_HEADER: usize = 20;

/// Parses the segment in `packet`; `None` if it is invalid or its checksum is wrong.
pub(super) fn parse(packet: &[u8], from: SocketAddr, to: SocketAddr) -> Option<TcpRepr<'_>> {
    let segment = TcpPacket::new_checked(transport(packet)).ok()?;
    let (from, to) = (IpAddress::from(from.ip()), IpAddress::from(to.ip()));
    TcpRepr::parse(&segment, &from, &to, &ChecksumCapabilities::default()).ok()
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
    repr.emit(&mut TcpPacket::new_unchecked(&mut packet[header..]), &from, &to, &caps);
    packet
}
