//! Samples of the delivery rate (draft-cheng-iccrg-delivery-rate-estimation).

use crate::clock::Nanos;

/// The state of delivery when a segment is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delivery {
    /// Bytes delivered so far.
    pub(super) delivered: u64,
    /// Time at which the last of them was acknowledged.
    delivered_at: Nanos,
    /// Time at which the newest of them was sent.
    sent_at: Nanos,
    /// Whether the sender is limited by the application.
    pub(super) app_limited: bool,
}

/// Estimates the delivery rate of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeliveryRate {
    now: Delivery,
    /// The sender counts as limited by the application until this many bytes are delivered; 0 if
    /// it is not limited.
    limited_until: u64,
}

impl DeliveryRate {
    /// Begins a busy period: nothing is in flight.
    pub(super) fn restart(&mut self, now: Nanos) {
        self.now.delivered_at = now;
        self.now.sent_at = now;
    }

    /// Bytes delivered so far.
    pub(super) fn delivered(&self) -> u64 {
        self.now.delivered
    }

    /// Whether the sender is limited by the application.
    pub(super) fn is_app_limited(&self) -> bool {
        self.limited_until > 0
    }

    /// The sender has nothing more to send. Until the bytes in flight are delivered, samples show
    /// its own rate and not that of the path.
    pub(super) fn limit(&mut self, in_flight: u64) {
        self.limited_until = (self.now.delivered + in_flight).max(1);
    }

    /// The state for a segment that is sent now.
    pub(super) fn snapshot(&self) -> Delivery {
        Delivery { app_limited: self.is_app_limited(), ..self.now }
    }

    /// `bytes` were delivered. The newest segment of them was sent at `sent_at`, with the state
    /// `then`. Returns the time in which the bytes since then were delivered, or were sent if that
    /// took longer. Returns 0 if that is below `min_rtt`, which is too short for a sample.
    pub(super) fn on_delivered(
        &mut self,
        now: Nanos,
        bytes: u64,
        (sent_at, then): (Nanos, &Delivery),
        min_rtt: Nanos,
    ) -> Nanos {
        self.now.delivered += bytes;
        self.now.delivered_at = now;
        self.now.sent_at = sent_at;
        if self.now.delivered > self.limited_until {
            self.limited_until = 0;
        }
        let sending = sent_at.saturating_sub(then.sent_at);
        let interval = sending.max(now.saturating_sub(then.delivered_at));
        if interval < min_rtt { 0 } else { interval }
    }
}
