//! The sending end of a transfer, with what kernels have and `smoltcp` lacks: selective
//! acknowledgements (RFC 2018), loss detection by time (RFC 8985), a window counted in bytes.
//! Without them one lost packet of a large window costs as many round trips as were lost with it.

use core::net::SocketAddr;
use std::collections::VecDeque;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};

use super::bbr::Sample;
use super::control::{Control, Pacing};
use crate::clock::{MILLI, NEVER, Nanos, SECOND};
use crate::packet::{ip_header_len, pattern, transport};
use crate::spec;

const TCP_HEADER: usize = 20;
/// Retransmission time-out before there is a sample (RFC 6298), by how much it is longer than a round
/// trip at least (Linux), and its bound.
const FIRST_TIMEOUT: Nanos = SECOND;
const LEAST_MARGIN: Nanos = 200 * MILLI;
const LONGEST_TIMEOUT: Nanos = 60 * SECOND;
/// A connection that nobody answers ends after so long; longer than any outage of a world.
const GIVE_UP: Nanos = 300 * SECOND;
/// Segments above a missing one from which on it is lost (RFC 6675).
const DUPLICATES: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Open,
    /// Reset, or given up.
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    InFlight,
    /// Selectively acknowledged.
    Arrived,
    /// To be sent again.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    start: u64,
    len: usize,
    /// The end of the stream, which takes one number.
    end_of_stream: bool,
    sent_at: Nanos,
    again: bool,
    fate: Fate,
    before: Before,
}

/// What the sender knew when a segment left (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    /// Bytes delivered, and when that was.
    delivered: u64,
    delivered_at: Nanos,
    /// When the newest that was delivered had left.
    left_at: Nanos,
    app_limited: bool,
}

/// What an acknowledgement tells.
#[derive(Debug, Default)]
struct News {
    /// Bytes that arrived, and how many segments of those that had been taken for lost.
    delivered: u64,
    found: u32,
    /// The round-trip time of the last segment that was sent once only.
    took: Option<Nanos>,
    /// The segment that left last of those that arrived.
    newest: Option<Segment>,
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + self.len as u64 + u64::from(self.end_of_stream)
    }
}

/// A round trip whose losses count as one.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    /// It ends when everything before this byte is acknowledged.
    until: u64,
    /// It follows a time-out, so that the window grows meanwhile (RFC 5681, section 3.1).
    timed_out: bool,
}

/// One sender.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) flow: u64,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    total: Option<u64>,
    /// Most bytes in flight, whatever the receiver would take.
    buffer: u64,
    state: State,
    initial: u32,
    /// The peer's next sequence number.
    expected: TcpSeqNumber,
    interface_mss: usize,
    peer_mss: usize,
    peer_window: u64,
    peer_shift: u8,
    /// What is not acknowledged, without gaps.
    segments: VecDeque<Segment>,
    /// The first byte that is not acknowledged, and that was never sent.
    first: u64,
    next: u64,
    /// Bytes that count as in flight; segments that arrived out of order; those that are lost.
    in_flight: u64,
    arrived: u32,
    lost: u32,
    control: Control,
    /// Whether the window, not the peer or the stream, was what held the sender back.
    filled: bool,
    /// Nothing is in flight because the peer takes nothing: it is asked again (RFC 9293, section
    /// 3.8.6.1).
    blocked: bool,
    recovery: Option<Recovery>,
    /// The window before a time-out of which it is not known yet whether anything was lost.
    before_timeout: Option<Control>,
    /// Departure and place of the newest segment that arrived, and how long that took.
    newest: (Nanos, u64),
    newest_took: Nanos,
    reordered: bool,
    lowest_rtt: Nanos,
    smoothed_rtt: Nanos,
    deviation: Nanos,
    timeout: Nanos,
    timeout_at: Nanos,
    reorder_at: Nanos,
    progress_at: Nanos,
    owes_ack: bool,
    incoming: VecDeque<Vec<u8>>,
    /// What the next segment is to remember; of delivered bytes those that end what too little to send
    /// has limited.
    before: Before,
    limited_until: u64,
    pacing: Pacing,
    /// When something waits for pacing to let it go.
    wakes_at: Nanos,
    /// The first segment was sent more than once.
    called_again: bool,
}

