use mpip_wire::{AckRange, PathId, Ranges};

use super::*;

const SIZE: u16 = 1_000;

/// What a datagram carries here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Note {
    Packet(u8),
    Open(u8),
    Other(u8),
}

impl Content for Note {
    fn is_packet(&self) -> bool {
        matches!(self, Self::Packet(_))
    }

    fn reports_arrival(&self) -> bool {
        matches!(self, Self::Open(_))
    }
}

fn ms(ms: u64) -> Instant {
    Instant::from_millis(1_000 + ms)
}

/// Ranges as `(first, last)`, from the largest down.
fn feedback(ranges: &[(u64, u64)]) -> Vec<AckRange> {
    ranges.iter().map(|&(first, last)| AckRange { first, last }).collect()
}

struct SendingPath {
    flight: Flight<Note>,
    losses: Losses<Note>,
}

impl SendingPath {
    fn new() -> Self {
        Self { flight: Flight::new(ms(0), Some(3.0)), losses: Losses::default() }
    }

    /// Sends `count` packets, one every `every_ms` from `at` on.
    fn send(&mut self, at: u64, count: u64, every_ms: u64) {
        for n in 0..count {
            let now = ms(at + n * every_ms);
            self.flight.on_sent(now, SIZE, true, false, None);
        }
    }

    fn feedback(&mut self, at: u64, ranges: &[(u64, u64)]) -> Result<Progress, NeverSent> {
        self.delayed_feedback(at, at, ranges)
    }

    /// Feedback that the receiver sent at `told`, and that arrives at `at`, in ms.
    fn delayed_feedback(
        &mut self,
        told: u64,
        at: u64,
        ranges: &[(u64, u64)],
    ) -> Result<Progress, NeverSent> {
        self.losses.clear();
        let ranges = feedback(ranges);
        let ranges = Ranges::new(&ranges).expect("descending");
        let received_at = told as u32 * 1_000;
        let feedback = Feedback { path: PathId(0), received_at, delay: 0, ranges, ecn: None };
        self.flight.on_feedback(ms(at), &feedback, &mut self.losses)
    }
}

#[test]
fn acknowledged_bytes_leave_the_flight_and_give_rtt_and_rate() {
    let mut path = SendingPath::new();
    path.send(0, 10, 1);
    let progress = path.feedback(20, &[(0, 9)]).expect("they were sent");
    let sample = progress.sample.expect("something new");
    assert_eq!((sample.acked, sample.in_flight, sample.prior_in_flight), (10_000, 0, 10_000));
    assert_eq!(sample.rtt, Some(Duration::from_millis(11)));
    assert_eq!(path.flight.next_number(), 10);
    // A steady sender is measured at its own rate: 1,000 bytes a millisecond.
    for round in 1..20 {
        path.send(round * 10, 10, 1);
    }
    let mut rate = None;
    for number in 10..200 {
        let progress = path.feedback(number + 11, &[(0, number)]).expect("they were sent");
        rate = progress.sample.expect("one new").delivery_rate.or(rate);
    }
    let rate = rate.expect("a rate");
    assert!(rate.abs_diff(1_000_000) < 100_000, "{rate} bytes/s");
}

#[test]
fn what_a_dead_path_was_asked_in_vain_is_bounded() {
    let mut path = SendingPath::new();
    let asked = CAPACITY as u64 + 1_000;
    path.send(0, asked, 100);
    assert_eq!(path.flight.sent.len(), CAPACITY);
    assert_eq!(path.flight.in_flight(), CAPACITY as u64 * u64::from(SIZE));
    // It works again.
    let answered = path.feedback(asked * 100, &[(asked - 1, asked - 1)]);
    assert_eq!(answered.expect("it was sent").sample.expect("something new").acked, 1_000);
    path.flight.on_loss_timer(ms(asked * 100 + 60_000), &mut path.losses);
    assert_eq!(path.flight.in_flight(), 0);
}

