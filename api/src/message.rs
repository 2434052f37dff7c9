//! Requests and responses: one JSON object each, on one line.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::change::{Overrides, ReloadReport};
use crate::diagnosis::{BenchProgress, BenchReport, Direction, PeerAnswer};
use crate::event::Event;
use crate::invite::{InvitationStatus, KnownPeer};
use crate::rule::{RuleTable, RuleTest};
use crate::status::{DestinationStatus, Status};

/// The version of the control protocol.
pub const VERSION: u64 = 1;

/// Longest request line that a daemon reads, without its newline, in bytes.
pub const MAX_REQUEST: usize = 4096;

/// Longest response line that a client reads, without its newline, in bytes.
pub const MAX_RESPONSE: usize = 64 << 20;

/// What a client asks of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The daemon's statistics; answered by [`Response::Status`].
    Status {
        /// Whether the list of sessions is wanted too.
        #[serde(default)]
        sessions: bool,
    },
    /// Close all associations, remove device and routes, and exit; answered by
    /// [`Response::Done`] once that has happened.
    Down,
    /// Every event from now on; answered by [`Response::Done`] and then a [`Response::Event`]
    /// each.
    Events,
    /// The latest events that the daemon remembers; answered by [`Response::RecentEvents`].
    RecentEvents,
    /// What is known of the destinations that the host talks to; answered by
    /// [`Response::Availability`].
    Availability,
    /// Which versions and requests the daemon knows; answered by [`Response::Hello`], whatever the
    /// version of the request is.
    Hello,
    /// Read the configuration file again and apply what changed; answered by
    /// [`Response::Reloaded`].
    Reload,
    /// Change settings of a peer for the time being: until the daemon ends or reloads; answered by
    /// [`Response::Done`].
    SetPeer {
        /// The peer's name.
        peer: String,
        /// Keys of its `[[peer]]` section and their values, as `mpip set` takes them.
        settings: BTreeMap<String, String>,
    },
    /// Change whether paths start from an interface, or how they are used, for the time being;
    /// answered by [`Response::Done`].
    SetPath {
        /// The interface.
        interface: String,
        /// `active`, `standby` or `off`; `None` leaves the state as it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<String>,
        /// Keys of its `[[path]]` section and their values, as `mpip path set` takes them.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        settings: BTreeMap<String, String>,
        /// The state holds for so long, s: 1 to 2,592,000 (30 days); then it is what it would be
        /// without this. `None`: until the daemon ends or reloads. Not with `settings`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        for_s: Option<u64>,
    },
    /// What was set for the time being; answered by [`Response::Overrides`].
    Overrides,
    /// The rules in force; answered by [`Response::Rules`].
    Rules,
    /// Which rule decides about a packet that this host sends; answered by
    /// [`Response::RuleTest`].
    TestRule {
        /// The packet: `PROTOCOL ADDRESS[:PORT]` and, as far as it is known, `from ADDRESS[:PORT]`,
        /// `length BYTES`, `dscp CODE_POINT`.
        packet: String,
    },
    /// Add a rule for the time being; answered by [`Response::Done`].
    AddRule {
        /// Its number in the table, from 1 on; `None` for the end.
        #[serde(default)]
        at: Option<u64>,
        /// Keys of a `[[rule]]` section and their values, without quotes.
        settings: BTreeMap<String, String>,
    },
    /// Remove a rule for the time being; answered by [`Response::Done`].
    RemoveRule {
        /// Its number or name.
        rule: String,
    },
    /// Invite a node; answered by [`Response::Invitation`].
    Invite {
        /// What it is to be called.
        name: String,
        /// How long the token is good for, s: 60 to 2,592,000 (30 days).
        valid_s: u64,
        /// Where the gateway is, each an address with a port; empty for where its paths start.
        #[serde(default)]
        endpoints: Vec<String>,
        /// Networks behind the invited node.
        #[serde(default)]
        prefixes: Vec<String>,
    },
    /// The nodes that were invited; answered by [`Response::Peers`].
    Peers,
    /// Forget a peer that joined, or withdraw an invitation; answered by [`Response::Done`].
    RemovePeer {
        /// Its name.
        name: String,
    },
    /// Ask the daemon of a peer what it sees; answered by [`Response::PeerView`].
    AskPeer {
        /// The peer's name; `None` for the only one.
        #[serde(default)]
        peer: Option<String>,
        /// The peer's inner address; `None` to find it.
        #[serde(default)]
        address: Option<IpAddr>,
    },
    /// Measure the paths to a peer; answered by a [`Response::BenchProgress`] several times a
    /// second, and at the end by [`Response::Bench`]. Closing the connection ends it.
    Bench {
        /// The peer's name; `None` for the only one.
        #[serde(default)]
        peer: Option<String>,
        /// The peer's inner address; `None` to find it.
        #[serde(default)]
        address: Option<IpAddr>,
        /// Length of each measurement, ms: 500 to 10,000.
        duration_ms: u64,
        /// Most data of each measurement: 1,000,000 to 4,000,000,000 bytes.
        max_bytes: u64,
        /// Directions to measure.
        directions: Vec<Direction>,
    },
}

