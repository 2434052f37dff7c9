//! The socket's file: nobody can connect before its mode is set, and it is removed at the end.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Suffix of the socket's name until its mode and group are set.
pub(crate) const NEW_SUFFIX: &str = ".new";

/// Owner and group may connect, which needs permission to write (unix(7)).
const MODE: u32 = 0o660;

/// Why there is no control socket.
#[derive(Debug)]
pub enum ControlError {
    /// Another daemon answers on it.
    AlreadyRunning(PathBuf),
    /// Another file has its name.
    NotASocket(PathBuf),
    /// A step failed.
    Failed {
        /// The step.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyRunning(path) => write!(
                f,
                "already running: another mpipd answers on the control socket `{}`",
                path.display()
            ),
            Self::NotASocket(path) => write!(
                f,
                "control socket: expected a socket or nothing at `{}`, found another file",
                path.display()
            ),
            Self::Failed { operation, path, error } => {
                write!(f, "control socket: cannot {operation} `{}`: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed { error, .. } => Some(error),
            Self::AlreadyRunning(_) | Self::NotASocket(_) => None,
        }
    }
}

/// The listening socket. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens on `path`, with `group` as the file's group. A socket that a dead daemon left is
    /// replaced; the directory is made if it is missing.
    pub fn bind(path: &Path, group: Option<u32>) -> Result<Self, ControlError> {
        remove_stale(path)?;
        let failed = |operation, path: &Path, error| ControlError::Failed {
            operation,
            path: path.to_owned(),
            error,
        };
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)
                .map_err(|error| failed("make the directory", directory, error))?;
        }
        let mut new = path.as_os_str().to_owned();
        new.push(NEW_SUFFIX);
        let new = PathBuf::from(new);
        let _ = fs::remove_file(&new);
        let listener =
            UnixListener::bind(&new).map_err(|error| failed("listen on", &new, error))?;
        fs::set_permissions(&new, fs::Permissions::from_mode(MODE))
            .and_then(|()| group.map_or(Ok(()), |group| chown(&new, None, Some(group))))
            .and_then(|()| fs::rename(&new, path))
            .map_err(|error| {
                let _ = fs::remove_file(&new);
                failed("set mode, group and name of", path, error)
            })?;
        Ok(Self { listener, path: path.to_owned() })
    }

    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes a socket at `path` on which nobody listens; whether there was one.
pub(crate) fn remove_stale(path: &Path) -> Result<bool, ControlError> {
    let failed = |operation, error: io::Error| ControlError::Failed {
        operation,
        path: path.to_owned(),
        error,
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed("look at", error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(ControlError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match mpip_api::is_served(path) {
        Ok(true) => Err(ControlError::AlreadyRunning(path.to_owned())),
        Ok(false) => {
            fs::remove_file(path).map_err(|error| failed("remove the former", error))?;
            Ok(true)
        }
        Err(error) => Err(failed("ask who listens on", io::Error::other(error.to_string()))),
    }
}
