//! The QUIC of a host: `quinn-proto`, which is what `quinn` runs above sockets, with its defaults
//! except for the windows, as download clients set them. Loss detection is that of RFC 9002 (three
//! packets, 9/8 of the round trip), as in `quic-go` and others; only the congestion control varies.
//!
//! A transfer is one unidirectional stream, whose bytes follow a known pattern. Its sender is
//! the client, as a sender of TCP connects. Nothing is encrypted (`session`), and all random
//! choices follow from a seed, so that a transfer repeats.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, ConnectionId, ConnectionIdGenerator, DatagramEvent,
    Dir, EcnCodepoint, Endpoint, EndpointConfig, Event, ServerConfig, StreamEvent, StreamId,
    Transmit, TransportConfig, VarInt,
};

use crate::clock::{NEVER, Nanos};
use crate::packet::{self, Shape, protocol};
use crate::rng::Rng;
use crate::tcp::Received;

mod clock;
mod hybrid;
mod session;

use clock::Clock;
use session::Open;

/// Receive and send windows of a connection and of its stream, bytes.
const WINDOW: u32 = 16 << 20;
/// Datagrams that `quinn` gives to the kernel in one call.
const BATCH: usize = 10;
/// Bytes that the application writes at once.
const CHUNK: usize = 4 << 10;
/// Full datagrams that wait to be read at most: as many as Linux's default socket buffer of 212,992
/// bytes holds. (`quic-go` holds 256 in a queue of its own.)
const UNREAD: u64 = 92;
/// Time in which the application reads one: 10 µs.
const READ: Nanos = 10_000;
/// Length of connection identifiers, as by `quinn`'s default.
const ID: usize = 8;

/// Identifiers from a seed.
struct Ids(Rng);

impl Ids {
    fn next(&mut self) -> ConnectionId {
        ConnectionId::new(&self.0.word().to_be_bytes())
    }
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        self.next()
    }

    fn cid_len(&self) -> usize {
        ID
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Congestion control of a host's QUIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuicControl {
    /// CUBIC, the default.
    #[default]
    Cubic,
    /// NewReno, as of RFC 9002.
    NewReno,
    /// NewReno with a slow start that ends when delay rises, as in `quic-go`.
    HybridReno,
    /// The first version of BBR, as `quinn` has it: its window alone is used, not its pacing rate.
    /// It takes a random number from the system for the phase of that rate only, so transfers
    /// repeat nevertheless.
    Bbr,
}

/// What an end does with the stream.
#[derive(Debug)]
enum Work {
    Send { total: Option<u64>, written: u64, stream: Option<StreamId>, finished: bool },
    Receive { received: u64, stream: Option<StreamId>, finished: bool },
}

/// State of a sender, for people and time lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuicState {
    /// Congestion window, bytes.
    pub window: u64,
    /// Smoothed round trip.
    pub round_trip: Duration,
    /// Packets sent.
    pub sent: u64,
    /// Packets declared lost. `quinn-proto` does not say which of them were spurious.
    pub lost: u64,
    /// Datagrams that have not arrived: what was really lost, and what is on the way.
    pub missing: u64,
    /// Reductions of the window.
    pub congestion_events: u64,
}

/// One end of a transfer.
struct End {
    flow: u64,
    local: SocketAddr,
    remote: SocketAddr,
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    work: Work,
    broken: Option<String>,
    incoming: VecDeque<Vec<u8>>,
    /// When the application has read what arrived.
    read: Nanos,
}

/// A host's QUIC.
pub(crate) struct Quic {
    clock: Clock,
    ends: Vec<End>,
    mtu: usize,
    seed: u64,
    /// The next value of the IPv4 identification field.
    identification: u16,
}

fn transport(control: Option<QuicControl>) -> Arc<TransportConfig> {
    let factory: Arc<dyn ControllerFactory + Send + Sync> = match control {
        None | Some(QuicControl::Cubic) => Arc::new(CubicConfig::default()),
        Some(QuicControl::NewReno) => Arc::new(NewRenoConfig::default()),
        Some(QuicControl::HybridReno) => Arc::new(hybrid::Factory),
        Some(QuicControl::Bbr) => Arc::new(BbrConfig::default()),
    };
    let mut config = TransportConfig::default();
    config
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(u64::from(WINDOW))
        // Longer than any outage of a world, as for TCP.
        .max_idle_timeout(Some(VarInt::from_u32(300_000).into()))
        .congestion_controller_factory(factory);
    Arc::new(config)
}

