//! The available congestion controls.

use mpip_types::named;

/// The congestion control of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControlKind {
    /// BBR (draft-ietf-ccwg-bbr), with changes for radio links.
    #[default]
    Bbr,
    /// RFC 9438.
    Cubic,
    /// RFC 5681, RFC 9002.
    Reno,
    /// Linked increases, coupled over the association's paths (RFC 6356).
    Lia,
    /// Opportunistic linked increases.
    Olia,
    /// Balanced linked adaptation (seed 003).
    Balia,
    /// No limit, as in the seeds' MPIP.
    None,
}

impl CongestionControlKind {
    /// Whether all paths of an association count as one flow, wherever they lead.
    pub fn couples_all(self) -> bool {
        matches!(self, Self::Lia | Self::Olia | Self::Balia)
    }
}

named!(CongestionControlKind {
    Bbr = "bbr",
    Cubic = "cubic",
    Reno = "reno",
    Lia = "lia",
    Olia = "olia",
    Balia = "balia",
    None = "none",
});
