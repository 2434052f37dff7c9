//! The model of a network link, shared by the simulator and the testbed.
//!
//! [`Link`] is one direction of a link: packets enter at one end and leave at the other. It has no
//! clock, no thread and no source of randomness: time is an argument (a [`Duration`] since an
//! origin that the caller chooses), and every random choice follows from a seed. So `sim` runs it
//! in virtual time and `lab` in real time.
//!
//! # The way of a packet
//!
//! ```text
//! enqueue
//!    │   MTU, link up or down, blackhole
//!    ▼
//! bounded queue (tail drop or CoDel)
//!    │   serialisation at the rate, or by a trace
//!    ▼
//! the wire
//!    │   loss, corruption, duplication; then delay and jitter, a departure time for each packet
//!    ▼
//!  poll
//! ```
//!
//! - The packet on the wire is not part of the queue. With a limit of `n` packets, `n` packets can
//!   wait behind the one that is being sent.
//! - Serialisation is exact to the nanosecond and does not drift: the fraction of a nanosecond that
//!   remains after a packet is carried over to the next. Late polls do not slow the link down.
//! - A packet that is lost has used the link, as on a radio link. So a link carries a payload of
//!   `rate * (1 - loss)`. (The kernel's netem drops before its rate limiter.)
//! - Jitter is normally distributed around the delay and independent for each packet, so packets
//!   overtake each other as with netem. [`LinkConfig::in_order`] holds a packet until its
//!   predecessors have left. No packet leaves before its serialisation ends: where the jitter is
//!   large compared with the delay, the distribution is cut at zero.
//! - Lengths are those of IP packets. For the rate and for limits in bytes,
//!   [`LinkConfig::overhead`] is added (14 bytes, an Ethernet header), as the kernel's TBF and
//!   netem count.
//!
//! # Verbs
//!
//! `enqueue` and `set_config` feed the link. `poll_at` returns when the next packet is due, `poll`
//! takes it. `counters`, `queued_packets`, `queued_bytes` and `in_flight` report. At every moment
//! `offered + duplicated = delivered + dropped + held`, see [`Counters`].
//!
//! ```
//! use core::time::Duration;
//! use mpip_link::{Link, LinkConfig};
//!
//! let config = LinkConfig { rate: Some(10_000_000), overhead: 0, ..LinkConfig::default() };
//! let mut link = Link::new(config, 1);
//! link.enqueue(Duration::ZERO, 1250, "packet").expect("the queue is empty");
//! assert_eq!(link.poll_at(), Some(Duration::from_millis(1)));
//! assert_eq!(link.poll(Duration::from_millis(1)).map(|d| d.packet), Some("packet"));
//! ```
//!
//! [`Duration`]: core::time::Duration

mod codel;
mod config;
mod counters;
mod model;
mod random;
mod trace;

pub use config::{Change, Codel, Discipline, LinkConfig, Loss, QueueLimit};
pub use counters::{Counters, DropCause};
pub use model::{Delivery, Link, flip_bit};
pub use trace::{Trace, TraceError};
