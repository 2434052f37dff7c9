use super::*;

fn shape(protocol: u8, v6: bool) -> Shape {
    let (a, b) = if v6 {
        ("[2001:db8::1]:4000", "[2001:db8::2]:5000")
    } else {
        ("198.19.0.1:4000", "198.19.0.2:5000")
    };
    Shape { protocol, source: a.parse().unwrap(), destination: b.parse().unwrap(), ecn: 0 }
}

const PROTOCOLS: [u8; 5] =
    [protocol::TCP, protocol::UDP, protocol::ICMP, protocol::ICMPV6, protocol::ESP];

#[test]
fn a_built_packet_reads_as_what_was_asked_for() {
    let mut packet = Vec::new();
    for number in PROTOCOLS {
        for v6 in [false, true] {
            let shape = shape(number, v6);
            build(&shape, 9, 77, 300, &mut packet);
            let read = tuple(&packet).expect("whole");
            assert_eq!((packet.len(), read.protocol), (300, number));
            assert_eq!(read.source.ip(), shape.source.ip());
            assert!(header_checksum_is_right(&packet));
            if number == protocol::TCP || number == protocol::UDP {
                assert_eq!(read.source, shape.source);
                assert_eq!(read.destination, shape.destination);
            }
        }
    }
}

#[test]
fn checksums_agree_with_another_implementation() {
    use smoltcp::wire::{Ipv4Packet, Ipv6Packet, TcpPacket, UdpPacket};
    let mut packet = Vec::new();
    for len in [60, 61, 777] {
        build(&shape(protocol::TCP, false), 3, 5, len, &mut packet);
        let ip = Ipv4Packet::new_checked(&packet[..]).expect("IPv4");
        assert!(ip.verify_checksum());
        let (src, dst) = (ip.src_addr().into(), ip.dst_addr().into());
        assert!(TcpPacket::new_checked(ip.payload()).expect("TCP").verify_checksum(&src, &dst));
        build(&shape(protocol::UDP, true), 3, 5, len, &mut packet);
        let ip = Ipv6Packet::new_checked(&packet[..]).expect("IPv6");
        let (src, dst) = (ip.src_addr().into(), ip.dst_addr().into());
        assert!(UdpPacket::new_checked(ip.payload()).expect("UDP").verify_checksum(&src, &dst));
    }
}

#[test]
fn a_partial_checksum_is_completed_to_the_whole_one() {
    let mut packet = Vec::new();
    for v6 in [false, true] {
        for number in [protocol::TCP, protocol::UDP] {
            build(&shape(number, v6), 1, 2, 400, &mut packet);
            let whole = packet.clone();
            let (start, offset) = make_checksum_partial(&mut packet).expect("has a checksum");
            assert_ne!(packet, whole);
            // Completes the checksum as a device does: sums from `start` on and writes the result.
            let at = usize::from(start + offset);
            let sum = !add(0, &packet[usize::from(start)..]);
            packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(packet, whole);
        }
    }
}

#[test]
fn every_flipped_bit_changes_the_digest_or_the_header_checksum() {
    let mut packet = Vec::new();
    build(&shape(protocol::UDP, false), 1, 0, 96, &mut packet);
    let digest_before = digest(&packet);
    for bit in 0..packet.len() * 8 {
        packet[bit / 8] ^= 1 << (bit % 8);
        let seen = digest(&packet) != digest_before || !header_checksum_is_right(&packet);
        assert!(seen, "bit {bit}");
        packet[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_congestion_mark_is_no_alteration() {
    let mut packet = Vec::new();
    for v6 in [false, true] {
        build(&Shape { ecn: 2, ..shape(protocol::UDP, v6) }, 1, 0, 96, &mut packet);
        let sent = digest(&packet);
        build(&Shape { ecn: 3, ..shape(protocol::UDP, v6) }, 1, 0, 96, &mut packet);
        assert_eq!(digest(&packet), sent);
        build(&shape(protocol::UDP, v6), 1, 0, 96, &mut packet);
        assert_ne!(digest(&packet), sent);
    }
}

#[test]
fn a_super_packet_is_cut_into_the_segments_that_a_sender_would_have_made() {
    let mut packet = Vec::new();
    let tcp = shape(protocol::TCP, false);
    build(&tcp, 1, 1000, 40 + 2500, &mut packet);
    packet[20 + 13] = 0x18;
    let segments = cut(&packet, 1000);
    assert_eq!(segments.iter().map(Vec::len).collect::<Vec<_>>(), [1040, 1040, 540]);
    let sequence = |s: &[u8]| u32::from_be_bytes([s[24], s[25], s[26], s[27]]);
    assert_eq!(segments.iter().map(|s| sequence(s)).collect::<Vec<_>>(), [1000, 2000, 3000]);
    assert_eq!(segments.iter().map(|s| s[33]).collect::<Vec<_>>(), [0x10, 0x10, 0x18]);
    let payload: Vec<u8> = segments.iter().flat_map(|s| s[40..].to_vec()).collect();
    assert_eq!(payload, packet[40..]);
}

#[test]
fn an_echo_is_answered_with_the_same_payload() {
    let mut packet = Vec::new();
    for (number, v6) in [(protocol::ICMP, false), (protocol::ICMPV6, true)] {
        build(&shape(number, v6), 1, 0, 100, &mut packet);
        let answer = echo_reply(&packet).expect("a request");
        let (asked, answered) = (tuple(&packet).unwrap(), tuple(&answer).unwrap());
        assert_eq!(asked.source, answered.destination);
        assert_eq!(transport(&packet)[4..], transport(&answer)[4..]);
        assert!(echo_reply(&answer).is_none());
    }
}

#[test]
fn a_stream_is_the_same_byte_by_byte_and_as_a_whole() {
    for (offset, len) in [(0, 20), (3, 1), (5, 1_460), (8, 0), (13, 3), (1_000_003, 1_100)] {
        let expected: Vec<u8> = (offset..offset + len).map(|at| pattern(7, at)).collect();
        let mut found = vec![0; len as usize];
        fill(7, offset, &mut found);
        assert_eq!(found, expected, "{offset} {len}");
        assert_eq!(find_wrong(7, offset, &found), None);
        if let Some(last) = found.last_mut() {
            *last ^= 1;
            assert_eq!(find_wrong(7, offset, &found), Some(offset + len - 1));
        }
    }
}
