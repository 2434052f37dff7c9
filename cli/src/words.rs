//! What a status means, in words.

use std::net::SocketAddr;

use mpip_api::{
    BudgetState, BudgetStatus, Event, EventKind, FaultStatus, PathStatus, PeerStatus,
    SessionStatus, Status, rfc3339,
};

use crate::units::{bytes, duration, percent, rate};

/// The daemon's reason why a path takes no packets that costs more than others.
pub(crate) const DEAR: &str = "kept for more than the cheaper paths carry";

/// The daemon's reason why a path takes no packets at its upper rate.
pub(crate) const AT_ITS_RATE: &str = "at its upper rate";

/// Loss, as a share of the packets, from which it is mentioned.
const LOSS_MENTIONED: f64 = 0.05;

/// How good a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It works.
    Good,
    /// It is not used now, or less than it could be; nothing has to be done.
    Spare,
    /// It does not work.
    Wrong,
}

impl Condition {
    /// Its name, for programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Spare => "spare",
            Self::Wrong => "wrong",
        }
    }
}

/// The state of a path.
pub(crate) fn path_state(path: &PathStatus) -> (Condition, String) {
    use Condition::{Good, Spare, Wrong};
    let words = |condition, words: &str| (condition, words.to_owned());
    match (path.state.as_str(), path.guard.as_str()) {
        ("active", "left-out") => words(Spare, "left out: the others carry more without it"),
        ("active", "trial") => words(Spare, "on trial: do the others carry more without it?"),
        ("active", _) if path.hold.as_deref() == Some("probe overdue") => {
            words(Spare, "an answer is overdue")
        }
        ("active", _) if path.resting => words(Good, "works, at rest"),
        ("active", _) if path.hold.as_deref() == Some(DEAR) => {
            words(Good, "works, for more than the cheaper paths carry")
        }
        ("active", _) if path.hold.as_deref() == Some(AT_ITS_RATE) => {
            let most = path.rate_limit_bps().map(rate).unwrap_or_default();
            (Good, format!("works, at its upper rate of {most}"))
        }
        ("active", _) if path.loss >= LOSS_MENTIONED => {
            (Spare, format!("works, loses {:.0} %", path.loss * 100.0))
        }
        ("active", _) => words(Good, "works"),
        ("standby", _) => match &path.loss_figures {
            Some(figures) => (Spare, format!("on standby, lost {}", percent(figures.loss))),
            None => words(Spare, "on standby"),
        },
        ("validating", _) => words(Spare, "being checked, no answer yet"),
        ("failed", _) => words(Wrong, "does not answer"),
        ("abandoned", _) => words(Spare, "given up"),
        (other, _) => (Spare, other.to_owned()),
    }
}

/// Whether packets can travel on a path.
pub(crate) fn works(path: &PathStatus) -> bool {
    matches!(path.state.as_str(), "active" | "standby")
}

/// The paths that people want to see, and how many others there are.
///
/// Every address of one end is tried with every one of the other. Most such pairs cannot work, and
/// nobody expects them to: an answer never came, and the interface has another path. They are left
/// out.
pub(crate) fn paths_of(peer: &PeerStatus) -> (Vec<&PathStatus>, usize) {
    let tried = |path: &PathStatus| {
        path.received_bytes == 0 && matches!(path.state.as_str(), "validating" | "abandoned")
    };
    let has_other = |path: &PathStatus| {
        let others = peer.paths.iter().filter(|other| other.interface == path.interface);
        let mut others = others.filter(|other| other.id != path.id);
        others.any(|other| !tried(other) || other.id < path.id)
    };
    let shown: Vec<_> = peer.paths.iter().filter(|path| !tried(path) || !has_other(path)).collect();
    let others = peer.paths.len() - shown.len();
    (shown, others)
}

