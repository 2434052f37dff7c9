//! Early packets: on paths that are not validated yet, while no other works.

use mpip_wire::Frame;

use super::super::harness::*;
use super::super::*;
use mpip_transport::PathState;
use mpip_transport::cc::CongestionControlKind;
use mpip_types::Offload;

/// A configured endpoint that has never answered.
const NOBODY: SocketAddr =
    SocketAddr::new(IpAddr::V4(core::net::Ipv4Addr::new(198, 18, 77, 7)), 6182);

/// Host `host` has only these addresses.
fn only(host: usize, links: &[usize]) -> Command {
    Command::LocalAddresses(links.iter().map(|link| locals(host)[*link].clone()).collect())
}

/// Each host has only its first address: one path, which is cut off when the address of `host`
/// goes. A packet waits at the hosts in `waiting`. Host 0 opens the paths, and also has a
/// configured address at which nobody is.
fn cut_off(host: usize, waiting: &[usize]) -> Pair {
    cut_off_under(CongestionControlKind::None, host, waiting)
}

fn cut_off_under(control: CongestionControlKind, host: usize, waiting: &[usize]) -> Pair {
    let mut pair = Pair::with(|host, config| {
        config.peers[0].congestion_control = control;
        if host == 0 {
            config.peers[0].endpoints.push(NOBODY);
        }
    });
    for host in 0..2 {
        pair.engines[host].handle_command(pair.now, only(host, &[0]));
    }
    pair.run_for(SECOND * 2);
    for host in 0..2 {
        pair.send(host, &tcp(host, 0, 100), Offload::default());
    }
    pair.run_for(SECOND);
    pair.engines[host].handle_command(pair.now, only(host, &[]));
    // The former address no longer receives.
    pair.pass = match host {
        0 => |host, to, _| host == 0 || to.remote != address(0, 0),
        _ => |host, to, _| host == 1 || to.remote != address(1, 0),
    };
    for host in waiting {
        pair.send(*host, &tcp(*host, 1, 100), Offload::default());
    }
    pair.run_for(SECOND * 2);
    for host in 0..2 {
        assert!(!pair.states(host).contains(&PathState::Active), "{:?}", pair.states(host));
        pair.out[host].packets.clear();
    }
    pair.tap = Some(Vec::new());
    pair
}

fn asks(datagram: &Tapped) -> bool {
    datagram.frames().any(|frame| matches!(frame, Frame::PathChallenge(_)))
}

fn answers(datagram: &Tapped) -> bool {
    datagram.frames().any(|frame| matches!(frame, Frame::PathResponse(_)))
}

/// Bytes that a host sent to addresses that had not answered yet, packets included, and bytes that
/// it received from there.
fn unanswered(sent: &[Tapped], host: usize, remote: SocketAddr) -> (usize, usize) {
    let until = sent.iter().position(|d| d.host != host && answers(d)).unwrap_or(sent.len());
    // An answer in flight does not count: the links between the networks take 3 ms.
    let until = sent.get(until).map(|answer| answer.at + Duration::from_millis(3));
    let to = sent.iter().filter(|d| d.host == host && d.to.remote == remote);
    let to = to.filter(|d| until.is_none_or(|until| d.at < until));
    let packets = to.clone().filter(|d| d.carries()).map(|d| d.bytes.len()).sum();
    (to.map(|d| d.bytes.len()).sum(), packets)
}

/// [P-28] [P-29] [P-6]
#[test]
fn early_packets_leave_with_the_first_challenge_and_the_reply_has_no_more_bytes() {
    for mover in 0..2 {
        let mut pair = cut_off(mover, &[0, 1]);
        pair.engines[mover].handle_command(pair.now, only(mover, &[1]));
        // 3 ms there, 3 ms back: the waiting packets have arrived at both hosts.
        pair.run_for(Duration::from_millis(4));
        assert_eq!(sequences(&pair.out[1 - mover].packets), [1], "host {mover} moves");
        assert!(!pair.states(1 - mover).contains(&PathState::Active));
        pair.run_for(Duration::from_millis(3));
        assert_eq!(sequences(&pair.out[mover].packets), [1], "host {mover} moves");
        pair.run_for(Duration::from_millis(10));
        let sent = pair.tapped();
        let first = sent.iter().position(|d| d.host == mover && d.carries());
        assert!(sent.iter().position(asks) < first, "the challenge is first");
        let came: usize = sent.iter().filter(|d| d.host == mover).map(|d| d.bytes.len()).sum();
        assert!(came >= 3_600, "{came} bytes for an answer");
        let (back, packets) = unanswered(&sent, 1 - mover, address(mover, 1));
        assert!(back <= came && packets > 0, "{back} bytes, {packets} of packets, for {came}");
        for host in 0..2 {
            assert!(pair.states(host).contains(&PathState::Active), "{:?}", pair.states(host));
        }
    }
}

