//! Key files: text that nobody else may read or have written.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;

use mpip_crypto::KeyParseError;
use zeroize::Zeroizing;

/// Longest key file that is read: a key is 44 characters.
const LONGEST: usize = 4_096;

/// The key in `file`, or why there is none.
pub(super) fn read<K: FromStr<Err = KeyParseError>>(file: &Path) -> Result<K, String> {
    let shown = file.display();
    let unreadable = |error| format!("expected a key file, `{shown}` cannot be read: {error}");
    // A file that is a pipe would be waited for.
    let open = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file);
    let mut open = open.map_err(unreadable)?;
    // Of what was opened, whatever the name leads to by now.
    check(file, &open.metadata().map_err(unreadable)?, rustix::process::geteuid().as_raw())?;
    let mut bytes = Zeroizing::new([0; LONGEST]);
    let len = fill(&mut open, &mut *bytes).map_err(unreadable)?;
    let text = bytes.get(..len).and_then(|text| core::str::from_utf8(text).ok());
    let text = text.ok_or_else(|| format!("expected a key file, `{shown}` is no text of a key"))?;
    text.parse().map_err(|error| format!("`{shown}`: {error}"))
}

/// Whether only the user who runs the daemon, and root, can read the file and have written it. A
/// group may read it, too, whose directory it is in: one that root shares with the daemon's user.
pub(super) fn check(file: &Path, metadata: &Metadata, user: u32) -> Result<(), String> {
    let shown = file.display();
    if !metadata.is_file() {
        return Err(format!("expected a key file, `{shown}` is none"));
    }
    let owner = metadata.uid();
    if owner != 0 && owner != user {
        return Err(format!(
            "expected a key file of the user who runs mpipd ({user}) or of root, `{shown}` is of \
             user {owner}, who can read and change it; mend it with `chown {user} {shown}`"
        ));
    }
    let mode = metadata.mode() & 0o777;
    let shared = || {
        file.parent().and_then(|it| it.metadata().ok()).is_some_and(|directory| {
            directory.uid() == 0
                && directory.mode() & libc::S_ISGID != 0
                && directory.gid() == metadata.gid()
        })
    };
    if mode & 0o077 != 0 && !(mode & 0o037 == 0 && shared()) {
        return Err(format!(
            "expected a key file that only its owner can use, `{shown}` has mode {mode:04o}; \
             mend it with `chmod 600 {shown}`"
        ));
    }
    Ok(())
}

/// Reads to the end of `from`, or until `bytes` is full. Returns how many bytes came.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < bytes.len() {
        match from.read(&mut bytes[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}
