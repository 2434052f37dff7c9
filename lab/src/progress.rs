//! Progress on standard error: of a series of runs, a bar on a terminal, else a line for each run;
//! of work on several threads, how much of it is done.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the bar is drawn.
const DRAW: Duration = Duration::from_millis(500);
const WIDTH: usize = 24;
/// When work is first told of, and the longest silence after that, where there is no terminal.
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(60);

/// The runs of a series, by their planned times.
pub(crate) struct Progress {
    total: Duration,
    done: Duration,
    count: usize,
    number: usize,
    terminal: bool,
    bar: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

fn bar(total: Duration, done: Duration) -> String {
    let share = (done.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0);
    let full = (share * WIDTH as f64) as usize;
    let left = total.saturating_sub(done);
    format!("[{}{}] {} left", "#".repeat(full), ".".repeat(WIDTH - full), minutes(left))
}

impl Progress {
    /// A series of `count` runs with a planned total time.
    pub(crate) fn new(count: usize, total: Duration) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { total, done: Duration::ZERO, count, number: 0, terminal, bar: None }
    }

    /// A run that has its result already.
    pub(crate) fn skip(&mut self, planned: Duration) {
        self.number += 1;
        self.done += planned;
    }

    /// A run begins.
    pub(crate) fn begin(&mut self, name: &str) {
        self.number += 1;
        let head = format!("{}/{} {name}", self.number, self.count);
        if !self.terminal {
            eprint!("{} {head}: ", bar(self.total, self.done));
            return;
        }
        let (total, done, start) = (self.total, self.done, Instant::now());
        let (sender, stop) = mpsc::channel();
        let draw = move || {
            loop {
                eprint!("\r\x1b[K{} {head}", bar(total, done + start.elapsed()));
                let _ = std::io::stderr().flush();
                match stop.recv_timeout(DRAW) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            eprint!("\r\x1b[K{head}: ");
        };
        self.bar = Some((sender, std::thread::spawn(draw)));
    }

    /// It has ended, with this result.
    pub(crate) fn end(&mut self, planned: Duration, result: &str) {
        if let Some((sender, thread)) = self.bar.take() {
            drop(sender);
            let _ = thread.join();
        }
        eprintln!("{result}");
        self.done += planned;
    }
}

/// Work whose parts are done on several threads. It is told of from the third second on, until this
/// is dropped.
pub(crate) struct Work {
    done: Arc<AtomicUsize>,
    teller: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Work {
    /// `what` with `total` parts; with one part, only the time is told.
    pub(crate) fn new(what: &str, total: usize) -> Self {
        let (what, done) = (what.to_owned(), Arc::new(AtomicUsize::new(0)));
        let (sender, stop) = mpsc::channel();
        let finished = Arc::clone(&done);
        let tell = move || {
            let (start, terminal) = (Instant::now(), std::io::stderr().is_terminal());
            let mut pause = FIRST;
            while stop.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let line = part(&what, finished.load(Ordering::Relaxed), total, start.elapsed());
                if terminal {
                    eprint!("\r\x1b[K{line}");
                    let _ = std::io::stderr().flush();
                } else {
                    eprintln!("{line}");
                    pause = (pause * 2).min(LONGEST);
                }
            }
            if terminal {
                eprint!("\r\x1b[K");
            }
        };
        Self { done, teller: Some((sender, std::thread::spawn(tell))) }
    }

    /// One more part is done.
    pub(crate) fn one(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.teller.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

fn part(what: &str, done: usize, total: usize, elapsed: Duration) -> String {
    match (done, total) {
        (_, ..=1) => format!("{what}: {} so far", minutes(elapsed)),
        (0, _) => format!("{what}: 0 of {total}"),
        (done, total) => {
            let left = elapsed.mul_f64(total.saturating_sub(done) as f64 / done as f64);
            format!("{what}: {done} of {total}, {} left", minutes(left))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_says_how_much_is_done_and_how_long_the_rest_takes() {
        let seconds = Duration::from_secs;
        assert_eq!(part("worlds", 0, 40, seconds(2)), "worlds: 0 of 40");
        assert_eq!(part("worlds", 10, 40, seconds(30)), "worlds: 10 of 40, 1:30 left");
        assert_eq!(part("building quic-go", 0, 1, seconds(62)), "building quic-go: 1:02 so far");
        let work = Work::new("nothing", 2);
        work.one();
        assert_eq!(work.done.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_bar_fills_and_never_overflows() {
        let seconds = Duration::from_secs;
        assert_eq!(bar(seconds(100), seconds(25)), "[######..................] 1:15 left");
        assert_eq!(bar(seconds(100), seconds(500)), "[########################] 0:00 left");
        assert_eq!(bar(seconds(0), seconds(0)), "[........................] 0:00 left");
    }
}
