//! Control messages beside datagrams: segment size, traffic class and source address.

use core::ffi::c_int;
use core::mem::size_of;
use core::net::IpAddr;

use mpip_types::Ecn;

/// Room for the control messages of one message.
pub(crate) const CONTROL_LEN: usize = 64;

// Two messages of up to four bytes of data each, padded.
const _: () = assert!(CONTROL_LEN >= 2 * (size_of::<libc::cmsghdr>() + 8));
// Or one with a source address.
const _: () = assert!(CONTROL_LEN >= size_of::<libc::cmsghdr>() + 24);

/// A buffer for control messages, aligned for them.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control {
    bytes: [u8; CONTROL_LEN],
    len: usize,
}

impl Control {
    pub(crate) const EMPTY: Self = Self { bytes: [0; CONTROL_LEN], len: 0 };

    /// Adds a message with `data`.
    fn push(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        let header_len = size_of::<libc::cmsghdr>();
        let len = header_len + data.len();
        let mut header = [0; size_of::<libc::cmsghdr>()];
        header[..size_of::<usize>()].copy_from_slice(&len.to_ne_bytes());
        let (level_at, kind_at) = (
            core::mem::offset_of!(libc::cmsghdr, cmsg_level),
            core::mem::offset_of!(libc::cmsghdr, cmsg_type),
        );
        header[level_at..level_at + 4].copy_from_slice(&level.to_ne_bytes());
        header[kind_at..kind_at + 4].copy_from_slice(&kind.to_ne_bytes());
        let room = &mut self.bytes[self.len..];
        room[..header_len].copy_from_slice(&header);
        room[header_len..len].copy_from_slice(data);
        self.len += len.next_multiple_of(size_of::<usize>());
    }

    /// Asks the kernel to split the message into datagrams of `size` bytes.
    pub(crate) fn push_segment_size(&mut self, size: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
    }

    /// Sets the ECN field of the IP headers.
    pub(crate) fn push_ecn(&mut self, ecn: Ecn, v6: bool) {
        let (level, kind) = if v6 {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
        } else {
            (libc::IPPROTO_IP, libc::IP_TOS)
        };
        self.push(level, kind, &c_int::from(ecn as u8).to_ne_bytes());
    }

    /// Chooses the route of a packet as one from `source`, which is an address of this host.
    pub(crate) fn push_source(&mut self, source: IpAddr) {
        match source {
            // Interface 0, the source, and an address that only counts on receipt (ip(7)).
            IpAddr::V4(v4) => {
                let mut info = [0; size_of::<libc::in_pktinfo>()];
                info[4..8].copy_from_slice(&v4.octets());
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            // The source, and interface 0 (ipv6(7)).
            IpAddr::V6(v6) => {
                let mut info = [0; size_of::<libc::in6_pktinfo>()];
                info[..16].copy_from_slice(&v6.octets());
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }

    /// Points `header` at the messages.
    pub(crate) fn attach(&mut self, header: &mut libc::msghdr) {
        header.msg_control =
            if self.len == 0 { core::ptr::null_mut() } else { self.bytes.as_mut_ptr().cast() };
        header.msg_controllen = self.len as _;
    }

    /// Points `header` at the whole buffer, for the kernel to fill.
    pub(crate) fn offer(&mut self, header: &mut libc::msghdr) {
        header.msg_control = self.bytes.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_LEN as _;
    }

    /// What the kernel wrote, `len` bytes of it: the segment size, if there is more than one
    /// datagram, and the ECN field.
    pub(crate) fn received(&self, len: usize) -> (Option<u16>, Ecn) {
        let (mut size, mut ecn) = (None, Ecn::NotEct);
        let mut rest = &self.bytes[..len.min(CONTROL_LEN)];
        let header_len = size_of::<libc::cmsghdr>();
        while let Some((header, _)) = rest.split_at_checked(header_len) {
            let number = |at: usize| {
                c_int::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
            };
            let mut word = [0; size_of::<usize>()];
            word.copy_from_slice(&header[..size_of::<usize>()]);
            let message_len = usize::from_ne_bytes(word);
            let Some(data) = rest.get(header_len..message_len) else { break };
            let level = number(core::mem::offset_of!(libc::cmsghdr, cmsg_level));
            let kind = number(core::mem::offset_of!(libc::cmsghdr, cmsg_type));
            let value = data.first_chunk().map(|bytes| c_int::from_ne_bytes(*bytes));
            match (level, kind, value) {
                (libc::SOL_UDP, libc::UDP_GRO, Some(value)) => size = u16::try_from(value).ok(),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, Some(value)) => {
                    ecn = Ecn::from_bits(value.to_ne_bytes()[low_byte()]);
                }
                // One byte, unlike when it is sent.
                (libc::IPPROTO_IP, libc::IP_TOS, _) => {
                    ecn = data.first().map_or(ecn, |tos| Ecn::from_bits(*tos));
                }
                _ => {}
            }
            rest = rest.get(message_len.next_multiple_of(size_of::<usize>())..).unwrap_or(&[]);
        }
        (size.filter(|size| *size > 0), ecn)
    }
}

/// Where the low byte of a number is.
const fn low_byte() -> usize {
    if cfg!(target_endian = "little") { 0 } else { size_of::<c_int>() - 1 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_messages_fit_and_are_found_again() {
        for v6 in [false, true] {
            let mut control = Control::EMPTY;
            control.push(libc::SOL_UDP, libc::UDP_GRO, &1_400_i32.to_ne_bytes());
            control.push_ecn(Ecn::Ce, v6);
            if v6 || cfg!(target_endian = "little") {
                assert_eq!(control.received(control.len), (Some(1_400), Ecn::Ce));
            }
        }
        let mut control = Control::EMPTY;
        control.push_segment_size(1_400);
        control.push_ecn(Ecn::Ect0, false);
        assert!(control.len <= CONTROL_LEN);
    }

    proptest! {
        #[test]
        fn nothing_that_is_received_can_break_the_reader(
            bytes: [[u8; 32]; 2],
            len in 0_usize..100,
        ) {
            let mut control = Control::EMPTY;
            control.bytes[..32].copy_from_slice(&bytes[0]);
            control.bytes[32..].copy_from_slice(&bytes[1]);
            let (size, _) = control.received(len);
            prop_assert_ne!(size, Some(0));
        }
    }
}
