//! Datagrams in what looks like a TCP connection, for networks that let nothing else through.
//!
//! # What exists
//!
//! A [`TcpSocket`] is a raw socket for the segments of one local address and port, and a listening
//! socket of the kernel on the same address and port with a filter that drops everything. The
//! listening socket only has to exist: without it the kernel would answer the peers' segments with
//! resets, and another program could take the port. It closes with the process, so nothing is left
//! behind. Where nothing in the host treats the packets that it sends, many segments leave as one
//! super-packet (`trains`), by a packet socket.
//!
//! The connections are an [`Endpoint`](mpip_segments::Endpoint), which has neither socket nor
//! clock. The [`TcpSender`] combines the two.

mod packets;
mod send;
mod socket;
mod trains;

pub use mpip_segments::Counters;
pub use send::TcpSender;
pub use socket::TcpSocket;
