//! BBR version 1 as in Linux (`tcp_bbr.c`; draft-cardwell-iccrg-bbr-congestion-control-00), with
//! the compensation for aggregated acknowledgements. The detection of policers (`lt_bw`) is left
//! out.
//!
//! Names in parentheses are those of `tcp_bbr.c`. Amounts are in segments of full length.

use crate::clock::{MILLI, Nanos, SECOND};

/// Gain in Startup, 2 / ln 2 (`bbr_high_gain`).
const HIGH_GAIN: f64 = 2.885;
/// Pacing gains of ProbeBW (`bbr_pacing_gain`).
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Window gain in ProbeBW (`bbr_cwnd_gain`).
const WINDOW_GAIN: f64 = 2.0;
/// Share of the rate that is paced (`bbr_pacing_margin_percent`).
const PACING_MARGIN: f64 = 0.99;
/// Initial window, segments (RFC 6928).
const INITIAL_SEGMENTS: f64 = 10.0;
/// Smallest window, segments (`bbr_cwnd_min_target`).
const MIN_SEGMENTS: f64 = 4.0;
/// Rounds over which the rate is a windowed maximum (`bbr_bw_rtts`).
const RATE_ROUNDS: u64 = 10;
/// Rounds of each of the two halves of the window of `extra_acked` (`bbr_extra_acked_win_rtts`).
const EXTRA_ACKED_ROUNDS: u32 = 5;
/// Bound of the compensation for aggregation, as time at the rate (`bbr_extra_acked_max_us`).
const EXTRA_ACKED_MAX: Nanos = 100 * MILLI;
/// Growth of the rate below which a round counts towards a full pipe (`bbr_full_bw_thresh`).
const FULL_PIPE_GROWTH: f64 = 1.25;
/// Rounds without such growth after which the pipe is full (`bbr_full_bw_cnt`).
const FULL_PIPE_ROUNDS: u32 = 3;
/// Age at which the minimum RTT expires (`bbr_min_rtt_win_sec`).
const MIN_RTT_WINDOW: Nanos = 10 * SECOND;
/// Shortest duration of ProbeRTT (`bbr_probe_rtt_mode_ms`).
const PROBE_RTT_TIME: Nanos = 200 * MILLI;
/// TSO packets that the hosts may hold in addition to the path (`bbr_quantization_budget`).
const HOST_TSO_PACKETS: f64 = 3.0;
/// TSO packets per second: each has the segments of 1/1024 s.
const TSO_PER_SECOND: f64 = 1024.0;
/// Rate in bit/s below which a TSO packet may have one segment. Above it, it has at least two
/// (`bbr_min_tso_rate`).
const TSO_MIN_RATE: f64 = 1_200_000.0;
/// Most segments of a TSO packet.
const TSO_SEGMENTS_MAX: f64 = 127.0;
/// Round-trip time before there is a sample.
const DEFAULT_RTT: Nanos = MILLI;

/// What an acknowledgement shows (`rate_sample`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) now: Nanos,
    /// Length of a full segment in bytes.
    pub(super) mss: usize,
    /// Segments newly acknowledged.
    pub(super) acked: f64,
    /// Segments newly detected as lost.
    pub(super) lost: f64,
    /// All segments delivered so far.
    pub(super) delivered: f64,
    /// The same at the time at which the newest acknowledged segment left.
    pub(super) prior_delivered: f64,
    /// Time in which the difference was delivered, or was sent if that took longer; 0 if unknown.
    pub(super) interval: Nanos,
    /// Whether the sender was limited by the application then.
    pub(super) app_limited: bool,
    /// Round-trip time; `None` if only retransmissions were acknowledged.
    pub(super) rtt: Option<Nanos>,
    /// Segments in flight before the acknowledgement.
    pub(super) prior_in_flight: f64,
    /// Segments in flight after it.
    pub(super) in_flight: f64,
    /// Time until pacing permits the next segment.
    pub(super) paced_for: Nanos,
    /// Whether the sender is in loss recovery.
    pub(super) in_recovery: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// The window and rate of a sender.
