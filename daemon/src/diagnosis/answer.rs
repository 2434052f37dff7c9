//! The peer's side: answers what comes through the tunnel.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use mpip_api::{DIAGNOSIS_PORT, Direction, PeerView};
use mpip_core::{Bucket, Rate};
use mpip_net::{clock, stream};

use super::message::{self, Request, Response};
use super::{BYTES_MAX, DURATION_MAX, Permits, load, packets_cpu};
use crate::control::{Ask, Asker, Confined, ENDING};
use crate::snapshot::ms;

/// Most connections at a time; further ones are closed.
const CONNECTIONS_MAX: usize = 4;
/// Rate limit of connections: each asks for all peers' statistics.
const CONNECTIONS: Rate = Rate { burst: 64, per_second: 4 };
/// Longest time that a line may take.
const LINE_TIMEOUT: Duration = Duration::from_secs(5);
/// How much longer than agreed data may come or go: the asker ends a measurement.
const GRACE: Duration = Duration::from_secs(1);
/// How long the asker may take to close its end.
const CLOSING: Duration = Duration::from_secs(10);

/// How long a measurement waits for the end of another one: the end of the asker's last one may
/// travel on a slower path than the beginning of its next one.
const PATIENCE: Duration = Duration::from_secs(2);
const TURN_INTERVAL: Duration = Duration::from_millis(5);

/// What all connections share.
struct Service {
    asker: Asker,
    permits: Permits,
    open: AtomicUsize,
    /// Whether somebody measures, and how long others wait for that.
    busy: AtomicBool,
    patience: Duration,
}

/// Answers peers on threads of its own, through the TUN device `interface`, for as long as the
/// process lives.
pub(crate) fn serve(interface: &str, permits: Permits, asker: Asker) -> io::Result<()> {
    let listener = stream::listen(interface, DIAGNOSIS_PORT)?;
    let (open, busy) = (AtomicUsize::new(0), AtomicBool::new(false));
    let service = Arc::new(Service { asker, permits, open, busy, patience: PATIENCE });
    thread::Builder::new()
        .name("diagnosis".to_owned())
        .spawn(move || accept(&listener, &service))?;
    Ok(())
}

fn accept(listener: &TcpListener, service: &Arc<Service>) {
    let mut bucket = Bucket::new();
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                log::debug!("diagnosis: accept: {error}");
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if service.open.load(Ordering::Relaxed) >= CONNECTIONS_MAX
            || !bucket.take(clock::now(), CONNECTIONS)
        {
            continue;
        }
        let counted = Counted::new(service);
        let spawned = thread::Builder::new().name("diagnosis".to_owned()).spawn(move || {
            // The other end has its reason, or is gone.
            if let Err(error) = answer(&stream, &counted.0) {
                log::debug!("diagnosis: {error}");
            }
        });
        if let Err(error) = spawned {
            log::warn!("diagnosis: no thread for a connection: {error}");
        }
    }
}

/// A connection, counted for as long as this lives.
struct Counted(Arc<Service>);

