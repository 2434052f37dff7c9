//! TCP connections through one interface, whatever the routes say: inner connections of the node
//! itself.

use core::time::Duration;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::socket;
use crate::socket::address::RawAddress;
use crate::socket::options::{set_option, set_option_bytes};

/// Most connections that wait to be accepted.
const BACKLOG: i32 = 8;

/// Listens on `port` for what arrives by `interface`, by IPv6 and IPv4, or by IPv4 alone where the
/// host has no IPv6.
pub fn listen(interface: &str, port: u16) -> io::Result<TcpListener> {
    let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let one = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    listen_at(interface, both).or_else(|_| listen_at(interface, one))
}

fn listen_at(interface: &str, address: SocketAddr) -> io::Result<TcpListener> {
    let fd = open(interface, address.is_ipv6())?;
    // A listener follows at once on one that ended.
    set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    if address.is_ipv6() {
        set_option(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
    }
    let raw = RawAddress::from(address);
    // SAFETY: the pointer is valid for the length that is given.
    check(unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr(), raw.len()) })?;
    // SAFETY: takes two numbers.
    check(unsafe { libc::listen(fd.as_raw_fd(), BACKLOG) })?;
    Ok(TcpListener::from(fd))
}

/// Connects to `to` through `interface`, within `limit`.
pub fn connect(interface: &str, to: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let fd = open(interface, to.is_ipv6())?;
    let timeout = libc::timeval {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_usec: limit.subsec_micros().into(),
    };
    let mut bytes = [0; size_of::<libc::timeval>()];
    bytes[..8].copy_from_slice(&timeout.tv_sec.to_ne_bytes());
    bytes[8..].copy_from_slice(&timeout.tv_usec.to_ne_bytes());
    // It bounds connect(2), too (socket(7)).
    set_option_bytes(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDTIMEO, &bytes)?;
    let raw = RawAddress::from(to);
    // SAFETY: the pointer is valid for the length that is given.
    let connected = check(unsafe { libc::connect(fd.as_raw_fd(), raw.as_ptr(), raw.len()) });
    connected.map_err(|error| match error.raw_os_error() {
        Some(libc::EINPROGRESS) => io::ErrorKind::TimedOut.into(),
        _ => error,
    })?;
    Ok(TcpStream::from(fd))
}

/// Has the connection end at once when it is closed: what was not sent yet is thrown away.
pub fn end_at_once(stream: &TcpStream) -> io::Result<()> {
    let mut bytes = [0; size_of::<libc::linger>()];
    bytes[..size_of::<i32>()].copy_from_slice(&1_i32.to_ne_bytes());
    let fd: BorrowedFd<'_> = stream.as_fd();
    set_option_bytes(fd, libc::SOL_SOCKET, libc::SO_LINGER, &bytes)
}

fn open(interface: &str, ipv6: bool) -> io::Result<OwnedFd> {
    let family = if ipv6 { libc::AF_INET6 } else { libc::AF_INET };
    let fd = socket::open(family, libc::SOCK_STREAM, 0)?;
    let option = libc::SO_BINDTODEVICE;
    set_option_bytes(fd.as_fd(), libc::SOL_SOCKET, option, interface.as_bytes())?;
    Ok(fd)
}

fn check(status: i32) -> io::Result<()> {
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_connection_through_an_interface_carries_bytes_both_ways() {
        let listener = listen("lo", 0).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut near = connect("lo", to, Duration::from_secs(5)).expect("it listens");
        let (mut far, _) = listener.accept().expect("a connection");
        near.write_all(b"ping").expect("sent");
        let mut bytes = [0; 4];
        far.read_exact(&mut bytes).expect("received");
        assert_eq!(&bytes, b"ping");
        end_at_once(&far).expect("an option");
        far.write_all(b"pong").expect("sent");
        drop(far);
        drop(listener);
        let refused = connect("lo", to, Duration::from_secs(5)).expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn an_interface_that_does_not_exist_is_an_error() {
        assert!(listen("mpip-none", 0).is_err());
    }
}
