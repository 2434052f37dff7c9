//! The control socket as its clients meet it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};

use mpip_api::{Client, Event, MAX_REQUEST, Request};
use mpip_testing::Directory;

use super::*;

/// Where the daemon is to make its socket, and the directory for that.
fn socket(directory: &Directory) -> PathBuf {
    directory.join("run/mpip0.sock")
}

/// A served socket whose requests arrive at the receiver.
fn served(path: &Path) -> (Socket, Receiver<Ask>) {
    let socket = Socket::bind(path, None).expect("binds");
    let (asks, asked) = channel();
    serve(&socket, Asker::new(asks, || {})).expect("serves");
    (socket, asked)
}

#[test]
fn the_socket_is_for_owner_and_group_only_and_goes_with_its_owner() {
    let directory = Directory::new();
    let path = socket(&directory);
    let socket = Socket::bind(&path, None).expect("binds, and makes the directory");
    let mode = std::fs::metadata(&path).expect("exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let names: Vec<_> = std::fs::read_dir(path.parent().expect("run"))
        .expect("readable")
        .map(|entry| entry.expect("entry").file_name())
        .collect();
    assert_eq!(names, ["mpip0.sock"], "nothing else is left");
    drop(socket);
    assert!(!path.exists());
}

#[test]
fn the_socket_of_a_dead_daemon_is_replaced_and_that_of_a_live_one_is_not() {
    let directory = Directory::new();
    let path = socket(&directory);
    std::fs::create_dir_all(path.parent().expect("run")).expect("writable");
    drop(UnixListener::bind(&path).expect("binds"));
    assert!(path.exists(), "a listener of std leaves its file");

    let live = Socket::bind(&path, None).expect("replaces the stale one");
    let error = Socket::bind(&path, None).expect_err("somebody listens");
    assert!(matches!(error, ControlError::AlreadyRunning(_)), "{error}");
    assert!(error.to_string().starts_with("already running: "), "{error}");
    assert!(path.exists(), "the refused one left the live one's file");
    drop(live);
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let directory = Directory::new();
    let path = directory.join("mpip0.sock");
    std::fs::write(&path, "precious").expect("writable");
    let error = Socket::bind(&path, None).expect_err("no socket");
    assert!(matches!(error, ControlError::NotASocket(_)), "{error}");
    assert_eq!(std::fs::read_to_string(&path).expect("still there"), "precious");
}

#[test]
fn a_connection_goes_on_after_a_refused_request() {
    let directory = Directory::new();
    let (_socket, _asked) = served(&socket(&directory));
    let mut stream = BufReader::new(UnixStream::connect(socket(&directory)).expect("connects"));
    for (request, expected) in [
        ("{\"version\":1,\"request\":\"reboot\"}\n", "unknown request `reboot`, expected one of"),
        ("{\"version\":9,\"request\":\"status\"}\n", "expected \\\"version\\\": 1, found 9"),
        ("nonsense\n", "expected one JSON object per line"),
    ] {
        stream.get_mut().write_all(request.as_bytes()).expect("writes");
        let mut line = String::new();
        stream.read_line(&mut line).expect("reads");
        assert!(line.contains(expected), "{request}: {line}");
    }
}

#[test]
fn a_request_without_end_is_refused_and_closed() {
    let directory = Directory::new();
    let (_socket, _asked) = served(&socket(&directory));
    let mut stream = UnixStream::connect(socket(&directory)).expect("connects");
    stream.write_all(&vec![b'x'; MAX_REQUEST + 2]).expect("writes");
    let mut lines = BufReader::new(stream).lines();
    let line = lines.next().expect("an answer").expect("reads");
    assert!(line.contains("expected a request of at most 4096 bytes"), "{line}");
    assert!(lines.next().is_none(), "closed");
}

#[test]
fn down_is_answered_when_everything_is_gone() {
    let directory = Directory::new();
    let path = socket(&directory);
    let (_socket, asked) = served(&path);
    let client = thread::spawn(move || mpip_api::request(&path, &Request::Down));
    let Ask::Down { done, answered } = asked.recv().expect("asked") else { panic!("down") };
    assert!(!client.is_finished());
    done.send(()).expect("the connection waits");
    answered.recv().expect("the client has its answer");
    assert_eq!(client.join().expect("no panic").expect("answered"), Response::Done);
}

#[test]
fn a_subscriber_gets_events_and_a_closed_one_is_noticed() {
    let directory = Directory::new();
    let path = socket(&directory);
    let (_socket, asked) = served(&path);
    let events = thread::spawn(move || Client::connect(&path).and_then(Client::events));
    let Ask::Events { subscriber } = asked.recv().expect("asked") else { panic!("events") };
    let mut events = events.join().expect("no panic").expect("subscribed");
    let event = Arc::new(Event {
        unix_time_ms: 1.0,
        message: "m".to_owned(),
        kind: mpip_api::EventKind::Lost { peer: "b".to_owned() },
    });
    subscriber.send(Arc::clone(&event)).expect("the connection listens");
    assert_eq!(events.next().expect("an event").expect("received"), *event);
    drop(events);
    let gone = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(50));
        subscriber.send(Arc::clone(&event)).is_err()
    });
    assert!(gone, "the connection ends after its client");
}

#[test]
fn more_connections_than_allowed_are_told_so() {
    let directory = Directory::new();
    let (_socket, _asked) = served(&socket(&directory));
    let open: Vec<_> = (0..CONNECTIONS_MAX)
        .map(|_| UnixStream::connect(socket(&directory)).expect("connects"))
        .collect();
    let further = UnixStream::connect(socket(&directory)).expect("connects");
    let mut line = String::new();
    BufReader::new(further).read_line(&mut line).expect("reads");
    assert!(line.contains("expected at most 32 connections"), "{line}");
    drop(open);
}
