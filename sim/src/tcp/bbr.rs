//! BBR as Linux has it (`tcp_bbr.c`, the first version; draft-cardwell-iccrg-bbr-congestion-control-00), with
//! its allowance for acknowledgements that come bundled. Left out is what Linux infers of policers from
//! long-term rates (`lt_bw`): a path that loses a fifth or more of what is sent at a steady rate is not
//! taken for one.

use crate::clock::{MILLI, Nanos, SECOND};

/// 2 / ln 2.
const HIGH_GAIN: f64 = 2.885;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const WINDOW_GAIN: f64 = 2.0;
const PACING_MARGIN: f64 = 0.99;
const INITIAL_SEGMENTS: f64 = 10.0;
const LEAST_SEGMENTS: f64 = 4.0;
/// Rounds over which the rate is a maximum, and after which what came bundled is forgotten, twice.
const RATE_ROUNDS: u64 = 10;
const BUNDLE_ROUNDS: u32 = 5;
/// No more than the rate carries in this is added for what came bundled.
const MOST_BUNDLED: Nanos = 100 * MILLI;
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
const LOWEST_RTT_FOR: Nanos = 10 * SECOND;
const PROBE_RTT_FOR: Nanos = 200 * MILLI;
/// Bundles of segments that the two hosts may hold beside what the path does.
const HELD_BUNDLES: f64 = 3.0;
/// A bundle has what leaves in 1/1024 s and at least two segments, or one below this rate, bit/s.
const BUNDLES: f64 = 1024.0;
const LEAST_BUNDLED_RATE: f64 = 1_200_000.0;
const MOST_IN_BUNDLE: f64 = 127.0;
/// What is taken for the round trip as long as there is no sample.
const NO_RTT: Nanos = MILLI;

/// What an acknowledgement shows. Bytes count as segments of the full length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) now: Nanos,
    /// Bytes of a full segment.
    pub(super) mss: usize,
    /// Segments that it is news of, and that are lost by it.
    pub(super) acked: f64,
    pub(super) lost: f64,
    /// Delivered in all, and when the newest of what is acknowledged had left.
    pub(super) delivered: f64,
    pub(super) prior_delivered: f64,
    /// In how long the difference arrived, or was sent if that took longer; 0 if it is not known.
    pub(super) interval: Nanos,
    /// The sender lacked something to send by then.
    pub(super) app_limited: bool,
    /// Round-trip time, unless only what was sent again is acknowledged.
    pub(super) rtt: Option<Nanos>,
    /// In flight before and after.
    pub(super) prior_in_flight: f64,
    pub(super) in_flight: f64,
    /// For how long pacing still holds back the next segment.
    pub(super) paced: Nanos,
    /// What is lost is being sent again.
    pub(super) recovers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// The window and rate of a sender.
#[derive(Clone, Debug)]
pub(super) struct Bbr {
    mode: Mode,
    segments: f64,
    mss: f64,
    /// Segments per second.
    pacing: f64,
    seen_rtt: bool,
    /// The highest rate of each of the last rounds, with its round.
    rates: Vec<(u64, f64)>,
    round: u64,
    round_started: bool,
    /// What ends the round: something that left with so much delivered is acknowledged.
    round_end: f64,
    lowest_rtt: Option<Nanos>,
    lowest_at: Nanos,
    full_rate: f64,
    full_rounds: u32,
    cycle: usize,
    cycle_at: Nanos,
    /// When ProbeRTT ends, once the flight is small, and whether it has lasted for a round.
    probed_at: Option<Nanos>,
    probed_round: bool,
    /// The window before a recovery or ProbeRTT.
    prior: f64,
    recovers: bool,
    /// Nothing was in flight for want of something to send, and nothing was acknowledged since.
    restarts: bool,
    /// The first round of a recovery sends what has arrived, not more.
    conserves: bool,
    /// Acknowledged beyond what the rate explains, of the present rounds and those before.
    bundled: [f64; 2],
    bundle_rounds: u32,
    epoch: (Nanos, f64),
}