impl Sender {
    pub(super) fn new(
        flow: u64,
        (local, remote): (SocketAddr, SocketAddr),
        total: Option<u64>,
        (buffer, mtu): (usize, usize),
        (initial, control): (u32, spec::TcpControl),
    ) -> Self {
        let mut sender = Self {
            flow,
            local,
            remote,
            total,
            buffer: buffer as u64,
            state: State::Connecting,
            initial,
            expected: TcpSeqNumber(0),
            interface_mss: 0,
            peer_mss: 536,
            peer_window: 0,
            peer_shift: 0,
            segments: VecDeque::new(),
            first: 0,
            next: 0,
            in_flight: 0,
            arrived: 0,
            lost: 0,
            control: Control::new(control),
            filled: false,
            blocked: false,
            recovery: None,
            before_timeout: None,
            newest: (0, 0),
            newest_took: 0,
            reordered: false,
            lowest_rtt: NEVER,
            smoothed_rtt: 0,
            deviation: 0,
            timeout: FIRST_TIMEOUT,
            timeout_at: 0,
            reorder_at: NEVER,
            progress_at: 0,
            owes_ack: false,
            incoming: VecDeque::new(),
            before: Before::default(),
            limited_until: 0,
            pacing: Pacing::default(),
            wakes_at: NEVER,
            called_again: false,
        };
        sender.set_mtu(mtu);
        sender
    }

    pub(super) fn set_mtu(&mut self, mtu: usize) {
        self.interface_mss = mtu - ip_header_len(self.local.ip()) - TCP_HEADER;
    }

    /// Nothing more is written than what is.
    pub(super) fn stop(&mut self) {
        self.total.get_or_insert(self.next);
    }

    /// Bytes written, once all were and the stream was closed.
    pub(super) fn written(&self) -> Option<u64> {
        self.total.filter(|total| self.state == State::Open && self.next >= *total)
    }

    /// The connection was lost before all was acknowledged.
    pub(super) fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Its state, in words.
    pub(super) fn describe(&self) -> String {
        let window = self.control.bytes(self.mss());
        format!(
            "{:?} sends: {} of {:?} bytes acknowledged, {} in flight of {window}, {} segments lost",
            self.state, self.first, self.total, self.in_flight, self.lost
        )
    }

    /// A packet came that is for it; it is looked at in the next [`poll`](Self::poll).
    pub(super) fn receive(&mut self, packet: &[u8]) {
        self.incoming.push_back(packet.to_vec());
    }

    /// When something is due.
    pub(super) fn poll_at(&self) -> Nanos {
        match (self.state, self.incoming.is_empty()) {
            (State::Broken, _) => NEVER,
            (_, false) => 0,
            _ if self.state == State::Open && self.segments.is_empty() => {
                let asks = if self.blocked { self.timeout_at } else { NEVER };
                asks.min(self.wakes_at)
            }
            _ => self.timeout_at.min(self.reorder_at).min(self.wakes_at),
        }
    }

    /// Takes in what came, does what is due, and sends.
    pub(super) fn poll(&mut self, now: Nanos, out: &mut Vec<Vec<u8>>) {
        while let Some(packet) = self.incoming.pop_front() {
            self.on_packet(now, &packet);
        }
        if self.state == State::Connecting {
            if now >= self.timeout_at {
                self.called_again = self.timeout_at > 0;
                self.progress_at = if self.timeout_at == 0 { now } else { self.progress_at };
                self.emit(TcpControl::Syn, 0, 0, out);
                self.timeout_at = now + self.timeout;
                self.timeout = (self.timeout * 2).min(LONGEST_TIMEOUT);
            }
        } else if now >= self.timeout_at && !self.segments.is_empty() {
            self.on_timeout(now);
        } else if now >= self.timeout_at && self.blocked {
            self.emit(TcpControl::None, self.next.saturating_sub(1), 0, out);
            self.timeout_at = now + self.timeout;
        } else if now >= self.reorder_at {
            self.detect(now);
        }
        if self.state == State::Open {
            self.send(now, out);
        }
        if core::mem::take(&mut self.owes_ack) && self.state == State::Open {
            self.emit(TcpControl::None, self.next, 0, out);
        }
        let waits = self.state == State::Connecting || !self.segments.is_empty();
        if waits && now.saturating_sub(self.progress_at) > GIVE_UP {
            self.state = State::Broken;
        }
    }

