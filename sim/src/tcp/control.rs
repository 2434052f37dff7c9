//! What decides how much a sender may have in flight, and when that may leave.

use super::bbr::Bbr;
use super::window::Window;
use crate::clock::Nanos;
use crate::spec::{TcpAlgorithm, TcpControl};

/// The first segments are not paced (Linux, as `sch_fq`).
const UNPACED_SEGMENTS: u32 = 10;

/// What decides how much may be in flight.
#[derive(Clone, Debug)]
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

    pub(super) fn on_timeout(&mut self) {
        match self {
            Self::Window(window) => window.on_timeout(),
            Self::Bbr(bbr) => bbr.on_timeout(),
        }
    }
}

/// Segments leave in bundles, and after each none for as long as it takes at the rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacing {
    /// Nothing leaves before, but for what is left of a bundle in the same instant.
    pub(super) until: Nanos,
    began: Nanos,
    left: u32,
    /// How long something could have left and did not: Linux makes up for it, with up to half of the next
    /// bundle's time (`tcp_update_skb_after_send`).
    unused: Nanos,
    /// Segments that have left, as far as that is of interest.
    sent: u32,
}

impl Pacing {
    /// Whether the next segment is to wait.
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
            (self.until, self.began, self.left) = (now, now, bbr.bundle());
        }
        let takes = bbr.takes(len);
        let less = self.unused.min(takes / 2);
        self.unused -= less;
        self.until += takes - less;
        self.left -= 1;
    }
}
