use mpip_testing::Directory;

use super::*;
use crate::lines::Lines;
use crate::results::tests::run;
use crate::results::{Estimate, FILE};

#[test]
fn the_report_shows_published_beside_measured_and_marks_what_does_not_count() {
    let directory = Directory::new();
    let mut lines = Lines::open(directory.path(), FILE).expect("opened");
    lines.add(&run("mhip-05", "mptcp", 0, 16.3)).expect("written");
    let mut bad = run("mhip-05", "mpip", 0, 12.0);
    bad.invalid.push("the processors were busy: 0.1 % idle".to_owned());
    lines.add(&bad).expect("written");
    write(directory.path()).expect("a report");
    let html = std::fs::read_to_string(directory.join("report.html")).expect("written");
    assert!(html.contains("<td>4.5 ± 0.01</td><td>16.30</td>"));
    assert!(html.contains("<td>(0.600)</td>"));
    assert!(html.contains("0 of 1<div class=\"bad\">the processors were busy"));
    assert!(
        !html.contains("http://")
            || html.matches("http://").count() == html.matches("xmlns=").count()
    );
    let svg = std::fs::read_to_string(directory.join("plots/mhip-05-goodput.svg"));
    assert!(svg.expect("a plot").contains("box faded"));
}

#[test]
fn the_queuing_delay_of_every_path_is_drawn_over_time_with_gaps_where_it_does_not_work() {
    let directory = Directory::new();
    let mut lines = Lines::open(directory.path(), FILE).expect("opened");
    let mut result = run("dynamic-4-2-4", "mpip", 0, 180.0);
    let steady = vec![Some(1.0); 300];
    let mut leaves = steady.clone();
    leaves[100..200].fill(None);
    for (path, queuing_ms) in
        [("a→a", &steady), ("a→b", &steady), ("b→a", &leaves), ("b→b", &leaves)]
    {
        let (path, queuing_ms) = (path.to_owned(), queuing_ms.clone());
        result.estimates.push(Estimate { path, queuing_ms, ..Estimate::default() });
    }
    result.emulator.sample_ms = 100.0;
    lines.add(&result).expect("written");
    write(directory.path()).expect("a report");
    let svg = std::fs::read_to_string(directory.join("plots/dynamic-4-2-4-mpip-estimate.svg"))
        .expect("a plot");
    assert!(svg.contains("mpip: queuing delay that the sender estimates"), "{svg}");
    for path in ["a→a", "a→b", "b→a", "b→b"] {
        assert!(svg.contains(&format!(">{path}</text>")), "{path}: {svg}");
    }
    // Two whole lines, and two in two parts.
    assert_eq!(svg.matches("<polyline").count(), 2 + 2 * 2);
    assert_eq!(svg.matches("<polyline class=\"line s3\"").count(), 2);
    assert!(!svg.contains("NaN"), "{svg}");
    assert_eq!(svg.matches("class=\"mark\"").count(), 2, "both events");
}
