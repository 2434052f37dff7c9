//! Files that are replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts `content` in the place of `file`, with `mode`: whoever reads it, also after a loss of
/// power, finds it as it was or as it is to be. The new file is called like it with `suffix`,
/// until it takes its place; what is there by that name is removed.
pub(crate) fn replace(file: &Path, suffix: &str, mode: u32, content: &[u8]) -> io::Result<()> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let mut name = file.file_name().ok_or(io::Error::from(ErrorKind::InvalidInput))?.to_owned();
    name.push(suffix);
    let new = directory.join(name);
    // What a daemon left that was killed.
    let _ = fs::remove_file(&new);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&new)
        .and_then(|mut open| open.write_all(content).and_then(|()| open.sync_all()))
        .and_then(|()| fs::rename(&new, file));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    // Without this a loss of power may undo the renaming.
    File::open(directory)?.sync_all()
}
