//! The control socket: its file, and the threads that serve it.
//!
//! A connection has a thread, which reads requests and hands each to the thread that owns the
//! engine as an [`Ask`]. Nothing that a client does makes that thread wait.

mod connection;
mod socket;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender};
use std::thread;
use std::time::Duration;

use mpip_api::{Event, Response};
use mpip_core::AvailabilityStatus;

use crate::snapshot::Snapshot;

pub(crate) use socket::NEW_SUFFIX;
pub use socket::Socket;
pub(crate) use socket::remove_stale;

/// Most connections at a time; further ones are told so and closed.
const CONNECTIONS_MAX: usize = 32;

/// How long a client may take to read an answer before its connection is closed.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may be silent between requests.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Events that wait for a slow subscriber; beyond it the subscription ends.
const EVENTS_WAITING: usize = 1024;

/// What a connection asks of the thread that owns the engine.
#[derive(Debug)]
pub enum Ask {
    /// The state of everything.
    Status {
        /// With the list of sessions.
        sessions: bool,
        /// Where the answer goes.
        reply: SyncSender<Box<Snapshot>>,
    },
    /// End.
    Down {
        /// To be told when everything is gone.
        done: SyncSender<()>,
        /// Tells, or hangs up, when the client has its answer and the process may end.
        answered: Receiver<()>,
    },
    /// Every event from now on, until the receiver is gone or full.
    Events {
        /// Where events go.
        subscriber: SyncSender<Arc<Event>>,
    },
    /// What is known of the destinations that the host talks to.
    Availability {
        /// Where the answer goes.
        reply: SyncSender<Vec<AvailabilityStatus>>,
    },
    /// No question: the host talks from the first to the second of each pair.
    Destinations {
        /// The host's addresses and those of the other hosts.
        list: Vec<(IpAddr, IpAddr)>,
    },
}

/// How connections reach the thread that owns the engine.
#[derive(Clone)]
pub struct Asker {
    asks: Sender<Ask>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Asker {
    /// Sends to `asks` and calls `wake` after each.
    pub fn new(asks: Sender<Ask>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { asks, wake: Arc::new(wake) }
    }

    /// Whether somebody will answer.
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

/// Why there is no control socket.
#[derive(Debug)]
pub enum ControlError {
    /// Another daemon answers on it.
    AlreadyRunning(PathBuf),
    /// There is something else of that name.
    NotASocket(PathBuf),
    /// A step failed.
    Failed {
        /// What was to be done.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyRunning(path) => write!(
                f,
                "already running: another mpipd answers on the control socket `{}`",
                path.display()
            ),
            Self::NotASocket(path) => write!(
                f,
                "control socket: expected a socket or nothing at `{}`, found another file",
                path.display()
            ),
            Self::Failed { operation, path, error } => {
                write!(f, "control socket: cannot {operation} `{}`: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed { error, .. } => Some(error),
            Self::AlreadyRunning(_) | Self::NotASocket(_) => None,
        }
    }
}

/// Serves `socket` on threads of its own for as long as the process lives.
pub fn serve(socket: &Socket, asker: Asker) -> io::Result<()> {
    let listener = socket.listener().try_clone()?;
    let open = Arc::new(AtomicUsize::new(0));
    thread::Builder::new().name("control".to_owned()).spawn(move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => accept(stream, &open, &asker),
                Err(error) => {
                    log::warn!("control socket: accept: {error}");
                    // Out of descriptors, most likely: trying at once would fail again.
                    thread::sleep(Duration::from_millis(100));
                }
            }
        }
    })?;
    Ok(())
}

fn accept(mut stream: UnixStream, open: &Arc<AtomicUsize>, asker: &Asker) {
    /// Counts a connection out when its thread ends, however it ends.
    struct Open(Arc<AtomicUsize>);
    impl Drop for Open {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    let before = open.fetch_add(1, Ordering::Relaxed);
    let counted = Open(Arc::clone(open));
    let _ = stream.set_write_timeout(Some(WRITE_TIMEOUT));
    if before >= CONNECTIONS_MAX {
        let message = format!("expected at most {CONNECTIONS_MAX} connections at a time");
        connection::answer(&mut stream, &Response::Error { message });
        return;
    }
    let asker = asker.clone();
    let spawned = thread::Builder::new().name("control".to_owned()).spawn(move || {
        let _counted = counted;
        connection::serve(stream, &asker);
    });
    if let Err(error) = spawned {
        log::warn!("control socket: no thread for a connection: {error}");
    }
}

#[cfg(test)]
mod tests;
