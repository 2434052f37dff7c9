//! BBR as Linux has it (`tcp_bbr.c`, the first version; draft-cardwell-iccrg-bbr-congestion-control-00), with
//! its allowance for acknowledgements that come bundled. Left out are what Linux infers of policers from
//! long-term rates, and the restart of an idle sender.

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
/// Segments that leave at once: three bundles of them are allowed for beside what the path holds.
pub(super) const BUNDLE: u32 = 2;

/// What an acknowledgement shows. Bytes count as segments of the full length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) now: Nanos,
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
    /// Segments per second; 0 before the first acknowledgement.
    pacing: f64,
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
            pacing: 0.0,
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
    pub(super) fn takes(&self, bytes: usize, mss: usize) -> Nanos {
        if self.pacing == 0.0 {
            return 0;
        }
        (bytes as f64 / mss as f64 / self.pacing * SECOND as f64) as Nanos
    }

    /// Nobody has answered yet, but the connection is open after a round trip of `rtt`.
    pub(super) fn on_open(&mut self, now: Nanos, rtt: Nanos) {
        self.lowest_rtt = Some(rtt.max(1));
        self.lowest_at = now;
        self.pacing = HIGH_GAIN * self.segments * SECOND as f64 / rtt.max(MILLI) as f64;
    }

    fn is_full(&self) -> bool {
        self.full_rounds >= FULL_ROUNDS
    }

    fn rate(&self) -> f64 {
        self.rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }

    /// What the path holds `gain` times, with what leaves and is held back in bundles.
    fn volume(&self, gain: f64) -> f64 {
        let Some(rtt) = self.lowest_rtt else { return INITIAL_SEGMENTS };
        let volume = (gain * self.rate() * rtt as f64 / SECOND as f64).ceil();
        self.rounded(volume)
    }

    fn rounded(&self, segments: f64) -> f64 {
        let even = ((segments + f64::from(3 * BUNDLE) + 1.0) / 2.0).floor() * 2.0;
        let probes = self.mode == Mode::ProbeBw && self.cycle == 0;
        if probes { even + 2.0 } else { even }
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
        self.update_rate(sample);
        self.update_bundled(sample);
        self.update_cycle(sample);
        self.update_full(sample);
        self.update_drain(sample);
        self.update_lowest(sample);
        let (pacing_gain, window_gain) = self.gains();
        let pacing = self.rate() * pacing_gain * PACING_MARGIN;
        if self.is_full() || pacing > self.pacing {
            self.pacing = pacing;
        }
        self.update_window(sample, window_gain);
    }

    /// Nothing was acknowledged for a whole time-out.
    pub(super) fn on_timeout(&mut self) {
        self.save();
        self.recovers = true;
        self.full_rate = 0.0;
        self.segments = 1.0;
    }

    fn save(&mut self) {
        let inside = self.recovers || self.mode == Mode::ProbeRtt;
        self.prior = if inside { self.prior.max(self.segments) } else { self.segments };
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
        self.rates.retain(|(of, _)| of + RATE_ROUNDS > round);
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
        let in_flight = sample.prior_in_flight;
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
        if self.mode == Mode::Drain && sample.in_flight <= self.volume(1.0) {
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
            && (expired || self.lowest_rtt.is_none_or(|lowest| rtt < lowest))
        {
            self.lowest_rtt = Some(rtt.max(1));
            self.lowest_at = now;
        }
        if expired && self.mode != Mode::ProbeRtt {
            self.save();
            self.mode = Mode::ProbeRtt;
            self.probed_at = None;
        }
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
            Some(at) => {
                self.probed_round |= self.round_started;
                if self.probed_round && now > at {
                    self.lowest_at = now;
                    self.segments = self.segments.max(self.prior);
                    match self.is_full() {
                        true => self.probe_rate(now),
                        false => self.mode = Mode::Startup,
                    }
                }
            }
        }
    }

    fn update_window(&mut self, sample: &Sample, gain: f64) {
        if sample.acked > 0.0 && !self.recover(sample) {
            let mut target =
                gain * self.rate() * self.lowest_rtt.unwrap_or(0) as f64 / SECOND as f64;
            if self.is_full() {
                let most = self.rate() * MOST_BUNDLED as f64 / SECOND as f64;
                target += self.bundled[0].max(self.bundled[1]).min(most);
            }
            let target = self.rounded(target.ceil());
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
            self.prior = self.segments + sample.lost;
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
mod tests {
    use super::*;

    const RTT: Nanos = 20 * MILLI;
    /// Segments per second.
    const RATE: f64 = 1_000.0;

    /// Segments arrive one by one, and are acknowledged `bundle` at a time after a round trip of `rtt`.
    fn run(bbr: &mut Bbr, (from, to): (Nanos, Nanos), bundle: u64, rtt: Nanos) {
        let apart = bundle * MILLI;
        for now in (from..to).step_by(apart as usize) {
            let delivered = now as f64 / SECOND as f64 * RATE;
            let in_flight = bbr.segments.min(RATE * rtt as f64 / SECOND as f64);
            bbr.on_ack(&Sample {
                now,
                acked: bundle as f64,
                lost: 0.0,
                delivered,
                prior_delivered: delivered - RATE * rtt as f64 / SECOND as f64,
                interval: rtt,
                app_limited: false,
                rtt: Some(rtt),
                prior_in_flight: in_flight,
                in_flight,
                recovers: false,
            });
        }
    }

    #[test]
    fn the_window_is_twice_what_the_path_holds_and_what_comes_bundled() {
        for (bundle, window) in [(1, 40.0..=50.0), (20, 58.0..=70.0)] {
            let mut bbr = Bbr::new();
            bbr.on_open(SECOND, RTT);
            run(&mut bbr, (SECOND, 6 * SECOND), bundle, RTT);
            assert_eq!(bbr.mode, Mode::ProbeBw);
            assert!(window.contains(&bbr.segments), "{bundle}: {}", bbr.segments);
        }
    }

    #[test]
    fn a_longer_round_trip_is_believed_after_ten_seconds() {
        let mut bbr = Bbr::new();
        bbr.on_open(SECOND, RTT);
        run(&mut bbr, (SECOND, 4 * SECOND), 1, RTT);
        run(&mut bbr, (4 * SECOND, 10 * SECOND), 1, 5 * RTT);
        assert_eq!(bbr.lowest_rtt, Some(RTT));
        run(&mut bbr, (10 * SECOND, 13 * SECOND), 1, 5 * RTT);
        assert_eq!(bbr.lowest_rtt, Some(5 * RTT));
    }

    #[test]
    fn what_was_lost_leaves_the_window_as_it_was() {
        let mut bbr = Bbr::new();
        bbr.on_open(SECOND, RTT);
        run(&mut bbr, (SECOND, 6 * SECOND), 1, RTT);
        let before = bbr.segments;
        let sample = Sample {
            now: 6 * SECOND,
            acked: 1.0,
            lost: 3.0,
            delivered: 6.0 * RATE,
            prior_delivered: 6.0 * RATE - 20.0,
            interval: RTT,
            app_limited: false,
            rtt: Some(RTT),
            prior_in_flight: 20.0,
            in_flight: 16.0,
            recovers: true,
        };
        bbr.on_ack(&sample);
        assert!(bbr.segments < before, "no more than what arrives: {}", bbr.segments);
        bbr.on_ack(&Sample { now: 6 * SECOND + RTT, lost: 0.0, recovers: false, ..sample });
        assert!(bbr.segments >= before - 3.0, "{} and {before}", bbr.segments);
    }
}
