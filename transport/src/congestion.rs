//! Congestion control of a path, and the events that it gets.

use core::ops::Deref;

use crate::flight::LossSummary;

use crate::cc::{CongestionControl, CongestionEvent, RateSample, Subflow};
use mpip_types::Instant;

/// A congestion control that reacts to losses once per round trip, and takes a reaction back when
/// the losses were spurious. Its values are read directly; events go through this type.
#[derive(Debug)]
pub struct Congestion {
    control: Box<dyn CongestionControl>,
    /// When the control began, if another one came before it; otherwise the start of time.
    began: Instant,
    /// When it last reacted (start of the recovery period).
    reacted: Option<Instant>,
    /// Bytes lost that are in no rate sample yet, and the ranges that begin among them.
    unreported: u64,
    unreported_ranges: u64,
    /// Packets lost since and including the last reaction, and how many of them were spurious.
    lost: u64,
    spurious: u64,
}

impl Deref for Congestion {
    type Target = dyn CongestionControl;

    fn deref(&self) -> &Self::Target {
        &*self.control
    }
}

impl Congestion {
    pub(crate) fn new(control: Box<dyn CongestionControl>) -> Self {
        Self {
            control,
            began: Instant::ZERO,
            reacted: None,
            unreported: 0,
            unreported_ranges: 0,
            lost: 0,
            spurious: 0,
        }
    }

    /// The path has migrated, or another control was configured: starts anew with `control`. What
    /// is in flight left before, so its losses say nothing to it.
    pub(crate) fn replace(&mut self, now: Instant, control: Box<dyn CongestionControl>) {
        *self = Self { began: now, ..Self::new(control) };
    }

