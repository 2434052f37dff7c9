//! What is said, made of what the daemon says, without a look at anything else.

use std::fmt::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

use mpip_api::{Client, Event, PathStatus, PeerStatus, PlainSessionStatus, SessionStatus, Status};
use serde::Serialize;

use super::{interface, path, peer, session};
use crate::failure::Failure;
use crate::rates::Rates;
use crate::table::Colour;
use crate::units::unix_time;
use crate::words::{Condition, paths_of};

/// Time between the two samples from which rates are computed.
pub(super) const SAMPLE: Duration = Duration::from_millis(250);

/// What to explain.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// The path: its interface, that interface's label, or its number (default: all)
    pub(super) path: Option<String>,
    /// Paths of this peer only
    #[arg(long, value_name = "NAME")]
    pub(super) peer: Option<String>,
    /// Sessions too: where their packets go, and what their order costs
    #[arg(long)]
    pub(super) sessions: bool,
    /// Again each second, until interrupted; where the output is no terminal, only what has another
    /// cause than before
    #[arg(long)]
    pub(super) watch: bool,
    /// Print a JSON object, with --watch one in each line
    #[arg(long)]
    pub(super) json: bool,
}

/// What the daemon says at one moment.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) status: Status,
    /// The rates since a moment before.
    pub(super) rates: Rates,
    /// The latest events, the newest first.
    pub(super) events: Vec<Event>,
    /// Milliseconds since 1970-01-01 UTC.
    pub(super) unix_ms: f64,
}

/// A sentence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Said<C> {
    #[serde(flatten)]
    pub(super) cause: C,
    /// `good`, `spare` (not used, or less than it could be; nothing has to be done) or `wrong`.
    pub(super) condition: &'static str,
    /// What it is, and why, with figures.
    pub(super) why: String,
    /// What would change it.
    pub(super) change: Option<String>,
}

impl<C> Said<C> {
    /// `subject` and why, and what would change it.
    pub(super) fn new(
        cause: C,
        condition: Condition,
        subject: &str,
        why: &str,
        change: Option<String>,
    ) -> Self {
        Self { cause, condition: condition.name(), why: format!("{subject} {why}"), change }
    }

    /// The sentence, with its first `subject` characters in the colour of its condition.
    pub(super) fn line(&self, subject: &str, colours: bool) -> String {
        let colour = match self.condition {
            "good" => Colour::Green,
            "wrong" => Colour::Red,
            _ => Colour::Yellow,
        };
        let painted = match self.why.strip_prefix(subject) {
            Some(rest) => format!("{}{rest}", colour.paint(subject, colours)),
            None => self.why.clone(),
        };
        match &self.change {
            Some(change) => format!("{painted}; {change}"),
            None => painted,
        }
    }
}

