//! What a datagram carries, as far as its path is concerned.

/// What a datagram carries, to be given back when it is lost. It is kept for each datagram in
/// flight, so it should be small.
pub trait Content: Clone + core::fmt::Debug {
    /// Whether it is an inner packet, which is sent again on another path when this one falls
    /// silent. Everything else is said anew.
    fn is_packet(&self) -> bool;

    /// Whether its sender has to know that it arrived; then it is in [`Losses::arrived`].
    ///
    /// [`Losses::arrived`]: crate::Losses::arrived
    fn reports_arrival(&self) -> bool;
}
