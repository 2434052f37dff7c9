//! The file of what is used, and the thread that writes it.
//!
//! ```text
//! # What is used of the budgets of [[path]] sections. mpipd writes this file.
//! wwan0 month 1764547200 12345678
//! end 1
//! ```
//!
//! A line is an interface, the kind and the start (s since 1970) of a period, and bytes. The last
//! line is the number of those before it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

use super::ledger::{Ledger, REMEMBERED, Used};
use crate::config::Period;
use crate::handover::Handover;
use crate::replace::replace;

/// The line that the file begins with.
const HEADER: &str =
    "# What is used of the budgets of [[path]] sections. mpipd writes this file.\n";
/// Largest file that is read, bytes: that of thousands of interfaces.
const LONGEST: u64 = 1 << 20;

/// The ledger as the file has it.
pub(super) fn text(ledger: &Ledger) -> String {
    let mut text = HEADER.to_owned();
    let mut count = 0;
    for (interface, list) in ledger {
        for Used { period, start, bytes } in list {
            text += &format!("{interface} {} {start} {bytes}\n", period.name());
            count += 1;
        }
    }
    text + &format!("end {count}\n")
}

/// What `text` says, or the number of the line that is wrong and what is.
pub(super) fn parse(text: &str) -> Result<Ledger, String> {
    let mut ledger = Ledger::new();
    let Some(lines) = text.strip_prefix(HEADER) else {
        return Err(format!("line 1: expected `{}`", HEADER.trim_end()));
    };
    let mut count = 0;
    let mut ended = false;
    for (number, line) in (2..).zip(lines.lines()) {
        let wrong = |expected: &str| format!("line {number}: expected {expected}, found `{line}`");
        if ended {
            return Err(wrong("nothing behind the last line"));
        }
        if let Some(end) = line.strip_prefix("end ") {
            if end.parse() != Ok(count) {
                return Err(wrong(&format!("`end {count}`")));
            }
            ended = true;
            continue;
        }
        let used = parse_line(line).ok_or_else(|| wrong("an interface, a period and bytes"))?;
        let list = ledger.entry(used.0.to_owned()).or_default();
        if list.len() == REMEMBERED {
            return Err(wrong("no more than four periods of an interface"));
        }
        list.push(used.1);
        count += 1;
    }
    if ended && text.ends_with('\n') { Ok(ledger) } else { Err("the last line is missing".into()) }
}

fn parse_line(line: &str) -> Option<(&str, Used)> {
    let mut words = line.split(' ');
    let interface = words.next().filter(|name| !name.is_empty())?;
    let period = Period::from_name(words.next()?)?;
    let (start, bytes) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some((interface, Used { period, start, bytes }))
}

/// The ledger in `file`; empty if there is none. A file with something else is set aside.
pub(super) fn load(file: &Path) -> Result<Ledger, String> {
    let shown = file.display();
    let read = fs::metadata(file).and_then(|metadata| match metadata.len() <= LONGEST {
        true => fs::read_to_string(file),
        false => Err(io::Error::other(format!("it is longer than {LONGEST} bytes"))),
    });
    let reason = match read.map(|text| parse(&text)) {
        Ok(Ok(ledger)) => return Ok(ledger),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ledger::new()),
        Ok(Err(reason)) => reason,
        Err(error) => error.to_string(),
    };
    let mut aside = file.as_os_str().to_owned();
    aside.push(".damaged");
    let aside = PathBuf::from(aside);
    let then = match fs::rename(file, &aside) {
        Ok(()) => format!("it is set aside as `{}`", aside.display()),
        Err(error) => format!("and it cannot be set aside: {error}"),
    };
    Err(format!("`{shown}`, which mpipd writes, is damaged: {reason}; {then}"))
}

/// Starts the thread that writes texts to `file`.
pub(super) fn start_writer(file: PathBuf) -> io::Result<Handover<String>> {
    Handover::start("budgets", move |todo: &Receiver<String>| {
        let mut failures = 0_u32;
        while let Ok(text) = todo.recv() {
            let suffix = format!(".{}", std::process::id());
            match replace(&file, &suffix, 0o644, text.as_bytes()) {
                Ok(()) => failures = 0,
                Err(error) => {
                    // Of a disk that is full for long one line in a while.
                    failures = failures.saturating_add(1);
                    if failures.is_power_of_two() {
                        let file = file.display();
                        log::error!(
                            "what is used of budgets cannot be written to `{file}`: {error}"
                        );
                    }
                }
            }
        }
    })
}