impl Bbr {
    pub(super) fn new() -> Self {
        Self {
            mode: Mode::Startup,
            segments: INITIAL_SEGMENTS,
            mss: 0.0,
            pacing: 0.0,
            seen_rtt: false,
            rates: Vec::new(),
            round: 0,
            round_started: false,
            round_end: 0.0,
            lowest_rtt: None,
            lowest_at: 0,
            full_rate: 0.0,
            full_rounds: 0,
            cycle: 0,
            cycle_at: 0,
            probed_at: None,
            probed_round: false,
            prior: 0.0,
            recovers: false,
            restarts: false,
            conserves: false,
            bundled: [0.0; 2],
            bundle_rounds: 0,
            epoch: (0, 0.0),
        }
    }

    pub(super) fn bytes(&self, mss: usize) -> u64 {
        (self.segments * mss as f64) as u64
    }

    /// Time after which `bytes` may be followed by more.
    pub(super) fn takes(&self, bytes: usize) -> Nanos {
        (bytes as f64 / self.mss / self.pacing * SECOND as f64) as Nanos
    }

    /// Segments that leave at once (`bbr_tso_segs_goal`).
    pub(super) fn bundle(&self) -> u32 {
        let slow = self.pacing * self.mss * 8.0 < LEAST_BUNDLED_RATE;
        let least = if slow { 1.0 } else { 2.0 };
        (self.pacing / BUNDLES).floor().clamp(least, MOST_IN_BUNDLE) as u32
    }

    /// Its low rates say nothing of the path.
    pub(super) fn probes_rtt(&self) -> bool {
        self.mode == Mode::ProbeRtt
    }

    /// The connection is open, after a round trip of `rtt` unless that is not known, with segments of `mss`
    /// bytes.
    pub(super) fn on_open(&mut self, now: Nanos, rtt: Option<Nanos>, mss: usize) {
        self.mss = mss as f64;
        self.lowest_rtt = rtt;
        self.lowest_at = now;
        self.seen_rtt = rtt.is_some();
        self.start_pacing(rtt.unwrap_or(NO_RTT));
    }

    fn start_pacing(&mut self, rtt: Nanos) {
        let rate = self.segments * SECOND as f64 / rtt.max(MILLI / 1_000) as f64;
        self.pacing = HIGH_GAIN * rate * PACING_MARGIN;
    }

    fn is_full(&self) -> bool {
        self.full_rounds >= FULL_ROUNDS
    }

    fn rate(&self) -> f64 {
        self.rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }

    /// What the path holds, `gain` times.
    fn held(&self, gain: f64) -> f64 {
        let Some(rtt) = self.lowest_rtt else { return INITIAL_SEGMENTS };
        (gain * self.rate() * rtt as f64 / SECOND as f64).ceil()
    }

    /// The same, with what the hosts hold.
    fn volume(&self, gain: f64) -> f64 {
        self.rounded(self.held(gain))
    }

    fn rounded(&self, segments: f64) -> f64 {
        let bundles = HELD_BUNDLES * f64::from(self.bundle());
        let even = ((segments + bundles) / 2.0).ceil() * 2.0;
        let probes = self.mode == Mode::ProbeBw && self.cycle == 0;
        if probes { even + 2.0 } else { even }
    }

    /// What of `in_flight` there will be when pacing lets the next segments go, with them where that raises it.
    fn then_in_flight(&self, in_flight: f64, paced: Nanos) -> f64 {
        let raises = self.gains().0 > 1.0;
        let with = if raises { f64::from(self.bundle()) } else { 0.0 };
        (in_flight + with - self.rate() * paced as f64 / SECOND as f64).max(0.0)
    }

