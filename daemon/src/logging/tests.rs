use std::sync::Once;

use mpip_api::EventKind;

use super::*;

fn failed() -> EventKind {
    EventKind::Path {
        peer: "gateway".to_owned(),
        path: 3,
        interface: "wwan0".to_owned(),
        local: "198.18.0.1:6182".parse().expect("valid"),
        remote: "198.18.0.2:6182".parse().expect("valid"),
        from: "active".to_owned(),
        to: "failed".to_owned(),
        reason: "no answer".to_owned(),
        loss: None,
    }
}

/// What the log of this process has written, by thread.
fn logged(format: Format, write_line: impl FnOnce()) -> String {
    thread_local! {
        static LINES: std::cell::RefCell<(Format, Vec<u8>)> = std::cell::RefCell::default();
    }
    struct Logger;
    impl log::Log for Logger {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }
        fn log(&self, record: &Record<'_>) {
            LINES.with_borrow_mut(|(format, lines)| {
                write(lines, *format, Duration::from_secs(1), record, 0).expect("memory");
            });
        }
        fn flush(&self) {}
    }
    static START: Once = Once::new();
    START.call_once(|| {
        log::set_logger(&Logger).expect("no other logger in these tests");
        log::set_max_level(LevelFilter::Info);
    });
    LINES.with_borrow_mut(|lines| *lines = (format, Vec::new()));
    write_line();
    LINES.with_borrow(|(_, lines)| String::from_utf8(lines.clone()).expect("text"))
}

#[test]
fn an_event_has_its_fields_in_json() {
    let line = logged(Format::Json, || event(Level::Info, "path 3 failed", &failed()));
    assert_eq!(line.matches('\n').count(), 1);
    let start = r#"{"time":"1970-01-01T00:00:01.000Z","level":"info","message":"path 3 failed","#;
    assert!(line.starts_with(start), "{line}");
    let json: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let expected = serde_json::json!({
        "time": "1970-01-01T00:00:01.000Z", "level": "info", "message": "path 3 failed",
        "event": "path", "peer": "gateway", "path": 3, "interface": "wwan0",
        "local": "198.18.0.1:6182", "remote": "198.18.0.2:6182", "from": "active", "to": "failed",
        "reason": "no answer",
    });
    assert_eq!(json, expected);
    let line = logged(Format::Json, || log::warn!("a \"quote\"\nand a line"));
    let json: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(json["message"], "a \"quote\"\nand a line");
    assert_eq!((json["level"].as_str(), line.matches('\n').count()), (Some("warn"), 1));
}

#[test]
fn a_person_reads_one_line() {
    let line = logged(Format::Text, || event(Level::Info, "path 3 failed", &failed()));
    assert_eq!(line, "1970-01-01T00:00:01.000Z INFO  path 3 failed\n");
}

#[test]
fn the_journal_gets_fields_and_lines_cannot_forge_any() {
    let entry = logged(Format::Journald, || event(Level::Error, "path 3 failed", &failed()));
    let lines: Vec<&str> = entry.lines().collect();
    assert_eq!(lines[..3], ["MESSAGE=path 3 failed", "PRIORITY=3", "SYSLOG_IDENTIFIER=mpipd"]);
    assert!(lines.contains(&"MPIP_EVENT=path") && lines.contains(&"MPIP_PATH=3"), "{lines:?}");
    let entry = logged(Format::Journald, || log::info!("one\nPRIORITY=0"));
    let length = ["one\nPRIORITY=0".len() as u8, 0, 0, 0, 0, 0, 0, 0];
    let length = std::str::from_utf8(&length).expect("ASCII");
    assert!(
        entry.starts_with(&format!("MESSAGE\n{length}one\nPRIORITY=0\nPRIORITY=6\n")),
        "{entry:?}"
    );
}

#[test]
fn warnings_that_repeat_become_few_lines_and_are_counted() {
    let mut repeats = Repeats::default();
    let mut ask = |seconds: u64, line, level| {
        let record = Record::builder().file(Some("a.rs")).line(Some(line)).level(level).build();
        repeats.permit(Duration::from_secs(1_000 + seconds), &record)
    };
    let hour: Vec<u64> = (0..3_600).filter_map(|second| ask(second, 1, Level::Warn)).collect();
    assert!((100..140).contains(&hour.len()), "{}", hour.len());
    assert_eq!(hour.last(), Some(&29));
    assert_eq!(ask(3_599, 2, Level::Warn), Some(0), "another place");
    assert_eq!((0..100).filter(|_| ask(3_599, 1, Level::Info).is_some()).count(), 100);
}

#[test]
fn formats_have_names() {
    assert_eq!("json".parse(), Ok(Format::Json));
    assert_eq!("journald".parse(), Ok(Format::Journald));
    assert_eq!("xml".parse::<Format>(), Err("expected text, json or journald".to_owned()));
}
