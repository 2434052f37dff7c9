//! What the model of the path permits: the window and the pacing rate.

use super::{Bbr, CongestionControl, INITIAL_WINDOW_PACKETS, RateSample, State};

impl Bbr {
    /// Window in ProbeRTT, bytes. A path that delivers in bursts would starve without the extra
    /// acknowledged bytes; on other paths these would start a queue.
    pub(super) fn probe_rtt_window(&self) -> f64 {
        let (bdp, bursts) = (self.bdp(), self.extra_acked.bytes());
        let holds = if bursts > bdp { bdp + bursts } else { bdp };
        (self.parameters.probe_rtt_window_gain * holds).max(self.min_window())
    }

    pub(super) fn update_window(&mut self, sample: &RateSample) {
        let gain = match self.state {
            State::Startup => self.parameters.startup_gain,
            State::ProbeBwUp => self.parameters.up_window_gain,
            State::Drain | State::ProbeBwDown | State::ProbeBwCruise => self.parameters.window_gain,
            State::ProbeRtt(_) => {
                self.window = self.window.min(self.probe_rtt_window());
                return;
            }
            State::Compete => {
                let (window, _) = self.rival.window().expect("it competes with a window");
                self.window = window.max(self.min_window());
                return;
            }
        };
        let gain = if self.full_bandwidth.reached { self.group.window_gain(gain) } else { gain };
        let bursts = self.group.burst(self.extra_acked.bytes());
        let target =
            (gain * self.bdp() + bursts).max(3.0 * self.send_quantum()).max(self.min_window());
        let grown = self.window + sample.acked as f64;
        if self.full_bandwidth.reached {
            self.window = grown.min(target);
        } else {
            if self.window < target {
                self.window = grown;
            }
            if !self.failed {
                let first = self.first_window(sample.capacity, sample.min_rtt);
                self.window = self.window.max(first as f64);
            }
        }
        if let Some(high) = self.inflight_hi {
            let share = if self.state == State::ProbeBwUp { 1.0 } else { self.parameters.headroom };
            self.window = self.window.min(high * share);
        }
        self.window = self.window.max(self.min_window());
    }

    pub(super) fn update_pacing(&mut self, sample: &RateSample) {
        let gain = match self.state {
            State::Startup => self.parameters.startup_gain,
            State::Drain => self.parameters.drain_gain,
            State::ProbeBwDown if sample.in_flight as f64 > self.bdp() => self.parameters.down_gain,
            State::ProbeBwDown => self.parameters.drained_gain,
            State::ProbeBwCruise | State::ProbeRtt(_) => 1.0,
            State::ProbeBwUp => self.group.probe_gain(self.parameters.up_gain),
            State::Compete => {
                self.pacing = self.rival.window().and_then(|(_, pacing)| pacing).or(self.pacing);
                return;
            }
        };
        let rate = gain * self.parameters.pacing_margin * self.bw();
        let rtt = sample.smoothed_rtt.as_secs_f64();
        if self.full_bandwidth.reached {
            // At least two packets per RTT, to recover from an estimate near zero.
            let least = if rtt > 0.0 { 2.0 * self.max_datagram as f64 / rtt } else { 0.0 };
            self.pacing = Some(rate.max(least));
        } else {
            let pace = |window: u64| {
                if rtt > 0.0 { self.parameters.startup_gain * window as f64 / rtt } else { 0.0 }
            };
            // A larger first window is for links that are as fast, not for their queues.
            let first = pace(self.first_window(sample.capacity, sample.min_rtt));
            let first = first.min(sample.capacity.map_or(0.0, |capacity| capacity as f64));
            let initial = first.max(pace(INITIAL_WINDOW_PACKETS * self.max_datagram));
            let rate = rate.max(initial).max(self.pacing.unwrap_or(0.0));
            self.pacing = (rate > 0.0).then_some(rate);
        }
    }
}
