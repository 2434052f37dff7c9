//! A host's own TCP, as data.

/// Congestion control of a host's own TCP, which knows nothing about paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpControl {
    /// The congestion control algorithm.
    pub algorithm: TcpAlgorithm,
    /// How acknowledgements are counted.
    pub counting: AckCounting,
    /// Whether HyStart ends slow start (cubic only).
    pub hystart: bool,
}

/// A congestion control algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpAlgorithm {
    /// RFC 9438.
    Cubic,
    /// RFC 5681.
    Reno,
    /// Linux's first version of BBR.
    Bbr,
}

/// How much an acknowledgement lets the window grow. BBR ignores this and counts delivered
/// segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckCounting {
    /// By all bytes that it covers, as in Linux.
    Covered,
    /// In slow start by the bytes that it covers, at most two segments, as in BSD (RFC 3465,
    /// section 2.2).
    TwoSegments,
    /// By one segment, whatever it covers (RFC 5681, section 3.1).
    OneSegment,
}

impl TcpControl {
    /// CUBIC as in Linux, with HyStart.
    pub const CUBIC: Self =
        Self { algorithm: TcpAlgorithm::Cubic, counting: AckCounting::Covered, hystart: true };
    /// Linux's first version of BBR.
    pub const BBR: Self =
        Self { algorithm: TcpAlgorithm::Bbr, counting: AckCounting::Covered, hystart: false };
    /// Reno as in Linux.
    pub const RENO: Self = Self { algorithm: TcpAlgorithm::Reno, ..Self::BBR };

    /// The congestion control with this name: `cubic`, `reno` or `bbr` as in Linux. Of the first
    /// two, the suffix `-l2` counts two segments, `-l1` one. A final suffix `-plain` is CUBIC
    /// without HyStart.
    ///
    /// # Errors
    /// If none of that name is modelled.
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
