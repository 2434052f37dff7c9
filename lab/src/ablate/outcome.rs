//! What a case brings.

/// What a case has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// Goodput by limit.
    pub(super) share: f64,
    /// Goodput by that of plain TCP on the best path alone; infinite where that is not asked.
    pub(super) of_best: f64,
    /// Violated invariants.
    pub(super) violations: usize,
}
