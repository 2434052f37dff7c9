//! Each cause, and its sentence.

use mpip_api::{
    BudgetStatus, Event, EventKind, GuardFigures, LocalAddressStatus, LossFigures, PathStatus,
    PeerStatus, Status,
};

use super::explanation::*;
use super::*;
use crate::example;
use crate::rates::{Rate, Rates};
use crate::words::Condition;

/// A peer with three paths that work; path 2 is the one to break.
fn status() -> Status {
    let mut status = example::status();
    let paths = (0..3).map(|id| PathStatus {
        bottleneck: id,
        rtt_ms: Some(24.0),
        relative_delay_ms: Some(0.0),
        queuing_delay_ms: 0.0,
        loss: 0.0,
        ..example::path(id, "active")
    });
    let peer = &mut status.peers[0];
    peer.paths = paths.collect();
    peer.sessions.clear();
    status.local_addresses.clear();
    for id in 0..3 {
        status.local_addresses.push(LocalAddressStatus {
            interface: format!("eth{id}"),
            address: peer.paths[id].local.ip(),
            mtu_bytes: 1_500,
        });
    }
    status
}

/// A second before `status`, while its paths sent at these rates, inner bit/s.
fn view(status: Status, carried_bps: [u64; 3]) -> View {
    let mut before = status.clone();
    before.uptime_ms -= 1_000.0;
    for path in &mut before.peers[0].paths {
        let bytes = carried_bps.get(usize::from(path.id)).map_or(0, |bps| bps / 8);
        path.carried_bytes = path.carried_bytes.saturating_sub(bytes);
    }
    let rates = Rates::between(&before, &status);
    View { status, rates, events: Vec::new(), unix_ms: 1_000_000.0 }
}

fn all(view: &View) -> Explanation {
    explain(view, &Options::default()).expect("nothing is named")
}

/// The sentence about path 2 of a peer that `change` has changed, while it carries `carried_bps`
/// and the others 600 kbit/s each.
fn about_path(carried_bps: u64, change: impl FnOnce(&mut PeerStatus)) -> String {
    let mut status = status();
    change(&mut status.peers[0]);
    let explained = all(&view(status, [600_000, 600_000, carried_bps]));
    let of_two = |path: &&PathExplained| path.path == 2;
    let path = explained.peers[0].paths.iter().find(of_two).expect("it is listed");
    path.said.line("", false)
}

fn in_state(state: &str, reason: &str, asks_in_ms: Option<f64>) -> String {
    about_path(0, |peer| {
        let path = &mut peer.paths[2];
        (path.state, path.reason, path.asks_in_ms) =
            (state.to_owned(), reason.to_owned(), asks_in_ms);
        path.in_state_ms = 12_000.0;
    })
}

#[test]
fn a_path_that_may_not_be_used_has_its_state_and_the_daemons_reason() {
    for (state, reason, asks_in_ms, expected) in [
        (
            "validating",
            "it is new",
            Some(3_000.0),
            "is not used yet: 198.18.2.2 has not answered for 12 s; it is asked again in 3 s, and used \
             when it answers",
        ),
        (
            "validating",
            "it is new",
            Some(0.0),
            "is not used yet: 198.18.2.2 has not answered for 12 s; it is being asked, and used when \
             it answers",
        ),
        (
            "failed",
            "no answer",
            Some(1_200.0),
            "failed 12 s ago: no answer; it is asked again in 1 s, and used when it answers",
        ),
        (
            "failed",
            "its local address is gone",
            None,
            "failed 12 s ago: its local address is gone; it is asked again when an address or a route \
             changes, and used when it answers",
        ),
        (
            "abandoned",
            "its local address is gone",
            None,
            "was given up 12 s ago: its local address is gone; a path begins when eth2 is up and has \
             an address",
        ),
        (
            "abandoned",
            "the peer gave it up",
            None,
            "was given up 12 s ago: the peer gave it up; a path begins when both addresses are there",
        ),
        (
            "standby",
            "its interface is on standby",
            None,
            "is on standby for 12 s: its interface is on standby (it answers within 24.0 ms); it is \
             used while no other path works, or after `mpip path set eth2 active`",
        ),
        (
            "standby",
            "the peer wants it on standby",
            None,
            "is on standby for 12 s: the peer wants it on standby (it answers within 24.0 ms); it is \
             used while no other path works, or when the peer takes it back",
        ),
        (
            "standby",
            "others are faster",
            None,
            "is on standby for 12 s: others are faster (it answers within 24.0 ms); it is used while \
             no other path works, or when it becomes faster, or with a higher max_paths",
        ),
        (
            "standby",
            "others are cheaper",
            None,
            "is on standby for 12 s: others are cheaper (it answers within 24.0 ms); it is used \
             while no other path works, or with a lower cost or a higher max_paths",
        ),
        (
            "asleep",
            "",
            None,
            "is asleep: the daemon does not say why; this release of mpip does not know when that ends",
        ),
    ] {
        assert_eq!(in_state(state, reason, asks_in_ms), format!("eth2 (path 2) {expected}"));
    }
}

