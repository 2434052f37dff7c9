//! Being told when links or addresses change.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkFlags;
use netlink_packet_route::rule::RuleAttribute;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::configure::{PROTOCOL, read_route, read_rule};
use super::{BUFFER, Messages, NetlinkError, Route, RoutingRule};

/// Bytes of notices that may wait; an interface with many addresses going down sends hundreds.
const QUEUE: usize = 1 << 20;

/// What is told.
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

/// What changed since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Some link appeared, vanished or changed.
    pub links: bool,
    /// Some address did.
    pub addresses: bool,
    /// Some route or routing rule did; which, the [`Notice`]s tell.
    pub routes: bool,
    /// Notices were lost: anything may have changed. The other three are set as well.
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

/// Tells that links, addresses or routes changed; what links and addresses are now is to be listed
/// afresh ([`Netlink::links`](super::Netlink::links), [`Netlink::addresses`](super::Netlink::addresses)),
/// which is right also when notices were lost or joined.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Monitor {
    /// Begins to listen. List afterwards, so that no change is missed.
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

    /// Takes all notices that wait; `take` gets those of links, routes and rules.
    pub fn read(&mut self, mut take: impl FnMut(Notice)) -> Result<Changes, NetlinkError> {
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
                    Ok(NetlinkPayload::InnerMessage(message)) => {
                        changes.add(&message);
                        if let Some(notice) = Notice::of(&message) {
                            take(notice);
                        }
                    }
                    Ok(_) => {}
                    // A notice that cannot be read is a change nevertheless.
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
