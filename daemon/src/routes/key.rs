//! Which routes there are, and who wants them.

use mpip_core::Prefix;

/// The main routing table (rtnetlink(7)).
pub(crate) const MAIN_TABLE: u32 = 254;

/// Who wants a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claimant {
    /// Somebody may rely on what refused packets when this daemon started.
    Former,
    /// A peer's prefixes outside of host mode.
    Tunnel(String),
    /// A peer's addresses in host mode.
    Host(String),
}

/// What tells one of our routes from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) table: u32,
    pub(crate) prefix: Prefix,
    /// It refuses packets, once there is none that leads to the device.
    pub(crate) refuses: bool,
}

impl Key {
    /// Whether it refuses packets by leading them to the sink.
    pub(super) fn sinks(&self) -> bool {
        self.refuses && self.table == MAIN_TABLE
    }
}
