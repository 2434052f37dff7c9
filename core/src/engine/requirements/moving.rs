//! Moving paths: of a node that does not open them and has lost the addresses that they start from.

use super::super::harness::*;
use super::super::*;
use crate::SchedulerKind;
use mpip_transport::PathState;
use mpip_transport::cc::CongestionControlKind;
use mpip_types::Encapsulation;
use mpip_types::Offload;

/// Host 0 opens the paths. Host 1 has one of its two addresses.
fn settled() -> Pair {
    let mut pair = Pair::new(|_| {});
    pair.engines[1].handle_command(pair.now, only(0));
    pair.run_for(SECOND * 2);
    assert_eq!(pair.states(1), [PathState::Active; 2]);
    pair
}

/// Host 1 has only the address on this link.
fn only(link: usize) -> Command {
    Command::LocalAddresses(vec![locals(1)[link].clone()])
}

fn none() -> Command {
    Command::LocalAddresses(vec![])
}

/// The first address of host 1 no longer receives.
fn leaves_first(pair: &mut Pair) {
    pair.pass = |host, to, _| match host {
        0 => to.remote != address(1, 0),
        _ => to.local.0 % TCP_LOCAL != 0,
    };
}

/// Asserts that a packet from each host arrives within `limit`.
fn assert_both_ways(pair: &mut Pair, sequence: u32, limit: Duration) {
    for host in 0..2 {
        pair.out[1 - host].packets.clear();
        pair.send(host, &tcp(host, sequence, 100), Offload::default());
    }
    pair.run_for(limit);
    for host in 0..2 {
        assert_eq!(sequences(&pair.out[host].packets), [sequence], "at host {host}");
    }
}

fn active(pair: &Pair, host: usize) -> usize {
    pair.states(host).iter().filter(|state| **state == PathState::Active).count()
}

/// [P-21] [P-7]
#[test]
fn the_node_that_opens_no_paths_moves_them_to_its_new_address() {
    let mut pair = settled();
    leaves_first(&mut pair);
    pair.engines[1].handle_command(pair.now, none());
    pair.run_for(SECOND * 10);
    assert_eq!(pair.states(1), [PathState::Failed; 2], "kept");
    pair.tap = Some(Vec::new());
    pair.engines[1].handle_command(pair.now, only(1));
    // The fastest round trip takes 6 ms (3 ms each way), and the response 3 ms more.
    pair.run_for(Duration::from_millis(11));
    assert_both_ways(&mut pair, 7, Duration::from_millis(5));
    let sent = pair.tapped();
    let first = sent.iter().find(|datagram| datagram.host == 1).expect("host 1 speaks first");
    assert!(first.frames().any(|frame| matches!(frame, mpip_wire::Frame::PathChallenge(_))));
    // No packet goes from or to the new address before it is validated.
    let answered = |host: usize| {
        let answers = |datagram: &&Tapped| {
            datagram.host != host
                && datagram.frames().any(|f| matches!(f, mpip_wire::Frame::PathResponse(_)))
        };
        sent.iter().position(|datagram| answers(&datagram)).expect("an answer")
    };
    for host in 0..2 {
        let packet = sent.iter().position(|datagram| datagram.host == host && datagram.carries());
        assert!(packet.expect("a packet") > answered(host), "of host {host}");
    }
    pair.run_for(SECOND);
    // The opener has learnt the new address, and has a path from each of its own addresses.
    assert_eq!((active(&pair, 0), active(&pair, 1)), (2, 2), "{:?}", pair.states(0));
}

/// [P-21]
#[test]
fn paths_move_at_once_when_an_address_is_replaced_at_once() {
    let mut pair = settled();
    assert_both_ways(&mut pair, 1, SECOND);
    leaves_first(&mut pair);
    pair.engines[1].handle_command(pair.now, only(1));
    pair.run_for(Duration::from_millis(11));
    assert_both_ways(&mut pair, 2, Duration::from_millis(5));
}

/// [P-21]
#[test]
fn no_path_moves_while_another_works() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND * 2);
    assert_eq!(pair.states(1), [PathState::Active; 4]);
    pair.tap = Some(Vec::new());
    pair.engines[1].handle_command(pair.now, only(1));
    pair.run_for(Duration::from_millis(300));
    let abandoned = pair.states(1).iter().filter(|s| **s == PathState::Abandoned).count();
    assert_eq!((abandoned, active(&pair, 1)), (2, 2));
    let challenges = |d: &Tapped| {
        d.host == 1 && d.frames().any(|f| matches!(f, mpip_wire::Frame::PathChallenge(_)))
    };
    assert!(!pair.tapped().iter().any(challenges));
}

