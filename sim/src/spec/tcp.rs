//! A host's own TCP, as data.

/// What limits a host's own TCP, which knows nothing of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpControl {
    /// What the window does.
    pub algorithm: TcpAlgorithm,
    /// What an acknowledgement counts.
    pub counting: AckCounting,
    /// Whether HyStart ends slow start (cubic only).
    pub hystart: bool,
}

/// What a window does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpAlgorithm {
    /// RFC 9438.
    Cubic,
    /// RFC 5681.
    Reno,
    /// Linux's first version of BBR.
    Bbr,
}

/// By how much an acknowledgement lets the window grow. BBR counts what is delivered, whatever this
/// says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckCounting {
    /// By all that it covers, as with Linux.
    Covered,
    /// In slow start by what it covers, two segments at most, as with BSD (RFC 3465, section 2.2).
    TwoSegments,
    /// By what one segment gives, whatever it covers (RFC 5681, section 3.1).
    OneSegment,
}

impl TcpControl {
    /// Cubic as Linux has it, with HyStart.
    pub const CUBIC: Self =
        Self { algorithm: TcpAlgorithm::Cubic, counting: AckCounting::Covered, hystart: true };
    /// Linux's first version of BBR.
    pub const BBR: Self =
        Self { algorithm: TcpAlgorithm::Bbr, counting: AckCounting::Covered, hystart: false };
    /// Reno as Linux has it.
    pub const RENO: Self = Self { algorithm: TcpAlgorithm::Reno, ..Self::BBR };

    /// The one with this name: `cubic`, `reno` or `bbr` as Linux has them, or one of the first two
    /// with `-l2` (two segments count) or `-l1` (one segment counts) behind it; `-plain` behind all
    /// that is cubic without HyStart.
    ///
    /// # Errors
    /// It is none of those that are modelled.
    pub fn from_name(name: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "the simulator has \"cubic\", \"reno\" and \"bbr\" for TCP, the first two also with \"-l2\" \
                 or \"-l1\", cubic also with \"-plain\", not {name:?}"
            )
        };
        let mut parts = name.split('-');
        let mut control = match parts.next() {
            Some("cubic") => Self::CUBIC,
            Some("reno") => Self::RENO,
            Some("bbr") => Self::BBR,
            _ => return Err(unknown()),
        };
        for part in parts {
            match part {
                "l2" if control != Self::BBR => control.counting = AckCounting::TwoSegments,
                "l1" if control != Self::BBR => control.counting = AckCounting::OneSegment,
                "plain" if control.hystart => control.hystart = false,
                _ => return Err(unknown()),
            }
        }
        Ok(control)
    }
}

impl Default for TcpControl {
    fn default() -> Self {
        Self::CUBIC
    }
}
