//! Why a daemon does not start, or ends.

use std::fmt;
use std::io;

use mpip_net::netlink::NetlinkError;
use mpip_net::tun::OpenError;
use mpip_net::udp::BindError;

use crate::config::{Place, Settings};
use crate::control::ControlError;

/// Why a daemon does not start, or ends.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The process may not configure the network.
    NotPermitted,
    /// There is no control socket.
    Control(ControlError),
    /// The TUN device's name is taken.
    InterfaceInUse {
        /// Where the configuration names it.
        place: Place,
        /// The name.
        name: String,
        /// The reason.
        source: OpenError,
    },
    /// There is no TUN device.
    Tun(OpenError),
    /// The kernel refused an address, a route or a list.
    Netlink(NetlinkError),
    /// A route or rule cannot be set.
    Routes(String),
    /// The packet filter cannot be set, or forwarding not switched on.
    Firewall(String),
    /// Another program has the port.
    PortInUse {
        /// Where the configuration names it.
        place: Place,
        /// The port.
        port: u16,
        /// The socket that could not be opened.
        source: Box<BindError>,
    },
    /// There is no socket for a path.
    Bind(BindError),
    /// The TUN device was deleted, or failed.
    TunLost(io::Error),
    /// A system call failed that should not.
    System {
        /// The operation.
        operation: &'static str,
        /// The reason.
        source: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted => f.write_str(
                "expected the capability CAP_NET_ADMIN, which this process does not have: start \
                 it as root, or give the program the capability with \
                 `setcap cap_net_admin+ep mpipd`",
            ),
            Self::Control(error) => error.fmt(f),
            Self::InterfaceInUse { place, name, source } => {
                write!(
                    f,
                    "{place}: name: expected an unused interface name, found `{name}`: {source}"
                )
            }
            Self::Tun(error) => error.fmt(f),
            Self::Netlink(error) => error.fmt(f),
            Self::Routes(error) | Self::Firewall(error) => f.write_str(error),
            Self::PortInUse { place, port, source } => {
                let (key, protocol) =
                    if source.is_tcp() { ("tcp_port", "TCP") } else { ("listen_port", "UDP") };
                write!(f, "{place}: {key}: expected a free {protocol} port, found {port}: {source}")
            }
            Self::Bind(error) => error.fmt(f),
            Self::TunLost(source) => write!(f, "the TUN device is gone: {source}"),
            Self::System { operation, source } => write!(f, "cannot {operation}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotPermitted | Self::Routes(_) | Self::Firewall(_) => None,
            Self::Control(error) => Some(error),
            Self::InterfaceInUse { source, .. } | Self::Tun(source) => Some(source),
            Self::Netlink(error) => Some(error),
            Self::PortInUse { source, .. } => Some(source),
            Self::Bind(source) => Some(source),
            Self::TunLost(source) | Self::System { source, .. } => Some(source),
        }
    }
}

impl From<ControlError> for Error {
    fn from(error: ControlError) -> Self {
        Self::Control(error)
    }
}

impl Error {
    /// The error when the TUN device of `settings` cannot be opened.
    pub(crate) fn tun(settings: &Settings, source: OpenError) -> Self {
        match source {
            OpenError::Busy { .. } | OpenError::OtherInterface { .. } => Self::InterfaceInUse {
                place: settings.interface_place.clone(),
                name: settings.interface.clone(),
                source,
            },
            _ => Self::Tun(source),
        }
    }

    /// The error when no socket can be opened at `port`, which is set at `place`.
    pub(crate) fn bind(place: &Place, port: u16, source: BindError) -> Self {
        match source.io().kind() {
            io::ErrorKind::AddrInUse => {
                Self::PortInUse { place: place.clone(), port, source: source.into() }
            }
            _ => Self::Bind(source),
        }
    }
}

impl From<NetlinkError> for Error {
    fn from(error: NetlinkError) -> Self {
        Self::Netlink(error)
    }
}

/// Converts an error of `operation`.
pub(crate) fn system(operation: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::System { operation, source }
}
