//! Datagrams in segments that look like TCP, for networks that permit nothing else; without input
//! or output.
//!
//! An [`Endpoint`] has the connections of one local address: handshake with SYN cookies, sequence
//! numbers, timestamps, FIN. It owns no socket and no clock, so that the simulator, tests and the
//! fuzzer drive it as `net` does.
//!
//! To a stateful firewall it looks like a TCP connection: a handshake, sequence numbers within
//! windows, and matching acknowledgements. But nothing is retransmitted or put in order; the engine
//! does that, as with UDP. Resets are ignored: only authenticated datagrams show whether the peer
//! is alive. They also decide which connections last, and which sequence numbers are the peer's.
//!
//! # Verbs
//!
//! Input: [`Endpoint::receive_bytes`] and [`Endpoint::handle_timeout`]. A datagram to send gets its
//! header from [`Endpoint::data`] and is framed by [`segment::frame`]; without a connection it goes
//! to [`Endpoint::hold`]. Output: [`Endpoint::poll_control`], [`Endpoint::poll_released`] and
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
