use super::*;
use crate::clock::MILLI;
use crate::packet::fill;

/// A receiver with the sender's end of its connection.
struct Connection {
    receiver: Receiver,
    now: Nanos,
    /// Times of the acknowledgements, with the number of bytes in order.
    sent: Vec<(Nanos, u64)>,
    /// The ranges in the last one.
    ranges: [Option<(u64, u64)>; 3],
    fins: u32,
}

const FLOW: u64 = 3;
const SEGMENT: u64 = 1_000;
const PEER: u32 = u32::MAX - 1_500;

impl Connection {
    /// Opened with a round-trip time of 20 ms, after its first 16 segments.
    fn new() -> Self {
        let mut connection = Self {
            receiver: Receiver::new(FLOW, address(2), 1 << 20, 1_400, 77),
            now: 0,
            sent: Vec::new(),
            ranges: [None; 3],
            fins: 0,
        };
        connection.segment(TcpControl::Syn, PEER.wrapping_sub(1), None, 0);
        connection.until(20 * MILLI);
        for index in 0..16 {
            connection.data(index);
        }
        let each: Vec<u64> = (1..=16).map(|count| count * SEGMENT).collect();
        assert_eq!(connection.acknowledged(), each);
        connection
    }

    fn segment(&mut self, control: TcpControl, number: u32, ack: Option<u32>, offset: u64) {
        let mut payload = vec![0; if control == TcpControl::Psh { SEGMENT as usize } else { 0 }];
        fill(FLOW, offset, &mut payload);
        let repr = TcpRepr {
            seq_number: TcpSeqNumber(number as i32),
            ack_number: ack.map(|ack| TcpSeqNumber(ack as i32)),
            payload: &payload,
            ..packet::empty(address(1), address(2), control)
        };
        let packet = packet::build(&repr, address(1), address(2));
        self.receiver.on_packet(self.now, address(1), &packet).expect("the content is right");
        self.poll();
    }

    /// Segment `index` arrives.
    fn data(&mut self, index: u64) {
        let offset = index * SEGMENT;
        self.segment(TcpControl::Psh, PEER.wrapping_add(offset as u32), Some(78), offset);
    }

    fn poll(&mut self) {
        let mut out = Vec::new();
        self.receiver.poll(self.now, &mut out);
        for packet in out {
            let repr = packet::parse(&packet, address(2), address(1)).expect("a segment");
            let offset = |number: u32| u64::from(number.wrapping_sub(PEER));
            self.fins += u32::from(repr.control == TcpControl::Fin);
            if repr.control == TcpControl::None {
                let acknowledged = repr.ack_number.expect("each has one").0 as u32;
                self.sent.push((self.now, offset(acknowledged)));
                self.ranges = repr.sack_ranges.map(|r| r.map(|(a, b)| (offset(a), offset(b))));
            }
        }
    }

    /// Lets time pass until `end`.
    fn until(&mut self, end: Nanos) {
        while self.receiver.poll_at() <= end {
            self.now = self.receiver.poll_at();
            self.poll();
        }
        self.now = end;
    }

    /// What was acknowledged since the last call.
    fn acknowledged(&mut self) -> Vec<u64> {
        self.sent.drain(..).map(|(_, bytes)| bytes).collect()
    }
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([198, 19, 0, last], 5_000))
}

#[test]
fn every_second_segment_is_acknowledged_at_once_and_a_single_one_after_40_ms() {
    let mut connection = Connection::new();
    for index in 16..21 {
        connection.data(index);
    }
    assert_eq!(connection.acknowledged(), [18_000, 20_000]);
    let start = connection.now;
    connection.until(start + SECOND);
    assert_eq!(connection.sent, [(start + 40 * MILLI, 21_000)]);
}

#[test]
fn three_duplicates_are_sent_at_once_and_later_ones_at_intervals() {
    let mut connection = Connection::new();
    let start = connection.now;
    for index in 17..37 {
        connection.data(index);
        connection.until(connection.now + MILLI / 4);
    }
    let since: Vec<Nanos> =
        connection.sent.iter().map(|(at, _)| (at - start) / (MILLI / 4)).collect();
    assert_eq!(since, [0, 1, 2, 7, 11, 15, 19]);
    assert_eq!(connection.ranges, [Some((17_000, 36_000)), None, None]);
    connection.sent.clear();
    connection.data(16);
    assert_eq!(connection.acknowledged(), [37_000]);
}

#[test]
fn what_has_arrived_before_is_acknowledged_at_once() {
    let mut connection = Connection::new();
    connection.data(3);
    assert_eq!(connection.ranges, [Some((3_000, 4_000)), None, None]);
    connection.data(16);
    assert_eq!(connection.ranges, [None; 3]);
    assert_eq!(connection.acknowledged(), [16_000, 17_000]);
}

#[test]
fn a_duplicate_beyond_a_gap_is_reported_before_the_range_that_has_it() {
    let mut connection = Connection::new();
    connection.data(18);
    connection.data(19);
    connection.data(18);
    assert_eq!(connection.ranges, [Some((18_000, 19_000)), Some((18_000, 20_000)), None]);
}

#[test]
fn what_does_not_fit_its_window_is_dropped() {
    let mut connection = Connection::new();
    connection.data(16 + (1 << 20) / SEGMENT);
    assert_eq!((connection.acknowledged(), connection.receiver.arrived.has_gap()), (vec![], false));
}

#[test]
fn a_fin_is_repeated_until_it_is_acknowledged() {
    let mut connection = Connection::new();
    let end = PEER.wrapping_add(16_000);
    connection.segment(TcpControl::Fin, end, Some(78), 0);
    assert_eq!(connection.receiver.received(), Received { bytes: 16_000, finished: true });
    connection.until(connection.now + 4 * SECOND);
    assert_eq!(connection.fins, 3);
    connection.segment(TcpControl::None, end.wrapping_add(1), Some(79), 0);
    connection.until(connection.now + 100 * SECOND);
    assert_eq!((connection.fins, connection.receiver.poll_at()), (3, NEVER));
}
