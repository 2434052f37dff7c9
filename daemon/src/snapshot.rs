//! The daemon's state at one moment, for the control socket.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use mpip_api as api;
use mpip_core::{
    AvailabilityState, AvailabilityStatus, LossFigures, PathStatus, PeerStatus, PlainSessionStatus,
    RateLimit, SessionStatus, Status,
};

use crate::config::PathProperties;

/// Most sessions listed per peer. The most recently used come first.
const SESSIONS_LISTED: usize = 10_000;

/// The state, as the thread that owns the engine gathers it. The thread of the connection converts
/// it.
#[derive(Debug)]
pub struct Snapshot {
    /// The engine's statistics.
    pub(crate) engine: Status,
    /// Prefixes of each peer, in the order of the engine's peers.
    pub(crate) allowed_prefixes: Vec<Vec<String>>,
    /// Whether sessions were requested.
    pub(crate) sessions: bool,
    /// What interfaces are called and cost.
    pub(crate) properties: BTreeMap<String, PathProperties>,
    /// The state that the engine does not know. Its peers and drops are empty.
    pub(crate) host: api::Status,
}

impl Snapshot {
    /// Where paths of this node start.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = SocketAddr> {
        let port = self.host.listen_port;
        self.host.local_addresses.iter().map(move |local| SocketAddr::new(local.address, port))
    }

    /// The status as the control socket shows it.
    pub(crate) fn into_status(self) -> api::Status {
        let sessions = self.sessions;
        let mut prefixes = self.allowed_prefixes.into_iter();
        let mut status = self.host;
        status.node = self.engine.node.to_string();
        let peers = self.engine.peers.into_iter();
        status.peers = peers
            .map(|peer| peer_status(peer, prefixes.next().unwrap_or_default(), sessions))
            .collect();
        for path in status.peers.iter_mut().flat_map(|peer| &mut peer.paths) {
            if let Some(properties) = self.properties.get(&path.interface) {
                path.label.clone_from(&properties.label);
                path.metered = properties.metered;
            }
        }
        let drops = self.engine.drops.into_iter();
        status
            .drops
            .extend(drops.map(|(name, count)| api::Counter { name: name.to_owned(), count }));
        status
    }
}

/// Destinations as the control socket shows them, those with a node first.
pub(crate) fn destinations(mut list: Vec<AvailabilityStatus>) -> Vec<api::DestinationStatus> {
    let rank = |state: &AvailabilityState| match state {
        AvailabilityState::KeyChanged { .. } => 0,
        AvailabilityState::Enabled { .. } => 1,
        AvailabilityState::Queried(_) => 2,
        AvailabilityState::NotEnabled => 3,
    };
    list.sort_by_key(|entry| (rank(&entry.state), entry.address));
    let key = |state| match state {
        AvailabilityState::Enabled { public_key }
        | AvailabilityState::KeyChanged { public_key } => Some(public_key.to_string()),
        AvailabilityState::Queried(_) | AvailabilityState::NotEnabled => None,
    };
    let shown = |entry: AvailabilityStatus| api::DestinationStatus {
        address: entry.address,
        state: entry.state.name().to_owned(),
        queries: entry.queries,
        public_key: key(entry.state),
        expires_in_ms: ms(entry.expires_in),
    };
    list.into_iter().map(shown).collect()
}

/// Milliseconds, with fractions.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// A rate in bit/s.
fn bps(limit: RateLimit) -> u64 {
    u64::from(limit.kbps()) * 1_000
}

fn peer_status(
    peer: PeerStatus,
    allowed_prefixes: Vec<String>,
    with_sessions: bool,
) -> api::PeerStatus {
    let mut sessions = peer.sessions;
    let session_count = with_sessions.then_some(sessions.len() as u64);
    sessions.sort_by_key(|session| session.idle);
    sessions.truncate(SESSIONS_LISTED);
    api::PeerStatus {
        name: peer.name,
        node: peer.node.to_string(),
        established: peer.established,
        handshake_age_ms: peer.handshake_age.map(ms),
        handshake_attempts: peer.attempts,
        unanswered_ms: peer.unanswered.map(ms),
        attempt_in_ms: peer.attempt_in.map(ms),
        aead: peer.aead.map(str::to_owned),
        scheduler: peer.scheduler.to_owned(),
        congestion_control: peer.congestion_control.to_owned(),
        allowed_prefixes,
        host_mode: peer.host_mode,
        policy: peer.policy.name().to_owned(),
        traffic: peer.traffic.map(|traffic| traffic.name().to_owned()),
        returns_in_ms: peer.returns_in.map(ms),
        captured: peer.captured.iter().map(ToString::to_string).collect(),
        nats: peer.nats.iter().map(ToString::to_string).collect(),
        translated: peer.translated as u64,
        plain_packets: peer.plain_packets,
        plain_session_count: peer.plain_count as u64,
        plain_sessions: peer.plain_sessions.iter().take(SESSIONS_LISTED).map(plain).collect(),
        inner_mtu_bytes: peer.inner_mtu,
        sent_bytes: peer.bytes_sent,
        copied_bytes: peer.copied,
        received_bytes: peer.bytes_received,
        queued_bytes: peer.queued as u64,
        queue_drops: peer.queue_drops,
        queue_marks: peer.queue_marks,
        resequencing_bytes: peer.resequencing as u64,
        paths: peer.paths.into_iter().map(path_status).collect(),
        session_count,
        sessions: sessions.iter().map(session_status).collect(),
    }
}

