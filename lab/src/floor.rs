//! The floor: a program that moves packets between a TUN device and a UDP socket and does nothing
//! else, for what the daemon's engine costs beside it. With `seals` it also seals and opens each
//! packet with the daemon's AEAD.
//!
//! It drives [`mpip_net`] as the daemon does, with the same batches and buffers: super-packets from
//! the TUN device (virtio-net header), their segments as datagrams of one message (`UDP_SEGMENT`),
//! what the kernel gathered of them (`UDP_GRO`), and joined segments back to the TUN device. The
//! lab runs it as the system `floor`.
//!
//! A datagram is 8 bytes, the packet, and with `seals` the tag:
//!
//! | bits | meaning |
//! |---|---|
//! | 1 | whether the packet's transport checksum is partial, as between the daemons |
//! | 63 | number of the datagram |
//!
//! The keys are constants and there is no handshake and no replay window: it protects nothing.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use mpip_crypto::{Aead, KEY_LEN, OpenKey, SealKey, TAG_LEN, cpu_has_aes};
use mpip_net::tun::ReadError;
use mpip_net::udp::{ReceiveBuffers, SocketConfig};
use mpip_net::{Interest, Poller, Tun, TunWriter, UdpSender, UdpSocket};
use mpip_types::packet::{HEAD_ROOM, Header, Segments, fold, protocol, sum};
use mpip_types::{
    Checksum, DatagramSink, InnerPacket, LocalId, PacketBuf, PacketPool, PacketSink, PathAddress,
};

/// MTU of the TUN device, in bytes: with IPv6, UDP, the header and the tag, 1,492 of 1,500 bytes.
pub(crate) const INNER_MTU: usize = 1_420;

/// Bytes before the packet.
const HEADER: usize = 8;
/// The header's bit of packets whose transport checksum is partial.
const PARTIAL: u64 = 1 << 63;
/// The keys by direction: from the lower address, from the higher one.
const KEYS: [[u8; KEY_LEN]; 2] = [[1; KEY_LEN], [2; KEY_LEN]];
/// The only socket.
const LOCAL: LocalId = LocalId(0);

// As in the daemon (`daemon/src/node.rs` and `local.rs`); a batch is as large for super-packets, of
// which 16 are 1 MiB.
const LARGE_BUFFERS: usize = 1024;
const SMALL_BUFFERS: usize = 4096;
const TUN_BATCH: usize = 16;
const RECEIVE_BATCH: usize = 16;
const SOCKET_BUFFER: usize = 6 << 20;

/// The sources of the poller.
const TUN: u64 = 0;
const SOCKET: u64 = 1;

/// What to move packets between.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The TUN device; it must be up for packets to pass.
    #[arg(long)]
    tun: String,
    /// Local address and port.
    #[arg(long)]
    local: SocketAddr,
    /// Address and port of the other program.
    #[arg(long)]
    remote: SocketAddr,
    /// Seals and opens each packet. Both programs must.
    #[arg(long)]
    seals: bool,
}

/// The keys of both directions.
struct Keys {
    seal: SealKey,
    open: OpenKey,
}

impl Keys {
    /// The keys of the end at `local`, which differ by direction so that no nonce repeats.
    fn between(local: SocketAddr, remote: SocketAddr) -> Self {
        let aead = Aead::preferred(cpu_has_aes());
        let own = usize::from(local > remote);
        Self { seal: SealKey::new(aead, &KEYS[own]), open: OpenKey::new(aead, &KEYS[1 - own]) }
    }
}

/// Turns packets into datagrams and back.
struct Framing {
    keys: Option<Keys>,
    /// Number of the next datagram.
    next: u64,
}

impl Framing {
    /// Bytes of a datagram besides the packet.
    fn overhead(&self) -> usize {
        HEADER + if self.keys.is_some() { TAG_LEN } else { 0 }
    }

    /// Writes segment `index` of `segments`, whose packet has the headers `ip`, as a datagram that
    /// fills `out`.
    fn write(&mut self, segments: &Segments, ip: &Header, index: usize, out: &mut [u8]) {
        let end = HEADER + segments.segment_len(index);
        let partial = write_partial(segments, ip, index, &mut out[HEADER..end]);
        if !partial {
            segments.write(index, &mut out[HEADER..end]);
        }
        let number = self.next | if partial { PARTIAL } else { 0 };
        self.next += 1;
        let header = number.to_be_bytes();
        out[..HEADER].copy_from_slice(&header);
        if let Some(keys) = &self.keys {
            let tag = keys.seal.seal_in_place(0, number, &header, &mut out[HEADER..end]);
            out[end..].copy_from_slice(&tag);
        }
    }

    /// The packet in a datagram; `None` if it is too short or not authentic.
    fn read<'a>(&self, datagram: &'a mut [u8]) -> Option<InnerPacket<'a>> {
        let (header, body) = datagram.split_first_chunk_mut::<HEADER>()?;
        let number = u64::from_be_bytes(*header);
        let head = match &self.keys {
            Some(keys) => keys.open.open_in_place(0, number, header, body).ok()?,
            None => body,
        };
        let partial = number & PARTIAL != 0;
        let checksum = if partial { Checksum::Partial } else { Checksum::Complete };
        Some(InnerPacket { head, tail: &[], checksum })
    }
}

