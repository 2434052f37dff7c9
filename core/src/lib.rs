//! The mpip engine.
//!
//! # What exists
//!
//! An [`Engine`] is one node. It has an *association* with each configured peer: one handshake,
//! the keys, all *paths* (pairs of a local and a remote address) and all *sessions* (inner
//! connections) between the two nodes. The engine owns no socket, thread or clock: time and
//! randomness are arguments, and what it produces goes into the caller's sinks.
//!
//! # How a packet travels
//!
//! Out: [`Engine::handle_tun`] takes a [`PacketBuf`], which may be a super-packet of many segments.
//! It is looked up (association by destination prefix, session by 4-tuple, priority by rule) and
//! queued. While some path has room, the scheduler picks one for the next segment, which is framed
//! into a slot of the [`DatagramSink`], which seals it at once or later ([`Sealing`]).
//!
//! In: [`Engine::handle_datagram`] opens a datagram in place, feeds its frames to the path's
//! feedback and hands inner packets to the session's resequencer, from which they reach the
//! [`PacketSink`] in order.
//!
//! # Verbs
//!
//! Fed by [`Engine::handle_tun`], [`handle_datagram`](Engine::handle_datagram),
//! [`handle_timeout`](Engine::handle_timeout), [`handle_writable`](Engine::handle_writable),
//! [`handle_destination`](Engine::handle_destination) and
//! [`handle_command`](Engine::handle_command); drained by [`flush`](Engine::flush),
//! [`poll_timeout`](Engine::poll_timeout), [`poll_event`](Engine::poll_event),
//! [`poll_capture`](Engine::poll_capture) and [`take_plain`](Engine::take_plain). Public-key work
//! is handed out with [`poll_job`](Engine::poll_job) and comes back with
//! [`handle_job`](Engine::handle_job).

mod aggregation;
mod association;
mod availability;
mod capture;
mod config;
mod content;
mod drops;
mod engine;
mod event;
mod former_peers;
mod guard;
mod handshake;
mod handshake_sources;
mod host_packets;
mod interactive;
mod loss_standby;
pub mod omission;
mod outgoing_sessions;
pub mod parameters;
mod parts;
mod path_status;
mod pins;
mod prefixes;
pub mod queue;
mod recent_bytes;
mod recent_paths;
mod repeated_segment;
mod repeats;
pub mod resequencer;
mod rtt_sample;
pub mod rules;
mod scheduler;
mod session;
mod shared;
mod status;
mod thinning;
pub mod trace;
mod translation;
mod unknown_peers;
pub mod window;

pub use association::PATH_LINGER;
pub use availability::{AvailabilityState, AvailabilityStatus};
pub use capture::{Capture, Traffic};
pub use config::{
    Config, Copies, DEFAULT_PORT, EncapsulationPolicy, InterfaceProperties, Limits, LossPolicy,
    Opportunistic, PathPreference, PeerConfig, Pin, Policy, Priority, Rule, RulePaths,
    SchedulerKind, WeightAdaptation,
};
pub use drops::DropReason;
#[cfg(any(test, fuzzing))]
pub use engine::check;
pub use engine::{Command, Engine, Reconfigured, Sender};
pub use event::Event;
pub use guard::GuardFigures;
pub use handshake::{HandshakeDone, HandshakeJob};
pub use loss_standby::LossFigures;
pub use mpip_transport::PathState;
pub use mpip_transport::cc::CongestionControlKind;
pub use mpip_types::{
    Bucket, Checksum, DatagramSink, Ecn, Encapsulation, InnerPacket, Instant, LocalAddress,
    LocalId, MAX_PACKET, Offload, Open, Opened, PacketBuf, PacketPool, PacketSink, PartialChecksum,
    PathAddress, PortSet, Prefix, PrefixError, Rate, SMALL_PACKET, Sealing, Segmentation,
    SegmentationKind, Slot, named, packet, table,
};
pub use mpip_wire::{PATH_COST_MAX, RateLimit};
pub use parameters::Parameters;
pub use parts::receive_key::{KeyChange, receiver_index};
pub use parts::selection::Hold;
pub use pins::PinChange;
pub use status::{
    PathRole, PathStatus, PathTraffic, PeerStatus, PlainSessionStatus, SessionStatus, Status, Way,
    WayPath,
};
pub use translation::TRANSLATED_PORTS;
