//! What `[[path]]` sections say of interfaces: for how long they are off, what they cost, their
//! upper rates, and their budgets.
//!
//! ```text
//!   host a                        host b, whose configuration has the sections
//!   eth0 198.18.0.1/24 ---------- eth0 198.18.0.2/24
//!   eth1 198.18.1.1/24 ---------- eth1 198.18.1.2/24     veth
//!   mpip0 10.77.0.1               mpip0 10.77.0.2
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use crate::common::reloadable::World;
use crate::common::{Daemon, Transfer, wait_for};
use mpip_api::{PathStatus, Request, Response};
use mpip_testing::can_run;

impl World {
    /// Has host b apply its file with these sections.
    fn add_paths(&self, paths: &str) {
        self.reload(&format!("{}\n{paths}", self.text)).expect("valid");
    }

    /// The working path by link 1, as `daemon` sees it.
    fn on_link_1(daemon: &Daemon) -> Option<PathStatus> {
        let by = |path: &PathStatus| {
            let ends = [path.local.ip().to_string(), path.remote.ip().to_string()];
            let works = path.state == "active" || path.state == "standby";
            works && ends.iter().all(|end| end.starts_with("198.18.1."))
        };
        daemon.peer().paths.into_iter().find(by)
    }

    fn messages(&self, event: &str) -> Vec<String> {
        let Ok(Response::RecentEvents { events }) = self.ask(&Request::RecentEvents) else {
            panic!("no events")
        };
        let named = events.into_iter().filter(|known| {
            serde_json::to_value(&known.kind).is_ok_and(|kind| kind["event"] == event)
        });
        named.map(|event| event.message).collect()
    }
}

#[test]
fn a_state_for_a_limited_time_ends_by_itself() {
    if !can_run(&[]) {
        return;
    }
    let world = World::new("limited");
    let set = |state: &str, for_s| {
        let (interface, state) = ("eth1".to_owned(), Some(state.to_owned()));
        world.ask(&Request::SetPath { interface, state, settings: BTreeMap::new(), for_s })
    };
    let overrides = || match world.ask(&Request::Overrides) {
        Ok(Response::Overrides { overrides, .. }) => overrides,
        other => panic!("{other:?}"),
    };
    let refused = set("off", Some(0)).expect_err("no time");
    assert!(refused.to_string().contains("for_s: expected 1 to 2592000 s"), "{refused}");
    assert_eq!(set("standby", None).expect("valid"), Response::Done);
    assert_eq!(set("off", Some(3_600)).expect("valid"), Response::Done);
    wait_for("off", || world.daemon_b.status().local_addresses.len() == 1);
    let paths = overrides().paths;
    let left: Vec<Option<u64>> = paths.iter().map(|path| path.left_s).collect();
    assert!(matches!(left[..], [None, Some(1..=3_600)]), "{paths:?}");
    assert_eq!(set("off", Some(1)).expect("valid"), Response::Done);
    // What was set before holds again.
    wait_for("standby", || {
        World::on_link_1(&world.daemon_b).is_some_and(|path| path.state == "standby")
    });
    assert_eq!(overrides().count(), 1);
    assert!(world.a.ping("10.77.0.2", 3));
}

#[test]
fn a_dear_path_has_its_cost_at_both_ends_and_carries_nothing_that_need_not() {
    if !can_run(&[]) {
        return;
    }
    let world = World::new("cost");
    world.add_paths(
        "[[path]]\ninterface = 'eth0'\n[[path]]\ninterface = 'eth1'\nlabel = 'LTE'\ncost = 3\n\
         metered = true\n",
    );
    let daemons = [&world.daemon_a, &world.daemon_b];
    for daemon in daemons {
        wait_for("the cost is told", || {
            World::on_link_1(daemon).is_some_and(|path| path.cost == 3)
        });
    }
    let here = World::on_link_1(&world.daemon_b).expect("it works");
    assert_eq!((here.label.as_deref(), here.metered), (Some("LTE"), true));
    let there = World::on_link_1(&world.daemon_a).expect("it works");
    assert_eq!((there.label, there.metered), (None, false), "the other end does not pay");
    let carried = |daemon: &Daemon| -> u64 {
        let paths = daemon.peer().paths.into_iter();
        let by = paths.filter(|path| path.local.ip().to_string().starts_with("198.18.1."));
        by.map(|path| path.carried_bytes).sum()
    };
    let before = daemons.map(carried);
    assert!(world.a.ping_with("10.77.0.2", 50, 1_200));
    assert!(world.b.ping_with("10.77.0.1", 50, 1_200));
    assert_eq!(daemons.map(carried), before);
    // When nothing else works it is used.
    world.b.ip(&["link", "set", "eth0", "down"]);
    wait_for("it is used", || world.a.ping_once("10.77.0.2"));
    assert_ne!(daemons.map(carried), before);
    world.b.ip(&["link", "set", "eth0", "up"]);
    world.add_paths("");
    for daemon in daemons {
        wait_for("it costs nothing any more", || {
            World::on_link_1(daemon).is_some_and(|path| path.cost == 0)
        });
    }
}

