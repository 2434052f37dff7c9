use super::*;
use crate::packet::{Shape, build};

fn packet(number: u8, sequence: u64) -> Vec<u8> {
    let mut packet = Vec::new();
    let shape = Shape {
        protocol: number,
        source: "198.19.0.1:4000".parse().unwrap(),
        destination: "198.19.0.2:5000".parse().unwrap(),
        ecn: 0,
    };
    build(&shape, sequence, sequence as u32, 100, &mut packet);
    packet
}

fn broken(result: Result<(), (Invariant, String)>) -> Option<Invariant> {
    result.err().map(|(invariant, _)| invariant)
}

#[test]
fn a_second_delivery_of_one_packet_is_noticed() {
    let mut ledger = Ledger::default();
    let udp = packet(protocol::UDP, 1);
    ledger.sent(0, 1, &udp);
    assert_eq!(broken(ledger.delivered(1, 1, &udp)), None);
    assert_eq!(broken(ledger.delivered(2, 1, &udp)), Some(Invariant::NoDuplicate));
    ledger.sent(3, 1, &udp);
    ledger.sent(3, 1, &udp);
    assert_eq!(broken(ledger.delivered(4, 1, &udp)), None);
}

#[test]
fn altered_forged_and_misdirected_packets_are_noticed() {
    let mut ledger = Ledger::default();
    let udp = packet(protocol::UDP, 1);
    ledger.sent(0, 1, &udp);
    let mut altered = udp.clone();
    altered[60] ^= 4;
    assert_eq!(broken(ledger.delivered(1, 1, &altered)), Some(Invariant::Unaltered));
    assert_eq!(broken(ledger.delivered(1, 0, &udp)), Some(Invariant::Unaltered));
    assert_eq!(broken(ledger.delivered(1, 1, &udp)), None);
}

#[test]
fn a_packet_that_was_not_waited_for_is_noticed() {
    let mut ledger = Ledger::new(100);
    let packets: Vec<_> = (0..4).map(|n| packet(protocol::TCP, n)).collect();
    packets.iter().for_each(|packet| ledger.sent(0, 1, packet));
    assert_eq!(broken(ledger.delivered(10, 1, &packets[0])), None);
    assert_eq!(broken(ledger.delivered(20, 1, &packets[2])), None);
    assert_eq!(broken(ledger.delivered(30, 1, &packets[1])), Some(Invariant::InOrder));
    assert_eq!(broken(ledger.delivered(40, 1, &packets[3])), None);
}

#[test]
fn a_packet_that_was_waited_for_may_come_late() {
    let mut ledger = Ledger::new(100);
    let packets: Vec<_> = (0..3).map(|n| packet(protocol::TCP, n)).collect();
    packets.iter().for_each(|packet| ledger.sent(0, 1, packet));
    assert_eq!(broken(ledger.delivered(150, 1, &packets[2])), None);
    assert_eq!(broken(ledger.delivered(160, 1, &packets[0])), None);
    assert_eq!(ledger.late, 1);
}

#[test]
fn equal_acknowledgements_are_matched_in_the_order_that_fits() {
    let mut ledger = Ledger::new(100);
    let (data, ack) = (packet(protocol::TCP, 1), packet(protocol::TCP, 2));
    for packet in [&ack, &data, &ack, &data] {
        ledger.sent(0, 1, packet);
    }
    for packet in [&data, &ack, &data] {
        assert_eq!(broken(ledger.delivered(1, 1, packet)), None);
    }
}

#[test]
fn other_protocols_have_no_order() {
    let mut ledger = Ledger::new(100);
    let packets: Vec<_> = (0..2).map(|n| packet(protocol::UDP, n)).collect();
    packets.iter().for_each(|packet| ledger.sent(0, 1, packet));
    assert_eq!(broken(ledger.delivered(1, 1, &packets[1])), None);
    assert_eq!(broken(ledger.delivered(2, 1, &packets[0])), None);
}

#[test]
fn an_address_that_did_not_answer_gets_no_more_than_it_sent() {
    let remote = "198.18.200.1:6182".parse().unwrap();
    let mut watch = Amplification::default();
    watch.received(0, remote, 100, false);
    assert_eq!(broken(watch.sent(1, 0, remote, 100, Standing::Told(0))), None);
    assert_eq!(
        broken(watch.sent(2, 0, remote, 1, Standing::Told(0))),
        Some(Invariant::NoAmplification)
    );
    watch.received(0, remote, 1, true);
    assert_eq!(broken(watch.sent(3, 0, remote, 1_000_000, Standing::Told(0))), None);
}

