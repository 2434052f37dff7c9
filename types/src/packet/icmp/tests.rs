use super::*;

/// A packet of `len` bytes from 198.19.0.1 to 198.19.0.2 that must not be fragmented.
fn v4(transport: u8, len: usize) -> Vec<u8> {
    let mut packet = vec![0; len];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[6] = 0x40;
    packet[9] = transport;
    packet[12..16].copy_from_slice(&[198, 19, 0, 1]);
    packet[16..20].copy_from_slice(&[198, 19, 0, 2]);
    packet
}

fn v6(transport: u8, len: usize) -> Vec<u8> {
    let mut packet = vec![0; len];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&(len as u16 - 40).to_be_bytes());
    packet[6] = transport;
    packet[8..10].copy_from_slice(&[0x20, 0x01]);
    packet[23] = 1;
    packet[24..26].copy_from_slice(&[0x20, 0x01]);
    packet[39] = 2;
    packet
}

fn message(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    too_big(packet, &Header::parse(packet).expect("a whole packet"), mtu)
}

#[test]
fn an_ipv4_sender_is_told_the_mtu_from_the_destination() {
    let packet = v4(protocol::TCP, 1_500);
    let message = message(&packet, 1_238).expect("a message");
    let header = Header::parse(&message).expect("a whole packet");
    assert_eq!((header.total_len, header.protocol), (576, protocol::ICMP));
    assert_eq!(header.source.to_string(), "198.19.0.2");
    assert_eq!(header.destination.to_string(), "198.19.0.1");
    assert_eq!(checksum::fold(checksum::sum(&message[..20])), 0xffff);
    assert_eq!(checksum::fold(checksum::sum(&message[20..])), 0xffff);
    assert_eq!(message[20..22], [3, 4]);
    assert_eq!(message[24..28], [0, 0, 4, 214]);
    assert_eq!(message[28..], packet[..548]);
}

#[test]
fn an_ipv6_sender_is_told_no_less_than_1280() {
    for (mtu, told) in [(1_400, 1_400_u32), (1_200, 1_280)] {
        let packet = v6(protocol::UDP, 1_501);
        let message = message(&packet, mtu).expect("a message");
        let header = Header::parse(&message).expect("a whole packet");
        assert_eq!((header.total_len, header.protocol), (1_280, protocol::ICMPV6));
        assert_eq!(header.source.to_string(), "2001::2");
        assert_eq!(message[40..42], [2, 0]);
        assert_eq!(message[44..48], told.to_be_bytes());
        assert_eq!(message[48..], packet[..1_232]);
        let mut pseudo_header = message[8..40].to_vec();
        pseudo_header.extend((message.len() as u32 - 40).to_be_bytes());
        pseudo_header.extend([0, 0, 0, protocol::ICMPV6]);
        let sum = checksum::sum(&pseudo_header) + checksum::sum(&message[40..]);
        assert_eq!(checksum::fold(sum), 0xffff);
    }
}

#[test]
fn a_short_packet_is_quoted_as_a_whole() {
    let packet = v4(protocol::UDP, 101);
    let message = message(&packet, 68).expect("a message");
    assert_eq!(message.len(), 129);
    assert_eq!(message[28..], packet);
    assert_eq!(checksum::fold(checksum::sum(&message[20..])), 0xffff);
}

#[test]
fn some_packets_get_no_message() {
    let changed = |packet: &[u8], at: usize, byte: u8| {
        let mut packet = packet.to_vec();
        packet[at] = byte;
        packet
    };
    let tcp = v4(protocol::TCP, 1_500);
    let icmp = v4(protocol::ICMP, 1_500);
    let icmpv6 = v6(protocol::ICMPV6, 1_500);
    assert!(message(&changed(&icmp, 20, 8), 1_200).is_some(), "an echo request");
    assert!(message(&changed(&icmpv6, 40, 129), 1_400).is_some(), "an echo reply");
    for (what, packet) in [
        ("it may be fragmented", changed(&tcp, 6, 0)),
        ("a later fragment", changed(&tcp, 7, 1)),
        ("unreachable", changed(&icmp, 20, 3)),
        ("unreachable over IPv6", changed(&icmpv6, 40, 1)),
        ("multicast", changed(&tcp, 16, 224)),
        ("from nowhere", [&tcp[..12], &[0; 4], &tcp[16..]].concat()),
        ("from a group", changed(&v6(protocol::UDP, 1_500), 8, 0xff)),
    ] {
        assert_eq!(message(&packet, 1_300), None, "{what}");
    }
}
