use mpip_api::FaultStatus;

use super::*;
use crate::example;

fn render(status: &Status, sessions: bool, colours: bool) -> String {
    verbose::render(status, sessions, colours)
}

fn brief(status: &Status) -> String {
    brief::render(status, &Rates::default(), false, false)
}

#[test]
fn verbose_shows_all_of_each_path() {
    let text = render(&example::status(), false, false);
    let expected = "\
mpip0: 10.77.0.1/24, MTU 1438, port 6182, up 2 h, process 4711
node 2001:2f::1, public key key
paths start from 198.18.0.1 (eth0)

peer gateway: established, aes-256-gcm, handshake 32 s ago
  node 2001:2f::2, prefixes 10.77.0.2/32
  scheduler earliest, congestion control bbr, inner MTU 1438
  sent 2.0 MB, received 5 B, queued 0 B, held for reordering 0 B
  path  interface  local            remote           as   state       RTT  min  one-way    queue   loss         rate  weight  share  copied    sent  received
     0  eth0       198.18.0.1:6182  198.18.0.2:6182  udp  active  12.3 ms    -  +250 µs  1.50 ms  1.2 %  94.3 Mbit/s     500   50 %       -  1.2 MB       0 B
     1  eth1       198.18.1.1:6182  198.18.1.2:6182  udp  failed  12.3 ms    -  +250 µs  1.50 ms  1.2 %  94.3 Mbit/s     500   50 %       -  1.2 MB       0 B
  path  control  window  in flight  pacing  lost  spurious  jitter  reordering  reorder window  bottleneck  guard  takes no packet because
     0  probe       1 B        1 B       -     0         0  100 µs           2         3.00 ms           1  used   -
     1  probe       1 B        1 B       -     0         0  100 µs           2         3.00 ms           1  used   failed

dropped:
   2  forged or stale TCP resets ignored (tcp_reset_ignored)
  10  of_tomorrow
";
    assert_eq!(text, expected);
}

#[test]
fn copies_are_shown_once_there_are_any() {
    let mut status = example::status();
    status.peers[0].copied_bytes = 70_000;
    status.peers[0].paths[1].copied_bytes = 70_000;
    let text = render(&status, false, false);
    assert!(text.contains("  sent 2.0 MB and copies of 70.0 kB, received 5 B, "), "{text}");
    let row = text.lines().find(|line| line.contains("198.18.1.2:6182")).expect("a row");
    assert!(row.contains("   50 %  70.0 kB  1.2 MB "), "{row}");
}

#[test]
fn a_path_at_rest_shows_for_how_long_it_is_silent() {
    let mut status = example::status();
    status.peers[0].paths[0].resting = true;
    let text = render(&status, false, false);
    let row = text.lines().find(|line| line.contains("198.18.0.2:6182")).expect("a row");
    assert!(row.contains("  active, rests 25 s  "), "{row}");
}

#[test]
fn sessions_are_shown_when_asked_for() {
    let text = render(&example::status(), true, false);
    assert!(text.contains("20000 sessions, the last 1 used"), "{text}");
    let row = text.lines().find(|line| line.contains("10.77.0.1:40000")).expect("a row");
    // 98 packets waited for up to 1.024 ms, one for up to 2.048 ms, one for the longest time.
    for part in
        ["out", "tcp", "10.77.0.2", "4.0 kB", "100  1.02 ms  2.05 ms  70.0 ms", "2 min  0 1"]
    {
        assert!(row.contains(part), "{part}: {row}");
    }
    assert!(!row.contains("10.77.0.2:0"), "no port where the protocol has none");
}

#[test]
fn colours_come_only_when_wanted() {
    assert!(!render(&example::status(), true, false).contains('\x1b'));
    let coloured = render(&example::status(), false, true);
    assert!(coloured.contains("\x1b[32mactive\x1b[0m"));
    assert!(coloured.contains("\x1b[31mfailed\x1b[0m"));
}

#[test]
fn what_is_wrong_on_the_host_stands_before_the_peers() {
    let mut status = example::status();
    let fault = |attempts| FaultStatus {
        what: "cannot add the route to 10.77.0.2/32: Network is down".to_owned(),
        why: "packets leave".to_owned(),
        since_ms: 3_000.0,
        attempts,
    };
    status.faults = [0, 1, 5].map(fault).into();
    status.fault_count = 3;
    let text = render(&status, false, false);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("wrong: ")).collect();
    let line = "wrong: cannot add the route to 10.77.0.2/32: Network is down: packets leave";
    let expected = [
        line.to_owned(),
        format!("{line} (tried once, 3 s ago)"),
        format!("{line} (tried 5 times in 3 s)"),
    ];
    assert_eq!(lines, expected);
    assert!(text.find("wrong: ") < text.find("peer gateway"));
    status.faults = vec![fault(2); 7];
    status.fault_count = 200;
    let text = render(&status, false, false);
    assert!(text.contains("wrong: 195 more of the kind"), "{text}");
}

