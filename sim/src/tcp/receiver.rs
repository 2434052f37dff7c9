//! The receiving end of a transfer. What arrives is read at once, so its window never closes.
//!
//! This file has the connection. `arrived` has what arrived of the stream, `acknowledgements` when
//! that is acknowledged, and `window` the receive window.

mod acknowledgements;
mod arrived;
mod window;

use core::net::SocketAddr;

use smoltcp::wire::{TcpControl, TcpRepr, TcpSeqNumber};

use acknowledgements::Acknowledgements;
use arrived::Arrived;
use window::ReceiveWindow;

use super::packet;
use super::timestamps::Timestamps;
use crate::clock::{NEVER, Nanos, SECOND};
use crate::packet::{Tuple, find_wrong};

/// Time after which an unanswered SYN or FIN is repeated; it doubles (RFC 6298, section 2.1).
const TIMEOUT: Nanos = SECOND;
/// How often the time doubles.
const MAX_DOUBLINGS: u32 = 6;
/// How often a FIN is sent (Linux, `tcp_orphan_retries`).
const TRIES: u32 = 8;

/// Progress of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes read; all of them were correct.
    pub bytes: u64,
    /// Whether the sender has closed and all its bytes were read.
    pub finished: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Listening,
    /// Has answered the SYN.
    Opening,
    Open,
    /// The stream has ended; the own FIN is not acknowledged.
    Closing,
    Closed,
}

/// One receiver.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) flow: u64,
    local: SocketAddr,
    /// The sender; `None` while listening.
    remote: Option<SocketAddr>,
    state: State,
    /// Own initial sequence number, and that of the sender.
    initial: (u32, u32),
    mss: usize,
    window: ReceiveWindow,
    timestamps: Timestamps,
    arrived: Arrived,
    /// A segment that had arrived before, which the next acknowledgement reports (RFC 2883).
    duplicate: Option<(u64, u64)>,
    acknowledgements: Acknowledgements,
    /// Offset after the FIN, once it is known.
    end: Option<u64>,
    /// Time at which the SYN or FIN is sent (again); [`NEVER`] if it is acknowledged.
    control_at: Nanos,
    /// How often it was sent, and when last.
    tries: u32,
    sent_at: Nanos,
}

impl Receiver {
    /// Listens at `local`. `initial` is its initial sequence number.
    pub(super) fn new(
        flow: u64,
        local: SocketAddr,
        window: usize,
        mtu: usize,
        initial: u32,
    ) -> Self {
        let mut receiver = Self {
            flow,
            local,
            remote: None,
            state: State::Listening,
            initial: (initial, 0),
            mss: 0,
            window: ReceiveWindow::new(window),
            timestamps: Timestamps::default(),
            arrived: Arrived::default(),
            duplicate: None,
            acknowledgements: Acknowledgements::new(),
            end: None,
            control_at: NEVER,
            tries: 0,
            sent_at: 0,
        };
        receiver.set_mtu(mtu);
        receiver
    }

    pub(super) fn set_mtu(&mut self, mtu: usize) {
        self.mss = packet::mss(mtu, self.local.ip());
    }

    /// Whether a segment is for it.
    pub(super) fn takes(&self, tuple: &Tuple) -> bool {
        let known = self.remote.is_none_or(|remote| remote == tuple.source);
        self.local == tuple.destination && known && self.state != State::Closed
    }

    /// Its progress.
    pub(super) fn received(&self) -> Received {
        let finished = self.end == Some(self.arrived.in_order);
        Received { bytes: self.arrived.in_order - u64::from(finished), finished }
    }

    /// Its state, for people.
    pub(super) fn describe(&self) -> String {
        format!("{:?} receives: {:?}", self.state, self.received())
    }

    /// Time at which to call [`poll`](Self::poll) next.
    pub(super) fn poll_at(&self) -> Nanos {
        self.acknowledgements.at.min(self.control_at)
    }

