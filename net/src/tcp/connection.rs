//! One connection: its numbers, and what becomes of them.

use core::time::Duration;
use std::collections::VecDeque;

use mpip_core::{Ecn, Instant};

use super::segment::{Header, flag};

/// Shift of the window that we advertise, and the window, in units of 1 KiB: 32 MiB, which conntrack
/// lets be under way between two acknowledgements.
pub(super) const WINDOW_SCALE: u8 = 10;
const WINDOW: u16 = 32 << 10;
/// How far a number may be from what is expected.
const REACH: u32 = (WINDOW as u32) << WINDOW_SCALE;
/// Window of a SYN, as Linux has it, and of a connection whose other side does not scale.
pub(super) const SYN_WINDOW: u16 = 64_240;
/// Pauses between SYNs: the first, and the longest that they double to.
const SYN_RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));
/// The SYN is not repeated when nothing has been to be sent for this long.
const SYN_PATIENCE: Duration = Duration::from_secs(10);
/// Who opened a connection opens another one when so long nothing came though something was sent.
const SILENCE: Duration = Duration::from_secs(3);
/// A connection that carried nothing for so long is closed.
const IDLE: Duration = Duration::from_secs(30);
/// How long the answer to a FIN may take.
const CLOSING: Duration = Duration::from_secs(3);
/// Datagrams that wait until a connection is open; beyond it the oldest is dropped.
const MAX_HELD: usize = 4;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Our SYN is on its way.
    SynSent,
    /// So is the peer's, without knowing of ours.
    SynReceived,
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
    /// The number that is expected from the peer.
    expected: u32,
    /// The peer's latest timestamp, if it sends any.
    echo: Option<u32>,
    scaled: bool,
    /// Where our timestamps begin.
    origin: u32,
    since: Instant,
    syn_at: Instant,
    syns: u32,
    sent: Instant,
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
            expected: 0,
            echo: None,
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
        Self {
            state: State::Open,
            opener: false,
            expected: header.sequence,
            echo: header.timestamps.map(|(value, _)| value),
            scaled,
            // As one that we open, of which nothing was sent and nothing waits.
            ..Self::open(now, origin, initial, None)
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Our next sequence number.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Whether it has to be opened anew before something is sent: what was sent is not answered, as
    /// when a device on the way has forgotten the connection.
    pub(super) fn is_dead(&self, now: Instant) -> bool {
        self.opener
            && self.state == State::Open
            && self.sent > self.heard
            && now.since(self.heard) >= SILENCE
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
        let acknowledges = flags & flag::ACK != 0;
        let first = syn && !acknowledges;
        Header {
            sequence,
            acknowledgement: if acknowledges { self.expected } else { 0 },
            flags,
            window: if syn || !self.scaled { SYN_WINDOW } else { WINDOW },
            window_scale: syn.then_some(WINDOW_SCALE),
            sack_permitted: syn,
            timestamps: match self.echo {
                Some(echo) => Some((clock, echo)),
                None => first.then_some((clock, 0)),
            },
            ..Header::default()
        }
    }

    /// A SYN crossed ours.
    pub(super) fn on_syn(&mut self, header: &Header) {
        self.state = State::SynReceived;
        self.take_options(header);
    }

    /// Whether `header`, a SYN with ACK, answers our SYN; then the connection is open.
    pub(super) fn on_syn_ack(&mut self, now: Instant, header: &Header) -> bool {
        let ours = header.acknowledgement == self.initial.wrapping_add(1);
        if ours && matches!(self.state, State::SynSent | State::SynReceived) {
            self.take_options(header);
            self.state = State::Open;
            self.since = now;
            self.heard = now;
            return true;
        }
        false
    }

    /// Whether `header` repeats the answer to our SYN: our acknowledgement of it was lost.
    pub(super) fn repeats_syn_ack(&self, header: &Header) -> bool {
        self.opener && header.acknowledgement == self.initial.wrapping_add(1)
    }

    fn take_options(&mut self, header: &Header) {
        self.expected = header.sequence.wrapping_add(1);
        self.echo = header.timestamps.map(|(value, _)| value);
        self.scaled = header.window_scale.is_some();
    }

    /// Whether the numbers of `header` may be those of this connection.
    pub(super) fn accepts(&self, header: &Header) -> bool {
        if self.state == State::SynSent {
            return false;
        }
        let ahead = header.sequence.wrapping_sub(self.expected);
        let unacknowledged = self.next.wrapping_sub(header.acknowledgement);
        (ahead < REACH || ahead.wrapping_neg() <= REACH) && unacknowledged <= REACH
    }

    /// Takes note of a segment whose numbers are accepted, with `len` bytes of data. Returns
    /// whether it ends the peer's stream.
    pub(super) fn on_segment(&mut self, now: Instant, header: &Header, len: usize) -> bool {
        if self.state == State::SynReceived {
            self.state = State::Open;
            self.since = now;
        }
        self.heard = now;
        let end = header.sequence.wrapping_add(len as u32);
        let in_sequence = end.wrapping_sub(self.expected) < REACH;
        if in_sequence {
            self.expected = end;
        }
        if let (Some((value, _)), Some(echo)) = (header.timestamps, self.echo)
            && value.wrapping_sub(echo) < 1 << 31
        {
            self.echo = Some(value);
        }
        let fin = header.flags & flag::FIN != 0 && end == self.expected;
        if fin {
            self.expected = self.expected.wrapping_add(1);
        }
        fin
    }

    /// What is due `now`.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        match self.state {
            State::SynSent | State::SynReceived => {
                if now.since(self.wanted) >= SYN_PATIENCE {
                    Due::Forget
                } else if now >= self.syn_at {
                    Due::Syn
                } else {
                    Due::Nothing
                }
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
