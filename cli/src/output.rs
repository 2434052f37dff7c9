//! Standard output.

use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;

/// Writes `text` to standard output. When the reader has closed it (`mpip status | head -1`), the
/// program ends without an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => Ok(other?),
    }
}

/// The elements of a list, separated by commas.
pub(crate) fn listed<T: ToString>(list: &[T]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether to use colours: standard output is a terminal, and `NO_COLOR` is not set.
pub(crate) fn colours() -> bool {
    is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