    /// Takes a packet from `source`.
    ///
    /// # Errors
    /// The flow and offset of the first byte that differs from what the sender wrote.
    pub(super) fn on_packet(
        &mut self,
        now: Nanos,
        source: SocketAddr,
        packet: &[u8],
    ) -> Result<(), (u64, u64)> {
        let Some(repr) = packet::parse(packet, source, self.local) else { return Ok(()) };
        if repr.control == TcpControl::Syn {
            self.timestamps.on_segment(now, &repr, true);
            self.on_syn(now, source, &repr);
            return Ok(());
        }
        let number = repr.seq_number.0 as u32;
        let start = packet::offset(self.initial.1, number, self.arrived.in_order);
        let early = start <= self.acknowledgements.acknowledged;
        let rtt = self.timestamps.on_segment(now, &repr, early);
        let end = start + repr.segment_len() as u64;
        let last = start + repr.payload.len() as u64;
        let bound = self.arrived.in_order + self.window.bytes();
        if self.state == State::Listening || last > bound {
            return Ok(());
        }
        if repr.control == TcpControl::Rst {
            self.close();
            return Ok(());
        }
        self.on_acknowledgement(now, repr.ack_number);
        if self.state == State::Opening || self.state == State::Closed || end == start {
            return Ok(());
        }
        if let Some(at) = find_wrong(self.flow, start, repr.payload) {
            return Err((self.flow, at));
        }
        if repr.control == TcpControl::Fin {
            self.end = Some(end);
        }
        let new = end > self.arrived.in_order;
        let gap = self.arrived.has_gap();
        if self.arrived.has(start, end) {
            self.duplicate = Some((start, end));
        }
        self.arrived.add(start, end);
        let segment = (self.mss - packet::TIMESTAMPS) as u64;
        if let Some(rtt) = rtt.filter(|_| last - start >= segment) {
            self.window.on_rtt(rtt);
        }
        let in_order = self.arrived.in_order;
        let beyond = self.arrived.highest() - in_order;
        self.window.on_read(now, in_order, segment, beyond);
        if new {
            self.acknowledgements.on_new(now, last - start, gap, &self.arrived);
        } else {
            self.acknowledgements.on_old(now);
        }
        if self.state == State::Open && self.end == Some(self.arrived.in_order) {
            self.state = State::Closing;
            (self.control_at, self.tries) = (now, 0);
        }
        Ok(())
    }

    fn on_syn(&mut self, now: Nanos, source: SocketAddr, repr: &TcpRepr<'_>) {
        if matches!(self.state, State::Listening | State::Opening) {
            self.remote = Some(source);
            self.initial.1 = repr.seq_number.0 as u32;
            self.state = State::Opening;
            self.control_at = now;
        } else {
            self.acknowledgements.on_old(now);
        }
    }

    fn on_acknowledgement(&mut self, now: Nanos, number: Option<TcpSeqNumber>) {
        let acknowledged = number.map(|ack| (ack.0 as u32).wrapping_sub(self.initial.0));
        match (self.state, acknowledged) {
            (State::Opening, Some(1)) => {
                self.state = State::Open;
                self.control_at = NEVER;
                if self.tries == 1 {
                    self.acknowledgements.set_rtt(now - self.sent_at);
                }
            }
            (State::Closing, Some(2)) => self.close(),
            _ => {}
        }
    }

    fn close(&mut self) {
        self.state = State::Closed;
        self.control_at = NEVER;
        self.acknowledgements.at = NEVER;
    }

    /// Sends what is due.
    pub(super) fn poll(&mut self, now: Nanos, out: &mut Vec<Vec<u8>>) {
        if now >= self.control_at && self.state == State::Closing && self.tries == TRIES {
            self.close();
        }
        if now >= self.control_at {
            let opens = self.state == State::Opening;
            self.emit(now, if opens { TcpControl::Syn } else { TcpControl::Fin }, out);
            self.control_at = now + (TIMEOUT << self.tries.min(MAX_DOUBLINGS));
            self.tries += 1;
            self.sent_at = now;
        }
        if now >= self.acknowledgements.at {
            self.emit(now, TcpControl::None, out);
        }
    }

    fn emit(&mut self, now: Nanos, control: TcpControl, out: &mut Vec<Vec<u8>>) {
        let Some(remote) = self.remote else { return };
        let mut sack_ranges = self.arrived.ranges();
        if let Some(duplicate) = self.duplicate.take() {
            sack_ranges.rotate_right(1);
            sack_ranges[0] = Some(duplicate);
        }
        let in_order = self.arrived.in_order;
        let syn = control == TcpControl::Syn;
        let shift = self.window.shift();
        let window = if syn { self.window.bytes() } else { self.window.bytes() >> shift };
        // Of the own stream there are only SYN and FIN.
        let has_closed = self.state == State::Closing && control == TcpControl::None;
        let sent = u32::from(!syn) + u32::from(has_closed);
        let number = |offset: u64| self.initial.1.wrapping_add(1).wrapping_add(offset as u32);
        let range = |(start, end)| (number(start), number(end));
        let repr = TcpRepr {
            seq_number: TcpSeqNumber(self.initial.0.wrapping_add(sent) as i32),
            ack_number: Some(TcpSeqNumber(number(in_order) as i32)),
            window_len: window.min(u64::from(u16::MAX)) as u16,
            window_scale: syn.then_some(shift),
            max_seg_size: syn.then_some(self.mss as u16),
            sack_permitted: syn,
            sack_ranges: sack_ranges.map(|found| found.map(range)),
            timestamp: Some(self.timestamps.option(now)),
            ..packet::empty(self.local, remote, control)
        };
        out.push(packet::build(&repr, self.local, remote));
        if !syn {
            self.acknowledgements.on_sent(in_order);
        }
    }
}

#[cfg(test)]
mod tests;
