//! Settings for the time being, and for a limited time.

use super::*;
use crate::config::tests::Keys;

const NAMES: [&str; 2] = ["eth0", "wwan0"];

fn in_force(paths: &str) -> InForce {
    let text = format!("[node]\nprivate_key_file = 'node.key'\n{paths}");
    InForce::new(&Keys::new().parse(&text).expect("valid"))
}

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1_000)
}

impl InForce {
    fn set(&mut self, now: Instant, interface: &str, state: &str, for_s: Option<u64>) {
        let wanted = SetPath { state: Some(state), settings: &BTreeMap::new(), for_s };
        let change = self.set_path(now, interface, &wanted, &NAMES).expect("valid");
        self.adopt(change);
    }

    fn state(&self, interface: &str) -> &str {
        self.changeable().state(interface).name()
    }
}

#[test]
fn a_state_for_a_limited_time_gives_way_to_what_was_set_before() {
    let mut in_force = in_force("[[path]]\ninterface = 'wwan0'\nstate = 'standby'\n");
    assert_eq!(in_force.next_timeout(), None);
    in_force.set(at(0), "wwan0", "active", Some(60));
    in_force.set(at(0), "eth0", "off", None);
    in_force.set(at(10), "eth0", "standby", Some(20));
    assert_eq!((in_force.state("wwan0"), in_force.state("eth0")), ("active", "standby"));
    let left = |seconds| -> Vec<(String, Option<u64>)> {
        let paths = in_force.overrides(at(seconds)).paths.into_iter();
        paths.map(|path| (format!("{} {}", path.interface, path.state), path.left_s)).collect()
    };
    let expected = [("eth0 off", None), ("eth0 standby", Some(20)), ("wwan0 active", Some(50))];
    assert_eq!(left(10), expected.map(|(name, left)| (name.to_owned(), left)));
    assert_eq!(in_force.next_timeout(), Some(at(30)));
    assert!(in_force.expire(at(29)).is_none());
    let (over, change) = in_force.expire(at(30)).expect("one is over");
    assert_eq!(over, ["eth0"]);
    in_force.adopt(change);
    assert_eq!((in_force.state("wwan0"), in_force.state("eth0")), ("active", "off"));
    let (_, change) = in_force.expire(at(100)).expect("the other");
    in_force.adopt(change);
    assert_eq!((in_force.state("wwan0"), in_force.state("eth0")), ("standby", "off"));
    assert_eq!((in_force.next_timeout(), in_force.overrides(at(100)).count()), (None, 1));
}

#[test]
fn other_changes_leave_a_limited_time_as_it_is_and_a_setting_without_one_ends_it() {
    let mut in_force = in_force("[[path]]\ninterface = 'wwan0'\n");
    in_force.set(at(0), "wwan0", "off", Some(60));
    in_force.set(at(0), "eth0", "standby", None);
    assert_eq!((in_force.state("wwan0"), in_force.next_timeout()), ("off", Some(at(60))));
    in_force.set(at(1), "wwan0", "standby", None);
    assert_eq!((in_force.state("wwan0"), in_force.next_timeout()), ("standby", None));
    in_force.set(at(2), "wwan0", "off", Some(60));
    assert_eq!(in_force.overrides(at(2)).count(), 3);
    let text = "[node]\nprivate_key_file = 'node.key'\n";
    let settings = Keys::new().parse(text).expect("valid");
    let change = in_force.reload(&settings).expect("possible");
    in_force.adopt(change);
    assert_eq!((in_force.state("wwan0"), in_force.overrides(at(2)).count()), ("active", 0));
    assert_eq!(in_force.next_timeout(), None);
}

#[test]
fn a_time_out_of_range_is_refused() {
    let in_force = in_force("");
    for for_s in [0, 30 * 86_400 + 1, u64::MAX] {
        let settings = BTreeMap::new();
        let wanted = SetPath { state: Some("off"), settings: &settings, for_s: Some(for_s) };
        let refused = in_force.set_path(at(0), "eth0", &wanted, &NAMES);
        let expected = format!("for_s: expected 1 to 2592000 s (30 days), found {for_s}");
        assert_eq!(refused.expect_err("out of range"), expected);
    }
}

fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn rates_are_set_until_the_next_reload_and_the_latest_value_is_what_was_set() {
    let mut in_force = in_force("[[path]]\ninterface = 'wwan0'\nrate_up = '1 Mbit/s'\n");
    let rates = |in_force: &InForce| {
        let interfaces = in_force.changeable().interfaces();
        [interfaces.rates_up, interfaces.rates_down]
            .map(|rates| rates.get("wwan0").map(|rate| rate.kbps()))
    };
    assert_eq!(rates(&in_force), [Some(1_000), None]);
    for (pairs, state, expected) in [
        (
            &[("rate_up", "5 Mbit/s"), ("rate_down", "2 Mbit/s")][..],
            None,
            [Some(5_000), Some(2_000)],
        ),
        (&[("rate_up", "")], Some("standby"), [None, Some(2_000)]),
    ] {
        let settings = settings(pairs);
        let wanted = SetPath { state, settings: &settings, for_s: None };
        let change = in_force.set_path(at(0), "wwan0", &wanted, &NAMES).expect("valid");
        in_force.adopt(change);
        assert_eq!(rates(&in_force), expected);
    }
    let overrides = in_force.overrides(at(0));
    let set: Vec<(&str, &str)> =
        overrides.path_settings.iter().map(|it| (it.key.as_str(), it.value.as_str())).collect();
    assert_eq!(set, [("rate_down", "2 Mbit/s"), ("rate_up", "")]);
    assert_eq!((in_force.state("wwan0"), overrides.count()), ("standby", 3));
}

#[test]
fn of_wrong_settings_of_an_interface_none_is_set() {
    let in_force = in_force("");
    let rate = settings(&[("rate_up", "5 Mbit/s")]);
    let wrong = settings(&[("rate_down", "5 Mbit/s"), ("rate_up", "5")]);
    let none = BTreeMap::new();
    for (interface, state, settings, for_s, expected) in [
        ("eth0", Some("of"), &none, None, "state: expected one of `active`, `standby`, `off`"),
        ("eth7", None, &rate, None, "no interface is named `eth7`"),
        ("eth0", None, &rate, Some(60), "for_s: expected a state alone"),
        ("eth0", Some("off"), &rate, Some(60), "for_s: expected a state alone"),
        ("eth0", None, &none, None, "expected a state or a setting, found neither"),
        ("eth0", Some("off"), &wrong, None, "rate_up: expected a rate in kbit/s"),
    ] {
        let wanted = SetPath { state, settings, for_s };
        let reason = in_force.set_path(at(0), interface, &wanted, &NAMES).expect_err(expected);
        assert!(reason.starts_with(expected), "{reason}");
    }
}
