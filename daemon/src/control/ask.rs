//! Requests of connections to the thread that owns the engine.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpip_api::{Event, Overrides, ReloadReport};
use mpip_core::packet::SessionKey;
use mpip_core::{AvailabilityStatus, PathAddress, PeerConfig};

use crate::config::{self, RuleList, Settings};
use crate::joined::{Job, Terms};
use crate::snapshot::Snapshot;

/// Why there is no answer.
pub(crate) const ENDING: &str = "the daemon is ending";

/// Why nobody can be invited.
const NO_GATEWAY: &str = "this node invites nobody: add a [gateway] section to its configuration \
                          and restart it, or make one with `mpip init`";

/// A request to the thread that owns the engine.
#[derive(Debug)]
pub enum Ask {
    /// The daemon's statistics.
    Status {
        /// Whether to list sessions.
        sessions: bool,
        /// Where the answer goes.
        reply: SyncSender<Box<Snapshot>>,
    },
    /// Shut down.
    Down {
        /// Signalled when device and routes are removed.
        done: SyncSender<()>,
        /// Receives or disconnects when the client has its answer, so that the process may exit.
        answered: Receiver<()>,
    },
    /// Every event from now on, until the receiver is dropped or full.
    Events {
        /// Where events go.
        subscriber: SyncSender<Arc<Event>>,
    },
    /// The latest events.
    RecentEvents {
        /// Where the answer goes.
        reply: SyncSender<Vec<Arc<Event>>>,
    },
    /// What is known of the destinations that the host talks to.
    Availability {
        /// Where the answer goes.
        reply: SyncSender<Vec<AvailabilityStatus>>,
    },
    /// Not a request: add a peer that joined, or remove one.
    Peer {
        /// What is to be done.
        change: PeerChange,
        /// Told when it is done.
        done: SyncSender<()>,
    },
    /// Not a request: a datagram of the thread that keeps the peers that joined.
    Send {
        /// Where it goes.
        to: PathAddress,
        /// The datagram.
        datagram: Vec<u8>,
    },
    /// Apply what the configuration file says now.
    Reload {
        /// What it says.
        settings: Box<Settings>,
        /// Where the report goes, or why nothing was changed.
        reply: SyncSender<Result<ReloadReport, String>>,
    },
    /// Change settings for the time being.
    Set {
        /// What to change.
        change: Set,
        /// Where the result goes, or why nothing was changed.
        reply: SyncSender<Result<(), String>>,
    },
    /// What was set for the time being.
    Overrides {
        /// Where the answer goes: the configuration file and what was set.
        reply: SyncSender<(String, Overrides)>,
    },
    /// The rules in force.
    Rules {
        /// Where the answer goes.
        reply: SyncSender<RuleList>,
    },
    /// Not a request: the name of the peer whose packets may come from an address.
    PeerAt {
        /// The address.
        address: IpAddr,
        /// Where the answer goes.
        reply: SyncSender<Option<String>>,
    },
    /// Not a request: the interface behind which the host with an address is, as rules match it.
    InterfaceAt {
        /// The address.
        address: IpAddr,
        /// Where the answer goes.
        reply: SyncSender<Option<String>>,
    },
    /// Not a request: which paths a packet would take now.
    Way {
        /// Where it goes.
        address: IpAddr,
        /// The number in the table of the rule that decides about it, from 1 on.
        rule: Option<u64>,
        /// Bytes of it.
        length: usize,
        /// Where the answer goes; `None` if the address is no peer's.
        reply: SyncSender<Option<mpip_core::Way>>,
    },
    /// Not a request: what this host sends in `session` takes one path, or any again.
    Confine {
        /// The session.
        session: SessionKey,
        /// The path.
        path: Option<u16>,
    },
    /// Not a request: destinations that the host talks to.
    Destinations {
        /// Pairs of an address of this host and the address that it talks to.
        list: Vec<(IpAddr, IpAddr)>,
    },
}

/// A change of the peers that joined.
#[derive(Clone, Debug)]
pub enum PeerChange {
    /// A peer has joined.
    Add(Box<PeerConfig>),
    /// The peer with this name was removed.
    Remove(String),
}