#[test]
fn a_sample_tells_in_what_time_its_packets_left_and_arrived() {
    let mut path = SendingPath::new();
    for at in 0..100 {
        path.send(at, u64::from(at < 40), 1);
        // They arrive at half the rate at which they left.
        if at < 20 || at % 2 == 1 {
            continue;
        }
        let number = (at - 20) / 2;
        let progress = path.feedback(at, &[(0, number)]).expect("they were sent");
        let sample = progress.sample.expect("one new");
        match sample.left_and_arrived_in {
            // Nothing was in flight before the first ones.
            None => assert!(number <= 20, "{number}"),
            Some((left_in, arrived_in)) => {
                assert!(number > 20 && !left_in.is_zero(), "{number}");
                assert_eq!(arrived_in, 2 * left_in, "{number}");
            }
        }
    }
}

/// One packet leaves each ms and arrives 20 ms later; the feedback takes 0 to 9 ms, in order.
#[test]
fn jitter_of_the_feedback_changes_no_rate() {
    let mut path = SendingPath::new();
    let mut at = 0;
    let mut rates = Vec::new();
    for now in 0..200 {
        path.send(now, 1, 1);
        let Some(number) = now.checked_sub(20) else { continue };
        at = at.max(now + number * 7 % 10);
        let progress = path.delayed_feedback(now, at, &[(0, number)]).expect("they were sent");
        rates.extend(progress.sample.expect("one new").delivery_rate.filter(|_| number > 40));
    }
    let steady = u64::from(SIZE) * 1_000;
    assert!(rates.len() > 100 && rates.iter().all(|&rate| rate == steady), "{rates:?}");
}

#[test]
fn feedback_for_packets_never_sent_is_refused() {
    let mut path = SendingPath::new();
    path.send(0, 3, 1);
    assert_eq!(path.feedback(10, &[(3, 3)]).map(|progress| progress.acked), Err(NeverSent));
    assert_eq!(path.feedback(10, &[(0, 2)]).map(|progress| progress.acked), Ok(3_000));
}

/// [F-11]
#[test]
fn arrivals_told_another_way_end_the_wait_and_say_nothing_of_time() {
    let mut path = SendingPath::new();
    path.send(0, 10, 1);
    let told = |ranges: &[(u64, u64)], flight: &mut Flight<Note>| {
        let ranges = feedback(ranges);
        let ranges = Ranges::new(&ranges).expect("descending");
        let told = Feedback { path: PathId(0), received_at: 0, delay: 0, ranges, ecn: None };
        flight.on_arrivals(&told, false, &mut 0)
    };
    assert!(told(&[(0, 10)], &mut path.flight).is_err());
    told(&[(6, 7), (0, 3)], &mut path.flight).expect("they were sent");
    assert_eq!(path.flight.in_flight(), 4_000);
    assert!(!path.flight.rtt().is_known());
    path.flight.abandon(&mut path.losses);
    assert_eq!(path.losses.summary.packets, 4);
    // Also of what was given up before.
    told(&[(0, 9)], &mut path.flight).expect("they were sent");
    assert_eq!(path.flight.in_flight(), 0);
    assert_eq!(path.feedback(30, &[(0, 9)]).expect("they were sent").spurious, 0);
}

#[test]
fn a_hole_is_a_loss_after_three_followers_while_no_reordering_was_seen() {
    let mut path = SendingPath::new();
    path.send(0, 5, 0);
    path.feedback(10, &[(1, 2)]).expect("sent");
    assert_eq!(path.losses.summary.packets, 0);
    path.feedback(10, &[(1, 3)]).expect("sent");
    assert_eq!((path.losses.summary.packets, path.losses.summary.bytes), (1, 1_000));
    assert_eq!(path.flight.in_flight(), 1_000);
}

#[test]
fn packets_lost_one_after_another_are_a_range_also_if_that_shows_bit_by_bit() {
    let mut path = SendingPath::new();
    path.send(0, 12, 0);
    let mut ranges = |arrived: &[(u64, u64)]| {
        path.feedback(10, arrived).expect("sent");
        (path.losses.summary.packets, path.losses.summary.ranges)
    };
    assert_eq!(ranges(&[(6, 6), (0, 1)]), (2, 1), "2 and 3 of 2 to 5");
    assert_eq!(ranges(&[(6, 8), (0, 1)]), (2, 0), "4 and 5");
    assert_eq!(ranges(&[(10, 11), (6, 8), (0, 1)]), (0, 0));
    path.flight.abandon(&mut path.losses);
    assert_eq!((path.losses.summary.packets, path.losses.summary.ranges), (1, 1), "9");
}

