//! Values of keys, whatever their section: numbers in a range, names out of a list, prefixes, key
//! files. What is wrong is added to [`Problems`].

use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;

use mpip_core::Prefix;
use mpip_crypto::KeyParseError;
use toml::Spanned;

use super::keys;
use super::problems::Problems;
use super::suggestion;

/// Permitted `max_paths`: as many as an association has.
pub(super) const MAX_PATHS: RangeInclusive<i64> = 1..=64;
/// What an endpoint is to be.
pub(super) const ENDPOINT: &str =
    "expected an address with a port like 198.51.100.2:6182 or [2001:db8::2]:6182";

/// The names in backquotes, separated by commas.
pub(super) fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The value of `key`, which must be within `range`.
pub(super) fn integer<T: TryFrom<i64>>(
    value: &Spanned<i64>,
    key: &str,
    range: RangeInclusive<i64>,
    problems: &mut Problems<'_>,
) -> Option<T> {
    let found = *value.get_ref();
    if range.contains(&found)
        && let Ok(value) = T::try_from(found)
    {
        return Some(value);
    }
    let (from, to) = (range.start(), range.end());
    problems
        .none(&value.span(), format!("{key}: expected a number from {from} to {to}, found {found}"))
}

/// The value that `known` gives for the name `text`, the value of `key`. `None` without a name, or
/// if it is unknown, which is a problem.
pub(super) fn named<T: Copy>(
    text: Option<&Spanned<String>>,
    key: &str,
    known: &[(&str, T)],
    problems: &mut Problems<'_>,
) -> Option<T> {
    let text = text?;
    one_of(text.get_ref(), key, known)
        .map_or_else(|message| problems.none(&text.span(), message), Some)
}

/// The value that `known` gives for the name `found`, the value of `key`.
///
/// # Errors
///
/// Which names there are, and which one was probably meant.
pub(super) fn one_of<T: Copy>(found: &str, key: &str, known: &[(&str, T)]) -> Result<T, String> {
    let value = known.iter().find(|(name, _)| *name == found).map(|(_, value)| *value);
    value.ok_or_else(|| {
        let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let expected = names(known.iter().copied());
        let meant = suggestion::did_you_mean(found, &known);
        format!("{key}: expected one of {expected}, found `{found}`{meant}")
    })
}

/// Whether `name` can be that of a node.
pub(crate) fn is_visible_name(name: &str) -> bool {
    (1..=64).contains(&name.chars().count()) && !name.chars().any(char::is_control)
}

/// Adds a problem if `name`, the value of the key `name`, cannot be that of a node.
pub(super) fn check_visible_name(name: &Spanned<String>, problems: &mut Problems<'_>) {
    let text = name.get_ref();
    if !is_visible_name(text) {
        let message = format!("name: expected 1 to 64 visible characters, found {text:?}");
        problems.add(&name.span(), message);
    }
}

/// Every address, by IPv4 and by IPv6.
pub(super) fn everywhere() -> [Prefix; 2] {
    ["0.0.0.0/0", "::/0"].map(|all| all.parse().expect("a constant"))
}

/// The key in `file`, a path relative to `directory`.
pub(super) fn key_file<K>(
    directory: &Path,
    file: &Spanned<String>,
    problems: &mut Problems<'_>,
) -> Option<K>
where
    K: FromStr<Err = KeyParseError>,
{
    match keys::read(&directory.join(file.get_ref())) {
        Ok(key) => Some(key),
        Err(message) => problems.none(&file.span(), message),
    }
}

/// The prefixes in the list `key`, without those that are none.
pub(super) fn prefixes(
    texts: &[Spanned<String>],
    key: &str,
    problems: &mut Problems<'_>,
) -> Vec<Prefix> {
    let mut prefixes = Vec::new();
    for text in texts {
        match text.get_ref().parse::<Prefix>() {
            Ok(prefix) => prefixes.push(prefix),
            Err(error) => problems.add(&text.span(), format!("{key}: {error}")),
        }
    }
    prefixes
}
