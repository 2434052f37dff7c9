//! Requests of connections to the thread that owns the engine.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender};

use mpip_api::Event;
use mpip_core::AvailabilityStatus;

use crate::snapshot::Snapshot;

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
    /// Not a request: destinations that the host talks to.
    Destinations {
        /// Pairs of an address of this host and the address that it talks to.
        list: Vec<(IpAddr, IpAddr)>,
    },
}

/// Sends requests to the thread that owns the engine.
#[derive(Clone)]
pub struct Asker {
    asks: Sender<Ask>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Asker {
    /// Sends to `asks` and calls `wake` after each request.
    pub fn new(asks: Sender<Ask>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { asks, wake: Arc::new(wake) }
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
