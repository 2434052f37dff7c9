//! Congestion control and pacing of a sender.

use core::time::Duration;

use super::bbr::Bbr;
use super::window::Window;
use crate::clock::Nanos;
use crate::spec::{TcpAlgorithm, TcpControl};

/// Number of segments at the start that are not paced, as by `sch_fq` of Linux.
const UNPACED_SEGMENTS: u32 = 10;

/// State of a sender, for time lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpState {
    /// Congestion window, bytes.
    pub window: u64,
    /// Smoothed round trip.
    pub round_trip: Duration,
    /// Segments declared lost since the start, those of timeouts included.
    pub lost: u64,
}

/// The congestion control.
#[derive(Debug)]
pub(super) enum Control {
    Window(Window),
    Bbr(Box<Bbr>),
}

impl Control {
    pub(super) fn new(control: TcpControl) -> Self {
        match control.algorithm {
            TcpAlgorithm::Cubic | TcpAlgorithm::Reno => Self::Window(Window::new(control)),
            TcpAlgorithm::Bbr => Self::Bbr(Box::new(Bbr::new())),
        }
    }

    pub(super) fn bytes(&self, mss: usize) -> u64 {
        match self {
            Self::Window(window) => window.bytes(mss),
            Self::Bbr(bbr) => bbr.bytes(mss),
        }
    }

    pub(super) fn on_loss(&mut self) {
        match self {
            Self::Window(window) => window.on_loss(),
            Self::Bbr(bbr) => bbr.on_loss(),
        }
    }

    /// The retransmission timer expired, for the `first` time in this recovery.
    pub(super) fn on_timeout(&mut self, first: bool) {
        match self {
            Self::Window(window) => window.on_timeout(first),
            Self::Bbr(bbr) => bbr.on_timeout(),
        }
    }

    /// The losses of the last recovery were none.
    pub(super) fn on_undo(&mut self) {
        match self {
            Self::Window(window) => window.on_undo(),
            Self::Bbr(bbr) => bbr.on_undo(),
        }
    }
}

/// Pacing. The segments of a TSO packet leave at once; the next ones wait for as long as these take
/// at the rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacing {
    /// Time of the next departure, except for the rest of the current TSO packet.
    pub(super) until: Nanos,
    /// Departure of the current TSO packet.
    began: Nanos,
    /// Segments that are left of it.
    left: u32,
    /// Time that passed unused after `until`. Linux makes up for it with at most half of the time
    /// of each later segment (`tcp_update_skb_after_send`).
    unused: Nanos,
    /// Segments sent, up to [`UNPACED_SEGMENTS`].
    sent: u32,
}

impl Pacing {
    /// Whether the next segment has to wait.
    pub(super) fn waits(&self, now: Nanos) -> bool {
        now < self.until && (now > self.began || self.left == 0)
    }

    /// A segment of `len` bytes leaves, under `control`.
    pub(super) fn on_sent(&mut self, now: Nanos, len: usize, control: &Control) {
        let Control::Bbr(bbr) = control else { return };
        if self.sent < UNPACED_SEGMENTS {
            self.sent += 1;
            return;
        }
        if now > self.began || self.left == 0 {
            self.unused = now.saturating_sub(self.until);
            (self.until, self.began, self.left) = (now, now, bbr.tso_segments());
        }
        let delay = bbr.pacing_delay(len);
        let less = self.unused.min(delay / 2);
        self.unused -= less;
        self.until += delay - less;
        self.left -= 1;
    }
}