fn path_status(path: PathStatus) -> api::PathStatus {
    api::PathStatus {
        id: path.id,
        interface: path.interface,
        label: None,
        cost: path.cost,
        metered: false,
        rate_up_bps: path.rate_up.map(bps),
        rate_down_bps: path.rate_down.map(bps),
        rate_told_bps: path.rate_told.map(bps),
        local: path.local,
        remote: path.remote,
        observed: path.observed,
        encapsulation: path.encapsulation.name().to_owned(),
        state: path.state.name().to_owned(),
        in_state_ms: ms(path.since),
        reason: path.reason.to_owned(),
        overdue_ms: path.overdue.map(ms),
        asks_in_ms: path.asks_in.map(ms),
        resting: path.resting,
        keepalive_ms: ms(path.keepalive),
        rtt_ms: path.rtt.map(ms),
        min_rtt_ms: path.min_rtt.map(ms),
        relative_delay_ms: path.relative_delay.map(ms),
        queuing_delay_ms: ms(path.queuing_delay),
        jitter_ms: ms(path.jitter),
        loss: path.loss,
        delivery_rate_bps: path.delivery_rate,
        pacing_rate_bps: path.pacing_rate,
        window_bytes: path.window,
        in_flight_bytes: path.in_flight,
        congestion_state: path.congestion_state.to_owned(),
        bottleneck: path.bottleneck,
        ecn: path.ecn.to_owned(),
        weight: path.weight,
        carried_bytes: path.carried,
        copied_bytes: path.copied,
        share: path.share,
        sent_bytes: path.bytes_sent,
        received_bytes: path.bytes_received,
        sent_packets: path.packets_sent,
        received_packets: path.packets_received,
        lost_packets: path.packets_lost,
        spurious_losses: path.spurious_losses,
        reordering_window_ms: ms(path.reordering_window),
        reordering_extent_packets: path.reordering_extent,
        mtu_bytes: path.mtu,
        hold: path.hold.map(|hold| hold.name().to_owned()),
        guard: path.guard.to_owned(),
        guard_figures: path.guard_figures.map(|figures| api::GuardFigures {
            carries: figures.carries,
            since_ms: ms(figures.since),
            with_bps: figures.with,
            without_bps: figures.without,
            again_in_ms: figures.again.map(ms),
        }),
        loss_figures: path.loss_figures.map(loss_figures),
        times_left_out: path.times_left_out,
    }
}

/// The figures as the control socket shows them.
pub(crate) fn loss_figures(figures: LossFigures) -> api::LossFigures {
    let LossFigures { loss, threshold, recent, packets, needed, returns_below } = figures;
    api::LossFigures { loss, threshold, recent, packets, needed, returns_below }
}

fn plain(session: &PlainSessionStatus) -> api::PlainSessionStatus {
    let PlainSessionStatus { protocol, source, destination, since } = *session;
    api::PlainSessionStatus { protocol, source, destination, since_ms: ms(since) }
}

fn session_status(session: &SessionStatus) -> api::SessionStatus {
    api::SessionStatus {
        id: session.id,
        outgoing: session.outgoing,
        protocol: session.protocol,
        source: session.source,
        destination: session.destination,
        packets: session.packets,
        inner_bytes: session.bytes,
        paths: session.paths.iter().map(|(path, _)| *path).collect(),
        path_shares: session.paths.iter().map(|(_, share)| *share).collect(),
        repaired_packets: session.repaired,
        held_ms: session.held.map(ms),
        longest_wait_ms: ms(session.longest_wait),
        waits: session.waits.to_vec(),
        idle_ms: ms(session.idle),
    }
}
