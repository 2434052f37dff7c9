//! Notices of changes of links, addresses, routes and rules.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkFlags;
use netlink_packet_route::rule::RuleAttribute;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::routes::{PROTOCOL, Route, read_route};
use super::rules::{RoutingRule, read_rule};
use super::{BUFFER, Messages, NetlinkError};

/// Size of the kernel's queue of notices, in bytes. An interface with many addresses that goes down
/// causes hundreds of notices.
const QUEUE: usize = 1 << 20;

/// Most messages that are read at a time. A routing daemon may change routes as fast as they are
/// read, and packets do not wait for the end of that.
const BATCH: usize = 256;

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

/// A change in detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A link appeared, changed or vanished.
    Link {
        /// The kernel's number.
        index: u32,
        /// Whether it was set up then; what it is now may be different.
        up: bool,
    },
    /// A route appeared, was replaced, or vanished. Those that vanish with their interface, or with
    /// their source address, are not always told.
    Route {
        /// The route. Of somebody else's, the interface is that of the first way only.
        route: Route,
        /// It is one of ours ([`ROUTE_PROTOCOL`](super::ROUTE_PROTOCOL)), whoever added it.
        own: bool,
        /// It vanished.
        gone: bool,
    },
    /// A rule did.
    Rule {
        /// The rule, if it is one of ours, whoever added it.
        own: Option<RoutingRule>,
        /// It vanished.
        gone: bool,
    },
}

impl Notice {
    fn of(message: &RouteNetlinkMessage) -> Option<Self> {
        use RouteNetlinkMessage::{DelLink, DelRoute, DelRule, NewLink, NewRoute, NewRule};
        match message {
            NewLink(link) => {
                let header = &link.header;
                Some(Self::Link { index: header.index, up: header.flags.contains(LinkFlags::Up) })
            }
            DelLink(link) => Some(Self::Link { index: link.header.index, up: false }),
            NewRoute(route) | DelRoute(route) => Some(Self::Route {
                route: read_route(route)?,
                own: route.header.protocol == PROTOCOL,
                gone: matches!(message, DelRoute(_)),
            }),
            NewRule(rule) | DelRule(rule) => {
                let own = rule.attributes.contains(&RuleAttribute::Protocol(PROTOCOL));
                let own = own.then(|| read_rule(rule));
                Some(Self::Rule { own, gone: matches!(message, DelRule(_)) })
            }
            _ => None,
        }
    }
}

/// What changed since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Whether links appeared, vanished or changed.
    pub links: bool,
    /// Whether addresses did.
    pub addresses: bool,
    /// Whether routes or routing rules did; the [`Notice`]s say which.
    pub routes: bool,
    /// Whether notices were lost, so that anything may have changed. Sets the other three as well.
    pub lost: bool,
}

impl Changes {
    /// Whether anything changed.
    pub fn any(self) -> bool {
        self.links || self.addresses || self.routes
    }

    fn add(&mut self, message: &RouteNetlinkMessage) {
        use RouteNetlinkMessage as Message;
        match message {
            Message::NewLink(_) | Message::DelLink(_) => self.links = true,
            Message::NewAddress(_) | Message::DelAddress(_) => self.addresses = true,
            Message::NewRoute(_)
            | Message::DelRoute(_)
            | Message::NewRule(_)
            | Message::DelRule(_) => self.routes = true,
            _ => {}
        }
    }
}

/// Reports that links, addresses or routes changed. List links and addresses again
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

    /// Reads the notices that have arrived, a batch at most; `take` gets those of links, routes and
    /// rules.
    pub fn read(&mut self, mut take: impl FnMut(Notice)) -> Result<Changes, NetlinkError> {
        let mut changes = Changes::default();
        for _ in 0..BATCH {
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
                    Ok(NetlinkPayload::InnerMessage(message)) => {
                        changes.add(&message);
                        if let Some(notice) = Notice::of(&message) {
                            take(notice);
                        }
                    }
                    Ok(_) => {}
                    // A notice that cannot be parsed still means a change.
                    Err(_) => changes = Changes { links: true, addresses: true, ..changes },
                }
            }
        }
        Ok(changes)
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
