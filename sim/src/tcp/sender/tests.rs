use super::super::{Received, Stack};
use super::*;
use crate::clock::MILLI;
use crate::spec::TcpControl;

/// Two stacks over a wire with a delay. It carries one packet at a time, and loses those of the
/// sender that `lost` selects.
struct Wire {
    sender: Stack,
    receiver: Stack,
    now: Nanos,
    delay: Nanos,
    /// Transmission time of a byte of the sender, and when the wire is free again.
    byte: Nanos,
    busy: Nanos,
    /// Longest queuing delay of a packet since the last query.
    waited: Nanos,
    on_the_way: VecDeque<(Nanos, bool, Vec<u8>)>,
    /// The number of a packet that arrives later than the others, and by how much.
    late: (usize, Nanos),
    sent: usize,
    largest: usize,
}

impl Wire {
    fn new(total: Option<u64>, window: usize) -> Self {
        Self::controlled(total, window, TcpControl::CUBIC)
    }

    fn controlled(total: Option<u64>, window: usize, control: TcpControl) -> Self {
        let ends: [SocketAddr; 2] =
            ["198.19.0.1:5001", "198.19.0.2:5001"].map(|end| end.parse().expect("an address"));
        let stack = |end: SocketAddr| Stack::new(&[end.ip()], 1_400, 1);
        let mut wire = Self {
            sender: stack(ends[0]),
            receiver: stack(ends[1]),
            now: 0,
            delay: 10 * MILLI,
            byte: 0,
            busy: 0,
            waited: 0,
            on_the_way: VecDeque::new(),
            late: (0, 0),
            sent: 0,
            largest: 0,
        };
        wire.receiver.listen(3, ends[1], window);
        wire.sender.connect(3, ends[0], ends[1], total, (window, control));
        wire
    }

    /// Until `end`; `lost` is asked for the number and length of each packet of the sender.
    fn run(&mut self, end: Nanos, mut lost: impl FnMut(usize, usize) -> bool) {
        while self.now <= end {
            for packet in self.sender.poll(self.now).expect("its content is right") {
                self.sent += 1;
                if !lost(self.sent, packet.len()) {
                    self.largest = self.largest.max(packet.len());
                    let leaves = self.busy.max(self.now);
                    self.waited = self.waited.max(leaves - self.now);
                    self.busy = leaves + self.byte * packet.len() as Nanos;
                    let late = if self.sent == self.late.0 { self.late.1 } else { 0 };
                    self.on_the_way.push_back((self.busy + self.delay + late, true, packet));
                }
            }
            for packet in self.receiver.poll(self.now).expect("the content is right") {
                self.on_the_way.push_back((self.now + self.delay, false, packet));
            }
            let due = self.sender.poll_at(self.now).min(self.receiver.poll_at(self.now));
            self.on_the_way.make_contiguous().sort_by_key(|(at, ..)| *at);
            let arrival = self.on_the_way.front().map_or(NEVER, |(at, ..)| *at);
            self.now = due.min(arrival).max(self.now + 1);
            while let Some((_, forward, packet)) =
                self.on_the_way.pop_front_if(|(at, ..)| *at <= self.now)
            {
                let to = if forward { &mut self.receiver } else { &mut self.sender };
                to.receive(&packet);
            }
        }
    }

    fn received(&self) -> Received {
        self.receiver.received(3).expect("it receives")
    }
}

#[test]
fn a_transfer_is_as_fast_as_slow_start() {
    let mut wire = Wire::new(Some(1_000_000), 1 << 20);
    wire.run(160 * MILLI, |_, _| false);
    assert_eq!(wire.received(), Received { bytes: 1_000_000, finished: true });
    assert_eq!(wire.sender.written(3), Some(1_000_000));
}