/// The names of all requests.
pub const REQUESTS: [&str; 19] = [
    "status",
    "down",
    "events",
    "recent-events",
    "availability",
    "hello",
    "reload",
    "set-peer",
    "set-path",
    "overrides",
    "rules",
    "test-rule",
    "add-rule",
    "remove-rule",
    "invite",
    "peers",
    "remove-peer",
    "ask-peer",
    "bench",
];

/// Requests with fields.
const WITH_FIELDS: [&str; 10] = [
    "status",
    "set-peer",
    "set-path",
    "test-rule",
    "add-rule",
    "remove-rule",
    "invite",
    "remove-peer",
    "ask-peer",
    "bench",
];

/// What a daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "kebab-case")]
pub enum Response {
    /// Statistics.
    Status {
        /// The statistics.
        status: Box<Status>,
    },
    /// Destinations that the host talks to and that belong to no peer.
    Availability {
        /// The destinations, those with a node first.
        destinations: Vec<DestinationStatus>,
    },
    /// An invitation was made.
    Invitation {
        /// The invitation.
        invitation: InvitationStatus,
    },
    /// The nodes that were invited.
    Peers {
        /// Those that joined, and invitations.
        peers: Vec<KnownPeer>,
    },
    /// What the daemon speaks.
    Hello {
        /// Versions of the protocol.
        versions: Vec<u64>,
        /// Release of the daemon.
        daemon_version: String,
        /// Names of the requests that it knows.
        requests: Vec<String>,
    },
    /// The configuration file is applied.
    Reloaded {
        /// What changed.
        changes: ReloadReport,
    },
    /// What was set for the time being.
    Overrides {
        /// The configuration file that says otherwise.
        config_file: String,
        /// The settings.
        overrides: Overrides,
    },
    /// The rules in force.
    Rules {
        /// The rules.
        table: RuleTable,
    },
    /// Which rule decides about a packet.
    RuleTest {
        /// The rule, and what it does.
        test: Box<RuleTest>,
    },
    /// What both ends see.
    PeerView {
        /// What they see.
        answer: Box<PeerAnswer>,
    },
    /// How far a measurement is.
    BenchProgress {
        /// How far.
        progress: BenchProgress,
    },
    /// Measurements have ended.
    Bench {
        /// What they found.
        report: Box<BenchReport>,
    },
    /// What was asked for has happened.
    Done,
    /// Something happened.
    Event {
        /// What happened.
        event: Event,
    },
    /// The latest events.
    RecentEvents {
        /// The events, the oldest first.
        events: Vec<Event>,
    },
    /// The request was refused.
    Error {
        /// What was expected and what came.
        message: String,
    },
}

/// Why a line is not a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The line is not one JSON object.
    NotAnObject(String),
    /// `version` is missing or differs from [`VERSION`].
    Version(Option<String>),
    /// `request` is missing or unknown.
    Unknown(Option<String>),
    /// A field of the request is wrong.
    Fields {
        /// The request.
        request: String,
        /// What is wrong.
        reason: String,
    },
    /// The line is longer than [`MAX_REQUEST`].
    TooLong,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = || REQUESTS.map(|name| format!("`{name}`")).join(", ");
        match self {
            Self::NotAnObject(reason) => {
                write!(f, "expected one JSON object per line: {reason}")
            }
            Self::Version(None) => write!(f, "expected \"version\": {VERSION}, found none"),
            Self::Version(Some(found)) => {
                write!(f, "expected \"version\": {VERSION}, found {found}")
            }
            Self::Unknown(None) => {
                write!(f, "no \"request\" given, expected one of {}", expected())
            }
            Self::Unknown(Some(found)) => {
                write!(f, "unknown request {found}, expected one of {}", expected())
            }
            Self::Fields { request, reason } => write!(f, "request `{request}`: {reason}"),
            Self::TooLong => write!(f, "expected a request of at most {MAX_REQUEST} bytes"),
        }
    }
}

