//! Datagrams in what looks like a TCP connection, for networks that let nothing else through.
//!
//! # What exists
//!
//! A [`TcpSocket`] is a raw socket for the segments of one local address and port, and a listening
//! socket of the kernel on the same address and port with a filter that drops everything. The
//! listening socket only has to exist: without it the kernel would answer the peers' segments with
//! resets, and another program could take the port. It closes with the process, so nothing is left
//! behind.
//!
//! An [`Endpoint`] has the connections of one local address: handshake with SYN cookies, sequence
//! numbers, timestamps, FIN. It has no socket and no clock, so tests and the fuzzer can drive it.
//! The [`TcpSender`] combines the two.
//!
//! # What it is and is not
//!
//! A firewall that tracks connections sees a TCP connection: a handshake opens it, sequence numbers
//! stay within windows, and acknowledgements follow. But segments are neither retransmitted nor put
//! in order; the engine does both, as with UDP. Resets are ignored. Only authenticated datagrams
//! show that the peer is alive, keep a connection, and advance its sequence numbers.

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