impl Quic {
    /// A host without connections. `seed` decides all random choices.
    pub(crate) fn new(mtu: usize, seed: u64) -> Self {
        Self { clock: Clock::new(), ends: Vec::new(), mtu, seed, identification: 0 }
    }

    /// Longer datagrams are refused from now on, as by a kernel with "don't fragment".
    pub(crate) fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
    }

    fn endpoint(&self, flow: u64, server: Option<ServerConfig>) -> Endpoint {
        let mut config = EndpointConfig::new(Arc::new(Open));
        let seed = self.seed;
        config.rng_seed(Some(Rng::stream(seed, 2 * flow).seed()));
        config.cid_generator(move || Box::new(Ids(Rng::stream(seed, 2 * flow + 1))));
        Endpoint::new(Arc::new(config), server.map(Arc::new), true, None)
    }

    /// Listens at `local` for the transfer `flow` from `remote`.
    pub(crate) fn listen(&mut self, flow: u64, local: SocketAddr, remote: SocketAddr) {
        let mut config = ServerConfig::new(Arc::new(Open), Arc::new(Open));
        config.transport_config(transport(None));
        let work = Work::Receive { received: 0, stream: None, finished: false };
        let endpoint = self.endpoint(flow, Some(config));
        self.add(flow, (local, remote), endpoint, None, work);
    }

    /// Starts the transfer `flow` of `total` bytes (`None` for no end).
    pub(crate) fn connect(
        &mut self,
        now: Nanos,
        flow: u64,
        ends: (SocketAddr, SocketAddr),
        total: Option<u64>,
        control: QuicControl,
    ) {
        let mut config = ClientConfig::new(Arc::new(Open));
        let first = Ids(Rng::stream(self.seed, u64::MAX - flow)).next();
        config.transport_config(transport(Some(control)));
        config.initial_dst_cid_provider(Arc::new(move || first));
        let mut endpoint = self.endpoint(flow, None);
        let connection = endpoint.connect(self.clock.at(now), config, ends.1, "peer");
        let work = Work::Send { total, written: 0, stream: None, finished: false };
        self.add(flow, ends, endpoint, connection.ok(), work);
    }

    fn add(
        &mut self,
        flow: u64,
        (local, remote): (SocketAddr, SocketAddr),
        endpoint: Endpoint,
        connection: Option<(ConnectionHandle, Connection)>,
        work: Work,
    ) {
        let (incoming, read, broken) = (VecDeque::new(), 0, None);
        let end = End { flow, local, remote, endpoint, connection, work, broken, incoming, read };
        self.ends.push(end);
    }

    fn end(&self, flow: u64) -> Option<&End> {
        self.ends.iter().find(|end| end.flow == flow)
    }

    /// Ends the transfer `flow` after the bytes written so far.
    pub(crate) fn stop(&mut self, flow: u64) {
        for end in self.ends.iter_mut().filter(|end| end.flow == flow) {
            if let Work::Send { total, written, .. } = &mut end.work {
                total.get_or_insert(*written);
            }
        }
    }

    /// Forgets the sender of `flow`.
    pub(crate) fn abandon(&mut self, flow: u64) {
        self.ends.retain(|end| end.flow != flow || !matches!(end.work, Work::Send { .. }));
    }

    /// Takes a packet, which the next [`poll`](Self::poll) processes. Returns whether it belongs
    /// to a transfer.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> bool {
        let Some(tuple) = packet::tuple(bytes) else { return false };
        let ends = (tuple.destination, tuple.source);
        let mut all = self.ends.iter_mut();
        match all.find(|end| tuple.protocol == protocol::UDP && (end.local, end.remote) == ends) {
            Some(end) => {
                end.incoming.push_back(bytes.to_vec());
                true
            }
            None => false,
        }
    }

    /// Processes packets and timers, and adds the packets to send to `out`.
    ///
    /// # Errors
    /// The flow and offset of the first byte that differs from what the sender wrote.
    pub(crate) fn poll(&mut self, now: Nanos, out: &mut Vec<Vec<u8>>) -> Result<(), (u64, u64)> {
        for end in &mut self.ends {
            end.poll(now, self.clock, |end, bytes, ecn| {
                let shape = Shape {
                    protocol: protocol::UDP,
                    source: end.0,
                    destination: end.1,
                    ecn: ecn.map_or(0, |ecn| ecn as u8),
                };
                if bytes.len() + 8 + packet::ip_header_len(shape.source.ip()) <= self.mtu {
                    self.identification = self.identification.wrapping_add(1);
                    out.push(packet::datagram(&shape, self.identification, bytes));
                }
            })?;
        }
        Ok(())
    }

    /// Time at which to call [`poll`](Self::poll) next.
    pub(crate) fn poll_at(&mut self, now: Nanos) -> Nanos {
        let clock = self.clock;
        let due = self.ends.iter_mut().map(|end| match &mut end.connection {
            _ if !end.incoming.is_empty() => now,
            Some((_, connection)) => connection.poll_timeout().map_or(NEVER, |at| clock.when(at)),
            None => NEVER,
        });
        due.min().unwrap_or(NEVER).max(now)
    }

    /// The state of the receiver of `flow`; `None` if this end does not receive it.
    pub(crate) fn received(&self, flow: u64) -> Option<Received> {
        match self.end(flow)?.work {
            Work::Receive { received, finished, .. } => {
                Some(Received { bytes: received, finished })
            }
            Work::Send { .. } => None,
        }
    }

    /// Datagrams that this end of `flow` has taken.
    pub(crate) fn arrived(&self, flow: u64) -> u64 {
        let connection = self.end(flow).and_then(|end| end.connection.as_ref());
        connection.map_or(0, |(_, connection)| connection.stats().udp_rx.datagrams)
    }

    /// The state of the sender of `flow`; `None` if this end does not send it. All that was sent
    /// counts as missing, because this end does not know better.
    pub(crate) fn state(&self, flow: u64) -> Option<QuicState> {
        let end = self.end(flow)?;
        let (Work::Send { .. }, Some((_, connection))) = (&end.work, &end.connection) else {
            return None;
        };
        let stats = connection.stats();
        let path = stats.path;
        Some(QuicState {
            window: path.cwnd,
            round_trip: path.rtt,
            sent: path.sent_packets,
            lost: path.lost_packets,
            missing: stats.udp_tx.datagrams,
            congestion_events: path.congestion_events,
        })
    }

    /// The state of this end of `flow`, for people.
    pub(crate) fn describe(&self, flow: u64) -> String {
        let Some(end) = self.end(flow) else { return String::new() };
        let state = self.state(flow);
        let broken = end.broken.as_deref().unwrap_or("open");
        let QuicState { window, sent, lost, .. } = state.unwrap_or_default();
        let work = &end.work;
        format!("{work:?}, {broken}, window {window}, {sent} packets sent, {lost} declared lost")
    }

    /// Whether the sender of `flow` at this end lost its connection.
    pub(crate) fn is_broken(&self, flow: u64) -> bool {
        self.end(flow).is_some_and(|end| end.broken.is_some())
    }
}

