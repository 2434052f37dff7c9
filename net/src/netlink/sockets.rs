//! The host's sockets (sock_diag(7)): the connected ones, which show what hosts it talks to, and
//! the ports of those of UDP.
//!
//! The kernel filters connected ones by destination, so sockets to other destinations are not
//! copied. Nothing on the host changes: there is no module, no hook and no rule, and packets are
//! not touched. No privilege is needed.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mpip_types::Prefix;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use super::NetlinkError;
use super::plain::PlainNetlink;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_REQ_BYTECODE: u16 = 1;
/// Operations of the filter (linux/inet_diag.h).
const INET_DIAG_BC_JMP: u8 = 1;
const INET_DIAG_BC_D_COND: u8 = 8;
/// TCP_ESTABLISHED, which connected UDP sockets have too, and TCP_SYN_SENT.
const CONNECTED: u32 = 1 << 1 | 1 << 2;
const ANY_STATE: u32 = u32::MAX;
/// Sizes in bytes: of `inet_diag_req_v2`, `inet_diag_msg`, and the header of an attribute.
const REQUEST: usize = 56;
const ANSWER: usize = 72;
const ATTRIBUTE: usize = 4;
/// Offset of the socket's own port in an `inet_diag_msg`.
const PORT: usize = 4;
/// Size in bytes of a jump out of the filter.
const OUT: usize = 4;

/// Lists the host's connected TCP and UDP sockets.
#[derive(Debug)]
pub struct ConnectedSockets {
    diag: PlainNetlink,
    filter: Vec<u8>,
}

impl ConnectedSockets {
    /// Lists sockets connected to addresses in `prefixes`, at most 1,024.
    pub fn to(prefixes: &[Prefix]) -> Result<Self, NetlinkError> {
        Ok(Self { diag: open()?, filter: filter(prefixes) })
    }

    /// Calls `take` with the two ends of each socket: the host's address, then the other.
    pub fn list(&mut self, mut take: impl FnMut(IpAddr, IpAddr)) -> Result<(), NetlinkError> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            for protocol in [libc::IPPROTO_TCP, libc::IPPROTO_UDP] {
                let which = Sockets { family, protocol, states: CONNECTED };
                let each = |body: &[u8]| {
                    if let Some((source, destination)) = ends(body) {
                        take(source, destination);
                    }
                };
                self.diag
                    .dump(SOCK_DIAG_BY_FAMILY, &request(&which, Some(&self.filter)), each)
                    .map_err(|error| NetlinkError::new("list the connected sockets", error))?;
            }
        }
        Ok(())
    }
}

/// Calls `take` with the port of each UDP socket on this host, connected or not; with some ports
/// more than once.
pub fn udp_ports(mut take: impl FnMut(u16)) -> Result<(), NetlinkError> {
    let mut diag = open()?;
    for family in [libc::AF_INET, libc::AF_INET6] {
        let which = Sockets { family, protocol: libc::IPPROTO_UDP, states: ANY_STATE };
        diag.dump(SOCK_DIAG_BY_FAMILY, &request(&which, None), |body| {
            body.get(PORT..).and_then(port).into_iter().for_each(&mut take);
        })
        .map_err(|error| NetlinkError::new("list the UDP sockets", error))?;
    }
    Ok(())
}

fn open() -> Result<PlainNetlink, NetlinkError> {
    PlainNetlink::open(NETLINK_SOCK_DIAG)
        .map_err(|error| NetlinkError::new("open a socket to sock_diag", error))
}

/// Which sockets a request is about.
#[derive(Debug)]
struct Sockets {
    family: i32,
    protocol: i32,
    states: u32,
}

/// The `inet_diag_req_v2` of a request, with the filter.
fn request(which: &Sockets, filter: Option<&[u8]>) -> Vec<u8> {
    let attribute = filter.map_or(0, |filter| ATTRIBUTE + filter.len());
    let mut bytes = Vec::with_capacity(REQUEST + attribute);
    bytes.extend([which.family as u8, which.protocol as u8, 0, 0]);
    bytes.extend(which.states.to_ne_bytes());
    bytes.resize(REQUEST, 0);
    if let Some(filter) = filter {
        bytes.extend((attribute as u16).to_ne_bytes());
        bytes.extend(INET_DIAG_REQ_BYTECODE.to_ne_bytes());
        bytes.extend(filter);
    }
    bytes
}

/// A filter that accepts sockets with a destination in one of `prefixes`. Each prefix is a
/// condition. After each but the last comes a jump to the end, which accepts.
fn filter(prefixes: &[Prefix]) -> Vec<u8> {
    let len = |prefix: &Prefix| ATTRIBUTE + 8 + if prefix.address().is_ipv4() { 4 } else { 16 };
    let mut left: usize = prefixes.iter().map(len).sum::<usize>();
    left += OUT * prefixes.len().saturating_sub(1);
    let mut filter = Vec::with_capacity(left);
    for (index, prefix) in prefixes.iter().enumerate() {
        let size = len(prefix);
        let last = index + 1 == prefixes.len();
        // Without a match: past the jump to the next condition, or, after the last, out of the
        // filter.
        let no = (size + OUT) as u16;
        filter.extend([INET_DIAG_BC_D_COND, size as u8]);
        filter.extend(no.to_ne_bytes());
        let family = if prefix.address().is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        filter.extend([family as u8, prefix.prefix_len(), 0, 0]);
        filter.extend((-1_i32).to_ne_bytes());
        match prefix.address() {
            IpAddr::V4(address) => filter.extend(address.octets()),
            IpAddr::V6(address) => filter.extend(address.octets()),
        }
        left -= size;
        if !last {
            filter.extend([INET_DIAG_BC_JMP, OUT as u8]);
            filter.extend((left as u16).to_ne_bytes());
            left -= OUT;
        }
    }
    filter
}

