//! Events for logs, metrics and tests: every change of state is one event.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use mpip_crypto::PublicKey;

use crate::capture::Traffic;
use crate::loss_standby::{LossFigures, Percent};
use mpip_transport::PathState;
use mpip_types::Prefix;

/// A change of state.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A handshake completed and the peer has confirmed the keys.
    Established {
        /// The peer's name.
        peer: String,
        /// The AEAD chosen.
        aead: &'static str,
    },
    /// The association ended: the peer closed it, or its keys expired without an answer.
    Lost {
        /// The peer's name.
        peer: String,
    },
    /// The peer restarted; its former paths and sessions are gone.
    PeerRestarted {
        /// The peer's name.
        peer: String,
    },
    /// A path was opened, changed its state or was abandoned.
    Path {
        /// The peer's name.
        peer: String,
        /// The path's number.
        path: u16,
        /// The local interface.
        interface: String,
        /// Our end.
        local: SocketAddr,
        /// The peer's end.
        remote: SocketAddr,
        /// The state before.
        from: PathState,
        /// The state from now on.
        to: PathState,
        /// Why.
        reason: &'static str,
        /// Its loss and the threshold, if that is why.
        loss: Option<LossFigures>,
    },
    /// A path carries no bulk traffic any more because the others carry more without it, or carries
    /// it again.
    LeftOut {
        /// The peer's name.
        peer: String,
        /// The path's number.
        path: u16,
        /// The local interface.
        interface: String,
        /// Whether it is left out from now on.
        left_out: bool,
        /// Throughput of the association with the path, bit/s; 0 where that was not measured.
        with: u64,
        /// The same without it.
        without: u64,
        /// Why.
        reason: &'static str,
    },
    /// A path's remote address changed, and the new one was validated.
    Rebound {
        /// The peer's name.
        peer: String,
        /// The path's number.
        path: u16,
        /// The address before.
        from: SocketAddr,
        /// The address from now on.
        to: SocketAddr,
    },
    /// Packets between this host and a peer in host mode travel in another way, or the capture
    /// changed.
    Traffic {
        /// The peer's name.
        peer: String,
        /// How they travelled.
        from: Traffic,
        /// How they travel from now on.
        to: Traffic,
        /// Destinations whose packets are captured.
        captured: Vec<Prefix>,
        /// NATs in front of the peer; packets to its connections there are captured.
        nats: Vec<IpAddr>,
        /// Why.
        reason: &'static str,
    },
    /// A single session of a peer in host mode is plain IP from now on, because nothing of it
    /// arrived by the paths, which work.
    PlainSession {
        /// The peer's name.
        peer: String,
        /// IP protocol number.
        protocol: u8,
        /// Source address and port.
        source: SocketAddr,
        /// Destination address and port.
        destination: SocketAddr,
    },
    /// The inner MTU changed: the TUN device's MTU must follow.
    InnerMtu {
        /// The peer's name.
        peer: String,
        /// Bytes.
        mtu: u16,
    },
    /// A handshake was not answered; the next attempt follows after `retry_in`.
    HandshakeTimeout {
        /// The peer's name.
        peer: String,
        /// Attempts so far.
        attempts: u32,
        /// Time to the next one.
        retry_in: Duration,
    },
    /// An unknown peer at an address proved to hold a key for the first time.
    /// [`Engine::poll_pin`](crate::Engine::poll_pin) gives what is to be stored.
    Pinned {
        /// The node's address.
        address: IpAddr,
        /// Its key.
        public_key: PublicKey,
        /// The expired key that was pinned there.
        former: Option<PublicKey>,
    },
    /// The node at an address presents another key than the pinned one: it is refused.
    KeyChanged {
        /// The node's address.
        address: IpAddr,
        /// The key that is pinned.
        pinned: PublicKey,
        /// The key that it presents now.
        found: PublicKey,
    },
    /// A handshake was refused.
    HandshakeRefused {
        /// Where it came from.
        from: SocketAddr,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Established { peer, aead } => {
                write!(f, "peer `{peer}`: association established ({aead})")
            }
            Self::Lost { peer } => write!(f, "peer `{peer}`: association lost"),
            Self::PeerRestarted { peer } => write!(f, "peer `{peer}`: restarted"),
            Self::Path { peer, path, interface, local, remote, from, to, reason, loss } => {
                write!(
                    f,
                    "peer `{peer}`: path {path} ({interface}, {local} to {remote}): \
                     {from} -> {to} ({reason}"
                )?;
                if let Some(LossFigures { loss, threshold, .. }) = loss {
                    let (loss, threshold) = (Percent(*loss), Percent(*threshold));
                    write!(f, ": {loss} lost, threshold {threshold}")?;
                }
                f.write_str(")")
            }
            Self::LeftOut { peer, path, interface, left_out, with, without, reason } => {
                let what = if *left_out { "left out" } else { "in use again" };
                write!(f, "peer `{peer}`: path {path} ({interface}) {what}: {reason}")?;
                if *with > 0 {
                    let mbits = |rate: u64| rate as f64 / 1e6;
                    let (with, without) = (mbits(*with), mbits(*without));
                    write!(f, " ({with:.1} Mbit/s with it, {without:.1} without)")?;
                }
                Ok(())
            }
            Self::Rebound { peer, path, from, to } => {
                write!(f, "peer `{peer}`: path {path}: remote address changed from {from} to {to}")
            }
            Self::Traffic { peer, from, to, captured, nats, reason } => {
                write!(f, "peer `{peer}`: traffic {from} -> {to} ({reason}), captured:")?;
                if captured.is_empty() {
                    f.write_str(" nothing")?;
                }
                captured.iter().try_for_each(|prefix| write!(f, " {prefix}"))?;
                nats.iter().try_for_each(|ip| write!(f, ", connections behind NAT {ip}"))
            }
            Self::PlainSession { peer, protocol, source, destination } => write!(
                f,
                "peer `{peer}`: the session {source} to {destination} (protocol {protocol}) is \
                 plain IP from now on: the other host does not answer it by the paths"
            ),
            Self::InnerMtu { peer, mtu } => write!(f, "peer `{peer}`: inner MTU {mtu}"),
            Self::HandshakeTimeout { peer, attempts, retry_in } => write!(
                f,
                "peer `{peer}`: no answer to handshake attempt {attempts}, next in {retry_in:?}"
            ),
            Self::Pinned { address, public_key, former } => {
                write!(f, "{address}: the key {public_key} is pinned to this address from now on")?;
                former.iter().try_for_each(|former| {
                    write!(f, ", in the place of {former}, which was not met for long")
                })
            }
            Self::KeyChanged { address, pinned, found } => write!(
                f,
                "{address}: REFUSED, ITS KEY HAS CHANGED from {pinned} to {found}: either the node \
                 was set up anew, or somebody poses as it"
            ),
            Self::HandshakeRefused { from, reason } => {
                write!(f, "handshake from {from} refused: {reason}")
            }
        }
    }
}
