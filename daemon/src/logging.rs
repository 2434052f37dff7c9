//! The log: where it goes, and in which form.
//!
//! - **text**: a line with time, level and message, to standard error
//! - **json**: one JSON object per line, to standard error
//! - **journald**: to the journal of systemd, with fields
//!
//! An event has its fields in the latter two, with the names that it has on the control socket.
//! Warnings from one place in the program that repeat become few lines.

mod journal;
mod record;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use log::{Level, LevelFilter, Record};
use mpip_api::rfc3339;

use crate::lines::{Allowance, Lines};

pub(crate) use record::event;

/// Warnings and errors from one place in the program: so many at once, and one per interval.
/// What is wrong for long, and tried again all the time, is said often enough by that.
const REPEATS: Allowance = Allowance { lines: 10, interval: Duration::from_secs(30) };

/// Places in the program whose warnings are counted. There are fewer than a hundred.
const PLACES: usize = 512;

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Lines for people.
    #[default]
    Text,
    /// JSON objects.
    Json,
    /// The journal of systemd.
    Journald,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            "journald" => Ok(Self::Journald),
            _ => Err("expected text, json or journald".to_owned()),
        }
    }
}

/// Why the log could not be started.
#[derive(Debug)]
pub struct NoJournal(io::Error);

impl fmt::Display for NoJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(error) = self;
        write!(
            f,
            "--log-format journald: expected systemd's journal on {}: {error}",
            journal::SOCKET
        )
    }
}

impl std::error::Error for NoJournal {}

/// Starts the log of this process. Without `level`, that of the environment counts, else info.
pub fn start(level: Option<LevelFilter>, format: Format) -> Result<(), NoJournal> {
    let mut builder = env_logger::Builder::new();
    builder.filter_level(LevelFilter::Info).parse_default_env();
    if let Some(level) = level {
        builder.filter_level(level);
    }
    if format == Format::Journald {
        let journal = journal::Journal::open().map_err(NoJournal)?;
        builder.target(env_logger::Target::Pipe(Box::new(journal)));
    }
    let repeats = Mutex::new(Repeats::default());
    builder.format(move |out, record| {
        let now = mpip_net::clock::unix_time();
        let mut repeats = repeats.lock().unwrap_or_else(PoisonError::into_inner);
        // What is written to `out` leaves at once, or not at all.
        let Some(left_out) = repeats.permit(now, record) else { return Ok(()) };
        drop(repeats);
        write(out, format, now, record, left_out)
    });
    builder.init();
    Ok(())
}

/// Writes a line. `left_out`: how many from the same place were not since the last one.
fn write(
    out: &mut impl Write,
    format: Format,
    now: Duration,
    record: &Record<'_>,
    left_out: u64,
) -> io::Result<()> {
    let mut message = record.args().to_string();
    if left_out > 0 {
        message += &format!(" ({left_out} lines like this were left out before it)");
    }
    match format {
        Format::Text => {
            let time = rfc3339(now.as_secs_f64() * 1e3);
            writeln!(out, "{time} {:5} {message}", record.level())
        }
        Format::Json => {
            let time = rfc3339(now.as_secs_f64() * 1e3);
            writeln!(out, "{}", record::json(&time, &message, record))
        }
        Format::Journald => out.write_all(&journal::entry(&message, record)),
    }
}

/// What is left of the lines of each place in the program.
#[derive(Debug, Default)]
struct Repeats(BTreeMap<(String, u32), Lines>);

impl Repeats {
    fn permit(&mut self, now: Duration, record: &Record<'_>) -> Option<u64> {
        // Events have allowances of their own, by kind.
        if record.level() > Level::Warn || record::is_event(record) {
            return Some(0);
        }
        let place = (record.file()?.to_owned(), record.line()?);
        if self.0.len() >= PLACES && !self.0.contains_key(&place) {
            return Some(0);
        }
        self.0.entry(place).or_insert_with(|| Lines::new(REPEATS, now)).permit(now)
    }
}

#[cfg(test)]
mod tests;
