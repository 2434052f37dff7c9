//! A part of the kill matrix: one of two paths is killed in every way, through UDP over IPv4 and
//! IPv6, segments of TCP, and a NAT. Each kind of path has a test, which runs beside the others.

use std::path::Path;
use std::process::Command;

use mpip_testing::{Directory, busy, can_run, skip};

use crate::LAB;

/// Whether the programs of the workspace are there; says so if not.
fn are_built() -> bool {
    let beside = |program: &str| Path::new(LAB).with_file_name(program).exists();
    let built = beside("mpipd") && beside("mpip");
    if !built {
        skip(&format!("needs mpipd and mpip beside {LAB}: build the workspace"));
    }
    built
}

/// Kills one of two paths of this kind, in a third of the ways.
fn assert_survives(via: &str) {
    let _busy = busy();
    if !can_run(&["nft"]) || !are_built() {
        return;
    }
    let out = Directory::new();
    let output = Command::new(LAB)
        .args(["kill-matrix", "--quick", "--via", via, "--out"])
        .arg(out.path())
        .output()
        .expect("it runs");
    let table = String::from_utf8_lossy(&output.stdout);
    let progress = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{table}{progress}");
    let whole = "3 cells: 0 with a reset, 0 with a corrupted transfer, 0 with another fault.";
    assert!(table.contains(whole), "{table}{progress}");
}

#[test]
fn a_connection_by_udp_over_ipv4_survives_every_kill() {
    assert_survives("ipv4");
}

#[test]
fn a_connection_by_udp_over_ipv6_survives_every_kill() {
    assert_survives("ipv6");
}

#[test]
fn a_connection_by_segments_of_tcp_survives_every_kill() {
    assert_survives("tcp");
}

#[test]
fn a_connection_through_a_nat_survives_every_kill() {
    assert_survives("nat");
}

#[test]
fn a_connection_in_host_mode_survives_every_kill() {
    assert_survives("host-mode");
}
