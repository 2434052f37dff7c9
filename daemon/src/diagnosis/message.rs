//! The lines that travel between two daemons.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use mpip_api::{Direction, PeerView};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version of these messages.
const VERSION: u64 = 1;

/// Longest line, without its newline, in bytes. A view of 64 paths has 50,000.
const LINE_MAX: u64 = 256 << 10;

/// What a daemon asks its peer's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub(super) enum Request {
    /// What the peer sees of the association.
    View,
    /// To take part in a measurement.
    Bench {
        /// Which way the data go, as the asker sees it.
        direction: Direction,
        /// The path that they are to take alone.
        path: Option<u16>,
        /// How long, ms.
        duration_ms: u64,
        /// How much at most.
        max_bytes: u64,
    },
}

/// What the peer answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "kebab-case")]
pub(super) enum Response {
    /// What it sees.
    View {
        /// What it sees.
        view: Box<PeerView>,
    },
    /// It takes part: data may follow.
    Ready,
    /// What it has received.
    Received(super::load::Measured),
    /// It refuses.
    Error {
        /// Why.
        message: String,
    },
}

/// `message` with its version in front.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u64,
    #[serde(flatten)]
    message: T,
}

/// Writes `message` as a line.
pub(super) fn write(mut stream: &TcpStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(&Versioned { version: VERSION, message })?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}

/// Reads a line. Nothing behind it is read, too.
pub(super) fn read<T: DeserializeOwned>(stream: &TcpStream) -> io::Result<T> {
    let mut line = Vec::new();
    // A byte at a time: what follows are data.
    let mut reader = BufReader::with_capacity(1, stream).take(LINE_MAX + 1);
    reader.read_until(b'\n', &mut line)?;
    parse(&line)
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> io::Result<T> {
    /// Only the version, so that a line of another one is recognised by it.
    #[derive(Deserialize)]
    struct Version {
        version: u64,
    }
    let wrong = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    if line.last() != Some(&b'\n') {
        return Err(wrong(format!(
            "expected a line of at most {LINE_MAX} bytes, found {} bytes without \
                                  an end",
            line.len()
        )));
    }
    let Version { version } = serde_json::from_slice(line)?;
    if version != VERSION {
        return Err(wrong(format!("expected version {VERSION} of the diagnosis, found {version}")));
    }
    let Versioned { message, .. } = serde_json::from_slice(line)?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `[D-2]`
    #[test]
    fn lines_of_later_releases_are_understood_or_refused_with_the_reason() {
        let more = b"{\"version\":1,\"request\":\"view\",\"detail\":3}\n";
        assert_eq!(parse::<Request>(more).expect("more fields"), Request::View);
        let error = |line: &[u8]| parse::<Request>(line).expect_err("refused").to_string();
        assert!(error(b"{\"version\":2,\"request\":\"view\"}\n").contains("version 1"));
        assert!(error(b"{\"version\":1,\"request\":\"reboot\"}\n").contains("`reboot`"));
        assert!(error(b"{\"version\":1,\"requ").contains("without an end"));
        assert!(!error(b"[]\n").is_empty() && !error(b"\n").is_empty());
    }
}
