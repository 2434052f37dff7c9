//! The life cycle of a path.

use core::fmt;

/// The state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathState {
    /// A challenge has no answer yet. The path carries a few packets if no other path works.
    Validating,
    /// The peer has answered our challenge; the path carries packets.
    Active,
    /// It works, but there are enough better paths.
    Standby,
    /// It does not answer. Probes go on, packets do not.
    Failed,
    /// Closed; its number is never used again.
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