/// The state of a peer, in one or two words.
pub(crate) fn peer_state(peer: &PeerStatus) -> (Condition, &'static str) {
    match peer.established {
        false => (Condition::Wrong, "not connected"),
        true if !peer.paths.iter().any(works) => (Condition::Wrong, "no path works"),
        true => (Condition::Good, "connected"),
    }
}

/// Whose paths work, in one line.
pub(crate) fn summary(status: &Status) -> String {
    match status.peers.as_slice() {
        [] => "no peers".to_owned(),
        [peer] if peer.established => format!("{} connected by {}", peer.name, paths(&[peer])),
        [peer] => format!("{} not connected", peer.name),
        peers => {
            let connected: Vec<_> = peers.iter().filter(|peer| peer.established).collect();
            let (count, of) = (connected.len(), peers.len());
            format!("{count} of {of} peers connected by {}", paths(&connected))
        }
    }
}

/// How many of the peers' paths work.
fn paths(peers: &[&PeerStatus]) -> String {
    let all: Vec<_> = peers.iter().flat_map(|peer| paths_of(peer).0).collect();
    let (working, count) = (all.iter().filter(|path| works(path)).count(), all.len());
    match (working, count) {
        (1, 1) => "1 path".to_owned(),
        _ if working == count => format!("{count} paths"),
        _ => format!("{working} of {count} paths"),
    }
}

/// What is used of the budgets of interfaces, a line for each.
pub(crate) fn budgets(status: &Status) -> Vec<String> {
    let line = |budget: &BudgetStatus| {
        let BudgetStatus { interface, label, used_bytes, budget_bytes, period, .. } = budget;
        let label = label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
        let (used, whole) = (bytes(*used_bytes), bytes(*budget_bytes));
        let share = used_bytes.saturating_mul(100) / (*budget_bytes).max(1);
        let ends = rfc3339(budget.period_ends_unix_s as f64 * 1e3);
        let ends = ends.split('T').next().unwrap_or_default();
        format!(
            "budget of {interface}{label}: {used} of {whole}/{period} used ({share} %), until \
             {ends} 00:00 UTC"
        )
    };
    status.budgets.iter().map(line).collect()
}

/// What does not work: a sentence for each thing, the most important first.
pub(crate) fn problems(status: &Status) -> Vec<String> {
    let mut found: Vec<String> = status.faults.iter().map(fault).collect();
    let more = status.fault_count.saturating_sub(status.faults.len() as u64);
    if more > 0 {
        found.push(format!("{more} more of the kind on this host"));
    }
    if status.local_addresses.is_empty() {
        found.push("no interface has an address that paths can start from".to_owned());
    }
    found.extend(status.peers.iter().filter_map(peer_problem));
    for peer in status.peers.iter().filter(|peer| peer.established && peer.paths.iter().any(works))
    {
        let failed = peer.paths.iter().filter(|path| path_state(path).0 == Condition::Wrong);
        found.extend(failed.map(|path| {
            format!(
                "{}: path {} by {} does not answer ({} to {})",
                peer.name,
                path.id,
                path.interface_name(),
                path.local.ip(),
                path.remote.ip()
            )
        }));
    }
    found
}

/// A fault of the host.
pub(crate) fn fault(fault: &FaultStatus) -> String {
    let FaultStatus { what, why, since_ms, attempts } = fault;
    let since = duration(Some(*since_ms));
    match attempts {
        0 => format!("{what}: {why}"),
        1 => format!("{what}: {why} (tried once, {since} ago)"),
        _ => format!("{what}: {why} (tried {attempts} times in {since})"),
    }
}

/// An event in one line, as short as people need it.
pub(crate) fn event(event: &Event) -> String {
    match &event.kind {
        EventKind::Path { peer, path, interface, from, to, reason, loss, .. } => {
            let figures = loss.map_or_else(String::new, |loss| {
                let (lost, threshold) = (percent(loss.loss), percent(loss.threshold));
                format!(": {lost} lost, threshold {threshold}")
            });
            format!("{peer}: path {path} by {interface}: {from} → {to} ({reason}{figures})")
        }
        // The messages mark names as in a document.
        _ => event.message.replace("peer `", "").replace('`', ""),
    }
}