/// [P-21]
#[test]
fn a_path_that_works_again_ends_the_wait_of_the_others() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND * 2);
    // The second link is cut, and then the first address is removed.
    pair.dead = vec![1];
    pair.run_for(SECOND);
    pair.engines[1].handle_command(pair.now, only(1));
    pair.run_for(SECOND);
    assert_eq!(active(&pair, 1), 0, "{:?}", pair.states(1));
    pair.dead.clear();
    leaves_first(&mut pair);
    pair.run_for(SECOND * 10);
    assert_both_ways(&mut pair, 3, SECOND);
    assert_eq!(pair.states(1), [PathState::Active; 2]);
}

/// [P-21] [E-8]
#[test]
fn a_path_moves_to_tcp_where_the_new_address_has_no_udp() {
    let mut pair = Pair::new(|peer| peer.tcp_port = Some(TCP_PORT));
    let with_tcp = |host: usize, link: usize| {
        let all = locals_with_tcp(host);
        Command::LocalAddresses(all.into_iter().skip(link).step_by(2).collect())
    };
    for host in 0..2 {
        pair.engines[host].handle_command(pair.now, with_tcp(host, 0));
    }
    pair.run_for(SECOND * 2);
    assert_eq!(pair.states(1), [PathState::Active]);
    // The new address only passes TCP.
    pair.pass = |host, to, _| {
        to.local.0 >= TCP_LOCAL && (host == 1 || to.remote.ip() == address(1, 1).ip())
    };
    pair.engines[1].handle_command(pair.now, with_tcp(1, 1));
    // Challenges by UDP to two addresses of the peer come first.
    pair.run_for(Duration::from_millis(1_000));
    assert_both_ways(&mut pair, 4, Duration::from_millis(10));
    let status = pair.engines[1].status(pair.now, false);
    let paths = status.peers[0].paths.iter().filter(|path| path.state == PathState::Active);
    let kinds: Vec<_> = paths.map(|path| (path.encapsulation, path.local)).collect();
    let local = SocketAddr::new(address(1, 1).ip(), TCP_PORT);
    assert_eq!(kinds, [(Encapsulation::Tcp, local)]);
}

/// [P-1] [P-6] [P-22]
#[test]
fn the_opener_opens_a_path_to_a_moved_peer_when_both_lost_their_addresses() {
    // Before and after the abandoned paths are removed.
    for seconds in [1, 10] {
        assert_opens_to_mover(SECOND * seconds);
    }
}

fn assert_opens_to_mover(pause: Duration) {
    // Two cables without a connection between them.
    let mut pair = Pair::new(|_| {});
    pair.pass = |host, to, _| to.remote == address(1 - host, to.local.0);
    pair.engines[1].handle_command(pair.now, only(0));
    pair.run_for(SECOND * 2);
    assert_eq!(pair.states(1), [PathState::Active]);
    // The first one is pulled, which both nodes notice; host 1 gets an address on the other one
    // later.
    pair.dead = vec![0];
    let rest = Command::LocalAddresses(vec![locals(0)[1].clone()]);
    pair.engines[0].handle_command(pair.now, rest);
    pair.engines[1].handle_command(pair.now, none());
    pair.run_for(pause);
    pair.tap = Some(Vec::new());
    pair.engines[1].handle_command(pair.now, only(1));
    // 5 ms each way: an authentic datagram, challenge and response, response.
    pair.run_for(Duration::from_millis(21));
    assert_both_ways(&mut pair, 5, Duration::from_millis(10));
    let opened = |datagram: &&Tapped| datagram.host == 0 && datagram.to.remote == address(1, 1);
    let sent = pair.tapped();
    let first = sent.iter().find(opened).expect("a challenge to the new address");
    assert!(first.bytes.len() <= 1_200 && first.path() > Some(0), "{first:?}");
}

