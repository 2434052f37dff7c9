//! A row of the table.

/// A row of the table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// The case: a scenario, or a part of one.
    pub(super) case: String,
    /// The target.
    pub(super) asked: String,
    /// The measured figures; empty if there are none.
    pub(super) reached: String,
    /// Whether it is reached; `None` if it was not measured.
    pub(super) yes: Option<bool>,
}

impl Row {
    /// The row of a case with the figures `reached` and whether they suffice; `None` if nothing was
    /// measured.
    pub(super) fn new(case: &str, asked: &str, reached: Option<(String, bool)>) -> Self {
        let (reached, yes) = match reached {
            Some((text, yes)) => (text, Some(yes)),
            None => (String::new(), None),
        };
        Self { case: case.to_owned(), asked: asked.to_owned(), reached, yes }
    }
}