#[test]
fn many_losses_of_a_window_are_repaired_in_one_round_trip() {
    let mut wire = Wire::new(Some(1_000_000), 1 << 20);
    // 100 Mbit/s: 1 MB takes 80 ms, and a round trip for each loss would be 400 ms more.
    wire.byte = 80;
    let mut lost = 0;
    wire.run(260 * MILLI, |number, _| {
        let loses = (300..340).contains(&number) && number % 2 == 0;
        lost += u32::from(loses);
        loses
    });
    assert_eq!((lost, wire.received().bytes), (20, 1_000_000));
}

#[test]
fn a_lost_repair_and_a_lost_tail_are_sent_again() {
    let mut wire = Wire::new(Some(100_000), 1 << 20);
    // The first data packet, its retransmission, and the end.
    wire.run(3 * SECOND, |number, _| matches!(number, 3 | 13 | 14 | 15 | 70..=80));
    assert_eq!(wire.received(), Received { bytes: 100_000, finished: true });
}

#[test]
fn a_lost_tail_is_found_by_a_probe_before_the_timeout() {
    let mut wire = Wire::new(Some(100_000), 1 << 20);
    // The last data and the end leave after 80 ms, and the timeout would be 220 ms later.
    wire.run(200 * MILLI, |number, _| (75..=78).contains(&number));
    assert_eq!(wire.received(), Received { bytes: 100_000, finished: true });
}

#[test]
fn a_probe_costs_no_window_if_what_it_repeats_arrives_as_well() {
    let mut wire = Wire::new(None, 65_536);
    wire.run(500 * MILLI, |_, _| false);
    let before = wire.sender.state(3).expect("it sends");
    wire.delay = 60 * MILLI;
    let start = wire.now;
    wire.run(start + 20 * MILLI, |_, _| false);
    // Nothing is acknowledged for 40 ms then. The timeout is 220 ms, a probe is sent after 42 ms.
    let sent = wire.sent;
    wire.run(start + 58 * MILLI, |_, _| false);
    assert_eq!(wire.sent, sent + 1);
    wire.run(wire.now + SECOND, |_, _| false);
    let after = wire.sender.state(3).expect("it sends");
    assert!(after.window >= before.window && after.lost == 0, "{before:?}, {after:?}");
}

/// A full window on a wire with an RTT of 20 ms.
fn full_wire() -> (Wire, u64) {
    let mut wire = Wire::new(None, 65_536);
    wire.run(500 * MILLI, |_, _| false);
    let window = wire.sender.state(3).expect("it sends").window;
    (wire, window)
}

#[test]
fn what_arrives_late_costs_no_window() {
    // Before and after its retransmission.
    for late in [15, 100] {
        let (mut wire, before) = full_wire();
        wire.late = (wire.sent + 1, late * MILLI);
        wire.run(wire.now + SECOND / 2, |_, _| false);
        let state = wire.sender.state(3).expect("it sends");
        assert!(state.lost > 0 && state.window >= before, "{late}: {state:?}, {before}");
    }
}

#[test]
fn what_is_lost_costs_window() {
    let (mut wire, before) = full_wire();
    let number = wire.sent + 1;
    wire.run(wire.now + SECOND / 2, |sent, _| sent == number);
    let state = wire.sender.state(3).expect("it sends");
    assert!(state.lost == 1 && state.window < before * 9 / 10, "{state:?}, {before}");
}

#[test]
fn a_needless_timeout_costs_no_window() {
    let (mut wire, before) = full_wire();
    wire.delay += 300 * MILLI;
    wire.run(wire.now + 2 * SECOND, |_, _| false);
    let state = wire.sender.state(3).expect("it sends");
    assert!(state.window >= before && state.lost > 1, "{state:?}, {before}");
}

#[test]
fn a_lost_beginning_is_tried_again() {
    let mut wire = Wire::new(Some(1_000), 65_536);
    wire.run(4 * SECOND, |number, _| number <= 2);
    assert_eq!(wire.received().bytes, 1_000);
}

