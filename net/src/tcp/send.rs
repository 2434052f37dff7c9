//! Sends and receives datagrams on TCP connections, for the engine.

use core::ops::Range;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use mpip_segments::Counters;
use mpip_segments::Endpoint;
use mpip_segments::segment::HEADROOM;
use mpip_segments::segment::continues;
use mpip_segments::segment::frame;
use mpip_segments::segment::seal;
use mpip_types::DatagramSink;
use mpip_types::Ecn;
use mpip_types::Instant;
use mpip_types::LocalId;
use mpip_types::PathAddress;
use mpip_types::Slot;

use super::socket::TcpSocket;
use super::trains::Departure;
use super::trains::MAX_TRAIN;
use super::trains::MIN_SEGMENTS;
use super::trains::Trains;
use crate::socket::ReceiveBuffers;
use crate::socket::SendCounters;
use crate::socket::SendError;
use crate::socket::address::RawAddress;
use crate::socket::batch::Batch;
use crate::socket::batch::is_temporary;
use crate::socket::queues::Queues;
use crate::socket::queues::Report;
use crate::socket::queues::Room;
use crate::socket::queues::SendQueue;
use crate::socket::receive::{MAX_BUFFERS, Message, receive};

/// Size of the buffer for datagrams, in bytes. When it is full they are sent without a flush.
const BUFFER_LEN: usize = 128 << 10;
/// Longest datagram in bytes: together with the headers of IPv6 it has to fit an IP packet.
const MAX_DATAGRAM: usize = 65_535 - 40 - HEADROOM;
/// How often the buffers are filled in one batch. Each segment takes a buffer, unless the kernel
/// has gathered several. The work after a batch (writes to the TUN device, feedback) costs less per
/// segment in a large batch.
const ROUNDS: usize = 6;
/// Bytes from which on a batch is large enough: all rounds of single segments.
const BATCH: usize = 128 << 10;
/// Most segments in the backlog of a blocked socket.
const MAX_WAITING: usize = 512;

/// Takes datagrams from the engine and sends them as TCP segments, and receives those of peers.
///
/// Its use is that of a [`UdpSender`](crate::UdpSender).
#[derive(Debug)]
pub struct TcpSender {
    queues: Queues<Queue>,
    now: Instant,
    /// Our own table of nftables.
    table: Arc<str>,
}

impl TcpSender {
    /// A sender without sockets. `table` is the table of nftables that is our own: it does nothing
    /// to packets of these sockets.
    pub fn new(table: &str) -> Self {
        Self { queues: Queues::default(), now: Instant::default(), table: table.into() }
    }

    /// Adds a socket whose interface has the MTU `mtu`. It replaces one with the same id. `seed`
    /// must be unpredictable.
    pub fn insert(&mut self, socket: Arc<TcpSocket>, mtu: u16, seed: [u8; 32]) {
        let trains = Trains::new(&socket, &self.table);
        self.queues.insert(Queue::new(socket, trains, mtu, seed));
    }

    /// Removes the socket of `local` and drops its backlog.
    pub fn remove(&mut self, local: LocalId) {
        self.queues.remove(local);
    }

