//! `mpip doctor` on hosts whose settings are broken one by one, and mended by what it prints.
//!
//! ```text
//!   host a                                  host b
//!   eth0 198.18.0.1/24  ------------------  eth0 198.18.0.2/24       veth
//!   eth1 198.18.1.1/24  ------------------  eth1 198.18.1.2/24       veth
//! ```

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::host_mode::HostConfiguration;
use crate::common::{Directory, Family, Host, two_hosts, wait_for};
use mpip_testing::can_run;
use serde_json::Value;

const A: HostConfiguration<'static> = HostConfiguration {
    number: 1,
    endpoints: &["198.18.0.2:6182", "198.18.1.2:6182"],
    peer: "",
    more: "",
};
const B: HostConfiguration<'static> =
    HostConfiguration { number: 2, endpoints: &[], peer: "", more: "" };

/// What doctor found.
#[derive(Clone, Debug)]
struct Finding {
    wrong: bool,
    text: String,
    command: Option<String>,
}

/// Examines `host` with the configuration `file`; checks that the exit status fits.
fn examine(host: &Host, file: &Path) -> Vec<Finding> {
    let arguments =
        ["netns", "exec", &host.name, env!("CARGO_BIN_EXE_mpipd"), "--doctor", "--json"];
    let output = Command::new("ip").args(arguments).arg("--config").arg(file).output();
    let output = output.expect("ip");
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(report["not_checked"], serde_json::json!([]));
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let finding = |value: &Value| Finding {
        wrong: value["severity"] == "wrong",
        text: format!("{}: {}", text(&value["what"]), text(&value["why"])),
        command: value["mend"].get("command").map(text),
    };
    let findings: Vec<_> =
        report["findings"].as_array().expect("a list").iter().map(finding).collect();
    let healthy = !findings.iter().any(|finding| finding.wrong);
    assert_eq!(output.status.code(), Some(if healthy { 0 } else { 1 }), "{findings:?}");
    findings
}

/// As [`examine`], without the note that no daemon runs.
fn examine_stopped(host: &Host, file: &Path) -> Vec<Finding> {
    let mut findings = examine(host, file);
    let before = findings.len();
    findings.retain(|finding| !finding.text.starts_with("no mpipd answers on "));
    assert_eq!(findings.len() + 1, before, "{findings:?}");
    findings
}

fn named<'a>(findings: &'a [Finding], part: &str) -> &'a Finding {
    let found = findings.iter().find(|finding| finding.text.contains(part));
    found.unwrap_or_else(|| panic!("`{part}` in {findings:#?}"))
}

/// Does on `host` what doctor printed.
fn mend(host: &Host, findings: &[Finding]) {
    for command in findings.iter().filter_map(|finding| finding.command.as_deref()) {
        eprintln!("# {command}");
        host.exec("sh", &["-c", command]);
    }
}

/// The file with what host mode's daemon would have written down.
fn record(directory: &Directory) -> PathBuf {
    directory.join("1.sock.rp_filter")
}

#[test]
fn every_broken_setting_is_named_and_mended_by_the_command_that_is_printed() {
    if !can_run(&["nft", "sysctl"]) {
        return;
    }
    let (a, _b) = two_hosts("doctor", 2, &[Family::V4]);
    let directory = Directory::new();
    let strict = HostConfiguration { more: "[host_mode]\nloosen_rp_filter = false\n", ..A };
    let file = strict.write(&directory);
    assert!(examine_stopped(&a, &file).is_empty());

    // The key file, the firewall, both filters, an MTU, routing and what a dead daemon left.
    fs::set_permissions(directory.join("1.key"), fs::Permissions::from_mode(0o644)).expect("ours");
    let findings = examine_stopped(&a, &file);
    assert!(named(&findings, "1.key` has mode 0644").wrong);
    mend(&a, &findings);
    assert!(examine_stopped(&a, &file).is_empty());

    a.nft(
        "table inet filter { chain input { type filter hook input priority 0; policy drop; }\n}\n",
    );
    a.ip(&["link", "set", "eth1", "mtu", "1000"]);
    for (link, metric) in [("0", "100"), ("1", "200")] {
        let (router, name) = (format!("198.18.{link}.2"), format!("eth{link}"));
        a.ip(&["route", "add", "default", "via", &router, "dev", &name, "metric", metric]);
        a.set_rp_filter(&name, 1);
    }
    for family in ["-4", "-6"] {
        let rule = ["rule", "add", "lookup", "6182", "priority", "61", "protocol", "109"];
        a.ip(&[&[family], &rule[..]].concat());
    }
    fs::write(record(&directory), "lo 1\n").expect("writable");
    let findings = examine_stopped(&a, &file);
    for part in [
        "the firewall drops UDP to port 6182 (policy of the chain inet filter input)",
        "the firewall drops packets that arrive by mpip0",
        "eth1 has an MTU of 1000 bytes",
        "packets from 198.18.1.1 (eth1) leave by eth0",
        "the reverse path filter of eth0 is strict",
        "the reverse path filter of eth1 is strict",
    ] {
        assert!(named(&findings, part).wrong, "{part}");
    }
    for part in ["rules for table 6182 are left", "reverse path filters are left loose"] {
        assert!(!named(&findings, part).wrong, "{part}");
    }
    assert_eq!(findings.len(), 8, "{findings:#?}");
    mend(&a, &findings);
    let left = examine_stopped(&a, &file);
    assert!(left.is_empty(), "{left:#?}");
    assert_eq!(a.exec("sysctl", &["-n", "net.ipv4.conf.lo.rp_filter"]).trim(), "1");
}

