//! Requests of connections to the thread that owns the engine.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};

use mpip_api::Event;
use mpip_core::{AvailabilityStatus, PathAddress, PeerConfig};

use crate::joined::Job;
use crate::snapshot::Snapshot;

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

/// Sends requests to the thread that owns the engine, and to the one that keeps the peers that
/// joined.
#[derive(Clone)]
pub struct Asker {
    asks: Sender<Ask>,
    wake: Arc<dyn Fn() + Send + Sync>,
    jobs: Option<SyncSender<Job>>,
}

impl Asker {
    /// Sends to `asks` and calls `wake` after each request.
    pub fn new(asks: Sender<Ask>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { asks, wake: Arc::new(wake), jobs: None }
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
        answer.ok_or_else(|| "the daemon is ending".to_owned())
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
