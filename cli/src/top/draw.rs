//! The model on the screen.
//!
//! ```text
//! mpip0  gateway connected by 2 paths                               up 2 h
//! ✕ what is wrong, a line for each thing
//! ● wlan0 to gateway: works                       198.18.1.1 → 198.18.1.2
//!   ↓ 78.9 Mbit/s ▂▃▅▇▇▇   RTT   12.3 ms ▂▂▂▃   loss   0.1 % ▁▁▁
//!   ↑  1.2 Mbit/s ▁▁▁▁▁▁   queue 1.20 ms ▂▂▂▂
//! Sessions ───────────────────────────────────────────────────────────────
//! Events ─────────────────────────────────────────────────────────────────
//! q quit  ↑ ↓ scroll paths  …
//! ```

use std::collections::VecDeque;

use mpip_api::{PathStatus, PeerStatus, SessionStatus, Status, rfc3339};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, RenderDirection, Sparkline, Wrap};

use super::keys::KEYS;
use super::model::{History, Model, Panel, paths};
use crate::units::{bytes, duration, rate};
use crate::words::{self, Condition};

/// Lines of a path.
const PATH: u16 = 3;

/// Problems that are shown.
const PROBLEMS: usize = 3;

/// Columns of text before a sparkline.
const LABEL: u16 = 18;

/// Fewest lines that sessions and events keep.
const LOWER: u16 = 6;

struct Canvas<'a, 'b> {
    model: &'a Model,
    frame: &'a mut Frame<'b>,
}