/// What to change for the time being.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    /// Settings of a peer.
    Peer {
        /// Its name.
        name: String,
        /// Keys and values.
        settings: BTreeMap<String, String>,
    },
    /// The state and settings of an interface.
    Path {
        /// The interface.
        interface: String,
        /// The name of the state, if it is to change.
        state: Option<String>,
        /// Keys and values.
        settings: BTreeMap<String, String>,
        /// For how long the state holds, s; `None` until the next reload.
        for_s: Option<u64>,
    },
    /// A rule that is new.
    AddRule {
        /// Its number; `None` for the end of the table.
        at: Option<u64>,
        /// Keys and values.
        settings: BTreeMap<String, String>,
    },
    /// A rule that goes.
    RemoveRule {
        /// Its number or name.
        rule: String,
    },
}

/// Sends requests to the thread that owns the engine, and to the one that keeps the peers that
/// joined.
#[derive(Clone)]
pub struct Asker {
    asks: Sender<Ask>,
    wake: Arc<dyn Fn() + Send + Sync>,
    jobs: Option<SyncSender<Job>>,
    /// The configuration file. One thread at a time reads it, so that the newest is applied last.
    file: Arc<Mutex<PathBuf>>,
}

impl Asker {
    /// Sends to `asks` and calls `wake` after each request.
    pub fn new(asks: Sender<Ask>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { asks, wake: Arc::new(wake), jobs: None, file: Arc::default() }
    }

    /// Sends jobs to `jobs`, too.
    pub(crate) fn with_jobs(self, jobs: SyncSender<Job>) -> Self {
        Self { jobs: Some(jobs), ..self }
    }

    /// The answer of the thread that keeps the peers that joined, to the job that `job` makes.
    pub(crate) fn job<T>(&self, job: impl FnOnce(SyncSender<T>) -> Job) -> Result<T, String> {
        let Some(jobs) = &self.jobs else { return Err(NO_GATEWAY.to_owned()) };
        let (reply, replies) = sync_channel(1);
        let sent = jobs.send(job(reply)).is_ok();
        let answer = replies.recv().ok().filter(|_| sent);
        answer.ok_or_else(|| ENDING.to_owned())
    }

    /// Nobody reads the configuration, or what it names, as long as this lives.
    pub(crate) fn alone(&self) -> MutexGuard<'_, PathBuf> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// [`reload`](Self::reload) reads `file`.
    pub fn with_config(self, file: PathBuf) -> Self {
        Self { file: Arc::new(Mutex::new(file)), ..self }
    }

    /// Reads the configuration file on this thread and has it applied.
    ///
    /// # Errors
    ///
    /// Why nothing was changed, in one or more lines.
    pub fn reload(&self) -> Result<ReloadReport, String> {
        let mut terms = None;
        let result = self.load_and_ask(&self.alone(), &mut terms);
        if let Err(reason) = &result {
            // One record, so that none of its lines is left out as a repetition.
            log::error!("reload: {}", reason.trim_end().replace('\n', "\nreload: "));
        }
        if let (Ok(_), Some(jobs), Some(terms)) = (&result, &self.jobs, terms) {
            let _ = jobs.send(Job::Follow { terms: Box::new(terms) });
        }
        result
    }

    fn load_and_ask(&self, file: &Path, terms: &mut Option<Terms>) -> Result<ReloadReport, String> {
        let settings =
            config::load(file).map_err(|error| format!("nothing is changed:\n{error}"))?;
        *terms = settings.gateway.as_ref().map(|gateway| gateway.terms.clone());
        let answer = self.answer(|reply| Ask::Reload { settings: Box::new(settings), reply });
        answer.unwrap_or_else(|| Err(ENDING.to_owned()))
    }

    /// The engine's answer to what `ask` makes; `None` if the daemon is ending.
    pub(crate) fn answer<T>(&self, ask: impl FnOnce(SyncSender<T>) -> Ask) -> Option<T> {
        let (reply, replies) = sync_channel(1);
        // Without a receiver of the request, the reply's sender is gone too.
        self.ask(ask(reply));
        replies.recv().ok()
    }

    /// Sends `ask`. Returns whether the engine's thread still runs.
    pub(crate) fn ask(&self, ask: Ask) -> bool {
        let sent = self.asks.send(ask).is_ok();
        (self.wake)();
        sent
    }
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").finish_non_exhaustive()
    }
}