#[test]
fn an_active_path_that_carries_no_full_packets_has_the_figures_that_hold_it() {
    let held = |hold: &str| {
        about_path(0, |peer| {
            peer.inner_mtu_bytes = 1_438;
            peer.paths[2].mtu_bytes = 1_400;
            peer.paths[2].hold = Some(hold.to_owned());
            peer.paths[2].in_flight_bytes = 64_000;
        })
    };
    for (hold, expected) in [
        (
            "packet exceeds the MTU",
            "carries small packets only: a packet of 1438 bytes and its headers do not fit its MTU of \
             1400 bytes; when MTU discovery ends, packets are made as small as the path needs",
        ),
        (
            "MTU not confirmed",
            "carries small packets only: it is not known yet whether packets of 1438 bytes get \
             through; when MTU discovery ends, packets are made as small as the path needs",
        ),
        (
            "socket full",
            "waits for the host: the socket at eth2 takes no more, 64.0 kB are in flight; it goes on \
             when the interface has sent what is queued there",
        ),
        (
            "too tired",
            "carries no full packets now: too tired; this release of mpip does not know when that ends",
        ),
    ] {
        assert_eq!(held(hold), format!("eth2 (path 2) {expected}"));
    }
    let overdue = about_path(0, |peer| {
        peer.paths[2].hold = Some("probe overdue".to_owned());
        peer.paths[2].overdue_ms = Some(120.0);
    });
    assert_eq!(
        overdue,
        "eth2 (path 2) is not used now: an answer is outstanding for 120 ms where answers come \
         within 24.0 ms; with an answer it is used again, without one it soon counts as failed"
    );
}

#[test]
fn a_path_on_standby_for_its_loss_has_the_loss_the_threshold_and_what_would_change_it() {
    let said = about_path(0, |peer| {
        let path = &mut peer.paths[2];
        (path.state, path.in_state_ms) = ("standby".to_owned(), 12_000.0);
        path.reason = "its loss reaches its threshold".to_owned();
        path.loss_figures = Some(LossFigures {
            loss: 0.102,
            threshold: 0.01,
            recent: 0.087_5,
            packets: 80,
            needed: 160,
            returns_below: 0.005,
        });
    });
    assert_eq!(
        said,
        "eth2 (path 2) is on standby for 12 s: its loss of 10 % reaches its threshold of 1 % (it \
         answers within 24.0 ms); it is used while no other path works, or when less than 0.5 % of \
         the last 160 packets that measure it were lost (so far 8.8 % of 80), or with a higher \
         loss_threshold or another loss_policy"
    );
}

#[test]
fn what_the_guard_measured_is_told_with_and_without_the_path() {
    let guarded = |carries: bool, with_bps: u64, without_bps: u64, again_in_ms: Option<f64>| {
        about_path(0, |peer| {
            peer.paths[2].hold = Some("the others carry more without it".to_owned());
            peer.paths[2].guard_figures = Some(GuardFigures {
                carries,
                since_ms: 4_000.0,
                with_bps,
                without_bps,
                again_in_ms,
            });
        })
    };
    assert_eq!(
        guarded(false, 12_100_000, 14_000_000, Some(26_000.0)),
        "eth2 (path 2) is left out by the guard for 4 s: with it all paths carried 12.1 Mbit/s, \
         without it 14.0 Mbit/s; it is tried again in 26 s, or when it becomes better or the others \
         worse; packets that need a fast answer may use it"
    );
    let due = guarded(false, 12_100_000, 14_000_000, Some(0.0));
    assert!(due.contains("it is tried again with the next transfer"), "{due}");
    assert_eq!(
        guarded(false, 12_100_000, 0, None),
        "eth2 (path 2) is left out for a trial of 4 s so far: with it all paths carried \
         12.1 Mbit/s, and now it is measured what the others carry without it; after some seconds \
         under load the set of paths that carries more is kept"
    );
    assert_eq!(
        guarded(true, 0, 14_000_000, None),
        "eth2 (path 2) is used for a trial of 4 s so far: without it the others carried \
         14.0 Mbit/s, and now it is measured what all carry with it; after some seconds under load \
         the set of paths that carries more is kept"
    );
}

