use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use super::*;
use crate::example;

/// The example with every optional part, and a name that needs escaping.
fn full() -> Status {
    let mut status = example::status();
    let peer = &mut status.peers[0];
    peer.name = "a \"b\" \\ c".to_owned();
    peer.traffic = Some("plain".to_owned());
    let path = &mut peer.paths[0];
    (path.min_rtt_ms, path.pacing_rate_bps) = (Some(1.5), Some(8_000));
    status.budgets.push(mpip_api::BudgetStatus {
        interface: "eth0".to_owned(),
        label: None,
        budget_bytes: 2_000_000_000,
        used_bytes: 5,
        period: "day".to_owned(),
        period_ends_unix_s: 86_400,
        used_up: false,
    });
    status.events = vec![mpip_api::Counter { name: "path".to_owned(), count: 3 }];
    status
}

/// The names of all families in `text`.
fn names(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn values_are_in_base_units_and_labels_escaped() {
    let text = render(&full());
    for line in [
        "mpip_up 1",
        r#"mpip_build_info{version="0.1.0"} 1"#,
        "mpip_uptime_seconds 7320",
        r#"mpip_drops_total{cause="tcp_reset_ignored"} 2"#,
        r#"mpip_events_total{event="path"} 3"#,
        r#"mpip_budget_bytes{interface="eth0",period="day"} 2000000000"#,
        r#"mpip_budget_used_bytes{interface="eth0",period="day"} 5"#,
        r#"mpip_peer_traffic{peer="a \"b\" \\ c",traffic="plain"} 1"#,
        r#"mpip_peer_traffic{peer="a \"b\" \\ c",traffic="blocked"} 0"#,
        r#"mpip_path_rtt_seconds{peer="a \"b\" \\ c",path="0",interface="eth0"} 0.012345"#,
        r#"mpip_path_pacing_rate_bytes_per_second{peer="a \"b\" \\ c",path="0",interface="eth0"} 1000"#,
        r#"mpip_path_state{peer="a \"b\" \\ c",path="1",interface="eth1",state="failed"} 1"#,
        r#"mpip_path_state{peer="a \"b\" \\ c",path="1",interface="eth1",state="active"} 0"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let of_path_1 = "mpip_path_min_rtt_seconds{peer=\"a \\\"b\\\" \\\\ c\",path=\"1\"";
    assert!(!text.contains(of_path_1), "a value that is not known has no sample");
}

#[test]
fn names_are_as_prometheus_asks() {
    let text = render(&full());
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').expect("name and kind");
        assert!(name.starts_with("mpip_"), "{name}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
        for unit in ["_ms", "_bps", "_percent", "_bits"] {
            assert!(!name.contains(unit), "{name}: base units are seconds, bytes and ratios");
        }
        let help = format!("# HELP {name} ");
        assert_eq!(text.lines().filter(|line| line.starts_with(&help)).count(), 1, "{name}");
    }
}

#[test]
fn every_sample_follows_its_family_and_no_series_comes_twice() {
    let mut status = full();
    status.peers.push(example::status().peers.remove(0));
    let text = render(&status);
    let (mut family, mut series, mut families) = ("", BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(named) = line.strip_prefix("# TYPE ") {
            family = named.split(' ').next().expect("a name");
            assert!(families.insert(family), "{family} comes twice");
        } else if !line.starts_with('#') {
            let (labelled, value) = line.rsplit_once(' ').expect("a value");
            assert_eq!(labelled.split('{').next(), Some(family));
            assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
            assert!(series.insert(labelled), "{labelled} comes twice");
        }
    }
}

#[test]
fn without_a_daemon_the_page_says_that_it_is_down() {
    assert!(down().ends_with("\nmpip_up 0\n"));
    assert_eq!(names(&down()), BTreeSet::from(["mpip_up".to_owned()]));
}

/// `promtool check metrics` parses the text as Prometheus does, and judges names and units. It is
/// in Debian's package `prometheus`; `make metrics` installs it. The other tests here are the rules
/// that it checks, so it is not asked for where all tests must run.
#[test]
fn promtool_accepts_the_text() {
    let spawned = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = match spawned {
        Ok(promtool) => promtool,
        Err(_) => {
            assert!(std::env::var_os("MPIP_TEST_PROMTOOL").is_none(), "promtool is missing");
            eprintln!("skipped: needs promtool (`make metrics` installs it)");
            return;
        }
    };
    let text = render(&full());
    promtool.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let output = promtool.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// Every metric that the dashboard names is one of ours.
#[test]
fn the_dashboard_names_metrics_that_exist() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../contrib/grafana-mpip.json");
    let text = std::fs::read_to_string(file).expect("the dashboard exists");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let known = names(&render(&full()));
    let mut named = BTreeSet::new();
    let mut queries = vec![&dashboard];
    while let Some(value) = queries.pop() {
        match value {
            serde_json::Value::Object(map) => queries.extend(map.values()),
            serde_json::Value::Array(list) => queries.extend(list),
            serde_json::Value::String(text) => {
                let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                named.extend(words.filter(|word| word.starts_with("mpip_")));
            }
            _ => {}
        }
    }
    assert!(named.len() >= 10, "{named:?}");
    for name in named {
        assert!(known.contains(name), "{name} is in the dashboard and in no page of metrics");
    }
}
