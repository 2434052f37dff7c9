//! A blocking client of the control socket.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::diagnosis::{BenchProgress, BenchReport, PeerAnswer};
use crate::event::Event;
use crate::message::{MAX_RESPONSE, Request, Response, ResponseError};
use crate::status::{DestinationStatus, Status};

/// Longest time to wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long [`is_served`] waits for an answer, and for a dying daemon to let go of its socket.
const SERVED_WITHIN: Duration = Duration::from_secs(1);

/// Pause before [`is_served`] asks again after a closed connection.
const CLOSED_PAUSE: Duration = Duration::from_millis(10);

/// Why a request got no answer.
#[derive(Debug)]
pub enum ClientError {
    /// The socket could not be used.
    Socket {
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// The daemon did not answer in time.
    Timeout {
        /// The socket.
        path: PathBuf,
        /// How long that is.
        limit: Duration,
    },
    /// The daemon closed the connection before it answered.
    Closed {
        /// The socket.
        path: PathBuf,
    },
    /// The daemon's answer was not understood.
    Response(ResponseError),
    /// The daemon refused the request.
    Refused(String),
}

impl ClientError {
    /// Whether no daemon listens there: no socket, or one that a dead daemon left.
    pub fn is_not_running(&self) -> bool {
        matches!(self, Self::Socket { error, .. }
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused))
    }

    /// Whether the other end closed the connection before it answered.
    fn is_closed(&self) -> bool {
        match self {
            Self::Closed { .. } => true,
            Self::Socket { error, .. } => {
                matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
            }
            _ => false,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket { path, error } if error.kind() == ErrorKind::NotFound => {
                write!(f, "no daemon runs: there is no control socket `{}`", path.display())
            }
            Self::Socket { path, error } if error.kind() == ErrorKind::ConnectionRefused => {
                write!(f, "no daemon runs: nobody listens on `{}`", path.display())
            }
            Self::Socket { path, error } if error.kind() == ErrorKind::PermissionDenied => write!(
                f,
                "the control socket `{}` may not be used by this user: it takes root or a \
                 member of the socket's group",
                path.display()
            ),
            Self::Socket { path, error } => {
                write!(f, "control socket `{}`: {error}", path.display())
            }
            Self::Timeout { path, limit } => write!(
                f,
                "the daemon on `{}` did not answer within {} s",
                path.display(),
                limit.as_secs()
            ),
            Self::Closed { path } => {
                write!(f, "the daemon on `{}` closed the connection", path.display())
            }
            Self::Response(error) => error.fmt(f),
            Self::Refused(message) => write!(f, "the daemon refused: {message}"),
        }
    }
}

impl std::error::Error for ClientError {}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    reader: BufReader<UnixStream>,
    /// Longest time to wait for an answer.
    limit: Duration,
}

