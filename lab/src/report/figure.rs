//! A plot of the report.

/// A plot, and the name of its file.
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) svg: String,
}
