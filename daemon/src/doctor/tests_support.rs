//! States of a host in which nothing is wrong, for tests to break.

use std::collections::BTreeMap;
use std::time::Duration;

use mpip_api::{PathStatus, PeerStatus, Status};
use mpip_net::netlink::Link;

use super::subject::Subject;
use super::survey::{Running, Start, Survey};

/// A running interface.
pub(crate) fn link(index: u32, name: &str) -> Link {
    Link {
        index,
        name: name.to_owned(),
        up: true,
        carrier: true,
        loopback: false,
        mtu: 1_500,
        ethernet: None,
        kind: None,
        alias: None,
    }
}

/// An address like `198.18.0.1/24` on an interface.
pub(super) fn start(link: u32, interface: &str, address: &str) -> Start {
    let (address, prefix_len) = address.split_once('/').expect("a prefix");
    Start {
        link,
        interface: interface.to_owned(),
        address: address.parse().expect("valid"),
        prefix_len: prefix_len.parse().expect("valid"),
    }
}

/// An active path.
pub(crate) fn path() -> PathStatus {
    let json = r#"{"id": 1, "interface": "eth0", "local": "198.18.0.1:6182",
        "remote": "198.18.0.2:6182", "observed": null, "encapsulation": "udp", "state": "active",
        "rtt_ms": 1.0, "min_rtt_ms": 1.0, "relative_delay_ms": 0.0, "queuing_delay_ms": 0.0,
        "jitter_ms": 0.0, "loss": 0.0, "delivery_rate_bps": 0, "pacing_rate_bps": null,
        "window_bytes": 0, "in_flight_bytes": 0, "congestion_state": "", "bottleneck": 1,
        "ecn": "capable", "weight": 1, "share": 1.0, "sent_bytes": 0, "received_bytes": 0,
        "sent_packets": 0, "received_packets": 0, "lost_packets": 0, "spurious_losses": 0,
        "reordering_window_ms": 0.0, "reordering_extent_packets": 0, "mtu_bytes": 1500,
        "guard": "used", "times_left_out": 0}"#;
    serde_json::from_str(json).expect("a path")
}

/// A peer with an active path.
pub(crate) fn peer() -> PeerStatus {
    let json = r#"{"name": "b", "node": "", "established": true, "handshake_age_ms": 1.0,
        "aead": "aes-256-gcm", "scheduler": "earliest", "congestion_control": "bbr",
        "endpoints": [], "allowed_prefixes": [], "inner_mtu_bytes": 1400, "sent_bytes": 0,
        "received_bytes": 0, "queued_bytes": 0, "queue_drops": 0, "queue_marks": 0,
        "resequencing_bytes": 0, "paths": [], "session_count": null, "sessions": []}"#;
    let peer: PeerStatus = serde_json::from_str(json).expect("a peer");
    PeerStatus { paths: vec![path()], ..peer }
}

/// A daemon of this release that works.
pub(crate) fn status() -> Status {
    let json = r#"{"daemon_version": "", "pid": 1, "config_file": "/x.toml", "uptime_ms": 60000.0,
        "node": "", "public_key": "key", "listen_port": 6182, "tcp_port": 0,
        "interface": {"name": "mpip0", "addresses": [], "mtu_bytes": 1400},
        "local_addresses": [{"interface": "eth0", "address": "198.18.0.1", "mtu_bytes": 1500}],
        "peers": [], "drops": [], "events": []}"#;
    let status: Status = serde_json::from_str(json).expect("a status");
    Status { daemon_version: env!("CARGO_PKG_VERSION").to_owned(), peers: vec![peer()], ..status }
}

/// A host on which no daemon runs.
pub(super) fn survey() -> Survey {
    Survey {
        subject: Subject::default(),
        refused: None,
        socket: None,
        running: Running::No,
        capabilities: u64::MAX,
        tun: Ok(()),
        kernel: "6.12.0".to_owned(),
        granted: None,
        privileged: true,
        unix_time: Duration::from_secs(1),
        newest_file: Duration::ZERO,
        udp: Vec::new(),
        tcp: Vec::new(),
        ruleset: None,
        links: vec![link(2, "eth0")],
        starts: vec![start(2, "eth0", "198.18.0.1/24")],
        rules: Vec::new(),
        default_routes: Vec::new(),
        own_routes: Vec::new(),
        reach: Vec::new(),
        captured: Vec::new(),
        outward: Vec::new(),
        resolvers: Vec::new(),
        forwarding: [None; 2],
        forwarding_record: None,
        reverse_path: BTreeMap::new(),
        sysctl_read_only: false,
        reverse_path_record: None,
        parameters: BTreeMap::new(),
        answer: None,
        not_checked: Vec::new(),
    }
}
