//! The connections of one local address, without sockets.

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use core::ops::AddAssign;
use core::time::Duration;
use std::collections::VecDeque;

use mpip_types::{Ecn, Instant};
use siphasher::sip::SipHasher24;

use crate::connection::{Connection, Due, Held, SYN_WINDOW, State, WINDOW_SCALE, ticks, timestamp};
use crate::limit::Limiter;
use crate::pool::{Pool, Source};
use crate::segment::{Header, flag, is_intact, is_joined};
use crate::stream::PREFIX;

/// Most connections of one local address with an authenticated datagram. When there are more, the
/// least recently used one of the source with the most connections is dropped.
pub const MAX_CONNECTIONS: usize = 4_096;
/// Most connections without an authenticated datagram that we opened, and as many that others
/// opened. When there are more, one is dropped in the same way.
pub const MAX_UNCONFIRMED: usize = 256;
/// Most queued segments without data. When there are more, the newest is dropped.
const MAX_CONTROL: usize = 256;
/// Lifetime of a cookie, at least. It is at most twice this.
const COOKIE_PERIOD: Duration = Duration::from_secs(64);
/// Size of a block of sequence numbers, as its number of bits. A cookie is valid for data that
/// begins in the block of the peer's initial number or in the next one, because the first segments
/// may be lost. Range: 17 (more than one segment) to 24.
const COOKIE_BLOCK: u32 = 20;
/// Interval at which timers are checked.
const TICK: Duration = Duration::from_millis(250);

/// Counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Resets ignored.
    pub resets: u64,
    /// Segments dropped because they belong to no connection, by address or by their numbers.
    pub unknown: u64,
    /// Segments dropped because their header or checksum is invalid.
    pub malformed: u64,
    /// Connections with an authenticated datagram evicted because there were too many.
    pub evicted: u64,
    /// Connections given up because no authenticated datagram came on them.
    pub unconfirmed: u64,
    /// Datagrams dropped while they waited for a connection.
    pub not_open: u64,
    /// Answers not sent because too many were queued.
    pub not_answered: u64,
    /// SYNs not answered because too many came.
    pub limited: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.resets += other.resets;
        self.unknown += other.unknown;
        self.malformed += other.malformed;
        self.evicted += other.evicted;
        self.unconfirmed += other.unconfirmed;
        self.not_open += other.not_open;
        self.not_answered += other.not_answered;
        self.limited += other.limited;
    }
}

/// A segment without data to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Its destination.
    pub to: SocketAddr,
    /// The segment.
    pub header: Header,
}

/// The kind of a connection. There may be one of each kind with an address at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An authenticated datagram came on it.
    Confirmed,
    /// We open it.
    Opened,
    /// The other end opened it, and has only proved that it receives at its address.
    Accepted,
}

/// In order of preference.
const KINDS: [Kind; 3] = [Kind::Confirmed, Kind::Opened, Kind::Accepted];

/// The place of a connection.
#[derive(Clone, Copy, Debug)]
struct Place {
    kind: Kind,
    index: u32,
}

/// The connections of one local address.
///
/// It answers SYNs without state (SYN cookies). A connection exists once a segment with data
/// acknowledges the answer. It is confirmed once the caller says that a datagram on it
/// authenticated its sender. Only then does it replace an earlier connection with the same address.
/// Only segments with authenticated datagrams advance its numbers. Only SYNs are retransmitted, and
/// segments are not put in order: a lost segment is a lost datagram.
#[derive(Debug)]
pub struct Endpoint {
    local: SocketAddr,
    max_segment: u16,
    secret: [u8; 16],
    /// Number of random numbers drawn.
    drawn: u64,
    /// By [`Kind`].
    pools: [Pool; 3],
    limiter: Limiter,
    control: VecDeque<Control>,
    /// Datagrams whose connection has opened.
    released: VecDeque<(SocketAddr, Held)>,
    next_tick: Option<Instant>,
    counters: Counters,
}

