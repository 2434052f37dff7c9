//! The machine and the version with which results are made.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::command;

/// The machine and the version with which a run was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Environment {
    pub(crate) version: String,
    pub(crate) commit: String,
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
}

fn first_line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// The top directory of the sources of this program.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Whether this kernel has MPTCP.
pub(crate) fn has_mptcp() -> bool {
    Path::new("/proc/sys/net/mptcp/enabled").exists()
}

impl Environment {
    /// Those of this machine and this program.
    pub(crate) fn here() -> Self {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
        let model = model.map(|text| text.trim_start_matches(['\t', ' ', ':']).to_owned());
        let root = repository().display().to_string();
        let commit = command::run(&["git", "-C", &root, "rev-parse", "--short=12", "HEAD"]);
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit.map(|text| text.trim().to_owned()).unwrap_or_default(),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            cpu: model.unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}
