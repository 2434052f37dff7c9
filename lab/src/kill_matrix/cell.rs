//! The dimensions of the matrix, its cells, and their outcomes.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The kind of the paths of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Via {
    /// UDP over IPv4.
    #[value(name = "ipv4")]
    #[serde(rename = "ipv4")]
    V4,
    /// UDP over IPv6.
    #[value(name = "ipv6")]
    #[serde(rename = "ipv6")]
    V6,
    /// Segments of TCP over IPv4.
    Tcp,
    /// UDP over IPv4 with a NAT in front of the opener.
    Nat,
    /// UDP over IPv4 in host mode: the connection has the hosts' own addresses.
    HostMode,
}

impl Via {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::V4 => "UDP over IPv4",
            Self::V6 => "UDP over IPv6",
            Self::Tcp => "TCP segments",
            Self::Nat => "behind NAT",
            Self::HostMode => "host mode",
        }
    }
}

/// How paths are killed. The opener is the host that opens the paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kill {
    /// The opener's interface goes down.
    LinkOpener,
    /// The other host's interface goes down.
    LinkOther,
    /// The opener's address is removed.
    AddressOpener,
    /// The other host's address is removed.
    AddressOther,
    /// All packets are dropped, silently.
    Blackhole,
    /// All packets from the opener are dropped.
    OneWayToOther,
    /// All packets to the opener are dropped.
    OneWayToOpener,
    /// Half of the packets are lost, in both directions.
    Loss,
    /// Packets of more than 1,300 bytes are lost, in both directions.
    MtuHole,
}

impl Kill {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::LinkOpener => "link down, opener",
            Self::LinkOther => "link down, other",
            Self::AddressOpener => "address removed, opener",
            Self::AddressOther => "address removed, other",
            Self::Blackhole => "blackhole",
            Self::OneWayToOther => "blackhole to other",
            Self::OneWayToOpener => "blackhole to opener",
            Self::Loss => "50 % loss",
            Self::MtuHole => "MTU hole",
        }
    }
}

/// One cell: a set of paths, killed in the middle of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) via: Via,
    /// Number of paths.
    pub(super) paths: u8,
    pub(super) kill: Kill,
    /// The paths that are killed: bit 0 is the first.
    pub(super) killed: u8,
}

impl Cell {
    /// The numbers of the paths that are killed.
    pub(super) fn killed_paths(self) -> impl Iterator<Item = usize> {
        (0..usize::from(self.paths)).filter(move |path| self.killed >> path & 1 == 1)
    }
}

/// All cells: every proper subset of every number of paths of every kind, killed in every way.
pub(super) fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for via in Via::value_variants() {
        for paths in 2..=4 {
            for kill in Kill::value_variants() {
                let subsets = 1..(1 << paths) - 1;
                cells.extend(subsets.map(|killed| Cell { via: *via, paths, kill: *kill, killed }));
            }
        }
    }
    cells
}

/// Cells that kill one of two paths. Every way to kill and every kind of path occurs several times.
pub(super) fn quick() -> Vec<Cell> {
    let one_of_two = all().into_iter().filter(|cell| cell.paths == 2 && cell.killed == 1);
    one_of_two.filter(|cell| (cell.kill as usize + cell.via as usize).is_multiple_of(3)).collect()
}

/// The outcome of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) cell: Cell,
    /// The commit that was tested.
    pub(super) commit: String,
    /// The longest time without a byte at either receiver, from the kill on.
    pub(super) longest_stall_ms: f64,
    /// Number of ends of the connection that saw a reset.
    pub(super) resets: u32,
    /// Whether data was altered or missing.
    pub(super) corrupted: bool,
    /// Another reason why the transfer failed.
    pub(super) error: Option<String>,
    /// Bytes received by the other host, and by the opener.
    pub(super) bytes: [u64; 2],
    /// Packets that the kill dropped; `None` if it removed interfaces or addresses.
    pub(super) dropped: Option<u64>,
    /// Time from healing until all paths worked again; `None` if they did not in time.
    pub(super) recovery_ms: Option<f64>,
}

impl Outcome {
    /// The outcome of a cell that has not run.
    pub(super) fn new(cell: Cell, commit: &str) -> Self {
        Self {
            cell,
            commit: commit.to_owned(),
            longest_stall_ms: 0.0,
            resets: 0,
            corrupted: false,
            error: None,
            bytes: [0; 2],
            dropped: None,
            recovery_ms: None,
        }
    }

    /// What is wrong; empty for a good cell.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.resets > 0 {
            faults.push("reset".to_owned());
        }
        if self.corrupted {
            faults.push("corrupted".to_owned());
        }
        faults.extend(self.error.clone());
        if self.dropped == Some(0) {
            faults.push("the kill met no packet".to_owned());
        }
        if self.recovery_ms.is_none() {
            faults.push("paths did not come back".to_owned());
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_proper_subset_is_killed_once() {
        let all = all();
        assert_eq!(all.len(), 5 * 9 * (2 + 6 + 14));
        for (index, cell) in all.iter().enumerate() {
            assert!(!all[..index].contains(cell), "{cell:?} twice");
            let killed = cell.killed_paths().count();
            assert!((1..usize::from(cell.paths)).contains(&killed), "{cell:?}");
        }
    }

    #[test]
    fn the_quick_part_has_every_kill_and_all_that_paths_go_through() {
        let quick = quick();
        assert_eq!(quick.len(), 15);
        for kill in Kill::value_variants() {
            assert!(quick.iter().any(|cell| cell.kill == *kill), "{kill:?}");
        }
        for via in Via::value_variants() {
            assert!(quick.iter().any(|cell| cell.via == *via), "{via:?}");
        }
    }
}