#[test]
fn a_slow_path_that_is_kept_clear_says_for_what_and_how_long_a_packet_would_take() {
    let said = about_path(0, |peer| {
        let path = &mut peer.paths[2];
        path.hold = Some("kept clear for interactive flows".to_owned());
        path.delivery_rate_bps = 300_000;
    });
    assert_eq!(
        said,
        "eth2 (path 2) is kept clear for calls and other interactive traffic: at 300 kbit/s a full \
         packet would hold that up for 40.0 ms; it carries other traffic again a second after the \
         last such packet, or when no other path works"
    );
}

#[test]
fn a_path_that_carries_data_has_its_share_and_what_limits_it() {
    let limited = |hold: Option<&str>| {
        about_path(800_000, |peer| {
            let path = &mut peer.paths[2];
            path.hold = hold.map(str::to_owned);
            path.window_bytes = 64_000;
            path.pacing_rate_bps = Some(900_000);
        })
    };
    let carries = "eth2 (path 2) carries 40 %: 800 kbit/s (24.0 ms round trip)";
    assert_eq!(
        limited(None),
        format!("{carries} and has room; more would go there if there were more to send")
    );
    assert_eq!(
        limited(Some("congestion window full")),
        format!(
            "{carries} and its window of 64.0 kB is full; the window grows while what it sends \
             arrives in time"
        )
    );
    assert_eq!(
        limited(Some("paced")),
        format!(
            "{carries} and is paced at 900 kbit/s; the pace follows the rate at which it delivers"
        )
    );
}

#[test]
fn a_path_at_its_upper_rate_names_the_end_that_limits_it_and_what_would_change_that() {
    let told = |up: Option<u64>, by_peer: Option<u64>| {
        about_path(800_000, |peer| {
            let path = &mut peer.paths[2];
            path.hold = Some("at its upper rate".to_owned());
            (path.rate_up_bps, path.rate_told_bps) = (up, by_peer);
        })
    };
    let carries = "eth2 (path 2) carries 40 %: 800 kbit/s (24.0 ms round trip) and is limited to";
    let here = format!(
        "{carries} 1.0 Mbit/s by configuration (rate_up); `mpip path set eth2 rate_up=` takes the \
         limit away"
    );
    assert_eq!(told(Some(1_000_000), None), here);
    assert_eq!(told(Some(1_000_000), Some(2_000_000)), here);
    let there = format!(
        "{carries} 1.0 Mbit/s by the peer's configuration (rate_down); it carries more when the \
         peer permits more"
    );
    assert_eq!(told(None, Some(1_000_000)), there);
    assert_eq!(told(Some(2_000_000), Some(1_000_000)), there);
}

#[test]
fn delay_loss_queues_and_a_shared_bottleneck_are_told_where_they_matter() {
    let told = about_path(800_000, |peer| {
        let path = &mut peer.paths[2];
        path.relative_delay_ms = Some(80.0);
        path.queuing_delay_ms = 12.0;
        path.loss = 0.021;
        path.bottleneck = 1;
    });
    assert_eq!(
        told,
        "eth2 (path 2) carries 40 %: 800 kbit/s (24.0 ms round trip, 80.0 ms later than the fastest \
         path, 12.0 ms in queues, 2.1 % lost, one bottleneck with path 1) and has room; more would \
         go there if there were more to send"
    );
    assert!(!told.contains("receives"), "a trickle is not mentioned");
}

#[test]
fn a_path_that_works_and_carries_nothing_has_the_reason_of_its_scheduler() {
    for (scheduler, reason) in [
        (
            "earliest",
            "packets arrive earlier by other paths; it is used when the others are full, or fail",
        ),
        ("fastest-first", "faster paths have room; it is used when the others are full, or fail"),
        ("weighted", "its weight is 1 of 1000; its weight rises when its delay falls"),
        ("dice", "the scheduler `dice` takes others; it is used when the others are full, or fail"),
    ] {
        let told = about_path(0, |peer| {
            peer.scheduler = scheduler.to_owned();
            peer.paths[2].weight = 1;
        });
        let expected = format!("works (24.0 ms round trip) and is not needed: {reason}");
        assert_eq!(told, format!("eth2 (path 2) {expected}"));
    }
}

