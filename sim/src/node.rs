//! The node of a host: the engine, plain IP for comparison, or a hostile node.

use core::net::IpAddr;

use mpip_core::trace::TraceSink;
use mpip_core::{
    Capture, Command, DatagramSink, DropReason, Ecn, Engine, Event, InnerPacket, Instant,
    PacketBuf, PacketSink, PathAddress, Sender, Slot, Status,
};

use crate::hostile::Hostile;

/// The node of a host.
#[derive(Debug)]
pub enum Node {
    /// mpip.
    Engine(Box<Engine>),
    /// Plain IP on the given path: the baseline of every measurement.
    Plain(PathAddress),
    /// A hostile node.
    Hostile(Box<Hostile>),
}

impl Node {
    pub(crate) fn handle_tun(
        &mut self,
        now: Instant,
        packet: PacketBuf,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        match self {
            Self::Engine(engine) => {
                let taken = engine.handle_tun(now, packet);
                engine.flush(now, out);
                taken
            }
            Self::Plain(path) => {
                let bytes = packet.bytes();
                if let Some(mut slot) = out.reserve(*path, Ecn::NotEct, bytes.len()) {
                    slot.bytes().copy_from_slice(bytes);
                    slot.commit();
                }
                Ok(())
            }
            Self::Hostile(_) => Ok(()),
        }
    }

    /// Processes a datagram; returns what it proves about its sender. Handshakes wait for
    /// [`run_jobs`](Self::run_jobs).
    pub(crate) fn handle_datagram(
        &mut self,
        now: Instant,
        from: PathAddress,
        ecn: Ecn,
        datagram: &mut [u8],
        packets: &mut Inbox,
    ) -> Result<Sender, DropReason> {
        match self {
            Self::Engine(engine) => engine.handle_datagram(now, from, ecn, datagram, packets),
            Self::Plain(_) => {
                packets.packet(InnerPacket {
                    head: datagram,
                    tail: &[],
                    checksum: mpip_core::Checksum::Complete,
                });
                Ok(Sender::Unknown)
            }
            Self::Hostile(hostile) => {
                hostile.handle_datagram(from, datagram);
                Ok(Sender::Unknown)
            }
        }
    }

    /// Does the pending public-key work. Adds the sources of authentic messages to `proved`.
    pub(crate) fn run_jobs(
        &mut self,
        now: Instant,
        proved: &mut Vec<PathAddress>,
    ) -> Result<(), DropReason> {
        let Self::Engine(engine) = self else { return Ok(()) };
        let mut handled = Ok(());
        while let Some(job) = engine.poll_job() {
            let done = engine.handle_job(now, job.run());
            proved.extend(done.ok().flatten());
            handled = handled.and(done.map(drop));
        }
        handled
    }

    pub(crate) fn flush(&mut self, now: Instant, out: &mut Outbox) {
        if let Self::Engine(engine) = self {
            engine.flush(now, out);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, out: &mut Outbox, packets: &mut Inbox) {
        if let Self::Engine(engine) = self {
            engine.handle_timeout(now, out, packets);
            // Errors of handshakes are counted.
            let _ = engine.run_jobs(now);
            engine.flush(now, out);
        }
    }

    /// Takes packets that were given to the node and leave as plain IP.
    pub(crate) fn take_plain(&mut self, packets: &mut Inbox) {
        if let Self::Engine(engine) = self {
            engine.take_plain(packets);
        }
    }

    /// The next change of the packets to capture.
    pub(crate) fn poll_capture(&mut self) -> Option<Capture> {
        match self {
            Self::Engine(engine) => engine.poll_capture(),
            Self::Plain(_) | Self::Hostile(_) => None,
        }
    }

    /// Whether sessions use `address` as their end on this host.
    pub(crate) fn uses_address(&self, address: IpAddr) -> bool {
        matches!(self, Self::Engine(engine) if engine.uses_address(address))
    }

    pub(crate) fn handle_destination(&mut self, now: Instant, from: IpAddr, to: IpAddr) {
        if let Self::Engine(engine) = self {
            engine.handle_destination(now, from, to);
        }
    }

    pub(crate) fn handle_writable(
        &mut self,
        now: Instant,
        local: mpip_core::LocalId,
        out: &mut Outbox,
    ) {
        if let Self::Engine(engine) = self {
            engine.handle_writable(now, local, out);
        }
    }

    pub(crate) fn handle_command(&mut self, now: Instant, command: Command) {
        if let Self::Engine(engine) = self {
            engine.handle_command(now, command);
        }
    }

    pub(crate) fn handle_unreachable(&mut self, now: Instant, to: PathAddress) {
        if let Self::Engine(engine) = self {
            engine.handle_unreachable(now, to.local, to.remote);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Engine(engine) => engine.poll_timeout(),
            Self::Plain(_) | Self::Hostile(_) => None,
        }
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Engine(engine) => engine.poll_event(),
            Self::Plain(_) | Self::Hostile(_) => None,
        }
    }

