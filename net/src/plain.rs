//! Whole IP packets that leave as they are, past the routes to the TUN device.

use core::ffi::c_int;
use core::mem::zeroed;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use mpip_types::packet::Header;
use mpip_types::{InnerPacket, LocalId, PacketSink};

use crate::socket::address::RawAddress;
use crate::socket::cmsg::Control;
use crate::socket::options::set_buffers;
use crate::socket::{BindError, SocketConfig, SocketKind};

const KIND: SocketKind = SocketKind::RawIp;
/// Bytes that may wait in the kernel: more than the engine gives back at a time.
const BUFFER: usize = 4 << 20;

/// Sends packets of this host by its own routes. They have a mark, by which a routing rule can tell
/// them from others.
#[derive(Debug, Default)]
pub struct PlainSender {
    v4: Option<OwnedFd>,
    v6: Option<OwnedFd>,
    refused: u64,
}

impl PlainSender {
    /// A sender of packets with `mark`; needs `CAP_NET_RAW`, now and not later. A host without IPv6
    /// sends none of it.
    pub fn open(mark: u32) -> Result<Self, BindError> {
        let open = |ip: IpAddr| {
            let config = SocketConfig {
                id: LocalId(0),
                interface: None,
                address: SocketAddr::new(ip, 0),
                mark,
                buffer: BUFFER,
            };
            // The header is the sender's (raw(7), ipv6(7)).
            let socket = config.open(KIND, libc::SOCK_RAW, libc::IPPROTO_RAW)?;
            set_buffers(socket.as_fd(), config.buffer)
                .map_err(config.error(KIND, "set the buffers of"))?;
            Ok(socket)
        };
        let v4 = Some(open(Ipv4Addr::UNSPECIFIED.into())?);
        Ok(Self { v4, v6: open(Ipv6Addr::UNSPECIFIED.into()).ok(), refused: 0 })
    }

    /// Whether it can send.
    pub fn is_open(&self) -> bool {
        self.v4.is_some()
    }

    /// Packets that the kernel did not take, or for which there is no socket; dropped.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn send(&self, packet: &InnerPacket<'_>) -> io::Result<()> {
        let header = Header::parse(packet.head);
        let header = header.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let socket = if header.destination.is_ipv4() { &self.v4 } else { &self.v6 };
        let socket = socket.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let mut to = RawAddress::from(SocketAddr::new(header.destination, 0));
        let mut control = Control::EMPTY;
        // Rules that look at the source address decide as for the host's own packets.
        control.push_source(header.source);
        let mut vectors = [packet.head, packet.tail].map(|bytes| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        });
        // SAFETY: plain data, for which zero is valid.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_name = to.as_mut_ptr().cast();
        message.msg_namelen = to.len();
        message.msg_iov = vectors.as_mut_ptr();
        message.msg_iovlen = vectors.len() as _;
        control.attach(&mut message);
        let flags: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the header points at data that is valid for the lengths given and outlives the
        // call; the kernel only reads it.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl PacketSink for PlainSender {
    fn packet(&mut self, packet: InnerPacket<'_>) {
        if let Err(error) = self.send(&packet) {
            log::trace!("a packet that goes on as plain IP was dropped: {error}");
            self.refused += 1;
        }
    }
}