#[derive(Debug)]
pub(super) struct Bbr {
    mode: Mode,
    segments: f64,
    mss: f64,
    /// Segments per second.
    pacing: f64,
    seen_rtt: bool,
    /// Highest rate of each recent round: (round, segments per second).
    rates: Vec<(u64, f64)>,
    round: u64,
    round_started: bool,
    /// The round ends when a segment is acknowledged that left after this much was delivered.
    round_end: f64,
    min_rtt: Option<Nanos>,
    min_rtt_at: Nanos,
    full_rate: f64,
    full_rounds: u32,
    cycle: usize,
    cycle_at: Nanos,
    /// End of ProbeRTT; `None` until the flight is small.
    probe_rtt_ends: Option<Nanos>,
    /// Whether ProbeRTT has lasted for a round.
    probe_rtt_round_done: bool,
    /// Window before recovery or ProbeRTT (`prior_cwnd`).
    prior_segments: f64,
    in_recovery: bool,
    /// Whether the sender restarted after an application-limited idle time and nothing was
    /// acknowledged since (`idle_restart`).
    idle_restart: bool,
    /// Whether to send only as much as is delivered, in the first round of recovery
    /// (`packet_conservation`).
    conserves_packets: bool,
    /// Most segments acknowledged beyond what the rate explains, in the current half of the window
    /// and in the one before (`extra_acked`).
    extra_acked: [f64; 2],
    extra_acked_rounds: u32,
    /// Start of the sampling interval of `extra_acked`, and segments acknowledged in it.
    ack_epoch: (Nanos, f64),
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
            min_rtt: None,
            min_rtt_at: 0,
            full_rate: 0.0,
            full_rounds: 0,
            cycle: 0,
            cycle_at: 0,
            probe_rtt_ends: None,
            probe_rtt_round_done: false,
            prior_segments: 0.0,
            in_recovery: false,
            idle_restart: false,
            conserves_packets: false,
            extra_acked: [0.0; 2],
            extra_acked_rounds: 0,
            ack_epoch: (0, 0.0),
        }
    }

    pub(super) fn bytes(&self, mss: usize) -> u64 {
        (self.segments * mss as f64) as u64
    }

    /// Time between the departures of `bytes` and of what follows.
    pub(super) fn pacing_delay(&self, bytes: usize) -> Nanos {
        (bytes as f64 / self.mss / self.pacing * SECOND as f64) as Nanos
    }

    /// Segments of a TSO packet, which leave at once (`bbr_tso_segs_goal`).
    pub(super) fn tso_segments(&self) -> u32 {
        let slow = self.pacing * self.mss * 8.0 < TSO_MIN_RATE;
        let least = if slow { 1.0 } else { 2.0 };
        (self.pacing / TSO_PER_SECOND).floor().clamp(least, TSO_SEGMENTS_MAX) as u32
    }

    /// Whether it is in ProbeRTT, where low rates say nothing about the path.
    pub(super) fn probes_rtt(&self) -> bool {
        self.mode == Mode::ProbeRtt
    }

    /// The connection is open. The handshake took `rtt`, if that is known; segments have `mss`
    /// bytes.
    pub(super) fn on_open(&mut self, now: Nanos, rtt: Option<Nanos>, mss: usize) {
        self.mss = mss as f64;
        self.min_rtt = rtt;
        self.min_rtt_at = now;
        self.seen_rtt = rtt.is_some();
        self.start_pacing(rtt.unwrap_or(DEFAULT_RTT));
    }

    fn start_pacing(&mut self, rtt: Nanos) {
        let rate = self.segments * SECOND as f64 / rtt.max(MILLI / 1_000) as f64;
        self.pacing = HIGH_GAIN * rate * PACING_MARGIN;
    }

    fn has_full_pipe(&self) -> bool {
        self.full_rounds >= FULL_PIPE_ROUNDS
    }

    fn rate(&self) -> f64 {
        self.rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }

    /// The bandwidth-delay product times `gain` (`bbr_bdp`).
    fn bdp(&self, gain: f64) -> f64 {
        let Some(rtt) = self.min_rtt else { return INITIAL_SEGMENTS };
        (gain * self.rate() * rtt as f64 / SECOND as f64).ceil()
    }

    /// The target of packets in flight: [`bdp`](Self::bdp) and what the hosts hold
    /// (`bbr_inflight`).
    fn in_flight_target(&self, gain: f64) -> f64 {
        self.quantized(self.bdp(gain))
    }

    /// Adds what the hosts hold (`bbr_quantization_budget`).
    fn quantized(&self, segments: f64) -> f64 {
        let bundles = HOST_TSO_PACKETS * f64::from(self.tso_segments());
        let even = ((segments + bundles) / 2.0).ceil() * 2.0;
        let probes = self.mode == Mode::ProbeBw && self.cycle == 0;
        if probes { even + 2.0 } else { even }
    }

    /// Segments in flight when pacing permits the next ones to leave. Includes these while the gain
    /// is above 1 (`bbr_packets_in_net_at_edt`).
    fn in_flight_at_next_send(&self, in_flight: f64, paced_for: Nanos) -> f64 {
        let raises = self.gains().0 > 1.0;
        let with = if raises { f64::from(self.tso_segments()) } else { 0.0 };
        (in_flight + with - self.rate() * paced_for as f64 / SECOND as f64).max(0.0)
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
        self.update_extra_acked(sample);
        self.update_cycle(sample);
        self.update_full_pipe(sample);
        self.update_drain(sample);
        self.update_min_rtt(sample);
        if let Some(rtt) = sample.rtt.filter(|_| !self.seen_rtt) {
            self.seen_rtt = true;
            self.start_pacing(rtt);
        }
        let (pacing_gain, window_gain) = self.gains();
        let pacing = self.rate() * pacing_gain * PACING_MARGIN;
        if self.has_full_pipe() || pacing > self.pacing {
            self.pacing = pacing;
        }
        self.update_window(sample, window_gain);
    }

    /// Recovery begins (`bbr_save_cwnd`).
    pub(super) fn on_loss(&mut self) {
        let cut = self.in_recovery || self.mode == Mode::ProbeRtt;
        self.prior_segments =
            if cut { self.prior_segments.max(self.segments) } else { self.segments };
    }

    /// The retransmission timer expired.
    pub(super) fn on_timeout(&mut self) {
        self.on_loss();
        self.in_recovery = true;
        self.full_rate = 0.0;
        self.segments = 1.0;
    }

    /// The losses were none (`bbr_undo_cwnd`). The window is restored as after recovery.
    pub(super) fn on_undo(&mut self) {
        self.full_rate = 0.0;
        if !self.has_full_pipe() {
            self.full_rounds = 0;
        }
    }

    /// The application has data again after an idle time (`CA_EVENT_TX_START`).
    pub(super) fn on_restart(&mut self, now: Nanos) {
        self.idle_restart = true;
        self.ack_epoch = (now, 0.0);
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
            self.conserves_packets = false;
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

    fn update_extra_acked(&mut self, sample: &Sample) {
        if sample.acked == 0.0 || sample.interval == 0 {
            return;
        }
        if self.round_started {
            self.extra_acked_rounds += 1;
            if self.extra_acked_rounds >= EXTRA_ACKED_ROUNDS {
                self.extra_acked_rounds = 0;
                self.extra_acked = [0.0, self.extra_acked[0]];
            }
        }
        let (began, acked) = self.ack_epoch;
        let mut expected = self.rate() * sample.now.saturating_sub(began) as f64 / SECOND as f64;
        if acked <= expected {
            self.ack_epoch = (sample.now, 0.0);
            expected = 0.0;
        }
        self.ack_epoch.1 += sample.acked;
        let extra = (self.ack_epoch.1 - expected).min(self.segments);
        self.extra_acked[0] = self.extra_acked[0].max(extra);
    }

    fn update_cycle(&mut self, sample: &Sample) {
        if self.mode != Mode::ProbeBw {
            return;
        }
        let long = sample.now.saturating_sub(self.cycle_at) > self.min_rtt.unwrap_or(0);
        let gain = CYCLE[self.cycle];
        let in_flight = self.in_flight_at_next_send(sample.prior_in_flight, sample.paced_for);
        let ends = if gain > 1.0 {
            long && (sample.lost > 0.0 || in_flight >= self.in_flight_target(gain))
        } else {
            long || gain < 1.0 && in_flight <= self.in_flight_target(1.0)
        };
        if ends {
            self.cycle = (self.cycle + 1) % CYCLE.len();
            self.cycle_at = sample.now;
        }
    }

    fn update_full_pipe(&mut self, sample: &Sample) {
        if self.has_full_pipe() || !self.round_started || sample.app_limited {
            return;
        }
        let rate = self.rate();
        if rate >= self.full_rate * FULL_PIPE_GROWTH {
            (self.full_rate, self.full_rounds) = (rate, 0);
        } else {
            self.full_rounds += 1;
        }
    }

    fn update_drain(&mut self, sample: &Sample) {
        if self.mode == Mode::Startup && self.has_full_pipe() {
            self.mode = Mode::Drain;
        }
        let in_flight = self.in_flight_at_next_send(sample.in_flight, sample.paced_for);
        if self.mode == Mode::Drain && in_flight <= self.in_flight_target(1.0) {
            self.probe_rate(sample.now);
        }
    }

    fn probe_rate(&mut self, now: Nanos) {
        self.mode = Mode::ProbeBw;
        // Linux starts at a random phase other than the draining one.
        self.cycle = [0, 2, 3, 4, 5, 6, 7][(self.round % 7) as usize];
        self.cycle_at = now;
    }

    fn update_min_rtt(&mut self, sample: &Sample) {
        let now = sample.now;
        let expired = now > self.min_rtt_at + MIN_RTT_WINDOW;
        if let Some(rtt) = sample.rtt
            && (expired || self.min_rtt.is_none_or(|lowest| rtt <= lowest))
        {
            self.min_rtt = Some(rtt);
            self.min_rtt_at = now;
        }
        if expired && !self.idle_restart && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.on_loss();
            self.probe_rtt_ends = None;
        }
        self.idle_restart &= sample.interval == 0;
        if self.mode != Mode::ProbeRtt {
            return;
        }
        match self.probe_rtt_ends {
            None if sample.in_flight <= MIN_SEGMENTS => {
                self.probe_rtt_ends = Some(now + PROBE_RTT_TIME);
                self.probe_rtt_round_done = false;
                self.round_end = sample.delivered;
            }
            None => {}
            Some(_) => {
                self.probe_rtt_round_done |= self.round_started;
                if self.probe_rtt_round_done {
                    self.end_probe_rtt(now);
                }
            }
        }
    }

    fn end_probe_rtt(&mut self, now: Nanos) {
        if self.probe_rtt_ends.is_none_or(|at| now <= at) {
            return;
        }
        self.min_rtt_at = now;
        self.segments = self.segments.max(self.prior_segments);
        match self.has_full_pipe() {
            true => self.probe_rate(now),
            false => self.mode = Mode::Startup,
        }
    }

    fn update_window(&mut self, sample: &Sample, gain: f64) {
        if sample.acked > 0.0 && !self.recover(sample) {
            let mut target = self.bdp(gain);
            if self.has_full_pipe() {
                let max = self.rate() * EXTRA_ACKED_MAX as f64 / SECOND as f64;
                target += self.extra_acked[0].max(self.extra_acked[1]).min(max);
            }
            let target = self.quantized(target);
            let grown = self.segments + sample.acked;
            if self.has_full_pipe() {
                self.segments = grown.min(target);
            } else if self.segments < target || sample.delivered < INITIAL_SEGMENTS {
                self.segments = grown;
            }
            self.segments = self.segments.max(MIN_SEGMENTS);
        }
        if self.mode == Mode::ProbeRtt {
            self.segments = self.segments.min(MIN_SEGMENTS);
        }
    }

    /// Sets the window in recovery, and restores it afterwards. Returns whether packet conservation
    /// decides the window (`bbr_set_cwnd_to_recover_or_restore`).
    fn recover(&mut self, sample: &Sample) -> bool {
        if sample.lost > 0.0 {
            self.segments = (self.segments - sample.lost).max(1.0);
        }
        let recovered = core::mem::replace(&mut self.in_recovery, sample.in_recovery);
        if sample.in_recovery && !recovered {
            self.conserves_packets = true;
            self.round_end = sample.delivered;
            self.segments = sample.in_flight + sample.acked;
        } else if recovered && !sample.in_recovery {
            self.segments = self.segments.max(self.prior_segments);
            self.conserves_packets = false;
        }
        if self.conserves_packets {
            self.segments = self.segments.max(sample.in_flight + sample.acked);
        }
        self.conserves_packets
    }
}

#[cfg(test)]
mod tests;