    /// The sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &Arc<TcpSocket>> {
        self.queues.iter().map(|queue| &queue.socket)
    }

    /// The socket of `local`.
    pub fn socket(&self, local: LocalId) -> Option<&Arc<TcpSocket>> {
        self.queues.get(local).map(|queue| &queue.socket)
    }

    /// Receives the segments that have arrived at the socket of `local`, and calls `take` for each
    /// datagram. `take` returns whether the datagram authenticated its sender, see
    /// [`Endpoint::receive`]. Call [`flush`](Self::flush) afterwards to send the answers.
    pub fn recv_batch(
        &mut self,
        now: Instant,
        local: LocalId,
        buffers: &mut ReceiveBuffers,
        mut take: impl FnMut(SocketAddr, Ecn, &mut [u8]) -> bool,
    ) -> io::Result<()> {
        self.now = now;
        let Some((queue, _)) = self.queues.settled_at(local) else { return Ok(()) };
        let Queue { socket, endpoint, .. } = queue;
        let local = socket.address();
        let mut received = 0;
        for _ in 0..ROUNDS {
            let full = receive(socket.as_fd(), buffers, MAX_BUFFERS)?;
            received += buffers.len();
            for Message { remote: source, ecn, bytes, .. } in buffers.messages() {
                receive_segment(now, endpoint, local, source, bytes, |remote, datagram| {
                    take(remote, ecn, datagram)
                });
            }
            if !full || received >= BATCH {
                break;
            }
        }
        Ok(())
    }

    /// A datagram from `from` proved to be authentic after `take` had returned: see
    /// [`Endpoint::confirm_later`].
    pub fn confirm(&mut self, now: Instant, from: PathAddress) {
        if let Some((queue, _)) = self.queues.settled_at(from.local) {
            queue.endpoint.confirm_later(now, from.remote);
        }
    }

    /// Datagrams that are sent before the next [`flush`](Self::flush), because the buffer is full,
    /// are sent at `now`.
    pub fn set_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// Sends as much as the kernel takes.
    pub fn flush(&mut self, now: Instant) {
        self.now = now;
        let (queues, report) = self.queues.settled();
        for queue in queues.iter_mut().filter(|queue| !queue.blocked) {
            queue.send(now, report);
        }
    }

    /// Sends the backlog of `local`, whose socket has become writable. Returns whether it is no
    /// longer blocked.
    pub fn writable(&mut self, now: Instant, local: LocalId) -> bool {
        let Some((queue, report)) = self.queues.settled_at(local) else { return false };
        queue.send(now, report);
        !queue.blocked
    }

    /// Whether the socket of `local` has a backlog and waits to be writable.
    pub fn is_blocked(&self, local: LocalId) -> bool {
        self.queues.is_blocked(local)
    }

    /// Time at which to call [`handle_timeout`](Self::handle_timeout).
    pub fn next_timeout(&self) -> Option<Instant> {
        self.queues.iter().filter_map(|queue| queue.endpoint.next_timeout()).min()
    }

    /// Runs the timers of all connections. Call [`flush`](Self::flush) afterwards.
    pub fn handle_timeout(&mut self, now: Instant) {
        for queue in self.queues.settled().0 {
            queue.endpoint.handle_timeout(now);
        }
    }

    /// Closes all connections, as far as the kernel takes the segments.
    pub fn close(&mut self, now: Instant) {
        self.flush(now);
        for queue in self.queues.settled().0 {
            queue.endpoint.close(now);
        }
        self.flush(now);
    }

    /// The next error, oldest first.
    pub fn poll_error(&mut self) -> Option<SendError> {
        self.queues.report.errors.pop_front()
    }

    /// Counts of sending so far.
    pub fn counters(&self) -> SendCounters {
        self.queues.report.counters
    }

    /// Counts of connections so far, and the number of connections.
    pub fn connections(&self) -> (Counters, usize) {
        let mut sum = (Counters::default(), 0);
        for queue in self.queues.iter() {
            sum.0 += queue.endpoint.counters();
            sum.1 += queue.endpoint.connections();
        }
        sum
    }
}

impl DatagramSink for TcpSender {
    fn reserve(&mut self, to: PathAddress, ecn: Ecn, len: usize) -> Option<Slot<'_>> {
        let now = self.now;
        self.queues.lend(to.local, |queue, report| {
            let bytes = queue.reserve(now, to.remote, ecn, len, report)?;
            Some(Room { bytes, later: None })
        })
    }
}

/// Hands a message of the raw socket at `local` to the endpoint.
fn receive_segment(
    now: Instant,
    endpoint: &mut Endpoint,
    local: SocketAddr,
    source: SocketAddr,
    message: &mut [u8],
    mut take: impl FnMut(SocketAddr, &mut [u8]) -> bool,
) {
    let ip_header = match local {
        SocketAddr::V4(_) => message.first().map_or(0, |byte| usize::from(byte & 0xf) * 4),
        SocketAddr::V6(_) => 0,
    };
    let segment = message.get_mut(ip_header..).unwrap_or_default();
    endpoint.receive_bytes(now, source.ip(), segment, &mut take);
}

/// A segment, or a datagram that has no header yet.
#[derive(Debug)]
struct Outgoing {
    to: SocketAddr,
    ecn: Ecn,
    /// Its place in the buffer, unless it is in `own`.
    range: Range<usize>,
    own: Vec<u8>,
}