#[test]
fn a_hole_is_a_loss_once_it_is_overdue() {
    let mut path = SendingPath::new();
    path.send(0, 2, 1);
    path.feedback(41, &[(1, 1)]).expect("sent");
    assert_eq!(path.losses.summary.packets, 0);
    let due = path.flight.loss_timer().expect("a timer");
    assert_eq!(due, ms(0) + Duration::from_millis(40) + path.flight.reordering_window());
    path.flight.on_loss_timer(due, &mut path.losses);
    assert_eq!(path.losses.summary.packets, 1);
    assert_eq!(path.flight.loss_timer(), None);
}

#[test]
fn a_loss_that_arrives_after_all_widens_the_window_and_counts_as_spurious() {
    let mut path = SendingPath::new();
    path.send(0, 8, 0);
    let narrow = path.flight.reordering_window();
    path.feedback(100, &[(4, 7)]).expect("sent");
    assert_eq!(path.losses.summary.packets, 4);
    let progress = path.feedback(180, &[(0, 7)]).expect("sent");
    assert_eq!(progress.spurious, 4);
    assert!(
        path.flight.reordering_window() >= Duration::from_millis(80)
            && narrow < path.flight.reordering_window()
    );
    // The same hole is no loss any more, however many follow.
    path.send(200, 8, 0);
    path.feedback(300, &[(12, 15), (0, 7)]).expect("sent");
    assert_eq!(path.losses.summary.packets, 0);
}

#[test]
fn silence_counts_from_the_oldest_packet_that_is_owed_an_answer() {
    let mut path = SendingPath::new();
    assert_eq!(path.flight.silent_since(), None);
    path.send(10, 3, 5);
    assert_eq!(path.flight.silent_since(), Some(ms(10)));
    path.feedback(40, &[(0, 1)]).expect("sent");
    assert_eq!(path.flight.silent_since(), Some(ms(40)));
    path.flight.abandon(&mut path.losses);
    assert_eq!((path.flight.silent_since(), path.flight.in_flight()), (None, 0));
    assert_eq!(path.losses.summary.packets, 1);
}

#[test]
fn a_packet_that_is_not_ack_eliciting_is_not_in_flight() {
    let mut path = SendingPath::new();
    path.flight.on_sent(ms(0), SIZE, false, false, None);
    assert_eq!((path.flight.in_flight(), path.flight.next_number()), (0, 1));
    assert_eq!(path.flight.silent_since(), None);
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Whatever is lost, reordered and acknowledged in whatever pieces: every byte is in
        /// flight, acknowledged or lost, once.
        #[test]
        fn no_packet_is_lost_track_of(
            steps in proptest::collection::vec((0_u8..3, 0_u64..64, 0_u64..8, 0_u64..40), 1..200)
        ) {
            let mut path = SendingPath::new();
            let (mut now, mut sent, mut acked, mut lost, mut spurious) = (0, 0, 0, 0, 0);
            for (action, back, width, passes) in steps {
                now += passes;
                let newest = path.flight.next_number();
                match action {
                    0 => {
                        path.send(now, 4, 0);
                        sent += 4;
                    }
                    1 if newest > 0 => {
                        let last = newest - 1 - back.min(newest - 1);
                        let first = last.saturating_sub(width);
                        let progress = path.feedback(now, &[(first, last)]).expect("sent");
                        acked += progress.acked / u64::from(SIZE);
                        spurious += progress.spurious;
                        lost += path.losses.summary.packets;
                    }
                    _ => {
                        path.losses.clear();
                        path.flight.on_loss_timer(ms(now), &mut path.losses);
                        lost += path.losses.summary.packets;
                    }
                }
                let in_flight = path.flight.in_flight() / u64::from(SIZE);
                prop_assert_eq!(in_flight + acked + lost - spurious, sent);
            }
        }
    }
}

