//! Sizes of socket buffers and of packets.

use mpip_api::Status;
use mpip_net::netlink::Link;
use mpip_net::udp::Granted;

use super::finding::{Finding, Mend};
use super::survey::{Start, Survey};
use crate::local::SOCKET_BUFFER;

/// Smallest MTU of an IPv6 link, in bytes (RFC 8200 section 5).
const MIN_MTU: u32 = 1280;

/// MTU of an Ethernet, in bytes.
const ETHERNET_MTU: u32 = 1500;

pub(super) fn check(survey: &Survey) -> Vec<Finding> {
    // mpipd may exceed the system's limit. A process that may not learns nothing about its sockets.
    let granted = survey.granted.filter(|_| survey.privileged);
    let mut findings: Vec<_> = granted.and_then(receive_buffer).into_iter().collect();
    findings.extend(small_mtu(&survey.links, &survey.starts));
    if let Some(status) = survey.running.status() {
        for name in ["net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem"] {
            let value = survey.parameters.get(name).map_or("", String::as_str);
            findings.extend(tcp_buffer(name, value, status));
        }
    }
    findings
}

/// With CAP_NET_ADMIN a socket may exceed the system's limit, but not in every container.
fn receive_buffer(granted: Granted) -> Option<Finding> {
    (granted.receive_buffer < SOCKET_BUFFER).then(|| {
        Finding::note(
            format!(
                "a UDP socket gets a receive buffer of {} bytes instead of {SOCKET_BUFFER}",
                granted.receive_buffer
            ),
            "datagrams are lost when they arrive faster than mpipd can read them",
            Mend::command(format!("sysctl -w net.core.rmem_max={SOCKET_BUFFER}")),
        )
    })
}

fn small_mtu(links: &[Link], starts: &[Start]) -> Vec<Finding> {
    let small = links
        .iter()
        .filter(|link| link.mtu < MIN_MTU && starts.iter().any(|start| start.link == link.index));
    let finding = |link: &Link| {
        Finding::wrong(
            format!("{} has an MTU of {} bytes", link.name, link.mtu),
            format!("IPv6 needs {MIN_MTU}, with mpip's headers and without"),
            Mend::command(format!("ip link set {} mtu {ETHERNET_MTU}", link.name)),
        )
    };
    small.map(finding).collect()
}

/// A TCP connection over all paths needs buffers for their bandwidth-delay product (BDP). The
/// kernel counts about twice that, because of its overhead (tcp(7), tcp_adv_win_scale).
fn tcp_buffer(name: &str, value: &str, status: &Status) -> Option<Finding> {
    let mut sizes = value.split_whitespace().map(str::parse::<u64>);
    let (least, usual, largest) = (sizes.next()?.ok()?, sizes.next()?.ok()?, sizes.next()?.ok()?);
    let bdps = status.peers.iter().map(|peer| {
        let active = || peer.paths.iter().filter(|path| path.state == "active");
        let rate: u64 = active().map(|path| path.delivery_rate_bps).sum();
        let rtt_ms = active().filter_map(|path| path.rtt_ms).fold(0.0, f64::max);
        (rate as f64 / 8.0 * rtt_ms / 1e3) as u64
    });
    let bdp = bdps.max()?;
    let needed = bdp * 2;
    (needed > largest).then(|| {
        let parameter = name.replace('/', ".");
        Finding::note(
            format!("{parameter} allows at most {largest} bytes"),
            format!("the bandwidth-delay product of all paths is {bdp} bytes"),
            Mend::command(format!("sysctl -w {parameter}='{least} {usual} {needed}'")),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests_support::{link, path, peer, start, status};
    use super::*;

    #[test]
    fn a_receive_buffer_that_is_cut_is_a_note() {
        let granted =
            |receive_buffer| Granted { receive_buffer, segmentation: true, receive_offload: true };
        assert_eq!(receive_buffer(granted(SOCKET_BUFFER)), None);
        let finding = receive_buffer(granted(212_992)).expect("too small");
        assert_eq!(finding.mend, Mend::command("sysctl -w net.core.rmem_max=6291456"));
    }

    #[test]
    fn an_mtu_below_that_of_ipv6_is_wrong_where_paths_start() {
        let links = [
            Link { mtu: 1_279, ..link(2, "eth0") },
            Link { mtu: 1_280, ..link(3, "eth1") },
            Link { mtu: 576, ..link(4, "other") },
        ];
        let starts = [start(2, "eth0", "198.18.0.1/24"), start(3, "eth1", "198.18.1.1/24")];
        let findings = small_mtu(&links, &starts);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].mend, Mend::command("ip link set eth0 mtu 1500"));
    }

    #[test]
    fn tcp_buffers_are_compared_with_what_the_paths_carry() {
        let mut status = status();
        // 2 x 500 Mbit/s and 40 ms: 5 MB.
        let one = |state: &str| mpip_api::PathStatus {
            state: state.to_owned(),
            rtt_ms: Some(40.0),
            delivery_rate_bps: 500_000_000,
            ..path()
        };
        let paths = vec![one("active"), one("active"), one("failed")];
        status.peers = vec![mpip_api::PeerStatus { paths, ..peer() }];
        let rmem = |value: &str| tcp_buffer("net/ipv4/tcp_rmem", value, &status);
        assert_eq!(rmem("4096\t131072\t33554432"), None);
        assert_eq!(rmem(""), None);
        assert_eq!(
            rmem("4096 131072 6291456").expect("too small").mend,
            Mend::command("sysctl -w net.ipv4.tcp_rmem='4096 131072 10000000'")
        );
    }
}
