//! `mpip metrics`, and `/metrics` of `mpip web`: the state in the text format of Prometheus.
//!
//! Units are seconds and bytes, what only grows ends in `_total` (Prometheus, "Metric and label
//! naming"). A value that is not known has no sample.

mod exposition;
mod families;

use std::path::Path;

use mpip_api::Status;

use crate::failure::Failure;
use crate::output::print;
pub(crate) use exposition::CONTENT_TYPE;
use exposition::{Exposition, Kind};
use families::{BUDGET, NODE, PATH, PATH_STATES, PEER, TRAFFIC};

/// Prints the metrics of the daemon that listens on `socket`.
pub(crate) fn show(socket: &Path) -> Result<(), Failure> {
    print(&render(&mpip_api::status(socket, false)?))
}

/// What a page of metrics says when no daemon answers.
pub(crate) fn down() -> String {
    let mut out = Exposition::default();
    up(&mut out, 0.0);
    out.finish()
}

/// All metrics of a daemon.
pub(crate) fn render(status: &Status) -> String {
    let mut out = Exposition::default();
    up(&mut out, 1.0);
    node(&mut out, status);
    peers(&mut out, status);
    paths(&mut out, status);
    out.finish()
}

fn up(out: &mut Exposition, value: f64) {
    out.family("mpip_up", Kind::Gauge, "Whether mpipd answers.");
    out.sample(&[], value);
}

fn node(out: &mut Exposition, status: &Status) {
    out.family("mpip_build_info", Kind::Gauge, "Release of mpipd; always 1.");
    out.sample(&[("version", &status.daemon_version)], 1.0);
    out.family("mpip_interface_info", Kind::Gauge, "The TUN device and the node; always 1.");
    out.sample(&[("interface", &status.interface.name), ("node", &status.node)], 1.0);
    for family in NODE {
        out.family(family.name, family.kind, family.help);
        out.sample(&[], (family.value)(status).unwrap_or(0.0));
    }
    budgets(out, status);
    out.family(
        "mpip_drops_total",
        Kind::Counter,
        "Packets and datagrams dropped or refused, by cause (docs/troubleshooting.md).",
    );
    for drop in &status.drops {
        out.sample(&[("cause", &drop.name)], drop.count as f64);
    }
    out.family("mpip_events_total", Kind::Counter, "Events, by kind.");
    for event in &status.events {
        out.sample(&[("event", &event.name)], event.count as f64);
    }
}

fn budgets(out: &mut Exposition, status: &Status) {
    for family in BUDGET {
        out.family(family.name, family.kind, family.help);
        for budget in &status.budgets {
            let labels = [("interface", budget.interface.as_str()), ("period", &budget.period)];
            out.sample(&labels, (family.value)(budget).unwrap_or(0.0));
        }
    }
}

fn peers(out: &mut Exposition, status: &Status) {
    for family in PEER {
        out.family(family.name, family.kind, family.help);
        for peer in &status.peers {
            if let Some(value) = (family.value)(peer) {
                out.sample(&[("peer", &peer.name)], value);
            }
        }
    }
    out.family(
        "mpip_peer_traffic",
        Kind::Gauge,
        "In host mode, how packets to the peer travel: 1 for the way that holds.",
    );
    for peer in &status.peers {
        let Some(traffic) = &peer.traffic else { continue };
        for way in TRAFFIC {
            let holds = f64::from(u8::from(traffic == way));
            out.sample(&[("peer", &peer.name), ("traffic", way)], holds);
        }
    }
}

fn paths(out: &mut Exposition, status: &Status) {
    let all = || {
        status.peers.iter().flat_map(|peer| {
            peer.paths.iter().map(move |path| (peer.name.as_str(), path.id.to_string(), path))
        })
    };
    out.family(
        "mpip_path_info",
        Kind::Gauge,
        "Ends and encapsulation of a path; always 1. Join by peer and path.",
    );
    for (peer, id, path) in all() {
        let labels = [
            ("peer", peer),
            ("path", &id),
            ("interface", &path.interface),
            ("local", &path.local.to_string()),
            ("remote", &path.remote.to_string()),
            ("encapsulation", &path.encapsulation),
        ];
        out.sample(&labels, 1.0);
    }
    out.family(
        "mpip_path_state",
        Kind::Gauge,
        "State of a path: 1 for the state that it is in, 0 for the others.",
    );
    for (peer, id, path) in all() {
        for state in PATH_STATES {
            let labels =
                [("peer", peer), ("path", &id), ("interface", &path.interface), ("state", state)];
            out.sample(&labels, f64::from(u8::from(path.state == state)));
        }
    }
    for family in PATH {
        out.family(family.name, family.kind, family.help);
        for (peer, id, path) in all() {
            if let Some(value) = (family.value)(path) {
                let labels = [("peer", peer), ("path", &id), ("interface", &path.interface)];
                out.sample(&labels, value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
