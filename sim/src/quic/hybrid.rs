//! NewReno with the hybrid slow start of Chromium, which `quic-go` has: slow start ends when delay
//! rises, before anything is lost. The initial window and the bounds are those of `quic-go` 0.65.
#![expect(clippy::disallowed_types, reason = "quinn's interface has this type")]

use core::any::Any;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};

/// Initial window, packets.
const INITIAL: u64 = 32;
/// Least window, packets.
const LEAST: u64 = 2;
/// Slow start goes on below this window, packets, whatever the delay.
const LOW: u64 = 16;
/// Samples at the beginning of a round whose least RTT is compared.
const SAMPLES: u32 = 8;
/// How much that RTT may exceed the least one of all: an eighth of it, within these bounds.
const RISE: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(16)];

/// Makes it for each connection.
pub(super) struct Factory;

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(Hybrid {
            mtu: u64::from(mtu),
            window: INITIAL * u64::from(mtu),
            threshold: u64::MAX,
            recovery: now,
            acknowledged: 0,
            sent: 0,
            latest: None,
            round: Round::default(),
        })
    }
}

/// A round of slow start.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// The round ends when a packet after this one is acknowledged.
    last: u64,
    samples: u32,
    /// The least of the first samples.
    rtt: Duration,
}

#[derive(Clone, Debug)]
struct Hybrid {
    mtu: u64,
    /// Bytes.
    window: u64,
    /// Slow start ends at this window, bytes.
    threshold: u64,
    /// What was sent until then belongs to the last reduction.
    recovery: Instant,
    /// Bytes acknowledged since the window grew last.
    acknowledged: u64,
    /// The last packet sent.
    sent: u64,
    /// RTT of the last packet acknowledged and the least RTT of the connection.
    latest: Option<(Duration, Duration)>,
    round: Round,
}

impl Hybrid {
    /// Takes the RTT that an acknowledgement shows, and says whether delay has risen.
    fn has_risen(&mut self, rtt: Duration, least: Duration) -> bool {
        let round = &mut self.round;
        round.samples += 1;
        if round.samples <= SAMPLES {
            round.rtt = if round.samples == 1 { rtt } else { round.rtt.min(rtt) };
        }
        let [low, high] = RISE;
        round.samples == SAMPLES && round.rtt > least + (least / 8).clamp(low, high)
    }
}

impl Controller for Hybrid {
    fn on_sent(&mut self, _now: Instant, _bytes: u64, packet: u64) {
        self.sent = packet;
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        limited_by_application: bool,
        rtt: &RttEstimator,
    ) {
        self.latest = Some((now.saturating_duration_since(sent), rtt.min()));
        if limited_by_application || sent <= self.recovery {
            return;
        }
        if self.window < self.threshold {
            self.window += bytes;
            return;
        }
        self.acknowledged += bytes;
        if self.acknowledged >= self.window {
            self.acknowledged -= self.window;
            self.window += self.mtu;
        }
    }

    fn on_end_acks(&mut self, _now: Instant, _in_flight: u64, _limited: bool, acked: Option<u64>) {
        let Some((rtt, least)) = self.latest.take() else { return };
        if self.window >= self.threshold {
            return;
        }
        if self.has_risen(rtt, least) && self.window >= LOW * self.mtu {
            self.threshold = self.window;
        }
        if acked.is_some_and(|packet| packet > self.round.last) {
            self.round = Round { last: self.sent, ..Round::default() };
        }
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, persistent: bool, _lost: u64) {
        if sent <= self.recovery {
            return;
        }
        self.recovery = now;
        self.window = (self.window / 2).max(LEAST * self.mtu);
        self.threshold = self.window;
        self.acknowledged = 0;
        if persistent {
            self.window = LEAST * self.mtu;
        }
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.mtu = u64::from(mtu);
        self.window = self.window.max(LEAST * self.mtu);
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        INITIAL * self.mtu
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
