//! CUBIC: the window as a cubic function of the time since the last loss (RFC 9438), with HyStart++
//! (RFC 9406).

use super::hystart::{CSS_GROWTH_DIVISOR, HyStart, Verdict};
use super::window::{Growth, LossWindow};
use super::{CongestionControl, CongestionEvent, RateSample, Subflow};
use mpip_types::Instant;

/// Aggressiveness, packets per second cubed (RFC 9438, section 5).
const C: f64 = 0.4;
/// Multiplicative decrease factor (RFC 9438, section 4.6).
const BETA: f64 = 0.7;
/// Packets per round trip that give the Reno-friendly estimate the average window of Reno (section
/// 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

#[derive(Debug)]
pub(super) struct Cubic {
    base: LossWindow,
    hystart: HyStart,
    curve: Curve,
    last_feedback: Option<Instant>,
    /// The curve before the last reduction.
    prior: Option<Curve>,
    /// Number of flows that grow as one.
    flows: f64,
    /// Whether slow start ends when a queue builds up (HyStart++).
    uses_hystart: bool,
}

/// The curve of one congestion avoidance stage; windows in packets.
#[derive(Clone, Copy, Debug, Default)]
struct Curve {
    /// The plateau: the window before the last reduction.
    w_max: f64,
    /// Window before the last reduction, without fast convergence.
    prior_window: f64,
    stage: Option<Stage>,
}

#[derive(Clone, Copy, Debug)]
struct Stage {
    start: Instant,
    /// Seconds from the start to the plateau.
    k: f64,
    /// The Reno-friendly estimate.
    w_est: f64,
}

impl Curve {
    /// A reduction from `window`; with fast convergence (section 4.7).
    fn reduced(&mut self, window: f64) {
        self.w_max = if window < self.w_max { window * (1.0 + BETA) / 2.0 } else { window };
        self.prior_window = window;
        self.stage = None;
    }

    fn stage(&mut self, now: Instant, window: f64, c: f64) -> &mut Stage {
        if self.stage.is_none() && self.w_max < window {
            // No loss so far, or the window has recovered: the curve starts at its plateau.
            self.w_max = window;
        }
        let w_max = self.w_max;
        self.stage.get_or_insert_with(|| Stage {
            start: now,
            k: ((w_max - window) / c).cbrt(),
            w_est: window,
        })
    }
}

/// W_cubic at `t` seconds into the stage (RFC 9438, figure 1).
fn w_cubic(t: f64, k: f64, w_max: f64, c: f64) -> f64 {
    c * (t - k).powi(3) + w_max
}

impl Cubic {
    pub(super) fn new(max_datagram: u64) -> Self {
        Self {
            base: LossWindow::new(max_datagram),
            hystart: HyStart::default(),
            curve: Curve::default(),
            last_feedback: None,
            prior: None,
            flows: 1.0,
            uses_hystart: true,
        }
    }

    /// A controller with a window of `window` bytes beside a rival. Slow start, if it is to have
    /// one, is conservative and does not end because of a queue: the rival has built it.
    pub(super) fn beside_rival(max_datagram: u64, window: u64, slow_start: bool) -> Self {
        let mut cubic = Self::new(max_datagram);
        cubic.base.set(window, slow_start);
        cubic.uses_hystart = false;
        cubic
    }

    /// This window is one of `flows` that grow as one flow: the sum of their curves is the curve of
    /// the sum of their windows.
    pub(super) fn set_flows(&mut self, flows: usize) {
        let flows = flows.max(1) as f64;
        if flows != self.flows {
            self.flows = flows;
            self.curve.stage = None;
        }
    }

