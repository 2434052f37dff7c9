//! What a browser draws of the report. Chromium, which few machines have, is asked for by nobody:
//! without it a test says that it is skipped, also in CI.

use std::path::Path;
use std::process::Command;

use mpip_testing::Directory;

const LAB: &str = env!("CARGO_BIN_EXE_mpip-lab");

fn chromium() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok())
}

/// A directory with results as a run writes them: two systems, one of them in a run that does
/// not count, each with throughput over time, and mpip with its estimates of four paths.
fn results() -> Directory {
    let directory = Directory::new();
    let mut text = String::new();
    for (system, repetition, goodput, invalid) in [
        ("tcp a", 0, 8.5e6, ""),
        ("mptcp", 0, 16.3e6, ""),
        ("mptcp", 1, 15.1e6, ""),
        ("mptcp", 2, 16.9e6, ""),
        ("mpip", 0, 12.0e6, "the processors were busy: 0.1 % idle"),
    ] {
        let direction = |link: &str, bytes: u64| {
            serde_json::json!({
                "link": link, "forward": true,
                "counters": {
                    "offered_packets": 0, "offered_bytes": 0, "delivered_packets": 0,
                    "delivered_bytes": 0, "duplicated": 0, "corrupted": 0, "reordered": 0,
                    "dropped_queue": 0, "dropped_codel": 0, "dropped_loss": 0, "dropped_down": 0,
                    "dropped_blackhole": 0, "dropped_too_big": 0, "max_queued_bytes": 0,
                    "max_queued_packets": 0,
                },
                "delivered": (0..200).map(|i| bytes + i % 7 * 900).collect::<Vec<u64>>(),
                "queued": (0..200).map(|i| i * 500).collect::<Vec<u64>>(),
                "dropped": vec![0; 200],
            })
        };
        let estimate = |path: &str| {
            let delays: Vec<f64> = (0..200).map(|i| f64::from(i % 9)).collect();
            serde_json::json!({ "path": path, "queuing_ms": delays, "relative_ms": delays })
        };
        let run = serde_json::json!({
            "scenario": "mhip-05", "scenario_hash": "0", "system": system, "kind": system.split(' ').next(),
            "repetition": repetition, "seed": 1, "time": 0,
            "environment": {
                "version": "0", "commit": "0", "kernel": "6.18", "cpu": "a", "cpus": 2
            },
            "goodput_bps": goodput, "limit_bps": 17.79e6, "longest_stall_ms": 100.0, "flows": [],
            "emulator": {
                "directions": [direction("a", 110_000), direction("b", 70_000)],
                "frames": 1, "late": 0, "lateness_us": [1, 2, 3], "refused": 0
            },
            "overrun": 0, "cpu_idle": 0.5, "status": null,
            "estimates": if system == "mpip" { ["a→a", "a→b", "b→a", "b→b"].map(estimate).to_vec() } else { vec![] },
            "invalid": if invalid.is_empty() { vec![] } else { vec![invalid] },
        });
        text += &run.to_string();
        text.push('\n');
    }
    std::fs::write(directory.join("results.jsonl"), text).expect("written");
    let output = Command::new(LAB).arg("report").arg(directory.path()).output().expect("it runs");
    assert!(output.status.success());
    directory
}

/// Measures the page in the browser: what is drawn, where, and in which colours.
const MEASURE: &str = r#"
const luminance = c => {
  const v = c.match(/[\d.]+/g).slice(0, 3).map(x => x / 255)
    .map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2];
};
const contrast = (a, b) => {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
};
const paper = getComputedStyle(document.documentElement).backgroundColor;
const result = { paper, svgs: [], overlaps: [], outside: [], weakest: 99,
  overflow: document.documentElement.scrollWidth - innerWidth };
for (const svg of document.querySelectorAll('svg.plot')) {
  const box = svg.getBoundingClientRect();
  const lines = [...svg.querySelectorAll('polyline')].map(line => {
    const b = line.getBoundingClientRect();
    return { points: line.points.length, width: b.width / box.width, height: b.height / box.height,
      stroke: getComputedStyle(line).stroke };
  });
  const boxes = [...svg.querySelectorAll('rect.box')].map(r => r.getBoundingClientRect().x - box.x);
  result.svgs.push({ title: svg.querySelector('title').textContent, width: box.width,
    height: box.height, lines, boxes });
  const texts = [...svg.querySelectorAll('text')];
  const places = texts.map(t => t.getBoundingClientRect());
  texts.forEach((text, i) => {
    const a = places[i];
    if (a.left < box.left - 1 || a.right > box.right + 1 || a.top < box.top - 1
        || a.bottom > box.bottom + 1) result.outside.push(text.textContent);
    for (let j = i + 1; j < texts.length; j++) {
      const b = places[j];
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
          && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
        result.overlaps.push(text.textContent + ' / ' + texts[j].textContent);
    }
    result.weakest = Math.min(result.weakest, contrast(getComputedStyle(text).fill, paper));
  });
}
for (const cell of document.querySelectorAll('p, td, th, a, summary'))
  result.weakest = Math.min(result.weakest, contrast(getComputedStyle(cell).color, paper));