impl Endpoint {
    /// The endpoint of `local`, whose interface has the MTU `mtu`. `seed` must be unpredictable,
    /// and no other endpoint may have it.
    pub fn new(local: SocketAddr, mtu: u16, seed: [u8; 32]) -> Self {
        let (secret, table) = seed.split_at(16);
        let bytes = |half: &[u8]| half.try_into().expect("16 of 32 bytes");
        let headers = if local.is_ipv4() { 40 } else { 60 };
        let limits = [MAX_CONNECTIONS, MAX_UNCONFIRMED, MAX_UNCONFIRMED];
        Self {
            local,
            max_segment: mtu.saturating_sub(headers),
            secret: bytes(secret),
            drawn: 0,
            pools: limits.map(|limit| Pool::new(limit, bytes(table))),
            limiter: Limiter::default(),
            control: VecDeque::new(),
            released: VecDeque::new(),
            next_tick: None,
            counters: Counters::default(),
        }
    }

    /// Counts of events.
    pub fn counters(&self) -> Counters {
        let [confirmed, opened, accepted] = self.pools.each_ref().map(Pool::evicted);
        Counters {
            evicted: confirmed,
            unconfirmed: self.counters.unconfirmed + opened + accepted,
            ..self.counters
        }
    }

    /// Number of connections.
    pub fn connections(&self) -> usize {
        self.pools.iter().map(Pool::len).sum()
    }

    /// The header of a segment for a datagram of `len` bytes to `to`; `None` if there is no open
    /// connection. Then [`hold`](Self::hold) opens one.
    pub fn data(&mut self, now: Instant, to: SocketAddr, len: usize, push: bool) -> Option<Header> {
        let connection = self.pools.iter_mut().find_map(|pool| {
            let index = pool.find(&to)?;
            pool.get_mut(index).filter(|connection| connection.is_usable(now))
        })?;
        let push = if push { flag::PSH } else { 0 };
        let header = connection.emit(now, flag::ACK | push, PREFIX + len);
        Some(self.addressed(to, header))
    }

    /// Keeps a datagram until a connection with `to` is open, and opens one if there is none.
    pub fn hold(&mut self, now: Instant, to: SocketAddr, ecn: Ecn, bytes: Vec<u8>) {
        let opened = self.pool(Kind::Opened);
        let syn = opened.with(&to).and_then(Connection::unanswered);
        let opening = syn.and_then(|_| opened.find(&to));
        let index = opening.unwrap_or_else(|| {
            let former = [Kind::Opened, Kind::Confirmed];
            let former = former.into_iter().find_map(|kind| self.pool(kind).with(&to));
            let former = former.map(Connection::next);
            let random = self.random();
            let connection = Connection::open(now, self.origin(to), random, former);
            let index = self.insert(now, to, Kind::Opened, connection);
            self.send(now, to, Place { kind: Kind::Opened, index }, flag::SYN);
            index
        });
        if let Some(connection) = self.pool_mut(Kind::Opened).get_mut(index)
            && !connection.hold(now, Held { ecn, bytes })
        {
            self.counters.not_open += 1;
        }
    }

    /// Takes the bytes of a segment from the address `source`; see [`receive`](Self::receive).
    /// Drops segments for another port, and control segments with a wrong checksum. Data is
    /// authenticated, its header is not: with a wrong checksum the datagrams serve and the
    /// numbers do not.
    pub fn receive_bytes(
        &mut self,
        now: Instant,
        source: IpAddr,
        segment: &mut [u8],
        take: &mut impl FnMut(SocketAddr, &mut [u8]) -> bool,
    ) {
        let Ok((header, header_len)) = Header::parse(segment) else {
            return self.malformed();
        };
        if header.destination != self.local.port() {
            return;
        }
        let remote = SocketAddr::new(source, header.source);
        let control = segment.len() == header_len || header.flags & flag::SYN != 0;
        let intact =
            is_joined(remote, self.local, segment) || is_intact(remote, self.local, segment);
        if !intact {
            self.malformed();
        }
        let payload = &mut segment[header_len..];
        let mut take = |datagram: &mut [u8]| take(remote, datagram);
        match (intact, control) {
            (true, _) => self.receive(now, remote, &header, payload, &mut take),
            (false, false) => self.on_data(now, remote, (&header, false), payload, &mut take),
            (false, true) => {}
        }
    }

