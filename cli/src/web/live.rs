//! Samples of the daemon's state for all pages that are open, and none while no page is.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use mpip_api::ClientError;
use tokio::sync::broadcast;

use super::view::{EventView, Sample, View};
use crate::sampler::{self, Sampled, Sampler};
use crate::words;

/// How long samples are taken after the last page was closed: a page that is loaded again
/// continues.
const LINGER: Duration = Duration::from_secs(5);

/// Samples that a page gets when it is opened.
const HISTORY: usize = 150;

/// Messages that a page may be behind. One that is further behind misses some.
const BEHIND: usize = 4;

/// Takes samples while somebody looks.
#[derive(Debug)]
pub(super) struct Feed {
    socket: PathBuf,
    state: Mutex<State>,
    sender: broadcast::Sender<Bytes>,
}

#[derive(Debug, Default)]
struct State {
    /// Open pages.
    viewers: usize,
    /// Whether a thread takes samples.
    running: bool,
    /// The samples before the latest state, as JSON; the oldest first.
    history: VecDeque<String>,
    /// The latest events and state, as messages.
    events: Option<Bytes>,
    state: Option<Bytes>,
}

/// An open page. Samples are taken as long as there is one.
pub(super) struct Viewer {
    feed: Arc<Feed>,
    /// What came before.
    pub(super) first: Vec<Bytes>,
    pub(super) messages: broadcast::Receiver<Bytes>,
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.feed.lock().viewers -= 1;
    }
}

/// A message of the type `text/event-stream` (HTML, section 9.2). JSON has no line breaks.
fn message(event: &str, json: &str) -> Bytes {
    Bytes::from(format!("event: {event}\ndata: {json}\n\n"))
}

impl Feed {
    pub(super) fn new(socket: PathBuf) -> Arc<Self> {
        let (sender, _) = broadcast::channel(BEHIND);
        Arc::new(Self { socket, state: Mutex::default(), sender })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody opens the page; none if no thread could be started.
    pub(super) fn view(self: &Arc<Self>) -> Option<Viewer> {
        let mut state = self.lock();
        if !state.running {
            *state = State { viewers: state.viewers, ..State::default() };
            let feed = Arc::clone(self);
            thread::Builder::new().name("samples".to_owned()).spawn(move || feed.run()).ok()?;
            state.running = true;
        }
        state.viewers += 1;
        let history: Vec<&str> = state.history.iter().map(String::as_str).collect();
        let mut first = vec![message("history", &format!("[{}]", history.join(",")))];
        first.extend(state.events.iter().chain(&state.state).cloned());
        // Under the lock, so that no message is missed or comes twice.
        let messages = self.sender.subscribe();
        Some(Viewer { feed: Arc::clone(self), first, messages })
    }

    /// Takes samples until nobody looks.
    fn run(&self) {
        let mut sampler = Sampler::new(self.socket.clone());
        let mut seen = Instant::now();
        loop {
            let (began, busy) = (Instant::now(), sampler::processor_time());
            self.publish(sampler.sample());
            let took = sampler::processor_time().saturating_sub(busy);
            thread::sleep(sampler::interval(took).saturating_sub(began.elapsed()));
            let mut state = self.lock();
            if state.viewers > 0 {
                seen = Instant::now();
            } else if seen.elapsed() > LINGER {
                *state = State::default();
                return;
            }
        }
    }

    fn publish(&self, sampled: Result<Sampled, ClientError>) {
        let mut state = self.lock();
        let send = |event: &str, json: &str| {
            let message = message(event, json);
            // An error: nobody looks.
            let _ = self.sender.send(message.clone());
            message
        };
        match sampled {
            Ok(Sampled { status, events }) => {
                if let Some(events) = events {
                    let events = events.iter().filter(|event| words::matters(event));
                    let list: Vec<EventView> = events.map(EventView::of).collect();
                    state.events = Some(send("events", &json(&list)));
                }
                state.state = Some(send("state", &json(&View::of(&status))));
                if state.history.len() == HISTORY {
                    state.history.pop_front();
                }
                state.history.push_back(json(&Sample::of(&status)));
            }
            Err(error) => {
                let json = serde_json::json!({ "error": error.to_string() }).to_string();
                state.state = Some(send("down", &json));
            }
        }
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("views have string keys only")
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use mpip_api::{Request, Response};

    use super::*;
    use crate::example;

    /// A daemon that answers with the example and counts how often it was asked for its state.
    fn daemon(socket: &Path) -> Arc<AtomicUsize> {
        let listener = UnixListener::bind(socket).expect("the temporary directory is writable");
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a client");
                for line in BufReader::new(stream.try_clone().expect("clones")).split(b'\n') {
                    let request = Request::parse(&line.expect("a line")).expect("a request");
                    let answer = match request {
                        Request::Status { .. } => {
                            count.fetch_add(1, Ordering::SeqCst);
                            Response::Status { status: Box::new(example::status()) }
                        }
                        _ => Response::RecentEvents { events: Vec::new() },
                    };
                    stream.write_all(answer.to_line().as_bytes()).expect("it reads");
                }
            }
        });
        asked
    }

    #[test]
    fn nothing_is_asked_of_the_daemon_until_somebody_looks() {
        let directory = mpip_testing::Directory::new();
        let socket = directory.join("mpip0.sock");
        let asked = daemon(&socket);
        let feed = Feed::new(socket);
        assert!(!feed.lock().running);
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        let mut viewer = feed.view().expect("a thread");
        assert_eq!(viewer.first, [message("history", "[]")]);
        let messages = [(); 2].map(|()| viewer.messages.blocking_recv().expect("a message"));
        assert!(messages[0].starts_with(b"event: events\ndata: []"), "{messages:?}");
        assert!(messages[1].starts_with(b"event: state\ndata: {\"t\":"), "{messages:?}");
        assert!(messages[1].ends_with(b"}\n\n"), "{messages:?}");
        assert!(asked.load(Ordering::SeqCst) >= 1);
        // A second page gets what is known at once.
        while feed.lock().history.is_empty() {
            thread::yield_now();
        }
        let second = feed.view().expect("a thread");
        assert!(
            second.first[0].starts_with(b"event: history\ndata: [{\"t\":"),
            "{:?}",
            second.first
        );
        assert_eq!(second.first.len(), 3);
        drop((viewer, second));
        assert_eq!(feed.lock().viewers, 0);
    }

    #[test]
    fn a_daemon_that_does_not_run_is_told_to_the_page() {
        let feed = Feed::new(PathBuf::from("/nonexistent/mpip0.sock"));
        let mut viewer = feed.view().expect("a thread");
        let message = viewer.messages.blocking_recv().expect("a message");
        assert!(
            message.starts_with(b"event: down\ndata: {\"error\":\"no daemon runs: "),
            "{message:?}"
        );
    }
}
