//! Settings for the time being, and for a limited time.

use super::*;
use crate::config::tests::Directory;

const NAMES: [&str; 2] = ["eth0", "wwan0"];

fn in_force(paths: &str) -> InForce {
    let text = format!("[node]\nprivate_key_file = 'node.key'\n{paths}");
    InForce::new(&Directory::new("reload").parse(&text).expect("valid"))
}

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1_000)
}

impl InForce {
    fn set(&mut self, now: Instant, interface: &str, state: &str, for_s: Option<u64>) {
        let change = self.set_path(now, interface, state, for_s, &NAMES).expect("valid");
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
    let settings = Directory::new("reload").parse(text).expect("valid");
    let change = in_force.reload(&settings).expect("possible");
    in_force.adopt(change);
    assert_eq!((in_force.state("wwan0"), in_force.overrides(at(2)).count()), ("active", 0));
    assert_eq!(in_force.next_timeout(), None);
}

#[test]
fn a_time_out_of_range_is_refused() {
    let in_force = in_force("");
    for for_s in [0, 30 * 86_400 + 1, u64::MAX] {
        let refused = in_force.set_path(at(0), "eth0", "off", Some(for_s), &NAMES);
        let expected = format!("for_s: expected 1 to 2592000 s (30 days), found {for_s}");
        assert_eq!(refused.expect_err("out of range"), expected);
    }
}
