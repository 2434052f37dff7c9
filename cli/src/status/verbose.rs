//! `mpip status --verbose`: with the engine's inner figures.

use std::fmt::Write;

use mpip_api::{Counter, PathStatus, PeerStatus, Status};

use super::sessions;
use crate::drops;
use crate::table::{Align, Cell, Colour, Table};
use crate::units::{bytes, duration, rate};
use crate::words;

/// The state as text.
pub(super) fn render(status: &Status, sessions: bool, colours: bool) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "{}: {}, MTU {}, port {}, up {}, process {}",
        status.interface.name,
        list(&status.interface.addresses, "no address"),
        status.interface.mtu_bytes,
        status.listen_port,
        duration(Some(status.uptime_ms)),
        status.pid
    );
    let _ = writeln!(out, "node {}, public key {}", status.node, status.public_key);
    let local: Vec<String> = status
        .local_addresses
        .iter()
        .map(|local| format!("{} ({})", local.address, local.interface))
        .collect();
    let _ = writeln!(
        out,
        "paths start from {}",
        list(&local, "nowhere: no interface has a usable address")
    );
    render_faults(&mut out, status, colours);
    for budget in words::budgets(status) {
        let _ = writeln!(out, "{budget}");
    }
    for peer in &status.peers {
        render_peer(&mut out, peer, sessions, colours);
    }
    render_drops(&mut out, status);
    out
}

/// What was dropped or refused: a line for each cause.
fn render_drops(out: &mut String, status: &Status) {
    let drops: Vec<_> = status.drops.iter().filter(|drop| drop.count > 0).collect();
    let width = drops.iter().map(|drop| drop.count.to_string().len()).max().unwrap_or_default();
    for (index, drop) in drops.into_iter().enumerate() {
        if index == 0 {
            out.push_str("\ndropped:\n");
        }
        let Counter { name, count } = drop;
        let _ = match drops::words(name) {
            Some(words) => writeln!(out, "  {count:width$}  {words} ({name})"),
            None => writeln!(out, "  {count:width$}  {name}"),
        };
    }
}

/// What is not as it should be on the host: a line for each, as far as people read them.
fn render_faults(out: &mut String, status: &Status, colours: bool) {
    const SHOWN: usize = 5;
    let wrong = Colour::Red.paint("wrong", colours);
    for fault in status.faults.iter().take(SHOWN) {
        let _ = writeln!(out, "{wrong}: {}", words::fault(fault));
    }
    let more = status.fault_count.saturating_sub(SHOWN as u64);
    if more > 0 {
        let _ = writeln!(out, "{wrong}: {more} more of the kind (--json lists some of them)");
    }
}

fn render_peer(out: &mut String, peer: &PeerStatus, sessions: bool, colours: bool) {
    let state = if peer.established {
        let age = duration(peer.handshake_age_ms);
        let aead = peer.aead.as_deref().unwrap_or("unknown AEAD");
        format!("{}, {aead}, handshake {age} ago", Colour::Green.paint("established", colours))
    } else {
        Colour::Red.paint("not established", colours)
    };
    let _ = writeln!(out, "\npeer {}: {state}", peer.name);
    let _ =
        writeln!(out, "  node {}, prefixes {}", peer.node, list(&peer.allowed_prefixes, "none"));
    let _ = writeln!(
        out,
        "  scheduler {}, congestion control {}, inner MTU {}",
        peer.scheduler, peer.congestion_control, peer.inner_mtu_bytes
    );
    let copies = match peer.copied_bytes {
        0 => String::new(),
        copied => format!(" and copies of {}", bytes(copied)),
    };
    let _ = writeln!(
        out,
        "  sent {}{copies}, received {}, queued {}, held for reordering {}",
        bytes(peer.sent_bytes),
        bytes(peer.received_bytes),
        bytes(peer.queued_bytes),
        bytes(peer.resequencing_bytes)
    );
    if let Some(traffic) = &peer.traffic {
        let captured = list(&peer.captured, "nothing");
        let _ = writeln!(
            out,
            "  host mode, policy {}: traffic is {traffic}, captured {captured}",
            peer.policy
        );
        if peer.plain_packets > 0 {
            let _ = writeln!(
                out,
                "  plain although paths work: {} packets; sessions that the peer's host does not \
                 answer by the paths: {}",
                peer.plain_packets, peer.plain_session_count
            );
        }
        if !peer.nats.is_empty() || peer.translated > 0 {
            let nats = list(&peer.nats, "none");
            let _ = writeln!(
                out,
                "  NATs in front of the peer: {nats}; translated connections: {}",
                peer.translated
            );
        }
    }
    if peer.paths.is_empty() {
        let _ = writeln!(out, "  no paths");
    } else {
        out.push_str(&paths(&peer.paths).render("  ", colours));
        out.push_str(&control_table(&peer.paths).render("  ", colours));
    }
    if sessions {
        out.push_str(&sessions::render(peer, colours));
    }
}

