//! Linux for mpip: everything that the engine does not own.
//!
//! # What exists
//!
//! A [`Tun`] device gives and takes inner packets, as super-packets of up to 64 KiB. One
//! [`UdpSocket`] per local address gives and takes datagrams, in batches of many per system call.
//! A [`TcpSocket`] does the same for datagrams that look like a TCP connection ([`tcp`]).
//! [`netlink`] tells which links and addresses the host has, says when that changes, and sets up
//! the TUN device, its addresses and routes. A [`Poller`] waits for all of them, for
//! [signals](Signals) and for other threads ([`Waker`]).
//!
//! # How a packet travels
//!
//! Out: [`Tun::read`] fills a buffer of the engine's [`PacketPool`](mpip_types::PacketPool); the
//! engine writes datagrams into the [`UdpSender`], whose [`flush`](UdpSender::flush) hands them to
//! the kernel, one message per run of equal-sized datagrams (`UDP_SEGMENT`), many messages per
//! system call. [Other threads](UdpSender::with_threads) can seal and send them.
//!
//! In: [`UdpSocket::recv_batch`] hands over each datagram of what the kernel gathered (`UDP_GRO`);
//! the engine delivers inner packets into the [`TunWriter`], which joins consecutive segments of a
//! flow into one write.
//!
//! This is the only crate with `unsafe`; each block says why it is sound.

mod checksum;
pub mod clock;
mod crew;
mod in_order;
pub mod netlink;
mod plain;
mod poll;
pub mod privileges;
mod socket;
pub mod stream;
pub mod tcp;
pub mod tun;
pub mod udp;

pub use plain::PlainSender;
pub use poll::{
    Interest, Poller, Readiness, Signal, Signals, Waker, ignore_termination, lower_priority,
    set_precise_timers,
};
pub use tcp::{TcpSender, TcpSocket};
pub use tun::{Tun, TunWriter};
pub use udp::{UdpSender, UdpSocket};
