//! Events on the control socket.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::status::LossFigures;

/// Something that happened in the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Time of the event, in milliseconds since the Unix epoch.
    pub unix_time_ms: f64,
    /// The event as a sentence, as in the daemon's log.
    pub message: String,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum EventKind {
    /// A handshake completed and the peer has confirmed the keys.
    Established {
        /// The peer's name.
        peer: String,
        /// The AEAD chosen.
        aead: String,
    },
    /// Nothing came from the peer for so long that the association was closed.
    Lost {
        /// The peer's name.
        peer: String,
    },
    /// The peer restarted.
    PeerRestarted {
        /// The peer's name.
        peer: String,
    },
    /// A path was added, changed its state or was removed.
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
        from: String,
        /// The state from now on.
        to: String,
        /// Why.
        reason: String,
        /// Its loss and the threshold, if that is why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        loss: Option<LossFigures>,
    },
    /// A path is no longer used for bulk traffic because the others carry more without it, or is
    /// used for it again.
    LeftOut {
        /// The peer's name.
        peer: String,
        /// The path's number.
        path: u16,
        /// The local interface.
        interface: String,
        /// Whether it is left out from now on.
        left_out: bool,
        /// Throughput of the association with the path; 0 where it was not measured.
        with_bps: u64,
        /// Throughput without it.
        without_bps: u64,
        /// Why.
        reason: String,
    },
    /// A path's remote address changed.
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
    /// In host mode: a single session is plain IP from now on, because nothing of it arrived by the
    /// paths, which work.
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
    /// In host mode: packets to a peer now travel in another way, or other destinations are
    /// captured.
    Traffic {
        /// The peer's name.
        peer: String,
        /// How they travelled: `plain`, `multipath` or `blocked`.
        from: String,
        /// How they travel from now on.
        to: String,
        /// Destinations whose packets are captured.
        captured: Vec<String>,
        /// Public addresses of NATs in front of the peer. Packets that answer its connections go
        /// there and are captured.
        #[serde(default)]
        nats: Vec<String>,
        /// Why.
        reason: String,
    },
    /// The largest inner packet toward a peer changed.
    InnerMtu {
        /// The peer's name.
        peer: String,
        /// Bytes.
        mtu_bytes: u16,
    },
    /// A handshake was not answered.
    HandshakeTimeout {
        /// The peer's name.
        peer: String,
        /// Attempts so far.
        attempts: u32,
        /// Time to the next one.
        retry_in_ms: f64,
    },
    /// A handshake was refused.
    HandshakeRefused {
        /// Where it came from.
        from: SocketAddr,
        /// Why.
        reason: String,
    },
    /// The key of a node that nobody configured was pinned to its address.
    Pinned {
        /// The node's address.
        address: IpAddr,
        /// Its key, in base64.
        public_key: String,
    },
    /// A node named another key than the one pinned to its address, and was refused.
    KeyChanged {
        /// The node's address.
        address: IpAddr,
        /// The pinned key, in base64.
        pinned: String,
        /// The key that it named, in base64.
        found: String,
    },
    /// A budget of an interface is nearly used up, used up, or whole again.
    Budget {
        /// The interface.
        interface: String,
        /// What users call it.
        label: Option<String>,
        /// What has happened.
        state: BudgetState,
        /// Most data of a period.
        budget_bytes: u64,
        /// What is used of it.
        used_bytes: u64,
        /// When the period ends, in seconds since the Unix epoch.
        period_ends_unix_s: u64,
    },
    /// An address of this host became usable for paths.
    AddressAdded {
        /// The interface.
        interface: String,
        /// The address, with the port of our socket.
        address: SocketAddr,
    },
    /// An address of this host is not usable any more.
    AddressRemoved {
        /// The interface.
        interface: String,
        /// The address, with the port of our socket.
        address: SocketAddr,
    },
    /// An event of a newer daemon; [`Event::message`] describes it.
    #[serde(other)]
    Unknown,
}

/// What has happened to a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetState {
    /// 80 % of it is used.
    Warning,
    /// It is used up: the interface is on standby until the period ends.
    UsedUp,
    /// A new period has begun: the interface is in use again.
    Renewed,
    /// Something that only a newer daemon knows.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_round_trips_with_its_kind_in_the_same_object() {
        let event = Event {
            unix_time_ms: 1_700_000_000_123.5,
            message: "peer `b`: path 3".to_owned(),
            kind: EventKind::Path {
                peer: "b".to_owned(),
                path: 3,
                interface: "eth0".to_owned(),
                local: "198.18.0.1:6182".parse().expect("valid"),
                remote: "[2001:db8::2]:6182".parse().expect("valid"),
                from: "validating".to_owned(),
                to: "active".to_owned(),
                reason: "answered".to_owned(),
                loss: None,
            },
        };
        let json = serde_json::to_value(&event).expect("serialises");
        assert_eq!(json["event"], "path");
        assert_eq!(json["to"], "active");
        assert_eq!(serde_json::from_value::<Event>(json).expect("parses"), event);
    }

    #[test]
    fn an_event_of_a_newer_daemon_keeps_its_words() {
        let json = r#"{"unix_time_ms":1.0,"message":"moon rose","event":"moon-rise","phase":1}"#;
        let event: Event = serde_json::from_str(json).expect("parses");
        assert_eq!((event.message.as_str(), event.kind), ("moon rose", EventKind::Unknown));
    }
}
