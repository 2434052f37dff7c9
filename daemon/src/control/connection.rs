//! One connection: reads requests and writes the answers in order.

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::RangeInclusive;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use mpip_api::{Event, MAX_REQUEST, Request, RequestError, Response, RuleTest};

use mpip_core::PrefixError;
use mpip_core::rules::Origin;

use super::ask::{Ask, Asker, ENDING, Set};
use crate::config::is_visible_name;
use crate::diagnosis;
use crate::joined::{Job, Wish};
use crate::rules::{self, Packet};

/// Longest silence between requests before the connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Most events queued for a slow subscriber. When more come, the subscription ends.
const EVENTS_MAX: usize = 1024;

/// Without events, interval at which to check whether the subscriber is still connected.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Whether the connection goes on.
#[derive(PartialEq, Eq)]
enum Next {
    Continue,
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
        // The newline, and one byte more, which shows that a request is too long.
        let limit = MAX_REQUEST as u64 + 2;
        let read = reader.by_ref().take(limit).read_until(b'\n', &mut line);
        if !read.is_ok_and(|len| len > 0) {
            return;
        }
        let whole = line.last() == Some(&b'\n');
        if whole {
            line.pop();
        }
        let next = match Request::parse(&line) {
            Ok(request) => handle(&mut reader, &request, asker),
            Err(error) => {
                let message = error.to_string();
                let sent = answer(reader.get_mut(), &Response::Error { message });
                // What follows a line that is too long is not a request.
                if sent && error != RequestError::TooLong { Next::Continue } else { Next::Close }
            }
        };
        if next == Next::Close || !whole {
            return;
        }
    }
}

fn handle(reader: &mut BufReader<UnixStream>, request: &Request, asker: &Asker) -> Next {
    let stream = reader.get_mut();
    let sent = match request {
        Request::Status { sessions } => {
            let asked = asker.answer(|reply| Ask::Status { sessions: *sessions, reply });
            let Some(snapshot) = asked else { return ending(stream) };
            answer(stream, &Response::Status { status: Box::new(snapshot.into_status()) })
        }
        Request::Down => {
            let (done, waits) = sync_channel(1);
            let (has_answer, answered) = sync_channel(1);
            if !asker.ask(Ask::Down { done, answered }) {
                return ending(stream);
            }
            // An error means that the daemon has ended.
            let _ = waits.recv();
            let sent = answer(stream, &Response::Done);
            let _ = has_answer.send(());
            sent
        }
        Request::Availability => {
            let asked = asker.answer(|reply| Ask::Availability { reply });
            let Some(list) = asked else { return ending(stream) };
            let destinations = crate::snapshot::destinations(list);
            answer(stream, &Response::Availability { destinations })
        }
        Request::RecentEvents => {
            let asked = asker.answer(|reply| Ask::RecentEvents { reply });
            let Some(list) = asked else { return ending(stream) };
            let events = list.iter().map(|event| Event::clone(event)).collect();
            answer(stream, &Response::RecentEvents { events })
        }
        Request::Invite { name, valid_s, endpoints, prefixes } => {
            let invited = wish(name, *valid_s, endpoints, prefixes).and_then(|wish| {
                asker.job(|reply| Job::Invite { wish, reply }).and_then(|answer| answer)
            });
            result(stream, invited.map(|invitation| Response::Invitation { invitation }))
        }
        Request::Peers => {
            let peers = asker.job(|reply| Job::List { reply });
            result(stream, peers.map(|peers| Response::Peers { peers }))
        }
        Request::RemovePeer { name } => {
            let name = name.clone();
            let removed = asker.job(|reply| Job::Remove { name, reply }).and_then(|answer| answer);
            result(stream, removed.map(|()| Response::Done))
        }
        Request::AskPeer { peer, address } => {
            let asked = diagnosis::ask_peer(asker, peer.as_deref(), *address);
            result(stream, asked.map(|answer| Response::PeerView { answer: Box::new(answer) }))
        }
        Request::Bench { peer, address, duration_ms, max_bytes, directions } => {
            let wish = diagnosis::Wish {
                peer: peer.clone(),
                address: *address,
                duration: Duration::from_millis(*duration_ms),
                max_bytes: *max_bytes,
                directions: directions.clone(),
            };
            let mut tell = |progress| answer(stream, &Response::BenchProgress { progress });
            let measured = diagnosis::bench(asker, &wish, &mut tell);
            result(stream, measured.map(|report| Response::Bench { report: Box::new(report) }))
        }
        Request::Hello => answer(stream, &hello()),
        Request::Reload => {
            result(stream, asker.reload().map(|changes| Response::Reloaded { changes }))
        }
        Request::SetPeer { peer, settings } => {
            let (name, settings) = (peer.clone(), settings.clone());
            set(stream, asker, Set::Peer { name, settings })
        }
        Request::SetPath { interface, state, settings, for_s } => {
            let (interface, state) = (interface.clone(), state.clone());
            let settings = settings.clone();
            set(stream, asker, Set::Path { interface, state, settings, for_s: *for_s })
        }
        Request::Overrides => {
            let asked = asker.answer(|reply| Ask::Overrides { reply });
            let Some((config_file, overrides)) = asked else { return ending(stream) };
            answer(stream, &Response::Overrides { config_file, overrides })
        }
        Request::AddRule { at, settings } => {
            set(stream, asker, Set::AddRule { at: *at, settings: settings.clone() })
        }
        Request::RemoveRule { rule } => set(stream, asker, Set::RemoveRule { rule: rule.clone() }),
        Request::Rules => {
            let asked = asker.answer(|reply| Ask::Rules { reply });
            let Some(list) = asked else { return ending(stream) };
            answer(stream, &Response::Rules { table: rules::table(&list) })
        }
        Request::TestRule { packet } => {
            let tested = test_rule(asker, packet);
            result(stream, tested.map(|test| Response::RuleTest { test: Box::new(test) }))
        }
        Request::Events => {
            let (subscriber, events) = sync_channel(EVENTS_MAX);
            if !asker.ask(Ask::Events { subscriber }) {
                return ending(stream);
            }
            if answer(stream, &Response::Done) {
                forward(stream, &events);
            }
            return Next::Close;
        }
    };
    if sent { Next::Continue } else { Next::Close }
}

