//! Which daemon is meant: its control socket.

use std::fs;
use std::path::{Path, PathBuf};

use mpip_api::SOCKET_DIRECTORY;

use crate::failure::Failure;

/// The socket `given`, else the only one in [`SOCKET_DIRECTORY`].
pub(crate) fn find(given: Option<&Path>) -> Result<PathBuf, Failure> {
    match given {
        Some(path) => Ok(path.to_owned()),
        None => only_one(Path::new(SOCKET_DIRECTORY)),
    }
}

/// As [`find`], but `None` where there is no socket.
pub(crate) fn find_any(given: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let directory = Path::new(SOCKET_DIRECTORY);
    match given {
        None if sockets(directory)?.is_empty() => Ok(None),
        given => find(given).map(Some),
    }
}

fn sockets(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let shown = directory.display();
    let mut sockets: Vec<PathBuf> = match fs::read_dir(directory) {
        Ok(entries) => entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(Failure(format!("cannot look for daemons in {shown}: {error}"))),
    };
    sockets.retain(|path| path.extension().is_some_and(|extension| extension == "sock"));
    sockets.sort();
    Ok(sockets)
}

/// The only socket in `directory`.
fn only_one(directory: &Path) -> Result<PathBuf, Failure> {
    let shown = directory.display();
    let mut sockets = sockets(directory)?;
    match sockets.len() {
        1 => Ok(sockets.remove(0)),
        0 => Err(Failure(format!(
            "no daemon runs: expected a control socket in {shown}; start one with `mpip up FILE`, \
             or name its socket with --socket"
        ))),
        _ => {
            let list: Vec<_> = sockets.iter().map(|path| path.display().to_string()).collect();
            Err(Failure(format!(
                "expected --socket, because several daemons run: {}",
                list.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use mpip_testing::Directory;

    use super::*;

    #[test]
    fn the_only_socket_is_found_and_several_are_named() {
        let parent = Directory::new();
        let directory = parent.join("run");
        let error = only_one(&directory).expect_err("no directory");
        assert!(error.to_string().starts_with("no daemon runs: "), "{error}");
        fs::create_dir_all(&directory).expect("writable");
        fs::write(directory.join("mpip0.log"), "").expect("writable");
        assert!(only_one(&directory).is_err(), "a log is no socket");
        fs::write(directory.join("mpip0.sock"), "").expect("writable");
        assert_eq!(only_one(&directory).expect("one"), directory.join("mpip0.sock"));
        fs::write(directory.join("mpip1.sock"), "").expect("writable");
        let error = only_one(&directory).expect_err("two").to_string();
        assert!(error.contains("mpip0.sock, ") && error.contains("mpip1.sock"), "{error}");
    }
}