#[test]
fn packets_that_were_overtaken_count_for_how_long_packets_take() {
    let mut path = SendingPath::new();
    for pair in 0..200 {
        let (at, first) = (pair * 120, pair * 2);
        path.send(at, 2, 0);
        path.feedback(at + 40, &[(first + 1, first + 1)]).expect("sent");
        path.feedback(at + 100, &[(0, first + 1)]).expect("sent");
    }
    assert!(path.flight.rtt().smoothed() <= Duration::from_millis(41));
    let (longer, deviation) = path.flight.reordering().expect("half of them were overtaken");
    let near =
        |value: Duration, millis| value.abs_diff(Duration::from_millis(millis)).as_millis() < 6;
    assert!(near(longer, 30) && near(deviation, 30), "{longer:?}, {deviation:?}");
    // None of them is declared lost before it is later than the others were.
    let patience = path.flight.rtt().smoothed() + longer + path.flight.reordering_window();
    assert!(patience > Duration::from_millis(100), "{patience:?}");
}

#[test]
fn a_path_of_constant_delay_does_not_reorder() {
    let mut path = SendingPath::new();
    assert!(path.flight.reordering().is_none(), "nothing is known");
    for number in 0..100 {
        path.send(number * 10, 1, 0);
        path.feedback(number * 10 + 20, &[(0, number)]).expect("sent");
    }
    assert!(path.flight.reordering().is_none());
}

#[test]
fn a_queue_that_grows_is_no_reordering() {
    let mut path = SendingPath::new();
    for number in 0..100 {
        path.send(number * 10, 1, 0);
        path.feedback(number * 12 + 20, &[(0, number)]).expect("sent");
    }
    assert!(path.flight.reordering().is_none());
}

#[test]
fn contents_come_back_when_they_are_lost_and_those_that_report_when_they_arrive() {
    let mut path = SendingPath::new();
    let notes = [Note::Packet(0), Note::Open(1), Note::Other(2), Note::Open(3), Note::Packet(4)];
    for note in notes {
        path.flight.on_sent(ms(0), SIZE, true, false, Some(note));
    }
    path.feedback(20, &[(3, 4)]).expect("they were sent");
    assert_eq!(path.losses.arrived, [Note::Open(3)]);
    // Of the others those are lost that left three packets before what has arrived.
    assert_eq!(path.losses.lost, [Note::Packet(0), Note::Open(1)]);
    assert_eq!((path.losses.summary.packets, path.losses.summary.bytes), (2, 2_000));
    path.losses.clear();
    path.flight.abandon(&mut path.losses);
    assert_eq!(path.losses.lost, [Note::Other(2)]);
    assert_eq!(path.flight.in_flight(), 0);
}

#[test]
fn control_datagrams_can_be_declared_lost_alone() {
    let mut path = SendingPath::new();
    for note in [Note::Packet(0), Note::Other(1), Note::Packet(2)] {
        path.flight.on_sent(ms(0), SIZE, true, false, Some(note));
    }
    path.flight.on_sent(ms(0), SIZE, true, false, None);
    path.flight.abandon_control(&mut path.losses);
    assert_eq!(path.losses.lost, [Note::Other(1)]);
    assert_eq!(path.flight.in_flight(), 2 * u64::from(SIZE));
    assert_eq!(path.flight.newest(), Some(&Note::Packet(2)));
}

#[test]
fn the_newest_packets_are_taken_once_and_stay_in_flight() {
    let mut path = SendingPath::new();
    for note in [Note::Packet(0), Note::Packet(1), Note::Other(2), Note::Packet(3)] {
        path.flight.on_sent(ms(0), SIZE, true, false, Some(note));
    }
    let size = u64::from(SIZE);
    let mut behind = Vec::new();
    let may = |_: &Note, bytes| {
        behind.push(bytes);
        bytes < 3 * size
    };
    path.flight.take_newest(may, &mut path.losses);
    assert_eq!(behind, [0, 2 * size, 3 * size]);
    assert_eq!(path.losses.lost, [Note::Packet(3), Note::Packet(1)]);
    assert_eq!(path.flight.in_flight(), 4 * size);

    path.losses.clear();
    path.flight.take_newest(|_, _| true, &mut path.losses);
    assert_eq!(path.losses.lost, []);
    path.flight.on_sent(ms(0), SIZE, true, false, Some(Note::Packet(4)));
    path.flight.take_newest(|_, _| true, &mut path.losses);
    assert_eq!(path.losses.lost, [Note::Packet(4)]);

    // They count as lost later, with nothing left to send again.
    path.losses.clear();
    path.flight.abandon(&mut path.losses);
    assert_eq!(path.losses.lost, [Note::Packet(0), Note::Other(2)]);
    assert_eq!(path.losses.summary.packets, 5);
}