#[test]
fn people_read_what_is_wrong_first_and_a_line_for_each_path() {
    let before = example::status();
    let mut after = before.clone();
    after.uptime_ms += 250.0;
    after.peers[0].paths[0].sent_bytes += 2_947_000;
    let text = brief::render(&after, &Rates::between(&before, &after), false, false);
    let expected = "\
mpip0 up 2 h: gateway connected by 1 of 2 paths
wrong: gateway: path 1 by eth1 does not answer (198.18.1.1 to 198.18.1.2)

gateway: connected, 2.0 MB sent, 5 B received
  path  by    from        to              RTT   loss        sends  receives  state
     0  eth0  198.18.0.1  198.18.0.2  12.3 ms  1.2 %  94.3 Mbit/s   0 bit/s  works
     1  eth1  198.18.1.1  198.18.1.2        -      -      0 bit/s   0 bit/s  does not answer
";
    assert_eq!(text, expected);
}

#[test]
fn pairs_of_addresses_that_never_answered_are_counted_unless_the_interface_has_nothing_else() {
    let mut status = example::status();
    let silent = |id: u16, interface: &str| mpip_api::PathStatus {
        interface: interface.to_owned(),
        ..example::path(id, "validating")
    };
    let active = example::path(0, "active");
    status.peers[0].paths = vec![active, silent(1, "eth0"), silent(2, "wwan0"), silent(3, "wwan0")];
    let text = brief(&status);
    assert!(text.starts_with("mpip0 up 2 h: gateway connected by 1 of 2 paths\n"), "{text}");
    assert_eq!(text.matches("being checked, no answer yet").count(), 1, "{text}");
    assert!(text.contains("     2  wwan0  "), "{text}");
    assert!(
        text.ends_with("  and 2 pairs of addresses that gave no answer (--verbose)\n"),
        "{text}"
    );
}

#[test]
fn a_path_has_its_state_in_words() {
    let mut status = example::status();
    let mut state = |change: fn(&mut mpip_api::PathStatus), expected: &str| {
        let mut path = example::path(0, "active");
        change(&mut path);
        status.peers[0].paths = vec![path];
        let text = brief(&status);
        assert!(text.ends_with(&format!("  {expected}\n")), "{text}");
    };
    state(|path| path.resting = true, "works, at rest");
    state(|path| path.loss = 0.123, "works, loses 12 %");
    state(|path| path.guard = "left-out".to_owned(), "left out: the others carry more without it");
    state(|path| path.hold = Some("probe overdue".to_owned()), "an answer is overdue");
    state(|path| path.state = "standby".to_owned(), "on standby");
    state(|path| path.state = "validating".to_owned(), "being checked, no answer yet");
    state(|path| path.state = "of-tomorrow".to_owned(), "of-tomorrow");
}

#[test]
fn a_peer_that_is_not_connected_says_what_becomes_of_its_packets() {
    let mut status = example::status();
    let peer = &mut status.peers[0];
    (peer.established, peer.handshake_age_ms) = (false, None);
    peer.paths.clear();
    let text = brief(&status);
    assert!(text.starts_with("mpip0 up 2 h: gateway not connected\n"), "{text}");
    assert!(text.contains("wrong: gateway: not connected: it has not answered yet\n"), "{text}");
    let peer = &mut status.peers[0];
    (peer.handshake_age_ms, peer.traffic) = (Some(9e5), Some("blocked".to_owned()));
    let expected = "wrong: gateway: not connected: it does not answer any more, its packets are \
                    refused (policy require)\n";
    let text = brief(&status);
    assert!(text.contains(expected), "{text}");
}

#[test]
fn of_many_problems_some_are_listed_and_the_others_counted() {
    let mut status = example::status();
    let fault = FaultStatus {
        what: "cannot add a route".to_owned(),
        why: "packets leave".to_owned(),
        since_ms: 3_000.0,
        attempts: 2,
    };
    status.faults = vec![fault; 100];
    status.fault_count = 250;
    let text = brief(&status);
    let wrong = text.lines().filter(|line| line.starts_with("wrong: ")).count();
    assert_eq!(wrong, 6, "{text}");
    assert!(text.contains("tried 2 times in 3 s"), "{text}");
    assert!(text.contains("wrong: 97 more of the kind"), "{text}");
    status.peers.clear();
    (status.faults, status.fault_count) = (Vec::new(), 0);
    assert_eq!(brief(&status), "mpip0 up 2 h: no peers\n");
    status.local_addresses.clear();
    assert!(brief(&status).contains("wrong: no interface has an address"));
}
