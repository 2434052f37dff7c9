//! `[opportunistic]`: associations with nodes that the configuration does not name.

use std::path::{Path, PathBuf};

use mpip_core::{DEFAULT_PORT, Opportunistic, PeerConfig};
use toml::Spanned;

use super::problems::Problems;
use super::settings::OpportunisticSettings;
use super::values::{integer, prefixes};
use super::{peer, raw};

/// Default file of pinned keys.
const DEFAULT_PINS: &str = "/var/lib/mpip/known_nodes";

/// Days without a meeting after which a pin expires unless the configuration says otherwise: half a
/// year.
const DEFAULT_EXPIRY: u32 = 180;
/// The longest that it can say: 100 years.
const EXPIRY_MAX: i64 = 36_500;

/// Most prefixes: the kernel's filter takes no more.
const PREFIXES_MAX: usize = 1_024;

/// The settings, or `None` after everything that is wrong was added to `problems`.
pub(super) fn resolve(
    raw: &Spanned<raw::Opportunistic>,
    directory: &Path,
    path_interfaces: Option<&[String]>,
    problems: &mut Problems<'_>,
) -> Option<OpportunisticSettings> {
    let before = problems.count();
    let (span, raw) = (raw.span(), raw.get_ref());
    if raw.prefixes.is_empty() || raw.prefixes.len() > PREFIXES_MAX {
        let found = raw.prefixes.len();
        let message = format!("prefixes: expected 1 to {PREFIXES_MAX} prefixes, found {found}");
        problems.add(&span, message);
    }
    let concerned = prefixes(&raw.prefixes, "prefixes", problems);
    let exclusive = prefixes(&raw.exclusive, "exclusive", problems);
    let port = match &raw.port {
        Some(port) => integer(port, "port", 1..=65_535, problems),
        None => Some(DEFAULT_PORT),
    };
    let pins_file = match &raw.pins {
        Some(file) => directory.join(file.get_ref()),
        None => PathBuf::from(DEFAULT_PINS),
    };
    let pins = match crate::pins::load(&pins_file) {
        Ok(pins) => pins,
        Err(message) => {
            let span = raw.pins.as_ref().map_or(span, Spanned::span);
            return problems.none(&span, format!("pins: {message}"));
        }
    };
    let expiry = match &raw.pins_expire_days {
        Some(days) => integer(days, "pins_expire_days", 0..=EXPIRY_MAX, problems),
        None => Some(DEFAULT_EXPIRY),
    };
    let peer = match &raw.peer {
        Some(section) => peer::found(section, path_interfaces, problems),
        None => PeerConfig::unnamed(),
    };
    if problems.count() > before {
        return None;
    }
    let engine = Opportunistic {
        prefixes: concerned,
        exclusive,
        port: port?,
        pins,
        pin_expiry: expiry.filter(|days| *days > 0),
        peer,
    };
    Some(OpportunisticSettings { engine, pins_file })
}
