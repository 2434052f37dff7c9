//! `mpip availability`: which destinations of the host speak mpip.

use std::path::Path;

use mpip_api::DestinationStatus;

use crate::failure::Failure;
use crate::output::{colours, print};
use crate::table::{Align, Cell, Colour, Table};
use crate::units::duration;

/// Prints the destinations that the daemon on `socket` has asked.
pub(crate) fn show(socket: &Path, json: bool) -> Result<(), Failure> {
    let destinations = mpip_api::availability(socket)?;
    if json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&destinations)?));
    }
    print(&render(&destinations, colours()))
}

fn render(destinations: &[DestinationStatus], colours: bool) -> String {
    if destinations.is_empty() {
        return "no destinations: the configuration has no [opportunistic], or the host talks to \
                nobody within its prefixes\n"
            .to_owned();
    }
    let mut table = Table::new(&[
        ("destination", Align::Left),
        ("state", Align::Left),
        ("queries", Align::Right),
        ("next query in", Align::Right),
        ("public key", Align::Left),
    ]);
    for destination in destinations {
        let colour = match destination.state.as_str() {
            "enabled" => Colour::Green,
            "queried" => Colour::Yellow,
            "key-changed" => Colour::Red,
            _ => Colour::Dim,
        };
        table.row(vec![
            destination.address.to_string().into(),
            Cell::coloured(&destination.state, colour),
            destination.queries.to_string().into(),
            duration(Some(destination.expires_in_ms)).into(),
            destination.public_key.clone().unwrap_or_default().into(),
        ]);
    }
    table.render("", colours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_a_table() {
        let destination = |address: &str, state: &str, key: Option<&str>| DestinationStatus {
            address: address.parse().expect("valid"),
            state: state.to_owned(),
            queries: 5,
            public_key: key.map(str::to_owned),
            expires_in_ms: 61_000.0,
        };
        let shown = render(
            &[
                destination("198.18.0.2", "enabled", Some("key=")),
                destination("2001:db8::2", "not-enabled", None),
            ],
            false,
        );
        let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
        assert_eq!(lines.len(), 3, "{shown}");
        assert!(lines[1].starts_with("198.18.0.2") && lines[1].ends_with("key="), "{shown}");
        assert!(lines[2].contains("not-enabled"), "{shown}");
        assert!(render(&[], false).starts_with("no destinations: "));
    }
}
