//! What the peer's answers say of a path, and its silence.

use core::time::Duration;

use mpip_types::Instant;

use super::Path;
use crate::arrivals::MAX_DELAY;
use crate::cc::{RateSample, Subflow};
use crate::content::Content;
use crate::flight::{LossSummary, Losses, Progress};
use crate::liveness::{LivenessInput, Silence};
use crate::parameters::PlayoutParameters;
use crate::state::PathState;

impl<C: Content> Path<C> {
    /// Passes losses and the rate sample of a feedback frame to the congestion control. `subflows`
    /// are the association's paths for coupled control, `own` is this one's index.
    pub fn on_progress(
        &mut self,
        now: Instant,
        progress: &Progress,
        losses: &LossSummary,
        subflows: &[Subflow],
        own: usize,
    ) {
        self.counters.spurious += progress.spurious;
        self.cc.on_spurious(now, progress.spurious);
        self.bursts.refresh(now);
        if losses.packets > 0
            && let Some(rtt) = progress.sample.and_then(|sample| sample.rtt)
        {
            let empty = self.cc.empty_rtt().unwrap_or_else(|| self.flight.rtt().minimum());
            let waited = rtt.saturating_sub(empty);
            self.bursts.on_losses(now, (losses.packets, losses.rear), waited);
        }
        self.on_losses(now, losses, subflows, own);
        if progress.longest > 0 {
            self.mtu.on_arrived(now, self.size_of(progress.longest));
        }
        if let Some(newest) = progress.newest {
            self.capacity.on_arrived(now, newest.number, newest.received_at);
        }
        if let Some(sample) = progress.sample {
            self.liveness.clear();
            let sample = RateSample { capacity: self.idle_capacity(), ..sample };
            self.cc.on_feedback(now, sample, subflows, own);
            self.searched = self.searches();
        }
    }

    /// Passes losses to MTU discovery and to the congestion control, which reacts once per round
    /// trip.
    pub fn on_losses(
        &mut self,
        now: Instant,
        losses: &LossSummary,
        subflows: &[Subflow],
        own: usize,
    ) {
        if losses.probe > 0 {
            self.mtu.on_probe_lost(now, self.size_of(losses.probe), self.loss.share());
        }
        self.mtu.on_lost(now, losses.large, self.size_of(losses.smallest_large));
        if losses.packets == 0 {
            return;
        }
        self.counters.packets_lost += losses.packets;
        self.loss.on_lost(losses.packets);
        self.cc.on_losses(now, losses, subflows, own);
    }

    /// The probe timeout (RFC 9002, section 6.2.1).
    pub fn probe_timeout(&self) -> Duration {
        self.flight.rtt().probe_timeout(MAX_DELAY)
    }

    /// The input of failure detection. `alone`: no path answers.
    pub(super) fn input(&self, alone: bool) -> LivenessInput {
        LivenessInput {
            state: self.state,
            silent_since: self.flight.silent_since(),
            timeout: self.probe_timeout(),
            resting: self.rest.is_resting(),
            alone,
            loss: self.loss.cautious_share(),
            longest_pause: self.longest_pause,
        }
    }

    /// Checks at `now` whether the path needs a probe or has failed. `alone`: no path answers. With
    /// [`Silence::Dead`], everything in flight is added to `losses`.
    pub fn check_silence(&mut self, now: Instant, alone: bool, losses: &mut Losses<C>) -> Silence {
        let input = self.input(alone);
        let silence = self.liveness.check(now, &input);
        if silence == Silence::Dead {
            self.abandon(losses);
        }
        silence
    }

    /// An unauthenticated message (ICMP) says that the path has failed: sends a probe, with a
    /// shorter timeout than usual. Returns whether that changed anything.
    pub fn doubt(&mut self, now: Instant) -> bool {
        // At rest, such a message comes from a NAT whose mapping has expired; the peer will send a
        // keepalive.
        let news = self.works() && !self.rest.is_resting() && self.liveness.doubt(now);
        self.ping |= news;
        news
    }

    /// Routes have changed: repeats the challenge or probe that has no answer. Returns whether one
    /// is sent sooner.
    pub fn ask_again(&mut self, now: Instant) -> bool {
        let before = self.next_timeout(false, false);
        if let Some(challenge) = &mut self.validation.challenge {
            challenge.repeat(now);
        }
        self.liveness.probe_by(now);
        self.next_timeout(false, false) != before
    }

