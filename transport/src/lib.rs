//! One path of mpip: numbered datagrams between two addresses.
//!
//! # What exists
//!
//! A [`Path`] is a pair of addresses and the state of the path between them. Each direction has its
//! own packet number space: [`Flight`] sends, detects losses and measures (RTT, delivery rate,
//! reordering), [`Arrivals`] receives and builds acknowledgements. [`cc`] is congestion control.
//! The other parts validate the remote address, discover the MTU and detect failure.
//!
//! # How a datagram travels
//!
//! Sending: [`Path::ready_at`] says when it may leave, [`Flight::on_sent`] records it with its
//! [`Content`]. Feedback (acknowledgements) goes to [`Flight::on_feedback`], which returns the
//! contents of lost datagrams. Receiving: [`Arrivals::on_packet`] records it; the feedback that it
//! owes is sent with another datagram, or alone when it is due.
//!
//! This crate must not know about keys, sessions, inner packets, schedulers or the set of paths:
//! what a datagram carries is a type parameter, and other paths are summaries ([`cc::Subflow`]).

mod arrivals;
pub mod bottleneck;
mod burst;
mod capacity;
pub mod cc;
mod challenge;
mod congestion;
mod content;
mod delay;
mod drain;
mod ecn;
mod flight;
mod limiter;
mod liveness;
mod loss;
mod metrics;
mod mtu;
mod pacer;
mod parameters;
mod path;
mod playout;
mod rate;
pub mod rest;
mod rtt;
mod seen;
mod state;
mod validation;

pub use arrivals::{Arrivals, MAX_DELAY};
pub use challenge::{Challenge, Standing};
pub use congestion::Congestion;
pub use content::Content;
pub use delay::{DelayEstimator, clock_difference};
pub use flight::{Flight, LossSummary, Losses, NeverSent, Newest, Progress, bytes_per_datagram};
pub use liveness::{MAX_PROBE_INTERVAL, Silence};
pub use metrics::Metrics;
pub use parameters::{BbrParameters, BottleneckParameters, Parameters, PlayoutParameters};
pub use path::{Counters, Path};
pub use rtt::RttEstimator;
pub use seen::{Reserve, Seen};
pub use state::PathState;
pub use validation::Validation;