    fn on_packet(&mut self, now: Nanos, packet: &[u8]) {
        let Ok(segment) = TcpPacket::new_checked(transport(packet)) else { return };
        let (from, to) = (IpAddress::from(self.remote.ip()), IpAddress::from(self.local.ip()));
        let caps = ChecksumCapabilities::default();
        let Ok(repr) = TcpRepr::parse(&segment, &from, &to, &caps) else { return };
        if repr.control == TcpControl::Rst {
            let done = self.state == State::Open && self.segments.is_empty();
            self.state = if done && self.written().is_some() { self.state } else { State::Broken };
            return;
        }
        let Some(ack) = repr.ack_number else { return };
        let ack_of_syn = TcpSeqNumber(self.initial.wrapping_add(1) as i32);
        if repr.control == TcpControl::Syn {
            if self.state == State::Connecting && ack == ack_of_syn {
                self.state = State::Open;
                self.expected = repr.seq_number + 1;
                self.peer_mss = usize::from(repr.max_seg_size.unwrap_or(536));
                self.peer_shift = repr.window_scale.unwrap_or(0);
                self.peer_window = u64::from(repr.window_len);
                self.timeout = FIRST_TIMEOUT;
                let mss = self.mss();
                if let Control::Bbr(bbr) = &mut self.control {
                    let rtt = (!self.called_again).then(|| now - self.progress_at);
                    bbr.on_open(now, rtt, mss);
                }
                self.progress_at = now;
                self.before.delivered_at = now;
                self.before.left_at = now;
            }
            self.owes_ack = true;
            return;
        }
        if self.state != State::Open {
            return;
        }
        if repr.segment_len() > 0 {
            self.owes_ack = true;
            if repr.seq_number == self.expected {
                self.expected += repr.segment_len();
            }
        }
        // As Linux: acknowledgements may overtake each other.
        let window = u64::from(repr.window_len) << self.peer_shift;
        let ack = self.place(ack.0 as u32);
        if ack > self.first || ack == self.first && (window > self.peer_window || window == 0) {
            self.peer_window = window;
        }
        self.on_ack(now, ack, repr.sack_ranges);
    }

    /// The place in the stream of a sequence number near the first byte in flight.
    fn place(&self, number: u32) -> u64 {
        let first = self.initial.wrapping_add(1).wrapping_add(self.first as u32);
        self.first.saturating_add_signed(i64::from(number.wrapping_sub(first) as i32))
    }