/// Writes segment `index` to `out` with the sum of its pseudo-header instead of its checksum.
/// `false`, and `out` is unspecified, if the checksum has to stay or be computed.
fn write_partial(segments: &Segments, ip: &Header, index: usize, out: &mut [u8]) -> bool {
    let field = match ip.protocol {
        protocol::TCP => 16,
        protocol::UDP => 6,
        _ => return false,
    };
    if ip.fragment || segments.has_foreign_checksum() {
        return false;
    }
    let mut head = [0; HEAD_ROOM];
    let (written, rest) = segments.write_head(index, &mut head);
    let rest = rest.bytes();
    let field = ip.header_len + field;
    if written + rest.len() != out.len() || written < field + 2 {
        return false;
    }
    let mut pseudo = [0; 40];
    let addresses = match ip.source.is_ipv4() {
        true => &head[12..20],
        false => &head[8..40],
    };
    pseudo[..addresses.len()].copy_from_slice(addresses);
    let numbers = [u16::from(ip.protocol), (out.len() - ip.header_len) as u16];
    let numbers = numbers.map(u16::to_be_bytes);
    let value = fold(sum(&pseudo) + sum(numbers.as_flattened()));
    head[field..field + 2].copy_from_slice(&value.to_ne_bytes());
    out[..written].copy_from_slice(&head[..written]);
    out[written..].copy_from_slice(rest);
    true
}

/// Moves packets until the process is ended or the TUN device is lost.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    let tun = Arc::new(Tun::open(&options.tun).map_err(io::Error::other)?);
    let config = SocketConfig {
        id: LOCAL,
        interface: None,
        address: options.local,
        mark: 0,
        buffer: SOCKET_BUFFER,
    };
    let socket = Arc::new(UdpSocket::bind(&config).map_err(io::Error::other)?);
    let poller = Poller::new()?;
    poller.add(&*tun, TUN, Interest::Readable)?;
    poller.add(&*socket, SOCKET, Interest::Readable)?;
    let mut sender = UdpSender::new();
    sender.insert(Arc::clone(&socket));
    let mut writer = TunWriter::new(Arc::clone(&tun));
    let mut pool = PacketPool::new(LARGE_BUFFERS, SMALL_BUFFERS);
    let mut buffers = ReceiveBuffers::new(RECEIVE_BATCH);
    let keys = options.seals.then(|| Keys::between(options.local, options.remote));
    let mut framing = Framing { keys, next: 0 };
    let to = PathAddress { local: LOCAL, remote: options.remote };
    let mut ready = Vec::new();
    let mut blocked = false;
    loop {
        poller.wait(&mut ready, None)?;
        for source in &ready {
            if source.token == TUN {
                read_tun(&tun, &mut pool, &mut framing, to, &mut sender)?;
                continue;
            }
            if source.failed {
                // The other program does not run yet, or no longer.
                socket.recv_errors(|_| {});
            }
            if source.readable {
                socket.recv_batch(&mut buffers, |_, _, datagram| {
                    if let Some(packet) = framing.read(datagram) {
                        writer.packet(packet);
                    }
                })?;
            }
            if source.writable {
                sender.writable(LOCAL);
            }
        }
        sender.flush();
        writer.flush();
        // While the socket takes no more, packets wait in the TUN device's queue.
        if sender.is_blocked(LOCAL) != blocked {
            blocked = !blocked;
            let (from_tun, from_socket) = if blocked {
                (Interest::Nothing, Interest::ReadableWritable)
            } else {
                (Interest::Readable, Interest::Readable)
            };
            poller.modify(&*tun, TUN, from_tun)?;
            poller.modify(&*socket, SOCKET, from_socket)?;
        }
    }
}

/// Sends a batch of what the host sends.
fn read_tun(
    tun: &Tun,
    pool: &mut PacketPool,
    framing: &mut Framing,
    to: PathAddress,
    sender: &mut UdpSender,
) -> io::Result<()> {
    for _ in 0..TUN_BATCH {
        match tun.read(pool) {
            Ok(Some(packet)) => send(packet, framing, to, sender),
            // No packet keeps its buffer beyond `send`, so there is always one.
            Ok(None) | Err(ReadError::NoBuffer) => break,
            Err(ReadError::Frame(_)) => {}
            Err(ReadError::Device(error)) => return Err(error),
        }
    }
    Ok(())
}

/// Sends the segments of `packet`, as far as the socket takes them; nothing if it is not of IP.
fn send(packet: PacketBuf, framing: &mut Framing, to: PathAddress, sender: &mut impl DatagramSink) {
    let Ok(ip) = Header::parse(packet.bytes()) else { return };
    let Ok(segments) = Segments::new(packet, &ip) else { return };
    for index in 0..segments.count() {
        let len = segments.segment_len(index) + framing.overhead();
        let Some(mut slot) = sender.reserve(to, ip.ecn, len) else { return };
        framing.write(&segments, &ip, index, slot.bytes());
        slot.commit();
    }
}

