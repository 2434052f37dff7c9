//! What people ask of the status: what is wrong, and what each path does.

use std::fmt::Write;

use mpip_api::{PathStatus, PeerStatus, Status};

use super::sessions;
use crate::rates::Rates;
use crate::table::{Align, Cell, Colour, Table};
use crate::units::{bytes, duration, rate};
use crate::words::{self, Condition};

/// Problems that are listed one by one.
const LISTED: usize = 5;

impl From<Condition> for Colour {
    fn from(condition: Condition) -> Self {
        match condition {
            Condition::Good => Self::Green,
            Condition::Spare => Self::Yellow,
            Condition::Wrong => Self::Red,
        }
    }
}

/// The state as text.
pub(super) fn render(status: &Status, rates: &Rates, sessions: bool, colours: bool) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "{} up {}: {}",
        status.interface.name,
        duration(Some(status.uptime_ms)),
        words::summary(status)
    );
    let problems = words::problems(status);
    let wrong = Colour::Red.paint("wrong", colours);
    for problem in problems.iter().take(LISTED) {
        let _ = writeln!(out, "{wrong}: {problem}");
    }
    if let Some(more) = problems.len().checked_sub(LISTED).filter(|more| *more > 0) {
        let _ = writeln!(out, "{wrong}: {more} more of the kind (--json lists them)");
    }
    for budget in words::budgets(status) {
        let _ = writeln!(out, "{budget}");
    }
    for peer in &status.peers {
        render_peer(&mut out, peer, rates, colours);
        if sessions {
            out.push_str(&sessions::render(peer, colours));
        }
    }
    out
}

fn render_peer(out: &mut String, peer: &PeerStatus, rates: &Rates, colours: bool) {
    let (condition, state) = words::peer_state(peer);
    let _ = write!(out, "\n{}: {}", peer.name, Colour::from(condition).paint(state, colours));
    if peer.sent_bytes > 0 || peer.received_bytes > 0 {
        let (sent, received) = (bytes(peer.sent_bytes), bytes(peer.received_bytes));
        let _ = write!(out, ", {sent} sent, {received} received");
    }
    match peer.traffic.as_deref() {
        Some("multipath") => out.push_str(", its own addresses use the paths"),
        Some("plain") => out.push_str(", its packets travel as plain IP"),
        Some("blocked") => out.push_str(", its packets are refused"),
        _ => {}
    }
    out.push('\n');
    let (paths, others) = words::paths_of(peer);
    if !paths.is_empty() {
        out.push_str(&path_table(peer, &paths, rates).render("  ", colours));
    }
    if others > 0 {
        let _ = writeln!(out, "  and {others} pairs of addresses that gave no answer (--verbose)");
    }
}

fn path_table(peer: &PeerStatus, paths: &[&PathStatus], rates: &Rates) -> Table {
    let mut table = Table::new(&[
        ("path", Align::Right),
        ("by", Align::Left),
        ("from", Align::Left),
        ("to", Align::Left),
        ("RTT", Align::Right),
        ("loss", Align::Right),
        ("sends", Align::Right),
        ("receives", Align::Right),
        ("state", Align::Left),
    ]);
    for path in paths {
        let (condition, state) = words::path_state(path);
        let now = rates.of(&peer.name, path.id);
        let works = words::works(path);
        table.row(vec![
            path.id.to_string().into(),
            path.interface_name().into(),
            path.local.ip().to_string().into(),
            path.remote.ip().to_string().into(),
            duration(path.rtt_ms.filter(|_| works)).into(),
            if works { format!("{:.1} %", path.loss * 100.0).into() } else { "-".into() },
            now.map_or("-".to_owned(), |now| rate(now.sent_bps)).into(),
            now.map_or("-".to_owned(), |now| rate(now.received_bps)).into(),
            Cell::coloured(&state, condition.into()),
        ]);
    }
    table
}