    fn on_ack(&mut self, now: Nanos, ack: u64, ranges: [Option<(u32, u32)>; 3]) {
        if ack > self.segments.back().map_or(self.first, Segment::end) {
            return;
        }
        let was_in_flight = self.in_flight;
        let lost_before = self.lost;
        let mut news = News::default();
        let highest = self.segments.iter().rev().find(|segment| segment.fate == Fate::Arrived);
        let highest = highest.map_or(0, Segment::end);
        while let Some(segment) = self.segments.front_mut() {
            if segment.end() > ack {
                break;
            }
            let segment = *segment;
            self.segments.pop_front();
            self.arrive(now, segment, highest, &mut news);
            if segment.fate == Fate::Arrived {
                self.arrived -= 1;
            }
            self.first = segment.end();
            self.progress_at = now;
        }
        for (left, right) in ranges.into_iter().flatten() {
            let (left, right) = (self.place(left), self.place(right));
            let from = self.segments.partition_point(|segment| segment.start < left);
            for index in from..self.segments.len() {
                let segment = self.segments[index];
                if segment.end() > right {
                    break;
                }
                if segment.fate != Fate::Arrived {
                    self.arrive(now, segment, highest, &mut news);
                    self.segments[index].fate = Fate::Arrived;
                    self.arrived += 1;
                }
            }
        }
        if let Some(took) = news.took {
            self.on_rtt(took);
            if let Control::Window(window) = &mut self.control {
                window.on_sample(now, took, (self.first, self.next));
            }
            self.undo_timeout();
        }
        let News { delivered: delivered @ 1.., newest: Some(newest), .. } = news else { return };
        self.before_timeout = None;
        self.timeout_at = now + self.timeout;
        self.recovery.take_if(|recovery| self.first >= recovery.until);
        self.detect(now);
        let mss = self.mss();
        let segments = |bytes: u64| bytes as f64 / mss as f64;
        let acked = segments(delivered);
        let limited = self.filled || was_in_flight * 2 > self.control.bytes(mss);
        let grows = limited && self.recovery.is_none_or(|recovery| recovery.timed_out);
        let interval = self.on_delivered(now, delivered, &newest);
        match &mut self.control {
            Control::Window(window) if grows => window.on_ack(now, acked, self.smoothed_rtt),
            Control::Window(_) => {}
            Control::Bbr(bbr) => bbr.on_ack(&Sample {
                now,
                mss,
                acked,
                lost: f64::from((self.lost + news.found).saturating_sub(lost_before)),
                delivered: segments(self.before.delivered),
                prior_delivered: segments(newest.before.delivered),
                interval,
                app_limited: newest.before.app_limited,
                rtt: news.took,
                prior_in_flight: segments(was_in_flight),
                in_flight: segments(self.in_flight),
                paced: self.pacing.until.saturating_sub(now),
                recovers: self.recovery.is_some(),
            }),
        }
        if matches!(&self.control, Control::Bbr(bbr) if bbr.probes_rtt()) {
            self.limit();
        }
    }

    /// `bytes` were delivered, `newest` of what left last. Returns the time in which what was delivered
    /// since that left arrived, or was sent if that took longer; 0 if it is too short to be.
    fn on_delivered(&mut self, now: Nanos, bytes: u64, newest: &Segment) -> Nanos {
        self.before.delivered += bytes;
        self.before.delivered_at = now;
        self.before.left_at = newest.sent_at;
        if self.before.delivered > self.limited_until {
            self.limited_until = 0;
        }
        let sent = newest.sent_at.saturating_sub(newest.before.left_at);
        let interval = sent.max(now.saturating_sub(newest.before.delivered_at));
        if interval < self.lowest_rtt { 0 } else { interval }
    }

    /// What leaves until all in flight has arrived shows the sender's rate, not the path's.
    fn limit(&mut self) {
        self.limited_until = (self.before.delivered + self.in_flight).max(1);
    }

    /// Takes note that `segment` arrived. `highest`: the end of what had arrived before.
    fn arrive(&mut self, now: Nanos, segment: Segment, highest: u64, news: &mut News) {
        match segment.fate {
            Fate::Arrived => return,
            Fate::InFlight => self.in_flight -= segment.len as u64,
            Fate::Lost => {
                self.lost -= 1;
                news.found += 1;
            }
        }
        let took = now.saturating_sub(segment.sent_at);
        if !segment.again {
            news.took = Some(took);
            self.reordered |= segment.end() < highest;
        }
        let left = |segment: &Segment| (segment.sent_at, segment.start);
        // What arrives sooner than anything can is the answer to an earlier copy.
        if left(&segment) > self.newest && (!segment.again || took >= self.lowest_rtt) {
            self.newest = left(&segment);
            self.newest_took = took;
        }
        news.delivered += segment.len as u64;
        if news.newest.is_none_or(|newest| left(&segment) > left(&newest)) {
            news.newest = Some(segment);
        }
    }

