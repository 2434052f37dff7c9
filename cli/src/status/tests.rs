use mpip_api::{Counter, InterfaceStatus, LocalAddressStatus};

use super::*;

fn path(id: u16, state: &str) -> PathStatus {
    PathStatus {
        id,
        interface: format!("eth{id}"),
        local: format!("198.18.{id}.1:6182").parse().expect("valid"),
        remote: format!("198.18.{id}.2:6182").parse().expect("valid"),
        observed: None,
        encapsulation: "udp".to_owned(),
        state: state.to_owned(),
        resting: false,
        keepalive_ms: 25_000.0,
        rtt_ms: Some(12.345),
        min_rtt_ms: None,
        relative_delay_ms: Some(0.25),
        queuing_delay_ms: 1.5,
        jitter_ms: 0.1,
        loss: 0.012,
        delivery_rate_bps: 94_300_000,
        pacing_rate_bps: None,
        window_bytes: 1,
        in_flight_bytes: 1,
        congestion_state: "probe".to_owned(),
        bottleneck: 1,
        ecn: "capable".to_owned(),
        weight: 500,
        share: 0.5,
        sent_bytes: 1_234_567,
        received_bytes: 0,
        sent_packets: 1,
        received_packets: 1,
        lost_packets: 0,
        spurious_losses: 0,
        reordering_window_ms: 3.0,
        reordering_extent_packets: 2,
        mtu_bytes: 1_500,
        hold: (state == "failed").then(|| "failed".to_owned()),
        guard: "used".to_owned(),
        times_left_out: 0,
    }
}

fn example() -> Status {
    Status {
        daemon_version: "0.1.0".to_owned(),
        pid: 4_711,
        config_file: "/etc/mpip/mpip0.toml".to_owned(),
        uptime_ms: 7_320_000.0,
        node: "2001:2f::1".to_owned(),
        public_key: "key".to_owned(),
        listen_port: 6_182,
        tcp_port: 6_182,
        interface: InterfaceStatus {
            name: "mpip0".to_owned(),
            addresses: vec!["10.77.0.1/24".to_owned()],
            mtu_bytes: 1_438,
        },
        local_addresses: vec![LocalAddressStatus {
            interface: "eth0".to_owned(),
            address: "198.18.0.1".parse().expect("valid"),
            mtu_bytes: 1_500,
        }],
        peers: vec![PeerStatus {
            name: "gateway".to_owned(),
            node: "2001:2f::2".to_owned(),
            established: true,
            handshake_age_ms: Some(32_000.0),
            aead: Some("aes-256-gcm".to_owned()),
            scheduler: "earliest".to_owned(),
            congestion_control: "bbr".to_owned(),
            allowed_prefixes: vec!["10.77.0.2/32".to_owned()],
            host_mode: false,
            policy: "require".to_owned(),
            traffic: None,
            captured: Vec::new(),
            nats: Vec::new(),
            translated: 0,
            inner_mtu_bytes: 1_438,
            sent_bytes: 2_000_000,
            received_bytes: 5,
            queued_bytes: 0,
            queue_drops: 0,
            queue_marks: 0,
            resequencing_bytes: 0,
            paths: vec![path(0, "active"), path(1, "failed")],
            session_count: Some(20_000),
            sessions: vec![SessionStatus {
                id: 9,
                outgoing: true,
                protocol: 6,
                source: "10.77.0.1:40000".parse().expect("valid"),
                destination: "10.77.0.2:0".parse().expect("valid"),
                packets: 3,
                inner_bytes: 4_000,
                repaired_packets: 0,
                longest_wait_ms: 70.0,
                waits: [vec![0; 10], vec![98, 1, 0, 0, 0, 0, 0, 1, 0, 0]].concat(),
                idle_ms: 120_000.0,
            }],
        }],
        drops: vec![
            Counter { name: "tcp_reset_ignored".to_owned(), count: 2 },
            Counter { name: "replay".to_owned(), count: 0 },
            Counter { name: "of_tomorrow".to_owned(), count: 10 },
        ],
        events: Vec::new(),
        faults: Vec::new(),
        fault_count: 0,
    }
}

#[test]
fn the_table_shows_what_matters_of_each_path() {
    let text = render(&example(), false, false);
    let expected = "\
mpip0: 10.77.0.1/24, MTU 1438, port 6182, up 2 h, process 4711
node 2001:2f::1, public key key
paths start from 198.18.0.1 (eth0)

peer gateway: established, aes-256-gcm, handshake 32 s ago
  node 2001:2f::2, prefixes 10.77.0.2/32
  scheduler earliest, congestion control bbr, inner MTU 1438
  sent 2.0 MB, received 5 B, queued 0 B, held for reordering 0 B
  path  interface  local            remote           as   state       RTT  min  one-way    queue   loss         rate  weight  share    sent  received
     0  eth0       198.18.0.1:6182  198.18.0.2:6182  udp  active  12.3 ms    -  +250 µs  1.50 ms  1.2 %  94.3 Mbit/s     500   50 %  1.2 MB       0 B
     1  eth1       198.18.1.1:6182  198.18.1.2:6182  udp  failed  12.3 ms    -  +250 µs  1.50 ms  1.2 %  94.3 Mbit/s     500   50 %  1.2 MB       0 B
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
fn a_path_at_rest_shows_for_how_long_it_is_silent() {
    let mut status = example();
    status.peers[0].paths[0].resting = true;
    let text = render(&status, false, false);
    let row = text.lines().find(|line| line.contains("198.18.0.2:6182")).expect("a row");
    assert!(row.contains("  active, rests 25 s  "), "{row}");
}

#[test]
fn sessions_are_shown_when_asked_for() {
    let text = render(&example(), true, false);
    assert!(text.contains("20000 sessions, the last 1 used"), "{text}");
    let row = text.lines().find(|line| line.contains("10.77.0.1:40000")).expect("a row");
    // 98 packets waited for up to 1.024 ms, one for up to 2.048 ms, one for the longest time.
    for part in ["out", "tcp", "10.77.0.2", "4.0 kB", "100  1.02 ms  2.05 ms  70.0 ms", "2 min"] {
        assert!(row.contains(part), "{part}: {row}");
    }
    assert!(!row.contains("10.77.0.2:0"), "no port where the protocol has none");
}

#[test]
fn colours_come_only_when_wanted() {
    assert!(!render(&example(), true, false).contains('\x1b'));
    let coloured = render(&example(), false, true);
    assert!(coloured.contains("\x1b[32mactive\x1b[0m"));
    assert!(coloured.contains("\x1b[31mfailed\x1b[0m"));
}

#[test]
fn what_is_wrong_on_the_host_stands_before_the_peers() {
    let mut status = example();
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
