use std::collections::VecDeque;

use super::*;

const SEGMENT: u32 = 1_400;
const NEAR: Duration = Duration::from_millis(4);

/// A sender whose window of segments is in flight all the time, on a path with a round-trip time
/// of `rtt`.
struct Sender {
    aggregation: Aggregation,
    now: Instant,
    rtt: Duration,
    start: u32,
    sent: u32,
    /// When the segments that were sent are acknowledged.
    under_way: VecDeque<Instant>,
    arrived: u32,
    acked: u32,
    window: u32,
    parameters: Parameters,
    /// Sends what an aggregate permits at once.
    bursts: bool,
    ahead: Ahead,
}

impl Sender {
    /// After a handshake of [`NEAR`].
    fn new(rtt: Duration, window: u32, start: u32) -> Self {
        let mut aggregation = Aggregation::default();
        let now = Instant::from_millis(1_000);
        aggregation.on_segment(now, start);
        aggregation.on_syn_ack(now + NEAR);
        let parameters = Parameters::default();
        let reach = Reach { farthest: rtt, nearest: 0, spread: rtt / 2 };
        let ahead = Ahead { waits: false, reach };
        Self {
            aggregation,
            now,
            rtt,
            start,
            sent: 0,
            under_way: VecDeque::new(),
            arrived: 0,
            acked: 0,
            window,
            parameters,
            bursts: false,
            ahead,
        }
    }

    fn at(&self, segments: u32) -> u32 {
        self.start.wrapping_add(segments * SEGMENT)
    }

    /// A round-trip time passes. Returns how many acknowledgements were dropped.
    fn round(&mut self) -> u32 {
        let mut dropped = 0;
        for _ in 0..self.window {
            // Paced: two segments at once. Otherwise, after the first window, all that it permits.
            let most = self.acked + self.window;
            let at_once = self.bursts && self.sent >= self.window;
            let next = if at_once { most } else { most.min(self.sent + 2) };
            if next > self.sent {
                self.under_way.extend((self.sent..next).map(|_| self.now + self.rtt));
                self.sent = next;
                self.aggregation.on_segment(self.now, self.at(self.sent));
            }
            self.now += self.rtt / self.window;
            while self.under_way.pop_front_if(|at| *at <= self.now).is_some() {
                self.arrived += 1;
                let (ack, sent) = (self.at(self.arrived), self.at(self.sent));
                if self.aggregation.passes(self.now, ack, sent, self.ahead, &self.parameters) {
                    self.acked = self.arrived;
                } else {
                    assert!(self.arrived < self.sent, "another one follows");
                    dropped += 1;
                }
            }
        }
        dropped
    }

    fn rounds(&mut self, count: u32) -> u32 {
        (0..count).map(|_| self.round()).sum()
    }
}

#[test]
fn a_sender_that_knows_a_near_path_only_sees_aggregates() {
    for start in [0, u32::MAX - 100_000] {
        let mut sender = Sender::new(NEAR * 6, 40, start);
        assert!(sender.rounds(20) > 40, "from {start}");
    }
}

#[test]
fn within_twice_the_minimum_rtt_every_acknowledgement_passes() {
    let mut sender = Sender::new(NEAR * 19 / 10, 40, 0);
    assert_eq!(sender.rounds(100), 0);
}

#[test]
fn every_acknowledgement_passes_while_data_waits_for_the_paths() {
    let mut sender = Sender::new(NEAR * 6, 40, 0);
    sender.ahead.waits = true;
    assert_eq!(sender.rounds(100), 0);
}

#[test]
fn every_acknowledgement_passes_if_the_rtt_is_that_of_a_queue() {
    let mut sender = Sender::new(NEAR * 6, 40, 0);
    sender.ahead.reach.farthest = NEAR * 19 / 10;
    assert_eq!(sender.rounds(100), 0);
}

#[test]
fn a_window_that_grows_needs_no_aggregates() {
    let mut sender = Sender::new(NEAR * 6, 10, 0);
    let mut dropped = 0;
    for _ in 0..30 {
        dropped += sender.round();
        sender.window += sender.window / 8;
    }
    assert_eq!(dropped, 0);
}

#[test]
fn a_sender_that_does_not_become_faster_is_left_alone() {
    let mut sender = Sender::new(NEAR * 6, 40, 0);
    // As many aggregates as a trial has, and some rounds more.
    let AggregationParameters { rounds, trial, .. } = sender.parameters.aggregation;
    sender.rounds(rounds * (trial + 8) * 2);
    let (again, in_vain) = (sender.aggregation.again, sender.aggregation.in_vain);
    assert!(again > Instant::ZERO && in_vain > 0);
    assert!(sender.aggregation.trial.is_none());
    let mut dropped = 0;
    while sender.now + NEAR * 12 < again {
        dropped += sender.round();
    }
    assert_eq!(dropped, 0);
}

#[test]
fn a_sender_that_answers_with_bursts_is_left_alone() {
    let mut sender = Sender::new(NEAR * 6, 40, 0);
    sender.bursts = true;
    sender.rounds(sender.parameters.aggregation.rounds * 8);
    assert!(sender.aggregation.bursts >= sender.parameters.aggregation.bursts);
    assert_eq!(sender.rounds(100), 0);
}

#[test]
fn a_retransmission_ends_an_aggregate() {
    let mut aggregation = Aggregation { until: Instant::from_millis(100), ..Default::default() };
    aggregation.on_repeated();
    assert_eq!(aggregation.until, Instant::ZERO);
}

#[test]
fn what_a_sender_that_knows_a_near_path_only_sends_is_held_as_by_the_far_one() {
    let mut sender = Sender::new(NEAR * 6, 40, 0);
    assert_eq!(sender.aggregation.hold(), None);
    sender.rounds(24);
    assert_eq!(sender.aggregation.hold(), Some(NEAR * 3));
}

#[test]
fn what_a_sender_sends_that_does_not_pace_is_never_held() {
    let mut sender = Sender::new(NEAR * 6, 40, 0);
    sender.bursts = true;
    for round in 0..60 {
        sender.round();
        assert_eq!(sender.aggregation.hold(), None, "after round {round}");
    }
}