    /// RFC 6298.
    fn on_rtt(&mut self, took: Nanos) {
        self.lowest_rtt = self.lowest_rtt.min(took);
        if self.smoothed_rtt == 0 {
            self.smoothed_rtt = took.max(1);
            self.deviation = took / 2;
        } else {
            self.deviation += self.smoothed_rtt.abs_diff(took) / 4;
            self.deviation -= self.deviation / 5;
            self.smoothed_rtt = (self.smoothed_rtt * 7 + took) / 8;
        }
        let timeout = self.smoothed_rtt + (4 * self.deviation).max(LEAST_MARGIN);
        self.timeout = timeout.min(LONGEST_TIMEOUT);
    }

    /// Finds what is lost by what arrived that had left later.
    fn detect(&mut self, now: Nanos) {
        self.reorder_at = NEVER;
        if self.arrived == 0 && self.recovery.is_none() {
            return;
        }
        let patient = self.reordered || (self.recovery.is_none() && self.arrived < DUPLICATES);
        let window = if patient { self.lowest_rtt.min(SECOND) / 4 } else { 0 };
        let mut found = false;
        for segment in &mut self.segments {
            let left = (segment.sent_at, segment.start);
            if segment.fate != Fate::InFlight || left >= self.newest {
                continue;
            }
            let due = segment.sent_at + self.newest_took + window;
            if now >= due {
                segment.fate = Fate::Lost;
                self.in_flight -= segment.len as u64;
                self.lost += 1;
                found = true;
            } else {
                self.reorder_at = self.reorder_at.min(due);
            }
        }
        if found && self.recovery.is_none() {
            self.recovery = Some(Recovery { until: self.next, timed_out: false });
            self.control.on_loss();
        }
    }

    /// What was sent once only arrived after a time-out, so that it was late, not lost (RFC 5682).
    fn undo_timeout(&mut self) {
        let Some(before) = self.before_timeout.take() else { return };
        match (&mut self.control, before) {
            (Control::Bbr(bbr), _) => bbr.on_undo(),
            (control, before) => *control = before,
        }
        self.recovery = None;
        for segment in self.segments.iter_mut().filter(|segment| segment.fate == Fate::Lost) {
            segment.fate = Fate::InFlight;
            self.in_flight += segment.len as u64;
        }
        self.lost = 0;
    }

    fn on_timeout(&mut self, now: Nanos) {
        if self.recovery.is_none() {
            self.before_timeout = Some(self.control.clone());
        }
        for segment in &mut self.segments {
            if segment.fate == Fate::InFlight {
                segment.fate = Fate::Lost;
                self.lost += 1;
            }
        }
        self.in_flight = 0;
        self.reorder_at = NEVER;
        self.recovery = Some(Recovery { until: self.next, timed_out: true });
        self.control.on_timeout();
        self.timeout = (self.timeout * 2).min(LONGEST_TIMEOUT);
        self.timeout_at = now + self.timeout;
    }

    fn mss(&self) -> usize {
        self.interface_mss.min(self.peer_mss)
    }

    /// What a segment that leaves now is to remember.
    fn before(&mut self, now: Nanos) -> Before {
        if self.segments.is_empty() {
            self.before.delivered_at = now;
            self.before.left_at = now;
        }
        Before { app_limited: self.limited_until > 0, ..self.before }
    }

