//! Socket options.

use core::ffi::{c_int, c_void};
use core::mem::{size_of, size_of_val};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::address::RawAddress;

/// Sets an option that is a number.
pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    set_option_bytes(fd, level, name, &value.to_ne_bytes())
}

/// Sets an option of any type, given as its bytes.
pub(crate) fn set_option_bytes(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &[u8],
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of_val(value)).expect("options are short");
    // SAFETY: the pointer is valid for the length that is given.
    let status = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast::<c_void>(), len)
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The value of an option that is a number.
pub(crate) fn option(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the pointers are valid, and `len` says for how many bytes the first is.
    let status = unsafe {
        let value = (&raw mut value).cast::<c_void>();
        libc::getsockopt(fd.as_raw_fd(), level, name, value, &raw mut len)
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Gives the packets of the socket the mark `mark`; 0 is none.
pub(crate) fn set_mark(fd: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
    if mark == 0 {
        return Ok(());
    }
    set_option(fd, libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed())
}

/// Sets both buffers to `bytes`: beyond the system's limits if this process may, else up to them.
pub(crate) fn set_buffers(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    // The kernel doubles the value for its own overhead (socket(7)), and it must not overflow.
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX).min(c_int::MAX / 2);
    for (force, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if set_option(fd, libc::SOL_SOCKET, force, bytes).is_err() {
            set_option(fd, libc::SOL_SOCKET, plain, bytes)?;
        }
    }
    Ok(())
}

/// Sends no fragments, and receives the ECN field with each packet.
pub(crate) fn set_packet_options(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)
    } else {
        set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
        set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)
    }
}

/// How far packets of the socket travel: their TTL or hop limit.
pub(crate) fn hop_limit(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<u8> {
    let (level, name) = match ipv6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
        false => (libc::IPPROTO_IP, libc::IP_TTL),
    };
    u8::try_from(option(fd, level, name)?).map_err(io::Error::other)
}

/// The address that the socket is bound to.
pub(crate) fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let mut raw = RawAddress::default();
    let mut len = RawAddress::CAPACITY;
    // SAFETY: the pointers are valid, and `len` says for how many bytes the first is.
    let status = unsafe { libc::getsockname(fd.as_raw_fd(), raw.as_mut_ptr(), &raw mut len) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    raw.to_socket_address().ok_or_else(|| io::Error::other("the socket has no IP address"))
}