fn paths(paths: &[PathStatus]) -> Table {
    let mut table = Table::new(&[
        ("path", Align::Right),
        ("interface", Align::Left),
        ("local", Align::Left),
        ("remote", Align::Left),
        ("as", Align::Left),
        ("state", Align::Left),
        ("RTT", Align::Right),
        ("min", Align::Right),
        ("one-way", Align::Right),
        ("queue", Align::Right),
        ("loss", Align::Right),
        ("rate", Align::Right),
        ("weight", Align::Right),
        ("share", Align::Right),
        ("copied", Align::Right),
        ("sent", Align::Right),
        ("received", Align::Right),
    ]);
    for path in paths {
        let colour = match path.state.as_str() {
            "active" => Colour::Green,
            "validating" | "standby" => Colour::Yellow,
            _ => Colour::Red,
        };
        table.row(vec![
            path.id.to_string().into(),
            path.interface_name().into(),
            path.local.to_string().into(),
            path.remote.to_string().into(),
            path.encapsulation.as_str().into(),
            Cell::coloured(&state(path), colour),
            duration(path.rtt_ms).into(),
            duration(path.min_rtt_ms).into(),
            path.relative_delay_ms
                .map_or("-".to_owned(), |ms| format!("+{}", duration(Some(ms))))
                .into(),
            duration(Some(path.queuing_delay_ms)).into(),
            format!("{:.1} %", path.loss * 100.0).into(),
            rate(path.delivery_rate_bps).into(),
            // Only the scheduler `weighted` has weights.
            if path.weight == 0 { "-".into() } else { path.weight.to_string().into() },
            format!("{:.0} %", path.share * 100.0).into(),
            if path.copied_bytes == 0 { "-".into() } else { bytes(path.copied_bytes).into() },
            bytes(path.sent_bytes).into(),
            bytes(path.received_bytes).into(),
        ]);
    }
    table
}

/// The state of a path; at rest, also its keepalive interval; what it costs; its upper rates.
fn state(path: &PathStatus) -> String {
    let mut state = path.state.clone();
    if path.resting {
        let _ = write!(state, ", rests {:.0} s", path.keepalive_ms / 1e3);
    }
    if path.cost > 0 {
        let _ = write!(state, ", cost {}", path.cost);
    }
    if path.metered {
        state.push_str(", metered");
    }
    if let Some(limit) = path.rate_limit_bps() {
        let _ = write!(state, ", sends at most {}", rate(limit));
    }
    if let Some(limit) = path.rate_down_bps {
        let _ = write!(state, ", receives at most {}", rate(limit));
    }
    state
}

/// Congestion control and loss detection of each path.
fn control_table(paths: &[PathStatus]) -> Table {
    let mut table = Table::new(&[
        ("path", Align::Right),
        ("control", Align::Left),
        ("window", Align::Right),
        ("in flight", Align::Right),
        ("pacing", Align::Right),
        ("lost", Align::Right),
        ("spurious", Align::Right),
        ("jitter", Align::Right),
        ("reordering", Align::Right),
        ("reorder window", Align::Right),
        ("bottleneck", Align::Right),
        ("guard", Align::Left),
        ("takes no packet because", Align::Left),
    ]);
    for path in paths {
        table.row(vec![
            path.id.to_string().into(),
            path.congestion_state.as_str().into(),
            bytes(path.window_bytes).into(),
            bytes(path.in_flight_bytes).into(),
            path.pacing_rate_bps.map_or("-".to_owned(), rate).into(),
            path.lost_packets.to_string().into(),
            path.spurious_losses.to_string().into(),
            duration(Some(path.jitter_ms)).into(),
            path.reordering_extent_packets.to_string().into(),
            duration(Some(path.reordering_window_ms)).into(),
            // Show a bottleneck only if several paths share it.
            match paths.iter().filter(|other| other.bottleneck == path.bottleneck).count() {
                1 => "-".into(),
                _ => path.bottleneck.to_string().into(),
            },
            path.guard.as_str().into(),
            path.hold.as_deref().unwrap_or("-").into(),
        ]);
    }
    table
}

fn list(texts: &[String], none: &str) -> String {
    if texts.is_empty() { none.to_owned() } else { texts.join(", ") }
}
