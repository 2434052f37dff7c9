//! `mpip events`: events as they happen.

use std::path::Path;

use mpip_api::{Client, Event, rfc3339};

use crate::failure::Failure;
use crate::output::print;

/// Prints events until the daemon ends.
pub(crate) fn follow(socket: &Path, json: bool) -> Result<(), Failure> {
    for event in Client::connect(socket)?.events()? {
        let event = event?;
        let line = if json { serde_json::to_string(&event)? } else { text(&event) };
        print(&format!("{line}\n"))?;
    }
    Err(Failure("the daemon ended".to_owned()))
}

fn text(event: &Event) -> String {
    format!("{} {}", rfc3339(event.unix_time_ms), event.message)
}
