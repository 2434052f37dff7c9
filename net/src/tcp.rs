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
//! The connections are an [`Endpoint`](mpip_segments::Endpoint), which has no input or output. The
//! [`TcpSender`] joins the two.

mod send;
mod socket;

pub use mpip_segments::Counters;
pub use send::TcpSender;
pub(crate) use socket::NAME;
pub use socket::TcpSocket;
