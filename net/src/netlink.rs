//! The host's links, addresses, routes and rules (rtnetlink), its sockets (sock_diag), and what
//! treats the packets that it sends (nfnetlink, XFRM).
//!
//! This file has [`Netlink`], the connection that sends requests and reads answers. It waits for
//! nothing but the kernel's immediate answer. The other files add requests to it, by subject:
//! `inventory` (links and addresses), `device` (settings of a link), `routes`, `rules`, and
//! `lookup` (where a packet would go). [`Monitor`], [`ConnectedSockets`] and [`OutputRules`] have
//! sockets of their own.

mod device;
mod inventory;
mod lookup;
mod monitor;
mod output;
mod plain;
mod routes;
mod rules;
mod sockets;

use core::fmt;
use core::net::IpAddr;
use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

pub use inventory::{HostAddress, Link};
pub use lookup::Question;
pub use lookup::Way;
pub use monitor::Changes;
pub use monitor::Monitor;
pub use monitor::Notice;
pub use output::OutputRules;
pub use routes::DefaultRoute;
pub use routes::ROUTE_PROTOCOL;
pub use routes::Route;
pub use rules::RoutingRule;
pub use rules::RuleEntry;
pub use sockets::{ConnectedSockets, udp_ports};

/// Size of the buffer for answers, in bytes. The kernel sends at most 32 KiB at a time.
const BUFFER: usize = 64 << 10;

/// A request to the kernel failed.
#[derive(Debug)]
pub struct NetlinkError {
    operation: String,
    source: io::Error,
}

impl NetlinkError {
    fn new(operation: impl Into<String>, source: io::Error) -> Self {
        Self { operation: operation.into(), source }
    }

    /// The request, with the name of its object.
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// The operating system's error.
    pub fn io(&self) -> &io::Error {
        &self.source
    }

    fn is(&self, errno: i32) -> bool {
        self.source.raw_os_error() == Some(errno)
    }
}

impl fmt::Display for NetlinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.operation, self.source)
    }
}

impl core::error::Error for NetlinkError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// A connection to the kernel's network configuration, for requests.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
    requests: u64,
}

impl Netlink {
    /// Connects.
    pub fn new() -> Result<Self, NetlinkError> {
        let open = || {
            let socket = connect(NETLINK_ROUTE)?;
            // Makes the kernel obey the filters of dumps and explain its errors.
            let _ = socket.set_netlink_get_strict_chk(true);
            let _ = socket.set_ext_ack(true);
            Ok(socket)
        };
        let socket = open().map_err(|error| NetlinkError::new("open a netlink socket", error))?;
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(BUFFER), requests: 0 })
    }

    /// Requests so far, each of them one message to the kernel.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Sends a change. `flags` are added to those of every request.
    fn change(
        &mut self,
        operation: &str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<(), NetlinkError> {
        self.request(message, NLM_F_ACK | flags, |_| ())
            .map_err(|error| NetlinkError::new(operation, error))
    }

    /// Requests a list; `take` gets each entry.
    fn dump(
        &mut self,
        operation: &str,
        message: RouteNetlinkMessage,
        take: impl FnMut(RouteNetlinkMessage),
    ) -> Result<(), NetlinkError> {
        self.request(message, NLM_F_DUMP, take).map_err(|error| NetlinkError::new(operation, error))
    }

    fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        mut take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.requests += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        loop {
            receive(&self.socket, &mut self.buffer)?;
            for message in Messages(&self.buffer) {
                let Ok(message) = message else { continue };
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::Done(done) => return os_result(done.code),
                    NetlinkPayload::Error(error) => {
                        return os_result(error.code.map_or(0, std::num::NonZero::get));
                    }
                    NetlinkPayload::InnerMessage(inner) => take(inner),
                    _ => {}
                }
            }
        }
    }
}

/// A socket to the kernel for `protocol`.
fn connect(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Waits for the next part of an answer, and replaces the contents of `buffer` with it.
fn receive(socket: &Socket, buffer: &mut Vec<u8>) -> io::Result<()> {
    loop {
        buffer.clear();
        match socket.recv(buffer, 0) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The result for `code`, a negative error number or 0.
fn os_result(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) }
}

/// The messages in one datagram. One that cannot be parsed does not hide those after it.
struct Messages<'a>(&'a [u8]);

impl Iterator for Messages<'_> {
    type Item = Result<NetlinkMessage<RouteNetlinkMessage>, netlink_packet_core::DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        const HEADER: usize = 16;
        let len = u32::from_ne_bytes(*self.0.first_chunk()?) as usize;
        if len < HEADER || len > self.0.len() {
            return None;
        }
        let (message, _) = self.0.split_at(len);
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(NetlinkMessage::deserialize(message))
    }
}

/// Success also if the error is one of the `harmless` numbers.
fn unless(result: Result<(), NetlinkError>, harmless: &[i32]) -> Result<(), NetlinkError> {
    match result {
        Err(error) if harmless.iter().any(|errno| error.is(*errno)) => Ok(()),
        other => other,
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_operation_and_the_reason() {
        let error = NetlinkError::new("set mpip0 up", io::Error::from_raw_os_error(libc::EPERM));
        assert!(error.to_string().starts_with("cannot set mpip0 up: Operation not permitted"));
    }

    #[test]
    fn a_message_that_cannot_be_read_does_not_hide_the_next() {
        let mut link = NetlinkMessage::from(RouteNetlinkMessage::NewLink(Default::default()));
        link.finalize();
        let mut good = vec![0; link.buffer_len()];
        link.serialize(&mut good);
        let mut bytes = good.clone();
        // A link message that ends within its fixed part.
        bytes[0] = 20;
        bytes.truncate(20);
        bytes.extend(&good);
        let read: Vec<bool> = Messages(&bytes).map(|message| message.is_ok()).collect();
        assert_eq!(read, [false, true]);
        assert_eq!(Messages(&bytes[..19]).count(), 0);
        assert_eq!(Messages(&[]).count(), 0);
    }
}
