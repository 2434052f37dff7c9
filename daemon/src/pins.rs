//! Keys pinned to addresses: a text file, as `known_hosts` is for `ssh`.
//!
//! A line is an address, the public key in base64, and the day on which the node was last met, like
//! `2026-11-24`; what follows `#` is a comment. A line without a day is the operator's: it does not
//! expire, and the daemon never changes it. The daemon adds a line when an address proves to hold a
//! key for the first time, changes its day when the node is met on another one, and takes it out
//! when it has expired and its place is needed. All else in the file stays as it is. Who trusts a
//! changed key removes the line and starts the daemon anew; a line that was removed is not written
//! again for having been known.
//!
//! Files are written by a thread of their own ([`Writer`]): packets do not wait for a disk.

mod writer;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;

use mpip_core::{Pin, PinChange};

use crate::day;

pub(crate) use self::writer::Writer;

/// Lines that a file begins with.
const HEADER: &str = "# Keys of mpip nodes, pinned to their addresses on first use: address, key, last met.\n\
     # To trust a node's new key, remove its line and restart mpipd. Without the day a pin never expires.\n";

/// The pins in `file`; none if it does not exist.
pub(crate) fn load(file: &Path) -> Result<Vec<Pin>, String> {
    match fs::read_to_string(file) {
        Ok(text) => parse(&text).map_err(|error| format!("`{}`: {error}", file.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!(
            "expected a file of pinned keys or none, `{}` cannot be read: {error}",
            file.display()
        )),
    }
}

fn parse(text: &str) -> Result<Vec<Pin>, String> {
    let mut pins = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let pin = parse_line(line).map_err(|error| format!("line {number}: {error}"))?;
        if let Some(pin) = pin
            && pins.insert(pin.address, pin).is_some()
        {
            let address = pin.address;
            return Err(format!(
                "line {number}: expected one key for an address, {address} has one"
            ));
        }
    }
    Ok(pins.into_values().collect())
}

/// The pin in `line`, if there is more than a comment.
fn parse_line(line: &str) -> Result<Option<Pin>, String> {
    let mut fields = line.split('#').next().unwrap_or_default().split_whitespace();
    let (address, key, met) = match (fields.next(), fields.next(), fields.next(), fields.next()) {
        (None, ..) => return Ok(None),
        (Some(address), Some(key), met, None) => (address, key, met),
        _ => return Err("expected an address, a key, and the day of the last meeting".to_owned()),
    };
    let address = address.parse().map_err(|_| format!("expected an address, found `{address}`"))?;
    let public_key = key.parse().map_err(|error: mpip_crypto::KeyParseError| error.to_string())?;
    let day = |text: &str| {
        day::parse(text).ok_or_else(|| format!("expected a day like 2026-11-24, found `{text}`"))
    };
    Ok(Some(Pin { address, public_key, met: met.map(day).transpose()? }))
}

fn line(pin: &Pin) -> String {
    let met = pin.met.map(|met| format!(" {}", day::show(met))).unwrap_or_default();
    format!("{} {}{met}", pin.address, pin.public_key)
}

/// `text` with `changes`, which name each address once.
fn apply(text: &str, changes: &BTreeMap<IpAddr, PinChange>) -> String {
    let mut left = changes.clone();
    let mut new = String::with_capacity(text.len() + 128 * left.len());
    for known in text.lines() {
        let pin = parse_line(known).ok().flatten();
        let change = pin.and_then(|pin| Some((pin, left.remove(&pin.address)?)));
        let changed = match change {
            // The operator's, or what he has made of it since the start.
            Some((Pin { met: None, .. }, _)) => Some(known.to_owned()),
            Some((pin, PinChange::Met(met) | PinChange::Forgotten(met)))
                if pin.public_key != met.public_key =>
            {
                Some(known.to_owned())
            }
            Some((_, PinChange::Forgotten(_))) => None,
            Some((pin, PinChange::Pinned(met) | PinChange::Met(met))) => {
                let comment = known.find('#').filter(|_| pin.public_key == met.public_key);
                let comment = comment.map(|at| format!(" {}", &known[at..])).unwrap_or_default();
                Some(line(&met) + &comment)
            }
            None => Some(known.to_owned()),
        };
        if let Some(line) = changed {
            new.push_str(&line);
            new.push('\n');
        }
    }
    for change in left.into_values() {
        if let PinChange::Pinned(pin) = change {
            new.push_str(&line(&pin));
            new.push('\n');
        }
    }
    new
}

#[cfg(test)]
mod tests;
