//! Host mode between two hosts: configurations, plain packets on the wire, leftovers.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::{Daemon, Directory, Host, Transfer, key, wait_for};

/// A configuration in host mode.
pub(crate) struct HostConfiguration<'a> {
    /// 1 for host a, 2 for host b.
    pub(crate) number: u8,
    pub(crate) endpoints: &'a [&'a str],
    /// Lines for the peer's section.
    pub(crate) peer: &'a str,
    /// Further sections.
    pub(crate) more: &'a str,
}

impl HostConfiguration<'_> {
    pub(crate) fn write(&self, directory: &Directory) -> PathBuf {
        let Self { number, endpoints, peer, more } = self;
        // The tests' networks, unless one is about what the configuration says of addresses.
        let exclusive = match peer.contains("exclusive") {
            true => "",
            false => "exclusive = ['198.18.0.0/15', '2001:db8::/32']\n",
        };
        let other = 3 - number;
        let key_file = directory.join(format!("{number}.key"));
        fs::write(&key_file, key(*number).secret_base64().as_str()).expect("writable");
        fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600)).expect("ours");
        let text = format!(
            "[node]\nprivate_key_file = '{number}.key'\ncontrol_socket = '{}'\n\
             [[peer]]\nname = 'host{other}'\npublic_key = '{}'\nendpoints = {endpoints:?}\n\
             host_mode = true\n{exclusive}{peer}\n{more}\n",
            directory.join(format!("{number}.sock")).display(),
            key(other).public_key(),
        );
        let file = directory.join(format!("{number}.toml"));
        fs::write(&file, text).expect("writable");
        file
    }

    /// Starts it on `host` and waits until it answers.
    pub(crate) fn start(&self, host: &Host, directory: &Directory) -> Daemon {
        let file = self.write(directory);
        Daemon::spawn_file(host, directory, self.number, &file).ready()
    }
}

impl Daemon {
    /// How packets to the peer travel.
    pub(crate) fn traffic(&self) -> String {
        self.peer().traffic.expect("host mode")
    }

    /// Waits until packets to so many addresses of the peer are captured.
    pub(crate) fn wait_for_capture(&self, count: usize) {
        wait_for(&format!("{count} captured"), || self.peer().captured.len() == count);
    }

    /// A transfer that `start` begins and that takes the paths through a NAT. On a machine that
    /// stands still paths fail for a moment, and what begins then stays plain.
    pub(crate) fn begin(&self, start: impl Fn() -> Transfer) -> Transfer {
        let mut found = None;
        wait_for("a transfer on the paths", || {
            let before = self.peer().translated;
            let transfer = start();
            transfer.advance(1);
            if self.peer().translated > before {
                found = Some(transfer);
            } else {
                transfer.finish();
            }
            found.is_some()
        });
        found.expect("it was waited for")
    }

    /// Waits until packets to exactly these addresses of the peer are captured. On a machine that
    /// stands still none may be for a moment.
    pub(crate) fn wait_for_captured(&self, addresses: &[&str]) {
        wait_for(&format!("{addresses:?} captured"), || self.peer().captured == addresses);
    }
}

/// How often packets to and from peers began to travel otherwise. On a machine that stands still
/// for half a second they fall back to plain IP; then a test cannot say that none did.
pub(crate) fn changes(daemons: [&Daemon; 2]) -> u64 {
    let count = |daemon: &Daemon| {
        let events = daemon.status().events;
        events.iter().find(|event| event.name == "traffic").map_or(0, |event| event.count)
    };
    daemons.map(count).iter().sum()
}

/// Asserts that no packet leaves `plain`'s host as plain IP while `act` runs, which is done again
/// if packets fell back meanwhile.
pub(crate) fn assert_nothing_is_plain(
    daemons: [&Daemon; 2],
    plain: &PlainCounter<'_>,
    mut act: impl FnMut(),
) {
    wait_for("no packets fall back", || {
        let before = changes(daemons);
        let on_the_paths = daemons.iter().all(|daemon| daemon.traffic() == "multipath");
        plain.take();
        act();
        let count = plain.take();
        let steady = on_the_paths && changes(daemons) == before;
        assert!(count == 0 || !steady, "{count} packets do not take the paths");
        steady
    });
}

/// Counts all packets that leave, except by loopback, by the TUN device and on paths of mpip (UDP
/// or TCP). Neighbour discovery is not counted.
const COUNTER: &str = "
table inet mpip_test {
    counter plain {}
    chain out {
        type filter hook postrouting priority 0;
        oifname { mpip0, lo } accept
        udp sport 6182 accept
        udp dport 6182 accept
        tcp dport 6182 accept
        tcp sport 6182 accept
        meta l4proto ipv6-icmp icmpv6 type 130-143 accept
        counter name plain
    }
}
";

/// Counts the packets that leave `host` by other interfaces than the TUN device and are not
/// datagrams of mpip.
pub(crate) struct PlainCounter<'a>(&'a Host);

impl<'a> PlainCounter<'a> {
    pub(crate) fn new(host: &'a Host) -> Self {
        let directory = Directory::new();
        let file = directory.join("counter.nft");
        fs::write(&file, COUNTER).expect("writable");
        host.exec("nft", &["-f", file.to_str().expect("ASCII")]);
        Self(host)
    }

    /// Packets since the last call.
    pub(crate) fn take(&self) -> u64 {
        let text = self.0.exec("nft", &["reset", "counter", "inet", "mpip_test", "plain"]);
        let packets = text.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
        packets.and_then(|number| number.parse().ok()).expect("a counter")
    }
}

impl Host {
    /// Runs a program on this host.
    pub(crate) fn exec(&self, program: &str, arguments: &[&str]) -> String {
        super::run("ip", &[&["netns", "exec", &self.name, program], arguments].concat())
    }

    /// Limits what leaves by `interface` to `rate`, in the notation of `tc`.
    pub(crate) fn shape(&self, interface: &str, rate: &str) {
        let tbf = ["tbf", "rate", rate, "burst", "32kb", "latency", "50ms"];
        self.exec("tc", &[&["qdisc", "add", "dev", interface, "root"], &tbf[..]].concat());
    }

    /// Sets the reverse path filter of `interface`.
    pub(crate) fn set_rp_filter(&self, interface: &str, value: u8) {
        let setting = format!("net.ipv4.conf.{interface}.rp_filter={value}");
        self.exec("sysctl", &["-qw", &setting]);
    }

    pub(crate) fn rp_filter(&self, interface: &str) -> String {
        let setting = format!("net.ipv4.conf.{interface}.rp_filter");
        self.exec("sysctl", &["-n", &setting]).trim().to_owned()
    }

    /// Rules, routes and addresses that a daemon could leave.
    pub(crate) fn state(&self) -> String {
        let shown: [&[&str]; 5] = [
            &["rule", "show"],
            &["-6", "rule", "show"],
            &["route", "show", "table", "all"],
            &["-6", "route", "show", "table", "all"],
            &["-o", "addr", "show"],
        ];
        let text: String = shown.iter().map(|arguments| self.ip(arguments)).collect();
        // What the kernel does with link-local addresses and with links that came up takes its
        // time.
        let lines = text.lines().filter(|line| !line.contains("fe80") && !line.contains("ff00"));
        lines.map(|line| line.replace(" linkdown", "") + "\n").collect()
    }
}

/// An address.
pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("valid")
}