impl Client {
    /// Connects to the daemon that listens on `path`.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let socket = |error| ClientError::Socket { path: path.to_owned(), error };
        let stream = UnixStream::connect(path).map_err(socket)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(socket)?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(socket)?;
        Ok(Self { path: path.to_owned(), reader: BufReader::new(stream), limit: TIMEOUT })
    }

    /// Waits up to `limit` for each answer from now on, instead of 5 s.
    pub fn wait_up_to(&mut self, limit: Duration) -> Result<(), ClientError> {
        let set = self.reader.get_ref().set_read_timeout(Some(limit));
        set.map_err(|error| self.failed(error))?;
        self.limit = limit;
        Ok(())
    }

    /// Sends `request` and waits for its answer; a refusal is an error.
    pub fn request(&mut self, request: &Request) -> Result<Response, ClientError> {
        let sent = self.reader.get_mut().write_all(request.to_line().as_bytes());
        sent.map_err(|error| self.failed(error))?;
        match self.response()? {
            Response::Error { message } => Err(ClientError::Refused(message)),
            response => Ok(response),
        }
    }

    /// The daemon's statistics, with the list of sessions if asked for.
    pub fn status(&mut self, sessions: bool) -> Result<Status, ClientError> {
        match self.request(&Request::Status { sessions })? {
            Response::Status { status } => Ok(*status),
            other => Err(unexpected("a status", &other)),
        }
    }

    /// What the daemon of `peer` (the only one with `None`) sees, asked at its inner `address`.
    pub fn ask_peer(
        &mut self,
        peer: Option<String>,
        address: Option<IpAddr>,
    ) -> Result<PeerAnswer, ClientError> {
        match self.request(&Request::AskPeer { peer, address })? {
            Response::PeerView { answer } => Ok(*answer),
            other => Err(unexpected("what a peer sees", &other)),
        }
    }

    /// Has the paths to a peer measured by `request`, a [`Request::Bench`]. `progress` is called
    /// several times a second.
    pub fn bench(
        &mut self,
        request: &Request,
        mut progress: impl FnMut(&BenchProgress),
    ) -> Result<BenchReport, ClientError> {
        let mut response = self.request(request)?;
        loop {
            match response {
                Response::BenchProgress { progress: so_far } => progress(&so_far),
                Response::Bench { report } => return Ok(*report),
                Response::Error { message } => return Err(ClientError::Refused(message)),
                other => return Err(unexpected("measurements", &other)),
            }
            response = self.response()?;
        }
    }

    /// The latest events that the daemon remembers, the oldest first. None from an older daemon.
    pub fn recent_events(&mut self) -> Result<Vec<Event>, ClientError> {
        match self.request(&Request::RecentEvents) {
            Ok(Response::RecentEvents { events }) => Ok(events),
            Ok(other) => Err(unexpected("events", &other)),
            Err(ClientError::Refused(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Subscribes to events; the stream ends when the daemon does.
    pub fn events(mut self) -> Result<EventStream, ClientError> {
        self.request(&Request::Events)?;
        let unlimited = self.reader.get_ref().set_read_timeout(None);
        unlimited.map_err(|error| self.failed(error))?;
        Ok(EventStream { client: Some(self) })
    }

    fn response(&mut self) -> Result<Response, ClientError> {
        let mut line = Vec::new();
        let limit = MAX_RESPONSE as u64 + 1;
        let read = self.reader.by_ref().take(limit).read_until(b'\n', &mut line);
        match read {
            Err(error) => Err(self.failed(error)),
            Ok(_) if line.last() == Some(&b'\n') => {
                Response::parse(&line).map_err(ClientError::Response)
            }
            Ok(len) if len as u64 == limit => Err(ClientError::Response(ResponseError::Malformed(
                format!("a line of more than {MAX_RESPONSE} bytes came"),
            ))),
            Ok(_) => Err(ClientError::Closed { path: self.path.clone() }),
        }
    }

    fn failed(&self, error: io::Error) -> ClientError {
        let path = self.path.clone();
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                ClientError::Timeout { path, limit: self.limit }
            }
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => ClientError::Closed { path },
            _ => ClientError::Socket { path, error },
        }
    }
}

/// The events of a daemon, as they happen. Ends when the daemon does.
#[derive(Debug)]
pub struct EventStream {
    client: Option<Client>,
}

impl Iterator for EventStream {
    type Item = Result<Event, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        let answer = loop {
            match self.client.as_mut()?.response() {
                Ok(Response::Event { event }) => return Some(Ok(event)),
                Ok(Response::Error { message }) => break Some(Err(ClientError::Refused(message))),
                Ok(_) => {}
                Err(ClientError::Closed { .. }) => break None,
                Err(error) => break Some(Err(error)),
            }
        };
        self.client = None;
        answer
    }
}

/// Connects to the daemon that listens on `path`, sends `request` and waits for its answer.
pub fn request(path: &Path, request: &Request) -> Result<Response, ClientError> {
    Client::connect(path)?.request(request)
}

/// Whether a daemon serves `path`. One that listens and says nothing within a second counts as
/// serving. One that is being killed accepts connections until its last thread has ended, and
/// closes them then: that is waited for, at most another second.
///
/// # Errors
///
/// The socket cannot be asked: a file that is no socket, or missing permission.
pub fn is_served(path: &Path) -> Result<bool, ClientError> {
    let start = Instant::now();
    loop {
        let answer = Client::connect(path).and_then(|mut client| {
            client.wait_up_to(SERVED_WITHIN)?;
            client.status(false)
        });
        match answer {
            Err(error) if error.is_not_running() => return Ok(false),
            Err(error) if error.is_closed() => {
                if start.elapsed() >= SERVED_WITHIN {
                    return Ok(true);
                }
                thread::sleep(CLOSED_PAUSE);
            }
            Err(error @ ClientError::Socket { .. }) => return Err(error),
            Ok(_) | Err(_) => return Ok(true),
        }
    }
}

