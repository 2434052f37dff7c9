//! Receives many messages per system call.

use core::mem::zeroed;
use core::ptr;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use mpip_types::Ecn;

use super::address::RawAddress;
use super::cmsg::Control;

/// Length of each buffer, in bytes: the kernel gathers no more into one message.
const BUFFER_LEN: usize = 65_536;

/// Most messages per system call.
pub(crate) const MAX_BUFFERS: usize = 32;

/// Buffers for received messages, and the messages in them. Sockets share them, one after the
/// other.
#[derive(Debug)]
pub struct ReceiveBuffers {
    bytes: Box<[u8]>,
    /// The messages received last, in the order of arrival.
    messages: Vec<Place>,
    truncated: u64,
}

/// Where a message is, and what came with it.
#[derive(Clone, Copy, Debug)]
struct Place {
    buffer: usize,
    len: usize,
    remote: SocketAddr,
    ecn: Ecn,
    size: Option<u16>,
}

/// A received message.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    pub(crate) remote: SocketAddr,
    pub(crate) ecn: Ecn,
    /// Bytes of each of its datagrams but the last, if the kernel gathered several.
    size: Option<u16>,
    pub(crate) bytes: &'a mut [u8],
}

impl<'a> Message<'a> {
    /// Its datagrams.
    pub(crate) fn datagrams(self) -> impl Iterator<Item = &'a mut [u8]> {
        let size = self.size.map_or(self.bytes.len(), usize::from);
        self.bytes.chunks_mut(size.max(1))
    }
}

impl ReceiveBuffers {
    /// `count` buffers of 64 KiB, 1 to 32. Each takes one message: a datagram, or several that the
    /// kernel gathered.
    pub fn new(count: usize) -> Self {
        let count = count.clamp(1, MAX_BUFFERS);
        let messages = Vec::with_capacity(count);
        Self { bytes: vec![0; count * BUFFER_LEN].into(), messages, truncated: 0 }
    }

    /// Number of messages dropped because they were longer than a buffer or not from an IP address.
    pub fn truncated(&self) -> u64 {
        self.truncated
    }

    /// The messages received last, in the order of arrival.
    pub(crate) fn messages(&mut self) -> impl Iterator<Item = Message<'_>> {
        let mut chunks = self.bytes.chunks_exact_mut(BUFFER_LEN).enumerate();
        self.messages.iter().map(move |place| {
            let Place { remote, ecn, size, .. } = *place;
            let chunk = chunks.find(|(index, _)| *index == place.buffer);
            let (_, chunk) = chunk.expect("places are those of buffers, in order");
            Message { remote, ecn, size, bytes: &mut chunk[..place.len] }
        })
    }

    /// How many messages like those received last have `bytes` bytes: 1 to all buffers.
    pub(crate) fn messages_of(&self, bytes: usize) -> usize {
        let mean = self.len().checked_div(self.messages.len()).unwrap_or(0);
        bytes.checked_div(mean).unwrap_or(MAX_BUFFERS).clamp(1, MAX_BUFFERS)
    }

    /// Bytes of the messages received last.
    pub(crate) fn len(&self) -> usize {
        self.messages.iter().map(|place| place.len).sum()
    }
}

/// Receives the messages that have arrived, at most one per buffer and at most `limit`, in place of
/// those received before. Returns whether so many were there, so that more may be waiting.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffers: &mut ReceiveBuffers,
    limit: usize,
) -> io::Result<bool> {
    buffers.messages.clear();
    let mut addresses = [RawAddress::default(); MAX_BUFFERS];
    let mut controls = [Control::EMPTY; MAX_BUFFERS];
    // SAFETY: both are plain data, for which zero is valid.
    let mut vectors: [libc::iovec; MAX_BUFFERS] = unsafe { zeroed() };
    // SAFETY: as above.
    let mut messages: [libc::mmsghdr; MAX_BUFFERS] = unsafe { zeroed() };
    let count = (buffers.bytes.len() / BUFFER_LEN).min(limit);
    for (index, chunk) in buffers.bytes.chunks_exact_mut(BUFFER_LEN).take(count).enumerate() {
        vectors[index] = libc::iovec { iov_base: chunk.as_mut_ptr().cast(), iov_len: chunk.len() };
        let header = &mut messages[index].msg_hdr;
        header.msg_name = addresses[index].as_mut_ptr().cast();
        header.msg_namelen = RawAddress::CAPACITY;
        header.msg_iov = &raw mut vectors[index];
        header.msg_iovlen = 1;
        controls[index].offer(header);
    }
    // SAFETY: each of the `count` headers points at buffers that are valid for the lengths
    // given, are not moved before the call returns, and are used by nobody else.
    let received = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            u32::try_from(count).expect("32 at most"),
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
        )
    };
    let Ok(received) = usize::try_from(received) else {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
            _ => Err(error),
        };
    };
    for index in 0..received {
        let header = &messages[index].msg_hdr;
        let remote = addresses[index].to_socket_address();
        let whole = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0;
        let (Some(remote), true) = (remote, whole) else {
            buffers.truncated += 1;
            continue;
        };
        let (size, ecn) = controls[index].received(header.msg_controllen as usize);
        let len = usize::try_from(messages[index].msg_len).unwrap_or(0).min(BUFFER_LEN);
        buffers.messages.push(Place { buffer: index, len, remote, ecn, size });
    }
    Ok(received == count)
}
