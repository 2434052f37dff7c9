//! What is wrong with a configuration, and where.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Everything that is wrong with a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    problems: Vec<Problem>,
}

impl ConfigError {
    /// `problems` (at least one) of `file`.
    pub(crate) fn new(file: &Path, problems: Vec<Problem>) -> Self {
        Self { file: file.to_owned(), problems }
    }

    /// What is wrong, in the file's order.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Problem { line, message }) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}:", self.file.display())?;
            if let Some(line) = line {
                write!(f, "{line}:")?;
            }
            write!(f, " {message}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1; `None` if it concerns the file as a whole.
    pub line: Option<usize>,
    /// What was expected and what was found.
    pub message: String,
}

impl Problem {
    /// A problem at `span` of `text`.
    pub(super) fn at(text: &str, span: &Range<usize>, message: String) -> Self {
        Self { line: Some(line_of(text, span.start)), message }
    }

    /// An error of the TOML parser, in the words of a configuration.
    pub(super) fn syntax(text: &str, error: &toml::de::Error) -> Self {
        // serde's messages speak of fields, maps and Rust's types.
        let message = error
            .message()
            .replace("unknown field", "unknown key")
            .replace("missing field", "missing key")
            .replace("duplicate field", "duplicate key")
            .replace("expected i64", "expected a whole number")
            .replace("invalid type: map", "invalid type: table");
        let message = message.replace('\n', ", ");
        Self { line: error.span().map(|span| line_of(text, span.start)), message }
    }
}

/// The line of `text` that holds the byte at `offset`, counted from 1.
fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}