/// Draws everything.
pub(super) fn draw(model: &Model, frame: &mut Frame<'_>) {
    let Some(status) = &model.status else { return };
    let mut problems = words::problems(status);
    if let Some(error) = &model.error {
        problems.insert(0, error.clone());
    }
    let wrong = problems.len().min(PROBLEMS) as u16;
    let area = frame.area();
    let room = area.height.saturating_sub(2 + wrong + LOWER).max(PATH);
    let count = (model.path_count() - model.first.min(model.path_count())) as u16;
    let upper = room.min(count.saturating_mul(PATH)) / PATH * PATH;
    let [head, notes, upper, lower, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(wrong),
        Constraint::Length(upper),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    let mut canvas = Canvas { model, frame };
    canvas.head(status, head);
    let red = canvas.style(Condition::Wrong);
    let shown = problems.iter().take(PROBLEMS);
    let lines: Vec<Line<'_>> =
        shown.map(|problem| Line::styled(format!("✕ {problem}"), red)).collect();
    canvas.frame.render_widget(Paragraph::new(lines), notes);
    canvas.paths(status, upper);
    canvas.lower(status, lower);
    canvas.keys(keys);
    if model.help {
        canvas.help(area);
    }
}

impl Canvas<'_, '_> {
    fn style(&self, condition: Condition) -> Style {
        let colour = match condition {
            Condition::Good => Color::Green,
            Condition::Spare => Color::Yellow,
            Condition::Wrong => Color::Red,
        };
        if self.model.colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn colour(&self, colour: Color) -> Style {
        if self.model.colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn head(&mut self, status: &Status, area: Rect) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let healthy = self.model.error.is_none() && words::problems(status).is_empty();
        let condition = if healthy { Condition::Good } else { Condition::Spare };
        let mut line = vec![
            Span::styled(format!("{}  ", status.interface.name), bold),
            Span::styled(words::summary(status), self.style(condition)),
        ];
        if self.model.paused {
            line.push(Span::styled("  paused", self.style(Condition::Spare)));
        }
        self.frame.render_widget(Line::from(line), area);
        let up = format!("up {}", duration(Some(status.uptime_ms)));
        self.frame.render_widget(Line::from(up).right_aligned(), area);
    }

    fn paths(&mut self, status: &Status, area: Rect) {
        let shown = usize::from(area.height / PATH);
        for (index, (peer, path)) in paths(status).skip(self.model.first).take(shown).enumerate() {
            let y = area.y + index as u16 * PATH;
            self.path(peer, path, Rect { y, height: PATH, ..area });
        }
    }

    fn path(&mut self, peer: &PeerStatus, path: &PathStatus, area: Rect) {
        let [title, above, below] = Layout::vertical([Constraint::Length(1); 3]).areas(area);
        let (condition, state) = words::path_state(path);
        let mark = match condition {
            Condition::Good => "●",
            Condition::Spare => "◐",
            Condition::Wrong => "✕",
        };
        let name = format!("{mark} {} to {}", path.interface_name(), peer.name);
        let now = self.model.rates.of(&peer.name, path.id);
        let text = |value: Option<u64>| value.map_or("-".to_owned(), rate);
        let mut line = Line::from(vec![
            Span::styled(name, Style::new().add_modifier(Modifier::BOLD)),
            Span::styled(format!(": {state}"), self.style(condition)),
        ]);
        if path.copied_bytes > 0 {
            let copies = text(now.map(|now| now.copied_bps));
            line.push_span(format!(", copies {copies}"));
        }
        let ends = format!("{} → {}", path.local.ip(), path.remote.ip());
        let dim = Style::new().add_modifier(Modifier::DIM);
        // Where not both have room, the state is more important.
        if line.width() + ends.chars().count() + 2 <= usize::from(title.width) {
            self.frame.render_widget(Line::styled(ends, dim).right_aligned(), title);
        }
        self.frame.render_widget(line, title);

        let empty = History::default();
        let history = self.model.history(&peer.name, path.id).unwrap_or(&empty);
        let works = words::works(path);
        let (down, up) = (now.map(|now| now.received_bps), now.map(|now| now.sent_bps));
        // Both directions have one scale.
        let most = history.received_bps.iter().chain(&history.sent_bps).max().copied();
        let columns = [Constraint::Fill(1); 3];
        let [left, middle, right] = Layout::horizontal(columns).spacing(2).areas(above);
        self.spark("  ↓", &text(down), &history.received_bps, most, Color::Blue, left);
        let rtt = duration(path.rtt_ms.filter(|_| works));
        self.spark("RTT", &rtt, &history.rtt_us, None, Color::Cyan, middle);
        let loss = if works { format!("{:.1} %", path.loss * 100.0) } else { "-".to_owned() };
        // Below 2 % the bars stay low.
        let scale = history.loss_ppm.iter().copied().max().map(|most| most.max(20_000));
        self.spark("loss", &loss, &history.loss_ppm, scale, Color::Red, right);
        let [left, middle, right] = Layout::horizontal(columns).spacing(2).areas(below);
        self.spark("  ↑", &text(up), &history.sent_bps, most, Color::Magenta, left);
        let queue = if works { duration(Some(path.queuing_delay_ms)) } else { "-".to_owned() };
        let scale = history.queue_us.iter().copied().max().map(|most| most.max(5_000));
        self.spark("queue", &queue, &history.queue_us, scale, Color::Yellow, middle);
        let sent = format!("{} sent", bytes(path.sent_bytes));
        self.frame.render_widget(Line::styled(sent, dim), right);
    }

    /// A name and its value, and the last values as bars, the newest at the right end.
    fn spark(
        &mut self,
        name: &str,
        value: &str,
        values: &VecDeque<u64>,
        most: Option<u64>,
        colour: Color,
        area: Rect,
    ) {
        let [label, bars] =
            Layout::horizontal([Constraint::Length(LABEL), Constraint::Fill(1)]).areas(area);
        let gap = usize::from(LABEL - 1).saturating_sub(name.chars().count());
        self.frame.render_widget(Line::from(format!("{name}{value:>gap$}")), label);
        let data: Vec<u64> = values.iter().rev().copied().collect();
        let mut chart = Sparkline::default()
            .data(data)
            .direction(RenderDirection::RightToLeft)
            .style(self.colour(colour));
        if let Some(most) = most.filter(|most| *most > 0) {
            chart = chart.max(most);
        }
        self.frame.render_widget(chart, bars);
    }

    fn lower(&mut self, status: &Status, area: Rect) {
        let [sessions, events] = match self.model.panel {
            Panel::Both => {
                Layout::vertical([Constraint::Percentage(55), Constraint::Fill(1)]).areas(area)
            }
            Panel::Sessions => [area, Rect { height: 0, ..area }],
            Panel::Events => [Rect { height: 0, ..area }, area],
        };
        if sessions.height > 0 {
            self.sessions(status, sessions);
        }
        if events.height > 0 {
            let shown = self.model.events.iter().filter(|event| words::matters(event));
            let lines = shown.map(|event| {
                let time = rfc3339(event.unix_time_ms);
                // Only the time of day, in UTC as everywhere in the terminal.
                let time = time.get(11..19).unwrap_or_default();
                Line::from(format!("{time} {}", words::event(event)))
            });
            self.list("Events (UTC)", lines.take(usize::from(events.height)).collect(), events);
        }
    }

    fn sessions(&mut self, status: &Status, area: Rect) {
        let mut all: Vec<(&PeerStatus, &SessionStatus)> = status
            .peers
            .iter()
            .flat_map(|peer| peer.sessions.iter().map(move |session| (peer, session)))
            .collect();
        all.sort_by(|a, b| a.1.idle_ms.total_cmp(&b.1.idle_ms));
        let count: u64 = status.peers.iter().filter_map(|peer| peer.session_count).sum();
        let lines = all
            .iter()
            .take(usize::from(area.height))
            .map(|(peer, session)| Line::from(session_text(peer, session)));
        self.list(&format!("Sessions ({count}, the last used first)"), lines.collect(), area);
    }

    fn list(&mut self, title: &str, lines: Vec<Line<'_>>, area: Rect) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let block = Block::new().borders(Borders::TOP).title(Span::styled(title, bold));
        self.frame.render_widget(Paragraph::new(lines).block(block), area);
    }

    fn keys(&mut self, area: Rect) {
        let reversed = Style::new().add_modifier(Modifier::REVERSED);
        let spans = KEYS.iter().flat_map(|(key, what)| {
            [Span::styled(format!(" {key} "), reversed), Span::raw(format!(" {what}  "))]
        });
        self.frame.render_widget(Line::from(spans.collect::<Vec<_>>()), area);
    }

    fn help(&mut self, area: Rect) {
        let text = "↓ and ↑: what the path receives and sends now, with all overhead.\n\
                    copies: what of ↑ is sent by other paths at the same time (redundant).\n\
                    RTT: smoothed round-trip time.\n\
                    loss: share of packets lost over the last seconds.\n\
                    queue: delay beyond the lowest of late; high where a link is full.\n\
                    Each bar is a second, the newest at the right.\n\n\
                    ● works   ◐ works less than it could, or is spare   ✕ does not work\n\n\
                    A session is one connection in one direction; at its end stand the paths \
                    that it used in the last seconds.\n\n\
                    mpip status --verbose has the engine's inner figures.";
        let (width, height) = (area.width.min(72), area.height.min(20));
        let x = area.x + (area.width - width) / 2;
        let y = area.y + (area.height - height) / 2;
        let area = Rect { x, y, width, height };
        let block = Block::bordered().title(" What this shows (? closes) ");
        self.frame.render_widget(Clear, area);
        let text = Paragraph::new(text).wrap(Wrap { trim: true }).block(block);
        self.frame.render_widget(text, area);
    }
}

fn session_text(peer: &PeerStatus, session: &SessionStatus) -> String {
    let arrow = if session.outgoing { "→" } else { "←" };
    let (here, there) = match session.outgoing {
        true => (session.source, session.destination),
        false => (session.destination, session.source),
    };
    let interfaces: Vec<String> = session
        .paths
        .iter()
        .filter_map(|id| peer.paths.iter().find(|path| path.id == *id))
        .map(|path| format!("{}/{}", path.interface, path.id))
        .collect();
    format!(
        "{:<5} {} {arrow} {}  {}  {}",
        words::protocol(session.protocol),
        words::end(here),
        words::end(there),
        bytes(session.inner_bytes),
        if interfaces.is_empty() {
            format!("idle {}", duration(Some(session.idle_ms)))
        } else {
            interfaces.join(" ")
        }
    )
}
