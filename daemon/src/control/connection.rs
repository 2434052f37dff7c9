//! One connection: requests in, answers out, in order.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use mpip_api::{Event, MAX_REQUEST, Request, RequestError, Response};

use super::{Ask, Asker, EVENTS_WAITING, IDLE_TIMEOUT};

/// How often a subscriber that hears nothing is looked after.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// Whether the connection goes on.
#[derive(PartialEq, Eq)]
enum Then {
    GoOn,
    Close,
}

/// Answers requests until the client closes, is silent for too long or breaks the protocol.
pub(super) fn serve(stream: UnixStream, asker: &Asker) {
    if stream.set_read_timeout(Some(IDLE_TIMEOUT)).is_err() {
        return;
    }
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        // One byte more than a request, and its newline.
        let limit = MAX_REQUEST as u64 + 2;
        let read = reader.by_ref().take(limit).read_until(b'\n', &mut line);
        if !read.is_ok_and(|len| len > 0) {
            return;
        }
        let whole = line.last() == Some(&b'\n');
        if whole {
            line.pop();
        }
        let then = match Request::parse(&line) {
            Ok(request) => handle(&mut reader, &request, asker),
            Err(error) => {
                let message = error.to_string();
                let sent = answer(reader.get_mut(), &Response::Error { message });
                // What follows a line that is too long is not a request.
                if sent && error != RequestError::TooLong { Then::GoOn } else { Then::Close }
            }
        };
        if then == Then::Close || !whole {
            return;
        }
    }
}

fn handle(reader: &mut BufReader<UnixStream>, request: &Request, asker: &Asker) -> Then {
    let stream = reader.get_mut();
    let sent = match request {
        Request::Status { sessions } => {
            let (reply, replies) = sync_channel(1);
            if !asker.ask(Ask::Status { sessions: *sessions, reply }) {
                return ending(stream);
            }
            let Ok(snapshot) = replies.recv() else {
                return ending(stream);
            };
            answer(stream, &Response::Status { status: Box::new(snapshot.into_status()) })
        }
        Request::Down => {
            let (done, waits) = sync_channel(1);
            let (has_answer, answered) = sync_channel(1);
            if !asker.ask(Ask::Down { done, answered }) {
                return ending(stream);
            }
            // An error means that the daemon ends without a word, which is an end too.
            let _ = waits.recv();
            let sent = answer(stream, &Response::Done);
            let _ = has_answer.send(());
            sent
        }
        Request::Availability => {
            let (reply, replies) = sync_channel(1);
            if !asker.ask(Ask::Availability { reply }) {
                return ending(stream);
            }
            let Ok(list) = replies.recv() else {
                return ending(stream);
            };
            let destinations = crate::snapshot::destinations(list);
            answer(stream, &Response::Availability { destinations })
        }
        Request::Events => {
            let (subscriber, events) = sync_channel(EVENTS_WAITING);
            if !asker.ask(Ask::Events { subscriber }) {
                return ending(stream);
            }
            if answer(stream, &Response::Done) {
                forward(stream, &events);
            }
            return Then::Close;
        }
    };
    if sent { Then::GoOn } else { Then::Close }
}

/// Writes events until the client or the daemon has enough.
fn forward(stream: &mut UnixStream, events: &Receiver<Arc<Event>>) {
    // Long enough for the kernel to say that nothing is there.
    if stream.set_read_timeout(Some(Duration::from_millis(1))).is_err() {
        return;
    }
    loop {
        let went = match events.recv_timeout(LOOK_AFTER) {
            Ok(event) => answer(stream, &Response::Event { event: (*event).clone() }),
            Err(RecvTimeoutError::Timeout) => is_open(stream),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if !went {
            return;
        }
    }
}

/// Whether the client is still there; what it writes is read and forgotten.
fn is_open(stream: &mut UnixStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(len) => len > 0,
        Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

fn ending(stream: &mut UnixStream) -> Then {
    answer(stream, &Response::Error { message: "the daemon is ending".to_owned() });
    Then::Close
}

/// Writes `response`; whether that succeeded.
pub(super) fn answer(stream: &mut UnixStream, response: &Response) -> bool {
    stream.write_all(response.to_line().as_bytes()).is_ok()
}
