//! One connection: its state and its sequence numbers.

use core::time::Duration;
use std::collections::VecDeque;

use mpip_types::{Ecn, Instant};

use crate::segment::{Header, flag};

/// Shift of the advertised window. The window is 32 MiB: conntrack accepts that much data between
/// two acknowledgements.
pub(crate) const WINDOW_SCALE: u8 = 10;
const WINDOW: u16 = 32 << 10;
/// Largest distance of a sequence number from the expected one, ahead or behind, and of an
/// acknowledgement behind the highest one. It holds also if a smaller window was advertised,
/// because the sender ignores windows.
const REACH: u32 = (WINDOW as u32) << WINDOW_SCALE;
/// Window of a SYN, as in Linux, and of connections without window scaling.
pub(crate) const SYN_WINDOW: u16 = 64_240;
/// First interval between SYNs, and its maximum. It doubles each time.
const SYN_RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));
/// Time without data to send after which the SYN is not repeated.
const SYN_PATIENCE: Duration = Duration::from_secs(10);
/// Time without an answer to sent data after which the opener opens a new connection. It begins
/// with the data: before that nobody had to answer.
const SILENCE: Duration = Duration::from_secs(3);
/// Rounds without an acknowledgement after which the opener opens a new connection. A round begins
/// when data is sent, and ends when the peer is heard at least `SILENCE / ROUNDS` later. With two,
/// neither a loss before a pause nor an acknowledgement that left before the data came is a reason.
const ROUNDS: u32 = 2;
/// Time without an authenticated datagram before a SYN of the peer is answered. A firewall would
/// follow the numbers of the answer, and the SYN may be forged. Range: 0.6 to 3 s, because a path
/// in use brings a datagram every 300 ms, and a restarted peer repeats its SYN after 1 s.
const ALIVE: Duration = Duration::from_secs(1);
/// Time without segments after which a connection is closed.
const IDLE: Duration = Duration::from_secs(30);
/// Time to wait for the answer to a FIN.
const CLOSING: Duration = Duration::from_secs(3);
/// Time without an authenticated datagram after which a new connection is closed. Range: 6 to 60 s.
/// The first datagram may be answered with a cookie, and a handshake is repeated after at most 5 s.
/// An unauthenticated connection occupies a slot for this time.
pub(crate) const UNCONFIRMED: Duration = Duration::from_secs(10);
/// Largest age of a timestamp of the peer, compared with the newest one. RFC 7323 has zero, because
/// TCP puts segments in order; here a late segment carries a datagram that is still useful. Range:
/// 2 to 10 s. A receiver waits at most 2 s for missing packets, and an answer at rest takes at most
/// 4 s, so older datagrams are useless. Sequence numbers do not wrap around in this time at the
/// rate that one core sends.
const LATE: Duration = Duration::from_secs(4);
/// Largest age of an echoed timestamp, compared with the newest echoed one. Two of our timestamps
/// may be as far apart as a connection may be idle, and a late segment may echo the older one.
const LATE_ECHO: Duration = IDLE.saturating_add(LATE);
/// Most datagrams that wait for a connection to open. When there are more, the oldest is dropped.
const MAX_HELD: usize = 4;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// We sent a SYN.
    SynSent,
    /// It carries data.
    Open,
    /// We sent FIN.
    Closing,
}

/// A datagram that waits until the connection is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) ecn: Ecn,
    pub(crate) bytes: Vec<u8>,
}

/// What a timer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// Send the SYN again.
    Syn,
    /// Send FIN; the connection is closing now.
    Fin,
    /// Forget the connection.
    Forget,
}

/// A connection with one remote address.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) state: State,
    /// Whether we opened it.
    opener: bool,
    /// Our initial sequence number.
    initial: u32,
    next: u32,
    /// The highest acknowledgement of our sequence numbers.
    acknowledged: u32,
    /// When the current round began, see [`ROUNDS`].
    round: Option<Instant>,
    /// Rounds that have ended since `acknowledged` advanced.
    rounds: u32,
    /// The next sequence number expected from the peer.
    expected: u32,
    /// The peer's newest timestamp, if both send timestamps.
    echo: Option<u32>,
    /// The newest of our timestamps that the peer has echoed.
    echoed: u32,
    scaled: bool,
    /// Origin of our timestamps.
    origin: u32,
    since: Instant,
    syn_at: Instant,
    syns: u32,
    sent: Instant,
    /// When data was first sent since the peer was last heard.
    asked: Option<Instant>,
    /// Time of the last authenticated datagram of the peer.
    heard: Instant,
    /// Time at which a datagram was last held until the connection opens.
    wanted: Instant,
    pub(crate) held: VecDeque<Held>,
}

