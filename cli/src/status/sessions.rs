//! The sessions of a peer as a table.

use std::fmt::Write;

use mpip_api::{PeerStatus, PlainSessionStatus, SessionStatus};

use crate::table::{Align, Table};
use crate::units::{bytes, duration};
use crate::words::{end, protocol, wait_quantile, waited};

/// How many sessions there are, and those that are listed.
pub(super) fn render(peer: &PeerStatus, colours: bool) -> String {
    let mut out = String::new();
    let count = peer.session_count.unwrap_or(0);
    let listed = peer.sessions.len() as u64;
    let limited = if listed < count { format!(", the last {listed} used") } else { String::new() };
    let _ = writeln!(out, "  {count} sessions{limited}");
    if listed > 0 {
        out.push_str(&session_table(&peer.sessions).render("  ", colours));
    }
    if !peer.plain_sessions.is_empty() {
        let _ = writeln!(
            out,
            "  {} sessions are plain IP although paths work",
            peer.plain_session_count
        );
        out.push_str(&plain_table(&peer.plain_sessions).render("  ", colours));
    }
    out
}

fn plain_table(sessions: &[PlainSessionStatus]) -> Table {
    let mut table = Table::new(&[
        ("protocol", Align::Left),
        ("source", Align::Left),
        ("destination", Align::Left),
        ("plain for", Align::Right),
    ]);
    for session in sessions {
        table.row(vec![
            protocol(session.protocol).into(),
            end(session.source).into(),
            end(session.destination).into(),
            duration(Some(session.since_ms)).into(),
        ]);
    }
    table
}

fn session_table(sessions: &[SessionStatus]) -> Table {
    let mut table = Table::new(&[
        ("session", Align::Right),
        ("", Align::Left),
        ("protocol", Align::Left),
        ("source", Align::Left),
        ("destination", Align::Left),
        ("packets", Align::Right),
        ("data", Align::Right),
        ("repaired", Align::Right),
        ("waited", Align::Right),
        ("median", Align::Right),
        ("99 %", Align::Right),
        ("longest", Align::Right),
        ("idle", Align::Right),
        ("paths", Align::Left),
    ]);
    for session in sessions {
        table.row(vec![
            session.id.to_string().into(),
            (if session.outgoing { "out" } else { "in" }).into(),
            protocol(session.protocol).into(),
            end(session.source).into(),
            end(session.destination).into(),
            session.packets.to_string().into(),
            bytes(session.inner_bytes).into(),
            session.repaired_packets.to_string().into(),
            waited(session).to_string().into(),
            duration(wait_quantile(session, 0.5)).into(),
            duration(wait_quantile(session, 0.99)).into(),
            duration(Some(session.longest_wait_ms)).into(),
            duration(Some(session.idle_ms)).into(),
            session.paths.iter().map(u16::to_string).collect::<Vec<_>>().join(" ").into(),
        ]);
    }
    table
}
