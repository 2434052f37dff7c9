//! State of a hostile node, and drafts of its frames.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::VecDeque;

use mpip_core::{DEFAULT_PORT, PathAddress};
use mpip_crypto::{Initiator, Keys};
use mpip_wire::{AddressList, Frame};

use crate::packet::Shape;
use crate::rng::Rng;
use crate::spec::{WorldSpec, inner_address};

/// Own sessions that it continues, and sessions of its peer that it keeps.
pub(super) const SESSIONS: u64 = 8;
/// Longest plaintext, bytes.
pub(super) const PLAINTEXT: usize = 1_350;
/// Key epochs kept, as at its peer.
pub(super) const EPOCHS: usize = 3;
/// The network of bystanders.
const BYSTANDERS: u8 = 240;

/// Whether `ip` is an address of bystanders: packets sent there get no answer and no error.
pub(crate) fn is_bystander(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [198, 18, BYSTANDERS],
        IpAddr::V6(ip) => ip.segments()[..3] == [0x2001, 0xdb8, u16::from(BYSTANDERS)],
    }
}

/// A bystander's address and port, for address lists and as a source.
pub(super) fn bystander(number: u64, v6: bool) -> SocketAddr {
    let host = 1 + (number % 250) as u8;
    let ip = match v6 {
        false => Ipv4Addr::new(198, 18, BYSTANDERS, host).into(),
        true => Ipv6Addr::new(0x2001, 0xdb8, BYSTANDERS.into(), 0, 0, 0, 0, host.into()).into(),
    };
    SocketAddr::new(ip, 1 + (number >> 8) as u16 % 60_000)
}

/// The keys of one handshake.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) keys: Keys,
    pub(super) local_index: u32,
    pub(super) remote_index: u32,
}

/// State of a path.
#[derive(Clone, Debug)]
pub(super) struct PathState {
    pub(super) to: PathAddress,
    pub(super) next: u64,
    /// Received packet numbers, the latest last.
    pub(super) received: VecDeque<u64>,
    pub(super) largest: Option<u64>,
}

/// A pending handshake.
#[derive(Debug)]
pub(super) struct PendingHandshake {
    pub(super) initiator: Initiator,
}

/// Frames that are to be sent together.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) plain: Vec<u8>,
    /// No frame may follow.
    pub(super) closed: bool,
}

impl Draft {
    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty()
    }

    /// Adds a frame if it fits.
    pub(super) fn push(&mut self, frame: &Frame<'_>) -> bool {
        let (start, len) = (self.plain.len(), frame.encoded_len());
        if self.closed || start + len > PLAINTEXT {
            return false;
        }
        self.plain.resize(start + len, 0);
        let written = frame.emit(&mut self.plain[start..]);
        written.expect("the fields of the frame are in range");
        self.closed = matches!(frame, Frame::Packet { .. } | Frame::CompactPacket { .. });
        true
    }

    pub(super) fn push_addresses(&mut self, generation: u64, list: &[SocketAddr]) -> bool {
        let list = &list[..list.len().min(AddressList::MAX)];
        let list = AddressList::new(list).expect("no more than fit a frame");
        self.push(&Frame::Addresses { generation, list })
    }

    pub(super) fn push_raw(&mut self, bytes: &[u8]) -> bool {
        self.closed = true;
        self.plain.extend_from_slice(bytes);
        false
    }

    /// The plaintext, at least one byte.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        if self.plain.is_empty() {
            self.plain.push(0);
        }
        self.plain
    }
}

/// A session of this node.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: u32,
    pub(super) shape: Shape,
    pub(super) next: u32,
}

/// Addresses for lies.
#[derive(Debug)]
pub(super) struct Pools {
    /// Addresses of its own, of the peer, and of the other hosts; inner and outer.
    pub(super) own: Vec<IpAddr>,
    pub(super) target: Vec<IpAddr>,
    pub(super) others: Vec<IpAddr>,
}

impl Pools {
    pub(super) fn new(world: &WorldSpec, index: usize, target: usize) -> Self {
        let of = |host: usize| {
            let interfaces = world.interfaces.iter().filter(move |known| known.host == host);
            let outer = interfaces.flat_map(|known| known.addresses.iter().copied());
            outer.chain([false, true].map(|v6| inner_address(host, v6)))
        };
        let others = (0..world.hosts.len()).filter(|host| *host != index && *host != target);
        Self {
            own: of(index).collect(),
            target: of(target).collect(),
            others: others.flat_map(of).collect(),
        }
    }

