//! However many threads seal, send, receive and open, everything arrives, and the daemon starts
//! anew, reloads and ends as with one.
//!
//! ```text
//!   host a                                  host b
//!   eth0 198.18.0.1/24  ------------------  eth0 198.18.0.2/24       veth
//!   eth1 198.18.1.1/24  ------------------  eth1 198.18.1.2/24       veth
//!   mpip0 10.77.0.1                         mpip0 10.77.0.2
//! ```

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use mpip_api::{Request, Response};
use mpip_testing::can_run;

use crate::common::reloadable::{A, B};
use crate::common::{Daemon, Directory, Family, Host, Transfer, for_each, two_hosts, wait_for};

/// Both directions of TCP, and datagrams of every length.
fn carries_everything(a: &Host, b: &Host) {
    let [there, back] = ["10.77.0.2", "10.77.0.1"].map(|ip| ip.parse::<IpAddr>().expect("valid"));
    Transfer::whole(a, b, there, 16 << 20).finish();
    Transfer::whole(b, a, back, 16 << 20).finish();
    let receiver = b.spawn(|| UdpSocket::bind("10.77.0.2:9999")).join().expect("no panic");
    let receiver = receiver.expect("its address");
    receiver.set_read_timeout(Some(Duration::from_millis(100))).expect("a time-out");
    let sender = a.spawn(|| UdpSocket::bind("10.77.0.1:0")).join().expect("no panic");
    let sender = sender.expect("its address");
    for len in (1..1_300).step_by(37) {
        let sent: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
        wait_for("the datagram arrives", || {
            sender.send_to(&sent, "10.77.0.2:9999").expect("sent");
            let mut buffer = [0; 2_000];
            receiver.recv(&mut buffer).is_ok_and(|len| buffer[..len] == sent)
        });
    }
}

#[test]
fn with_any_number_of_threads_everything_arrives() {
    if !can_run(&[]) {
        return;
    }
    for_each([1, 2, 4], |threads| {
        let test = format!("threads{threads}");
        let (a, b) = two_hosts(&test, 2, &[Family::V4]);
        let directory = Directory::new(&test);
        let node = format!("threads = {threads}\n");
        let mut daemon_b = Daemon::start_with(&b, &directory, &B, &node);
        let daemon_a = Daemon::start_with(&a, &directory, &A, &node);
        daemon_a.wait_for_paths(2);
        carries_everything(&a, &b);

        // New keys.
        daemon_b.signal("KILL");
        assert!(!daemon_b.wait());
        let daemon_b = Daemon::start_with(&b, &directory, &B, &node);
        wait_for("it answers after a restart", || a.ping_once("10.77.0.2"));
        carries_everything(&a, &b);

        // The number is fixed, and all else goes on.
        let file = directory.0.join("1.toml");
        let text = std::fs::read_to_string(&file).expect("written");
        let more = text.replace(&node, &format!("threads = {}\n", threads + 1));
        std::fs::write(&file, more).expect("writable");
        let refused = daemon_a.ask(&Request::Reload).expect_err("refused").to_string();
        assert!(refused.contains("[node] threads: `"), "{refused}");
        std::fs::write(&file, text + "scheduler = 'round-robin'\n").expect("writable");
        let reloaded = daemon_a.ask(&Request::Reload);
        assert!(matches!(reloaded, Ok(Response::Reloaded { .. })), "{reloaded:?}");
        carries_everything(&a, &b);

        for mut daemon in [daemon_a, daemon_b] {
            let down = daemon.ask(&Request::Down);
            assert!(down.is_ok(), "{down:?}");
            assert!(daemon.wait(), "{}", daemon.log());
        }
    });
}
