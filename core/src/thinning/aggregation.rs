//! Aggregation of acknowledgements for BBR senders whose minimum RTT is that of a nearer path.
//!
//! BBR lets twice its rate times its minimum RTT be in flight
//! (draft-cardwell-iccrg-bbr-congestion-control-00, section 4.2.3.2). It keeps the minimum for 10 s.
//! If the handshake and the first packets took a near path, and the transfer takes a far one, that
//! is too little, and its rate falls round by round. But BBR adds as many bytes as were
//! acknowledged at once beyond its rate (`bbr_ack_aggregation_cwnd` in Linux, at most 100 ms at its
//! rate), and keeps the largest such number for at least five rounds. So acknowledgements are
//! dropped for a moment, once in [`ROUNDS`]: the next one covers them all.
//!
//! Whether a sender is such a BBR is seen by its reaction. If it answers an aggregate with a burst,
//! it does not pace, as BBR does, and there is no other. If it does not become faster, aggregation
//! ends for a while.

use core::time::Duration;

use mpip_types::Instant;

use crate::parameters::AggregationParameters;

/// Time for which BBR keeps its minimum RTT (`bbr_min_rtt_win_sec`).
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
/// Time in which a sender that does not pace reacts to an acknowledgement.
const BURST: Duration = Duration::from_millis(2);

/// How the sender of one direction of a TCP connection reacts to aggregated acknowledgements.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aggregation {
    /// Start of this period, and what was acknowledged then.
    began: Instant,
    from: u32,
    /// Rounds of this period.
    rounds: u32,
    /// Lowest RTT in this period, µs; 0 before the first sample.
    rtt: u32,
    /// The minimum RTT as BBR keeps it, µs, and when it was measured; 0 before the first sample.
    lowest: u32,
    lowest_at: Instant,
    /// In this period data waited, or all was acknowledged: the window was not the limit.
    ample: bool,
    /// Rate in the last period, bytes/s.
    rate: u64,
    /// Rate before aggregation began, bytes/s; 0 while acknowledgements are not aggregated.
    before: u64,
    /// Periods since then.
    tried: u32,
    /// Acknowledgements are dropped until then.
    until: Instant,
    /// An aggregate that passed, and the sender's reaction to it is not known yet.
    aggregate: Option<Aggregate>,
    /// The sender does not pace.
    bursts: u32,
    /// No trial before then, and the pause after the next one in vain.
    again: Instant,
    pause: Duration,
}

/// An acknowledgement that covers all that was dropped before it.
#[derive(Clone, Copy, Debug)]
struct Aggregate {
    passed: Instant,
    /// Bytes that it covers.
    covered: u32,
    /// End of the sender's stream then, and after its reaction so far.
    before: u32,
    after: u32,
}

impl Aggregation {
    /// Whether an acknowledgement is dropped if another one follows.
    pub(super) fn drops(&self, now: Instant) -> bool {
        now < self.until
    }

    /// An acknowledgement of `covered` bytes passes. The stream ends at `end`.
    pub(super) fn on_passed(&mut self, now: Instant, covered: u32, end: u32) {
        if self.until > Instant::ZERO {
            self.until = Instant::ZERO;
            self.aggregate = Some(Aggregate { passed: now, covered, before: end, after: end });
        }
    }

    /// The sender has sent a segment; its stream ends at `end`.
    pub(super) fn on_segment(&mut self, now: Instant, end: u32) {
        let Some(aggregate) = &mut self.aggregate else { return };
        if now <= aggregate.passed + BURST {
            aggregate.after = end;
            return;
        }
        self.aggregate = None;
    }

    /// A round trip took `rtt` µs.
    pub(super) fn on_rtt(&mut self, now: Instant, rtt: u32) {
        self.rtt = if self.rtt == 0 { rtt } else { self.rtt.min(rtt) };
        let expired = now.since(self.lowest_at) > MIN_RTT_WINDOW;
        if self.lowest == 0 || rtt <= self.lowest || expired {
            (self.lowest, self.lowest_at) = (rtt, now);
        }
    }

    /// The window is not what limits the sender.
    pub(super) fn on_ample_window(&mut self) {
        self.ample = true;
    }

    /// A round ends with everything before `ack` acknowledged.
    pub(super) fn on_round(
        &mut self,
        now: Instant,
        ack: u32,
        parameters: &AggregationParameters,
    ) {
        self.rounds += 1;
        if self.rounds < parameters.rounds {
            return;
        }
        let micros = u64::try_from(now.since(self.began).as_micros()).unwrap_or(u64::MAX).max(1);
        let rate = u64::from(ack.wrapping_sub(self.from)).saturating_mul(1_000_000) / micros;
        if std::env::var_os("DBG").is_some() { eprintln!("{now:?} rate {rate} rtt {} lowest {} ample {} before {} tried {} again {:?} bursts {}", self.rtt, self.lowest, self.ample, self.before, self.tried, self.again, self.bursts); }
        let missing = self.rtt.saturating_sub(self.lowest.saturating_mul(2));
        let lacks = missing > 0 && self.lowest > 0;
        if self.decides(now, rate, lacks, parameters) {
            let missing = Duration::from_micros(missing.into());
            self.until = now + (missing * 4).min(parameters.longest);
        }
        *self = Self { began: now, from: ack, rounds: 0, rtt: 0, ample: false, rate, ..*self };
    }

    /// Whether acknowledgements are aggregated in the next period.
    fn decides(
        &mut self,
        now: Instant,
        rate: u64,
        lacks: bool,
        parameters: &AggregationParameters,
    ) -> bool {
        let gains = |before: u64| rate as f64 >= before as f64 * parameters.gain;
        if !lacks || self.bursts > 1 {
            self.before = 0;
            return false;
        }
        if self.before == 0 {
            // A window that still grows, or is not the limit, needs no help.
            if self.ample || self.bursts > 1 || now < self.again || gains(self.rate) {
                return false;
            }
            (self.before, self.tried) = (rate.max(1), 0);
            return true;
        }
        self.tried += 1;
        if self.tried >= parameters.trial && !gains(self.before) {
            self.before = 0;
            self.pause = (self.pause * 2).clamp(parameters.pause, parameters.pause_most);
            self.again = now + self.pause;
            return false;
        }
        true
    }
}
