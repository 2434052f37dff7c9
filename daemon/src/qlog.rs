//! Traces of the associations as files.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use mpip_core::trace::qlog::Writer;
use mpip_net::clock;

use crate::config::Settings;
use crate::error::{Error, system};

/// Longest trace, in bytes: about a minute at 100 Mbit/s.
const LIMIT: u64 = 256_000_000;
const BUFFER: usize = 1 << 18;

/// The file of a trace.
#[derive(Debug)]
pub(crate) struct TraceFile(BufWriter<File>);

impl fmt::Write for TraceFile {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_all(text.as_bytes()).map_err(|error| {
            log::warn!("a trace ends: {error}");
            fmt::Error
        })
    }
}

/// Makes a file for each configured peer in `directory`. Only the owner can read it, because it
/// shows who talks with whom, and when.
pub(crate) fn open(
    directory: &Path,
    settings: &Settings,
) -> Result<Vec<(String, Writer<TraceFile>)>, Error> {
    let origin = clock::unix_time().saturating_sub(Duration::from_nanos(clock::now().as_nanos()));
    let started = clock::unix_time().as_millis();
    let mut traces = Vec::new();
    for (number, peer) in settings.peers.iter().enumerate() {
        // A peer's name may have characters that a file name may not.
        let name = format!("{}-{started}-{number}.sqlog", settings.interface);
        let path = directory.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|error| {
            log::error!("expected a directory to write traces to, {}: {error}", path.display());
            system("make a file for a trace")(error)
        })?;
        log::info!("peer `{}`: traced in {}", peer.name, path.display());
        let out = TraceFile(BufWriter::with_capacity(BUFFER, file));
        let title = format!("{} to {}", settings.interface, peer.name);
        let writer =
            Writer::new(out, &title, origin, LIMIT).expect("the header is shorter than the buffer");
        traces.push((peer.name.clone(), writer));
    }
    Ok(traces)
}
