//! Deterministic simulator of mpip hosts and links.
//!
//! A [`World`](world::World) has hosts, each with an engine and real transports above it ([`tcp`],
//! [`quic`]), and links (`mpip_link`) between their interfaces. It runs in virtual time, faster
//! than real time. All random choices follow from one seed, so a failure repeats.
//!
//! ```text
//!   flows, TCP              invariants watch                TCP, flows
//!       │  ▲            every packet and datagram               ▲  │
//!       ▼  │                                                    │  ▼
//!     engine ────► outbox ────► (NAT) ──────► links ──────► (NAT) ────► engine
//!     clock: offset, drift         network                clock: offset, drift
//! ```
//!
//! # How time passes
//!
//! The world asks its parts (script, links, engines, flows, TCP) when they are due next, advances
//! its time to the earliest, and runs the parts that are due in this fixed order. Parts of one kind
//! run in the order of their index. A host's engine never sees virtual time, only the host's
//! [clock](clock::HostClock).
//!
//! # What is checked
//!
//! [`Invariant`] lists what must hold. Delivered packets are compared with those sent, by digest.
//! The bytes sent to addresses that have not answered are counted. At the end the links heal; then
//! both engines must have the same paths and sessions, and empty queues.
//!
//! # Where to start
//!
//! [`random::random_world`] makes a world from a seed, and [`run::run_seed`] runs it.
//! [`spec::WorldSpec`] describes a world by hand. [`measure::measure`] measures the goodput of
//! plain TCP or of mpip over given links.

pub mod clock;
mod host;
pub mod hostile;
mod invariant;
mod keys;
pub mod measure;
pub mod nat;
pub mod network;
pub mod node;
pub mod packet;
pub mod quic;
pub mod random;
pub mod rng;
pub mod run;
pub mod spec;
mod stack;
pub mod tcp;
pub mod traffic;
pub mod world;

pub use invariant::{Invariant, Violation};
