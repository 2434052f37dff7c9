//! What the page is told, once per sample.

use mpip_api::{Event, PathStatus, PeerStatus, SessionStatus, Status, rfc3339};
use serde::Serialize;

use crate::words::{self, Condition};

/// Peers, and sessions of each, that the page lists.
const PEERS: usize = 50;
const SESSIONS: usize = 40;

/// The state of the daemon.
#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    /// The daemon's clock, in milliseconds; with `pid` it says whether counters can be compared.
    t: f64,
    pid: u32,
    interface: &'a str,
    node: &'a str,
    version: &'a str,
    summary: String,
    problems: Vec<String>,
    /// Peers that are not listed.
    more_peers: usize,
    peers: Vec<PeerView<'a>>,
}

#[derive(Debug, Serialize)]
struct PeerView<'a> {
    name: &'a str,
    condition: &'static str,
    state: &'static str,
    scheduler: &'a str,
    congestion_control: &'a str,
    traffic: Option<&'a str>,
    queued_bytes: u64,
    session_count: u64,
    paths: Vec<PathView<'a>>,
    sessions: Vec<SessionView<'a>>,
}

#[derive(Debug, Serialize)]
struct PathView<'a> {
    /// Its number, by which sessions name it.
    id: u16,
    key: String,
    interface: &'a str,
    label: Option<&'a str>,
    local: String,
    remote: String,
    encapsulation: &'a str,
    condition: &'static str,
    words: String,
    state: &'a str,
    works: bool,
    #[serde(flatten)]
    sample: PathSample,
}

/// What of a path is drawn over time.
#[derive(Debug, Serialize)]
struct PathSample {
    sent: u64,
    /// What of it are copies of packets that went by another path at the same time.
    copied: u64,
    received: u64,
    rtt_ms: Option<f64>,
    queue_ms: f64,
    loss: f64,
}

#[derive(Debug, Serialize)]
struct SessionView<'a> {
    /// With the direction, which session it is.
    id: u32,
    out: bool,
    protocol: String,
    source: String,
    destination: String,
    bytes: u64,
    idle_ms: f64,
    paths: &'a [u16],
}

/// A sample of all paths, for those who look later.
#[derive(Debug, Serialize)]
pub(super) struct Sample {
    t: f64,
    pid: u32,
    paths: Vec<KeyedSample>,
}

#[derive(Debug, Serialize)]
struct KeyedSample {
    key: String,
    #[serde(flatten)]
    sample: PathSample,
}

/// What tells a path from others for people: a path that is opened anew between the same addresses
/// has another number, and is the same one to them.
fn key(peer: &PeerStatus, path: &PathStatus) -> String {
    let PathStatus { interface, local, remote, encapsulation, .. } = path;
    format!("{}\n{interface}\n{local}\n{remote}\n{encapsulation}", peer.name)
}

#[derive(Debug, Serialize)]
pub(super) struct EventView {
    time: String,
    /// How good it is; none for what is neither.
    condition: Option<&'static str>,
    message: String,
}

impl PathSample {
    fn of(path: &PathStatus) -> Self {
        let works = words::works(path);
        Self {
            sent: path.sent_bytes,
            copied: path.copied_bytes,
            received: path.received_bytes,
            rtt_ms: path.rtt_ms.filter(|_| works),
            queue_ms: path.queuing_delay_ms,
            loss: path.loss,
        }
    }
}

impl<'a> View<'a> {
    pub(super) fn of(status: &'a Status) -> Self {
        let mut peers: Vec<&PeerStatus> = status.peers.iter().collect();
        // Those that work come first where not all are listed; the problems name the others.
        if peers.len() > PEERS {
            peers.sort_by_key(|peer| words::peer_state(peer).0 == Condition::Wrong);
        }
        Self {
            t: status.uptime_ms,
            pid: status.pid,
            interface: &status.interface.name,
            node: &status.node,
            version: &status.daemon_version,
            summary: words::summary(status),
            problems: words::problems(status),
            more_peers: peers.len().saturating_sub(PEERS),
            peers: peers.into_iter().take(PEERS).map(PeerView::of).collect(),
        }
    }
}

