//! Loss recovery: the losses of one round trip reduce the window once, and what is sent meanwhile
//! follows what is delivered (proportional rate reduction, RFC 6937, as in Linux).

/// Recovery from losses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    /// It ends when all bytes before this one are acknowledged.
    pub(super) until: u64,
    /// None after a timeout, where the window grows meanwhile (RFC 5681, section 3.1), and for BBR.
    pub(super) reduction: Option<Reduction>,
    /// It began with a timeout, or had one.
    pub(super) timeout: Option<Timeout>,
}

/// What followed a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timeout {
    /// Nothing was delivered yet.
    Silence,
    Delivery,
}

/// Proportional rate reduction. All in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reduction {
    /// The window before the loss.
    before: u64,
    delivered: u64,
    sent: u64,
    /// What may be sent until the next acknowledgement.
    allowed: u64,
}

impl Reduction {
    /// From a window of `before` bytes. The first retransmission goes out at once.
    pub(super) fn new(before: u64, mss: u64) -> Self {
        Self { before: before.max(1), delivered: 0, sent: 0, allowed: mss }
    }

    /// `delivered` bytes more were, and `in_flight` are left; `window` is the window after the
    /// reduction. `well`: the first missing segment arrived, and no other one is known to be lost.
    pub(super) fn on_delivered(
        &mut self,
        delivered: u64,
        in_flight: u64,
        window: u64,
        well: bool,
        mss: u64,
    ) {
        self.delivered += delivered;
        let allowed = match window.checked_sub(in_flight) {
            None => (self.delivered * window).div_ceil(self.before).saturating_sub(self.sent),
            Some(room) => {
                let owed = self.delivered.saturating_sub(self.sent).max(delivered);
                room.min(owed + if well { mss } else { 0 })
            }
        };
        self.allowed = allowed.max(if self.sent == 0 { mss } else { 0 });
    }

    /// What may be in flight, of which `in_flight` is.
    pub(super) fn window(&self, in_flight: u64) -> u64 {
        in_flight + self.allowed
    }

    pub(super) fn on_sent(&mut self, bytes: u64) {
        self.sent += bytes;
        self.allowed = self.allowed.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_000;

    /// 100 segments in flight, of which one is lost; the window becomes 70.
    #[test]
    fn seven_of_ten_delivered_segments_are_replaced() {
        let mut reduction = Reduction::new(100 * MSS, MSS);
        let mut in_flight = 99 * MSS;
        let mut sent = 0;
        for _ in 0..90 {
            in_flight -= MSS;
            reduction.on_delivered(MSS, in_flight, 70 * MSS, false, MSS);
            let now = (reduction.window(in_flight) - in_flight) / MSS * MSS;
            reduction.on_sent(now);
            (in_flight, sent) = (in_flight + now, sent + now);
        }
        assert!((62 * MSS..=64 * MSS).contains(&sent), "{sent}");
    }

    /// Segments that are declared lost again and again are not sent more often than others arrive.
    #[test]
    fn what_is_sent_follows_what_is_delivered() {
        let mut reduction = Reduction::new(100 * MSS, MSS);
        let mut sent = 0;
        for _ in 0..50 {
            reduction.on_delivered(MSS, 0, 70 * MSS, false, MSS);
            let now = reduction.window(0);
            reduction.on_sent(now);
            sent += now;
        }
        assert_eq!(sent, 50 * MSS);
    }
}
