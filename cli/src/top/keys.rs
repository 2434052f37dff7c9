//! What the keys do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::{Model, Panel};

/// Keys and what they do, as the screen explains them.
pub(super) const KEYS: [(&str, &str); 5] = [
    ("q", "quit"),
    ("↑ ↓", "scroll paths"),
    ("tab", "switch lists"),
    ("space", "pause"),
    ("?", "explain"),
];

/// Whether the program goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Continue,
    End,
}

/// A key was pressed.
pub(super) fn press(model: &mut Model, key: KeyEvent) -> Next {
    let last = model.path_count().saturating_sub(1);
    match key.code {
        // In raw mode the terminal makes no signal of it.
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Next::End,
        KeyCode::Esc if model.help => model.help = false,
        KeyCode::Char('q') | KeyCode::Esc => return Next::End,
        KeyCode::Up | KeyCode::Char('k') => model.first = model.first.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => model.first = (model.first + 1).min(last),
        KeyCode::Home => model.first = 0,
        KeyCode::End => model.first = last,
        KeyCode::Tab => {
            model.panel = match model.panel {
                Panel::Both => Panel::Sessions,
                Panel::Sessions => Panel::Events,
                Panel::Events => Panel::Both,
            }
        }
        KeyCode::Char(' ') => model.paused = !model.paused,
        KeyCode::Char('?' | 'h') => model.help = !model.help,
        _ => {}
    }
    Next::Continue
}