#[test]
fn without_traffic_a_path_is_idle_and_later_rests() {
    let quiet = |resting: bool| {
        let mut status = status();
        status.peers[0].paths[2].resting = resting;
        let explained = all(&view(status, [0; 3]));
        explained.peers[0].paths[2].said.line("", false)
    };
    assert_eq!(
        quiet(false),
        "eth2 (path 2) works (24.0 ms round trip) and is idle: there is nothing to send; it is used \
         when there is traffic"
    );
    assert_eq!(
        quiet(true),
        "eth2 (path 2) works and rests: there is no traffic, and a keepalive leaves every 25 s; \
         the first packet wakes it"
    );
}

#[test]
fn a_path_that_costs_more_and_is_not_needed_has_its_cost() {
    let told = about_path(0, |peer| {
        let path = &mut peer.paths[2];
        path.hold = Some("kept for more than the cheaper paths carry".to_owned());
        (path.cost, path.metered, path.label) = (3, true, Some("LTE".to_owned()));
    });
    assert_eq!(
        told,
        "eth2 (LTE, path 2) works (24.0 ms round trip, metered) and is kept for more than the \
         cheaper paths carry: its cost is 3; it is used when the cheaper paths need too long for \
         what is queued, or when none of them works"
    );
}

#[test]
fn a_budget_is_told_while_there_is_some_and_when_it_is_used_up() {
    let told = |used_up: bool, carried_bps: u64, path: PathStatus| {
        let mut status = status();
        status.budgets.push(BudgetStatus {
            interface: "eth2".to_owned(),
            label: None,
            budget_bytes: 2_000_000_000,
            used_bytes: if used_up { 2_000_100_000 } else { 1_600_000_000 },
            period: "day".to_owned(),
            period_ends_unix_s: 1_795_651_200,
            used_up,
        });
        status.peers[0].paths[2] = PathStatus { id: 2, bottleneck: 2, metered: true, ..path };
        let explained = all(&view(status, [0, 0, carried_bps]));
        explained.peers[0].paths[2].said.line("", false)
    };
    let path = status().peers[0].paths[2].clone();
    assert_eq!(
        told(false, 600_000, path.clone()),
        "eth2 (path 2) carries 100 %: 600 kbit/s (24.0 ms round trip, metered, 1.6 GB of 2.0 \
         GB/day used) and has room; more would go there if there were more to send"
    );
    let standby = PathStatus {
        state: "standby".to_owned(),
        reason: "its interface is on standby".to_owned(),
        in_state_ms: 60_000.0,
        ..path
    };
    assert_eq!(
        told(true, 0, standby.clone()),
        "eth2 (path 2) is on standby for 60 s: the budget of eth2 is used up, 2.0 GB of 2.0 \
         GB/day; it is used while no other path works, again from 2026-11-26 00:00 UTC, or with a \
         larger budget and `mpip reload`"
    );
    let told = told(false, 0, standby);
    assert!(told.contains("`mpip path set eth2 active`"), "{told}");
}

#[test]
fn a_peer_that_is_not_connected_has_what_was_tried() {
    let told = |change: fn(&mut Status)| {
        let mut status = status();
        let peer = &mut status.peers[0];
        peer.established = false;
        peer.paths.clear();
        peer.handshake_age_ms = None;
        change(&mut status);
        all(&view(status, [0; 3])).peers[0].said.line("", false)
    };
    assert_eq!(
        told(|status| {
            let peer = &mut status.peers[0];
            peer.handshake_attempts = 5;
            (peer.unanswered_ms, peer.attempt_in_ms) = (Some(12_000.0), Some(3_000.0));
        }),
        "gateway is not connected: no answer to 5 handshakes in 12 s; the next handshake leaves in \
         3 s; `mpip doctor` on both hosts looks for what is in the way"
    );
    let once = told(|status| {
        let peer = &mut status.peers[0];
        peer.handshake_attempts = 1;
        (peer.unanswered_ms, peer.handshake_age_ms) = (Some(400.0), Some(90_000.0));
    });
    assert!(
        once.contains(
            "no answer to a handshake in 400 ms; the last handshake was answered 90 s ago"
        ),
        "{once}"
    );
    assert_eq!(
        told(|_| {}),
        "gateway is not connected: it has to call, because `endpoints` of this host names no address \
         of it, and has not for 2 h; `mpip explain` there says whether it calls"
    );
    assert_eq!(
        told(|status| status.local_addresses.clear()),
        "gateway is not connected: no interface of this host has an address that paths can start \
         from; `mpip doctor` says what keeps interfaces out"
    );
}