/// 50 Mbit/s, in bytes per second.
const RATE: u64 = 6_250_000;

/// Bytes that `daemon` has sent by link 1, IP and UDP headers included.
fn sent(daemon: &Daemon) -> u64 {
    let paths = daemon.peer().paths.into_iter();
    let by = paths.filter(|path| path.local.ip().to_string().starts_with("198.18.1."));
    by.map(|path| path.sent_bytes + path.sent_packets * 28).sum()
}

#[test]
fn a_rate_that_is_set_at_one_end_is_told_and_followed_at_the_other() {
    if !can_run(&[]) {
        return;
    }
    const LIMIT: u64 = 4_000_000;
    let world = World::new("rates");
    let set = |settings: &[(&str, &str)]| {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let (interface, settings) = ("eth1".to_owned(), settings.iter().map(pair).collect());
        world.ask(&Request::SetPath { interface, state: None, settings, for_s: None })
    };
    let (a, b) = (&world.daemon_a, &world.daemon_b);
    let rates = |daemon: &Daemon| {
        World::on_link_1(daemon)
            .map(|path| [path.rate_up_bps, path.rate_down_bps, path.rate_told_bps])
    };
    assert_eq!((rates(a), rates(b)), (Some([None; 3]), Some([None; 3])));
    let refused = set(&[("rate_down", "4 Mbit")]).expect_err("no rate");
    let expected = "rate_down: expected a rate in kbit/s, Mbit/s or Gbit/s like `20 Mbit/s`";
    assert!(refused.to_string().contains(expected), "{refused}");

    // The other link is the dearer one, so that what is sent takes this one as far as it may.
    world.add_paths("[[path]]\ninterface = 'eth0'\ncost = 9\n[[path]]\ninterface = 'eth1'\n");
    let to_b = Transfer::start(&world.a, &world.b, "10.77.0.2".parse().expect("valid"), RATE);
    let to_a = Transfer::start(&world.b, &world.a, "10.77.0.1".parse().expect("valid"), RATE);
    to_b.advance(4 << 20);
    to_a.advance(4 << 20);
    let both = &[("rate_down", "4 Mbit/s"), ("rate_up", "4 Mbit/s")];
    assert_eq!(set(both).expect("valid"), Response::Done);
    wait_for("it is told", || rates(a) == Some([None, None, Some(LIMIT)]));
    assert_eq!(rates(b), Some([Some(LIMIT), Some(LIMIT), None]));
    // Each end keeps to it while more is to be sent. A slow host sends less.
    let holds = |daemon: &Daemon| World::on_link_1(daemon).and_then(|path| path.hold);
    for daemon in [a, b] {
        wait_for("held back", || holds(daemon).as_deref() == Some("at its upper rate"));
    }
    let since = Instant::now();
    let before = [a, b].map(sent);
    to_b.advance(8 << 20);
    to_a.advance(8 << 20);
    for (daemon, before) in [a, b].into_iter().zip(before) {
        let sent = sent(daemon) - before;
        let permitted = since.elapsed().as_secs_f64() * LIMIT as f64 / 8.0;
        // One that was held back may catch up for some packets.
        let most = permitted * 1.02 + 50_000.0;
        assert!(sent as f64 <= most, "{sent} bytes where {permitted:.0} are permitted");
        assert!(sent > 0, "it is used");
    }
    // The file says nothing of it.
    world.reload(&world.text).expect("valid");
    wait_for("no limit is left", || [a, b].iter().all(|daemon| rates(daemon) == Some([None; 3])));
    to_b.advance(1 << 20);
    to_a.advance(1 << 20);
    to_b.finish();
    to_a.finish();
    world.add_paths("[[path]]\ninterface = 'eth1'\nstate = 'auto'\nrate_down = '8 Mbit/s'\n");
    wait_for("the file's rate is told", || rates(a) == Some([None, None, Some(2 * LIMIT)]));
    b.wait_for_paths(2);
}

