//! Progress of a series of runs: a bar on a terminal, else a line for each run.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the bar is drawn.
const DRAW: Duration = Duration::from_millis(500);
const WIDTH: usize = 24;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_and_never_overflows() {
        let seconds = Duration::from_secs;
        assert_eq!(bar(seconds(100), seconds(25)), "[######..................] 1:15 left");
        assert_eq!(bar(seconds(100), seconds(500)), "[########################] 0:00 left");
        assert_eq!(bar(seconds(0), seconds(0)), "[........................] 0:00 left");
    }
}
