use proptest::prelude::*;

use super::*;
use crate::translation::rewrite::tests::{Kind, packet};
use mpip_types::packet::Endpoint;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const NEW: Admission = Admission { open: true, udp: UdpAdmission::New };
const WITHOUT_PATH: Admission = Admission { open: false, udp: UdpAdmission::New };

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn end(last: u8, port: u16) -> Endpoint {
    Endpoint { address: [198, 18, 0, last].into(), port }
}

/// How a packet of `kind` from `port` leaves.
fn leaves(
    table: &mut PathConnections,
    now: Instant,
    (kind, port): (Kind, u16),
    admission: Admission,
) -> Egress {
    let bytes = packet(kind, end(1, port), end(2, 443), &[7; 20]);
    let header = Header::parse(&bytes).expect("a packet");
    table.egress(now, &header, &bytes, admission)
}

fn udp(table: &mut PathConnections, now: Instant, port: u16, admission: Admission) -> Egress {
    leaves(table, now, (Kind::Udp, port), admission)
}

/// A table whose host has listed `ports`.
fn listed(ports: &[u16]) -> PathConnections {
    let mut table = PathConnections::new();
    list(&mut table, ports);
    table
}

fn list(table: &mut PathConnections, ports: &[u16]) {
    let mut plain = PortSet::empty();
    plain.extend(ports.iter().copied());
    table.ask_udp_ports();
    table.on_plain_udp_ports(plain);
}

#[test]
fn udp_is_plain_until_the_host_has_listed_the_ports_in_use() {
    let mut table = PathConnections::new();
    assert_eq!(udp(&mut table, at(0), 40_000, NEW), Egress::Plain);
    table.on_plain_udp_ports(PortSet::empty());
    assert_eq!(udp(&mut table, at(0), 40_000, NEW), Egress::Plain, "nobody asked");
    list(&mut table, &[40_000]);
    assert_eq!(udp(&mut table, at(0), 40_000, NEW), Egress::Plain);
    assert_eq!(udp(&mut table, at(0), 40_001, NEW), Egress::Paths);
}

#[test]
fn without_a_path_udp_is_plain_and_returns_to_the_paths_that_it_began_on() {
    let mut table = listed(&[]);
    table.on_answer(protocol::UDP);
    assert_eq!(udp(&mut table, at(0), 40_000, NEW), Egress::Paths);
    table.on_fall_back();
    for port in [40_000, 40_001] {
        assert_eq!(udp(&mut table, at(1_000), port, WITHOUT_PATH), Egress::Plain);
    }
    list(&mut table, &[40_000, 40_001]);
    assert_eq!(udp(&mut table, at(2_000), 40_000, NEW), Egress::Paths);
    assert_eq!(udp(&mut table, at(2_000), 40_001, NEW), Egress::Plain, "it began as plain IP");
}

#[test]
fn a_flow_is_forgotten_after_five_minutes_without_a_datagram() {
    let mut table = listed(&[]);
    table.on_answer(protocol::UDP);
    for second in [0, 299, 598] {
        table.expire(at(second * 1_000));
        assert_eq!(udp(&mut table, at(second * 1_000), 40_000, NEW), Egress::Paths);
        assert_eq!(table.len(), 1);
    }
    table.expire(at(898 * 1_000));
    assert!(table.is_empty());
}

#[test]
fn unanswered_udp_is_plain_for_a_minute_and_tcp_is_not() {
    let mut table = listed(&[]);
    let syn = |port| (Kind::Tcp(SYN), port);
    assert_eq!(udp(&mut table, at(0), 40_000, NEW), Egress::Paths);
    assert_eq!(udp(&mut table, at(899), 40_001, NEW), Egress::Paths);
    assert_eq!(udp(&mut table, at(900), 40_002, NEW), Egress::Plain);
    assert_eq!(udp(&mut table, at(901), 40_000, NEW), Egress::Plain, "it has no answer either");
    assert_eq!(leaves(&mut table, at(902), syn(1), NEW), Egress::Paths);
    assert!(!table.has_stale_udp_ports());
    assert_eq!(udp(&mut table, at(60_901), 40_003, NEW), Egress::Plain);
    assert!(table.has_stale_udp_ports(), "which ports are in use now?");
    list(&mut table, &[40_000, 40_003]);
    assert!(!table.has_stale_udp_ports());
    for (port, way) in [(40_000, Egress::Plain), (40_002, Egress::Paths)] {
        assert_eq!(udp(&mut table, at(60_902), port, NEW), way, "{port}");
    }
}