/// The datagrams and segments of one socket that have not left yet.
#[derive(Debug)]
struct Queue {
    socket: Arc<TcpSocket>,
    trains: Option<Trains>,
    endpoint: Endpoint,
    buffer: Box<[u8]>,
    used: usize,
    /// Datagrams in their slots, which get headers when they are sent.
    datagrams: Vec<Outgoing>,
    /// Without checksum, or with one.
    segments: VecDeque<Outgoing>,
    reserved: Option<Outgoing>,
    blocked: bool,
}

impl SendQueue for Queue {
    fn id(&self) -> LocalId {
        self.socket.id()
    }

    fn is_blocked(&self) -> bool {
        self.blocked
    }

    fn settle(&mut self, committed: bool) {
        let Some(datagram) = self.reserved.take() else { return };
        if committed {
            self.used = datagram.range.end;
            self.datagrams.push(datagram);
        }
    }

    fn clear(&mut self) -> u64 {
        (self.datagrams.drain(..).count() + self.segments.drain(..).count()) as u64
    }
}

impl Queue {
    fn new(socket: Arc<TcpSocket>, trains: Option<Trains>, mtu: u16, seed: [u8; 32]) -> Self {
        Self {
            endpoint: Endpoint::new(socket.address(), mtu, seed),
            socket,
            trains,
            buffer: vec![0; BUFFER_LEN].into(),
            used: 0,
            datagrams: Vec::new(),
            segments: VecDeque::new(),
            reserved: None,
            blocked: false,
        }
    }

    fn reserve(
        &mut self,
        now: Instant,
        to: SocketAddr,
        ecn: Ecn,
        len: usize,
        report: &mut Report,
    ) -> Option<&mut [u8]> {
        if len == 0 || len > MAX_DATAGRAM || to.is_ipv4() != self.socket.address().is_ipv4() {
            let errno = if len > MAX_DATAGRAM { libc::EMSGSIZE } else { libc::EINVAL };
            report.error(self.error(to, len, errno));
            return None;
        }
        let size = HEADROOM + len;
        if !self.blocked && self.used + size > BUFFER_LEN {
            self.send(now, report);
        }
        if self.blocked || self.used + size > BUFFER_LEN {
            report.counters.refused += 1;
            return None;
        }
        let range = self.used..self.used + size;
        self.reserved = Some(Outgoing { to, ecn, range: range.clone(), own: Vec::new() });
        Some(&mut self.buffer[range][HEADROOM..])
    }

    /// Sends until nothing is left or the kernel takes no more.
    fn send(&mut self, now: Instant, report: &mut Report) {
        self.blocked = false;
        self.take_control();
        self.take_datagrams(now, report);
        // A datagram without a connection has opened one.
        self.take_control();
        while !self.segments.is_empty() {
            if self.send_train(now, report) {
                continue;
            }
            match self.send_batch(report) {
                Ok(()) | Err(libc::EINTR) => {}
                Err(errno) if is_temporary(errno) => {
                    report.counters.blocked += 1;
                    self.blocked = true;
                    return;
                }
                Err(errno) => {
                    if let Some(first) = self.segments.pop_front() {
                        report.error(self.error(first.to, first.bytes(&self.buffer).len(), errno));
                    }
                }
            }
        }
        self.used = 0;
    }

    /// Queues segments without data.
    fn take_control(&mut self) {
        while self.segments.len() < MAX_WAITING
            && let Some(control) = self.endpoint.poll_control()
        {
            let mut own = vec![0; control.header.encoded_len()];
            control.header.write(&mut own);
            self.segments.push_back(Outgoing {
                to: control.to,
                ecn: Ecn::NotEct,
                range: 0..0,
                own,
            });
        }
    }

