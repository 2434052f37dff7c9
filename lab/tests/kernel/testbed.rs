//! The emulator, runs of TCP, and what a run leaves behind.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mpip_testing::{Directory, alone, can_run};

use crate::LAB;

/// A share of late frames from which on the lab says that the emulator was too slow.
const LATE: f64 = 0.01;

fn namespaces_of(pid: u32) -> Vec<String> {
    let output = Command::new("ip").args(["netns", "list"]).output().expect("ip runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let prefix = format!("mpip-lab-{pid}-");
    text.lines().filter(|line| line.starts_with(&prefix)).map(str::to_owned).collect()
}

#[test]
fn the_emulator_is_accurate_or_the_calibration_fails() {
    let _alone = alone();
    if !can_run(&[]) {
        return;
    }
    let directory = Directory::new();
    let file = directory.join("calibration.json");
    let output = Command::new(LAB)
        .args(["calibrate", "--seconds", "1", "--rate", "10", "--json"])
        .arg(&file)
        .output()
        .expect("it runs");
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|_| panic!("no calibration: {}", String::from_utf8_lossy(&output.stderr)));
    let values: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let all = |name: &str| -> Vec<f64> {
        let list = values[name].as_array().expect("a list").iter();
        list.map(|value| value.as_f64().expect("a number")).collect()
    };
    let late = values["late_share"].as_f64().expect("a share");
    if late > LATE {
        eprintln!("the machine left the emulator no time: {late:.3} of the frames were late");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && said.contains("outside its bound"), "{said}");
        return;
    }
    // Unoptimised, and wide enough for a machine that compiles beside it: `mpip-lab calibrate` has
    // the real load and the real bounds.
    for error in all("rate_errors") {
        assert!(error.abs() < 0.05, "{text}");
    }
    for added in all("added_delay_median_ms") {
        assert!((0.0..1.0).contains(&added), "{text}");
    }
    for loss in all("losses") {
        assert!((loss - 0.01).abs() < 0.01, "{text}");
    }
    for error in [all("jitter_mean_errors"), all("jitter_deviation_errors")].concat() {
        assert!(error.abs() < 0.15, "{text}");
    }
}

#[test]
fn a_run_that_is_killed_leaves_nothing_behind() {
    let _alone = alone();
    if !can_run(&[]) {
        return;
    }
    let mut lab = Command::new(LAB)
        .args(["shell", "two-100", "--exec", "sleep 60"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let until = |done: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        done()
    };
    let pid = lab.id();
    assert!(until(&|| namespaces_of(pid).len() == 3), "found {:?}", namespaces_of(pid));
    lab.kill().expect("killed");
    lab.wait().expect("ended");
    assert!(until(&|| namespaces_of(pid).is_empty()), "left {:?}", namespaces_of(pid));
    let directory = std::env::temp_dir().join(format!("mpip-lab-{pid}"));
    assert!(until(&|| !directory.exists()), "left {}", directory.display());
}

#[test]
fn plain_tcp_fills_each_link_in_runs_side_by_side_or_the_result_does_not_count() {
    let _alone = alone();
    if !can_run(&["iperf3"]) {
        return;
    }
    let directory = Directory::new();
    let scenario = directory.join("ten.toml");
    let text = std::fs::read_to_string(
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios/mhip-03.toml"),
    )
    .expect("the scenario is there");
    std::fs::write(&scenario, text.replace("duration = \"20 s\"", "duration = \"3 s\""))
        .expect("written");
    let (out, json) = (directory.join("results"), directory.join("summary.json"));
    let status = Command::new(LAB)
        .args(["run", "--systems", "tcp", "--repetitions", "1", "--jobs", "2", "--allow-busy"])
        .arg("--out")
        .arg(&out)
        .arg("--json")
        .arg(&json)
        .arg(&scenario)
        .stdout(Stdio::null())
        .status()
        .expect("it runs");
    assert!(status.success());
    let summary: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("written")).expect("JSON");
    let runs = summary.as_array().expect("a list");
    assert_eq!(runs.len(), 2, "one for each link: {summary:#}");
    for (run, (own, other)) in runs.iter().zip([("a", "b"), ("b", "a")]) {
        let limit = run["limit_bps"].as_f64().expect("a limit");
        assert!((limit / (9.3e6 * 1448.0 / 1514.0) - 1.0).abs() < 1e-6);
        let bytes = |link: &str| run["per_path_bytes"][format!("{link} forward")].as_f64();
        assert_eq!(bytes(other), Some(0.0), "{run:#}");
        if run["counts"] == false {
            let why = run["invalid"].as_array().expect("a list");
            eprintln!("the machine left the emulator no time: {why:?}");
            assert!(why.iter().all(|why| why.as_str().is_some_and(|why| why.contains("emulator"))));
            assert!(!why.is_empty(), "{run:#}");
            continue;
        }
        let ratio = run["ratio"].as_f64().expect("a ratio");
        // Slow start, and jitter that reorders, within 3 s.
        assert!((0.5..1.02).contains(&ratio), "{run:#}");
        assert!(bytes(own) > Some(0.5 * limit * 3.0 / 8.0), "{run:#}");
    }
}

#[test]
fn quic_takes_the_place_of_tcp() {
    let _alone = alone();
    if !can_run(&[]) {
        return;
    }
    let directory = Directory::new();
    let (out, json) = (directory.join("results"), directory.join("summary.json"));
    let status = Command::new(LAB)
        .args([
            "run",
            "mhip-01",
            "--senders",
            "quinn-cubic",
            "--systems",
            "tcp a",
            "--seconds",
            "3",
        ])
        .args(["--repetitions", "1", "--allow-busy", "--out"])
        .arg(&out)
        .arg("--json")
        .arg(&json)
        .stdout(Stdio::null())
        .status()
        .expect("it runs");
    assert!(status.success());
    let text = std::fs::read_to_string(&json).expect("written");
    let summary: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(summary[0]["scenario"], "mhip-01@quinn-cubic");
    let goodput = summary[0]["median_bps"].as_f64().expect("a goodput");
    let carried = summary[0]["per_path_bytes"]["a forward"].as_f64().expect("bytes");
    // How fast it is says nothing on a machine that is busy.
    assert!(goodput > 0.0 && carried * 8.0 > goodput, "{summary:#}");
}

#[test]
fn the_kernels_own_links_carry_tcp_or_say_what_is_missing() {
    let _alone = alone();
    if !can_run(&["iperf3", "tc"]) {
        return;
    }
    let out = Directory::new();
    let run = |scenario: &str| {
        let output = Command::new(LAB)
            .args(["run", "--links", "netem", "--systems", "tcp a", "--seconds", "2"])
            .args(["--repetitions", "1", "--allow-busy", "--out"])
            .arg(out.path())
            .arg(scenario)
            .output()
            .expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // Rates and queues need the token bucket only, which the lab's kernels have.
    let (whole, text) = run("two-100");
    // How much of the limit depends on what else the machine does; more than it and a bucket, none
    // may carry.
    let share = text.split("Mbit/s (").nth(1).and_then(|rest| rest.split(' ').next());
    let share: f64 = share.and_then(|share| share.parse().ok()).expect(&text);
    assert!(whole && (0.1..1.02).contains(&share), "{text}");
    let (whole, text) = run("mhip-02");
    let said = text.contains("this kernel has no netem (sch_netem), which link \"a\" needs");
    assert!(whole != said, "{text}");
}