    /// An address of this family: of a bystander or of another host of the world.
    pub(super) fn somebody(&self, rng: &mut Rng, v6: bool) -> SocketAddr {
        let others = || self.others.iter().filter(|ip| ip.is_ipv6() == v6);
        match others().nth(rng.below(2 * others().count() as u64) as usize) {
            Some(other) => SocketAddr::new(*other, rng.pick(&[1, 53, DEFAULT_PORT])),
            None => bystander(rng.word(), v6),
        }
    }

    /// An address to claim as its own.
    pub(super) fn claim(&self, rng: &mut Rng) -> SocketAddr {
        let port = rng.pick(&[DEFAULT_PORT, 0, 1, 53, 443, 65_535]);
        let v4 = |octets: [u8; 4]| SocketAddr::new(Ipv4Addr::from(octets).into(), port);
        let v6 = |segments: [u16; 8]| SocketAddr::new(Ipv6Addr::from(segments).into(), port);
        match rng.below(12) {
            0..=3 => bystander(rng.word(), false),
            4 => bystander(rng.word(), true),
            5 => SocketAddr::new(some(rng, &self.own), port),
            6 => SocketAddr::new(some(rng, &self.target), port),
            7 => self.somebody(rng, false),
            8 => v4(rng.pick(&[[10, 0, 0, 5], [192, 168, 1, 1], [172, 16, 9, 9], [100, 64, 0, 1]])),
            9 => {
                v4(rng.pick(&[[0; 4], [127, 0, 0, 1], [169, 254, 0, 1], [255; 4], [224, 0, 0, 1]]))
            }
            10 => v6([0xfd00, 0, 0, 0, 0, 0, 0, 1]),
            _ => v6(rng.pick(&[[0; 8], [0, 0, 0, 0, 0, 0, 0, 1], [0xfe80, 0, 0, 0, 0, 0, 0, 1]])),
        }
    }

    /// Ends of inner packets: mostly its own and its peer's.
    pub(super) fn ends(&self, rng: &mut Rng) -> (SocketAddr, SocketAddr) {
        let v6 = rng.chance(0.3);
        let family = |list: &[IpAddr]| -> Vec<IpAddr> {
            list.iter().copied().filter(|ip| ip.is_ipv6() == v6).collect()
        };
        let strange: &[IpAddr] = &[
            Ipv4Addr::new(198, 18, 240, 9).into(),
            Ipv4Addr::new(224, 0, 0, 251).into(),
            Ipv4Addr::BROADCAST.into(),
            Ipv4Addr::LOCALHOST.into(),
            Ipv6Addr::new(0x2001, 0xdb8, 240, 0, 0, 0, 0, 9).into(),
            Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb).into(),
            Ipv6Addr::LOCALHOST.into(),
        ];
        let [own, target, others, strange] =
            [&self.own, &self.target, &self.others, strange].map(family);
        let pick = |rng: &mut Rng, lists: [&[IpAddr]; 4]| {
            let list = lists[rng.pick(&[0, 0, 0, 0, 0, 1, 2, 3])];
            let list = if list.is_empty() { lists[3] } else { list };
            let port = rng.pick(&[0, 7, 80, 5_000, 10_000, 10_001, 20_000]);
            SocketAddr::new(some(rng, list), port)
        };
        let source = pick(rng, [&own, &target, &others, &strange]);
        let destination = pick(rng, [&target, &own, &others, &strange]);
        (source, destination)
    }
}

fn some(rng: &mut Rng, list: &[IpAddr]) -> IpAddr {
    let index = rng.below(list.len() as u64) as usize;
    list.get(index).copied().unwrap_or(Ipv4Addr::UNSPECIFIED.into())
}

/// Records a session of the peer.
pub(super) fn remember(theirs: &mut VecDeque<u32>, session: u32) {
    if !theirs.contains(&session) {
        if theirs.len() as u64 == SESSIONS {
            theirs.pop_front();
        }
        theirs.push_back(session);
    }
}