    /// Gives datagrams their headers, first those that waited for their connection.
    fn take_datagrams(&mut self, now: Instant, report: &mut Report) {
        while let Some((to, ecn, bytes)) = self.endpoint.poll_released() {
            let mut own = vec![0; HEADROOM + bytes.len()];
            own[HEADROOM..].copy_from_slice(&bytes);
            match self.endpoint.data(now, to, bytes.len(), true) {
                Some(header) => {
                    let start = frame(&header, &mut own);
                    own.drain(..start);
                    self.segments.push_back(Outgoing { to, ecn, range: 0..0, own });
                }
                None => report.counters.dropped_other += 1,
            }
        }
        let mut datagrams = core::mem::take(&mut self.datagrams);
        for index in 0..datagrams.len() {
            let Outgoing { to, ecn, ref range, .. } = datagrams[index];
            let push = datagrams.get(index + 1).is_none_or(|next| next.to != to);
            let room = &mut self.buffer[range.clone()];
            let len = room.len() - HEADROOM;
            match self.endpoint.data(now, to, len, push) {
                Some(header) => {
                    let start = range.start + frame(&header, room);
                    let range = start..range.end;
                    self.segments.push_back(Outgoing { to, ecn, range, own: Vec::new() });
                }
                None => self.endpoint.hold(now, to, ecn, room[HEADROOM..].to_vec()),
            }
        }
        datagrams.clear();
        self.datagrams = datagrams;
    }

    /// Sends the first segments as one super-packet. Returns whether it did, or dropped them.
    fn send_train(&mut self, now: Instant, report: &mut Report) -> bool {
        let Some(trains) = &mut self.trains else { return false };
        let Some(&Outgoing { to, ecn, .. }) = self.segments.front() else { return false };
        if self.segments.len() <= MIN_SEGMENTS || trains.way(now, to.ip()).is_none() {
            return false;
        }
        let mut train: [&[u8]; MAX_TRAIN] = [&[]; MAX_TRAIN];
        let mut len = 0;
        for segment in self.segments.iter().take(MAX_TRAIN) {
            let bytes = segment.bytes(&self.buffer);
            let joins = len == 0
                || segment.to == to
                    && segment.ecn == ecn
                    && train[len - 1].len() == train[0].len()
                    && continues(train[len - 1], bytes);
            if !joins {
                break;
            }
            train[len] = bytes;
            len += 1;
        }
        let size = train[0].len();
        let count = match trains.send(now, to, ecn, &train[..len]) {
            Departure::OneByOne => return false,
            Departure::Left(count) => {
                report.counters.messages += 1;
                report.counters.datagrams += count as u64;
                report.counters.bytes += (count * size) as u64;
                count
            }
            Departure::Dropped(count, errno) => {
                let datagrams = count as u64;
                report.error(SendError { datagrams, ..self.error(to, size, errno) });
                count
            }
        };
        report.counters.calls += 1;
        self.segments.drain(..count);
        true
    }

    /// Sends the first segments with one call. An error is about the first that remains.
    fn send_batch(&mut self, report: &mut Report) -> Result<(), i32> {
        let local = self.socket.address();
        for segment in self.segments.iter_mut().take(Batch::CAPACITY) {
            let to = segment.to;
            seal(local, to, segment.bytes_mut(&mut self.buffer));
        }
        let mut batch = Batch::new();
        for segment in self.segments.iter().take(Batch::CAPACITY) {
            // The port of a raw socket is a protocol, which it already has.
            let mut to = segment.to;
            to.set_port(0);
            batch.push(RawAddress::from(to), segment.ecn, segment.bytes(&self.buffer), None);
        }
        report.counters.calls += 1;
        let sent = batch.send(self.socket.as_fd())?;
        for segment in self.segments.drain(..sent) {
            report.counters.messages += 1;
            report.counters.datagrams += 1;
            report.counters.bytes += segment.bytes(&self.buffer).len() as u64;
        }
        Ok(())
    }

    fn error(&self, remote: SocketAddr, len: usize, errno: i32) -> SendError {
        SendError { local: self.socket.id(), remote, datagrams: 1, len, errno }
    }
}

impl Outgoing {
    fn bytes<'a>(&'a self, buffer: &'a [u8]) -> &'a [u8] {
        if self.own.is_empty() { &buffer[self.range.clone()] } else { &self.own }
    }

    fn bytes_mut<'a>(&'a mut self, buffer: &'a mut [u8]) -> &'a mut [u8] {
        if self.own.is_empty() { &mut buffer[self.range.clone()] } else { &mut self.own }
    }
}