#[test]
fn unanswered_tcp_is_plain_and_udp_is_not() {
    let mut table = listed(&[]);
    let syn = |port| (Kind::Tcp(SYN), port);
    assert_eq!(leaves(&mut table, at(0), syn(1), NEW), Egress::Paths);
    table.on_answer(protocol::UDP);
    assert_eq!(leaves(&mut table, at(900), syn(2), NEW), Egress::Plain);
    assert_eq!(udp(&mut table, at(900), 40_000, NEW), Egress::Paths);
}

#[test]
fn what_is_sent_shortly_before_the_paths_fail_does_not_count_as_unanswered() {
    let mut table = listed(&[]);
    assert_eq!(udp(&mut table, at(0), 40_000, NEW), Egress::Paths);
    assert_eq!(leaves(&mut table, at(0), (Kind::Tcp(SYN), 1), NEW), Egress::Paths);
    table.on_fall_back();
    list(&mut table, &[]);
    assert_eq!(udp(&mut table, at(5_000), 40_001, NEW), Egress::Paths);
    assert_eq!(leaves(&mut table, at(5_000), (Kind::Tcp(SYN), 2), NEW), Egress::Paths);
}

#[test]
fn connections_of_another_run_of_the_peer_go_and_listed_ports_stay_plain() {
    let mut table = listed(&[40_000]);
    assert_eq!(udp(&mut table, at(0), 40_001, NEW), Egress::Paths);
    table.clear();
    assert!(table.is_empty());
    assert_eq!(udp(&mut table, at(1), 40_000, NEW), Egress::Plain);
    assert_eq!(udp(&mut table, at(1), 40_001, NEW), Egress::Paths);
}

/// What happens to a table.
#[derive(Clone, Copy, Debug)]
enum Step {
    Udp(u16),
    Answer,
    FallBack,
    Return,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..6_u16).prop_map(Step::Udp),
        1 => Just(Step::Answer),
        1 => Just(Step::FallBack),
        1 => Just(Step::Return),
        2 => (0..2_000_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    /// While the socket of a flow is open, the flow is not led onto paths after it has begun as
    /// plain IP, and leaves them only when nothing is answered or no path works.
    #[test]
    fn a_flow_stays_as_it_began(steps in prop::collection::vec(step(), 1..60)) {
        let mut table = listed(&[]);
        let (mut now, mut works, mut answered) = (0, true, false);
        let mut began: std::collections::BTreeMap<u16, Egress> = [].into();
        for step in steps {
            match step {
                Step::Udp(port) => {
                    let admission = if works { NEW } else { WITHOUT_PATH };
                    let way = udp(&mut table, at(now), port, admission);
                    match (began.get(&port).copied(), works) {
                        (None, _) => drop(began.insert(port, way)),
                        (Some(Egress::Plain), _) => prop_assert_eq!(way, Egress::Plain),
                        (Some(Egress::Paths), true) if answered => {
                            prop_assert_eq!(way, Egress::Paths);
                        }
                        (Some(Egress::Paths), true) => drop(began.insert(port, way)),
                        (Some(Egress::Paths), false) => prop_assert_eq!(way, Egress::Plain),
                    }
                }
                Step::Answer => {
                    table.on_answer(protocol::UDP);
                    answered = true;
                }
                Step::FallBack if works => {
                    works = false;
                    table.on_fall_back();
                }
                Step::Return if !works => {
                    works = true;
                    // Every flow so far has a socket.
                    list(&mut table, &began.keys().copied().collect::<Vec<_>>());
                }
                Step::Wait(ms) => now += ms,
                Step::FallBack | Step::Return => {}
            }
            if table.has_stale_udp_ports() {
                list(&mut table, &began.keys().copied().collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn a_later_segment_does_not_open_a_connection() {
    let mut table = listed(&[]);
    assert_eq!(leaves(&mut table, at(0), (Kind::Tcp(ACK), 1), NEW), Egress::Plain);
    assert_eq!(leaves(&mut table, at(0), (Kind::Tcp(SYN), 1), NEW), Egress::Paths);
    assert_eq!(leaves(&mut table, at(1), (Kind::Tcp(ACK), 1), NEW), Egress::Paths);
    table.forget_source([198, 18, 0, 1].into());
    assert!(table.is_empty());
}