#[test]
fn what_a_smaller_path_does_not_carry_is_cut() {
    let mut wire = Wire::new(Some(300_000), 1 << 20);
    wire.run(55 * MILLI, |_, _| false);
    assert_eq!(wire.largest, 1_400);
    wire.sender.set_mtu(1_280);
    wire.run(3 * SECOND, |_, len| len > 1_280);
    assert_eq!(wire.received(), Received { bytes: 300_000, finished: true });
}

#[test]
fn it_ends_where_it_is_stopped() {
    let mut wire = Wire::new(None, 65_536);
    wire.run(200 * MILLI, |_, _| false);
    wire.sender.stop(3);
    wire.run(400 * MILLI, |_, _| false);
    let received = wire.received();
    assert!(received.finished && received.bytes > 100_000, "{received:?}");
    assert_eq!(wire.sender.written(3), Some(received.bytes));
}

#[test]
fn a_reset_breaks_it() {
    let mut wire = Wire::new(Some(1_000), 65_536);
    let nobody = Stack::new(&["198.19.0.2".parse().expect("an address")], 1_400, 1);
    wire.receiver = nobody;
    wire.run(SECOND, |_, _| false);
    assert!(wire.sender.is_broken(3));
}

/// A wire of 10 Mbit/s and 50 ms RTT, after BBR has measured it.
fn slow_wire() -> Wire {
    let mut wire = Wire::controlled(None, 1 << 20, TcpControl::BBR);
    (wire.delay, wire.byte) = (25 * MILLI, 800);
    wire.run(3 * SECOND, |_, _| false);
    wire
}

/// Share of its 10 Mbit/s that carries data in `time`.
fn share(wire: &mut Wire, time: Nanos, lost: impl FnMut(usize, usize) -> bool) -> f64 {
    let before = wire.received().bytes;
    wire.run(wire.now + time, lost);
    (wire.received().bytes - before) as f64 * 800.0 / time as f64
}

#[test]
fn bbr_fills_a_link_and_lets_nothing_wait_for_long() {
    let mut wire = slow_wire();
    wire.waited = 0;
    let share = share(&mut wire, 20 * SECOND, |_, _| false);
    assert!(share > 0.9, "{share:.3}");
    assert!(
        wire.waited < 50 * MILLI,
        "a round trip more than that without a queue: {}",
        wire.waited
    );
}

#[test]
fn bbr_keeps_its_rate_where_one_of_fifty_is_lost() {
    let mut wire = slow_wire();
    let share = share(&mut wire, 20 * SECOND, |number, _| number % 50 == 0);
    assert!(share > 0.85, "{share:.3}");
}

#[test]
fn bbr_keeps_its_rate_when_the_path_becomes_longer() {
    let mut wire = slow_wire();
    wire.delay *= 3;
    // After the round trip grows, its window is below the BDP until ProbeRTT, ten seconds later.
    let at_first = share(&mut wire, 5 * SECOND, |_, _| false);
    wire.run(wire.now + 15 * SECOND, |_, _| false);
    let then = share(&mut wire, 5 * SECOND, |_, _| false);
    assert!(then > 0.9 && then > at_first + 0.05, "{at_first:.3}, {then:.3}");
}

#[test]
fn bbr_leaves_in_pairs_at_its_rate() {
    let mut wire = slow_wire();
    let mut left = Vec::new();
    for _ in 0..400 {
        let sent = wire.sent;
        wire.run(wire.now, |_, _| false);
        left.push(wire.sent - sent);
    }
    assert!(left.contains(&2) && left.iter().all(|count| *count <= 2), "{left:?}");
}

#[test]
fn bbr_has_its_rate_again_after_an_outage() {
    let mut wire = slow_wire();
    wire.run(wire.now + 3 * SECOND, |_, _| true);
    wire.run(wire.now + 5 * SECOND, |_, _| false);
    let share = share(&mut wire, 5 * SECOND, |_, _| false);
    assert!(share > 0.85, "{share:.3}");
}
