use mpip_api::{Event, EventKind};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::example;
use crate::sampler::Sampled;

/// The example after `seconds`, in each of which path 0 receives more than in the one before.
fn sampled(seconds: u64) -> Sampled {
    let mut status = example::status();
    status.uptime_ms += seconds as f64 * 1e3;
    status.peers[0].paths[0].received_bytes = seconds * seconds * 125_000;
    let event = Event {
        unix_time_ms: 1_735_689_600_000.0,
        message: "peer `gateway`: path 1 (eth1, …): active -> failed (no answer)".to_owned(),
        kind: EventKind::Path {
            peer: "gateway".to_owned(),
            path: 1,
            interface: "eth1".to_owned(),
            local: "198.18.1.1:6182".parse().expect("valid"),
            remote: "198.18.1.2:6182".parse().expect("valid"),
            from: "active".to_owned(),
            to: "failed".to_owned(),
            reason: "no answer".to_owned(),
            loss: None,
        },
    };
    let mut tried = event.clone();
    if let EventKind::Path { from, to, .. } = &mut tried.kind {
        (*from, *to) = ("validating".to_owned(), "abandoned".to_owned());
    }
    Sampled { status, events: (seconds == 0).then(|| vec![tried, event]) }
}

fn model(seconds: u64) -> Model {
    let mut model = Model::default();
    for second in 0..=seconds {
        model.take(sampled(second));
    }
    model
}

/// The screen's lines.
fn screen(model: &Model, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw::draw(model, frame)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| row(y).trim_end().to_owned()).collect()
}

fn press(model: &mut Model, code: KeyCode) -> Next {
    keys::press(model, KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn eighty_columns_show_paths_sessions_events_and_keys() {
    let lines = screen(&model(8), 80, 24);
    let expected = "\
mpip0  gateway connected by 1 of 2 paths                                  up 2 h
✕ gateway: path 1 by eth1 does not answer (198.18.1.1 to 198.18.1.2)
● eth0 to gateway: works                                 198.18.0.1 → 198.18.0.2
  ↓   15.0 Mbit/s ▁▂▃▄▅▆▇█   RTT     12.3 ms ████████  loss      1.2 % ████████
";
    let start: Vec<&str> = lines[..3].iter().map(String::as_str).collect();
    assert_eq!(start, expected.lines().take(3).collect::<Vec<_>>());
    assert!(lines[3].starts_with("  ↓   15.0 Mbit/s "), "{}", lines[3]);
    assert!(lines[3].contains("RTT") && lines[3].contains("12.3 ms"), "{}", lines[3]);
    assert!(lines[4].contains("queue") && lines[4].contains("1.50 ms"), "{}", lines[4]);
    let all = lines.join("\n");
    for part in [
        "✕ eth1 to gateway: does not answer",
        "Sessions (20000, the last used first)",
        "tcp   10.77.0.1:40000 → 10.77.0.2  4.0 kB  eth0/0 eth1/1",
        "Events (UTC)",
        "00:00:00 gateway: path 1 by eth1: active → failed (no answer)",
    ] {
        assert!(all.contains(part), "{part}\n{all}");
    }
    assert!(!all.contains("abandoned"), "what never worked is not told: {all}");
    assert_eq!(
        lines[23],
        " q  quit   ↑ ↓  scroll paths   tab  switch lists   space  pause   ?  explain"
    );
}

#[test]
fn a_path_that_carries_copies_says_how_much_they_take_now() {
    let mut model = Model::default();
    for second in 0..3 {
        let mut sampled = sampled(second);
        sampled.status.peers[0].paths[0].copied_bytes = second * 125_000;
        model.take(sampled);
    }
    let lines = screen(&model, 80, 24);
    assert!(lines[2].starts_with("● eth0 to gateway: works, copies 1.0 Mbit/s "), "{}", lines[2]);
    assert!(!lines[5].contains("copies"), "the other one never carried any: {}", lines[5]);
}

#[test]
fn bars_grow_with_the_rate_and_the_newest_is_at_the_right() {
    let lines = screen(&model(20), 120, 40);
    let bars: String = lines[3].chars().filter(|bar| ('▁'..='█').contains(bar)).collect();
    let first: Vec<char> = bars.chars().take_while(|bar| *bar != '█').collect();
    assert!(first.len() > 5 && first.is_sorted(), "{}", lines[3]);
}

#[test]
fn every_size_of_a_terminal_is_drawn() {
    let mut many = model(3);
    let peer = &mut many.status.as_mut().expect("sampled").peers[0];
    peer.paths = (0..64).map(|id| example::path(id, "active")).collect();
    for (width, height) in [(1, 1), (10, 3), (40, 12), (80, 24), (200, 60), (500, 200)] {
        assert_eq!(screen(&many, width, height).len(), usize::from(height));
        many.help = !many.help;
    }
}

#[test]
fn keys_scroll_switch_and_end() {
    let mut model = model(1);
    assert_eq!(press(&mut model, KeyCode::Down), Next::Continue);
    assert!(screen(&model, 80, 24)[2].starts_with("✕ eth1"), "scrolled by one path");
    press(&mut model, KeyCode::Down);
    assert_eq!(model.first, 1, "not beyond the last");
    press(&mut model, KeyCode::Up);
    press(&mut model, KeyCode::Tab);
    let all = screen(&model, 80, 24).join("\n");
    assert!(all.contains("Sessions") && !all.contains("Events"), "{all}");
    press(&mut model, KeyCode::Tab);
    let all = screen(&model, 80, 24).join("\n");
    assert!(!all.contains("Sessions") && all.contains("Events"), "{all}");
    press(&mut model, KeyCode::Char('?'));
    assert!(screen(&model, 80, 24).join("\n").contains("RTT: smoothed round-trip time."));
    assert_eq!(press(&mut model, KeyCode::Esc), Next::Continue, "closes the help");
    assert_eq!(press(&mut model, KeyCode::Esc), Next::End);
    assert_eq!(press(&mut model, KeyCode::Char('q')), Next::End);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(keys::press(&mut model, interrupt), Next::End);
    assert_eq!(press(&mut model, KeyCode::Char('c')), Next::Continue);
}

#[test]
fn a_screen_that_stands_still_does_not_change() {
    let mut model = model(3);
    press(&mut model, KeyCode::Char(' '));
    let before = screen(&model, 100, 30);
    assert!(before[0].contains("paused"), "{}", before[0]);
    model.take(sampled(4));
    assert_eq!(screen(&model, 100, 30), before);
    press(&mut model, KeyCode::Char(' '));
    model.take(sampled(5));
    assert_ne!(screen(&model, 100, 30), before);
}

#[test]
fn a_daemon_that_ends_is_told_and_the_last_state_stays() {
    let mut model = model(3);
    model.lose("no daemon runs: nobody listens".to_owned());
    let lines = screen(&model, 80, 24);
    assert_eq!(lines[1], "✕ no daemon runs: nobody listens");
    assert!(lines.join("\n").contains("eth0 to gateway"));
    model.take(sampled(4));
    assert!(!screen(&model, 80, 24)[1].contains("no daemon runs"));
}

#[test]
fn colours_are_left_out_where_nobody_wants_them() {
    let coloured = |colours| {
        let mut model = model(3);
        model.colours = colours;
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
        terminal.draw(|frame| draw::draw(&model, frame)).expect("drawn");
        let cells = terminal.backend().buffer().content().iter();
        cells.filter(|cell| cell.fg != ratatui::style::Color::Reset).count()
    };
    assert!(coloured(true) > 50);
    assert_eq!(coloured(false), 0);
}
