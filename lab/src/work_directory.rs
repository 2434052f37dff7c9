//! A directory for the files of a run.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use crate::netns;

/// A directory for keys and sockets that only its owner can enter. Removed when dropped.
pub(crate) struct WorkDirectory {
    pub(crate) path: PathBuf,
}

impl WorkDirectory {
    /// Makes the directory of this process.
    pub(crate) fn create() -> io::Result<Self> {
        let path = netns::work_directory(std::process::id());
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(Self { path })
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