    fn send(&mut self, now: Nanos, out: &mut Vec<Vec<u8>>) {
        let (mss, window) = (self.mss(), self.control.bytes(self.mss()));
        self.filled = false;
        self.wakes_at = NEVER;
        if self.segments.is_empty() {
            if !self.blocked {
                self.timeout_at = now + self.timeout;
            }
            self.progress_at = now;
        }
        self.blocked = false;
        let mut index = 0;
        while self.lost > 0 && index < self.segments.len() {
            if self.segments[index].fate != Fate::Lost {
                index += 1;
                continue;
            }
            if self.in_flight > 0 && self.in_flight + mss as u64 > window {
                self.filled = true;
                return;
            }
            if self.pacing.waits(now) {
                self.wakes_at = self.pacing.until;
                return;
            }
            self.split(index, mss);
            let before = self.before(now);
            let segment = &mut self.segments[index];
            (segment.sent_at, segment.again, segment.fate) = (now, true, Fate::InFlight);
            segment.before = before;
            let segment = *segment;
            self.pacing.on_sent(now, segment.len, &self.control);
            self.lost -= 1;
            self.in_flight += segment.len as u64;
            self.emit_segment(&segment, out);
        }
        let bound = self.first + self.peer_window.min(self.buffer);
        loop {
            let left = self.total.map_or(u64::MAX, |total| total.saturating_sub(self.next));
            let len = left.min(mss as u64);
            let end_of_stream = left == 0 && self.total == Some(self.next);
            if len == 0 && !end_of_stream {
                self.limit();
                return;
            }
            if self.next + len > bound {
                self.blocked = self.segments.is_empty();
                return;
            }
            if self.in_flight > 0 && self.in_flight + len > window {
                self.filled = true;
                return;
            }
            if self.pacing.waits(now) {
                self.wakes_at = self.pacing.until;
                return;
            }
            if let Control::Bbr(bbr) = &mut self.control
                && self.in_flight == 0
                && self.limited_until > 0
            {
                bbr.on_restart(now);
            }
            let segment = Segment {
                start: self.next,
                len: len as usize,
                end_of_stream,
                sent_at: now,
                again: false,
                fate: Fate::InFlight,
                before: self.before(now),
            };
            self.pacing.on_sent(now, segment.len, &self.control);
            self.segments.push_back(segment);
            self.next = segment.end();
            self.in_flight += len;
            self.emit_segment(&segment, out);
        }
    }

    /// Makes two of a segment that is longer than what the path carries now.
    fn split(&mut self, index: usize, mss: usize) {
        let segment = &mut self.segments[index];
        if segment.len <= mss {
            return;
        }
        let mut rest = *segment;
        rest.start += mss as u64;
        rest.len -= mss;
        segment.len = mss;
        segment.end_of_stream = false;
        self.lost += 1;
        self.segments.insert(index + 1, rest);
    }

    fn emit_segment(&self, segment: &Segment, out: &mut Vec<Vec<u8>>) {
        let control = if segment.end_of_stream { TcpControl::Fin } else { TcpControl::Psh };
        self.emit(control, segment.start, segment.len, out);
    }

    fn emit(&self, control: TcpControl, start: u64, len: usize, out: &mut Vec<Vec<u8>>) {
        let syn = control == TcpControl::Syn;
        let payload: Vec<u8> =
            (start..start + len as u64).map(|offset| pattern(self.flow, offset)).collect();
        let after_syn = u32::from(!syn);
        let number = self.initial.wrapping_add(after_syn).wrapping_add(start as u32);
        let repr = TcpRepr {
            src_port: self.local.port(),
            dst_port: self.remote.port(),
            control,
            seq_number: TcpSeqNumber(number as i32),
            ack_number: (!syn).then_some(self.expected),
            window_len: u16::MAX,
            window_scale: syn.then_some(0),
            max_seg_size: syn.then_some(self.interface_mss as u16),
            sack_permitted: syn,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: &payload,
        };
        let (from, to) = (IpAddress::from(self.local.ip()), IpAddress::from(self.remote.ip()));
        let caps = ChecksumCapabilities::default();
        let ip = IpRepr::new(from, to, IpProtocol::Tcp, repr.buffer_len(), 64);
        let mut packet = vec![0; ip.buffer_len()];
        ip.emit(&mut packet[..], &caps);
        let header = ip.header_len();
        repr.emit(&mut TcpPacket::new_unchecked(&mut packet[header..]), &from, &to, &caps);
        out.push(packet);
    }
}

#[cfg(test)]
mod tests;