    fn gains(&self) -> (f64, f64) {
        match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (1.0 / HIGH_GAIN, HIGH_GAIN),
            Mode::ProbeBw => (CYCLE[self.cycle], WINDOW_GAIN),
            Mode::ProbeRtt => (1.0, 1.0),
        }
    }

    pub(super) fn on_ack(&mut self, sample: &Sample) {
        self.mss = sample.mss as f64;
        self.update_rate(sample);
        self.update_bundled(sample);
        self.update_cycle(sample);
        self.update_full(sample);
        self.update_drain(sample);
        self.update_lowest(sample);
        if let Some(rtt) = sample.rtt.filter(|_| !self.seen_rtt) {
            self.seen_rtt = true;
            self.start_pacing(rtt);
        }
        let (pacing_gain, window_gain) = self.gains();
        let pacing = self.rate() * pacing_gain * PACING_MARGIN;
        if self.is_full() || pacing > self.pacing {
            self.pacing = pacing;
        }
        self.update_window(sample, window_gain);
    }

    /// Something was lost, for the first time in a recovery.
    pub(super) fn on_loss(&mut self) {
        let cut = self.recovers || self.mode == Mode::ProbeRtt;
        self.prior = if cut { self.prior.max(self.segments) } else { self.segments };
    }

    /// Nothing was acknowledged for a whole time-out.
    pub(super) fn on_timeout(&mut self) {
        self.on_loss();
        self.recovers = true;
        self.full_rate = 0.0;
        self.segments = 1.0;
    }

    /// The time-out was one too soon. The window is restored as after a recovery.
    pub(super) fn on_undo(&mut self) {
        self.full_rate = 0.0;
        if !self.is_full() {
            self.full_rounds = 0;
        }
    }

    /// There is something to send again, with nothing in flight.
    pub(super) fn on_restart(&mut self, now: Nanos) {
        self.restarts = true;
        self.epoch = (now, 0.0);
        match self.mode {
            Mode::ProbeBw => self.pacing = self.rate() * PACING_MARGIN,
            Mode::ProbeRtt => self.end_probe_rtt(now),
            Mode::Startup | Mode::Drain => {}
        }
    }

    fn update_rate(&mut self, sample: &Sample) {
        self.round_started = false;
        if sample.interval == 0 {
            return;
        }
        if sample.prior_delivered >= self.round_end {
            self.round_end = sample.delivered;
            self.round += 1;
            self.round_started = true;
            self.conserves = false;
        }
        let seconds = sample.interval as f64 / SECOND as f64;
        let rate = (sample.delivered - sample.prior_delivered) / seconds;
        if sample.app_limited && rate < self.rate() {
            return;
        }
        let round = self.round;
        self.rates.retain(|(of, _)| of + RATE_ROUNDS >= round);
        match self.rates.last_mut() {
            Some((of, highest)) if *of == round => *highest = highest.max(rate),
            _ => self.rates.push((round, rate)),
        }
    }

    fn update_bundled(&mut self, sample: &Sample) {
        if sample.acked == 0.0 || sample.interval == 0 {
            return;
        }
        if self.round_started {
            self.bundle_rounds += 1;
            if self.bundle_rounds >= BUNDLE_ROUNDS {
                self.bundle_rounds = 0;
                self.bundled = [0.0, self.bundled[0]];
            }
        }
        let (began, acked) = self.epoch;
        let mut expected = self.rate() * sample.now.saturating_sub(began) as f64 / SECOND as f64;
        if acked <= expected {
            self.epoch = (sample.now, 0.0);
            expected = 0.0;
        }
        self.epoch.1 += sample.acked;
        let extra = (self.epoch.1 - expected).min(self.segments);
        self.bundled[0] = self.bundled[0].max(extra);
    }

    fn update_cycle(&mut self, sample: &Sample) {
        if self.mode != Mode::ProbeBw {
            return;
        }
        let long = sample.now.saturating_sub(self.cycle_at) > self.lowest_rtt.unwrap_or(0);
        let gain = CYCLE[self.cycle];
        let in_flight = self.then_in_flight(sample.prior_in_flight, sample.paced);
        let ends = if gain > 1.0 {
            long && (sample.lost > 0.0 || in_flight >= self.volume(gain))
        } else {
            long || gain < 1.0 && in_flight <= self.volume(1.0)
        };
        if ends {
            self.cycle = (self.cycle + 1) % CYCLE.len();
            self.cycle_at = sample.now;
        }
    }

    fn update_full(&mut self, sample: &Sample) {
        if self.is_full() || !self.round_started || sample.app_limited {
            return;
        }
        let rate = self.rate();
        if rate >= self.full_rate * FULL_GROWTH {
            (self.full_rate, self.full_rounds) = (rate, 0);
        } else {
            self.full_rounds += 1;
        }
    }

    fn update_drain(&mut self, sample: &Sample) {
        if self.mode == Mode::Startup && self.is_full() {
            self.mode = Mode::Drain;
        }
        let in_flight = self.then_in_flight(sample.in_flight, sample.paced);
        if self.mode == Mode::Drain && in_flight <= self.volume(1.0) {
            self.probe_rate(sample.now);
        }
    }

    fn probe_rate(&mut self, now: Nanos) {
        self.mode = Mode::ProbeBw;
        // Linux draws one but that which drains.
        self.cycle = [0, 2, 3, 4, 5, 6, 7][(self.round % 7) as usize];
        self.cycle_at = now;
    }

    fn update_lowest(&mut self, sample: &Sample) {
        let now = sample.now;
        let expired = now > self.lowest_at + LOWEST_RTT_FOR;
        if let Some(rtt) = sample.rtt
            && (expired || self.lowest_rtt.is_none_or(|lowest| rtt <= lowest))
        {
            self.lowest_rtt = Some(rtt);
            self.lowest_at = now;
        }
        if expired && !self.restarts && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.on_loss();
            self.probed_at = None;
        }
        self.restarts &= sample.interval == 0;
        if self.mode != Mode::ProbeRtt {
            return;
        }
        match self.probed_at {
            None if sample.in_flight <= LEAST_SEGMENTS => {
                self.probed_at = Some(now + PROBE_RTT_FOR);
                self.probed_round = false;
                self.round_end = sample.delivered;
            }
            None => {}
            Some(_) => {
                self.probed_round |= self.round_started;
                if self.probed_round {
                    self.end_probe_rtt(now);
                }
            }
        }
    }

    fn end_probe_rtt(&mut self, now: Nanos) {
        if self.probed_at.is_none_or(|at| now <= at) {
            return;
        }
        self.lowest_at = now;
        self.segments = self.segments.max(self.prior);
        match self.is_full() {
            true => self.probe_rate(now),
            false => self.mode = Mode::Startup,
        }
    }

    fn update_window(&mut self, sample: &Sample, gain: f64) {
        if sample.acked > 0.0 && !self.recover(sample) {
            let mut target = self.held(gain);
            if self.is_full() {
                let most = self.rate() * MOST_BUNDLED as f64 / SECOND as f64;
                target += self.bundled[0].max(self.bundled[1]).min(most);
            }
            let target = self.rounded(target);
            let grown = self.segments + sample.acked;
            if self.is_full() {
                self.segments = grown.min(target);
            } else if self.segments < target || sample.delivered < INITIAL_SEGMENTS {
                self.segments = grown;
            }
            self.segments = self.segments.max(LEAST_SEGMENTS);
        }
        if self.mode == Mode::ProbeRtt {
            self.segments = self.segments.min(LEAST_SEGMENTS);
        }
    }

    /// The window while what is lost is sent again; whether nothing else decides it.
    fn recover(&mut self, sample: &Sample) -> bool {
        if sample.lost > 0.0 {
            self.segments = (self.segments - sample.lost).max(1.0);
        }
        let recovered = core::mem::replace(&mut self.recovers, sample.recovers);
        if sample.recovers && !recovered {
            self.conserves = true;
            self.round_end = sample.delivered;
            self.segments = sample.in_flight + sample.acked;
        } else if recovered && !sample.recovers {
            self.segments = self.segments.max(self.prior);
            self.conserves = false;
        }
        if self.conserves {
            self.segments = self.segments.max(sample.in_flight + sample.acked);
        }
        self.conserves
    }
}

#[cfg(test)]
mod tests;
