//! Datagrams in segments that look like TCP, for networks that permit nothing else; without input
//! or output.
//!
//! An [`Endpoint`] has the connections of one local address: handshake with SYN cookies, sequence
//! numbers, timestamps, FIN. It owns no socket and no clock, so that the simulator, tests and the
//! fuzzer drive it as `net` does.
//!
//! To a firewall that tracks connections it is one: opened by a handshake, numbers within windows,
//! acknowledgements that follow. But nothing is sent again and nothing waits for what is missing;
//! the engine does that, as it does with UDP. A reset is ignored: whether the peer is there is told
//! by its authenticated datagrams alone. They also decide which connections last, and which numbers
//! are the peer's.
//!
//! # Verbs
//!
//! Fed by [`Endpoint::receive_bytes`] and [`Endpoint::handle_timeout`]. A datagram gets its header
//! from [`Endpoint::data`] and its place from [`segment::frame`]; without a connection it is given
//! to [`Endpoint::hold`]. Drained by [`Endpoint::poll_control`], [`Endpoint::poll_released`] and
//! [`Endpoint::next_timeout`].

#[doc(hidden)]
pub mod check;
mod connection;
mod endpoint;
mod limit;
mod pool;
pub mod segment;
mod stream;

pub use endpoint::{Control, Counters, Endpoint, MAX_CONNECTIONS, MAX_UNCONFIRMED};