impl<'a> PeerView<'a> {
    fn of(peer: &'a PeerStatus) -> Self {
        let (condition, state) = words::peer_state(peer);
        Self {
            name: &peer.name,
            condition: condition.name(),
            state,
            scheduler: &peer.scheduler,
            congestion_control: &peer.congestion_control,
            traffic: peer.traffic.as_deref(),
            queued_bytes: peer.queued_bytes,
            session_count: peer.session_count.unwrap_or(0),
            paths: words::paths_of(peer)
                .0
                .into_iter()
                .map(|path| PathView::of(peer, path))
                .collect(),
            sessions: peer.sessions.iter().take(SESSIONS).map(SessionView::of).collect(),
        }
    }
}

impl<'a> PathView<'a> {
    fn of(peer: &PeerStatus, path: &'a PathStatus) -> Self {
        let (condition, words) = words::path_state(path);
        Self {
            id: path.id,
            key: key(peer, path),
            interface: &path.interface,
            label: path.label.as_deref(),
            local: path.local.ip().to_string(),
            remote: path.remote.ip().to_string(),
            encapsulation: &path.encapsulation,
            condition: condition.name(),
            words,
            state: &path.state,
            works: words::works(path),
            sample: PathSample::of(path),
        }
    }
}

impl<'a> SessionView<'a> {
    fn of(session: &'a SessionStatus) -> Self {
        Self {
            id: session.id,
            out: session.outgoing,
            protocol: words::protocol(session.protocol),
            source: words::end(session.source),
            destination: words::end(session.destination),
            bytes: session.inner_bytes,
            idle_ms: session.idle_ms,
            paths: &session.paths,
        }
    }
}

impl Sample {
    pub(super) fn of(status: &Status) -> Self {
        let peers = status.peers.iter().take(PEERS);
        let paths = peers.flat_map(|peer| {
            let paths = words::paths_of(peer).0.into_iter();
            paths.map(|path| KeyedSample { key: key(peer, path), sample: PathSample::of(path) })
        });
        Self { t: status.uptime_ms, pid: status.pid, paths: paths.collect() }
    }
}

impl EventView {
    pub(super) fn of(event: &Event) -> Self {
        Self {
            time: rfc3339(event.unix_time_ms),
            condition: words::event_condition(&event.kind).map(Condition::name),
            message: words::event(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_page_gets_words_and_counters() {
        let status = example::status();
        let json = serde_json::to_value(View::of(&status)).expect("serialises");
        assert_eq!(json["summary"], "gateway connected by 1 of 2 paths");
        assert_eq!(json["problems"].as_array().map(Vec::len), Some(1));
        let path = &json["peers"][0]["paths"][1];
        assert_eq!(
            (&path["condition"], &path["words"]),
            (&"wrong".into(), &"does not answer".into())
        );
        assert_eq!(path["copied"], 0);
        assert_eq!(path["rtt_ms"], serde_json::Value::Null, "none is true of a failed path");
        let session = &json["peers"][0]["sessions"][0];
        assert_eq!(session["paths"], serde_json::json!([0, 1]));
        assert_eq!(session["destination"], "10.77.0.2");
    }

    #[test]
    fn a_gateway_with_many_peers_and_sessions_lists_some() {
        let mut status = example::status();
        let session = status.peers[0].sessions[0].clone();
        status.peers[0].sessions = vec![session; 1_000];
        let mut away = status.peers[0].clone();
        (away.established, away.name) = (false, "away".to_owned());
        let peer = status.peers.remove(0);
        status.peers = [vec![away; 500], vec![peer; 30]].concat();
        let json = serde_json::to_value(View::of(&status)).expect("serialises");
        let peers = json["peers"].as_array().expect("a list");
        assert_eq!((peers.len(), &json["more_peers"]), (50, &480.into()));
        assert_eq!(peers.iter().filter(|peer| peer["name"] == "gateway").count(), 30);
        assert_eq!(peers[0]["sessions"].as_array().map(Vec::len), Some(SESSIONS));
    }
}
