//! Where a path is in its life.

use core::fmt;

/// Where a path is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathState {
    /// A challenge is on its way; packets only while no path works, and few.
    Validating,
    /// The peer's address has answered our challenge; the path carries packets.
    Active,
    /// It works, but the association has enough faster ones.
    Standby,
    /// It does not answer; probes go on, packets do not.
    Failed,
    /// Given up; its number is never used again.
    Abandoned,
}

impl PathState {
    /// The name in status output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::Active => "active",
            Self::Standby => "standby",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