/// Source and destination of a socket, from an `inet_diag_msg`.
fn ends(body: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let body: &[u8; ANSWER] = body.first_chunk()?;
    let address = |at: usize| {
        let bytes: [u8; 16] = body[at..at + 16].try_into().expect("16 of 72 bytes");
        if i32::from(body[0]) == libc::AF_INET {
            let [a, b, c, d, ..] = bytes;
            IpAddr::from(Ipv4Addr::new(a, b, c, d))
        } else {
            IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
        }
    };
    Some((address(8), address(24)))
}

fn port(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|port| u16::from_be_bytes(*port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().expect("valid")).collect()
    }

    fn destinations(texts: &[&str]) -> Vec<(IpAddr, IpAddr)> {
        let mut sockets = ConnectedSockets::to(&prefixes(texts)).expect("sock_diag");
        let mut found = Vec::new();
        sockets.list(|source, destination| found.push((source, destination))).expect("a list");
        found.retain(|(_, destination)| destination.is_loopback());
        found
    }

    #[test]
    fn sockets_connected_to_the_prefixes_are_listed_and_no_others() {
        // Loopback addresses of this test alone.
        let listener = TcpListener::bind("127.77.1.1:0").expect("loopback");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("listens");
        let udp = UdpSocket::bind("127.77.2.1:0").expect("loopback");
        udp.connect("127.77.2.2:9").expect("UDP");
        let (tcp, udp_to) = ("127.77.1.1", "127.77.2.2");
        let found = |texts: &[&str]| -> Vec<String> {
            let mut list: Vec<_> =
                destinations(texts).iter().map(|(_, to)| to.to_string()).collect();
            list.sort_unstable();
            list.dedup();
            list.retain(|to| [tcp, udp_to].contains(&to.as_str()));
            list
        };
        assert_eq!(found(&["127.77.1.0/24"]), [tcp]);
        assert_eq!(found(&["127.77.2.2/32"]), [udp_to]);
        let no: [&str; 0] = [];
        assert_eq!(found(&["198.18.0.0/15"]), no);
        let three = ["198.18.0.0/15", "2001:db8::/32", "127.77.0.0/16"];
        assert_eq!(found(&three), [tcp, udp_to]);
        assert_eq!(found(&["127.77.2.0/24", "2001:db8::/32", "127.77.1.0/24"]), [tcp, udp_to]);
        assert_eq!(found(&["0.0.0.0/0"]), [tcp, udp_to]);
        assert_eq!(found(&["::/0"]), no);
        let source: IpAddr = "127.77.2.1".parse().expect("valid");
        assert!(destinations(&["127.77.2.0/24"]).iter().any(|(from, _)| *from == source));
        drop(stream);
    }

    #[test]
    fn the_ports_of_udp_sockets_are_listed_connected_or_not() {
        let idle = UdpSocket::bind("127.77.3.1:0").expect("loopback");
        let connected = UdpSocket::bind("[::1]:0").expect("loopback");
        connected.connect("[::1]:9").expect("UDP");
        let mut found = Vec::new();
        udp_ports(|port| found.push(port)).expect("a list");
        for socket in [&idle, &connected] {
            let port = socket.local_addr().expect("bound").port();
            assert!(found.contains(&port), "{port} in {found:?}");
        }
        assert!(!found.contains(&0));
    }

    #[test]
    fn as_many_prefixes_as_are_allowed_make_a_filter_that_the_kernel_takes() {
        let many: Vec<Prefix> = (0..1_024_u32)
            .map(|n| Prefix::new(Ipv6Addr::new(0x2001, 0xdb8, n as u16, 0, 0, 0, 0, 0).into(), 48))
            .map(|prefix| prefix.expect("valid"))
            .collect();
        let mut sockets = ConnectedSockets::to(&many).expect("sock_diag");
        sockets.list(|_, _| {}).expect("a list");
    }

    /// To be run where there are many: see docs/decisions/0015-finding-destinations.md.
    #[test]
    #[ignore = "a measurement"]
    fn how_long_a_look_takes() {
        for texts in [&["198.18.0.0/15"][..], &["127.0.0.0/8"]] {
            let mut sockets = ConnectedSockets::to(&prefixes(texts)).expect("sock_diag");
            let (start, mut found) = (std::time::Instant::now(), 0);
            for _ in 0..10 {
                sockets.list(|_, _| found += 1).expect("a list");
            }
            println!("{texts:?}: {} found, {:?} each", found / 10, start.elapsed() / 10);
        }
    }

    #[test]
    fn an_answer_that_ends_early_is_none() {
        assert!(ends(&[0; ANSWER - 1]).is_none());
    }
}
