//! The engine: fed and drained by a handful of verbs.

use core::net::SocketAddr;
use core::time::Duration;

use crate::buffer::PacketBuf;
use crate::config::{Config, LocalAddress};
use crate::event::Event;
use crate::sink::{DatagramSink, Ecn, LocalId, PacketSink, PathAddress};
use crate::status::Status;
use crate::time::Instant;

/// Why a packet or datagram was refused. It is counted; one bad packet never ends a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// Not a whole IPv4 or IPv6 packet.
    MalformedPacket,
}

/// What the host tells the engine.
#[derive(Clone, Debug)]
pub enum Command {
    /// The complete list of addresses that paths may start from; replaces the former list.
    LocalAddresses(Vec<LocalAddress>),
    /// Say goodbye to every peer. Nothing is sent after the next call that takes a sink.
    Shutdown,
}

/// The protocol engine of one node.
#[derive(Debug)]
pub struct Engine {}

impl Engine {
    /// An engine with `config`. `seed` must be 32 bytes of the operating system's randomness (or a
    /// test's fixed value); `unix_time` is the wall clock at `now`, for handshake timestamps.
    pub fn new(config: Config, seed: [u8; 32], now: Instant, unix_time: Duration) -> Self {
        let _ = (config, seed, now, unix_time);
        Self {}
    }

    /// A packet or super-packet from the TUN device. Datagrams that may leave at once go to `out`.
    pub fn handle_tun(
        &mut self,
        now: Instant,
        packet: PacketBuf,
        out: &mut impl DatagramSink,
    ) -> Result<(), DropReason> {
        let _ = (now, packet, out);
        Ok(())
    }

    /// A datagram from the network, opened in place. Inner packets that are due go to `packets`.
    /// What is to be sent in answer waits for the next [`flush`](Self::flush).
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: PathAddress,
        ecn: Ecn,
        datagram: &mut [u8],
        packets: &mut impl PacketSink,
    ) -> Result<(), DropReason> {
        let _ = (now, from, ecn, datagram, packets);
        Ok(())
    }

    /// Sends what the datagrams of a batch gave room or reason for. Call it once after every batch
    /// of [`handle_datagram`](Self::handle_datagram).
    pub fn flush(&mut self, now: Instant, out: &mut impl DatagramSink) {
        let _ = (now, out);
    }

    /// Does what is due at `now`: see [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(
        &mut self,
        now: Instant,
        datagrams: &mut impl DatagramSink,
        packets: &mut impl PacketSink,
    ) {
        let _ = (now, datagrams, packets);
    }

    /// `local` can take datagrams again after a reservation on it was refused.
    pub fn handle_writable(&mut self, now: Instant, local: LocalId, out: &mut impl DatagramSink) {
        let _ = (now, local, out);
    }

    /// The host changed. Datagrams that follow from it leave at the next
    /// [`handle_timeout`](Self::handle_timeout), which is then due at once.
    pub fn handle_command(&mut self, now: Instant, command: Command) {
        let _ = (now, command);
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called next, whatever else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The next event, oldest first. Events are bounded; the oldest go when nobody asks.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }

    /// Statistics. `sessions` adds the list of sessions.
    pub fn status(&self, now: Instant, sessions: bool) -> Status {
        let _ = (now, sessions);
        unreachable!("the skeleton has no state")
    }

    /// A datagram that the engine would like sent toward `remote` could not be routed.
    pub fn handle_unreachable(&mut self, now: Instant, local: LocalId, remote: SocketAddr) {
        let _ = (now, local, remote);
    }
}
