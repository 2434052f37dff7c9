//! Socket addresses as the kernel takes them.

use core::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An IPv4 or IPv6 socket address.
#[derive(Clone, Copy)]
pub(crate) union RawAddress {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Default for RawAddress {
    fn default() -> Self {
        // SAFETY: all variants are plain data, for which zero is valid.
        unsafe { zeroed() }
    }
}

impl RawAddress {
    /// Bytes of the longer kind.
    pub(crate) const CAPACITY: libc::socklen_t = size_of::<Self>() as libc::socklen_t;

    /// Whether it is of IPv6.
    pub(crate) fn is_ipv6(&self) -> bool {
        self.family() == libc::AF_INET6
    }

    fn family(&self) -> libc::c_int {
        // SAFETY: every variant begins with the family, and all bytes are initialised.
        unsafe { self.family }.into()
    }

    /// Bytes of the address.
    pub(crate) fn len(&self) -> libc::socklen_t {
        let len = if self.family() == libc::AF_INET6 {
            size_of::<libc::sockaddr_in6>()
        } else {
            size_of::<libc::sockaddr_in>()
        };
        libc::socklen_t::try_from(len).expect("28 at most")
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const *self).cast()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut *self).cast()
    }

    /// The address without flow label; `None` if it is of another family.
    pub(crate) fn to_socket_address(self) -> Option<SocketAddr> {
        match self.family() {
            libc::AF_INET => {
                // SAFETY: the family says that this variant was written.
                let raw = unsafe { self.v4 };
                let address = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(address, u16::from_be(raw.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: the family says that this variant was written.
                let raw = unsafe { self.v6 };
                let address = Ipv6Addr::from(raw.sin6_addr.s6_addr);
                let port = u16::from_be(raw.sin6_port);
                Some(SocketAddrV6::new(address, port, 0, raw.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        let mut raw = Self::default();
        match address {
            SocketAddr::V4(v4) => {
                raw.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
            }
            SocketAddr::V6(v6) => {
                raw.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
            }
        }
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_the_kernel_and_back() {
        for text in ["198.18.0.1:6182", "[2001:db8::1]:6182", "0.0.0.0:0", "[::]:65535"] {
            let address: SocketAddr = text.parse().expect("valid");
            let raw = RawAddress::from(address);
            assert_eq!(raw.to_socket_address(), Some(address));
            assert!(raw.len() <= RawAddress::CAPACITY);
        }
        assert_eq!(RawAddress::default().to_socket_address(), None);
    }
}