#[test]
fn a_peer_that_is_connected_has_its_paths_and_rates() {
    let explained = all(&view(status(), [600_000, 600_000, 800_000]));
    assert_eq!(
        explained.peers[0].said.line("", false),
        "gateway is connected by 3 of 3 paths; this host sends 2.0 Mbit/s and receives 0 bit/s, and \
         the scheduler `earliest` chooses the path of each packet"
    );
    let mut broken = status();
    broken.peers[0].attempt_in_ms = Some(500.0);
    broken.peers[0].paths.iter_mut().for_each(|path| path.state = "failed".to_owned());
    assert_eq!(
        all(&view(broken, [0; 3])).peers[0].said.line("", false),
        "gateway is connected, and none of its 3 paths works; the next handshake leaves in 500 ms, \
         unless a path answers first"
    );
}

#[test]
fn in_host_mode_the_way_of_the_packets_has_a_reason() {
    let told = |traffic: &str, change: fn(&mut PeerStatus)| {
        let mut status = status();
        let peer = &mut status.peers[0];
        (peer.host_mode, peer.traffic) = (true, Some(traffic.to_owned()));
        peer.policy = "prefer".to_owned();
        change(peer);
        let explained = all(&view(status, [0; 3]));
        explained.peers[0].traffic.as_ref().expect("host mode").line("", false)
    };
    let fail = |peer: &mut PeerStatus| {
        peer.paths.iter_mut().for_each(|path| path.state = "failed".to_owned());
    };
    for (sentence, expected) in [
        (
            told("multipath", |peer| peer.captured = vec!["198.18.0.2/32".to_owned()]),
            "packets to 198.18.0.2/32 use the paths, because paths work",
        ),
        (
            told("plain", fail),
            "packets travel as plain IP: no path works, and the policy is prefer; they use the paths \
             when one works",
        ),
        (
            told("plain", |peer| peer.returns_in_ms = Some(2_000.0)),
            "packets travel as plain IP although a path works: paths came and went; they return to \
             the paths in 2 s, if one works then",
        ),
        (
            told("plain", |_| {}),
            "packets travel as plain IP although a path works: no address is known to be the peer's \
             alone; `exclusive` in the configuration says which addresses nobody shares with it",
        ),
        (
            told("plain", |peer| peer.policy = "off".to_owned()),
            "packets travel as plain IP: the policy is off; policy prefer or require puts them on the \
             paths",
        ),
        (
            told("blocked", fail),
            "packets are refused: no path works, and the policy is require; they use the paths when \
             one works",
        ),
    ] {
        assert_eq!(sentence, format!("host mode: {expected}"));
    }
}

#[test]
fn an_interface_without_a_path_is_named_with_the_cause() {
    let mut status = status();
    // eth1 was set down, eth2 is off, eth3 has no address of the peer's kind.
    status.peers[0].paths.truncate(1);
    status.local_addresses.truncate(1);
    status.interfaces_off = vec!["eth2".to_owned()];
    status.local_addresses.push(LocalAddressStatus {
        interface: "eth3".to_owned(),
        address: "2001:db8::1".parse().expect("valid"),
        mtu_bytes: 1_500,
    });
    let gone = |interface: &str, address: &str| Event {
        unix_time_ms: 996_000.0,
        message: String::new(),
        kind: EventKind::AddressRemoved {
            interface: interface.to_owned(),
            address: address.parse().expect("valid"),
        },
    };
    let mut view = view(status, [0; 3]);
    view.events = vec![
        gone("eth1", "198.18.1.1:6182"),
        gone("eth1", "198.18.1.9:6182"),
        gone("eth2", "198.18.2.1:6182"),
        gone("eth0", "198.18.0.1:6182"),
    ];
    let lines = all(&view).interfaces.into_iter().map(|it| it.said.line("", false));
    assert_eq!(
        lines.collect::<Vec<_>>(),
        [
            "eth2 has no paths: its state is off; `mpip path set eth2 active` permits them",
            "eth3 has no paths: no address of a peer goes with its own (2001:db8::1); an address of \
             the same kind (IPv4, IPv6) in `endpoints` would give one",
            "eth1 has no paths: its address 198.18.1.1 has been gone for 4 s, because it is down or \
             lost it; paths begin when it is up and has one (`ip address show dev eth1`)",
        ]
    );
    let mut given_up = example::path(7, "abandoned");
    given_up.interface = "eth2".to_owned();
    view.status.peers[0].paths.push(given_up);
    let explained = all(&view);
    let path = explained.peers[0].paths[1].said.line("", false);
    let expected = "eth2 (path 7) is not used for 12 s: the state of its interface is off; `mpip path \
                    set eth2 active` permits paths from there";
    assert_eq!(path, expected);
}