    /// The path has failed. From now on it is only probed.
    pub fn on_dead(&mut self, now: Instant) {
        self.liveness.on_dead(now, &self.input(false));
        self.mtu.on_interruption();
        self.cc.on_dead(now);
    }

    /// When a heartbeat is due.
    pub fn heartbeat_at(&self) -> Option<Instant> {
        let soonest = self.liveness.heartbeat_at();
        self.works().then(|| match self.measured_every {
            _ if self.rest.is_resting() => self.rest.keepalive_at().max(soonest),
            Some(interval) => soonest.min(self.liveness.asked_at() + interval),
            None => soonest,
        })
    }

    /// A probe is about to be sent. If it cannot leave, the next attempt is due after an interval.
    pub fn on_asked(&mut self, now: Instant) {
        self.liveness.on_ack_eliciting_sent(now);
        self.rest.on_keepalive(now);
    }

    /// The association is no longer idle: a path that may not answer is probed at once.
    pub fn wake(&mut self, now: Instant) {
        if !self.rest.end() {
            return;
        }
        if let Some(challenge) = &mut self.validation.challenge {
            challenge.wake();
        }
        self.ping = self.is_validated();
        if self.state == PathState::Failed {
            self.liveness.on_dead(now, &self.input(false));
        }
    }

    /// Something authentic came in, and was read.
    pub fn on_received(&mut self, now: Instant) {
        let resting = self.rest.is_resting();
        self.rest.on_travelled(now);
        if resting && self.liveness.owes_answer() {
            // The way is open again, at least from there: what was asked was not heard.
            if self.works() {
                self.ping = true;
            } else {
                self.liveness.probe_by(self.liveness.heartbeat_at());
            }
        }
        self.liveness.on_heard();
    }

    /// No path had answered, and another one does now: restarts failure detection of this one and
    /// probes it, if it owes an answer.
    pub fn excuse(&mut self, now: Instant) {
        if self.owes_answer() {
            self.ping = true;
            self.liveness.excuse(now);
        }
    }

    /// When the peer is asked again on a path that it has not answered: by the challenge before
    /// validation, by the probe of a path that has failed. `None` in other states.
    pub fn asks_at(&self) -> Option<Instant> {
        let probe = match self.state {
            PathState::Validating => None,
            PathState::Failed => self.liveness.deadline(&self.input(false)),
            _ => return None,
        };
        self.validation.next_timeout().into_iter().chain(probe).min()
    }

    /// Whether it has not failed, but owes the answer to a probe.
    pub fn owes_answer(&self) -> bool {
        self.works() && self.liveness.owes_answer()
    }

    /// Whether it owes an answer, and nothing else has arrived since the probe: then it is not
    /// chosen.
    pub fn is_silent(&self) -> bool {
        self.works() && self.liveness.is_silent()
    }

    /// Takes a one-way delay sample, µs against the association's reference.
    pub fn on_delay(&mut self, now: Instant, sample: i64) {
        self.delay.on_sample(now, sample);
        self.delays.add(sample);
        self.playout.on_delay(now, sample, self.flight.in_flight());
    }

    /// Updates the jitter and the playout delay; called every 100 ms.
    pub fn update_playout(&mut self, parameters: &PlayoutParameters) {
        let Self { playout, flight, delay, .. } = self;
        playout.update(flight.in_flight(), flight.reordering(), delay, parameters);
    }

    /// The one-way delay that packets usually have without a queue, µs as in the samples: with
    /// jitter the playout delay, otherwise the least one. `None` before the first sample.
    pub fn usual_delay(&self) -> Option<i64> {
        self.playout.target().or(self.delay.minimum())
    }

    /// Playout time of a packet that leaves now: the earliest delivery, µs of the peer's clock
    /// modulo 2^32. `reference` is that of the association's delay samples. The packet takes at
    /// least `delay`, µs as in the samples. `None` without it on a path without much jitter.
    pub fn playout(&self, now: Instant, reference: Option<u32>, delay: Option<i64>) -> Option<u32> {
        let at = (now.as_micros() as u32).wrapping_add(reference?);
        let delay = self.playout.target().into_iter().chain(delay).max()?;
        Some(at.wrapping_add_signed(delay as i32))
    }
}
