use std::collections::VecDeque;

use super::*;

const SEGMENT: u32 = 1_400;
const NEAR: Duration = Duration::from_millis(4);

/// A path with this minimum RTT that may carry anything.
fn path(id: u16, rtt: Duration) -> PathReach {
    let delay = rtt.as_micros() as i64 / 2;
    PathReach {
        id,
        minimum_rtt: rtt,
        least: delay,
        usual: delay,
        delivers: 1_000,
        searches: true,
        carried: 0,
    }
}

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
    /// Segments that the path carries in a round; `None` if it carries the window.
    carries: Option<u32>,
    parameters: Parameters,
    /// Sends what an aggregate permits at once.
    bursts: bool,
    /// Data waits for the paths.
    waits: bool,
    reach: Reach,
}

impl Sender {
    /// After a handshake of [`NEAR`].
    fn new(rtt: Duration, window: u32, start: u32) -> Self {
        let mut aggregation = Aggregation::default();
        let now = Instant::from_millis(1_000);
        aggregation.on_segment(now, start);
        aggregation.on_syn_ack(now + NEAR);
        let parameters = Parameters::default();
        let mut reach = Reach::default();
        reach.look([path(0, NEAR), path(1, rtt)].into_iter(), &RaiseParameters::default());
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
            carries: None,
            parameters,
            bursts: false,
            waits: false,
            reach,
        }
    }

    fn at(&self, segments: u32) -> u32 {
        self.start.wrapping_add(segments * SEGMENT)
    }

    /// A round-trip time passes. Returns how many acknowledgements were dropped.
    fn round(&mut self) -> u32 {
        let mut dropped = 0;
        let steps = self.carries.unwrap_or(self.window);
        for _ in 0..steps {
            // Paced: two segments at once, or what the path carries. Otherwise, after the first
            // window, all that it permits.
            let most = self.acked + self.window;
            let at_once = self.bursts && self.sent >= self.window;
            let paced = self.sent + if self.carries.is_some() { 1 } else { 2 };
            let next = if at_once { most } else { most.min(paced) };
            if next > self.sent {
                self.under_way.extend((self.sent..next).map(|_| self.now + self.rtt));
                self.sent = next;
                self.aggregation.on_segment(self.now, self.at(self.sent));
            }
            self.now += self.rtt / steps;
            while self.under_way.pop_front_if(|at| *at <= self.now).is_some() {
                self.arrived += 1;
                let (ack, sent) = (self.at(self.arrived), self.at(self.sent));
                let ahead = Ahead { waits: self.waits, reach: &self.reach };
                if self.aggregation.passes(self.now, ack, sent, ahead, &self.parameters) {
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
    sender.waits = true;
    assert_eq!(sender.rounds(100), 0);
}

#[test]
fn every_acknowledgement_passes_if_the_rtt_is_that_of_a_queue() {
    let mut sender = Sender::new(NEAR * 6, 40, 0);
    sender.reach.farthest = NEAR * 19 / 10;
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
    sender.parameters.raise.enabled = false;
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
    let after = sender.parameters.raise.after.div_duration_f32(NEAR * 6) as u32;
    sender.rounds(after);
    assert_eq!(sender.aggregation.hold(), None);
    sender.rounds(40);
    assert_eq!(sender.aggregation.hold(), Some(NEAR * 5 / 2));
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

/// A sender on a path with a round-trip time of [`NEAR`], beside a path that is farther by 20 ms.
/// Its window is twice what the near path carries in a round, like BBR's. `full`: the path carries
/// no more.
fn content_with_the_near_path(full: bool) -> Sender {
    let mut sender = Sender::new(NEAR, 80, 0);
    sender.carries = Some(40);
    sender.reach.look([path(0, NEAR), path(1, NEAR * 11)].into_iter(), &RaiseParameters::default());
    sender.reach.beyond_full = if full { NEAR * 5 } else { Duration::ZERO };
    sender
}

#[test]
fn what_a_sender_sends_that_is_content_with_the_near_path_is_held_as_by_the_far_one() {
    let mut sender = content_with_the_near_path(true);
    let AggregationParameters { rounds, bursts, .. } = sender.parameters.aggregation;
    let after = sender.parameters.raise.after.div_duration_f32(NEAR) as u32;
    assert_eq!(sender.rounds(after - rounds), 0);
    assert!(sender.rounds(rounds * (bursts + 4)) > 0);
    assert!(sender.aggregation.hold().is_some_and(|hold| hold >= NEAR));
}

#[test]
fn what_a_sender_sends_whose_window_limits_it_on_the_near_path_is_never_held() {
    let mut sender = content_with_the_near_path(true);
    sender.window = 40;
    for round in 0..400 {
        sender.round();
        assert_eq!(sender.aggregation.hold(), None, "after round {round}");
    }
}

#[test]
fn a_sender_that_leaves_the_near_path_room_is_left_alone() {
    let mut sender = content_with_the_near_path(false);
    assert_eq!(sender.rounds(400), 0);
    assert_eq!(sender.aggregation.hold(), None);
}

#[test]
fn a_sender_that_pauses_is_not_content_with_the_near_path() {
    let mut sender = content_with_the_near_path(true);
    for _ in 0..400 {
        sender.aggregation.period.idle = true;
        assert_eq!(sender.round(), 0);
    }
}

#[test]
fn a_raised_rtt_ends_when_the_sender_pauses() {
    let mut sender = Sender::new(NEAR * 6, 40, 0);
    let begins = sender.parameters.raise.after.div_duration_f32(NEAR * 6) as u32 + 40;
    sender.rounds(begins);
    assert!(sender.aggregation.hold().is_some());
    let end = sender.at(sender.sent);
    let mut pause = |time: Duration| {
        let Sender { aggregation, parameters, now, reach, .. } = &mut sender;
        let ahead = Ahead { waits: false, reach };
        aggregation.acked = end.wrapping_sub(SEGMENT);
        assert!(aggregation.passes(*now, end, end, ahead, parameters));
        *now += time;
        aggregation.on_segment(*now, end.wrapping_add(SEGMENT));
        aggregation.hold().is_some()
    };
    assert!(pause(IDLE - NEAR), "its window was acknowledged at once");
    assert!(!pause(IDLE));
}