impl End {
    fn poll(
        &mut self,
        now: Nanos,
        clock: Clock,
        mut send: impl FnMut((SocketAddr, SocketAddr), &[u8], Option<EcnCodepoint>),
    ) -> Result<(), (u64, u64)> {
        let ends = (self.local, self.remote);
        let mut buffer = Vec::new();
        let mut sending = |transmit: &Transmit, bytes: &[u8]| {
            let size = transmit.segment_size.unwrap_or(transmit.size).max(1);
            bytes[..transmit.size].chunks(size).for_each(|one| send(ends, one, transmit.ecn));
        };
        let at = clock.at(now);
        while let Some(datagram) = self.incoming.pop_front() {
            let begins = self.read.max(now);
            if begins >= now + UNREAD * READ {
                continue;
            }
            self.read = begins + READ;
            buffer.clear();
            if let Some(transmit) = self.handle((now, clock), &datagram, &mut buffer) {
                sending(&transmit, &buffer);
            }
        }
        let Some((handle, connection)) = &mut self.connection else { return Ok(()) };
        if connection.poll_timeout().is_some_and(|due| due <= at) {
            connection.handle_timeout(at);
        }
        loop {
            let mut moved = false;
            while let Some(event) = connection.poll() {
                moved = true;
                self.work.on_event(event, &mut self.broken);
            }
            self.work.run(self.flow, connection)?;
            while let Some(event) = connection.poll_endpoint_events() {
                moved = true;
                if let Some(event) = self.endpoint.handle_event(*handle, event) {
                    connection.handle_event(event);
                }
            }
            buffer.clear();
            while let Some(transmit) = connection.poll_transmit(at, BATCH, &mut buffer) {
                moved = true;
                sending(&transmit, &buffer);
                buffer.clear();
            }
            if !moved {
                return Ok(());
            }
        }
    }

