//! Key files: text that nobody else may read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;

use mpip_crypto::KeyParseError;

/// The key in `file`, or why there is none.
pub(super) fn read<K: FromStr<Err = KeyParseError>>(file: &Path) -> Result<K, String> {
    let shown = file.display();
    let metadata = fs::metadata(file)
        .map_err(|error| format!("expected a key file, `{shown}` cannot be read: {error}"))?;
    if !metadata.is_file() {
        return Err(format!("expected a key file, `{shown}` is none"));
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "expected a key file that only its owner can use, `{shown}` has mode {mode:04o}; \
             mend it with `chmod 600 {shown}`"
        ));
    }
    let text = fs::read_to_string(file)
        .map_err(|error| format!("expected a key file, `{shown}` cannot be read: {error}"))?;
    text.parse().map_err(|error| format!("`{shown}`: {error}"))
}