/// The statistics of the daemon that listens on `path`, with the list of sessions if asked for.
pub fn status(path: &Path, sessions: bool) -> Result<Status, ClientError> {
    Client::connect(path)?.status(sessions)
}

/// What the daemon that listens on `path` knows of the destinations that its host talks to.
pub fn availability(path: &Path) -> Result<Vec<DestinationStatus>, ClientError> {
    match request(path, &Request::Availability)? {
        Response::Availability { destinations } => Ok(destinations),
        other => Err(unexpected("a list of destinations", &other)),
    }
}

/// Another answer came than `expected`.
fn unexpected(expected: &str, found: &Response) -> ClientError {
    let found = found.to_line();
    let reason = format!("expected {expected}, found {}", found.trim_end());
    ClientError::Response(ResponseError::Malformed(reason))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use mpip_testing::Directory;

    use super::*;
    use crate::event::EventKind;

    /// A daemon that reads one line and answers with `answer`, and the directory of its socket.
    fn daemon(answer: &'static [u8]) -> (Directory, PathBuf) {
        let directory = Directory::new();
        let path = directory.join("mpip0.sock");
        let listener = UnixListener::bind(&path).expect("the temporary directory is writable");
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the test connects");
            let mut line = String::new();
            BufReader::new(stream.try_clone().expect("clones")).read_line(&mut line).expect("line");
            stream.write_all(answer).expect("the test reads");
        });
        (directory, path)
    }

    #[test]
    fn a_daemon_that_is_killed_does_not_serve_its_socket_and_a_silent_one_does() {
        let directory = Directory::new();
        let silent = directory.join("mpip0.sock");
        let listener = UnixListener::bind(&silent).expect("the temporary directory is writable");
        assert!(is_served(&silent).expect("a socket"), "it accepts and says nothing");
        // The request waits in the queue of the listener when that goes.
        let killed = thread::spawn(move || {
            thread::sleep(CLOSED_PAUSE);
            drop(listener);
        });
        assert!(!is_served(&silent).expect("a socket"));
        killed.join().expect("no panic");
    }

    #[test]
    fn without_a_daemon_the_error_says_so() {
        let path = PathBuf::from("/nonexistent/mpip0.sock");
        let error = Client::connect(&path).expect_err("nobody there");
        assert!(error.is_not_running());
        assert_eq!(
            error.to_string(),
            "no daemon runs: there is no control socket `/nonexistent/mpip0.sock`"
        );
    }

    #[test]
    fn a_refusal_is_an_error_with_the_daemons_words() {
        let (_directory, path) =
            daemon(b"{\"version\":1,\"response\":\"error\",\"message\":\"not now\"}\n");
        let error = request(&path, &Request::Down).expect_err("refused");
        assert_eq!(error.to_string(), "the daemon refused: not now");
    }

    #[test]
    fn an_answer_that_breaks_off_is_no_answer() {
        let (_directory, path) = daemon(b"{\"version\":1,\"respon");
        assert!(matches!(request(&path, &Request::Down), Err(ClientError::Closed { .. })));
    }

    #[test]
    fn events_come_until_the_daemon_ends() {
        let (_directory, path) = daemon(
            b"{\"version\":1,\"response\":\"done\"}\n{\"version\":1,\"response\":\"event\",\
              \"event\":{\"unix_time_ms\":5.0,\"message\":\"m\",\"event\":\"lost\",\"peer\":\"b\"}}\n",
        );
        let stream = Client::connect(&path).and_then(Client::events).expect("subscribed");
        let events: Vec<_> = stream.collect::<Result<_, _>>().expect("events");
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].kind, EventKind::Lost { peer: "b".to_owned() });
    }
}