/// [P-28] [P-29] [P-6]
#[test]
fn a_first_flight_is_bounded_and_an_answer_has_no_more_bytes_than_came() {
    for mover in 0..2 {
        let mut pair = cut_off(mover, &[0, 1]);
        for host in 0..2 {
            for n in 2..100 {
                pair.send(host, &tcp(host, n, 1_300), Offload::default());
            }
        }
        pair.engines[mover].handle_command(pair.now, only(mover, &[1]));
        pair.run_for(Duration::from_millis(100));
        let sent = pair.tapped();
        let (_, flight) = unanswered(&sent, mover, address(1 - mover, 0));
        assert!((10_000..=14_720).contains(&flight), "{flight} bytes in a first flight");
        let (mut came, mut went, mut packets) = (0, 0, 0);
        for datagram in &sent {
            if datagram.host == mover {
                if answers(datagram) {
                    break;
                }
                came += datagram.bytes.len();
            } else if datagram.to.remote == address(mover, 1) {
                went += datagram.bytes.len();
                packets += usize::from(datagram.carries());
                assert!(went <= came, "{went} for {came}");
            }
        }
        assert!(packets > 5, "{packets} packets in {went} bytes for {came}");
        for host in 0..2 {
            pair.run_for(SECOND);
            let mut arrived = sequences(&pair.out[host].packets);
            arrived.sort_unstable();
            arrived.dedup();
            assert_eq!(arrived, (1..100).collect::<Vec<_>>(), "at host {host}");
        }
    }
}

/// [P-28] [P-3]
#[test]
fn no_early_packets_go_to_an_address_that_never_answered() {
    let mut pair = cut_off(0, &[0]);
    pair.engines[0].handle_command(pair.now, only(0, &[1]));
    for n in 2..100 {
        pair.send(0, &tcp(0, n, 1_300), Offload::default());
    }
    pair.run_for(SECOND);
    let sent = pair.tapped();
    let to_nobody = || sent.iter().filter(|d| d.host == 0 && d.to.remote == NOBODY);
    assert!(to_nobody().any(asks));
    assert!(!to_nobody().any(Tapped::carries));
}

/// [P-28] [P-29] [P-3]
#[test]
fn no_early_packets_are_sent_while_a_path_works() {
    let mut pair = Pair::new(|_| {});
    for host in 0..2 {
        pair.engines[host].handle_command(pair.now, only(host, &[0]));
    }
    pair.run_for(SECOND * 2);
    pair.tap = Some(Vec::new());
    for host in [1, 0] {
        pair.engines[host].handle_command(pair.now, only(host, &[0, 1]));
        for n in 0..40 {
            for host in 0..2 {
                pair.send(host, &tcp(host, n, 1_000), Offload::default());
            }
            pair.run_for(Duration::from_millis(1));
        }
    }
    let sent = pair.tapped();
    for path in 1..4 {
        let on_path = || sent.iter().filter(|d| d.path() == Some(path));
        for host in 0..2 {
            let answered = on_path().find(|d| d.host != host && answers(d)).expect("an answer").at;
            let early = on_path().find(|d| d.host == host && d.carries() && d.at <= answered);
            assert!(early.is_none(), "{early:?}");
        }
    }
    assert_eq!(pair.states(0), [PathState::Active; 4]);
}

