//! Single settings, and what cannot change.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::config::tests::{Keys, PEER_KEY};

fn text(more: &str) -> String {
    format!(
        "[node]\nprivate_key_file = 'node.key'\n{more}\n[[peer]]\nname = 'gateway'\n\
         public_key = '{PEER_KEY}'\n"
    )
}

fn changeable(more: &str) -> Changeable {
    let directory = Keys::new();
    directory.parse(&format!("{}{more}", text(""))).expect("valid").changeable()
}

fn on_standby(all: &Changeable) -> Vec<String> {
    all.interfaces().standby.into_iter().collect()
}

#[test]
fn every_settable_key_takes_its_values_and_an_empty_one_is_the_default() {
    let default = changeable("");
    let values = [
        ("scheduler", "weighted"),
        ("congestion_control", "cubic"),
        ("max_paths", "3"),
        ("loss_policy", "threshold"),
        ("policy", "off"),
        ("resequencing", "false"),
        ("ack_thinning", "false"),
        ("encapsulation", "tcp"),
    ];
    assert_eq!(values.map(|(key, _)| key), SETTABLE);
    for (key, value) in values {
        let mut default = default.clone();
        default.peers[0].host_mode = true;
        default.peers[0].policy = Policy::Prefer;
        let mut set = default.clone();
        assert_eq!(set.set("gateway", key, value), Ok(()), "{key}");
        assert_ne!(set, default, "{key}");
        assert_eq!(set.set("gateway", key, ""), Ok(()), "{key}");
        assert_eq!(set, default, "{key}");
    }
}

#[test]
fn a_setting_that_is_refused_names_what_was_meant_and_changes_nothing() {
    let mut all = changeable("");
    let before = all.clone();
    for (name, key, value, expected) in [
        ("gatway", "scheduler", "earliest", "no peer is named `gatway`: did you mean `gateway`?"),
        ("gateway", "schedular", "earliest", "`schedular` cannot be set for the time being: did"),
        ("gateway", "endpoints", "x", "`endpoints` cannot be set for the time being (one of"),
        ("gateway", "scheduler", "erliest", "scheduler: expected one of `earliest`, `weighted`"),
        ("gateway", "max_paths", "0", "max_paths: expected a number from 1 to 64, found `0`"),
        ("gateway", "max_paths", "all", "max_paths: expected a number from 1 to 64, found `all`"),
        ("gateway", "loss_policy", "on", "loss_policy: expected one of `measured`, `threshold`"),
        ("gateway", "resequencing", "no", "resequencing: expected `true` or `false`, found `no`"),
        ("gateway", "policy", "prefer", "policy: expected `require`, because `prefer` is for"),
    ] {
        let reason = all.set(name, key, value).expect_err(key);
        assert!(reason.starts_with(expected), "{reason}");
        assert_eq!(all, before);
    }
}

#[test]
fn weights_go_with_their_scheduler() {
    let mut all = changeable("scheduler = 'weighted'\nweights = { eth0 = 7 }");
    all.set("gateway", "congestion_control", "reno").expect("valid");
    assert_eq!(all.peers[0].fixed_weights.len(), 1);
    all.set("gateway", "scheduler", "round-robin").expect("valid");
    assert!(all.peers[0].fixed_weights.is_empty());
}

#[test]
fn adaptation_of_weights_goes_with_its_scheduler() {
    let mut all = changeable("scheduler = 'weighted'\nweight_step = 20\nweight_period_ms = 300");
    let adapting = WeightAdaptation { step: 20, period: Duration::from_millis(300) };
    assert_eq!(all.peers[0].weight_adaptation, adapting);
    all.set("gateway", "scheduler", "earliest").expect("valid");
    assert_eq!(all.peers[0].weight_adaptation, WeightAdaptation::default());
}

#[test]
fn interfaces_are_put_on_standby_and_taken_out() {
    let mut all = changeable("");
    all.set_path("wwan0", InterfaceState::Standby);
    all.set_path("eth1", InterfaceState::Off);
    assert_eq!((on_standby(&all), all.off()), (vec!["wwan0".to_owned()], vec!["eth1".to_owned()]));
    all.set_path("wwan0", InterfaceState::Active);
    all.set_path("eth1", InterfaceState::Active);
    assert_eq!(all, changeable(""));
    // One that the configuration does not name is added.
    let mut all = changeable("[[path]]\ninterface = 'eth0'\n");
    all.set_path("wwan0", InterfaceState::Standby);
    assert_eq!(all.path_interfaces, Some(vec!["eth0".to_owned(), "wwan0".to_owned()]));
}

