//! Progress on standard error: whoever waits longer than two seconds is told for what.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often a wait says that it goes on.
const INTERVAL: Duration = Duration::from_secs(2);

/// A wait that looks again and again.
pub(crate) struct Progress {
    start: Instant,
    next: Duration,
    limit: Option<Duration>,
}

impl Progress {
    /// A wait of at most `limit`, if there is one.
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self { start: Instant::now(), next: INTERVAL, limit }
    }

    /// Says `what` is waited for, every two seconds.
    pub(crate) fn tell(&mut self, what: &str) {
        if self.start.elapsed() >= self.next {
            say(&line(what, self.next, self.limit));
            self.next += INTERVAL;
        }
    }
}

/// Nobody may be there to read it.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn line(what: &str, elapsed: Duration, limit: Option<Duration>) -> String {
    let most = limit.map_or(String::new(), |limit| format!(" of at most {} s", limit.as_secs()));
    format!("{what} ({} s{most})", elapsed.as_secs())
}

/// Does `act`, and says every two seconds that it goes on: `what`, at most for `limit`.
pub(crate) fn during<T>(what: &str, limit: Option<Duration>, act: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let (done, waits) = sync_channel::<()>(0);
        scope.spawn(move || {
            let mut elapsed = Duration::ZERO;
            while waits.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                elapsed += INTERVAL;
                say(&line(what, elapsed, limit));
            }
        });
        // The thread ends when `done` goes.
        let _done = done;
        act()
    })
}

/// One line that changes in place on a terminal. Elsewhere each of its steps gets a line.
#[derive(Default)]
pub(crate) struct Line {
    step: Option<u32>,
    width: usize,
}

impl Line {
    /// Shows `text`, which belongs to `step`.
    pub(crate) fn show(&mut self, step: u32, text: &str) {
        let mut stderr = io::stderr().lock();
        if stderr.is_terminal() {
            let width = text.chars().count();
            let space = " ".repeat(self.width.saturating_sub(width));
            // Progress that nobody reads is no error.
            let _ = write!(stderr, "\r{text}{space}").and_then(|()| stderr.flush());
            self.width = width;
        } else if self.step != Some(step) {
            let _ = writeln!(stderr, "{text}");
        }
        self.step = Some(step);
    }

    /// Removes it.
    pub(crate) fn clear(&mut self) {
        let mut stderr = io::stderr().lock();
        if stderr.is_terminal() && self.width > 0 {
            let _ = write!(stderr, "\r{}\r", " ".repeat(self.width));
        }
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_returns_what_it_made_and_a_line_says_for_how_long() {
        assert_eq!(during("waiting", None, || 7), 7);
        let (two, ten) = (Duration::from_secs(2), Duration::from_secs(10));
        assert_eq!(line("no answer yet", two, Some(ten)), "no answer yet (2 s of at most 10 s)");
        assert_eq!(line("measuring", two, None), "measuring (2 s)");
    }
}