#[test]
fn a_session_has_its_paths_its_repairs_and_what_its_order_costs() {
    let mut status = status();
    let mut session = example::status().peers[0].sessions[0].clone();
    (session.packets, session.repaired_packets, session.idle_ms) = (400, 33, 100.0);
    session.destination = "10.77.0.2:443".parse().expect("valid");
    let mut incoming = session.clone();
    (incoming.outgoing, incoming.paths, incoming.idle_ms) = (false, vec![9], 5_000.0);
    let mut quiet = session.clone();
    (quiet.waits, quiet.repaired_packets, quiet.paths) = (vec![0; 20], 0, Vec::new());
    quiet.outgoing = false;
    let mut held = quiet.clone();
    (held.outgoing, held.held_ms) = (true, Some(88.0));
    status.peers[0].sessions = vec![session, incoming, quiet, held];
    let view = view(status, [0; 3]);
    let options = Options { sessions: true, ..Options::default() };
    let told = |options: &Options| {
        let mut explained = explain(&view, options).expect("it is there");
        let sessions = explained.peers.remove(0).sessions.expect("asked for");
        sessions.into_iter().map(|session| session.why).collect::<Vec<_>>()
    };
    assert_eq!(
        told(&options),
        [
            "tcp 10.77.0.1:40000 to 10.77.0.2:443 sends on eth0 (path 0) with 75 % and eth1 (path 1) \
             with 25 %: 400 packets, 4.0 kB; 33 were sent again because a path had lost them",
            "tcp 10.77.0.1:40000 to 10.77.0.2:443 receives on path 9, which is gone: 400 packets, 4.0 \
             kB, the last one 5 s ago; 100 of them (25.0 %) waited for earlier ones: half of these at \
             most 1.02 ms, 99 % at most 2.05 ms, the longest 70.0 ms",
            "tcp 10.77.0.1:40000 to 10.77.0.2:443 receives on no path at present: 400 packets, 4.0 kB; \
             none had to wait for its turn",
            "tcp 10.77.0.1:40000 to 10.77.0.2:443 sends on no path at present: 400 packets, 4.0 kB; none \
             was sent again; it takes 88.0 ms longer than by the nearest path, so that its sender, \
             which is a BBR, fills the others, too",
        ]
    );
    let one = Options { path: Some("eth1".to_owned()), ..options };
    assert_eq!(told(&one).len(), 1, "only those that use the path");
}

#[test]
fn a_session_that_is_plain_alone_is_named_with_what_may_be_the_cause() {
    let mut status = status();
    status.peers[0].plain_session_count = 1;
    status.peers[0].plain_sessions = vec![mpip_api::PlainSessionStatus {
        protocol: 6,
        source: "198.18.0.1:40000".parse().expect("valid"),
        destination: "198.18.0.2:443".parse().expect("valid"),
        since_ms: 12_000.0,
    }];
    let view = view(status, [0; 3]);
    let told = |options: &Options| {
        let peer = explain(&view, options).expect("it is there").peers.remove(0);
        peer.plain_sessions.map(|all| all.into_iter().map(|one| one.why).collect::<Vec<_>>())
    };
    let options = Options { sessions: true, ..Options::default() };
    let expected = "tcp 198.18.0.1:40000 to 198.18.0.2:443 has been plain IP for 12 s: its segments were \
                    repeated although the paths delivered them; see whether a firewall of the other \
                    host refuses what comes from its mpip device";
    assert_eq!(told(&options), Some(vec![expected.to_owned()]));
    assert_eq!(told(&Options::default()), None, "not asked for");
    assert_eq!(told(&Options { path: Some("eth1".to_owned()), ..options }), None);
}