#[test]
fn sections_of_paths_that_are_not_active_leave_the_others_in_use() {
    let standby = "[[path]]\ninterface = 'wwan0'\nstate = 'standby'\n";
    let all = changeable(standby);
    assert_eq!((all.path_interfaces.clone(), on_standby(&all)), (None, vec!["wwan0".to_owned()]));
    let off = "[[path]]\ninterface = 'eth1'\nstate = 'off'\n";
    let all = changeable(&format!("{standby}{off}"));
    assert_eq!((all.path_interfaces.clone(), all.off()), (None, vec!["eth1".to_owned()]));
    let all = changeable(&format!("{standby}{off}[[path]]\ninterface = 'eth0'\n"));
    assert_eq!(all.path_interfaces, Some(vec!["wwan0".to_owned(), "eth0".to_owned()]));
}

#[test]
fn a_section_with_the_state_auto_leaves_the_others_in_use_and_its_own_active() {
    let auto = "[[path]]\ninterface = 'wwan0'\nstate = 'auto'\nrate_up = '1 Mbit/s'\n";
    let all = changeable(auto);
    assert_eq!((all.path_interfaces.clone(), all.path_states.len()), (None, 0));
    assert_eq!(all.interfaces().rates_up.len(), 1);
    let all = changeable(&format!("{auto}[[path]]\ninterface = 'eth0'\n"));
    assert_eq!(all.path_interfaces, Some(vec!["wwan0".to_owned(), "eth0".to_owned()]));
}

#[test]
fn rates_of_an_interface_are_set_and_removed_and_wrong_ones_change_nothing() {
    let mut all = changeable("");
    all.set_path_property("eth0", "rate_up", "20 Mbit/s").expect("valid");
    all.set_path_property("eth0", "rate_down", "1 Gbit/s").expect("valid");
    let interfaces = all.interfaces();
    let rates = [&interfaces.rates_up, &interfaces.rates_down];
    assert_eq!(rates.map(|rates| rates["eth0"].kbps()), [20_000, 1_000_000]);
    let before = all.clone();
    for (key, value, expected) in [
        ("rate_up", "20", "rate_up: expected a rate in kbit/s, Mbit/s or Gbit/s"),
        ("rate_down", "1 kbit/s", "rate_down: expected 64 kbit/s to 1000 Gbit/s, found"),
        ("rate_upp", "1 Mbit/s", "`rate_upp` of an interface cannot be set for the time being"),
        ("cost", "3", "`cost` of an interface cannot be set for the time being"),
    ] {
        let reason = all.set_path_property("eth0", key, value).expect_err(key);
        assert!(reason.starts_with(expected), "{reason}");
        assert_eq!(all, before);
    }
    all.set_path_property("eth0", "rate_up", "").expect("valid");
    all.set_path_property("eth0", "rate_down", "").expect("valid");
    assert!(all.interfaces() == changeable("").interfaces());
}

#[test]
fn what_cannot_change_is_named_with_its_values() {
    let directory = Keys::new();
    let before = directory.parse(&text("")).expect("valid");
    let same = directory.parse(&text("")).expect("valid");
    assert_eq!(before.fixed().refuses(&same), Vec::<String>::new());
    let more = "listen_port = 7000\nkeepalive = 20\nthreads = 2\n[interface]\nname = 'mpip7'\n\
                [host_mode]\nmark = 0x10\n[opportunistic]\nprefixes = ['198.18.0.0/15']\n\
                pins = 'pins'";
    let refused = before.fixed().refuses(&directory.parse(&text(more)).expect("valid"));
    let file = directory.parse(&text(more)).expect("valid").file.display().to_string();
    assert_eq!(
        refused[0],
        format!(
            "{file}: [node] listen_port: `6182`, which the file makes `7000`, cannot change while \
             mpipd runs; `mpip down` and `mpip up` (or `systemctl restart`) apply it"
        )
    );
    let keys = [
        "listen_port",
        "tcp_port",
        "control_socket",
        "keepalive",
        "threads",
        "name",
        "mark",
        "opportu",
    ];
    assert_eq!(refused.len(), keys.len(), "{refused:?}");
    for (line, key) in refused.iter().zip(keys) {
        assert!(line.contains(key), "{line}");
    }
    directory.key("other.key", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", 0o600);
    let other = text("").replace("node.key", "other.key");
    let refused = before.fixed().refuses(&directory.parse(&other).expect("valid"));
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].contains("[node] private_key_file: this node's key cannot change"));
    assert!(Path::new(&file).is_absolute());
}