    pub(crate) fn trace(&mut self, peer: &str, sink: Box<dyn TraceSink>) -> bool {
        match self {
            Self::Engine(engine) => engine.trace(peer, sink),
            Self::Plain(_) | Self::Hostile(_) => false,
        }
    }

    /// Statistics; `None` for a host without mpip.
    pub fn status(&self, now: Instant, sessions: bool) -> Option<Status> {
        match self {
            Self::Engine(engine) => Some(engine.status(now, sessions)),
            Self::Plain(_) | Self::Hostile(_) => None,
        }
    }
}

/// Datagrams of a node, written in place.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    entries: Vec<(PathAddress, Ecn, usize)>,
    /// Whether the last entry counts.
    committed: bool,
    /// Local addresses whose sockets are full.
    pub(crate) full: Vec<mpip_core::LocalId>,
    /// Reservations that were refused.
    pub(crate) refused: u64,
}

impl Outbox {
    fn roll_back(&mut self) {
        if !self.committed
            && let Some((_, _, start)) = self.entries.pop()
        {
            self.bytes.truncate(start);
        }
        self.committed = true;
    }

    /// Passes each datagram to `take`, in order, and is empty afterwards.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(PathAddress, Ecn, &[u8])) {
        self.roll_back();
        let ends = self.entries.iter().skip(1).map(|entry| entry.2).chain([self.bytes.len()]);
        for (&(to, ecn, start), end) in self.entries.iter().zip(ends) {
            take(to, ecn, &self.bytes[start..end]);
        }
        self.entries.clear();
        self.bytes.clear();
    }
}

impl DatagramSink for Outbox {
    fn reserve(&mut self, to: PathAddress, ecn: Ecn, len: usize) -> Option<Slot<'_>> {
        self.roll_back();
        if self.full.contains(&to.local) {
            self.refused += 1;
            return None;
        }
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        self.entries.push((to, ecn, start));
        Some(Slot::new(&mut self.bytes[start..], &mut self.committed))
    }
}

/// Inner packets that a node delivers.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    entries: Vec<(usize, mpip_core::Checksum)>,
}

impl Inbox {
    /// Passes each packet to `take`, in order, with the state of its checksum; empty afterwards.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(&mut [u8], mpip_core::Checksum)) {
        let mut start = 0;
        for &(end, checksum) in &self.entries {
            take(&mut self.bytes[start..end], checksum);
            start = end;
        }
        self.entries.clear();
        self.bytes.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl PacketSink for Inbox {
    fn packet(&mut self, packet: InnerPacket<'_>) {
        self.bytes.extend_from_slice(packet.head);
        self.bytes.extend_from_slice(packet.tail);
        self.entries.push((self.bytes.len(), packet.checksum));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpip_core::LocalId;

    fn to(local: u16) -> PathAddress {
        PathAddress { local: LocalId(local), remote: "198.18.0.1:6182".parse().unwrap() }
    }

    fn drained(outbox: &mut Outbox) -> Vec<(u16, Vec<u8>)> {
        let mut seen = Vec::new();
        outbox.drain(|to, _, bytes| seen.push((to.local.0, bytes.to_vec())));
        seen
    }

    #[test]
    fn only_committed_datagrams_leave() {
        let mut outbox = Outbox { committed: true, ..Outbox::default() };
        for (local, commit) in [(1, true), (2, false), (3, true), (4, false)] {
            let mut slot = outbox.reserve(to(local), Ecn::NotEct, 2).expect("room");
            slot.bytes().fill(local as u8);
            if commit {
                slot.commit();
            }
        }
        assert_eq!(drained(&mut outbox), [(1, vec![1, 1]), (3, vec![3, 3])]);
        assert_eq!(drained(&mut outbox), []);
    }

    #[test]
    fn a_full_local_takes_nothing() {
        let mut outbox = Outbox { full: vec![LocalId(1)], ..Outbox::default() };
        assert!(outbox.reserve(to(1), Ecn::NotEct, 2).is_none());
        assert!(outbox.reserve(to(2), Ecn::NotEct, 2).is_some());
        assert_eq!(outbox.refused, 1);
    }
}
