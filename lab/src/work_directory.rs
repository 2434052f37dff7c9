//! A directory for the files of a run.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::netns;

/// How many this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A directory for keys and sockets that only its owner can enter. Removed when dropped.
pub(crate) struct WorkDirectory {
    pub(crate) path: PathBuf,
}

impl WorkDirectory {
    /// Makes a directory in that of this process, which the guard process removes.
    pub(crate) fn create() -> io::Result<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = netns::work_directory(std::process::id()).join(number.to_string());
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(Self { path })
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
