//! The daemon of another revision.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command;

/// Exports the revision `$1` of the repository `$2` below `$3`, builds its daemon there and removes
/// the sources, also when it is interrupted. The sources are as new as the export, so that cargo
/// sees what differs from the revision that was built before; what does not change is kept.
const BUILD: &str = r#"
set -eu
trap 'rm -rf "$3/sources"' EXIT
trap 'exit 130' INT TERM
rm -rf "$3/sources" "$3/revision"
mkdir -p "$3/sources"
git -C "$2" archive --output="$3/sources.tar" "$1"
tar -xmf "$3/sources.tar" -C "$3/sources"
rm "$3/sources.tar"
cd "$3/sources"
# Half an hour.
CARGO_TARGET_DIR="$3/build" timeout --foreground 1800 \
    "${CARGO:-cargo}" build --locked --release -p mpip-daemon --bin mpipd
printf %s "$1" >"$3/revision"
"#;

/// The commit of a revision of the repository.
///
/// # Errors
/// There is none; the error names the revision.
fn commit(repository: &Path, revision: &str) -> io::Result<String> {
    let repository = repository.display().to_string();
    let name = format!("{revision}^{{commit}}");
    let line =
        ["git", "-C", &repository, "rev-parse", "--verify", "--quiet", "--end-of-options", &name];
    command::run(&line).map(|text| text.trim().to_owned()).map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            return error;
        }
        let message = format!("expected a revision of {repository}, found {revision:?}");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })
}

/// Builds the daemon of a revision below `directory`, unless the last build was of the same commit.
/// Returns its path and the commit.
///
/// # Errors
/// There is no such revision, or it does not build.
pub(super) fn daemon(
    repository: &Path,
    revision: &str,
    directory: &Path,
) -> io::Result<(PathBuf, String)> {
    let commit = commit(repository, revision)?;
    let program = directory.join("build/release/mpipd");
    let built = std::fs::read_to_string(directory.join("revision")).unwrap_or_default();
    if built != commit || !program.exists() {
        eprintln!("building mpipd of {revision} ({commit})");
        // In this process's group, so that an interrupt from the terminal reaches the build.
        let status = Command::new("sh")
            .args(["-c", BUILD, "sh", &commit])
            .args([repository, directory])
            .status()?;
        if !status.success() {
            return Err(io::Error::other(format!("mpipd of {revision} was not built: {status}")));
        }
    }
    Ok((program, commit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_that_is_not_there_is_named_and_nothing_is_built() {
        let repository = mpip_testing::Directory::new();
        let directory = repository.join("never");
        let path = repository.path().display().to_string();
        command::run(&["git", "init", "--quiet", &path]).expect("git");
        for revision in ["no-such-revision", "--help", ""] {
            let error = daemon(repository.path(), revision, &directory).expect_err("none");
            assert!(error.to_string().contains(&format!("found {revision:?}")), "{error}");
        }
        assert!(!directory.exists());
    }
}