impl std::error::Error for RequestError {}

impl Request {
    /// The request on `line`.
    pub fn parse(line: &[u8]) -> Result<Self, RequestError> {
        if line.len() > MAX_REQUEST {
            return Err(RequestError::TooLong);
        }
        let value: Value = serde_json::from_slice(line)
            .map_err(|error| RequestError::NotAnObject(error.to_string()))?;
        let Value::Object(mut object) = value else {
            return Err(RequestError::NotAnObject("found another JSON value".to_owned()));
        };
        let version = object.remove("version");
        // Whoever asks which versions there are cannot know.
        let hello = object.get("request").and_then(Value::as_str) == Some("hello");
        if version.as_ref().and_then(Value::as_u64) != Some(VERSION) && !hello {
            return Err(RequestError::Version(version.map(|found| found.to_string())));
        }
        let name = match object.get("request") {
            Some(Value::String(name)) if REQUESTS.contains(&name.as_str()) => name.clone(),
            Some(Value::String(other)) => {
                return Err(RequestError::Unknown(Some(format!("`{other}`"))));
            }
            other => return Err(RequestError::Unknown(other.map(ToString::to_string))),
        };
        // A variant without fields accepts any, so they are refused here.
        if !WITH_FIELDS.contains(&name.as_str())
            && name != "hello"
            && let Some(field) = object.keys().find(|key| *key != "request")
        {
            let reason = format!("unknown field `{field}`, expected none");
            return Err(RequestError::Fields { request: name, reason });
        }
        serde_json::from_value(Value::Object(object))
            .map_err(|error| RequestError::Fields { request: name, reason: error.to_string() })
    }

    /// The request as a line, with its newline.
    pub fn to_line(&self) -> String {
        line(self)
    }
}

/// Why a line is not a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseError {
    /// The daemon speaks another version of the protocol.
    Version(String),
    /// Not the JSON of a response.
    Malformed(String),
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(found) => write!(
                f,
                "expected an answer of control protocol version {VERSION}, found {found}: \
                 `mpip` and `mpipd` are of different releases"
            ),
            Self::Malformed(reason) => write!(f, "expected a response of mpipd: {reason}"),
        }
    }
}

impl std::error::Error for ResponseError {}

impl Response {
    /// The response on `line`.
    pub fn parse(line: &[u8]) -> Result<Self, ResponseError> {
        /// Only the version, so that a line of another one is recognised by it.
        #[derive(Deserialize)]
        struct Versioned {
            version: Value,
        }
        let malformed = |error: serde_json::Error| ResponseError::Malformed(error.to_string());
        let versioned: Versioned = serde_json::from_slice(line).map_err(malformed)?;
        if versioned.version.as_u64() != Some(VERSION) {
            return Err(ResponseError::Version(versioned.version.to_string()));
        }
        serde_json::from_slice(line).map_err(malformed)
    }

    /// The response as a line, with its newline.
    pub fn to_line(&self) -> String {
        line(self)
    }
}