/// [P-29] [P-6] [P-7]
#[test]
fn a_replay_from_another_address_is_not_amplified() {
    let mut pair = cut_off(0, &[0, 1]);
    for host in 0..2 {
        for n in 2..60 {
            pair.send(host, &tcp(host, n, 1_300), Offload::default());
        }
    }
    // An attacker on the path keeps all datagrams that host 0 sends from its new address and
    // replays them from other addresses.
    pair.pass = |_, _, _| false;
    pair.engines[0].handle_command(pair.now, only(0, &[1]));
    pair.run_for(Duration::from_millis(20));
    let captured = pair.tapped();
    assert!(captured.iter().filter(|d| d.carries()).count() >= 10);
    let victim = |n: usize| SocketAddr::new(address(1, 3).ip(), n as u16 + 1);
    let mut packets = 0;
    for (n, datagram) in captured.iter().filter(|d| d.to.remote == address(1, 0)).enumerate() {
        let from = PathAddress { local: LocalId(0), remote: victim(n / 4) };
        assert_eq!(pair.deliver(1, from, &datagram.bytes), Ok(()));
        pair.collect(1);
    }
    let drawn = pair.tapped();
    for n in 0..captured.len() / 4 {
        let came = captured.iter().filter(|d| d.to.remote == address(1, 0)).skip(n * 4).take(4);
        let came: usize = came.map(|d| d.bytes.len()).sum();
        let went = drawn.iter().filter(|d| d.host == 1 && d.to.remote == victim(n));
        packets += went.clone().filter(|d| d.carries()).count();
        let went: usize = went.map(|d| d.bytes.len()).sum();
        assert!(went <= came, "{went} bytes to victim {n}, for {came}");
    }
    assert!(packets > 0, "the test has to see some");
    // Packets sent there are not lost.
    pair.pass = |host, to, _| host == 0 || to.remote == address(0, 1);
    pair.run_for(SECOND * 3);
    for host in 0..2 {
        let mut arrived = sequences(&pair.out[host].packets);
        arrived.sort_unstable();
        assert_eq!(arrived, (1..60).collect::<Vec<_>>(), "at host {host}");
    }
    // Once a path works, a replay from another address draws no packet at all.
    pair.pass = |_, to, _| to.remote.port() == address(0, 0).port();
    pair.tapped();
    let (now, path) = (pair.now, path_in_use(&pair));
    let heartbeat = pair.association(0).forge(now, path, &[Frame::Heartbeat]);
    let (_, heartbeat) = heartbeat.expect("keys");
    let from = PathAddress { local: LocalId(0), remote: victim(1_000) };
    assert_eq!(pair.deliver(1, from, &heartbeat), Ok(()));
    for n in 100..200 {
        pair.send(1, &tcp(1, n, 1_000), Offload::default());
        pair.run_for(Duration::from_millis(1));
    }
    let sent = pair.tapped();
    assert!(sent.iter().any(|d| d.to.remote == address(0, 1) && d.carries()));
    assert!(!sent.iter().any(|d| d.to.remote == victim(1_000) && d.carries()));
}

/// The working path of host 0.
fn path_in_use(pair: &Pair) -> u16 {
    let status = pair.engines[0].status(pair.now, false);
    let works = status.peers[0].paths.iter().find(|path| path.state == PathState::Active);
    works.expect("a path that works").id
}

/// [P-28]
#[test]
fn a_lost_first_flight_is_sent_again_on_the_first_path_that_works() {
    // Without congestion control, loss recovery is left to the inner TCP.
    let mut pair = cut_off_under(CongestionControlKind::Reno, 0, &[0]);
    for n in 2..30 {
        pair.send(0, &tcp(0, n, 1_300), Offload::default());
    }
    // The challenge arrives, the packets are lost.
    pair.pass = |host, to, bytes| {
        (host == 0 || to.remote == address(0, 1)) && (bytes.len() <= 1_200 || host == 1)
    };
    pair.engines[0].handle_command(pair.now, only(0, &[1]));
    pair.run_for(Duration::from_millis(5));
    pair.pass = |host, to, _| host == 0 || to.remote == address(0, 1);
    // One round trip until the path works, another until the loss is detected, half of one more for
    // the retransmission.
    pair.run_for(Duration::from_millis(25));
    let arrived = sequences(&pair.out[1].packets);
    assert!(arrived.starts_with(&(1..12).collect::<Vec<_>>()), "{arrived:?}");
    pair.run_for(SECOND);
    assert_eq!(sequences(&pair.out[1].packets), (1..30).collect::<Vec<_>>());
}

/// [F-12] [F-1]
#[test]
fn early_packets_are_acknowledged_before_the_path_is_validated() {
    let mut pair = cut_off(0, &[0]);
    pair.engines[0].handle_command(pair.now, only(0, &[1]));
    pair.run_for(Duration::from_millis(100));
    let sent = pair.tapped();
    let packet = sent.iter().find(|d| d.host == 0 && d.carries()).expect("a packet");
    let number = packet.opened.as_ref().map_or(0, |opened| opened.number);
    let acknowledges = |d: &Tapped| {
        d.host == 1
            && d.path() == packet.path()
            && d.frames().any(|frame| match frame {
                Frame::Feedback(feedback) => {
                    feedback.ranges.iter().any(|range| (range.first..=range.last).contains(&number))
                }
                _ => false,
            })
    };
    let feedback = sent.iter().find(|d| acknowledges(d)).expect("feedback");
    let answer = sent.iter().find(|d| d.host == 0 && answers(d)).expect("host 1 asks, too");
    // It takes 3 ms to arrive.
    assert!(feedback.at < answer.at + Duration::from_millis(3), "{feedback:?}, {answer:?}");
}
