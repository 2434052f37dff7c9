//! The connections of one local address, without any input or output.

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use core::ops::AddAssign;
use core::time::Duration;
use std::collections::VecDeque;

use mpip_core::table::Table;
use mpip_core::{Ecn, Instant};
use siphasher::sip::SipHasher13;

use super::connection::{Connection, Due, Held, SYN_WINDOW, State, WINDOW_SCALE, timestamp};
use super::segment::{Header, flag};
use super::stream::{PREFIX, Splitter};

/// Connections of one local address; beyond it the one not heard of for longest is forgotten.
pub const MAX_CONNECTIONS: usize = 4_096;
/// Segments without data that wait to be sent; beyond it the newest is dropped.
const MAX_CONTROL: usize = 256;
/// A cookie is valid for this long, and for one such time more.
const COOKIE_PERIOD: Duration = Duration::from_secs(64);
/// How often connections are looked after.
const TICK: Duration = Duration::from_millis(250);

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Resets that were ignored.
    pub resets: u64,
    /// Segments of no connection, or with numbers that cannot be of it; dropped.
    pub unknown: u64,
    /// Segments without a right header or checksum; dropped.
    pub malformed: u64,
    /// Connections forgotten because there were too many.
    pub evicted: u64,
    /// Datagrams dropped while they waited for a connection.
    pub not_open: u64,
    /// Answers that were not sent because too many waited.
    pub not_answered: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.resets += other.resets;
        self.unknown += other.unknown;
        self.malformed += other.malformed;
        self.evicted += other.evicted;
        self.not_open += other.not_open;
        self.not_answered += other.not_answered;
    }
}

/// A segment that is to be sent, without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Where it goes.
    pub to: SocketAddr,
    /// The segment.
    pub header: Header,
}

/// The connections of one local address.
///
/// It answers SYNs without keeping anything (SYN cookies): a connection exists once a segment came
/// that acknowledges the answer, with data. Nothing is sent twice but SYN, and nothing is put in
/// order: a segment that is lost is a datagram that is lost.
#[derive(Debug)]
pub struct Endpoint {
    local: SocketAddr,
    max_segment: u16,
    secret: [u8; 16],
    /// How many random numbers were drawn.
    drawn: u64,
    connections: Table<SocketAddr, Connection>,
    splitter: Splitter,
    control: VecDeque<Control>,
    /// Datagrams whose connection has opened.
    released: VecDeque<(SocketAddr, Held)>,
    next_tick: Option<Instant>,
    counters: Counters,
}

