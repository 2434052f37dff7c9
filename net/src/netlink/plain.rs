//! Requests to the parts of the kernel that no crate has types for: bodies are bytes.

use std::io;

use netlink_sys::Socket;

use super::{BUFFER, connect, os_result, receive};

/// Size of the header of a message, in bytes.
const HEADER: usize = 16;

/// A connection for dumps.
#[derive(Debug)]
pub(super) struct PlainNetlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl PlainNetlink {
    /// Connects to the part of the kernel with this protocol of netlink(7).
    pub(super) fn open(protocol: isize) -> io::Result<Self> {
        let socket = connect(protocol)?;
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(BUFFER) })
    }

    /// Requests a list with a message of the type `kind`. `take` gets the body of each entry.
    pub(super) fn dump(
        &mut self,
        kind: u16,
        body: &[u8],
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&request(self.sequence, kind, body), 0)?;
        loop {
            receive(&self.socket, &mut self.buffer)?;
            let mut rest = &self.buffer[..];
            while let Some((kind, sequence, body, following)) = next_message(rest) {
                rest = following;
                if sequence != self.sequence {
                    continue;
                }
                match i32::from(kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => {
                        let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                        return os_result(code);
                    }
                    _ => take(body),
                }
            }
        }
    }
}

fn request(sequence: u32, kind: u16, body: &[u8]) -> Vec<u8> {
    let len = HEADER + body.len();
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let mut bytes = Vec::with_capacity(len);
    bytes.extend((len as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(body);
    bytes
}

/// Kind, sequence number and body of the first message in `bytes`, and the rest of `bytes`.
fn next_message(bytes: &[u8]) -> Option<(u16, u32, &[u8], &[u8])> {
    let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let body = bytes.get(HEADER..len)?;
    let kind = u16::from_ne_bytes([bytes[4], bytes[5]]);
    let sequence = u32::from_ne_bytes(bytes[8..12].try_into().expect("4 of 16 bytes"));
    Some((kind, sequence, body, bytes.get(len.next_multiple_of(4)..).unwrap_or(&[])))
}

/// The attributes in `bytes`: type and value of each. It ends at one that is cut off.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// Of the type, two bits say how the value is to be read (linux/netlink.h).
    const TYPE: u16 = 0x3fff;
    std::iter::from_fn(move || {
        let &[a, b, c, d] = bytes.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((u16::from_ne_bytes([c, d]) & TYPE, value))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_that_ends_early_is_none() {
        assert!(next_message(&[]).is_none());
        assert!(next_message(&[200, 0, 0, 0, 0, 0]).is_none());
        assert!(next_message(&[4; 16]).is_none());
    }

    #[test]
    fn attributes_are_read_with_their_padding() {
        let mut bytes = Vec::new();
        for (kind, value) in [(1_u16, &b"abc"[..]), (0x8002, b""), (3, b"12345")] {
            bytes.extend((4 + value.len() as u16).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let found: Vec<_> = attributes(&bytes).collect();
        assert_eq!(found, [(1, &b"abc"[..]), (2, b""), (3, b"12345")]);
        assert_eq!(attributes(&bytes[..bytes.len() - 4]).count(), 2);
    }

    proptest! {
        #[test]
        fn no_answer_breaks_the_parser(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            while let Some((_, _, _, following)) = next_message(rest) {
                prop_assert!(following.len() < rest.len());
                rest = following;
            }
            prop_assert!(attributes(&bytes).count() <= bytes.len() / 4);
        }
    }
}
