//! Collects what is wrong with a configuration while its sections are resolved.

use std::ops::Range;

use super::error::Problem;

/// The problems found so far in a configuration.
pub(super) struct Problems<'a> {
    text: &'a str,
    /// Where lines end.
    ends: Vec<usize>,
    list: Vec<Problem>,
    /// Lines that are no TOML: what they have is not known, and keys may only seem to be missing.
    broken: Vec<Option<usize>>,
    /// Missing keys, with the line of their section.
    missing: Vec<(&'static str, usize)>,
    /// Keys that were left out because of their value, with their line: they are not missing.
    left_out: Vec<(String, usize)>,
}

impl<'a> Problems<'a> {
    /// No problems yet in the configuration `text`.
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            ends: text.match_indices('\n').map(|(at, _)| at).collect(),
            list: Vec::new(),
            broken: Vec::new(),
            missing: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Adds the problem that `message` describes at `span`.
    pub(super) fn add(&mut self, span: &Range<usize>, message: String) {
        let problem = Problem::at(self.text, span, message);
        // The parser puts values without a place where it found none.
        let unknown = span.is_empty() || self.broken.contains(&problem.line);
        if self.broken.is_empty() || !unknown {
            self.list.push(problem);
        }
    }

    /// Adds an error of the parser, unless the line has one already.
    pub(super) fn syntax(&mut self, problem: Problem) {
        if !self.broken.contains(&problem.line) {
            self.broken.push(problem.line);
            self.list.push(problem);
        }
    }

    /// The section at `span` lacks `key`. Returns `None` in place of its value.
    pub(super) fn missing<T>(&mut self, span: &Range<usize>, key: &'static str) -> Option<T> {
        self.missing.push((key, self.line_of(span)));
        None
    }

    /// `key` at `span` was left out because of its value.
    pub(super) fn left_out(&mut self, key: &str, span: &Range<usize>) {
        self.left_out.push((key.to_owned(), self.line_of(span)));
    }

    /// As [`add`](Self::add); returns `None` in place of the value that is wrong.
    pub(super) fn none<T>(&mut self, span: &Range<usize>, message: String) -> Option<T> {
        self.add(span, message);
        None
    }

    /// Number of problems so far.
    pub(super) fn count(&self) -> usize {
        self.list.len() + self.missing.len()
    }

    /// The line of `span`, counted from 1.
    pub(super) fn line_of(&self, span: &Range<usize>) -> usize {
        self.ends.partition_point(|end| *end < span.start) + 1
    }

    /// An error with all problems, in the file's order, if there are any.
    pub(super) fn check(&mut self) -> Result<(), Vec<Problem>> {
        self.settle();
        if self.list.is_empty() {
            return Ok(());
        }
        self.list.sort_by_key(|problem| problem.line);
        Err(std::mem::take(&mut self.list))
    }

    /// Adds keys that are really missing, and removes what follows from broken lines.
    fn settle(&mut self) {
        for (key, line) in std::mem::take(&mut self.left_out) {
            let mut sections = self.missing.iter().enumerate();
            let found = sections.rfind(|(_, (missing, at))| *missing == key && *at <= line);
            if let Some(at) = found.map(|(at, _)| at) {
                self.missing.remove(at);
            }
        }
        for (key, line) in std::mem::take(&mut self.missing) {
            if self.broken.is_empty() {
                let message = format!("missing key `{key}`");
                self.list.push(Problem { line: Some(line), message });
            }
        }
    }
}