impl Endpoint {
    /// The endpoint of `local`, whose interface sends packets of at most `mtu` bytes. `seed` is
    /// unpredictable.
    pub fn new(local: SocketAddr, mtu: u16, seed: [u8; 32]) -> Self {
        let (secret, table) = seed.split_at(16);
        let bytes = |half: &[u8]| half.try_into().expect("16 of 32 bytes");
        let headers = if local.is_ipv4() { 40 } else { 60 };
        Self {
            local,
            max_segment: mtu.saturating_sub(headers),
            secret: bytes(secret),
            drawn: 0,
            connections: Table::new(MAX_CONNECTIONS, bytes(table)),
            splitter: Splitter::default(),
            control: VecDeque::new(),
            released: VecDeque::new(),
            next_tick: None,
            counters: Counters::default(),
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        Counters { evicted: self.connections.evictions(), ..self.counters }
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// The header of a segment that carries a datagram of `len` bytes to `to`; `None` when there
    /// is no open connection. Then [`hold`](Self::hold) opens one.
    pub fn data(&mut self, now: Instant, to: SocketAddr, len: usize, push: bool) -> Option<Header> {
        let index = self.connections.find(&to)?;
        let connection = self.connections.get_mut(index)?;
        if !connection.is_open() || connection.is_dead(now) {
            return None;
        }
        let push = if push { flag::PSH } else { 0 };
        let header = connection.emit(now, flag::ACK | push, PREFIX + len);
        Some(self.addressed(to, header))
    }

    /// Keeps a datagram until a connection with `to` is open, and opens one if there is none.
    pub fn hold(&mut self, now: Instant, to: SocketAddr, ecn: Ecn, bytes: Vec<u8>) {
        let index = match self.connections.find(&to) {
            Some(index) if self.is_opening(index) => index,
            found => {
                let former = found.and_then(|index| self.connections.get(index));
                let former = former.map(Connection::next);
                let random = self.random();
                self.splitter.forget(to);
                let connection = Connection::open(now, self.origin(to), random, former);
                let index = self.connections.insert(now, to, connection).index;
                self.send(now, to, index, flag::SYN);
                index
            }
        };
        self.next_tick.get_or_insert(now + TICK);
        if let Some(connection) = self.connections.get_mut(index)
            && !connection.hold(now, Held { ecn, bytes })
        {
            self.counters.not_open += 1;
        }
    }

    fn is_opening(&self, index: u32) -> bool {
        let connection = self.connections.get(index);
        connection.is_some_and(|known| matches!(known.state, State::SynSent | State::SynReceived))
    }

    /// Takes a segment; `take` gets each datagram that it brings.
    pub fn receive(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &Header,
        payload: &mut [u8],
        take: &mut impl FnMut(&mut [u8]),
    ) {
        let is = |flag: u8| header.flags & flag != 0;
        if is(flag::RST) {
            // Anybody can send one. Whether the peer is there, datagrams tell.
            self.counters.resets += 1;
        } else if is(flag::SYN) {
            self.on_syn(now, from, header);
        } else if is(flag::ACK) {
            self.on_ack(now, from, header, payload, take);
        } else {
            self.counters.unknown += 1;
        }
    }

    /// A segment came that is none, or whose checksum is wrong.
    pub fn malformed(&mut self) {
        self.counters.malformed += 1;
    }

    fn on_syn(&mut self, now: Instant, from: SocketAddr, header: &Header) {
        let index = self.connections.find(&from);
        let known = index.and_then(|index| self.connections.get_mut(index));
        if header.flags & flag::ACK == 0 {
            match (known, index) {
                (Some(connection), Some(index))
                    if matches!(connection.state, State::SynSent | State::SynReceived) =>
                {
                    connection.on_syn(header);
                    self.send(now, from, index, flag::SYN | flag::ACK);
                }
                _ => self.answer(now, from, header),
            }
            return;
        }
        let (Some(connection), Some(index)) = (known, index) else {
            self.counters.unknown += 1;
            return;
        };
        if connection.on_syn_ack(now, header) {
            self.released.extend(connection.held.drain(..).map(|held| (from, held)));
            self.connections.touch(index, now);
            self.send(now, from, index, flag::ACK);
        } else if connection.repeats_syn_ack(header) {
            self.send(now, from, index, flag::ACK);
        } else {
            self.counters.unknown += 1;
        }
    }

    /// Answers a SYN; whatever is to be known of it later is in the sequence number.
    fn answer(&mut self, now: Instant, from: SocketAddr, header: &Header) {
        let scaled = header.window_scale.is_some();
        let clock = timestamp(now, self.origin(from));
        let answer = Header {
            sequence: self.cookie(from, period(now), scaled),
            acknowledgement: header.sequence.wrapping_add(1),
            flags: flag::SYN | flag::ACK,
            window: SYN_WINDOW,
            window_scale: scaled.then_some(WINDOW_SCALE),
            sack_permitted: header.sack_permitted,
            timestamps: header.timestamps.map(|(value, _)| (clock, value)),
            ..Header::default()
        };
        self.push(from, answer);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &Header,
        payload: &mut [u8],
        take: &mut impl FnMut(&mut [u8]),
    ) {
        let known = self.connections.find(&from);
        let index = known.filter(|index| {
            self.connections.get(*index).is_some_and(|known| known.accepts(header))
        });
        let Some(index) = index.or_else(|| self.accept(now, from, header, payload)) else {
            // Without data it is the end of an opening, of which nothing is kept before there is some.
            self.counters.unknown += u64::from(!payload.is_empty());
            return;
        };
        let Some(connection) = self.connections.get_mut(index) else { return };
        let fin = connection.on_segment(now, header, payload.len());
        let closing = connection.state == State::Closing;
        self.released.extend(connection.held.drain(..).map(|held| (from, held)));
        self.connections.touch(index, now);
        if !payload.is_empty() {
            self.splitter.split(from, header.sequence, payload, take);
        }
        if fin {
            self.send(now, from, index, if closing { flag::ACK } else { flag::ACK | flag::FIN });
            self.forget(from, index);
        }
    }

    /// A connection for a segment that acknowledges our answer to a SYN.
    fn accept(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &Header,
        payload: &[u8],
    ) -> Option<u32> {
        let cookie = header.acknowledgement.wrapping_sub(1);
        let scaled = cookie & 1 == 1;
        let period = period(now);
        let valid = cookie == self.cookie(from, period, scaled)
            || cookie == self.cookie(from, period.wrapping_sub(1), scaled);
        if !valid || payload.is_empty() {
            return None;
        }
        self.splitter.forget(from);
        self.next_tick.get_or_insert(now + TICK);
        let connection = Connection::accept(now, self.origin(from), header, scaled);
        let inserted = self.connections.insert(now, from, connection);
        if let Some(removed) = inserted.removed {
            self.splitter.forget(removed.key);
        }
        Some(inserted.index)
    }

    /// Closes every connection.
    pub fn close(&mut self, now: Instant) {
        let all: Vec<_> = self.connections.iter().map(|(index, from, _)| (index, *from)).collect();
        for (index, to) in all {
            if let Some(connection) = self.connections.get_mut(index)
                && connection.is_open()
            {
                connection.close(now);
                self.send(now, to, index, flag::ACK | flag::FIN);
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.next_tick
    }

    /// Repeats SYNs, closes what is idle and forgets what is closed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.next_tick.is_none_or(|due| now < due) {
            return;
        }
        let mut due = Vec::new();
        for (index, from, connection) in self.connections.iter_mut() {
            match connection.due(now) {
                Due::Nothing => {}
                what => due.push((index, *from, connection.state, what)),
            }
        }
        for (index, to, state, what) in due {
            match what {
                Due::Nothing => {}
                Due::Syn if state == State::SynReceived => {
                    self.send(now, to, index, flag::SYN | flag::ACK);
                }
                Due::Syn => self.send(now, to, index, flag::SYN),
                Due::Fin => self.send(now, to, index, flag::ACK | flag::FIN),
                Due::Forget => self.forget(to, index),
            }
        }
        self.next_tick = (!self.connections.is_empty()).then_some(now + TICK);
    }

    /// The next segment without data that is to be sent, before any with data.
    pub fn poll_control(&mut self) -> Option<Control> {
        self.control.pop_front()
    }

    /// The next datagram that waited for its connection.
    pub fn poll_released(&mut self) -> Option<(SocketAddr, Ecn, Vec<u8>)> {
        let (to, held) = self.released.pop_front()?;
        Some((to, held.ecn, held.bytes))
    }

    fn forget(&mut self, from: SocketAddr, index: u32) {
        self.splitter.forget(from);
        if let Some(removed) = self.connections.remove(index) {
            self.counters.not_open += removed.value.held.len() as u64;
        }
    }

    /// Sends a segment of connection `index` without data.
    fn send(&mut self, now: Instant, to: SocketAddr, index: u32, flags: u8) {
        if let Some(connection) = self.connections.get_mut(index) {
            let header = connection.emit(now, flags, 0);
            self.push(to, header);
        }
    }

    fn push(&mut self, to: SocketAddr, header: Header) {
        if self.control.len() < MAX_CONTROL {
            let header = self.addressed(to, header);
            self.control.push_back(Control { to, header });
        } else {
            self.counters.not_answered += 1;
        }
    }

    fn addressed(&self, to: SocketAddr, header: Header) -> Header {
        let syn = header.flags & flag::SYN != 0;
        Header {
            source: self.local.port(),
            destination: to.port(),
            max_segment: syn.then_some(self.max_segment),
            ..header
        }
    }

    /// The sequence number that answers a SYN from `from`. Its lowest bit is `scaled`.
    fn cookie(&self, from: SocketAddr, period: u64, scaled: bool) -> u32 {
        let scaled = u32::from(scaled);
        (self.hash(b'c', from, period << 1 | u64::from(scaled)) as u32 & !1) | scaled
    }

    /// Where our timestamps toward `to` begin; the same for every connection, since what answers a
    /// SYN is kept nowhere.
    fn origin(&self, to: SocketAddr) -> u32 {
        self.hash(b't', to, 0) as u32
    }

    fn random(&mut self) -> u32 {
        self.drawn += 1;
        self.hash(b'r', self.local, self.drawn) as u32
    }

    fn hash(&self, purpose: u8, address: SocketAddr, number: u64) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        hasher.write_u8(purpose);
        match address.ip() {
            IpAddr::V4(v4) => hasher.write(&v4.octets()),
            IpAddr::V6(v6) => hasher.write(&v6.octets()),
        }
        hasher.write_u16(address.port());
        hasher.write_u64(number);
        hasher.finish()
    }
}

fn period(now: Instant) -> u64 {
    now.as_nanos() / COOKIE_PERIOD.as_nanos() as u64
}

#[cfg(test)]
mod tests;
