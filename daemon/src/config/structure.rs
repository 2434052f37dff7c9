//! From text to raw structures, past everything that is wrong with keys and types.
//!
//! The parser stops at the first key that is unknown or has a value of the wrong type. Such a key
//! is noted, renamed to the one that was probably meant or left out, and the rest is read again. So
//! a configuration with ten mistakes shows all ten.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::Problem;
use super::problems::Problems;
use super::raw;
use super::suggestion;

/// Most mistakes in keys and types that are found in one configuration.
const MOST: usize = 100;

/// Reads `text`. What is wrong is added to `problems`, and the rest is returned, if it can be read
/// at all.
pub(super) fn read(text: &str, problems: &mut Problems<'_>) -> Option<raw::Config> {
    let (mut document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        problems.syntax(Problem::syntax(text, error));
    }
    for _ in 0..MOST {
        let whole = toml::de::Deserializer::from(document.clone());
        let error = match raw::Config::deserialize(whole) {
            Ok(config) => return Some(config),
            Err(error) => error,
        };
        if !mend(text, &mut document, &error, problems) {
            problems.syntax(Problem::syntax(text, &error));
            return None;
        }
    }
    None
}

/// Notes `error` and removes its cause from `document`. Returns `false` if it cannot.
fn mend(
    text: &str,
    document: &mut Spanned<DeTable<'_>>,
    error: &toml::de::Error,
    problems: &mut Problems<'_>,
) -> bool {
    let Some(span) = error.span() else { return false };
    let known = unknown_key(error.message());
    let meant = known.as_ref().and_then(|(found, known)| suggestion::nearest(found, known));
    let Some(key) = take(document.get_mut(), &span, meant) else { return false };
    let message = match (&known, meant) {
        (Some((found, _)), Some(meant)) => {
            format!("unknown key `{found}`: did you mean `{meant}`?")
        }
        (Some(_), None) => Problem::syntax(text, error).message,
        (None, _) => {
            problems.left_out(&key, &span);
            wrong_type(&key, error.message())
        }
    };
    problems.add(&span, message);
    true
}

/// The unknown key that `message` of serde tells, and the keys that it names as known.
fn unknown_key(message: &str) -> Option<(String, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (found, rest) = rest.split_once('`')?;
    Some((found.to_owned(), rest.split('`').skip(1).step_by(2).collect()))
}

/// serde's `message` about a value of the wrong type, in the words of a configuration.
fn wrong_type(key: &str, message: &str) -> String {
    let words = |text: &str| {
        text.replace("i64", "a whole number")
            .replace("a sequence", "a list")
            .replace("sequence", "a list")
            .replace("a boolean", "`true` or `false`")
            .replace("boolean `", "`")
            .replace("a map", "a table")
            .replace("map", "a table")
            .replace("struct ", "section ")
    };
    let parts = message.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", "));
    match parts {
        Some((found, expected)) => {
            format!("{key}: {}, found {}", words(expected), words(found))
        }
        None => format!("{key}: {}", message.replace('\n', ", ")),
    }
}

/// Takes the entry whose key or value is at `span` out of `table`, or renames it to `meant`.
/// Returns its key.
fn take<'i>(table: &mut DeTable<'i>, span: &Range<usize>, meant: Option<&str>) -> Option<String> {
    let here = |key: &Spanned<_>, value: &Spanned<_>| key.span() == *span || value.span() == *span;
    let found = table.iter().find(|(key, value)| here(key, value));
    let Some(name) = found.map(|(key, _)| key.get_ref().to_string()) else {
        return table.iter_mut().find_map(|(key, value)| {
            take_inside(value.get_mut(), span, meant)
                .map(|found| found.unwrap_or_else(|| key.get_ref().to_string()))
        });
    };
    let (mut taken, entries) = (Vec::new(), std::mem::take(table));
    for (key, value) in entries {
        if here(&key, &value) {
            taken.push((key.span(), value));
        } else {
            table.insert(key, value);
        }
    }
    if let Some(meant) = meant {
        taken.into_iter().for_each(|(key, value)| insert(table, key, meant, value));
    }
    Some(name)
}

/// As [`take`], of the tables in `value`. `Some(None)`: an element of the list `value` was at
/// `span`.
fn take_inside<'i>(
    value: &mut DeValue<'i>,
    span: &Range<usize>,
    meant: Option<&str>,
) -> Option<Option<String>> {
    match value {
        DeValue::Table(table) => take(table, span, meant).map(Some),
        DeValue::Array(list) => {
            if list.iter().any(|element| element.span() == *span) {
                let mut rest = toml::de::DeArray::new();
                list.iter().filter(|element| element.span() != *span).for_each(|element| {
                    rest.push(element.clone());
                });
                *list = rest;
                return Some(None);
            }
            list.iter_mut().find_map(|element| take_inside(element.get_mut(), span, meant))
        }
        _ => None,
    }
}

/// Adds `value` as `meant`, unless the table has it. Lists of sections become one.
fn insert<'i>(
    table: &mut DeTable<'i>,
    key: Range<usize>,
    meant: &str,
    value: Spanned<DeValue<'i>>,
) {
    let same = table.iter_mut().find(|(key, _)| key.get_ref() == meant);
    match (same.map(|(_, known)| known.get_mut()), value.into_inner(), key) {
        (Some(DeValue::Array(known)), DeValue::Array(more), _) => {
            more.iter().for_each(|element| known.push(element.clone()));
        }
        (Some(_), _, _) => {}
        (None, value, key) => {
            let name = Spanned::new(key.clone(), meant.to_owned().into());
            table.insert(name, Spanned::new(key, value));
        }
    }
}