    /// Takes a segment. `take` gets each datagram in it, and returns whether the datagram
    /// authenticated its sender: a peer sealed it, and it is no replay.
    pub fn receive(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &Header,
        payload: &mut [u8],
        take: &mut impl FnMut(&mut [u8]) -> bool,
    ) {
        match header.flags & (flag::RST | flag::SYN | flag::ACK) {
            // Anybody can forge a reset. Only datagrams tell whether the peer is alive.
            flags if flags & flag::RST != 0 => self.counters.resets += 1,
            flag::SYN => self.on_syn(now, from, header),
            flag::ACK => self.on_data(now, from, (header, true), payload, take),
            0 => self.counters.unknown += 1,
            _ => self.on_syn_ack(now, from, header),
        }
    }

    /// Counts a segment that is malformed or has a wrong checksum.
    pub fn malformed(&mut self) {
        self.counters.malformed += 1;
    }

    /// Answers a SYN. The sequence number of the answer encodes everything to know about the SYN,
    /// so no state changes, even if there is a connection. A peer that restarted gets a new
    /// connection with its next segment. A forger never sees the number. A SYN for a connection in
    /// use is not answered.
    fn on_syn(&mut self, now: Instant, from: SocketAddr, header: &Header) {
        let scaled = header.window_scale.is_some();
        let confirmed = self.pool(Kind::Confirmed).with(&from);
        let opened = self.pool(Kind::Opened).with(&from);
        // A connection that is open here will be open at the other end with our data. Two
        // connections with the same addresses would disturb each other.
        if confirmed.is_some_and(|connection| connection.is_alive(now))
            || opened.is_some_and(|connection| connection.is_usable(now))
        {
            self.counters.unknown += 1;
            return;
        }
        let crossed = opened.and_then(Connection::unanswered);
        let source = self.hash(b's', self.local, Source::from(from.ip()).number());
        if !self.limiter.take(now, source) {
            self.counters.limited += 1;
            return;
        }
        let cookie = || self.cookie(from, header.sequence >> COOKIE_BLOCK, period(now), scaled);
        let clock = timestamp(now, self.origin(from));
        let answer = Header {
            sequence: crossed.unwrap_or_else(cookie),
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

    fn on_syn_ack(&mut self, now: Instant, from: SocketAddr, header: &Header) {
        for kind in [Kind::Opened, Kind::Confirmed] {
            let pool = self.pool_mut(kind);
            let Some(index) = pool.find(&from) else { continue };
            let Some(connection) = pool.get_mut(index) else { continue };
            if connection.opens(now, header) {
                let held = core::mem::take(&mut connection.held);
                self.released.extend(held.into_iter().map(|held| (from, held)));
                return self.send(now, from, Place { kind, index }, flag::ACK);
            } else if connection.repeats_syn_ack(header) {
                return self.send(now, from, Place { kind, index }, flag::ACK);
            }
        }
        self.counters.unknown += 1;
    }

    /// A segment with data, or an acknowledgement. The second part of `header` tells whether the
    /// checksum is right: if not, the numbers change nothing.
    fn on_data(
        &mut self,
        now: Instant,
        from: SocketAddr,
        (header, intact): (&Header, bool),
        payload: &mut [u8],
        take: &mut impl FnMut(&mut [u8]) -> bool,
    ) {
        let place = self.place(now, from, (header, intact), payload);
        let opened = || if intact { self.accept(now, from, header, payload) } else { None };
        let Some(mut place) = place.or_else(opened) else {
            // Without data it is the last segment of a handshake, for which no state exists yet.
            self.counters.unknown += u64::from(!payload.is_empty());
            return;
        };
        if !payload.is_empty() {
            let mut authenticated = false;
            let splitter = &mut self.pool_mut(place.kind).splitter;
            splitter.split(from, header.sequence, payload, &mut |datagram| {
                authenticated |= take(datagram);
            });
            if !authenticated {
                return;
            }
            place = self.confirm(now, from, place);
            let pool = self.pool_mut(Kind::Confirmed);
            pool.touch(place.index, now);
            if let Some(connection) = pool.get_mut(place.index) {
                match intact {
                    true => connection.on_authenticated(now, header, payload.len()),
                    false => connection.on_proof(now),
                }
                if !connection.is_dead(now) {
                    self.give_up_syn(from);
                }
            }
            if !intact {
                return;
            }
        }
        let Some(connection) = self.pool_mut(place.kind).get_mut(place.index) else { return };
        let closing = connection.state == State::Closing;
        if connection.ends(header, payload.len()) {
            self.send(now, from, place, if closing { flag::ACK } else { flag::ACK | flag::FIN });
            self.forget(place);
        }
    }

    /// The connection to which a segment belongs, by its numbers.
    fn place(
        &mut self,
        now: Instant,
        from: SocketAddr,
        (header, intact): (&Header, bool),
        payload: &[u8],
    ) -> Option<Place> {
        for kind in KINDS {
            let pool = self.pool_mut(kind);
            let Some(index) = pool.find(&from) else { continue };
            let Some(connection) = pool.get_mut(index) else { continue };
            if connection.accepts(now, header) {
                return Some(Place { kind, index });
            }
            if intact && !payload.is_empty() && connection.opens(now, header) {
                let held = core::mem::take(&mut connection.held);
                self.released.extend(held.into_iter().map(|held| (from, held)));
                return Some(Place { kind, index });
            }
        }
        None
    }

    /// A new connection for a segment that acknowledges our answer to a SYN.
    fn accept(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &Header,
        payload: &[u8],
    ) -> Option<Place> {
        let cookie = header.acknowledgement.wrapping_sub(1);
        let scaled = cookie & 1 == 1;
        let block = header.sequence.wrapping_sub(1) >> COOKIE_BLOCK;
        let before = header.sequence.wrapping_sub(1 + (1 << COOKIE_BLOCK)) >> COOKIE_BLOCK;
        let period = period(now);
        let valid = [block, before].into_iter().any(|block| {
            cookie == self.cookie(from, block, period, scaled)
                || cookie == self.cookie(from, block, period.wrapping_sub(1), scaled)
        });
        let origin = self.origin(from);
        let timely = header.timestamps.is_none_or(|(_, echoed)| {
            timestamp(now, origin).wrapping_sub(echoed) <= 2 * ticks(COOKIE_PERIOD)
        });
        // A segment that does not fit its connection must not open the same connection again.
        let known = |pool: &Pool| pool.with(&from).is_some_and(|known| known.initial() == cookie);
        if payload.is_empty() || !valid || !timely || self.pools.iter().any(known) {
            return None;
        }
        self.give_up_syn(from);
        let connection = Connection::accept(now, origin, header, scaled);
        let index = self.insert(now, from, Kind::Accepted, connection);
        Some(Place { kind: Kind::Accepted, index })
    }

    /// An authenticated datagram came on the connection. It is confirmed, and replaces others with
    /// `from`.
    fn confirm(&mut self, now: Instant, from: SocketAddr, place: Place) -> Place {
        if place.kind == Kind::Confirmed {
            return place;
        }
        let pool = self.pool_mut(place.kind);
        let partial = pool.splitter.remove(from);
        let Some(connection) = pool.remove(place.index) else { return place };
        self.give_up(Kind::Opened, from);
        self.give_up(Kind::Accepted, from);
        let index = self.insert(now, from, Kind::Confirmed, connection);
        if let Some(partial) = partial {
            self.pool_mut(Kind::Confirmed).splitter.put(partial);
        }
        Place { kind: Kind::Confirmed, index }
    }

    /// A datagram from `from` proved to be authentic after [`receive`](Self::receive) had returned.
    /// Its connection is confirmed. If there are two unconfirmed ones, it is the one that the other
    /// end opened, because the initiator of a handshake opens a connection.
    pub fn confirm_later(&mut self, now: Instant, from: SocketAddr) {
        let place = [Kind::Accepted, Kind::Opened].into_iter().find_map(|kind| {
            let index = self.pool(kind).find(&from)?;
            self.pool(kind).with(&from).filter(|connection| connection.is_open())?;
            Some(Place { kind, index })
        });
        let Some(place) = place else { return };
        let place = self.confirm(now, from, place);
        let pool = self.pool_mut(Kind::Confirmed);
        pool.touch(place.index, now);
        if let Some(connection) = pool.get_mut(place.index) {
            connection.on_proof(now);
        }
    }

    /// Gives up an unanswered SYN to `address`, because there is a connection. With two, the ends
    /// might choose different ones.
    fn give_up_syn(&mut self, address: SocketAddr) {
        let opened = self.pool(Kind::Opened);
        if opened.with(&address).is_some_and(|connection| connection.unanswered().is_some()) {
            self.give_up(Kind::Opened, address);
        }
    }

    /// Drops the connection of this kind with `address`. Another one carries its waiting datagrams.
    fn give_up(&mut self, kind: Kind, address: SocketAddr) {
        let pool = self.pool_mut(kind);
        if let Some(connection) = pool.find(&address).and_then(|index| pool.remove(index)) {
            let held = connection.held.into_iter();
            self.released.extend(held.map(|held| (address, held)));
        }
    }

    fn pool(&self, kind: Kind) -> &Pool {
        &self.pools[kind as usize]
    }

    fn pool_mut(&mut self, kind: Kind) -> &mut Pool {
        &mut self.pools[kind as usize]
    }

    /// Adds a connection. It replaces one of its kind with the same address.
    fn insert(
        &mut self,
        now: Instant,
        address: SocketAddr,
        kind: Kind,
        connection: Connection,
    ) -> u32 {
        self.next_tick.get_or_insert(now + TICK);
        let (index, removed) = self.pool_mut(kind).insert(now, address, connection);
        self.counters.not_open += removed.map_or(0, |removed| removed.held.len() as u64);
        index
    }

    /// Closes every connection.
    pub fn close(&mut self, now: Instant) {
        self.look_after(now, |connection, _| {
            if !connection.is_open() {
                return Due::Nothing;
            }
            connection.close(now);
            Due::Fin
        });
    }

    /// Time at which to call [`handle_timeout`](Self::handle_timeout).
    pub fn next_timeout(&self) -> Option<Instant> {
        self.next_tick
    }

    /// Repeats SYNs, closes idle connections, and drops closed and unconfirmed ones.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.next_tick.is_none_or(|due| now < due) {
            return;
        }
        self.look_after(now, |connection, kind| connection.due(now, kind == Kind::Confirmed));
        let any = self.pools.iter().any(|pool| !pool.is_empty());
        self.next_tick = any.then_some(now + TICK);
    }