#[test]
fn what_somebody_has_to_decide_is_told_in_words() {
    if !can_run(&["nft"]) {
        return;
    }
    let (a, _b) = two_hosts("doctor2", 2, &[Family::V4]);
    let directory = Directory::new();
    let file = A.write(&directory);
    let taken = a.take(|| UdpSocket::bind("0.0.0.0:6182"));
    a.ip(&["rule", "add", "from", "198.18.1.1", "lookup", "7", "priority", "50"]);
    a.ip(&["rule", "add", "fwmark", "0x10000000/0x10000000", "lookup", "8", "priority", "900"]);
    let refused = ["route", "add", "unreachable", "198.18.0.2", "table", "6182", "metric", "4096"];
    a.ip(&[&refused[..], &["protocol", "109"]].concat());
    let findings = examine_stopped(&a, &file);
    let name = format!("(process {})", std::process::id());
    assert!(named(&findings, "UDP port 6182 belongs to ").text.contains(&name), "{findings:#?}");
    named(&findings, "the IPv4 rule `50: from 198.18.1.1/32 lookup 7` is asked before mpip's");
    named(&findings, "lookup 8` uses the mark 0x10000000");
    named(&findings, "packets to 198.18.0.2/32 are refused");
    assert_eq!(findings.len(), 4, "{findings:#?}");
    assert!(findings.iter().all(|finding| finding.wrong && finding.command.is_none()));

    taken.release();
    a.ip(&["route", "flush", "table", "6182"]);
    let other = HostConfiguration { more: "[host_mode]\npriority = 49\nmark = 0x80000000\n", ..A };
    let findings = examine_stopped(&a, &other.write(&directory));
    assert!(findings.is_empty(), "{findings:#?}");
    let one = HostConfiguration { endpoints: &["198.18.0.2:6182"], ..other };
    let findings = examine_stopped(&a, &one.write(&directory));
    assert!(!named(&findings, "eth1 has no route from 198.18.1.1 to any known address").wrong);
    assert_eq!(findings.len(), 1, "{findings:#?}");
}

#[test]
fn a_running_daemon_is_asked_for_its_paths() {
    if !can_run(&["nft"]) {
        return;
    }
    let (a, b) = two_hosts("doctor3", 2, &[Family::V4]);
    let directory = Directory::new();
    let file = A.write(&directory);
    let daemon_b = B.start(&b, &directory);
    let daemon_a = A.start(&a, &directory);
    daemon_a.wait_for_capture(2);
    daemon_a.wait_for_paths(2);
    wait_for("it has run for a while", || daemon_a.status().uptime_ms > 5_500.0);
    wait_for("a healthy host", || examine(&a, &file).is_empty());

    // Somebody's rule takes what is to be captured.
    let rule = ["to", "198.18.1.2", "lookup", "main", "priority", "60"];
    a.ip(&[&["rule", "add"], &rule[..]].concat());
    let findings = examine(&a, &file);
    named(&findings, "packets to 198.18.1.2 leave by eth1");
    named(&findings, "is asked before mpip's");
    a.ip(&[&["rule", "del"], &rule[..]].concat());

    // The peer has told its other address: nothing is wrong with a configuration that lacks it.
    let one = HostConfiguration { endpoints: &["198.18.0.2:6182"], ..A };
    let other = Directory::new();
    let shorter = one.write(&other);
    let text = fs::read_to_string(&shorter).expect("written");
    let socket = |directory: &Directory| directory.path().display().to_string();
    let text = text.replace(&socket(&other), &socket(&directory));
    fs::write(&shorter, text).expect("writable");
    let findings = examine(&a, &shorter);
    assert!(!findings.iter().any(|finding| finding.text.contains("no route")), "{findings:#?}");

    // A path goes.
    b.nft(
        "table ip block { chain in { type filter hook prerouting priority -300; \
         iifname eth1 drop; }\n}\n",
    );
    wait_for("a failed path", || daemon_a.peer().paths.iter().any(|path| path.state == "failed"));
    let findings = examine(&a, &file);
    named(&findings, "the path from 198.18.1.1:6182 (eth1) to 198.18.1.2:6182 has failed");
    let firewall = examine(&b, &directory.join("2.toml"));
    named(&firewall, "the firewall drops UDP to port 6182 (a rule of the chain ip block in)");
    drop(daemon_b);
}
