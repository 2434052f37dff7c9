//! Progress on standard error: of a series of runs, a line for each that has ended, and on a
//! terminal a bar; of work on several threads, how much of it is done.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the bar is drawn.
const DRAW: Duration = Duration::from_millis(500);
const WIDTH: usize = 24;
/// When work is first told of, and the longest silence after that, where there is no terminal.
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(60);

/// The runs of a series, one after the other or side by side, by their planned times.
pub(crate) struct Progress {
    state: Arc<Mutex<State>>,
    terminal: bool,
    bar: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

struct State {
    total: Duration,
    /// Planned time of the runs that have ended.
    done: Duration,
    count: usize,
    ended: usize,
    running: Vec<Run>,
}

struct Run {
    name: String,
    start: Instant,
    planned: Duration,
}

impl State {
    /// The bar. Runs side by side share the time that passes.
    fn bar(&self) -> String {
        let sharing = u32::try_from(self.running.len()).unwrap_or(u32::MAX).max(1);
        let begun = self.running.iter().map(|run| run.planned.min(run.start.elapsed() / sharing));
        bar(self.total, self.done + begun.sum::<Duration>())
    }

    /// What runs now.
    fn line(&self) -> Option<String> {
        let (first, others) = self.running.split_first()?;
        let more = match others.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!("{} {}/{} {}{more}", self.bar(), self.ended + 1, self.count, first.name))
    }
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
        let state = State { total, done: Duration::ZERO, count, ended: 0, running: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let bar = terminal.then(|| {
            let state = Arc::clone(&state);
            let (sender, stop) = mpsc::channel();
            let draw = move || {
                while stop.recv_timeout(DRAW) == Err(RecvTimeoutError::Timeout) {
                    if let Some(line) = lock(&state).line() {
                        eprint!("\r\x1b[K{line}");
                        let _ = std::io::stderr().flush();
                    }
                }
            };
            (sender, std::thread::spawn(draw))
        });
        Self { state, terminal, bar }
    }

    /// A run that has its result already.
    pub(crate) fn skip(&self, planned: Duration) {
        let mut state = lock(&self.state);
        state.ended += 1;
        state.done += planned;
    }

    /// So many runs more, with this planned time.
    pub(crate) fn extend(&self, count: usize, planned: Duration) {
        let mut state = lock(&self.state);
        state.count += count;
        state.total += planned;
    }

    /// A run begins. Its name is that of no other that runs.
    pub(crate) fn begin(&self, name: &str, planned: Duration) {
        let run = Run { name: name.to_owned(), start: Instant::now(), planned };
        lock(&self.state).running.push(run);
    }

    /// It has ended, with this result.
    pub(crate) fn end(&self, name: &str, result: &str) {
        let mut state = lock(&self.state);
        state.ended += 1;
        if let Some(index) = state.running.iter().position(|run| run.name == name) {
            let run = state.running.remove(index);
            state.done += run.planned;
        }
        let head = format!("{}/{} {name}", state.ended, state.count);
        if self.terminal {
            eprintln!("\r\x1b[K{head}: {result}");
        } else {
            eprintln!("{} {head}: {result}", state.bar());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.bar.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn runs_side_by_side_are_counted_when_they_end() {
        let second = Duration::from_secs(1);
        let progress = Progress::new(3, second * 3);
        progress.skip(second);
        progress.begin("a", second);
        progress.begin("b", second);
        let line = lock(&progress.state).line().expect("two run");
        assert!(line.ends_with("2/3 a and 1 more"), "{line}");
        progress.end("a", "well");
        let state = lock(&progress.state);
        assert!(state.line().expect("one runs").ends_with("3/3 b"));
        assert_eq!((state.ended, state.done), (2, second * 2));
    }

    #[test]
    fn the_bar_fills_and_never_overflows() {
        let seconds = Duration::from_secs;
        assert_eq!(bar(seconds(100), seconds(25)), "[######..................] 1:15 left");
        assert_eq!(bar(seconds(100), seconds(500)), "[########################] 0:00 left");
        assert_eq!(bar(seconds(0), seconds(0)), "[........................] 0:00 left");
    }
}