impl Connection {
    /// A connection that we open, with timestamps from `origin`. `former` is the next sequence
    /// number of an earlier connection, whose segments must not be mistaken for segments of this
    /// one.
    pub(crate) fn open(now: Instant, origin: u32, random: u32, former: Option<u32>) -> Self {
        // A quarter of the sequence space away: beyond `REACH` of the earlier connection.
        let initial =
            former.map_or(random, |next| next.wrapping_add(1 << 30).wrapping_add(random >> 2));
        Self {
            state: State::SynSent,
            opener: true,
            initial,
            next: initial.wrapping_add(1),
            acknowledged: initial.wrapping_add(1),
            round: None,
            rounds: 0,
            expected: 0,
            echo: None,
            echoed: timestamp(now, origin),
            scaled: false,
            origin,
            since: now,
            syn_at: now,
            syns: 0,
            sent: now,
            asked: None,
            heard: now,
            wanted: now,
            held: VecDeque::new(),
        }
    }

    /// A connection that the peer opened. `header` is its first segment after our answer to its
    /// SYN.
    pub(crate) fn accept(now: Instant, origin: u32, header: &Header, scaled: bool) -> Self {
        let initial = header.acknowledgement.wrapping_sub(1);
        // Like one that we open, but without a SYN.
        let mut connection = Self { opener: false, ..Self::open(now, origin, initial, None) };
        connection.begin(now, header, scaled);
        connection
    }

