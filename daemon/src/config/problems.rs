//! Collects what is wrong with a configuration while its sections are resolved.

use std::ops::Range;

use super::error::Problem;

/// The problems found so far in a configuration.
pub(super) struct Problems<'a> {
    text: &'a str,
    list: Vec<Problem>,
}

impl<'a> Problems<'a> {
    /// No problems yet in the configuration `text`.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, list: Vec::new() }
    }

    /// Adds the problem that `message` describes at `span`.
    pub(super) fn add(&mut self, span: &Range<usize>, message: String) {
        self.list.push(Problem::at(self.text, span, message));
    }

    /// As [`add`](Self::add); returns `None` in place of the value that is wrong.
    pub(super) fn none<T>(&mut self, span: &Range<usize>, message: String) -> Option<T> {
        self.add(span, message);
        None
    }

    /// Number of problems so far.
    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    /// The line of `span`, counted from 1.
    pub(super) fn line_of(&self, span: &Range<usize>) -> usize {
        Problem::at(self.text, span, String::new()).line.unwrap_or(0)
    }

    /// An error with all problems, in the file's order, if there are any.
    pub(super) fn check(&mut self) -> Result<(), Vec<Problem>> {
        if self.list.is_empty() {
            return Ok(());
        }
        self.list.sort_by_key(|problem| problem.line);
        Err(std::mem::take(&mut self.list))
    }
}