/// `message` with its version in front, as one line.
fn line(message: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Versioned<'a, T> {
        version: u64,
        #[serde(flatten)]
        message: &'a T,
    }
    let mut line = serde_json::to_string(&Versioned { version: VERSION, message })
        .expect("messages have string keys only");
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_round_trips_on_one_line() {
        for request in [
            Request::Status { sessions: false },
            Request::Status { sessions: true },
            Request::Down,
            Request::Events,
            Request::RecentEvents,
            Request::Availability,
            Request::Peers,
            Request::RemovePeer { name: "laptop".to_owned() },
            Request::Invite {
                name: "laptop".to_owned(),
                valid_s: 3_600,
                endpoints: vec!["198.18.0.1:6182".to_owned()],
                prefixes: Vec::new(),
            },
            Request::AskPeer { peer: None, address: "10.77.0.2".parse().ok() },
            Request::Bench {
                peer: Some("gateway".to_owned()),
                address: None,
                duration_ms: 3_000,
                max_bytes: 1_000_000,
                directions: vec![Direction::Send, Direction::Receive],
            },
            Request::Hello,
            Request::Reload,
            Request::SetPeer {
                peer: "gateway".to_owned(),
                settings: [("scheduler".to_owned(), "weighted".to_owned())].into(),
            },
            Request::SetPath {
                interface: "wwan0".to_owned(),
                state: Some("standby".to_owned()),
                settings: BTreeMap::new(),
                for_s: None,
            },
            Request::SetPath {
                interface: "wwan0".to_owned(),
                state: Some("off".to_owned()),
                settings: BTreeMap::new(),
                for_s: Some(600),
            },
            Request::SetPath {
                interface: "wwan0".to_owned(),
                state: None,
                settings: [("rate_up".to_owned(), "20 Mbit/s".to_owned())].into(),
                for_s: None,
            },
            Request::Overrides,
            Request::Rules,
            Request::TestRule { packet: "udp 198.18.0.2:53".to_owned() },
            Request::AddRule {
                at: Some(2),
                settings: [("priority".to_owned(), "response".to_owned())].into(),
            },
            Request::RemoveRule { rule: "calls".to_owned() },
        ] {
            let line = request.to_line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(Request::parse(line.trim_end().as_bytes()), Ok(request));
        }
    }

    #[test]
    fn the_list_of_sessions_is_not_wanted_unless_asked_for() {
        assert_eq!(
            Request::parse(br#"{"version":1,"request":"status"}"#),
            Ok(Request::Status { sessions: false })
        );
    }

    #[test]
    fn a_refused_request_names_what_was_expected_and_what_came() {
        let cases: [(&str, &str); 9] = [
            ("", "expected one JSON object per line"),
            ("[1]", "expected one JSON object per line: found another JSON value"),
            (r#"{"request":"status"}"#, "expected \"version\": 1, found none"),
            (r#"{"version":2,"request":"status"}"#, "expected \"version\": 1, found 2"),
            (r#"{"version":"1","request":"status"}"#, "expected \"version\": 1, found \"1\""),
            (r#"{"version":1}"#, "no \"request\" given, expected one of `status`"),
            (
                r#"{"version":1,"request":"reboot"}"#,
                "unknown request `reboot`, expected one of `status`, `down`, `events`, \
                 `recent-events`, `availability`, `hello`, `reload`, `set-peer`, `set-path`, \
                 `overrides`, `rules`, `test-rule`, `add-rule`, `remove-rule`, `invite`, `peers`, `remove-peer`, `ask-peer`, `bench`",
            ),
            (
                r#"{"version":1,"request":"down","now":true}"#,
                "request `down`: unknown field `now`, expected none",
            ),
            (
                r#"{"version":1,"request":"status","sessions":3}"#,
                "request `status`: invalid type: integer `3`, expected a boolean",
            ),
        ];
        for (line, expected) in cases {
            let error = Request::parse(line.as_bytes()).expect_err(line).to_string();
            assert!(error.starts_with(expected), "{line}: {error}");
        }
    }

    #[test]
    fn a_hello_of_any_version_is_understood_and_may_say_more() {
        for line in [
            r#"{"version":1,"request":"hello"}"#,
            r#"{"version":9,"request":"hello"}"#,
            r#"{"request":"hello","client":"a program"}"#,
        ] {
            assert_eq!(Request::parse(line.as_bytes()), Ok(Request::Hello), "{line}");
        }
    }

    #[test]
    fn a_request_that_is_too_long_is_refused_unread() {
        let line = vec![b' '; MAX_REQUEST + 1];
        assert_eq!(Request::parse(&line), Err(RequestError::TooLong));
    }

    #[test]
    fn responses_round_trip_and_unknown_fields_are_ignored() {
        for response in [Response::Done, Response::Error { message: "no \"x\"\n".to_owned() }] {
            let line = response.to_line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(Response::parse(line.as_bytes()), Ok(response));
        }
        let later = br#"{"version":1,"response":"done","after_ms":3.5}"#;
        assert_eq!(Response::parse(later), Ok(Response::Done));
    }

    #[test]
    fn a_response_of_another_version_is_named_as_such() {
        let error = Response::parse(br#"{"version":7,"answer":1}"#).expect_err("version 7");
        assert_eq!(error, ResponseError::Version("7".to_owned()));
    }
}
