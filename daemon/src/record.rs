//! Files beside the control socket in which the daemon writes down what it is to put back, so that
//! the next one can when this one is killed.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// One such file.
#[derive(Debug)]
pub(crate) struct Record {
    file: PathBuf,
}

impl Record {
    /// The record of `what`. The file is called like the control socket, with `.` and `what`.
    pub(crate) fn beside(control_socket: &Path, what: &str) -> Self {
        let mut file = control_socket.to_owned().into_os_string();
        file.push(".");
        file.push(what);
        Self { file: file.into() }
    }

    /// The file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// What is written there, if anything is.
    pub(crate) fn read(&self) -> Option<String> {
        fs::read_to_string(&self.file).ok()
    }

    /// Writes `text` in place of what was there.
    pub(crate) fn write(&self, text: &str) -> io::Result<()> {
        let directory = self.file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)?;
        fs::write(&self.file, text)
    }

    /// There is nothing to put back any more.
    pub(crate) fn remove(&self) {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                log::warn!("cannot remove {}: {error}", self.file.display());
            }
            _ => {}
        }
    }
}