/// [P-22]
#[test]
fn a_replay_opens_one_path_at_a_time_and_is_not_amplified() {
    let mut pair = settled();
    pair.tap = Some(Vec::new());
    pair.run_for(SECOND);
    let sent = pair.tapped();
    let recorded = sent.iter().rfind(|datagram| datagram.host == 1).expect("a heartbeat");
    let recorded = recorded.bytes.clone();
    pair.dead = vec![0];
    let rest = Command::LocalAddresses(vec![locals(0)[1].clone()]);
    pair.engines[0].handle_command(pair.now, rest);
    pair.run_for(SECOND * 10);
    let before = pair.states(0).len();
    let mut answered = 0;
    for port in 1..=50 {
        let victim = SocketAddr::new(address(1, 3).ip(), port);
        let from = PathAddress { local: LocalId(1), remote: victim };
        assert_eq!(pair.deliver(0, from, &recorded), Err(DropReason::UnknownPath));
        let to_victim = pair.out[0].datagrams.drain(..).filter(|(to, _)| to.remote == victim);
        answered += to_victim.map(|(_, bytes)| bytes.len()).sum::<usize>();
    }
    assert!(answered <= recorded.len(), "{answered} bytes for {}", recorded.len());
    assert!(pair.states(0).len() <= before + 1);
}

#[test]
fn what_was_sent_to_an_address_that_is_given_up_arrives() {
    for host in 0..2 {
        let mut pair = Pair::new(|peer| peer.scheduler = SchedulerKind::RoundRobin);
        pair.run_for(SECOND);
        for number in 0..20 {
            pair.send(1 - host, &tcp(1 - host, number, 1_000), Offload::default());
        }
        let one = vec![locals(host)[0].clone()];
        pair.engines[host].handle_command(pair.now, Command::LocalAddresses(one));
        pair.run_for(SECOND);
        assert_eq!(sequences(&pair.out[host].packets), (0..20).collect::<Vec<_>>());
        let status = pair.engines[1 - host].status(pair.now, false);
        let repaired: u64 = status.peers[0].paths.iter().map(|path| path.packets_lost).sum();
        assert_eq!(repaired, 0, "host {host} gave up one of two");
    }
}

#[test]
fn an_answer_at_an_address_that_is_gone_revives_no_path() {
    let mut pair = settled();
    pair.send(1, &tcp(1, 1, 1_000), Offload::default());
    pair.engines[1].handle_command(pair.now, none());
    pair.pass = |host, _, _| host == 0;
    for _ in 0..20 {
        pair.run_for(Duration::from_millis(10));
        assert_eq!(pair.states(1), [PathState::Failed; 2]);
    }
    pair.pass = |_, _, _| true;
    pair.engines[1].handle_command(pair.now, only(0));
    pair.run_for(SECOND * 4);
    assert_both_ways(&mut pair, 2, Duration::from_millis(20));
}

/// [P-7]
#[test]
fn what_was_in_flight_to_a_former_address_is_sent_again_once_the_new_one_has_answered() {
    let mut pair = Pair::new(|peer| peer.congestion_control = CongestionControlKind::Bbr);
    for (host, link) in [(0, 1), (1, 0)] {
        let one = vec![locals(host)[link].clone()];
        pair.engines[host].handle_command(pair.now, Command::LocalAddresses(one));
    }
    pair.tap = Some(Vec::new());
    let ms = Duration::from_millis(1);
    let mut number = 0;
    let mut exchange = |pair: &mut Pair| {
        pair.send(0, &tcp(0, number, 100), Offload::default());
        pair.send(1, &tcp(1, number, 1_000), Offload::default());
        number += 1;
        pair.run_for(ms);
    };
    pair.run_for(SECOND);
    (0..200).for_each(|_| exchange(&mut pair));
    // A NAT gives the only path another address; nobody is at the former one any more.
    let elsewhere = SocketAddr::new(IpAddr::from([198, 18, 200, 1]), 999);
    pair.translated = Some((1, elsewhere));
    pair.pass = |_, to, _| to.remote != address(0, 1);
    while pair.engines[1].poll_event().is_some() {}
    pair.tapped();
    let mut moved = false;
    for _ in 0..20 {
        exchange(&mut pair);
        let mut events = core::iter::from_fn(|| pair.engines[1].poll_event());
        moved = events.any(|event| matches!(event, Event::Rebound { .. }));
        if moved {
            break;
        }
    }
    assert!(moved);
    // The way to host 0 takes 3 ms, a round trip twice as long.
    pair.run_for(ms * 4);
    assert_eq!(sequences(&pair.out[0].packets), (0..number).collect::<Vec<_>>());
    let sent = pair.tapped();
    let carried = |to: SocketAddr| {
        sent.iter().filter(|d| d.host == 1 && d.carries() && d.to.remote == to).count()
    };
    let (lost, there) = (carried(address(0, 1)), carried(elsewhere));
    assert!(lost >= 6, "{lost}");
    assert!(there <= lost + 1, "{there} for {lost} that were lost and 1 that was new");
}
