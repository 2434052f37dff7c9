//! The sockets of one local address.

use core::ffi::c_void;
use core::mem::size_of;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use mpip_segments::segment::TCP;
use mpip_types::LocalId;

use super::packets::PacketSocket;
use crate::socket::BindError;
use crate::socket::SocketConfig;
use crate::socket::SocketKind;
use crate::socket::options::set_buffers;
use crate::socket::options::set_option;
use crate::socket::options::set_packet_options;

const KIND: SocketKind = SocketKind::Tcp;

/// Instructions of classic BPF (`linux/bpf_common.h`).
mod bpf {
    /// `X = 4 * (packet[k] & 0xf)`: the length of an IPv4 header.
    pub(super) const LOAD_HEADER_LEN: u16 = 0xb1;
    /// `A = packet[k]`, 16 bits.
    pub(super) const LOAD: u16 = 0x28;
    /// `A = packet[X + k]`, 16 bits.
    pub(super) const LOAD_INDEXED: u16 = 0x48;
    /// Skips `jt` instructions if A == k, else `jf`.
    pub(super) const JUMP_EQUAL: u16 = 0x15;
    /// Accepts k bytes.
    pub(super) const RETURN: u16 = 0x06;
}

/// A non-blocking raw socket for the segments of one local address and port, the listener that
/// keeps the kernel from answering them, and a packet socket for super-packets.
#[derive(Debug)]
pub struct TcpSocket {
    raw: OwnedFd,
    _listener: OwnedFd,
    /// `None` where the system allows none.
    packets: Option<PacketSocket>,
    config: SocketConfig,
}

impl TcpSocket {
    /// Opens the sockets. Needs `CAP_NET_RAW`, and for ports below 1024 usually
    /// `CAP_NET_BIND_SERVICE`. The port must not be 0.
    pub fn bind(config: &SocketConfig) -> Result<Self, BindError> {
        let address = config.address;
        let listener = config.open(KIND, libc::SOCK_STREAM, 0)?;
        let nothing = [instruction(bpf::RETURN, 0, 0, 0)];
        // Attached before it listens, or the kernel could answer a SYN in between.
        attach(listener.as_fd(), &nothing).map_err(config.error(KIND, "silence"))?;
        config.bind(KIND, listener.as_fd(), address)?;
        // SAFETY: takes two numbers.
        if unsafe { libc::listen(listener.as_raw_fd(), 1) } < 0 {
            return Err(config.error(KIND, "listen on")(io::Error::last_os_error()));
        }

        let raw = config.open(KIND, libc::SOCK_RAW, TCP.into())?;
        attach(raw.as_fd(), &to_port(address)).map_err(config.error(KIND, "filter"))?;
        set_buffers(raw.as_fd(), config.buffer)
            .map_err(config.error(KIND, "set the buffers of"))?;
        set_packet_options(raw.as_fd(), address.is_ipv6())
            .map_err(config.error(KIND, "set the IP options of"))?;
        // The port of a raw socket is a protocol, which it already has.
        config.bind(KIND, raw.as_fd(), SocketAddr::new(address.ip(), 0))?;
        if address.is_ipv6() {
            // Super-packets have none either, and routers may send each label by another way.
            set_option(raw.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_AUTOFLOWLABEL, 0)
                .map_err(config.error(KIND, "set the flow label of"))?;
        }
        let packets = PacketSocket::open(config)
            .inspect_err(|error| {
                log::info!("segments from {address} leave one by one: no packet socket ({error})");
            })
            .ok();
        Ok(Self { raw, _listener: listener, packets, config: config.clone() })
    }

    /// How the engine names the local address.
    pub fn id(&self) -> LocalId {
        self.config.id
    }

    /// The local address and port.
    pub fn address(&self) -> SocketAddr {
        self.config.address
    }

    /// Its settings.
    pub(super) fn config(&self) -> &SocketConfig {
        &self.config
    }

    /// What takes super-packets.
    pub(super) fn packets(&self) -> Option<&PacketSocket> {
        self.packets.as_ref()
    }
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.as_fd()
    }
}

fn instruction(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// A filter that accepts segments to the port of `local`. A raw socket gets the IP header with
/// IPv4, but not with IPv6 (ip(7), ipv6(7)).
fn to_port(local: SocketAddr) -> Vec<libc::sock_filter> {
    let mut program = match local {
        SocketAddr::V4(_) => vec![
            instruction(bpf::LOAD_HEADER_LEN, 0, 0, 0),
            instruction(bpf::LOAD_INDEXED, 2, 0, 0),
        ],
        SocketAddr::V6(_) => vec![instruction(bpf::LOAD, 2, 0, 0)],
    };
    program.extend([
        instruction(bpf::JUMP_EQUAL, local.port().into(), 0, 1),
        instruction(bpf::RETURN, u32::MAX, 0, 0),
        instruction(bpf::RETURN, 0, 0, 0),
    ]);
    program
}

fn attach(socket: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).expect("a few instructions"),
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel reads the structure and the instructions that it points to. Both are valid
    // for the given lengths until the call returns.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast::<c_void>(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
