//! Types that all layers of mpip share: time, addresses, buffers, inner packets, and sinks for the
//! output of a layer.
//!
//! A packet from the host lives in a [`PacketBuf`] of a [`PacketPool`], is read once
//! ([`packet::Header`]) and cut into [`packet::Segments`]. A datagram for the network is written
//! into a [`Slot`] that a [`DatagramSink`] lends. It is sealed there at once, or later by what
//! [`Sealings`] have noted. Time is an [`Instant`] that the caller passes.
//!
//! This crate must not know about messages, keys, paths or sessions: protocol state belongs to a
//! layer above. It owns no socket, thread, clock or randomness.

#[macro_use]
mod named;

mod address;
mod bucket;
mod buffer;
mod ecn;
mod intervals;
mod opening;
pub mod packet;
pub mod parameters;
mod ports;
mod prefix;
mod sealing;
mod sink;
pub mod table;
mod time;

pub use address::{Encapsulation, LocalAddress, LocalId, PathAddress};
pub use bucket::{Bucket, Rate};
pub use buffer::{
    MAX_PACKET, Offload, PacketBuf, PacketPart, PacketPool, PartialChecksum, SMALL_PACKET,
    Segmentation, SegmentationKind,
};
pub use ecn::Ecn;
pub use intervals::Intervals;
pub use opening::{Open, Opened};
pub use ports::PortSet;
pub use prefix::{Prefix, PrefixError};
pub use sealing::{Seal, Sealing, Sealings};
pub use sink::{Checksum, DatagramSink, InnerPacket, PacketSink, Slot};
pub use time::Instant;
