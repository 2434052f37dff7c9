use super::*;
use crate::results::Estimate;
use crate::results::tests::run;

fn figure(id: &str) -> Published {
    published().into_iter().find(|figure| figure.id == id).expect(id)
}

#[test]
fn a_figure_is_reached_where_tunnel_and_host_mode_both_reach_it() {
    let no_limit = figure("001-no-limit-mpip");
    let ours = |host: Option<f64>| {
        let mut runs = vec![run("mpip-no-limit", "mpip", 0, 180.0)];
        runs.extend(host.map(|mbps| run("mpip-no-limit", "mpip host", 0, mbps)));
        Measured::of(runs).ours(std::slice::from_ref(&no_limit))
    };
    for (host, verdict) in [
        (None, Verdict::Reached),
        (Some(175.0), Verdict::Reached),
        (Some(171.0), Verdict::NotReached),
    ] {
        let ours = ours(host);
        let [ours] = &ours[..] else { panic!("{ours:?}") };
        assert_eq!((ours.value, ours.host), (180.0, host));
        assert_eq!(Verdict::of(&no_limit, Some(ours)), verdict, "{host:?}");
    }
    assert_eq!(Verdict::of(&no_limit, None), Verdict::NotMeasured);
    let text = Verdict::NotMeasured.text(&no_limit);
    assert_eq!(text, "not measured: `mpip-lab run mpip-no-limit`");
}

#[test]
fn others_are_compared_and_never_judged_and_less_time_is_better() {
    let value = |id: &str, value: f64| {
        let figure = figure(id);
        let ours = Ours {
            id: id.to_owned(),
            value,
            host: None,
            repetitions: 1,
            commit: String::new(),
            date: String::new(),
        };
        Verdict::of(&figure, Some(&ours))
    };
    assert_eq!(value("001-no-limit-mptcp", 1.0), Verdict::Comparison);
    assert_eq!(value("000-11b-rule", 60.0), Verdict::Reached);
    assert_eq!(value("000-11b-rule", 83.0), Verdict::NotReached);
    assert_eq!(value("000-5", 83.0), Verdict::NoNumber);
    assert_eq!(value("000-4a", 3.0), Verdict::Reached);
}

#[test]
fn a_gain_is_over_the_best_path_alone() {
    let wireless = figure("004-wireless-buffer");
    let runs = [("tcp a", 10.0), ("tcp b", 8.0), ("mpip", 14.0)]
        .map(|(system, mbps)| run("mhip-wireless", system, 0, mbps));
    let measured = Measured::of(runs.into());
    let gain = measured.figure(&wireless, "mpip").expect("measured");
    assert!((gain - 40.0).abs() < 1e-9, "{gain}");
}

#[test]
fn kept_figures_are_read_as_they_are_written_and_others_are_refused() {
    let ours = Ours {
        id: "000-8".to_owned(),
        value: 0.957,
        host: Some(0.961),
        repetitions: 3,
        commit: "abc".to_owned(),
        date: day(86_400),
    };
    assert_eq!(ours.date, "1970-01-02");
    assert_eq!(Ours::read(&ours.line()), Ok(ours));
    for line in ["", "a,b", "a,x,,1,c,d", "a,1,y,1,c,d", "a,1,,z,c,d"] {
        assert!(Ours::read(line).is_err_and(|error| error.contains("expected id,ours")));
    }
}

#[test]
fn queues_are_those_of_the_path_and_shares_those_of_the_end_that_sends() {
    let (wireless, least) = (figure("000-t8-1"), figure("000-7-wireless"));
    let mut result = run("mpip-wireless", "mpip", 0, 100.0);
    for (path, queuing_ms) in [("a→a", vec![Some(1.0)]), ("b→a", vec![Some(4.0), None, Some(6.0)])]
    {
        let path = path.to_owned();
        result.estimates.push(Estimate { path, queuing_ms, ..Estimate::default() });
    }
    let daemon = |bytes: [u64; 2]| {
        let paths = bytes.map(|bytes| serde_json::json!({ "carried_bytes": bytes }));
        serde_json::json!({ "peers": [{ "paths": paths }] })
    };
    result.status = serde_json::json!({
        "client": daemon([900_000, 100_000]), "server": daemon([1_000, 3_000])
    });
    let measured = Measured::of(vec![result]);
    assert_eq!(measured.figure(&wireless, "mpip"), Some(5.0));
    assert_eq!(measured.figure(&least, "mpip"), Some(10.0));
    assert_eq!(measured.figure(&figure("000-t8-2"), "mpip"), None, "no such path");
}