/// What was asked, explained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Explanation {
    pub(super) peers: Vec<PeerExplained>,
    /// Interfaces that have no path.
    pub(super) interfaces: Vec<InterfaceExplained>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PeerExplained {
    pub(super) peer: String,
    #[serde(flatten)]
    pub(super) said: Said<peer::Cause>,
    /// How packets travel in host mode.
    pub(super) traffic: Option<Said<peer::Traffic>>,
    pub(super) paths: Vec<PathExplained>,
    /// Pairs of addresses that never answered and are not listed.
    pub(super) unanswered_pairs: usize,
    /// If they were asked for.
    pub(super) sessions: Option<Vec<SessionExplained>>,
    /// Those that are plain IP although paths work, if they were asked for.
    pub(super) plain_sessions: Option<Vec<PlainExplained>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PathExplained {
    pub(super) path: u16,
    pub(super) interface: String,
    /// What users call the interface.
    pub(super) label: Option<String>,
    /// With its interface and label.
    #[serde(skip)]
    pub(super) name: String,
    pub(super) local: String,
    pub(super) remote: String,
    /// Whether it carries data now.
    pub(super) used: bool,
    #[serde(flatten)]
    pub(super) said: Said<path::Cause>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct InterfaceExplained {
    pub(super) interface: String,
    #[serde(flatten)]
    pub(super) said: Said<interface::Cause>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct SessionExplained {
    #[serde(flatten)]
    pub(super) facts: session::Facts,
    pub(super) why: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PlainExplained {
    #[serde(flatten)]
    pub(super) facts: session::Plain,
    pub(super) why: String,
}

/// What a path is called: with its interface, and the label if there is one.
fn subject(path: &PathStatus) -> String {
    match &path.label {
        Some(label) => format!("{} ({label}, path {})", path.interface, path.id),
        None => format!("{} (path {})", path.interface, path.id),
    }
}

/// Looks twice, for the rates in between.
pub(super) fn look(socket: &Path, sessions: bool) -> Result<View, Failure> {
    let mut client = Client::connect(socket)?;
    let first = client.status(false)?;
    thread::sleep(SAMPLE);
    let status = client.status(sessions)?;
    let events = client.recent_events()?.into_iter().rev().collect();
    let rates = Rates::between(&first, &status);
    Ok(View { status, rates, events, unix_ms: now_ms() })
}

pub(super) fn now_ms() -> f64 {
    unix_time() as f64 * 1e3
}

/// What `options` ask about `view`.
///
/// # Errors
///
/// When there is no such peer or path.
pub(super) fn explain(view: &View, options: &Options) -> Result<Explanation, Failure> {
    let View { status, events, unix_ms, .. } = view;
    let chosen = |peer: &&PeerStatus| options.peer.as_ref().is_none_or(|name| *name == peer.name);
    let peers: Vec<&PeerStatus> = status.peers.iter().filter(chosen).collect();
    if let (Some(name), true) = (&options.peer, peers.is_empty()) {
        let names = status.peers.iter().map(|peer| peer.name.as_str());
        return Err(expected("--peer: expected the name of a peer", name, names));
    }
    let wanted = options.path.as_deref();
    let mut interfaces = interface::without_paths(status, &peers, events, *unix_ms);
    interfaces.retain(|(interface, _)| wanted.is_none_or(|wanted| wanted == interface));
    let mut explained: Vec<_> = peers.iter().map(|peer| of_peer(view, peer, options)).collect();
    if let Some(wanted) = wanted {
        explained.retain(|peer| !peer.paths.is_empty());
        if explained.is_empty() && interfaces.is_empty() {
            let paths = peers.iter().flat_map(|peer| paths_of(peer).0);
            let names = paths.map(subject);
            let what = "PATH: expected the interface or the number of a path";
            return Err(expected(what, wanted, names));
        }
    }
    let interfaces = interfaces.into_iter().map(|(interface, cause)| {
        let (why, change) = (cause.why(), Some(cause.change(&interface)));
        let said = Said::new(cause, Condition::Spare, &interface, &why, change);
        InterfaceExplained { interface, said }
    });
    Ok(Explanation { peers: explained, interfaces: interfaces.collect() })
}

fn expected<T: ToString>(what: &str, found: &str, names: impl Iterator<Item = T>) -> Failure {
    let names: Vec<String> = names.map(|name| name.to_string()).collect();
    let there = if names.is_empty() {
        "there are none".to_owned()
    } else {
        format!("there are {}", names.join(", "))
    };
    Failure(format!("{what}, found `{found}`; {there}"))
}

fn of_peer(view: &View, peer: &PeerStatus, options: &Options) -> PeerExplained {
    let now = |path: &PathStatus| view.rates.of(&peer.name, path.id).unwrap_or_default();
    let (carried, received) = peer.paths.iter().map(now).fold((0_u64, 0_u64), |sums, rate| {
        (sums.0.saturating_add(rate.carried_bps), sums.1.saturating_add(rate.received_bps))
    });
    let (paths, unanswered_pairs) = match options.path.as_deref() {
        None => paths_of(peer),
        Some(wanted) => named(peer, wanted),
    };
    let listed: Vec<u16> = paths.iter().map(|path| path.id).collect();
    let paths = paths.into_iter().map(|path| {
        let off = view.status.interfaces_off.contains(&path.interface);
        let budget = view.status.budgets.iter().find(|budget| budget.interface == path.interface);
        let cause = path::Cause::of(peer, path, now(path), carried, off, budget);
        let (why, change) = (cause.why(path), Some(cause.change(path)));
        let name = subject(path);
        PathExplained {
            path: path.id,
            interface: path.interface.clone(),
            label: path.label.clone(),
            local: path.local.to_string(),
            remote: path.remote.to_string(),
            used: cause.is_used(),
            said: Said::new(cause.clone(), cause.condition(), &name, &why, change),
            name,
        }
    });
    let cause = peer::Cause::of(&view.status, peer, carried, received);
    let (why, change) = (cause.why(), cause.change());
    let traffic = peer::Traffic::of(peer).map(|traffic| {
        let (why, change) = (traffic.why(), traffic.change());
        let condition = traffic.condition();
        Said::new(traffic, condition, "host mode:", &why, change)
    });
    let uses = |session: &&SessionStatus| {
        options.path.is_none() || session.paths.iter().any(|path| listed.contains(path))
    };
    let sessions = peer.sessions.iter().filter(uses).map(|session| {
        let facts = session::Facts::of(peer, session);
        SessionExplained { why: facts.sentence(), facts }
    });
    PeerExplained {
        peer: peer.name.clone(),
        said: Said::new(cause.clone(), cause.condition(), &peer.name, &why, change),
        traffic,
        paths: paths.collect(),
        unanswered_pairs,
        sessions: options.sessions.then(|| sessions.collect()),
        plain_sessions: match (options.sessions, &options.path) {
            (true, None) => Some(peer.plain_sessions.iter().map(plain_explained).collect()),
            _ => None,
        },
    }
}

fn plain_explained(session: &PlainSessionStatus) -> PlainExplained {
    let facts = session::Plain::of(session);
    PlainExplained { why: facts.sentence(), facts }
}

/// The paths by the interface `wanted`, or with this label, and how many pairs of its addresses
/// never answered and are not among them; or else the path with this number.
fn named<'a>(peer: &'a PeerStatus, wanted: &str) -> (Vec<&'a PathStatus>, usize) {
    let by = |path: &&PathStatus| path.interface == wanted || path.label.as_deref() == Some(wanted);
    let all = peer.paths.iter().filter(by).count();
    if all > 0 {
        let shown: Vec<_> = paths_of(peer).0.into_iter().filter(by).collect();
        let others = all - shown.len();
        return (shown, others);
    }
    (peer.paths.iter().filter(|path| wanted.parse() == Ok(path.id)).collect(), 0)
}

/// The explanation as text.
pub(super) fn render(explained: &Explanation, colours: bool) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    for (index, peer) in explained.peers.iter().enumerate() {
        let _ = writeln!(
            out,
            "{}{}",
            if index > 0 { "\n" } else { "" },
            peer.said.line(&peer.peer, colours)
        );
        if let Some(traffic) = &peer.traffic {
            let _ = writeln!(out, "  {}", traffic.line("host mode:", colours));
        }
        for path in &peer.paths {
            let _ = writeln!(out, "  {}", path.said.line(&path.name, colours));
        }
        if peer.unanswered_pairs > 0 {
            let _ = writeln!(
                out,
                "  and {} pairs of addresses that gave no answer (`mpip status --verbose` lists \
                 them, `mpip explain NUMBER` explains one)",
                peer.unanswered_pairs
            );
        }
        for session in peer.sessions.iter().flatten() {
            let _ = writeln!(out, "  {}", session.why);
        }
        for session in peer.plain_sessions.iter().flatten() {
            let _ = writeln!(out, "  {}", session.why);
        }
    }
    if explained.peers.is_empty() && explained.interfaces.is_empty() {
        out.push_str("no peers\n");
    } else if !explained.peers.is_empty() && !explained.interfaces.is_empty() {
        out.push('\n');
    }
    for InterfaceExplained { interface, said } in &explained.interfaces {
        let _ = writeln!(out, "{}", said.line(interface, colours));
    }
    out
}