#[test]
fn what_has_arrived_counts_from_when_nothing_was_in_flight() {
    let mut path = SendingPath::new();
    path.send(0, 3, 0);
    path.feedback(10, &[(0, 1)]).expect("sent");
    path.send(20, 1, 0);
    assert_eq!(path.flight.delivered_since_idle(), 2 * u64::from(SIZE));
    path.feedback(30, &[(0, 3)]).expect("sent");
    assert_eq!(path.flight.delivered_since_idle(), 4 * u64::from(SIZE));
    path.send(40, 1, 0);
    assert_eq!(path.flight.delivered_since_idle(), 0);
}

/// A path that takes 50 ms, and for one packet in 13 up to 80 ms, so that the reordering window is
/// wide. One packet leaves each ms.
struct JitteryPath {
    path: SendingPath,
    /// When packet [`LATE`](Self::LATE) was sent again, and when it counted as lost, ms; and how
    /// many losses were spurious. What was lost before it left counts in neither: the path was
    /// not known well then.
    again: Vec<u64>,
    lost: Vec<u64>,
    spurious: u64,
}

impl JitteryPath {
    const LATE: u64 = 500;

    /// Packet [`LATE`](Self::LATE) takes `took` ms, or never arrives.
    fn run(early: Option<f64>, took: Option<u64>) -> Self {
        let path = SendingPath { flight: Flight::new(ms(0), early), losses: Losses::default() };
        let mut run = Self { path, again: Vec::new(), lost: Vec::new(), spurious: 0 };
        let takes = |n: u64| match n {
            Self::LATE => took,
            _ if n.is_multiple_of(13) => Some(60 + n % 21),
            _ => Some(50),
        };
        for at in 0..1_000 {
            let note = if at == Self::LATE { Note::Packet(0) } else { Note::Other(0) };
            run.path.flight.on_sent(ms(at), SIZE, true, false, Some(note));
            for n in at.saturating_sub(200)..=at {
                if takes(n).is_some_and(|took| n + took == at) {
                    let spurious = run.path.feedback(at, &[(n, n)]).expect("sent").spurious;
                    run.note(at, spurious);
                }
            }
            run.path.losses.clear();
            run.path.flight.on_loss_timer(ms(at), &mut run.path.losses);
            run.note(at, 0);
        }
        run
    }

    fn note(&mut self, at: u64, spurious: u64) {
        if at < Self::LATE {
            return;
        }
        self.spurious += spurious;
        let losses = &self.path.losses;
        self.again.extend(losses.lost.iter().filter(|note| note.is_packet()).map(|_| at));
        self.lost.extend((losses.summary.packets > 0).then_some(at));
    }
}

#[test]
fn a_late_packet_is_sent_again_once_and_counts_as_lost_later() {
    let run = JitteryPath::run(Some(3.0), None);
    let (&[again], &[lost]) = (&run.again[..], &run.lost[..]) else {
        panic!("sent again at {:?}, lost at {:?}", run.again, run.lost);
    };
    assert!(again + 10 <= lost, "{again} ms, {lost} ms");
    // Not before others have arrived that left as early.
    assert!(again >= JitteryPath::LATE + 60, "{again} ms");
    let never = JitteryPath::run(None, None);
    assert_eq!((never.again, never.lost), (vec![lost], vec![lost]));
}

#[test]
fn a_packet_that_arrives_after_it_was_sent_again_was_not_lost() {
    let run = JitteryPath::run(Some(1.0), Some(75));
    assert_eq!((run.again.len(), run.lost.len(), run.spurious), (1, 0, 0));
    // What left in the last 50 ms.
    assert!(run.path.flight.in_flight() <= 55 * u64::from(SIZE));
}
