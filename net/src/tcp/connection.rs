//! One connection: its numbers, and what becomes of them.

use core::time::Duration;
use std::collections::VecDeque;

use mpip_types::{Ecn, Instant};

use super::segment::{Header, flag};

/// Shift of the window that we advertise, and the window, in units of 1 KiB: 32 MiB, which conntrack
/// lets be under way between two acknowledgements.
pub(super) const WINDOW_SCALE: u8 = 10;
const WINDOW: u16 = 32 << 10;
/// How far a sequence number may be from the one that is expected, ahead or behind, and an
/// acknowledgement behind the furthest one. Also where the window that is said is smaller: the other
/// end does not look at it.
const REACH: u32 = (WINDOW as u32) << WINDOW_SCALE;
/// Window of a SYN, as Linux has it, and of a connection whose other side does not scale.
pub(super) const SYN_WINDOW: u16 = 64_240;
/// Pauses between SYNs: the first, and the longest that they double to.
const SYN_RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));
/// The SYN is not repeated when nothing has been to be sent for this long.
const SYN_PATIENCE: Duration = Duration::from_secs(10);
/// Who opened a connection opens another one when so long nothing came though something was sent.
const SILENCE: Duration = Duration::from_secs(3);
/// A SYN of the peer is answered only when nothing has authenticated on its connection for so long: a
/// firewall that sees such an answer would follow the numbers of a SYN that somebody has forged. Range:
/// 0.6 to 3 s. A path in use brings something every 300 ms, and who was restarted repeats its SYN
/// after 1 s.
const ALIVE: Duration = Duration::from_secs(1);
/// A connection that carried nothing for so long is closed.
const IDLE: Duration = Duration::from_secs(30);
/// How long the answer to a FIN may take.
const CLOSING: Duration = Duration::from_secs(3);
/// How long a connection may be open before a datagram that authenticates comes on it; else it is given
/// up. Range: 6 to 60 s. The first datagram may be answered with a cookie, and a handshake is tried
/// again after 5 s at most; what does not prove itself takes a place for so long.
pub(super) const UNCONFIRMED: Duration = Duration::from_secs(10);
/// How much older a timestamp of the peer may be than the newest. RFC 7323 has zero, since TCP puts
/// segments in order; here a late one is a datagram that still serves. Range: 2 to 10 s. A receiver
/// waits 2 s at most for what is missing, and at rest an answer may take 4 s: what is later serves for
/// nothing, and numbers do not come round in so short a time at what one core sends.
const LATE: Duration = Duration::from_secs(4);
/// How much older an echoed timestamp may be than the newest one echoed: two of ours may be as far
/// apart as a connection may be idle, and the older one may be echoed by a late segment.
const LATE_ECHO: Duration = IDLE.saturating_add(LATE);
/// Datagrams that wait until a connection is open; beyond it the oldest is dropped.
const MAX_HELD: usize = 4;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Our SYN is on its way.
    SynSent,
    /// Data travels.
    Open,
    /// We sent FIN.
    Closing,
}

/// A datagram that waits until the connection is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) ecn: Ecn,
    pub(super) bytes: Vec<u8>,
}

/// What is to be done about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Send the SYN again.
    Syn,
    /// Send FIN; the connection is closing from now on.
    Fin,
    /// Forget the connection.
    Forget,
}

/// A connection with one remote address.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    /// Whether our SYN was the first.
    opener: bool,
    /// Our initial sequence number, and the next one.
    initial: u32,
    next: u32,
    /// The furthest acknowledgement of them.
    acknowledged: u32,
    /// The number that is expected from the peer.
    expected: u32,
    /// The peer's latest timestamp, if both send them.
    echo: Option<u32>,
    /// The latest of our timestamps that the peer has echoed.
    echoed: u32,
    scaled: bool,
    /// Where our timestamps begin.
    origin: u32,
    since: Instant,
    syn_at: Instant,
    syns: u32,
    sent: Instant,
    /// When the peer was last known to be there.
    heard: Instant,
    /// When a datagram was last to be sent though the connection was not open.
    wanted: Instant,
    pub(super) held: VecDeque<Held>,
}

impl Connection {
    /// One that we open, whose timestamps begin at `origin`. `former`: the next number of one
    /// before it, which must not be mistaken for this one.
    pub(super) fn open(now: Instant, origin: u32, random: u32, former: Option<u32>) -> Self {
        // A quarter of the space away: out of the reach of what the peer expects of the former.
        let initial =
            former.map_or(random, |next| next.wrapping_add(1 << 30).wrapping_add(random >> 2));
        Self {
            state: State::SynSent,
            opener: true,
            initial,
            next: initial.wrapping_add(1),
            acknowledged: initial.wrapping_add(1),
            expected: 0,
            echo: None,
            echoed: timestamp(now, origin),
            scaled: false,
            origin,
            since: now,
            syn_at: now,
            syns: 0,
            sent: now,
            heard: now,
            wanted: now,
            held: VecDeque::new(),
        }
    }

    /// One whose first segment after our answer to its SYN came, `header`.
    pub(super) fn accept(now: Instant, origin: u32, header: &Header, scaled: bool) -> Self {
        let initial = header.acknowledgement.wrapping_sub(1);
        // As one that we open, of which nothing was sent and nothing waits.
        let mut connection = Self { opener: false, ..Self::open(now, origin, initial, None) };
        connection.begin(now, header, scaled);
        connection
    }

