//! Segmentation offload: many segments leave as one super-packet, which the kernel or the network
//! interface cuts.
//!
//! A raw socket takes one segment at a time. A [packet socket](PacketSocket) takes super-packets,
//! but they pass by the host's routes, neighbours, packet filter and IPsec. So [`Trains`] asks for
//! route and neighbour itself, and sends nothing in this way while a rule of this host might treat
//! it.
//!
//! The last segment of each train is left to the raw socket. So connection tracking sees the newest
//! sequence number and takes the peer's answers for answers, and the kernel goes on checking the
//! neighbour's address.

use core::time::Duration;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;

use mpip_segments::segment::{CHECKSUM, TCP, begin_checksum, split};
use mpip_types::{Ecn, Instant, PartialChecksum, Segmentation, SegmentationKind};

use super::packets::MAX_PARTS;
use super::socket::TcpSocket;
use crate::checksum::Sum;
use crate::netlink::{Netlink, NetlinkError, OutputRules, Question};
use crate::socket::batch::{is_dropped, is_temporary};
use crate::socket::options::hop_limit;
use crate::tun::{VNET_HEADER_LEN, VnetHeader};

/// How long what was found out about the host is relied on.
const VALID: Duration = Duration::from_secs(1);
/// Most destinations about which something is known.
const MAX_DESTINATIONS: usize = 1_024;
/// Most segments of a train: one for each part of a packet but the headers, and the last one, which
/// is left to the raw socket.
pub(super) const MAX_TRAIN: usize = MAX_PARTS;
/// Fewest segments that leave together.
pub(super) const MIN_SEGMENTS: usize = 2;
/// Length of the longest IP packet, in bytes.
const MAX_PACKET: usize = u16::MAX as usize;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Longest headers: of virtio-net, Ethernet, IPv6 and TCP.
const MAX_HEADERS: usize = VNET_HEADER_LEN + ETHERNET + 40 + 60;

/// Sends trains of segments of one local address.
#[derive(Debug)]
pub(super) struct Trains {
    /// Its packet socket exists.
    socket: Arc<TcpSocket>,
    /// Our own table of nftables.
    table: Arc<str>,
    host: Option<(Netlink, OutputRules)>,
    treated: Treated,
    destinations: HashMap<IpAddr, Destination>,
}

/// Whether something in the host may treat what it sends.
#[derive(Debug, Default)]
struct Treated {
    /// By what, for people.
    by: Option<String>,
    valid_until: Instant,
}

#[derive(Debug)]
struct Destination {
    /// `None` if there is no way for trains.
    way: Option<Way>,
    valid_until: Instant,
}

/// How packets leave for a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// Index of the interface.
    link: u32,
    /// Longest packet on it, in bytes.
    mtu: usize,
    /// Headers of Ethernet and IP, for a packet without ECN. Length and checksum are 0.
    headers: Vec<u8>,
}

/// What became of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// So many segments, the first ones, have left.
    Left(usize),
    /// So many were dropped, because of this error.
    Dropped(usize, i32),
    /// The segments have to leave one by one.
    OneByOne,
}

impl Trains {
    /// Those of `socket`, if it can send any. `table` is the table of nftables that is our own.
    pub(super) fn new(socket: &Arc<TcpSocket>, table: &Arc<str>) -> Option<Self> {
        socket.packets()?;
        Some(Self {
            socket: Arc::clone(socket),
            table: Arc::clone(table),
            host: None,
            treated: Treated::default(),
            destinations: HashMap::new(),
        })
    }

    /// Sends all but the last of `segments` as one super-packet, as far as one can be as long. Each
    /// of them [continues](mpip_segments::segment::continues) the one before, and all but the last
    /// have the same length.
    pub(super) fn send(
        &mut self,
        now: Instant,
        to: SocketAddr,
        ecn: Ecn,
        segments: &[&[u8]],
    ) -> Departure {
        let [first, _, ..] = segments else { return Departure::OneByOne };
        let (header, payload) = split(first);
        let ip = if to.is_ipv4() { 20 } else { 40 };
        let fit = (MAX_PACKET - ip - header.len()) / payload.len();
        let count = fit.min(segments.len() - 1).min(MAX_PARTS - 1);
        if count < MIN_SEGMENTS {
            return Departure::OneByOne;
        }
        let socket = Arc::clone(&self.socket);
        let Some(way) = self.way(now, to.ip()) else { return Departure::OneByOne };
        if ip + first.len() > way.mtu {
            return Departure::OneByOne;
        }
        let link = way.link;
        let mut headers = [0; MAX_HEADERS];
        let local = socket.address();
        let len = write_headers(&mut headers, way, ecn, (local, to), header, payload.len(), count);
        let payloads = segments[..count].iter().map(|segment| split(segment).1);
        let packets = socket.packets().expect("looked for when this was made");
        match packets.send(link, std::iter::once(&headers[..len]).chain(payloads)) {
            Ok(()) => Departure::Left(count),
            // The raw socket waits until there is room.
            Err(errno) if is_temporary(errno) => Departure::OneByOne,
            Err(errno) if is_dropped(errno) => Departure::Dropped(count, errno),
            Err(errno) => {
                log::debug!(
                    "segments to {to} leave one by one: {}",
                    std::io::Error::from_raw_os_error(errno)
                );
                let none = Destination { way: None, valid_until: now + VALID };
                self.destinations.insert(to.ip(), none);
                Departure::OneByOne
            }
        }
    }