#[cfg(test)]
mod tests {
    use mpip_types::{Ecn, Offload, PartialChecksum, Segmentation, SegmentationKind, Slot};

    use super::*;

    const HERE: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 1, 1)), 6183);
    const THERE: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 1, 2)), 6183);

    #[derive(Default)]
    struct Sent(Vec<Vec<u8>>, bool);

    impl DatagramSink for Sent {
        fn reserve(&mut self, _: PathAddress, _: Ecn, len: usize) -> Option<Slot<'_>> {
            self.0.push(vec![0; len]);
            Some(Slot::new(self.0.last_mut()?, &mut self.1))
        }
    }

    fn framing(local: SocketAddr, remote: SocketAddr, seals: bool) -> Framing {
        Framing { keys: seals.then(|| Keys::between(local, remote)), next: 0 }
    }

    /// A packet of TCP over IPv4 with `payload` bytes, whose checksum field is zero.
    fn packet(payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 40 + payload];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(40 + payload as u16).to_be_bytes());
        packet[8..10].copy_from_slice(&[64, protocol::TCP]);
        packet[12..20].copy_from_slice(&[10, 78, 0, 1, 10, 78, 0, 2]);
        packet[32..34].copy_from_slice(&[0x50, 0x10]);
        packet
    }

    fn sent(framing: &mut Framing, bytes: &[u8], offload: Offload) -> Vec<Vec<u8>> {
        let mut pool = PacketPool::new(1, 1);
        let fill = |buffer: &mut [u8]| -> Result<_, ()> {
            buffer[..bytes.len()].copy_from_slice(bytes);
            Ok((bytes.len(), offload))
        };
        let packet = pool.fill(fill).expect("a buffer").expect("filled");
        let mut out = Sent::default();
        send(packet, framing, PathAddress { local: LOCAL, remote: THERE }, &mut out);
        out.0
    }

    /// What the kernel hands over of a TCP transfer with segments of 1,000 bytes.
    fn super_packet() -> (Vec<u8>, Offload) {
        let partial_checksum = Some(PartialChecksum { start: 20, offset: 16 });
        let segmentation = Some(Segmentation { kind: SegmentationKind::Tcp, size: 1_000 });
        (packet(2_500), Offload { partial_checksum, segmentation })
    }

    #[test]
    fn segments_of_a_super_packet_arrive_with_the_sum_of_their_pseudo_header() {
        for seals in [false, true] {
            let (bytes, offload) = super_packet();
            let mut here = framing(HERE, THERE, seals);
            let there = framing(THERE, HERE, seals);
            let mut datagrams = sent(&mut here, &bytes, offload);
            assert_eq!(datagrams.len(), 3);
            for (datagram, payload) in datagrams.iter_mut().zip([1_000_u16, 1_000, 500]) {
                assert_eq!(datagram.len(), usize::from(payload) + 40 + here.overhead());
                let packet = there.read(datagram).expect("framed alike");
                assert_eq!(packet.checksum, Checksum::Partial);
                let length = (payload + 20).to_be_bytes();
                let pseudo = [10, 78, 0, 1, 10, 78, 0, 2, 0, protocol::TCP, length[0], length[1]];
                assert_eq!(packet.head[36..38], fold(sum(&pseudo)).to_ne_bytes());
            }
        }
    }

    #[test]
    fn a_packet_with_a_complete_checksum_arrives_as_it_was() {
        let mut bytes = packet(100);
        bytes[36..38].copy_from_slice(&[0xab, 0xcd]);
        for seals in [false, true] {
            let mut datagrams = sent(&mut framing(HERE, THERE, seals), &bytes, Offload::default());
            let there = framing(THERE, HERE, seals);
            let packet = there.read(&mut datagrams[0]).expect("framed alike");
            assert_eq!((packet.head, packet.checksum), (&bytes[..], Checksum::Complete));
        }
    }

    #[test]
    fn what_is_too_short_or_was_changed_is_not_a_packet() {
        assert!(framing(HERE, THERE, false).read(&mut [0; HEADER - 1]).is_none());
        let there = framing(THERE, HERE, true);
        assert!(there.read(&mut [0; HEADER + TAG_LEN - 1]).is_none());
        let sealed = sent(&mut framing(HERE, THERE, true), &packet(10), Offload::default());
        for at in 0..sealed[0].len() {
            let mut changed = sealed[0].clone();
            changed[at] ^= 1;
            assert!(there.read(&mut changed).is_none(), "byte {at}");
        }
    }

    #[test]
    fn each_direction_has_its_own_key() {
        let mut sealed = sent(&mut framing(HERE, THERE, true), &packet(10), Offload::default());
        assert!(framing(HERE, THERE, true).read(&mut sealed[0]).is_none());
    }

    #[test]
    fn what_is_not_of_ip_is_not_sent() {
        let none = sent(&mut framing(HERE, THERE, false), &[0; 40], Offload::default());
        assert!(none.is_empty());
    }
}
