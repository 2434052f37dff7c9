//! The model of a network link, shared by the simulator and the testbed.
//!
//! [`Link`] is one direction of a link: packets enter at one end and leave at the other. It owns
//! no clock, no thread and no source of randomness: time is an argument (a [`Duration`] since an
//! origin that the caller chooses) and every random choice comes from a seed. So `sim` runs it in
//! virtual time and `lab` in real time, from the same scenario files.
//!
//! # The way of a packet
//!
//! ```text
//!            MTU, up/down,     bounded queue        serialisation      loss, corruption,   delay + jitter
//! enqueue ─► blackhole     ─►  (tail drop or   ─►   at the rate    ─►  duplication     ─►  (own departure ─► poll
//!                              CoDel)               or by a trace                          time each)
//! ```
//!
//! - The queue holds the packets that wait; the packet on the wire is not counted. A limit of
//!   `n` packets therefore lets `n` packets wait behind the one that is being sent.
//! - Serialisation is exact to the nanosecond without drift: the fraction of a nanosecond that a
//!   packet leaves over is carried to the next. Being polled late does not slow the link.
//! - A packet that is lost has used the link, as on a radio link, so the payload that a link can
//!   carry is `rate * (1 - loss)`. (The kernel's netem drops before its rate limiter.)
//! - Jitter is normally distributed around the delay and drawn for each packet alone, so packets
//!   overtake each other as with netem; [`LinkConfig::in_order`] holds a packet until its
//!   predecessors have left. A departure is never before the end of serialisation: where the
//!   jitter is large against the delay, the distribution is cut at zero.
//! - Lengths are lengths of IP packets; [`LinkConfig::overhead`] (14 bytes, an Ethernet header)
//!   is added for the rate and for limits in bytes, as the kernel's TBF and netem count.
//!
//! # Verbs
//!
//! `enqueue` and `set_config` feed the link; `poll_at` says when something is due, `poll` takes
//! it; `counters`, `queued_packets`, `queued_bytes` and `in_flight` report. At every moment
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

pub mod limit;
mod model;
mod random;
pub mod scenario;

mod trace;
pub mod units;

pub use config::{Change, Codel, Discipline, LinkConfig, Loss, QueueLimit};
pub use counters::{Counters, DropCause};
pub use model::{Delivery, Link, flip_bit};
pub use trace::{Trace, TraceError};
