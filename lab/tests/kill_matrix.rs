//! A part of the kill matrix on this machine's kernel: one of two paths is killed in every way,
//! through UDP over IPv4 and IPv6, segments of TCP, and a NAT. Needs root.

use std::path::Path;
use std::process::Command;

use mpip_testing::{can_run, skip};

const LAB: &str = env!("CARGO_BIN_EXE_mpip-lab");

/// Whether the programs of the workspace are there; says so if not.
fn are_built() -> bool {
    let beside = |program: &str| Path::new(LAB).with_file_name(program).exists();
    let built = beside("mpipd") && beside("mpip");
    if !built {
        skip(&format!("needs mpipd and mpip beside {LAB}: build the workspace"));
    }
    built
}

#[test]
fn no_connection_is_reset_or_corrupted_when_one_of_two_paths_is_killed() {
    if !can_run(&["nft"]) || !are_built() {
        return;
    }
    let out = std::env::temp_dir().join(format!("mpip-lab-test-{}-kill", std::process::id()));
    let output = Command::new(LAB)
        .args(["kill-matrix", "--quick", "--out"])
        .arg(&out)
        .output()
        .expect("it runs");
    let _ = std::fs::remove_dir_all(&out);
    let table = String::from_utf8_lossy(&output.stdout);
    let progress = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{table}{progress}");
    let whole = "15 cells: 0 with a reset, 0 with a corrupted transfer, 0 with another fault.";
    assert!(table.contains(whole), "{table}{progress}");
}
