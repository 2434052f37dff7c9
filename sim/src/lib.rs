//! Deterministic simulator of mpip hosts and links.
//!
//! A [`World`](world::World) is made of hosts, each with an engine of its own and real TCP above it
//! (`smoltcp` receives, what sends is in [`tcp`]), and of links (`mpip_link`) between their
//! interfaces. It runs in virtual time, faster than a clock, and everything random in it follows from
//! one seed: a world that breaks breaks again the same way.
//!
//! ```text
//!   flows, TCP              invariants watch                TCP, flows
//!       │  ▲            every packet and datagram               ▲  │
//!       ▼  │                                                    │  ▼
//!     engine ──► outbox ──► (translator) ──► links ──► (translator) ──► engine
//!     clock: offset, drift         network                clock: offset, drift
//! ```
//!
//! # How time passes
//!
//! The world asks everybody when something is due next (script, links, engines, flows, TCP), goes
//! there, and does what is due in that fixed order. Equal times are ordered by kind and index, so
//! nothing depends on chance. A host's engine never sees virtual time but its own
//! [clock](clock::HostClock).
//!
//! # What is checked
//!
//! [`Invariant`] lists what must hold. Packets are compared with what was sent, by digest; the
//! wire is watched for what goes to addresses that did not answer; at the end the links heal and
//! both engines have to come to the same paths and sessions, with nothing left in a queue.
//!
//! # Where to start
//!
//! [`random::random_world`] makes a world from a seed and [`run::run_seed`] runs it;
//! [`spec::WorldSpec`] describes one by hand; [`measure::measure`] gives the goodput of plain TCP
//! or mpip over given links.

pub mod clock;
mod host;
pub mod hostile;
mod invariant;
pub mod measure;
pub mod nat;
pub mod network;
pub mod node;
pub mod packet;
pub mod random;
pub mod rng;
pub mod run;
pub mod spec;
pub mod tcp;
pub mod traffic;
pub mod world;

pub use invariant::{Invariant, Violation};
