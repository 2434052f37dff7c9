//! `mpip explain`: why each path is used or not, in a sentence with figures.
//!
//! [`explanation`] makes it of what the daemon says, for all that is asked about. What is said of a
//! [`path`], a [`peer`], an [`interface`] and a [`session`] has a file each: a cause with its
//! figures, and its words. [`watch`] tells what is new.

mod explanation;
mod interface;
mod path;
mod peer;
mod session;
mod watch;

use std::path::Path;

pub(crate) use self::explanation::Options;
use self::explanation::{explain, look, render};
use crate::failure::Failure;
use crate::output::{colours, print};

/// Explains what the daemon on `socket` does.
pub(crate) fn run(socket: &Path, options: &Options) -> Result<(), Failure> {
    if options.watch {
        return watch::run(socket, options);
    }
    let explained = explain(&look(socket, options.sessions)?, options)?;
    match options.json {
        true => print(&format!("{}\n", serde_json::to_string_pretty(&explained)?)),
        false => print(&render(&explained, colours())),
    }
}

/// All paths explained, for a report.
pub(crate) fn text(socket: &Path) -> Result<String, Failure> {
    let explained = explain(&look(socket, false)?, &Options::default())?;
    Ok(render(&explained, false))
}

#[cfg(test)]
mod tests;
