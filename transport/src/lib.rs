//! One path of mpip: a lane of numbered datagrams between two addresses.
//!
//! # What exists
//!
//! A [`Path`] is a pair of addresses and all that is known of the way between them. Its halves have
//! packet numbers of their own: [`Flight`] sends, finds losses and measures (RTT, delivery rate,
//! reordering), [`Arrivals`] receives and says what to acknowledge. [`cc`] limits what is in
//! flight; the path's other parts validate its remote address, find its MTU and find out whether it
//! lives.
//!
//! # How a datagram travels
//!
//! Out: [`Path::ready_at`] says when it may leave, [`Flight::on_sent`] takes note of it together
//! with its [`Content`]. Feedback goes to [`Flight::on_feedback`], which gives back the contents of
//! what was lost. In: [`Arrivals::on_packet`], whose feedback is sent along or on time.
//!
//! This crate must not know of keys, sessions, inner packets, schedulers or the set of paths: what
//! a datagram carries is a type parameter, and other paths are summaries ([`cc::Subflow`]).

mod arrivals;
pub mod bottleneck;
pub mod cc;
mod challenge;
mod congestion;
mod content;
mod delay;
mod ecn;
mod flight;
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
pub use flight::{Flight, LossSummary, Losses, NeverSent, Progress, bytes_per_datagram};
pub use liveness::Silence;
pub use metrics::Metrics;
pub use parameters::{BbrParameters, BottleneckParameters, Parameters, PlayoutParameters};
pub use path::{Counters, Path};
pub use rtt::RttEstimator;
pub use seen::{Reserve, Seen};
pub use state::PathState;
pub use validation::Validation;
