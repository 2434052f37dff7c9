//! Local ports of UDP: which of them the host chooses by itself, and which are in use.
//!
//! Flows from ports that the host chooses are begun by this host. Other ports are those of
//! services, whose flows others begin.

use std::fs;
use std::ops::RangeInclusive;

use mpip_core::PortSet;
use mpip_net::netlink;

/// The ports from which the host chooses (ip(7)). It holds for IPv6, too.
const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Ports among these that the host never chooses, because services use them.
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";
/// Linux's default, taken if the file cannot be read.
const DEFAULT: RangeInclusive<u16> = 32_768..=60_999;

/// The first and the last port that the host chooses by itself.
pub(crate) fn chosen() -> RangeInclusive<u16> {
    let text = fs::read_to_string(RANGE);
    let range = text.ok().and_then(|text| {
        let mut ports = text.split_whitespace().map(str::parse);
        Some(ports.next()?.ok()?..=ports.next()?.ok()?)
    });
    range.unwrap_or_else(|| {
        log::warn!("cannot read {RANGE}: {}-{} is assumed", DEFAULT.start(), DEFAULT.end());
        DEFAULT
    })
}

/// The ports whose UDP may belong to flows that did not begin just now: those in use, and those
/// that the host does not choose.
pub(crate) fn plain_udp() -> PortSet {
    let mut plain = PortSet::full();
    for port in chosen() {
        plain.remove(port);
    }
    for range in reserved(&fs::read_to_string(RESERVED).unwrap_or_default()) {
        plain.extend(range);
    }
    match netlink::udp_ports(|port| plain.insert(port)) {
        Ok(()) => plain,
        Err(error) => {
            log::warn!("{error}: all UDP from behind a NAT stays plain");
            PortSet::full()
        }
    }
}

/// The ports and ranges in a list like `8080,9148-9200`.
fn reserved(text: &str) -> impl Iterator<Item = RangeInclusive<u16>> {
    text.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn reserved_ports_are_read() {
        let read = |text: &str| reserved(text).collect::<Vec<_>>();
        assert!(read("\n").is_empty());
        assert_eq!(read("8080,9148-9200\n"), [8_080..=8_080, 9_148..=9_200]);
    }

    #[test]
    fn only_free_ports_that_the_host_chooses_are_not_plain() {
        let open = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let port = open.local_addr().expect("bound").port();
        let (chosen, plain) = (chosen(), plain_udp());
        assert!(chosen.contains(&port), "{port} is not of {chosen:?}");
        assert!(plain.contains(port));
        let outside = (0..=u16::MAX).filter(|port| !chosen.contains(port));
        assert!(outside.into_iter().all(|port| plain.contains(port)));
        assert!(chosen.into_iter().any(|port| !plain.contains(port)));
    }
}
