//! Congestion control of one path: how much may be in flight and how fast it may leave.
//!
//! A controller gets events from loss detection and gives a window and a pacing rate. It owns no
//! clock and no randomness, and it knows nothing of sessions or other associations. The coupled
//! ones (RFC 6356 and its successors) get a summary of the association's other paths.

mod balia;
mod bbr;
mod control;
mod cubic;
mod hystart;
mod kind;
mod lia;
mod none;
mod olia;
mod reno;
mod window;

use crate::parameters::BbrParameters;
use mpip_types::Instant;

pub use self::control::{
    CongestionControl, CongestionEvent, INITIAL_WINDOW_PACKETS, RateSample, RttSum, Subflow,
};
pub use self::kind::CongestionControlKind;

/// A new controller for a path whose datagrams have `max_datagram` bytes; `parameters` are those of
/// BBR.
pub fn new(
    kind: CongestionControlKind,
    now: Instant,
    max_datagram: u64,
    parameters: &BbrParameters,
) -> Box<dyn CongestionControl> {
    match kind {
        CongestionControlKind::Bbr => Box::new(bbr::Bbr::new(now, max_datagram, parameters)),
        CongestionControlKind::Cubic => Box::new(cubic::Cubic::new(max_datagram)),
        CongestionControlKind::Reno => Box::new(reno::Reno::new(max_datagram)),
        CongestionControlKind::Lia => Box::new(lia::Lia::new(max_datagram)),
        CongestionControlKind::Olia => Box::new(olia::Olia::new(max_datagram)),
        CongestionControlKind::Balia => Box::new(balia::Balia::new(max_datagram)),
        CongestionControlKind::None => Box::new(none::None),
    }
}

#[cfg(test)]
mod tests;