    /// Both know of the connection: `header` has the peer's first numbers that are seen.
    fn begin(&mut self, now: Instant, header: &Header, scaled: bool) {
        let syn = u32::from(header.flags & flag::SYN != 0);
        self.state = State::Open;
        self.expected = header.sequence.wrapping_add(syn);
        self.echo = header.timestamps.map(|(value, _)| value);
        self.echoed = header.timestamps.map_or(self.echoed, |(_, echoed)| echoed);
        self.scaled = scaled;
        self.since = now;
        self.heard = now;
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether something can be sent on it.
    pub(super) fn is_usable(&self, now: Instant) -> bool {
        self.is_open() && !self.is_dead(now)
    }

    /// Our initial sequence number.
    pub(super) fn initial(&self) -> u32 {
        self.initial
    }

    /// Our next sequence number.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// The number of our SYN, while nothing has answered it.
    pub(super) fn unanswered(&self) -> Option<u32> {
        (self.state == State::SynSent).then_some(self.initial)
    }

    /// Whether it has to be opened anew before something is sent: what was sent is not answered, as
    /// when a device on the way has forgotten the connection.
    fn is_dead(&self, now: Instant) -> bool {
        self.opener
            && self.state == State::Open
            && self.sent > self.heard
            && now.since(self.heard) >= SILENCE
    }

    /// Whether the peer is known to use the connection.
    pub(super) fn is_alive(&self, now: Instant) -> bool {
        self.is_open() && now.since(self.heard) < ALIVE
    }

    /// Keeps a datagram until the connection is open.
    pub(super) fn hold(&mut self, now: Instant, held: Held) -> bool {
        self.wanted = now;
        let full = self.held.len() == MAX_HELD;
        if full {
            self.held.pop_front();
        }
        self.held.push_back(held);
        !full
    }

    /// The header of a segment with `flags` and `len` bytes of data, which takes its numbers.
    pub(super) fn emit(&mut self, now: Instant, flags: u8, len: usize) -> Header {
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

    /// Whether `header` answers our SYN: as a SYN with ACK, or as data after one that was lost. Then the
    /// connection is open.
    pub(super) fn opens(&mut self, now: Instant, header: &Header) -> bool {
        let answers = self.state == State::SynSent
            && header.acknowledgement == self.initial.wrapping_add(1)
            && header.timestamps.is_none_or(|(_, echoed)| self.sent_timestamp(now, echoed));
        if answers {
            self.begin(now, header, header.window_scale.is_some());
        }
        answers
    }

    /// Whether `header` repeats the answer to our SYN: our acknowledgement of it was lost.
    pub(super) fn repeats_syn_ack(&self, header: &Header) -> bool {
        self.opener
            && self.state == State::Open
            && header.acknowledgement == self.initial.wrapping_add(1)
    }

    /// Whether `header` may be of this connection (RFC 9293, section 3.10.7.4; RFC 5961, section 5;
    /// RFC 7323, section 5.3).
    pub(super) fn accepts(&self, now: Instant, header: &Header) -> bool {
        if self.state == State::SynSent {
            return false;
        }
        let ahead = header.sequence.wrapping_sub(self.expected);
        let in_window = ahead < REACH || ahead.wrapping_neg() <= REACH;
        // Where the peer has acknowledged nothing for long, the numbers must not come round.
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

    /// Whether `echoed` is one of the timestamps that we sent lately.
    fn sent_timestamp(&self, now: Instant, echoed: u32) -> bool {
        let oldest = self.echoed.wrapping_sub(ticks(LATE_ECHO));
        echoed.wrapping_sub(oldest) <= timestamp(now, self.origin).wrapping_sub(oldest)
    }

    /// Takes note of a segment that is accepted and brought `len` bytes, among them a datagram that the
    /// peer has sealed: only then its numbers are known to be the peer's.
    pub(super) fn on_authenticated(&mut self, now: Instant, header: &Header, len: usize) {
        self.heard = now;
        self.expected = newer(self.expected, header.sequence.wrapping_add(len as u32));
        self.acknowledged = newer(self.acknowledged, header.acknowledgement);
        if let (Some(echo), Some((value, echoed))) = (&mut self.echo, header.timestamps) {
            *echo = newer(*echo, value);
            self.echoed = newer(self.echoed, echoed);
        }
    }

    /// The peer has proved to be there, by a segment whose numbers are not known any more.
    pub(super) fn on_proof(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Whether `header`, of a segment that is accepted and brought `len` bytes, ends the peer's stream.
    pub(super) fn ends(&mut self, header: &Header, len: usize) -> bool {
        let end = header.sequence.wrapping_add(len as u32);
        let fin = header.flags & flag::FIN != 0 && end == self.expected;
        self.expected = self.expected.wrapping_add(fin.into());
        fin
    }

    /// What is due `now`; `confirmed`: a datagram that authenticated came on the connection.
    pub(super) fn due(&mut self, now: Instant, confirmed: bool) -> Due {
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

    /// Our FIN is about to be sent.
    pub(super) fn close(&mut self, now: Instant) {
        self.state = State::Closing;
        self.since = now;
    }
}

/// Milliseconds since `origin`.
pub(super) fn timestamp(now: Instant, origin: u32) -> u32 {
    origin.wrapping_add((now.as_micros() / 1_000) as u32)
}

/// `duration` in units of timestamps.
pub(super) const fn ticks(duration: Duration) -> u32 {
    duration.as_millis() as u32
}

/// Whether `one` comes after `other`, of two numbers that are less than 2^31 apart.
fn is_newer(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).wrapping_sub(1) < 1 << 31
}

/// The later one of both.
fn newer(one: u32, other: u32) -> u32 {
    if is_newer(other, one) { other } else { one }
}
