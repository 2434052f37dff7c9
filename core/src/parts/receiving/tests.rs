use core::net::{IpAddr, Ipv4Addr};

use mpip_types::Checksum;
use mpip_types::packet::Endpoint;

use super::*;
use crate::parameters::ReleaseParameters;
use crate::session::{Counters, SourceRewrite};

const SESSION: SessionId = SessionId(7);

/// Notes the first byte of each packet.
#[derive(Default)]
struct Seen(Vec<u8>);

impl PacketSink for Seen {
    fn packet(&mut self, packet: InnerPacket<'_>) {
        self.0.push(packet.head[0]);
    }
}

/// Gives these verdicts in turn, then lets packets through.
struct InTurn<'a>(&'a mut dyn Iterator<Item = Verdict>);

impl Judge for InTurn<'_> {
    fn verdict(&mut self, _: &InnerPacket<'_>, _: Answers, _: Option<u8>) -> Verdict {
        self.0.next().unwrap_or(Verdict::Deliver)
    }
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// The receiving half of an association with one session.
struct Bench {
    receiving: Receiving,
    slot: u32,
    hold: HoldPool,
    drops: Drops,
    seen: Seen,
}

impl Bench {
    fn new() -> Self {
        let mut hold = HoldPool::new(1 << 20, ReleaseParameters::default());
        let mut receiving = Receiving::new(16, 1 << 20, [0; 16]);
        let end = |host| {
            let address = IpAddr::V4(Ipv4Addr::new(198, 18, 0, host));
            Endpoint { address, port: 443 }
        };
        let session = Incoming {
            key: SessionKey { protocol: protocol::UDP, source: end(1), destination: end(2) },
            order: None,
            header: None,
            source_rewrite: SourceRewrite::None,
            answers: Answers::Unknown,
            window_shift: None,
            newest: 0,
            counters: Counters::default(),
        };
        let slot = receiving.open(at(0), SESSION, session, &mut hold);
        Self { receiving, slot, hold, drops: Drops::default(), seen: Seen::default() }
    }

    /// Lets `act` deliver, with `verdicts` in turn. Returns what the host gets.
    fn judged(
        &mut self,
        verdicts: &[Verdict],
        act: impl FnOnce(&mut Receiving, u32, DeliveryContext<'_, Seen, InTurn<'_>>),
    ) -> Vec<u8> {
        let mut verdicts = verdicts.iter().copied();
        let judge = InTurn(&mut verdicts);
        let (hold, drops, sink) = (&mut self.hold, &mut self.drops, &mut self.seen);
        act(&mut self.receiving, self.slot, DeliveryContext { hold, drops, judge, sink });
        core::mem::take(&mut self.seen.0)
    }

    /// The packet `sequence` arrives, which is called by its number.
    fn arrives(&mut self, now: Instant, sequence: u32, verdicts: &[Verdict]) -> Vec<u8> {
        self.judged(verdicts, |receiving, slot, context| {
            let arrival = Arrival { not_before: Instant::ZERO, path: PathId(0) };
            let delivery = Delivery { sequence, ordered: true, arrival };
            let (head, checksum) = (&[sequence as u8; 30], Checksum::Complete);
            let packet = InnerPacket { head, tail: &[], checksum };
            receiving.deliver(now, slot, delivery, packet, context);
        })
    }
}

#[test]
fn a_packet_that_passes_takes_along_what_was_withheld() {
    let mut bench = Bench::new();
    assert!(bench.arrives(at(0), 0, &[Verdict::Withhold(at(50))]).is_empty());
    assert!(bench.arrives(at(1), 1, &[Verdict::Withhold(at(50))]).is_empty());
    assert_eq!(bench.arrives(at(2), 2, &[Verdict::Pass]), [2, 1, 0]);
}

#[test]
fn packets_that_waited_for_order_are_judged_when_it_is_their_turn() {
    let withhold = Verdict::Withhold(at(500));
    let mut bench = Bench::new();
    bench.arrives(at(0), 0, &[]);
    for sequence in 2..5 {
        assert!(bench.arrives(at(1), sequence, &[]).is_empty());
    }
    // The newest come first: an acknowledgement that comes later shows no round trip.
    let verdicts = [Verdict::Pass, withhold, Verdict::Thin, withhold];
    assert_eq!(bench.arrives(at(2), 1, &verdicts), [4, 2, 1]);
    assert_eq!(bench.drops.of(DropReason::Thinned), 1);
}

#[test]
fn packets_whose_gap_is_given_up_are_judged() {
    let mut bench = Bench::new();
    bench.arrives(at(0), 0, &[]);
    for sequence in 2..5 {
        assert!(bench.arrives(at(1), sequence, &[]).is_empty());
    }
    let withhold = Verdict::Withhold(at(500));
    let due = bench.receiving.next_timeout().expect("a gap is waited for");
    let released = bench.judged(&[withhold, Verdict::Pass, withhold], |receiving, _, context| {
        receiving.release_overdue(due, context);
    });
    assert_eq!(released, [4, 3, 2]);

    for sequence in 6..8 {
        assert!(bench.arrives(due, sequence, &[]).is_empty());
    }
    let released = bench.judged(&[withhold, withhold], |receiving, _, context| {
        receiving.skip(due, SESSION, (5, 1), context);
    });
    assert!(released.is_empty());
    let all = bench.judged(&[], |receiving, _, context| receiving.release_all(due, context));
    assert_eq!(all, [7, 6]);
}
