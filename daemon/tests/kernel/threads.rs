//! However many threads seal, send, receive and open, everything arrives, and the daemon starts
//! anew, reloads and ends as with one, and also while the loop polls busily.
//!
//! ```text
//!   host a                                  host b
//!   eth0 198.18.0.1/24  ------------------  eth0 198.18.0.2/24       veth
//!   eth1 198.18.1.1/24  ------------------  eth1 198.18.1.2/24       veth
//!   mpip0 10.77.0.1                         mpip0 10.77.0.2
//! ```

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use mpip_api::{Request, Response};
use mpip_testing::can_run;

use crate::common::reloadable::{A, B};
use crate::common::{
    Configuration, Daemon, Directory, Family, Host, Transfer, for_each, two_hosts, wait_for,
};

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
        let directory = Directory::new();
        let busy_poll = if threads == 2 { 3_000 } else { 0 };
        let number = format!("threads = {threads}\n");
        let node = format!("{number}busy_poll = {busy_poll}\n");
        let mut daemon_b = Daemon::start_with(&b, &directory, &B, &node);
        let daemon_a = Daemon::start_with(&a, &directory, &A, &node);
        daemon_a.wait_for_paths(2);
        carries_everything(&a, &b);

        // New keys.
        daemon_b.kill();
        let daemon_b = Daemon::start_with(&b, &directory, &B, &node);
        wait_for("it answers after a restart", || a.ping_once("10.77.0.2"));
        carries_everything(&a, &b);

        // The number is fixed, and all else goes on.
        let file = directory.join("1.toml");
        let text = fs::read_to_string(&file).expect("written");
        let more = text.replace(&number, &format!("threads = {}\n", threads + 1));
        fs::write(&file, more).expect("writable");
        let refused = daemon_a.ask(&Request::Reload).expect_err("refused").to_string();
        assert!(refused.contains("[node] threads: `"), "{refused}");
        fs::write(&file, text + "scheduler = 'round-robin'\n").expect("writable");
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

/// How often the threads of packets that run no engine went to sleep: after each piece of work.
fn rests(daemon: &Daemon) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.child.id())).expect("it runs");
    let read = |task: &fs::DirEntry, file| fs::read_to_string(task.path().join(file));
    let status = tasks.filter_map(|task| {
        let task = task.expect("it runs");
        let name = read(&task, "comm").expect("it runs");
        name.starts_with("packets-").then(|| read(&task, "status").expect("it runs"))
    });
    let count = status.map(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.expect("a count").trim().parse::<u64>().expect("a number")
    });
    count.sum()
}

#[test]
fn what_has_gathered_is_received_by_the_other_threads() {
    if !can_run(&[]) {
        return;
    }
    let test = "threadsahead";
    let (a, b) = two_hosts(test, 1, &[Family::V4]);
    let directory = Directory::new();
    let daemon_b = Daemon::start_with(&b, &directory, &B, "threads = 2\n");
    // What it has to send leaves at once.
    let configuration = Configuration { peer: "congestion_control = 'none'\n", ..A };
    let daemon_a = Daemon::start_with(&a, &directory, &configuration, "");
    daemon_a.wait_for_paths(1);
    let [receiver, sender] =
        [(&b, "10.77.0.2:9999"), (&a, "10.77.0.1:0")].map(|(host, address)| {
            let socket = host.spawn(move || UdpSocket::bind(address)).join().expect("no panic");
            socket.expect("its address")
        });
    receiver.set_nonblocking(true).expect("possible");

    let before = rests(&daemon_b);
    let (mut sent, mut last) = (0_u32, None);
    wait_for("they receive", || {
        // What the TUN device holds, and less than what the socket of the path does.
        daemon_a.signal("STOP");
        for _ in 0..400 {
            let bytes = [&sent.to_be_bytes()[..], &[7; 1_196]].concat();
            sender.send_to(&bytes, "10.77.0.2:9999").expect("sent");
            sent += 1;
        }
        daemon_b.signal("STOP");
        daemon_a.signal("CONT");
        sleep(Duration::from_millis(30));
        daemon_b.signal("CONT");
        // Some are lost where nobody reads meanwhile. The others are whole and in order.
        let mut bytes = [0; 2_000];
        wait_for("a datagram arrives", || receiver.peek(&mut bytes).is_ok());
        while let Ok(len) = receiver.recv(&mut bytes) {
            let (number, rest) = bytes[..len].split_at(4);
            assert_eq!(rest, [7; 1_196]);
            let number = u32::from_be_bytes(number.try_into().expect("4 bytes"));
            assert!(Some(number) > last && number < sent, "{last:?}, {number}");
            last = Some(number);
        }
        rests(&daemon_b) > before
    });
    let drops = daemon_b.status().drops;
    let forged = drops.iter().find(|drop| drop.name == "authentication").map(|drop| drop.count);
    assert_eq!(forged.unwrap_or(0), 0);
}
