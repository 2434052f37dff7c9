//! The control socket: its file, and the threads that serve it.
//!
//! Each connection has a thread (`connection`), which reads requests and hands each to the thread
//! that owns the engine as an [`Ask`] (`ask`). That thread never waits for a client. This file
//! accepts connections on the [`Socket`] (`socket`).

mod ask;
mod confined;
mod connection;
mod socket;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use mpip_api::Response;

pub(crate) use ask::ENDING;
pub use ask::{Ask, Asker, PeerChange, Set};
pub(crate) use confined::Confined;
pub use socket::ControlError;
pub(crate) use socket::NEW_SUFFIX;
pub use socket::Socket;
pub(crate) use socket::remove_stale;

/// Most connections at a time. Further ones get an error and are closed.
const CONNECTIONS_MAX: usize = 32;

/// Longest time to write an answer. The connection of a client that does not read is closed then.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

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
                    // Probably out of file descriptors: to retry at once would fail again.
                    thread::sleep(Duration::from_millis(100));
                }
            }
        }
    })?;
    Ok(())
}

fn accept(mut stream: UnixStream, open: &Arc<AtomicUsize>, asker: &Asker) {
    /// Counts down when the thread of a connection ends.
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
