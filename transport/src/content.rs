//! What a datagram carries, as seen by its path.

/// What a datagram carries; returned when the datagram is lost. Kept for each datagram in flight,
/// so it should be small.
pub trait Content: Clone + core::fmt::Debug {
    /// Whether it is an inner packet, which is retransmitted on another path when this one stops
    /// answering. Control information is built anew instead.
    fn is_packet(&self) -> bool;

    /// Whether its sender wants to know that it arrived; then it is added to [`Losses::arrived`].
    ///
    /// [`Losses::arrived`]: crate::Losses::arrived
    fn reports_arrival(&self) -> bool;
}
