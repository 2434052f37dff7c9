//! Notices of changes of links, addresses, routes and rules.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::{BUFFER, Messages, NetlinkError};

/// Size of the kernel's queue of notices, in bytes. An interface with many addresses that goes down
/// causes hundreds of notices.
const QUEUE: usize = 1 << 20;

/// The groups of notices to receive.
const GROUPS: [u32; 7] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_RULE,
];

/// What changed since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Whether links appeared, vanished or changed.
    pub links: bool,
    /// Whether addresses did.
    pub addresses: bool,
    /// Whether routes or routing rules did.
    pub routes: bool,
    /// Whether notices were lost, so that anything may have changed. Sets the other three as well.
    pub lost: bool,
}

impl Changes {
    /// Whether anything changed.
    pub fn any(self) -> bool {
        self.links || self.addresses || self.routes
    }
}

/// Reports that links, addresses or routes changed, but not how. List them again
/// ([`Netlink::links`](super::Netlink::links), [`Netlink::addresses`](super::Netlink::addresses)):
/// that is right also if notices were lost or combined.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Monitor {
    /// Starts to listen. List links and addresses afterwards, so that no change is missed.
    pub fn new() -> Result<Self, NetlinkError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.set_non_blocking(true)?;
            socket.set_rx_buf_sz(i32::try_from(QUEUE).expect("1 MiB"))?;
            socket.bind(&SocketAddr::new(0, 0))?;
            for group in GROUPS {
                socket.add_membership(group)?;
            }
            Ok(socket)
        };
        let socket =
            open().map_err(|error| NetlinkError::new("listen to changes of the network", error))?;
        Ok(Self { socket, buffer: Vec::with_capacity(BUFFER) })
    }

    /// Reads all notices that have arrived.
    pub fn read(&mut self) -> Result<Changes, NetlinkError> {
        let mut changes = Changes::default();
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changes),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    changes = Changes { links: true, addresses: true, routes: true, lost: true };
                    continue;
                }
                Err(error) => {
                    return Err(NetlinkError::new("read changes of the network", error));
                }
            }
            for message in Messages(&self.buffer) {
                match message.map(|message| message.payload) {
                    Ok(NetlinkPayload::InnerMessage(
                        RouteNetlinkMessage::NewLink(_) | RouteNetlinkMessage::DelLink(_),
                    )) => changes.links = true,
                    Ok(NetlinkPayload::InnerMessage(
                        RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_),
                    )) => changes.addresses = true,
                    Ok(NetlinkPayload::InnerMessage(
                        RouteNetlinkMessage::NewRoute(_)
                        | RouteNetlinkMessage::DelRoute(_)
                        | RouteNetlinkMessage::NewRule(_)
                        | RouteNetlinkMessage::DelRule(_),
                    )) => changes.routes = true,
                    Ok(_) => {}
                    // A notice that cannot be parsed still means a change.
                    Err(_) => changes = Changes { links: true, addresses: true, ..changes },
                }
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