    /// Processes a datagram, and returns the endpoint's answer to it.
    fn handle(
        &mut self,
        (now, clock): (Nanos, Clock),
        datagram: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let at = clock.at(now);
        // A packet that a link has damaged fails the checksum.
        let ecn = EcnCodepoint::from_bits(packet::ecn(datagram));
        let payload = packet::udp_payload(datagram)?;
        let bytes = bytes::BytesMut::from(payload);
        let ip: Option<IpAddr> = Some(self.local.ip());
        match self.endpoint.handle(at, self.remote, ip, ecn, bytes, buffer)? {
            DatagramEvent::ConnectionEvent(_, event) => {
                if let Some((_, connection)) = &mut self.connection {
                    connection.handle_event(event);
                }
                None
            }
            DatagramEvent::NewConnection(incoming) => {
                match self.endpoint.accept(incoming, at, buffer, None) {
                    Ok(accepted) => {
                        self.connection.get_or_insert(accepted);
                        None
                    }
                    Err(error) => error.response,
                }
            }
            DatagramEvent::Response(transmit) => Some(transmit),
        }
    }
}

impl Work {
    fn on_event(&mut self, event: Event, broken: &mut Option<String>) {
        match (event, self) {
            (Event::ConnectionLost { reason }, _) => *broken = Some(reason.to_string()),
            (Event::Stream(StreamEvent::Finished { .. }), Self::Send { finished, .. }) => {
                *finished = true;
            }
            _ => {}
        }
    }

    /// Writes what the connection takes, or reads what it has.
    fn run(&mut self, flow: u64, connection: &mut Connection) -> Result<(), (u64, u64)> {
        match self {
            Self::Send { total, written, stream, .. } => {
                if stream.is_none() {
                    *stream = connection.streams().open(Dir::Uni);
                }
                if let Some(id) = *stream {
                    write(flow, connection, id, *total, written);
                }
                Ok(())
            }
            Self::Receive { received, stream, finished } => {
                if stream.is_none() {
                    *stream = connection.streams().accept(Dir::Uni);
                }
                match *stream {
                    Some(id) if !*finished => read(flow, connection, id, received, finished),
                    _ => Ok(()),
                }
            }
        }
    }
}

fn write(
    flow: u64,
    connection: &mut Connection,
    id: StreamId,
    total: Option<u64>,
    written: &mut u64,
) {
    loop {
        let left = total.map_or(u64::MAX, |total| total.saturating_sub(*written));
        if left == 0 {
            // It is ended already after the first time.
            let _ = connection.send_stream(id).finish();
            return;
        }
        let len = left.min(CHUNK as u64);
        let mut bytes = vec![0; len as usize];
        packet::fill(flow, *written, &mut bytes);
        match connection.send_stream(id).write(&bytes) {
            Ok(taken) => *written += taken as u64,
            // Blocked: the stream says when it can be written again.
            Err(_) => return,
        }
    }
}

