//! What a route is known by.

use mpip_core::Prefix;

/// What tells one of our routes from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) table: u32,
    pub(crate) prefix: Prefix,
    /// It refuses packets, once there is none that leads to the device.
    pub(crate) refuses: bool,
}
