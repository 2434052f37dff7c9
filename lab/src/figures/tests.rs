use super::*;
use crate::results::tests::run;

#[test]
fn every_case_names_a_scenario_that_has_its_systems() {
    let wanted = Wanted { cases: Vec::new(), show: true, cells: 0, markdown: false };
    let loaded = load(&wanted).expect("all are there");
    for (name, systems) in GROUPS.iter().flat_map(|group| group.scenarios) {
        let found = loaded.iter().find(|l| l.name == *name).expect("loaded");
        assert_eq!(found.scenario.systems.len(), systems.len(), "{name}");
    }
}

#[test]
fn all_that_is_asked_is_asked_of_a_row() {
    // The limit is 20 Mbit/s; published are 7, 7, 4.5 and 9.2.
    let runs = |ours: f64| {
        vec![
            run("mhip-05", "tcp a", 0, 7.0),
            run("mhip-05", "mptcp", 0, 18.5),
            run("mhip-05", "mpip", 0, ours),
        ]
    };
    let verdict = |ours: f64| checks::mhip(&Measured::of(runs(ours)))[4].clone();
    assert_eq!(verdict(18.4).yes, Some(true));
    assert_eq!(verdict(17.95).yes, Some(false), "0.97 of MPTCP, but 0.8975 of the limit");
    let row = verdict(18.1);
    assert_eq!(row.reached, "0.905; 0.98 of mptcp (18.50); 18.10");
    let others = checks::mhip(&Measured::of(runs(18.4)));
    assert_eq!(others.iter().filter(|row| row.yes.is_none()).count(), 13);
}

#[test]
fn the_time_to_reach_the_limit_is_that_of_a_whole_second() {
    let mut slow = run("delay-100", "mpip", 0, 18.0);
    slow.flows = vec![crate::flow::FlowResult {
        intervals_bps: [vec![2e6; 25], vec![19e6; 175]].concat(),
        ..Default::default()
    }];
    let row = checks::delay(&Measured::of(vec![slow.clone()]))[2].clone();
    assert_eq!((row.reached.as_str(), row.yes), ("0.950; 0.90 after 2.5 s", Some(true)));
    slow.flows[0].intervals_bps = [vec![2e6; 35], vec![19e6; 165]].concat();
    assert_eq!(checks::delay(&Measured::of(vec![slow.clone()]))[2].yes, Some(false));
    slow.flows[0].intervals_bps = vec![17e6; 200];
    let row = checks::delay(&Measured::of(vec![slow]))[2].clone();
    assert_eq!((row.reached.as_str(), row.yes), ("0.850; 0.90 never", Some(false)));
}

#[test]
fn extra_bytes_are_those_of_the_packets_on_the_link() {
    let mut full = run("two-100", "mpip", 0, 180.0);
    full.status = serde_json::json!({ "client": { "interface": { "mtu_bytes": 1440 } } });
    full.emulator.directions = vec![crate::links::DirectionRecord {
        link: "a".to_owned(),
        forward: true,
        common_length: 1475,
        ..Default::default()
    }];
    let row = checks::extra_bytes(&Measured::of(vec![full]))[0].clone();
    assert_eq!((row.reached.as_str(), row.yes), ("35", Some(false)));
}

#[test]
fn the_table_says_what_was_not_measured() {
    let mut cut = run("cut-silent-a", "mpip", 1, 90.0);
    cut.flows = vec![crate::flow::FlowResult {
        longest_pause_ms: Some(100.0),
        pauses: vec![(2.0, 100.0), (8.1, 60.0)],
        ..Default::default()
    }];
    let rows = checks::cut(&Measured::of(vec![cut]));
    let text = table::aligned(&rows);
    assert!(text.contains("60 ms at the cut; in all of it 100 ms"), "{text}");
    assert!(text.ends_with("1 reached, 0 not reached, 3 not measured\n"), "{text}");
    assert_eq!(table::markdown(&rows).lines().count(), 6);
}
