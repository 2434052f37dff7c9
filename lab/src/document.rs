//! Documents with parts that this program writes.

use std::io;
use std::path::Path;

/// Such a part ends with this line.
const END: &str = "<!-- until here -->\n";

/// `document` with `part` between the line `begin` and the next end; `None` without a place for it.
pub(crate) fn updated(document: &str, begin: &str, part: &str) -> Option<String> {
    let (head, rest) = document.split_once(begin)?;
    let (_, tail) = rest.split_once(END)?;
    Some(format!("{head}{begin}{part}{END}{tail}"))
}

/// Writes `part` into `file`, behind the line `begin`.
pub(crate) fn update(file: &Path, begin: &str, part: &str) -> io::Result<()> {
    let document = std::fs::read_to_string(file)?;
    let lacks = || io::Error::other(format!("no line {begin:?} in {}", file.display()));
    std::fs::write(file, updated(&document, begin, part).ok_or_else(lacks)?)
}