document.body.innerHTML = '<pre id="measured">' + JSON.stringify(result) + '</pre>';
"#;

fn measure(browser: &str, directory: &Path, scheme: &str) -> serde_json::Value {
    let html = std::fs::read_to_string(directory.join("report.html")).expect("written");
    // What the system prefers, and that it prints, cannot be told to every version of Chromium.
    let only = |wanted: &str| if scheme == wanted { "@media all" } else { "@media not all" };
    let html = html.replace("@media (prefers-color-scheme: dark)", only("dark"));
    let html = html.replace("@media print", only("print"));
    // What margins of 12 mm leave of A4, in CSS pixels.
    let width = if scheme == "print" { 703 } else { 1100 };
    let page = directory.join(format!("{scheme}.html"));
    std::fs::write(&page, html.replace("</body>", &format!("<script>{MEASURE}</script></body>")))
        .expect("written");
    let output = Command::new("timeout")
        .args(["60", browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args([&format!("--window-size={width},900"), "--virtual-time-budget=3000"])
        .arg(format!("--user-data-dir={}", directory.join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("it runs");
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let measured = dom
        .split("<pre id=\"measured\">")
        .nth(1)
        .and_then(|rest| rest.split("</pre>").next())
        .unwrap_or_else(|| panic!("nothing measured: {}", String::from_utf8_lossy(&output.stderr)));
    let measured = measured.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
    serde_json::from_str(&measured).expect("JSON")
}

#[test]
fn the_browser_draws_every_plot_legibly_in_light_dark_and_print() {
    let Some(browser) = chromium() else {
        return mpip_testing::skip_always("needs Chromium");
    };
    let directory = results();
    let mut papers = Vec::new();
    for scheme in ["light", "dark", "print"] {
        let page = measure(browser, directory.path(), scheme);
        assert_eq!(page["overlaps"], serde_json::json!([]), "{scheme}: texts on each other");
        assert_eq!(page["outside"], serde_json::json!([]), "{scheme}: texts outside their plot");
        assert!(page["overflow"].as_f64().expect("a number") <= 0.0, "{scheme}: {page:#}");
        assert!(page["weakest"].as_f64().expect("a number") >= 4.5, "{scheme}: contrast {page:#}");
        let svgs = page["svgs"].as_array().expect("a list");
        // Goodput, throughput and queue of two systems, estimates of one.
        assert_eq!(svgs.len(), 6, "{scheme}");
        let boxes = svgs[0]["boxes"].as_array().expect("a list");
        let at: Vec<f64> = boxes.iter().map(|x| x.as_f64().expect("a number")).collect();
        // TCP's 8.5, the upper half of MPTCP's 15.1 to 16.9, mpip's 12 Mbit/s, from the left.
        assert_eq!(at.len(), 3);
        assert!(at[0] < at[2] && at[2] < at[1], "{at:?}");
        for svg in &svgs[1..] {
            assert!(svg["width"].as_f64().expect("a number") > 500.0);
            let lines = svg["lines"].as_array().expect("a list");
            let title = svg["title"].as_str().expect("a text");
            let expected = if title.contains("that the sender estimates") { 4 } else { 2 };
            assert_eq!(lines.len(), expected, "{svg:#}");
            assert_ne!(lines[0]["stroke"], lines[1]["stroke"]);
            for line in lines {
                assert_eq!(line["points"], 200);
                assert!(line["width"].as_f64().expect("a number") > 0.8, "{svg:#}");
            }
        }
        papers.push(page["paper"].clone());
    }
    assert_ne!(papers[0], papers[1]);
    assert_eq!(papers[0], papers[2]);
}

#[test]
fn the_report_needs_no_network() {
    let directory = results();
    let html = std::fs::read_to_string(directory.join("report.html")).expect("written");
    for forbidden in ["src=", "<link", "@import", "url(", "<script"] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    let addresses = html.matches("://").count();
    assert_eq!(addresses, html.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
}