impl Counted {
    fn new(service: &Arc<Service>) -> Self {
        service.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(service))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to measure: one at a time.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn answer(stream: &TcpStream, service: &Service) -> io::Result<()> {
    stream.set_read_timeout(Some(LINE_TIMEOUT))?;
    stream.set_write_timeout(Some(LINE_TIMEOUT))?;
    let from = stream.peer_addr()?.ip().to_canonical();
    let refused = |message: String| message::write(stream, &Response::Error { message });
    let request = match message::read(stream) {
        Ok(request) => request,
        Err(error) => return refused(error.to_string()),
    };
    // What a program of this host sends to an address of the device reaches it, too.
    let known = service.asker.answer(|reply| Ask::PeerAt { address: from, reply });
    let Some(peer) = known.flatten() else {
        return refused(format!("the address {from} belongs to no peer of that node"));
    };
    match request {
        Request::View => match view(service, &peer) {
            Ok(view) => message::write(stream, &Response::View { view: Box::new(view) }),
            Err(reason) => refused(reason),
        },
        Request::Bench { direction, path, duration_ms, max_bytes } => {
            let limit = Duration::from_millis(duration_ms);
            let turn = match may_measure(service, limit, max_bytes) {
                Ok(turn) => turn,
                Err(reason) => return refused(reason),
            };
            let _turn = turn;
            let sends = direction == Direction::Receive;
            let path = path.filter(|_| sends);
            let _confined = Confined::new(&service.asker, stream, path)?;
            message::write(stream, &Response::Ready)?;
            match sends {
                true => send(stream, limit, max_bytes),
                false => receive(stream, limit),
            }
        }
    }
}

fn view(service: &Service, name: &str) -> Result<PeerView, String> {
    if !service.permits.view {
        return Err("the peer tells nothing: `answer` is off in its section [diagnosis]".to_owned());
    }
    let status = service.asker.answer(|reply| Ask::Status { sessions: false, reply });
    let status = status.ok_or(ENDING)?.into_status();
    let association = status.peers.into_iter().find(|peer| peer.name == name);
    Ok(PeerView {
        daemon_version: status.daemon_version,
        unix_time_ms: ms(clock::unix_time()),
        cpu_ms: packets_cpu().map(ms),
        association: association.ok_or(ENDING)?,
        local_addresses: status.local_addresses,
        fault_count: status.fault_count,
    })
}

fn may_measure(service: &Service, limit: Duration, max: u64) -> Result<Turn<'_>, String> {
    if !service.permits.bench {
        return Err("the peer permits no measurements: `bench` is off in its section [diagnosis]"
            .to_owned());
    }
    if limit > DURATION_MAX || max > BYTES_MAX {
        return Err(format!(
            "expected a measurement of at most {} ms and {BYTES_MAX} bytes, found {} ms and {max} bytes",
            DURATION_MAX.as_millis(),
            limit.as_millis()
        ));
    }
    let start = clock::now();
    while service.busy.swap(true, Ordering::Acquire) {
        if clock::now().since(start) >= service.patience {
            return Err(
                "another measurement with that node is under way: try again later".to_owned()
            );
        }
        thread::sleep(TURN_INTERVAL);
    }
    Ok(Turn(&service.busy))
}

/// The asker ends it, or this end does a little later.
fn send(stream: &TcpStream, limit: Duration, max: u64) -> io::Result<()> {
    let sent = load::send(stream, limit + GRACE, max, |_| true);
    if sent < max {
        return stream::end_at_once(stream);
    }
    stream.shutdown(Shutdown::Write)?;
    load::receive(stream, CLOSING, |_| true);
    Ok(())
}

fn receive(stream: &TcpStream, limit: Duration) -> io::Result<()> {
    let measured = load::receive(stream, limit, |_| true).measured();
    message::write(stream, &Response::Received(measured))?;
    // To close now would throw the answer away, because data are unread.
    load::receive(stream, GRACE, |_| true);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn service(permits: Permits) -> Service {
        let asker = Asker::new(channel().0, || {});
        let (open, busy) = (AtomicUsize::new(0), AtomicBool::new(false));
        Service { asker, permits, open, busy, patience: Duration::ZERO }
    }

    /// `[D-3]`
    #[test]
    fn one_measures_at_a_time_within_the_bounds_and_if_it_may() {
        let (service, second) = (service(Permits::default()), Duration::from_secs(1));
        let refused = |limit, max| may_measure(&service, limit, max).err();
        let turn = may_measure(&service, DURATION_MAX, BYTES_MAX).expect("free");
        assert!(refused(second, 1).is_some_and(|reason| reason.contains("under way")));
        drop(turn);
        assert!(refused(second, 1).is_none(), "free again");
        assert!(refused(second * 11, 1).is_some_and(|reason| reason.contains("found 11000 ms")));
        assert!(refused(second, BYTES_MAX + 1).is_some_and(|reason| reason.contains("4000000001")));
        let silent = self::service(Permits::NOTHING);
        let reason = may_measure(&silent, second, 1).err().expect("refused");
        assert!(reason.contains("`bench` is off"), "{reason}");
        let reason = view(&silent, "b").expect_err("refused");
        assert!(reason.contains("`answer` is off"), "{reason}");
    }
}
