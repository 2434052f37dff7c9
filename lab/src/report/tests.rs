use super::*;
use crate::results::tests::run;

#[test]
fn the_report_shows_published_beside_measured_and_marks_what_does_not_count() {
    let directory = std::env::temp_dir().join(format!("mpip-lab-report-{}", std::process::id()));
    let mut store = Store::open(&directory).expect("opened");
    store.add(run("mhip-05", "mptcp", 0, 16.3)).expect("written");
    let mut bad = run("mhip-05", "mpip", 0, 12.0);
    bad.invalid.push("the processors were busy: 0.1 % idle".to_owned());
    store.add(bad).expect("written");
    drop(store);
    write(&directory).expect("a report");
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
    std::fs::remove_dir_all(&directory).expect("removed");
}