#[test]
fn a_known_address_that_does_not_answer_gets_a_few_probes_only() {
    let remote = "198.18.1.1:6182".parse().unwrap();
    let mut watch = Amplification::default();
    assert_eq!(broken(watch.sent(0, 0, remote, PROBE_BYTES, Standing::Known)), None);
    assert_eq!(
        broken(watch.sent(1, 0, remote, 1, Standing::Known)),
        Some(Invariant::NoAmplification)
    );
    assert_eq!(broken(watch.sent(SECOND, 0, remote, 1_000, Standing::Known)), None);
}

#[test]
fn told_addresses_get_few_short_packets_all_together() {
    let told = |number: u64| SocketAddr::new([198, 18, 240, number as u8].into(), 6182);
    let mut watch = Amplification::default();
    let mut sent = |now, number, bytes| watch.sent(now, 0, told(number), bytes, Standing::Told(1));
    assert!((0..TOLD.0).all(|number| sent(0, number, SHORT).is_ok()));
    assert_eq!(broken(sent(0, 200, SHORT)), Some(Invariant::NoAmplification));
    assert!((0..TOLD.1).all(|number| sent(SECOND, number, SHORT).is_ok()));
    assert_eq!(broken(sent(SECOND, 201, SHORT)), Some(Invariant::NoAmplification));
    assert_eq!(broken(sent(60 * SECOND, 202, SHORT + 1)), Some(Invariant::NoAmplification));
}

#[test]
fn a_timer_that_stays_due_is_noticed() {
    let mut spin = Spin::default();
    let calls = (0..2 * TIMEOUTS_PER_MOMENT).map(|_| broken(spin.timeout(5)));
    assert_eq!(calls.flatten().next(), Some(Invariant::Progress));
    let mut spin = Spin::default();
    let calls = (0..2 * u64::from(TIMEOUTS_PER_MILLI)).map(|n| broken(spin.timeout(n)));
    assert_eq!(calls.flatten().next(), Some(Invariant::Progress));
    let mut spin = Spin::default();
    assert!((0..10_000).all(|n| spin.timeout(n * MILLI / 500).is_ok()));
}

#[test]
fn a_table_that_holds_more_than_it_may_is_noticed() {
    let kept = |held| [("a", 3, 3), ("b", held, 7)];
    assert_eq!(check_kept(&kept(7)).count(), 0);
    let found: Vec<_> = check_kept(&kept(8)).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, Invariant::BoundedMemory);
    assert!(found[0].1.starts_with("b: 8"), "{}", found[0].1);
}

#[test]
fn a_datagram_that_takes_more_steps_than_it_may_is_noticed() {
    let bound = u64::from(WORK_MAX) * STEPS_PER_UNIT;
    let none = Settled::new(50, &[]);
    assert_eq!(broken(check_work(&none, bound)), None);
    assert_eq!(broken(check_work(&none, bound + 1)), Some(Invariant::BoundedWork));
    // Each packet in flight and each held packet counts once.
    let kept =
        [("packets of a path", 10, 16_000), ("bytes that wait in order, of all", 4_096, 9_000)];
    let some = Settled::new(50, &kept);
    let more = 10 * STEPS_IN_FLIGHT + 2 * STEPS_WAITING;
    assert_eq!(broken(check_work(&some, bound + more)), None);
    assert_eq!(broken(check_work(&some, bound + more + 1)), Some(Invariant::BoundedWork));
    // That was an earlier datagram.
    let before = Settled::new(bound * 2, &[]);
    assert_eq!(broken(check_work(&before, bound * 2)), None);
}

#[test]
fn honest_nodes_that_are_held_up_are_noticed() {
    assert_eq!(broken(check_harm(100_000, 300_000)), None);
    assert_eq!(broken(check_harm(0, 65_536)), None);
    assert_eq!(broken(check_harm(0, 300_000)), Some(Invariant::Harm));
    assert_eq!(broken(check_harm(1_000_000, 4_000_000)), Some(Invariant::Harm));
}