#[test]
fn cells_say_which_commit_measured_them_and_when() {
    let lossy = Cell { lossy: "wifi".to_owned(), loss_percent: 10.0, bandwidths_mbps: [10.0; 2] };
    let cell = |commit: &str, time: u64, goodput_bps: f64| CellResult {
        origin: Origin { commit: commit.to_owned(), time },
        ..factorial::tests::run(0, lossy.clone(), goodput_bps)
    };
    let cells = vec![cell("new", 86_400, 15e6), cell("old", 0, 20e6), cell("old", 1, 10e6)];
    let measured = Measured { cells, ..Measured::of(Vec::new()) };
    let ours = measured.ours(&[figure("003-2a-10"), figure("003-2b-10")]);
    let [ours] = &ours[..] else { panic!("{ours:?}") };
    assert_eq!((ours.id.as_str(), ours.value, ours.repetitions), ("003-2a-10", 0.5, 3));
    assert_eq!((ours.commit.as_str(), ours.date.as_str()), ("new", "1970-01-02"));
}

#[test]
fn an_unknown_figure_is_refused_with_those_that_exist() {
    let all = published();
    let some = chosen(all.clone(), &["003".to_owned(), "000-8".to_owned()]).expect("known");
    assert!(some.len() > 1 && some.iter().all(|it| it.id.starts_with("000-8") || it.seed == "003"));
    let error = chosen(all, &["005".to_owned()]).expect_err("unknown").to_string();
    assert!(error.contains("found \"005\"; there are 000-4a, "), "{error}");
}

#[test]
fn results_that_are_missing_are_asked_for() {
    let parent = mpip_testing::Directory::new();
    let directory = parent.join("results");
    let error = load(&directory).map(drop).expect_err("no directory").to_string();
    assert_eq!(error, format!("--results: expected a directory, found {}", directory.display()));
    std::fs::create_dir_all(&directory).expect("made");
    let error = load(&directory).map(drop).expect_err("no results").to_string();
    assert_eq!(error, format!("--results: there are no results in {}", directory.display()));
    let one = none_of(Path::new("r"), &[figure("003-2a-10")]);
    let command = "`mpip-lab factorial --out r` measures 003-2a-10";
    assert_eq!(one, format!("--results: r has no result of 003-2a-10; {command}"));
    let some = none_of(Path::new("r"), &[figure("000-8"), figure("000-5")]);
    let command = "`mpip-lab run two-80-40 --out r` measures 000-8";
    assert_eq!(some, format!("--results: r has no result of these figures; {command}"));
}

#[test]
fn figures_of_other_commits_and_of_other_scenarios_are_named() {
    let two = scenarios::find("two-80-40").expect("a scenario");
    let mut old = run("two-80-40", "mpip", 0, 110.0);
    old.environment.commit = "old".to_owned();
    let figures = [figure("000-8")];
    let ours = Measured::of(vec![old.clone()]).ours(&figures);
    assert_eq!(of_other_commits(&ours, "old"), None);
    let note = of_other_commits(&ours, "new").expect("a note");
    assert_eq!(note, "1 of 1 figures are of another commit than this one, new (old: 000-8)");
    let note = of_other_texts(&[old.clone()], &figures).expect("known").expect("a note");
    assert!(note.ends_with("has changed since: two-80-40"), "{note}");
    old.scenario_hash = hash(&two.text);
    assert_eq!(of_other_texts(&[old], &figures).expect("known"), None);
}

#[test]
fn each_figure_that_is_not_reached_has_a_cause_and_no_other_has_one() {
    let ours = kept(KEPT).expect("readable");
    let missed: BTreeSet<String> = published()
        .into_iter()
        .filter(|figure| {
            let own = ours.iter().find(|ours| ours.id == figure.id);
            Verdict::of(figure, own) == Verdict::NotReached
        })
        .map(|figure| figure.id)
        .collect();
    let lines = CAUSES.lines().skip(1);
    let explained: Vec<String> = lines
        .map(|line| match line.split_once(',') {
            Some((id, cause)) if !cause.is_empty() && !cause.contains('|') => id.to_owned(),
            _ => panic!("expected an id and a cause, found {line:?}"),
        })
        .collect();
    assert_eq!(explained.len(), missed.len());
    assert_eq!(BTreeSet::from_iter(explained), missed);
    let text = Verdict::NotReached.text(&figure("000-t8-1"));
    assert!(text.starts_with("not reached, because: the link's jitter"), "{text}");
}

#[test]
fn the_document_has_the_kept_figures() {
    let ours = kept(KEPT).expect("readable");
    for ours in &ours {
        assert!(published().iter().any(|figure| figure.id == ours.id), "{}", ours.id);
    }
    let document = include_str!("../../../docs/papers.md");
    let tables = markdown(&published(), &ours);
    let present = document::updated(document, BEGIN, &tables)
        .expect("the document has a place for the tables");
    assert!(document == present, "run `mpip-lab papers --write`");
}