#[test]
fn a_path_is_named_by_interface_or_number_and_a_wrong_name_gets_the_right_ones() {
    let view = view(status(), [0; 3]);
    let asked = |path: Option<&str>, peer: Option<&str>| {
        let text = |text: &str| text.to_owned();
        explain(
            &view,
            &Options { path: path.map(text), peer: peer.map(text), ..Options::default() },
        )
    };
    for (name, expected) in [("eth1", 1), ("2", 2)] {
        let explained = asked(Some(name), Some("gateway")).expect("it is there");
        let paths = explained.peers[0].paths.iter().map(|path| path.path);
        assert_eq!(paths.collect::<Vec<_>>(), [expected]);
    }
    assert_eq!(
        asked(Some("wlan0"), None).expect_err("not there").to_string(),
        "PATH: expected the interface or the number of a path, found `wlan0`; there are eth0 (path \
         0), eth1 (path 1), eth2 (path 2)"
    );
    assert_eq!(
        asked(None, Some("nobody")).expect_err("not there").to_string(),
        "--peer: expected the name of a peer, found `nobody`; there are gateway"
    );
    let nobody = View { status: Status { peers: Vec::new(), ..example::status() }, ..view };
    assert_eq!(render(&all(&nobody), false), "no peers\n");
}

#[test]
fn json_has_the_figures_of_the_sentence_and_each_key_once() {
    let explained = all(&view(status(), [600_000, 600_000, 800_000]));
    let text = serde_json::to_string(&explained).expect("it can be written");
    let peers = text.matches("\"paths\":").count();
    assert_eq!(peers, 1, "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let path = &json["peers"][0]["paths"][2];
    assert_eq!(path["cause"], "carries");
    assert_eq!((&path["carried_bps"], &path["limit"]), (&800_000.into(), &"room".into()));
    assert_eq!((&path["used"], &path["condition"]), (&true.into(), &"good".into()));
    assert!(path["why"].as_str().is_some_and(|why| why.starts_with("eth2 (path 2) carries 40 %")));
}

#[test]
fn text_has_a_line_for_each_and_colours_only_names() {
    let mut status = status();
    status.peers[0].paths[1].state = "failed".to_owned();
    let explained = all(&view(status, [600_000, 0, 0]));
    let plain = render(&explained, false);
    assert_eq!(plain.lines().count(), 4, "{plain}");
    assert!(plain.starts_with("gateway is connected by 2 of 3 paths"), "{plain}");
    let coloured = render(&explained, true);
    assert!(coloured.contains("  \x1b[31meth1 (path 1)\x1b[0m failed 12 s ago"), "{coloured:?}");
    for code in ["\x1b[31m", "\x1b[32m", "\x1b[0m"] {
        assert!(!plain.contains(code), "{plain:?}");
    }
}

#[test]
fn watching_tells_a_cause_once_although_its_figures_change() {
    let mut told = watch::Told::default();
    let mut first = view(status(), [600_000, 600_000, 800_000]);
    let lines = told.news(&all(&first));
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[1].starts_with("gateway: eth0 (path 0) carries "), "{lines:?}");
    first.status.peers[0].paths[0].rtt_ms = Some(99.0);
    assert!(told.news(&all(&first)).is_empty());
    first.status.peers[0].paths[1].state = "failed".to_owned();
    first.status.peers[0].paths.remove(2);
    first.status.local_addresses.truncate(2);
    let lines = told.news(&all(&first));
    let [failed, gone] = &lines[..] else { panic!("{lines:?}") };
    assert!(failed.starts_with("gateway: eth1 (path 1) failed "), "{failed}");
    assert_eq!(gone, "gateway: path 2 is gone");
}

#[test]
fn every_cause_of_a_path_counts_as_used_only_if_it_carries_data() {
    let mut status = status();
    status.peers[0].paths[0].state = "standby".to_owned();
    let view = view(status, [0, 600_000, 0]);
    let used = all(&view).peers.remove(0).paths.into_iter().map(|path| path.used);
    assert_eq!(used.collect::<Vec<_>>(), [false, true, false]);
    let peer = &view.status.peers[0];
    let idle = path::Cause::of(peer, &peer.paths[1], Rate::default(), 0, false, None);
    assert!(!idle.is_used() && idle.condition() == Condition::Good);
}