    /// Both ends know the connection. `header` has the first numbers of the peer.
    fn begin(&mut self, now: Instant, header: &Header, scaled: bool) {
        let syn = u32::from(header.flags & flag::SYN != 0);
        self.state = State::Open;
        self.expected = header.sequence.wrapping_add(syn);
        self.echo = header.timestamps.map(|(value, _)| value);
        self.echoed = header.timestamps.map_or(self.echoed, |(_, echoed)| echoed);
        self.scaled = scaled;
        self.since = now;
        self.on_proof(now);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether it can carry data.
    pub(crate) fn is_usable(&self, now: Instant) -> bool {
        self.is_open() && !self.is_dead(now)
    }

    /// Our initial sequence number.
    pub(crate) fn initial(&self) -> u32 {
        self.initial
    }

    /// Our next sequence number.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// The sequence number of our SYN, until it is answered.
    pub(crate) fn unanswered(&self) -> Option<u32> {
        (self.state == State::SynSent).then_some(self.initial)
    }

    /// Whether a new connection is needed to send: data was not answered, or not acknowledged while
    /// the peer was heard, perhaps because a middlebox has forgotten this one.
    pub(crate) fn is_dead(&self, now: Instant) -> bool {
        let silent = self.asked.is_some_and(|asked| now.since(asked) >= SILENCE);
        self.opener && self.is_open() && (silent || self.rounds >= ROUNDS)
    }

    /// Whether the peer has used the connection lately.
    pub(crate) fn is_alive(&self, now: Instant) -> bool {
        self.is_open() && now.since(self.heard) < ALIVE
    }

    /// Keeps a datagram until the connection is open.
    pub(crate) fn hold(&mut self, now: Instant, held: Held) -> bool {
        self.wanted = now;
        let full = self.held.len() == MAX_HELD;
        if full {
            self.held.pop_front();
        }
        self.held.push_back(held);
        !full
    }

    /// The header of a segment with `flags` and `len` bytes of data. Advances the sequence number.
    pub(crate) fn emit(&mut self, now: Instant, flags: u8, len: usize) -> Header {
        let clock = timestamp(now, self.origin);
        let syn = flags & flag::SYN != 0;
        let sequence = if syn { self.initial } else { self.next };
        if syn {
            let (first, longest) = SYN_RETRY;
            self.syn_at = now + (first * 2_u32.saturating_pow(self.syns.min(8))).min(longest);
            self.syns += 1;
        } else {
            let fin = usize::from(flags & flag::FIN != 0);
            self.next = self.next.wrapping_add((len + fin) as u32);
        }
        if len > 0 {
            self.sent = now;
            self.asked.get_or_insert(now);
            self.round.get_or_insert(now);
        }
        Header {
            sequence,
            acknowledgement: if flags & flag::ACK != 0 { self.expected } else { 0 },
            flags,
            window: if syn || !self.scaled { SYN_WINDOW } else { WINDOW },
            window_scale: syn.then_some(WINDOW_SCALE),
            sack_permitted: syn,
            timestamps: match self.echo {
                Some(echo) => Some((clock, echo)),
                None => syn.then_some((clock, 0)),
            },
            ..Header::default()
        }
    }

    /// Opens the connection if `header` answers our SYN: it is a SYN-ACK, or data after a lost
    /// SYN-ACK. Returns whether it does.
    pub(crate) fn opens(&mut self, now: Instant, header: &Header) -> bool {
        let answers = self.state == State::SynSent
            && header.acknowledgement == self.initial.wrapping_add(1)
            && header.timestamps.is_none_or(|(_, echoed)| self.sent_timestamp(now, echoed));
        if answers {
            self.begin(now, header, header.window_scale.is_some());
        }
        answers
    }

    /// Whether `header` repeats the SYN-ACK, because our acknowledgement of it was lost.
    pub(crate) fn repeats_syn_ack(&self, header: &Header) -> bool {
        self.opener
            && self.state == State::Open
            && header.acknowledgement == self.initial.wrapping_add(1)
    }

    /// Whether `header` can belong to this connection (RFC 9293, section 3.10.7.4; RFC 5961,
    /// section 5; RFC 7323, section 5.3).
    pub(crate) fn accepts(&self, now: Instant, header: &Header) -> bool {
        if self.state == State::SynSent {
            return false;
        }
        let ahead = header.sequence.wrapping_sub(self.expected);
        let in_window = ahead < REACH || ahead.wrapping_neg() <= REACH;
        // Without acknowledgements for long, the sequence numbers must not wrap around.
        let in_flight = self.next.wrapping_sub(self.acknowledged).min(1 << 31);
        let unacknowledged = self.next.wrapping_sub(header.acknowledgement);
        let timely = match (self.echo, header.timestamps) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(newest), Some((value, echoed))) => {
                !is_newer(newest.wrapping_sub(ticks(LATE)), value)
                    && self.sent_timestamp(now, echoed)
            }
        };
        in_window && unacknowledged <= in_flight + REACH && timely
    }

    /// Whether we sent the timestamp `echoed` lately.
    fn sent_timestamp(&self, now: Instant, echoed: u32) -> bool {
        let oldest = self.echoed.wrapping_sub(ticks(LATE_ECHO));
        echoed.wrapping_sub(oldest) <= timestamp(now, self.origin).wrapping_sub(oldest)
    }

    /// Takes the numbers of an accepted segment with `len` bytes and an authenticated datagram,
    /// which shows that they are the peer's.
    pub(crate) fn on_authenticated(&mut self, now: Instant, header: &Header, len: usize) {
        self.on_proof(now);
        self.expected = newer(self.expected, header.sequence.wrapping_add(len as u32));
        self.on_acknowledgement(now, header.acknowledgement);
        if let (Some(echo), Some((value, echoed))) = (&mut self.echo, header.timestamps) {
            *echo = newer(*echo, value);
            self.echoed = newer(self.echoed, echoed);
        }
    }

    /// The peer acknowledges the end of what arrived, whatever was lost before. So its number stays
    /// the same only while nothing arrives.
    fn on_acknowledgement(&mut self, now: Instant, number: u32) {
        if is_newer(number, self.acknowledged) {
            self.acknowledged = number;
            self.round = None;
            self.rounds = 0;
        } else if number == self.acknowledged
            && self.round.is_some_and(|began| now.since(began) >= SILENCE / ROUNDS)
        {
            self.round = None;
            self.rounds += 1;
        }
    }

    /// The peer has proved to be alive, be it by a segment whose numbers are not known.
    pub(crate) fn on_proof(&mut self, now: Instant) {
        self.heard = now;
        self.asked = None;
    }

    /// Whether an accepted segment with `len` bytes ends the peer's stream.
    pub(crate) fn ends(&mut self, header: &Header, len: usize) -> bool {
        let end = header.sequence.wrapping_add(len as u32);
        let fin = header.flags & flag::FIN != 0 && end == self.expected;
        self.expected = self.expected.wrapping_add(fin.into());
        fin
    }

    /// What is due `now`. `confirmed` tells whether an authenticated datagram came on the
    /// connection.
    pub(crate) fn due(&mut self, now: Instant, confirmed: bool) -> Due {
        match self.state {
            State::SynSent => {
                if now.since(self.wanted) >= SYN_PATIENCE {
                    Due::Forget
                } else if now >= self.syn_at {
                    Due::Syn
                } else {
                    Due::Nothing
                }
            }
            State::Open if !confirmed && now.since(self.since) >= UNCONFIRMED => {
                if !self.opener {
                    return Due::Forget;
                }
                self.close(now);
                Due::Fin
            }
            State::Open if now.since(self.sent.max(self.heard).max(self.since)) >= IDLE => {
                self.close(now);
                Due::Fin
            }
            State::Open => Due::Nothing,
            State::Closing if now.since(self.since) >= CLOSING => Due::Forget,
            State::Closing => Due::Nothing,
        }
    }

    /// Our FIN will be sent now.
    pub(crate) fn close(&mut self, now: Instant) {
        self.state = State::Closing;
        self.since = now;
    }
}

/// Milliseconds since `origin`.
pub(crate) fn timestamp(now: Instant, origin: u32) -> u32 {
    origin.wrapping_add((now.as_micros() / 1_000) as u32)
}

/// `duration` in units of timestamps.
pub(crate) const fn ticks(duration: Duration) -> u32 {
    duration.as_millis() as u32
}

/// Whether `one` comes after `other`. They must be less than 2^31 apart.
fn is_newer(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).wrapping_sub(1) < 1 << 31
}

/// The later of the two.
fn newer(one: u32, other: u32) -> u32 {
    if is_newer(other, one) { other } else { one }
}
