//! Dropping capabilities. They belong to a thread, so each test uses one of its own.

use crate::common::Namespace;
use mpip_net::privileges::{Needs, has_net_admin, keep_net_admin};
use mpip_net::tun::OpenError;
use mpip_net::{Tun, netlink::Netlink};
use mpip_testing::can_run;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// A set of capabilities in the status file of the calling thread.
fn status(set: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix(set)).expect("the set");
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).expect("a number")
}

#[test]
fn nothing_but_net_admin_is_left_and_nothing_comes_back() {
    if !can_run(&[]) {
        return;
    }
    Namespace::new().run(|| {
        assert!(has_net_admin().expect("capabilities"));
        keep_net_admin(Needs::default()).expect("dropped");
        let net_admin = CapabilitySet::NET_ADMIN.bits();
        assert_eq!(status("CapPrm"), net_admin);
        assert_eq!(status("CapEff"), net_admin);
        for set in ["CapInh", "CapBnd", "CapAmb"] {
            assert_eq!(status(set), 0, "{set}");
        }
        assert_eq!(status("NoNewPrivs"), 1);
        assert!(set_capabilities(None, sets(CapabilitySet::all())).is_err());
        assert!(has_net_admin().expect("capabilities"));
        keep_net_admin(Needs::default()).expect("once more");

        // A thread of this one, and a program that it starts, have no more.
        let child = std::thread::spawn(|| status("CapPrm")).join().expect("a thread");
        assert_eq!(child, net_admin);
        let grep = std::process::Command::new("grep")
            .args(["CapEff", "/proc/self/status"])
            .output()
            .expect("grep");
        let effective = String::from_utf8(grep.stdout).expect("text");
        assert_eq!(effective.trim_start_matches("CapEff:").trim(), "0000000000000000");

        // What it is kept for still works.
        let _tun = Tun::open("mpip0").expect("a device");
        let mut netlink = Netlink::new().expect("netlink");
        let link = netlink.link("mpip0").expect("the device");
        netlink.set_up(&link).expect("up");
    });
}

fn sets(held: CapabilitySet) -> CapabilitySets {
    CapabilitySets { effective: held, permitted: held, inheritable: CapabilitySet::empty() }
}

#[test]
fn without_net_admin_the_errors_say_so() {
    if !can_run(&[]) {
        return;
    }
    Namespace::new().run(|| {
        let all = capabilities(None).expect("capabilities").permitted;
        set_capabilities(None, sets(all - CapabilitySet::NET_ADMIN)).expect("dropped");
        assert!(!has_net_admin().expect("capabilities"));
        let error = keep_net_admin(Needs::default()).expect_err("nothing to keep");
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
        let error = Tun::open("mpip0").expect_err("not permitted");
        assert!(matches!(error, OpenError::NotPermitted { .. }), "{error}");
        let mut netlink = Netlink::new().expect("netlink");
        let loopback = netlink.link("lo").expect("loopback");
        let error = netlink.set_mtu(&loopback, 9_000).expect_err("not permitted");
        assert!(error.to_string().starts_with("cannot set the MTU of lo to 9000: "), "{error}");
    });
}