    /// How trains leave for `to`, if they do.
    pub(super) fn way(&mut self, now: Instant, to: IpAddr) -> Option<&Way> {
        let known = self.destinations.get(&to);
        if known.is_none_or(|destination| destination.valid_until <= now) {
            if self.destinations.len() >= MAX_DESTINATIONS {
                self.destinations.retain(|_, destination| destination.valid_until > now);
            }
            if self.destinations.len() >= MAX_DESTINATIONS {
                return None;
            }
            let way = self.find_out(now, to).unwrap_or_else(|error| {
                log::debug!("segments to {to} leave one by one: {error}");
                self.host = None;
                None
            });
            self.destinations.insert(to, Destination { way, valid_until: now + VALID });
        }
        self.destinations.get(&to)?.way.as_ref()
    }

    fn find_out(&mut self, now: Instant, to: IpAddr) -> Result<Option<Way>, NetlinkError> {
        let (netlink, rules) = match &mut self.host {
            Some(host) => host,
            None => self.host.insert((Netlink::new()?, OutputRules::open()?)),
        };
        if self.treated.valid_until <= now {
            let by = rules.first(&self.table)?;
            if by != self.treated.by {
                let local = self.socket.address();
                match &by {
                    Some(by) => log::info!(
                        "segments of TCP from {local} leave one by one, because {by} may treat them"
                    ),
                    None => log::info!("segments of TCP from {local} leave many at a time"),
                }
            }
            self.treated = Treated { by, valid_until: now + VALID };
        }
        if self.treated.by.is_some() {
            return Ok(None);
        }
        let links = netlink.links()?;
        let config = self.socket.config();
        let bound_to = match &config.interface {
            Some(name) => match links.iter().find(|link| link.name == *name) {
                Some(link) => Some(link.index),
                None => return Ok(None),
            },
            None => None,
        };
        let source = config.address.ip();
        let question =
            Question { destination: to, source: Some(source), mark: config.mark, bound_to };
        let Some(route) = netlink.way(question)? else { return Ok(None) };
        let Some(link) = links.iter().find(|link| link.index == route.link) else {
            return Ok(None);
        };
        let Some(ours) = link.ethernet.filter(|_| link.is_running()) else { return Ok(None) };
        let next = route.gateway.unwrap_or(to);
        let Some(neighbour) = netlink.neighbour(link.index, next)? else { return Ok(None) };
        let Ok(hop_limit) = hop_limit(self.socket.as_fd(), to.is_ipv6()) else { return Ok(None) };
        let headers = headers(neighbour, ours, (source, to), hop_limit);
        Ok(Some(Way { link: link.index, mtu: link.mtu as usize, headers }))
    }
}

/// The headers of Ethernet and IP of packets between these addresses, see [`Way`].
fn headers(
    neighbour: [u8; 6],
    ours: [u8; 6],
    (source, to): (IpAddr, IpAddr),
    hop_limit: u8,
) -> Vec<u8> {
    const DO_NOT_FRAGMENT: u8 = 0x40;
    let mut headers = [neighbour, ours].concat();
    match (source, to) {
        (IpAddr::V4(source), IpAddr::V4(to)) => {
            headers.extend([0x08, 0x00]);
            headers.extend([0x45, 0, 0, 0, 0, 0, DO_NOT_FRAGMENT, 0, hop_limit, TCP, 0, 0]);
            headers.extend([source.octets(), to.octets()].concat());
        }
        (source, to) => {
            headers.extend([0x86, 0xdd]);
            headers.extend([0x60, 0, 0, 0, 0, 0, TCP, hop_limit]);
            let octets = |address: IpAddr| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            headers.extend([octets(source), octets(to)].concat());
        }
    }
    headers
}

/// Writes the headers of a super-packet of `count` segments with `size` bytes of payload, whose
/// first one has the `header`. Returns their length.
fn write_headers(
    bytes: &mut [u8; MAX_HEADERS],
    way: &Way,
    ecn: Ecn,
    (local, to): (SocketAddr, SocketAddr),
    header: &[u8],
    size: usize,
    count: usize,
) -> usize {
    let tcp = way.headers.len();
    let end = tcp + header.len();
    let short = |value: usize| u16::try_from(value).expect("no longer than an IP packet");
    let segmentation = Segmentation { kind: SegmentationKind::Tcp, size: short(size) };
    let checksum = PartialChecksum { start: short(tcp), offset: short(CHECKSUM.start) };
    let vnet = VnetHeader::super_packet(to.is_ipv6(), segmentation, short(end), checksum);
    bytes[..VNET_HEADER_LEN].copy_from_slice(&vnet.to_bytes());
    let packet = &mut bytes[VNET_HEADER_LEN..][..end];
    packet[..tcp].copy_from_slice(&way.headers);
    packet[tcp..].copy_from_slice(header);
    let segment_len = header.len() + size * count;
    begin_checksum(local, to, &mut packet[tcp..], segment_len);
    let ip = &mut packet[ETHERNET..tcp];
    if to.is_ipv4() {
        let len = short(ip.len() + segment_len);
        ip[1] |= ecn as u8;
        ip[2..4].copy_from_slice(&len.to_be_bytes());
        let mut sum = Sum::default();
        sum.add(ip);
        ip[10..12].copy_from_slice(&sum.checksum());
    } else {
        ip[1] |= (ecn as u8) << 4;
        ip[4..6].copy_from_slice(&short(segment_len).to_be_bytes());
    }
    VNET_HEADER_LEN + end
}