    fn avoid(&mut self, sample: &RateSample, acked: f64) {
        let packet = self.base.max_datagram();
        let window = self.base.window() / packet;
        let acked = acked / packet;
        let prior_window = self.curve.prior_window;
        let c = C / self.flows;
        let stage = self.curve.stage(sample.now, window, c);
        let t = sample.now.since(stage.start).as_secs_f64();
        let alpha = if stage.w_est >= prior_window { 1.0 } else { ALPHA };
        stage.w_est += alpha / self.flows * acked / window;
        let Stage { k, w_est, .. } = *stage;
        let w_max = self.curve.w_max;
        let growth = if w_cubic(t, k, w_max, c) < w_est {
            w_est - window
        } else {
            let target = w_cubic(t + sample.smoothed_rtt.as_secs_f64(), k, w_max, c)
                .clamp(window, 1.5 * window);
            (target - window) / window * acked
        };
        self.base.grow(growth.max(0.0) * packet);
    }
}

impl CongestionControl for Cubic {
    fn on_sent(&mut self, _now: Instant, bytes: u64, in_flight: u64) {
        self.base.on_sent(bytes, in_flight);
    }

    fn on_feedback(&mut self, sample: &RateSample, _subflows: &[Subflow], _own: usize) {
        let mut divisor = 1.0;
        if !self.uses_hystart {
            divisor = CSS_GROWTH_DIVISOR;
        } else if self.base.in_slow_start() {
            match self.hystart.on_feedback(sample) {
                Verdict::Grow { divisor: slower } => divisor = slower,
                Verdict::Leave => self.base.end_slow_start(),
            }
        }
        match self.base.on_feedback(sample, divisor) {
            Growth::Avoidance(acked) => self.avoid(sample, acked),
            Growth::Unused => {
                // Time in which the window is not used does not count (RFC 9438, section 5.8).
                if let (Some(stage), Some(last)) = (&mut self.curve.stage, self.last_feedback) {
                    stage.start += sample.now.since(last);
                }
            }
            Growth::Recovery | Growth::SlowStart => {}
        }
        self.last_feedback = Some(sample.now);
    }

    fn on_congestion(&mut self, event: &CongestionEvent, _subflows: &[Subflow], _own: usize) {
        let window = self.base.window() / self.base.max_datagram();
        if self.base.reduce(event, BETA) {
            self.prior = Some(self.curve);
            self.curve.reduced(window);
        }
        if event.persistent {
            self.hystart = HyStart::default();
            self.curve.stage = None;
        }
    }

    fn on_spurious(&mut self, _now: Instant) {
        if self.base.undo()
            && let Some(curve) = self.prior.take()
        {
            self.curve = curve;
        }
    }

    fn window(&self) -> u64 {
        self.base.window() as u64
    }

    fn pacing_rate(&self) -> Option<u64> {
        self.base.pacing_rate()
    }

    fn state(&self) -> &'static str {
        self.base.state()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curve_passes_through_known_points() {
        // After a reduction from 100 packets to 70: K = cbrt(30 / 0.4) = 4.217 s.
        let mut curve = Curve::default();
        curve.reduced(100.0);
        let k = curve.stage(Instant::ZERO, 70.0, C).k;
        assert!((k - 4.217_163_3).abs() < 1e-6, "{k}");
        assert!((w_cubic(0.0, k, 100.0, C) - 70.0).abs() < 1e-9);
        assert!((w_cubic(k, k, 100.0, C) - 100.0).abs() < 1e-9);
        assert!((w_cubic(k + 1.0, k, 100.0, C) - 100.4).abs() < 1e-9);
        assert!((w_cubic(k + 5.0, k, 100.0, C) - 150.0).abs() < 1e-9);
    }

    #[test]
    fn second_loss_below_the_plateau_converges_fast() {
        let mut curve = Curve::default();
        curve.reduced(100.0);
        assert_eq!(curve.w_max, 100.0);
        curve.reduced(80.0);
        assert!((curve.w_max - 68.0).abs() < 1e-9, "80 * (1 + 0.7) / 2");
        assert_eq!(curve.prior_window, 80.0);
        curve.reduced(90.0);
        assert_eq!(curve.w_max, 90.0);
    }

    #[test]
    fn reno_friendly_slope_is_that_of_the_rfc() {
        assert!((ALPHA - 9.0 / 17.0).abs() < 1e-12);
    }
}
