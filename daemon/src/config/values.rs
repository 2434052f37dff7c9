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
    let found = known.iter().find(|(name, _)| name == text.get_ref()).map(|(_, value)| *value);
    found.or_else(|| {
        let expected = names(known.iter().map(|(name, _)| *name));
        let found = text.get_ref();
        let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let meant = suggestion::nearest(found, &known);
        let meant = meant.map(|name| format!(": did you mean `{name}`?")).unwrap_or_default();
        let message = format!("{key}: expected one of {expected}, found `{found}`{meant}");
        problems.none(&text.span(), message)
    })
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