/// Permitted times for which a token is good, s.
const VALID: RangeInclusive<u64> = 60..=30 * 86_400;

/// The invitation that a client asks for, checked.
fn wish(
    name: &str,
    valid_s: u64,
    endpoints: &[String],
    prefixes: &[String],
) -> Result<Wish, String> {
    if !is_visible_name(name) {
        return Err(format!("expected a name of 1 to 64 visible characters, found {name:?}"));
    }
    if !VALID.contains(&valid_s) {
        return Err(format!(
            "expected a token that is good for {} s to {} s (30 days), found {valid_s} s",
            VALID.start(),
            VALID.end()
        ));
    }
    let endpoint = |text: &String| {
        text.parse().map_err(|_| {
            format!(
                "expected an endpoint like 198.51.100.2:6182 or [2001:db8::2]:6182, found `{text}`"
            )
        })
    };
    let prefix = |text: &String| text.parse().map_err(|error: PrefixError| error.to_string());
    Ok(Wish {
        name: name.to_owned(),
        valid_s,
        endpoints: endpoints.iter().map(endpoint).collect::<Result<_, _>>()?,
        prefixes: prefixes.iter().map(prefix).collect::<Result<_, _>>()?,
    })
}

/// Which rule decides about `packet`, whose the address is that it goes to, and which paths it
/// would take.
fn test_rule(asker: &Asker, packet: &str) -> Result<RuleTest, String> {
    let packet = Packet::parse(packet)?;
    let list = asker.answer(|reply| Ask::Rules { reply }).ok_or(ENDING)?;
    let address = packet.remote();
    let peer = asker.answer(|reply| Ask::PeerAt { address, reply }).ok_or(ENDING)?;
    let interface = match packet.local() {
        Some(address) => asker.answer(|reply| Ask::InterfaceAt { address, reply }).ok_or(ENDING)?,
        None => None,
    };
    let origin = Origin { peer: peer.as_deref(), interface: interface.as_deref() };
    let test = rules::test(&list, &packet, origin);
    let (rule, length) = (test.rule.as_ref().map(|rule| rule.number), packet.length);
    let way = asker.answer(|reply| Ask::Way { address, rule, length, reply }).ok_or(ENDING)?;
    Ok(RuleTest { way: way.map(rules::shown_way), ..test })
}

/// What this daemon speaks.
fn hello() -> Response {
    Response::Hello {
        versions: vec![mpip_api::VERSION],
        daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
        requests: mpip_api::REQUESTS.map(str::to_owned).to_vec(),
    }
}

/// Has `change` made and answers. Returns whether the answer was written.
fn set(stream: &mut UnixStream, asker: &Asker, change: Set) -> bool {
    let set = asker.answer(|reply| Ask::Set { change, reply });
    let set = set.unwrap_or_else(|| Err(ENDING.to_owned()));
    result(stream, set.map(|()| Response::Done))
}

/// Writes events until the client closes the connection or the daemon ends the subscription.
fn forward(stream: &mut UnixStream, events: &Receiver<Arc<Event>>) {
    // `is_open` must not wait for the client to write.
    if stream.set_read_timeout(Some(Duration::from_millis(1))).is_err() {
        return;
    }
    loop {
        let went = match events.recv_timeout(CHECK_INTERVAL) {
            Ok(event) => answer(stream, &Response::Event { event: (*event).clone() }),
            Err(RecvTimeoutError::Timeout) => is_open(stream),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if !went {
            return;
        }
    }
}

/// Whether the client is still connected. What it writes is discarded.
fn is_open(stream: &mut UnixStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(len) => len > 0,
        Err(error) => diagnosis::is_wait(error.kind()),
    }
}

fn ending(stream: &mut UnixStream) -> Next {
    answer(stream, &Response::Error { message: ENDING.to_owned() });
    Next::Close
}

/// Answers with `done`, or why it was not. Returns whether that was written.
fn result(stream: &mut UnixStream, done: Result<Response, String>) -> bool {
    answer(stream, &done.unwrap_or_else(|message| Response::Error { message }))
}

/// Writes `response`. Returns whether that succeeded.
pub(super) fn answer(stream: &mut UnixStream, response: &Response) -> bool {
    stream.write_all(response.to_line().as_bytes()).is_ok()
}
