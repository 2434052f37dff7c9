//! Connections: how many, and how long each may take.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;

use super::site::Site;
use crate::failure::Failure;

/// Connections at a time. Further ones wait until one is closed.
const CONNECTIONS: usize = 64;

/// Longest time until the head of a request has come, also of the next one on a connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of a connection's buffer, which is the longest head of a request.
const BUFFER: usize = 16 << 10;

/// Pause after a connection that could not be accepted: probably there are no file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves `site` on `listener` for as long as the process lives.
pub(super) fn run(listener: TcpListener, site: Arc<Site>) -> Result<(), Failure> {
    // One thread does it: pages are small, and what waits for the daemon has a thread of its own.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(accept(listener, site))
}

async fn accept(listener: TcpListener, site: Arc<Site>) -> Result<(), Failure> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let open = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let permit = Arc::clone(&open).acquire_owned().await?;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let site = Arc::clone(&site);
        tokio::spawn(async move {
            let _open = permit;
            let service = service_fn(|request| {
                let site = Arc::clone(&site);
                async move { Ok::<_, Infallible>(site.answer(request).await) }
            });
            // An error ends this connection only, and its client knows.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(BUFFER)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