    /// Handles what `due` returns for each connection.
    fn look_after(&mut self, now: Instant, due: impl Fn(&mut Connection, Kind) -> Due) {
        let mut list = Vec::new();
        for kind in KINDS {
            for (index, to, connection) in self.pool_mut(kind).iter_mut() {
                let what = due(connection, kind);
                if what != Due::Nothing {
                    list.push((Place { kind, index }, *to, what));
                }
            }
        }
        for (place, to, what) in list {
            match what {
                Due::Nothing => {}
                Due::Syn => self.send(now, to, place, flag::SYN),
                Due::Fin => self.send(now, to, place, flag::ACK | flag::FIN),
                Due::Forget => {
                    self.counters.unconfirmed += u64::from(place.kind != Kind::Confirmed);
                    self.forget(place);
                }
            }
        }
    }

    /// The next segment without data to send. Send these before segments with data.
    pub fn poll_control(&mut self) -> Option<Control> {
        self.control.pop_front()
    }

    /// The next datagram that waited for its connection.
    pub fn poll_released(&mut self) -> Option<(SocketAddr, Ecn, Vec<u8>)> {
        let (to, held) = self.released.pop_front()?;
        Some((to, held.ecn, held.bytes))
    }

    fn forget(&mut self, place: Place) {
        if let Some(connection) = self.pool_mut(place.kind).remove(place.index) {
            self.counters.not_open += connection.held.len() as u64;
        }
    }

    /// Sends a segment of a connection without data.
    fn send(&mut self, now: Instant, to: SocketAddr, place: Place, flags: u8) {
        if let Some(connection) = self.pool_mut(place.kind).get_mut(place.index) {
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

    /// The sequence number of the answer to a SYN from `from`, whose number is in `block`. Its
    /// lowest bit is `scaled`. Only the receiver of the answer can know it, because the secret is
    /// this endpoint's.
    fn cookie(&self, from: SocketAddr, block: u32, period: u64, scaled: bool) -> u32 {
        let number = period << 32 | u64::from(block << 1) | u64::from(scaled);
        (self.hash(b'c', from, number) as u32 & !1) | u32::from(scaled)
    }

    /// Origin of our timestamps toward `to`. It is the same for all connections, because answers to
    /// SYNs leave no state.
    fn origin(&self, to: SocketAddr) -> u32 {
        self.hash(b't', to, 0) as u32
    }

    fn random(&mut self) -> u32 {
        self.drawn += 1;
        self.hash(b'r', self.local, self.drawn) as u32
    }

    fn hash(&self, purpose: u8, address: SocketAddr, number: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
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