    /// A packet of `bytes` left while `in_flight` bytes (this one not counted) were in flight.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) {
        self.control.on_sent(now, bytes, in_flight);
    }

    /// `packets` that were declared lost have arrived.
    pub(crate) fn on_spurious(&mut self, now: Instant, packets: u64) {
        self.spurious += packets;
        if self.lost > 0 && self.spurious >= self.lost {
            self.lost = 0;
            self.control.on_spurious(now);
        }
    }

    /// Packets were lost.
    pub(crate) fn on_losses(
        &mut self,
        now: Instant,
        losses: &LossSummary,
        subflows: &[Subflow],
        own: usize,
    ) {
        if losses.newest < self.began {
            return;
        }
        self.unreported += losses.bytes;
        self.unreported_ranges += losses.ranges;
        let (sent, lost) = (losses.newest, losses.bytes);
        let event = CongestionEvent { now, sent, lost, persistent: false, ecn: false };
        self.react(&event, subflows, own);
        self.lost += losses.packets;
    }

    /// Feedback acknowledged something.
    pub(crate) fn on_feedback(
        &mut self,
        now: Instant,
        mut sample: RateSample,
        subflows: &[Subflow],
        own: usize,
    ) {
        sample.lost = core::mem::take(&mut self.unreported);
        sample.lost_ranges = core::mem::take(&mut self.unreported_ranges);
        if sample.ecn_ce > 0 {
            // Marked packets left no later than the packet acknowledged now.
            let sent = now - sample.rtt.unwrap_or(sample.smoothed_rtt);
            let event = CongestionEvent { now, sent, lost: 0, persistent: false, ecn: true };
            self.react(&event, subflows, own);
        }
        self.control.on_feedback(&sample, subflows, own);
    }

    /// Another path asks all paths to drain.
    pub fn drain(&mut self, now: Instant) {
        self.control.drain(now);
    }

    /// The path has failed: persistent congestion.
    pub(crate) fn on_dead(&mut self, now: Instant) {
        let event = CongestionEvent { now, sent: now, lost: 0, persistent: true, ecn: false };
        self.react(&event, &[], 0);
    }

    fn react(&mut self, event: &CongestionEvent, subflows: &[Subflow], own: usize) {
        // RFC 9002, section 7.3.2: packets sent before the last reaction belong to its recovery
        // period.
        if !event.persistent && self.reacted.is_some_and(|reacted| event.sent <= reacted) {
            return;
        }
        self.reacted = Some(event.now);
        (self.lost, self.spurious) = (0, 0);
        self.control.on_congestion(event, subflows, own);
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::*;

    /// An event that a control got.
    #[derive(Debug, PartialEq, Eq)]
    enum Told {
        Congestion { lost: u64, ecn: bool, persistent: bool },
        Spurious,
        Feedback { lost: u64 },
    }

    #[derive(Debug)]
    struct Listener(Sender<Told>);

    impl Listener {
        fn note(&self, told: Told) {
            self.0.send(told).expect("the test listens");
        }
    }

    impl CongestionControl for Listener {
        fn on_sent(&mut self, _: Instant, _: u64, _: u64) {}

        fn on_feedback(&mut self, sample: &RateSample, _: &[Subflow], _: usize) {
            self.note(Told::Feedback { lost: sample.lost });
        }

        fn on_congestion(&mut self, event: &CongestionEvent, _: &[Subflow], _: usize) {
            let CongestionEvent { lost, ecn, persistent, .. } = *event;
            self.note(Told::Congestion { lost, ecn, persistent });
        }

        fn on_spurious(&mut self, _: Instant) {
            self.note(Told::Spurious);
        }

        fn window(&self) -> u64 {
            0
        }

        fn pacing_rate(&self) -> Option<u64> {
            None
        }

        fn state(&self) -> &'static str {
            "listens"
        }
    }

    fn congestion() -> (Congestion, Receiver<Told>) {
        let (sender, receiver) = mpsc::channel();
        (Congestion::new(Box::new(Listener(sender))), receiver)
    }

    fn ms(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// `packets` of 1,000 bytes are lost; the newest left at `newest` ms.
    fn lost(packets: u64, newest: u64) -> LossSummary {
        LossSummary {
            packets,
            bytes: packets * 1_000,
            newest: ms(newest),
            ..LossSummary::default()
        }
    }

    fn sample(ecn_ce: u64) -> RateSample {
        RateSample { ecn_ce, ..RateSample::of_rtt(ms(0), Duration::from_millis(20)) }
    }

    #[test]
    fn packets_sent_before_a_reaction_belong_to_its_recovery() {
        let (mut congestion, told) = congestion();
        congestion.on_losses(ms(100), &lost(1, 80), &[], 0);
        congestion.on_losses(ms(110), &lost(2, 100), &[], 0);
        congestion.on_feedback(ms(115), sample(1), &[], 0);
        congestion.on_losses(ms(140), &lost(1, 101), &[], 0);
        congestion.on_feedback(ms(165), sample(1), &[], 0);
        let event = |lost, ecn| Told::Congestion { lost, ecn, persistent: false };
        let feedback = |lost| Told::Feedback { lost };
        let expected = [
            event(1_000, false),
            feedback(3_000),
            event(1_000, false),
            event(0, true),
            feedback(1_000),
        ];
        assert_eq!(told.try_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn losses_that_all_arrive_after_all_are_taken_back_once() {
        let (mut congestion, told) = congestion();
        congestion.on_losses(ms(100), &lost(2, 80), &[], 0);
        told.try_iter().for_each(drop);
        congestion.on_spurious(ms(110), 1);
        assert_eq!(told.try_iter().count(), 0);
        congestion.on_spurious(ms(120), 1);
        congestion.on_spurious(ms(130), 1);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [Told::Spurious]);
    }

    #[test]
    fn losses_of_an_earlier_round_trip_are_not_waited_for() {
        let (mut congestion, told) = congestion();
        congestion.on_losses(ms(100), &lost(9, 80), &[], 0);
        congestion.on_losses(ms(200), &lost(1, 180), &[], 0);
        told.try_iter().for_each(drop);
        congestion.on_spurious(ms(210), 1);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [Told::Spurious]);
    }

    #[test]
    fn losses_of_what_left_before_it_began_say_nothing_to_a_control() {
        let (mut congestion, _former) = congestion();
        congestion.on_losses(ms(90), &lost(1, 80), &[], 0);
        let (sender, told) = mpsc::channel();
        congestion.replace(ms(100), Box::new(Listener(sender)));
        congestion.on_losses(ms(120), &lost(200, 99), &[], 0);
        congestion.on_spurious(ms(130), 200);
        congestion.on_feedback(ms(140), sample(0), &[], 0);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [Told::Feedback { lost: 0 }]);
        congestion.on_losses(ms(150), &lost(1, 101), &[], 0);
        assert_eq!(told.try_iter().count(), 1);
    }

    #[test]
    fn a_failed_path_is_always_reported() {
        let (mut congestion, told) = congestion();
        congestion.on_losses(ms(100), &lost(1, 80), &[], 0);
        told.try_iter().for_each(drop);
        congestion.on_dead(ms(100));
        let death = Told::Congestion { lost: 0, ecn: false, persistent: true };
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [death]);
    }
}