fn read(
    flow: u64,
    connection: &mut Connection,
    id: StreamId,
    received: &mut u64,
    finished: &mut bool,
) -> Result<(), (u64, u64)> {
    let mut stream = connection.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else { return Ok(()) };
    loop {
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => {
                if let Some(at) = packet::find_wrong(flow, *received, &chunk.bytes) {
                    return Err((flow, at));
                }
                *received += chunk.bytes.len() as u64;
            }
            Ok(None) => {
                *finished = true;
                break;
            }
            Err(_) => break,
        }
    }
    // Credit for the peer is sent by the next `poll_transmit`, which follows.
    let _ = chunks.finalize();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{MILLI, SECOND};

    fn pair(seed: u64) -> (Quic, Quic, SocketAddr, SocketAddr) {
        let (a, b) = ("198.19.0.1:5001".parse().unwrap(), "198.19.0.2:5001".parse().unwrap());
        (Quic::new(1_400, seed), Quic::new(1_400, seed + 1), a, b)
    }

    /// A receiver that listens, and the packet with which its sender begins.
    fn called() -> (Quic, Vec<u8>) {
        let (mut a, mut b, from, to) = pair(1);
        b.listen(3, to, from);
        a.connect(0, 3, (from, to), Some(3_000), QuicControl::Cubic);
        let mut out = Vec::new();
        a.poll(0, &mut out).expect("nothing was read");
        (b, out.swap_remove(0))
    }

    /// Runs both over a wire of 10 ms and of 50 packets in a millisecond that may change a packet,
    /// by its number, or lose it. Returns the time and length of each packet of the sender.
    fn exchange(
        a: &mut Quic,
        b: &mut Quic,
        passes: impl Fn(u64, &mut Vec<u8>) -> bool,
    ) -> Result<Vec<(Nanos, usize)>, (u64, u64)> {
        let mut wire: VecDeque<(Nanos, bool, Vec<u8>)> = VecDeque::new();
        let (mut now, mut number, mut seen, mut free) = (0, 0u64, Vec::new(), 0);
        while now < 20 * SECOND {
            while wire.front().is_some_and(|(at, ..)| *at <= now) {
                let (_, forward, packet) = wire.pop_front().expect("there is a front");
                assert!(if forward { b.receive(&packet) } else { a.receive(&packet) });
            }
            for (forward, end) in [(true, &mut *a), (false, &mut *b)] {
                let mut out = Vec::new();
                end.poll(now, &mut out)?;
                for mut packet in out {
                    number += 1;
                    if forward {
                        seen.push((now, packet.len()));
                    }
                    if passes(number, &mut packet) {
                        free = free.max(now) + MILLI / 50;
                        wire.push_back((free + 10 * MILLI, forward, packet));
                    }
                }
            }
            let arrival = wire.front().map_or(NEVER, |(at, ..)| *at);
            now = arrival.min(a.poll_at(now)).min(b.poll_at(now));
        }
        Ok(seen)
    }

    fn transfer(control: QuicControl, seed: u64, lost: u64) -> Vec<(Nanos, usize)> {
        let (mut a, mut b, from, to) = pair(seed);
        b.listen(3, to, from);
        a.connect(0, 3, (from, to), Some(3_000_000), control);
        let seen = exchange(&mut a, &mut b, |number, _| !number.is_multiple_of(lost))
            .expect("the content is right");
        assert_eq!(b.received(3), Some(Received { bytes: 3_000_000, finished: true }));
        assert!(!a.is_broken(3), "{}", a.describe(3));
        seen
    }

    #[test]
    fn a_transfer_arrives_whole_and_repeats_with_every_control() {
        let all =
            [QuicControl::Cubic, QuicControl::NewReno, QuicControl::HybridReno, QuicControl::Bbr];
        for control in all {
            for lost in [60, u64::MAX] {
                let seen = transfer(control, 1, lost);
                assert_eq!(seen, transfer(control, 1, lost), "{control:?}");
                assert!(seen.len() > 2_000);
            }
        }
    }

    #[test]
    fn a_mark_of_congestion_reduces_the_window() {
        let events = |marks: bool| {
            let (mut a, mut b, from, to) = pair(1);
            b.listen(3, to, from);
            a.connect(0, 3, (from, to), Some(3_000_000), QuicControl::Cubic);
            let mark = |number: u64, packet: &mut Vec<u8>| {
                // A queue marks what asks for it, at times.
                if marks && packet::ecn(packet) == 2 && number.is_multiple_of(200) {
                    packet[1] |= 3;
                    packet::write_checksums(packet);
                }
                true
            };
            exchange(&mut a, &mut b, mark).expect("the content is right");
            let state = a.state(3).expect("it sends");
            assert_eq!(state.lost, 0);
            state.congestion_events
        };
        assert_eq!(events(false), 0);
        assert!(events(true) > 3);
    }

    #[test]
    fn datagrams_grow_to_the_mtu_and_not_beyond_it() {
        let seen = transfer(QuicControl::Cubic, 1, u64::MAX);
        let longest = seen.iter().map(|(_, len)| *len).max().expect("packets were sent");
        assert!((1_350..=1_400).contains(&longest), "{longest}");
    }

    #[test]
    fn what_the_socket_buffer_does_not_hold_is_lost() {
        let (mut b, packet) = called();
        let mut arrived = |now: Nanos, count: u64| {
            (0..count).for_each(|_| assert!(b.receive(&packet)));
            b.poll(now, &mut Vec::new()).expect("nothing was written");
            b.arrived(3)
        };
        // The first one opens the connection, which does not count it.
        assert_eq!(arrived(0, 200) + 1, UNREAD);
        assert_eq!(arrived(10 * READ, 200) + 1, UNREAD + 10);
        assert_eq!(arrived(SECOND, 1) + 1, UNREAD + 11);
    }

    #[test]
    fn content_of_another_flow_is_noticed() {
        let (mut a, mut b, from, to) = pair(1);
        b.listen(4, to, from);
        a.connect(0, 3, (from, to), Some(3_000), QuicControl::Cubic);
        assert_eq!(exchange(&mut a, &mut b, |_, _| true), Err((4, 0)));
    }

    #[test]
    fn a_damaged_datagram_is_dropped() {
        let (mut b, mut packet) = called();
        packet[100] ^= 1;
        b.receive(&packet);
        let mut answers = Vec::new();
        b.poll(0, &mut answers).expect("nothing was read");
        assert_eq!(answers.len(), 0);
        packet[100] ^= 1;
        b.receive(&packet);
        b.poll(0, &mut answers).expect("nothing was read");
        assert_ne!(answers.len(), 0);
    }
}