#[test]
fn a_budget_that_is_used_up_puts_its_interface_on_standby_and_outlives_a_kill() {
    if !can_run(&[]) {
        return;
    }
    let mut world = World::new("budget");
    // The other one is the dearer one, so that everything goes where there is a budget.
    let sections = |budget: &str| {
        format!(
            "[[path]]\ninterface = 'eth0'\ncost = 9\n[[path]]\ninterface = 'eth1'\nlabel = 'LTE'\n\
             metered = true\nbudget = '{budget}/month'\n"
        )
    };
    world.add_paths(&sections("60 kB"));
    let used_up = |world: &World| world.daemon_b.status().budgets[0].used_up;
    assert!(!used_up(&world));
    assert!(world.a.ping_with("10.77.0.2", 60, 1_200));
    wait_for("it is used up", || used_up(&world));
    for daemon in [&world.daemon_b, &world.daemon_a] {
        wait_for("standby", || {
            World::on_link_1(daemon).is_some_and(|path| path.state == "standby")
        });
    }
    let status = world.daemon_b.status();
    let budget = &status.budgets[0];
    assert_eq!((budget.interface.as_str(), budget.budget_bytes), ("eth1", 60_000));
    assert!(budget.used_bytes >= 60_000, "{budget:?}");
    // What is used may grow between the two, as what was on its way arrives.
    let says = |message: &str| {
        message.starts_with("budget of LTE is used up: ")
            && message.contains(" of 60 kB/month; again at ")
    };
    let fault = &status.faults[0].what;
    assert!(says(fault), "{fault}");
    assert!(world.messages("budget").iter().any(|message| says(message)));
    assert!(world.a.ping("10.77.0.2", 3), "by the other path");

    // The thread that writes does so soon.
    let file = world.file.with_extension("budgets");
    wait_for("it is written", || {
        fs::read_to_string(&file).is_ok_and(|it| it.contains("eth1 month"))
    });
    let written = |world: &World| {
        let text = fs::read_to_string(&file).expect("there");
        let bytes = text.lines().find_map(|line| line.strip_prefix("eth1 month ")?.split_once(' '));
        let bytes: u64 = bytes.and_then(|(_, bytes)| bytes.parse().ok()).expect("a number");
        bytes >= world.daemon_b.status().budgets[0].budget_bytes
    };
    wait_for("what is used is written", || written(&world));
    world.daemon_b.child.kill().expect("ours");
    world.daemon_b.wait();
    world.restart_b();
    assert!(used_up(&world), "from the start");
    wait_for("standby", || {
        World::on_link_1(&world.daemon_b).is_some_and(|path| path.state == "standby")
    });
    // A larger one is not used up.
    world.add_paths(&sections("60 GB"));
    assert!(!used_up(&world));
    wait_for("in use again", || {
        World::on_link_1(&world.daemon_b).is_some_and(|path| path.state == "active")
    });
    // A damaged file is set aside, and the daemon starts.
    world.daemon_b.signal("TERM");
    assert!(world.daemon_b.wait());
    fs::write(&file, "nonsense").expect("writable");
    world.restart_b();
    let fault = world.daemon_b.status().faults.swap_remove(0).what;
    assert!(fault.contains("line 1: expected") && fault.contains("set aside as"), "{fault}");
    let aside = file.with_extension("budgets.damaged");
    assert_eq!(fs::read_to_string(aside).expect("there"), "nonsense");
}
