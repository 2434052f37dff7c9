//! The control socket of `mpipd`: its messages, and a client for them.
//!
//! # The protocol
//!
//! A client connects to the daemon's Unix stream socket and writes requests, one JSON object per
//! line; the daemon answers each with one JSON object per line, in order. Every object carries
//! `"version"`, which is [`VERSION`]; a daemon that speaks another version says so in an error. The
//! request `hello` is answered whatever its version is, with the versions and requests that the
//! daemon knows.
//!
//! ```text
//! → {"version":1,"request":"status","sessions":false}
//! ← {"version":1,"response":"status","status":{…}}
//! → {"version":1,"request":"nonsense"}
//! ← {"version":1,"response":"error","message":"unknown request `nonsense`, expected one of …"}
//! ```
//!
//! After `{"request":"events"}` the daemon answers `done` and then writes one `event` object per
//! event until the client closes the connection.
//!
//! Fields may be added to answers without a new version, so a client ignores those that it does
//! not know. Durations are milliseconds (`_ms`, fractional), rates bits per second (`_bps`),
//! amounts of data bytes (`_bytes`); a value that is not known is `null`.

mod change;
mod client;
mod diagnosis;
mod event;
mod invite;
mod message;
mod rule;
mod status;
mod time;

pub use change::{
    Overrides, PathOverride, PathSettingOverride, PeerOverride, ReloadReport, RuleOverride,
};
pub use client::{Client, ClientError, EventStream, availability, is_served, request, status};
pub use diagnosis::{
    BenchPath, BenchProgress, BenchReport, BenchResult, DIAGNOSIS_PORT, Direction, PeerAnswer,
    PeerView,
};
pub use event::{BudgetState, Event, EventKind};
pub use invite::{InvitationStatus, KnownPeer};
pub use message::{
    MAX_REQUEST, MAX_RESPONSE, REQUESTS, Request, RequestError, Response, ResponseError, VERSION,
};
pub use rule::{
    RuleDependence, RulePaths, RuleStatus, RuleTable, RuleTest, Treatment, Way, WayPath,
};
pub use status::{
    BudgetStatus, Counter, DestinationStatus, FaultStatus, GuardFigures, InterfaceStatus,
    LocalAddressStatus, LossFigures, PathStatus, PeerStatus, PlainSessionStatus, SessionStatus,
    Status,
};
pub use time::rfc3339;

/// The directory of the control sockets of all daemons that run on a host.
pub const SOCKET_DIRECTORY: &str = "/run/mpip";