/// Whether people want to see an event among others: not the end of a pair of addresses that never
/// answered, as [`paths_of`] does not list it.
pub(crate) fn matters(event: &Event) -> bool {
    !matches!(&event.kind, EventKind::Path { from, to, .. } if from == "validating" && to == "abandoned")
}

/// How good it is that something happened; none if that is neither.
pub(crate) fn event_condition(kind: &EventKind) -> Option<Condition> {
    use Condition::{Good, Spare, Wrong};
    match kind {
        EventKind::Established { .. } | EventKind::AddressAdded { .. } => Some(Good),
        EventKind::Lost { .. }
        | EventKind::HandshakeTimeout { .. }
        | EventKind::HandshakeRefused { .. }
        | EventKind::KeyChanged { .. } => Some(Wrong),
        EventKind::AddressRemoved { .. }
        | EventKind::PeerRestarted { .. }
        | EventKind::PlainSession { .. } => Some(Spare),
        EventKind::Path { to, .. } => match to.as_str() {
            "active" => Some(Good),
            "failed" => Some(Wrong),
            _ => Some(Spare),
        },
        EventKind::Budget { state, .. } => match state {
            BudgetState::Renewed => Some(Good),
            BudgetState::Warning | BudgetState::UsedUp => Some(Spare),
            BudgetState::Unknown => None,
        },
        EventKind::LeftOut { left_out, .. } => Some(if *left_out { Spare } else { Good }),
        EventKind::Traffic { to, .. } => match to.as_str() {
            "multipath" => Some(Good),
            "blocked" => Some(Wrong),
            _ => Some(Spare),
        },
        _ => None,
    }
}

/// Why a peer as a whole cannot be reached, and what becomes of its packets.
fn peer_problem(peer: &PeerStatus) -> Option<String> {
    let (condition, state) = peer_state(peer);
    if condition == Condition::Good {
        return None;
    }
    let packets = match peer.traffic.as_deref() {
        Some("plain") => ", its packets travel as plain IP",
        Some("blocked") => ", its packets are refused (policy require)",
        _ => "",
    };
    let why = match peer.established {
        true => "",
        false if peer.handshake_age_ms.is_some() => ": it does not answer any more",
        false => ": it has not answered yet",
    };
    Some(format!("{}: {state}{why}{packets}", peer.name))
}

/// The address of one end of a session, and its port unless the protocol has none (0).
pub(crate) fn end(address: SocketAddr) -> String {
    if address.port() == 0 { address.ip().to_string() } else { address.to_string() }
}

/// Packets of a session that waited to be put in order.
pub(crate) fn waited(session: &SessionStatus) -> u64 {
    session.waits.iter().map(|count| u64::from(*count)).sum()
}

/// The quantile `share` (0 to 1) of the time that they waited, ms, rounded up to the upper end of
/// its histogram bin, and at most the longest wait: the last bin has no upper end. `None` if none
/// waited.
pub(crate) fn wait_quantile(session: &SessionStatus, share: f64) -> Option<f64> {
    let total = waited(session);
    let mut seen = 0;
    for (bin, count) in session.waits.iter().enumerate() {
        seen += u64::from(*count);
        if total > 0 && seen as f64 >= share * total as f64 {
            let bound = (1_u64 << bin.min(63)) as f64 / 1e3;
            return Some(bound.min(session.longest_wait_ms));
        }
    }
    None
}

/// The name of an IP protocol, or its number.
pub(crate) fn protocol(number: u8) -> String {
    let name = match number {
        1 => "icmp",
        6 => "tcp",
        17 => "udp",
        47 => "gre",
        50 => "esp",
        51 => "ah",
        58 => "icmpv6",
        132 => "sctp",
        136 => "udplite",
        _ => return number.to_string(),
    };
    name.to_owned()
}
