//! The native protocol of systemd's journal (systemd, "Native Journal Protocol").

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;

use log::{Level, Record};

use super::record;

/// Where the journal listens.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// A connection to the journal. Each write is an entry.
#[derive(Debug)]
pub(super) struct Journal(UnixDatagram);

impl Journal {
    pub(super) fn open() -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(SOCKET)?;
        // A journal that does not keep up must not make packets wait.
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }
}

impl Write for Journal {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        // An entry that the journal does not take is lost: there is nowhere to say so. One that was
        // left out is empty.
        if !entry.is_empty() && self.0.send(entry).is_err() {
            let _ = self.0.connect(SOCKET).and_then(|()| self.0.send(entry));
        }
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A record as an entry of the journal: `MESSAGE`, `PRIORITY`, and `MPIP_` and the name in capitals
/// for each field of an event.
pub(super) fn entry(message: &str, record: &Record<'_>) -> Vec<u8> {
    // Levels of syslog(3).
    let priority = match record.level() {
        Level::Error => "3",
        Level::Warn => "4",
        Level::Info => "6",
        Level::Debug | Level::Trace => "7",
    };
    let mut entry = Vec::new();
    field(&mut entry, "MESSAGE", message);
    field(&mut entry, "PRIORITY", priority);
    field(&mut entry, "SYSLOG_IDENTIFIER", "mpipd");
    record::visit(record, |name, value| {
        let name = format!("MPIP_{}", name.to_ascii_uppercase());
        field(&mut entry, &name, &value.to_string());
    });
    entry
}

fn field(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend_from_slice(value.as_bytes());
    entry.push(b'\n');
}
