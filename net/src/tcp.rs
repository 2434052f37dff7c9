//! Datagrams in what looks like TCP, for networks that let nothing else through.
//!
//! # What exists
//!
//! A [`TcpSocket`] is a raw socket for the segments of one local address and port, and beside it a
//! listening socket of the kernel on the same address and port, with a filter that takes nothing.
//! The second one does nothing but exist: without it the kernel would answer our peers' segments
//! with resets, and another program could take the port. It goes with the process, so nothing is
//! left behind on the host.
//!
//! An [`Endpoint`] has the connections of one local address: handshake with SYN cookies, sequence
//! numbers, timestamps, FIN. It does no input or output and has no clock, so that tests and the
//! fuzzer can drive it. The [`TcpSender`] joins the two.
//!
//! # What it is and is not
//!
//! To a firewall that tracks connections it is one: opened by a handshake, numbers within windows,
//! acknowledgements that follow. But nothing is sent again and nothing waits for what is missing;
//! the engine does that, as it does with UDP. A reset is ignored: whether the peer is there is told
//! by its authenticated datagrams alone. They also decide which connections last, and which numbers are
//! the peer's.

pub mod check;
mod connection;
mod endpoint;
mod limit;
mod pool;
pub mod segment;
mod send;
mod socket;
mod stream;

pub use endpoint::{Control, Counters, Endpoint, MAX_CONNECTIONS, MAX_UNCONFIRMED};
pub use send::TcpSender;
pub use socket::TcpSocket;
