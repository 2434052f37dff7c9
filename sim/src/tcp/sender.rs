//! The sending end of a transfer, with selective acknowledgements (RFC 2018), loss detection by
//! time (RFC 8985), and a window counted in bytes. A receiver's window never closes here, so there
//! is no probe for one.
//!
//! This file has the connection, acknowledgements and loss detection, `transmission` what is sent.
//! `rtt` has the round-trip time and the timeout, `delivery` the delivery rate, `peer` the state of
//! the receiving end, `recovery` what bounds sending after a loss, `undo` whether there was one,
//! `reordering` how long late segments are waited for, `probe` tail loss probes, and `segment` the
//! segments in flight.

mod delivery;
mod peer;
mod probe;
mod recovery;
mod reordering;
mod rtt;
mod segment;
mod transmission;
mod undo;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use smoltcp::wire::{TcpControl, TcpSeqNumber};

use delivery::DeliveryRate;
use peer::Peer;
use probe::{Answer, Probes};
use recovery::{Recovery, Reduction, Timeout};
use reordering::Reordering;
use rtt::Rtt;
use segment::{Fate, News, Segment};
use undo::Undo;

use super::bbr::Sample;
use super::control::{Control, Pacing, TcpState};
use super::packet;
use super::timestamps::Timestamps;
use crate::clock::{NEVER, Nanos, SECOND};
use crate::spec;

/// Time without progress after which a connection is aborted; longer than any outage of a world.
const GIVE_UP: Nanos = 300 * SECOND;
/// Number of sacked segments above a missing one that makes it lost (RFC 6675).
const DUPLICATES: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Open,
    /// Was reset or given up.
    Broken,
}

/// One sender.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) flow: u64,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    total: Option<u64>,
    /// Most bytes in flight, whatever the receiver permits.
    buffer: u64,
    state: State,
    initial: u32,
    interface_mss: usize,
    peer: Peer,
    timestamps: Timestamps,
    /// The segments that are not acknowledged, without gaps.
    segments: VecDeque<Segment>,
    /// First byte that is not acknowledged.
    first: u64,
    /// First byte that was never sent.
    next: u64,
    /// Bytes in flight.
    in_flight: u64,
    /// Number of segments that are sacked.
    sacked: u32,
    /// Number of segments that are lost.
    lost: u32,
    /// Segments declared lost since the start.
    declared: u64,
    control: Control,
    /// Whether the window limited the last transmission, not the peer or the application.
    window_limited: bool,
    recovery: Option<Recovery>,
    probes: Probes,
    /// What the last recovery did, until it turns out to have been needless.
    undo: Option<Undo>,
    /// An original arrived although its retransmission is on the way: nothing is retransmitted now.
    doubts: bool,
    /// Departure of the segment sent last of those delivered (RFC 8985, `RACK.xmit_ts`).
    newest: (Nanos, u64),
    /// Its round-trip time (RFC 8985, `RACK.rtt`).
    newest_rtt: Nanos,
    reordering: Reordering,
    rtt: Rtt,
    /// Time at which the retransmission timer expires.
    timeout_at: Nanos,
    /// Time at which the reordering timer expires.
    reorder_at: Nanos,
    /// Time of the last progress.
    progress_at: Nanos,
    owes_ack: bool,
    incoming: VecDeque<Vec<u8>>,
    delivery: DeliveryRate,
    pacing: Pacing,
    /// Time until which a segment waits because of pacing; [`NEVER`] if none does.
    paced_until: Nanos,
    /// Whether the SYN was retransmitted.
    syn_retransmitted: bool,
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
            interface_mss: 0,
            peer: Peer::new(),
            timestamps: Timestamps::default(),
            segments: VecDeque::new(),
            first: 0,
            next: 0,
            in_flight: 0,
            sacked: 0,
            lost: 0,
            declared: 0,
            control: Control::new(control),
            window_limited: false,
            recovery: None,
            probes: Probes::new(),
            undo: None,
            doubts: false,
            newest: (0, 0),
            newest_rtt: 0,
            reordering: Reordering::new(),
            rtt: Rtt::new(),
            timeout_at: 0,
            reorder_at: NEVER,
            progress_at: 0,
            owes_ack: false,
            incoming: VecDeque::new(),
            delivery: DeliveryRate::default(),
            pacing: Pacing::default(),
            paced_until: NEVER,
            syn_retransmitted: false,
        };
        sender.set_mtu(mtu);
        sender
    }

    pub(super) fn set_mtu(&mut self, mtu: usize) {
        self.interface_mss = packet::mss(mtu, self.local.ip());
    }

    /// Ends the stream after the bytes sent so far.
    pub(super) fn stop(&mut self) {
        self.total.get_or_insert(self.next);
    }

    /// Number of bytes of the stream, once all were sent.
    pub(super) fn written(&self) -> Option<u64> {
        self.total.filter(|total| self.state == State::Open && self.next >= *total)
    }

    /// Whether the connection broke before everything was acknowledged.
    pub(super) fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    pub(super) fn state(&self) -> TcpState {
        TcpState {
            window: self.control.bytes(self.mss()),
            round_trip: Duration::from_nanos(self.rtt.smoothed),
            lost: self.declared,
        }
    }

    /// Its state, for people.
    pub(super) fn describe(&self) -> String {
        let window = self.control.bytes(self.mss());
        format!(
            "{:?} sends: {} of {:?} bytes acknowledged, {} in flight of {window}, {} segments lost",
            self.state, self.first, self.total, self.in_flight, self.lost
        )
    }

    /// Takes a packet, which the next [`poll`](Self::poll) processes.
    pub(super) fn receive(&mut self, packet: &[u8]) {
        self.incoming.push_back(packet.to_vec());
    }

    /// Time at which to call [`poll`](Self::poll) next.
    pub(super) fn poll_at(&self) -> Nanos {
        match (self.state, self.incoming.is_empty()) {
            (State::Broken, _) => NEVER,
            (_, false) => 0,
            _ if self.state == State::Open && self.segments.is_empty() => self.paced_until,
            _ => {
                let timers = [self.timeout_at, self.reorder_at, self.probes.at];
                timers.into_iter().fold(self.paced_until, Nanos::min)
            }
        }
    }

    /// Processes packets and timers, and sends.
    pub(super) fn poll(&mut self, now: Nanos, out: &mut Vec<Vec<u8>>) {
        while let Some(packet) = self.incoming.pop_front() {
            self.on_packet(now, &packet);
        }
        if self.state == State::Connecting {
            if now >= self.timeout_at {
                self.syn_retransmitted = self.timeout_at > 0;
                self.progress_at = if self.timeout_at == 0 { now } else { self.progress_at };
                self.emit(now, TcpControl::Syn, (0, 0), out);
                self.timeout_at = now + self.rtt.timeout;
                self.rtt.back_off();
            }
        } else if now >= self.probes.at {
            self.probe(now, out);
        } else if now >= self.timeout_at && !self.segments.is_empty() {
            self.on_timeout(now);
        } else if now >= self.reorder_at {
            self.detect_losses(now);
        }
        if self.state == State::Open {
            self.send(now, out);
        }
        if core::mem::take(&mut self.owes_ack) && self.state == State::Open {
            self.emit(now, TcpControl::None, (self.next, 0), out);
        }
        let waits = self.state == State::Connecting || !self.segments.is_empty();
        if waits && now.saturating_sub(self.progress_at) > GIVE_UP {
            self.state = State::Broken;
        }
    }

    fn on_packet(&mut self, now: Nanos, packet: &[u8]) {
        let Some(repr) = packet::parse(packet, self.remote, self.local) else { return };
        if repr.control == TcpControl::Rst {
            let done = self.state == State::Open && self.segments.is_empty();
            self.state = if done && self.written().is_some() { self.state } else { State::Broken };
            return;
        }
        self.timestamps.on_segment(now, &repr, true);
        let Some(ack) = repr.ack_number else { return };
        let ack_of_syn = TcpSeqNumber(self.initial.wrapping_add(1) as i32);
        if repr.control == TcpControl::Syn {
            if self.state == State::Connecting && ack == ack_of_syn {
                self.state = State::Open;
                self.peer.on_syn(&repr);
                self.rtt.reset_timeout();
                let mss = self.mss();
                let rtt = (!self.syn_retransmitted).then(|| now - self.progress_at);
                if let Some(rtt) = rtt {
                    self.rtt.on_sample(rtt);
                }
                if let Control::Bbr(bbr) = &mut self.control {
                    bbr.on_open(now, rtt, mss);
                }
                self.progress_at = now;
                self.delivery.restart(now);
            }
            self.owes_ack = true;
            return;
        }
        if self.state != State::Open {
            return;
        }
        self.owes_ack |= self.peer.on_segment(&repr);
        let ack = self.offset(ack.0 as u32);
        if ack >= self.first {
            self.peer.on_window(&repr, ack > self.first);
        }
        self.on_ack(now, ack, repr.sack_ranges);
    }

    /// The offset in the stream of a sequence number near the first byte in flight.
    fn offset(&self, number: u32) -> u64 {
        packet::offset(self.initial, number, self.first)
    }

    fn on_ack(&mut self, now: Nanos, ack: u64, ranges: [Option<(u32, u32)>; 3]) {
        if ack > self.segments.back().map_or(self.first, Segment::end) {
            return;
        }
        let (was_in_flight, first) = (self.in_flight, self.first);
        let lost_before = self.lost;
        let mut news = News::default();
        let highest = self.segments.iter().rev().find(|segment| segment.fate == Fate::Sacked);
        let highest = highest.map_or(0, Segment::end);
        while let Some(segment) = self.segments.front_mut() {
            if segment.end() > ack {
                break;
            }
            let segment = *segment;
            self.segments.pop_front();
            self.deliver(now, segment, highest, &mut news);
            if segment.fate == Fate::Sacked {
                self.sacked -= 1;
            }
            self.first = segment.end();
            self.progress_at = now;
        }
        for (left, right) in ranges.into_iter().flatten() {
            let (left, right) = (self.offset(left), self.offset(right));
            let from = self.segments.partition_point(|segment| segment.start < left);
            for index in from..self.segments.len() {
                let segment = self.segments[index];
                if segment.end() > right {
                    break;
                }
                if segment.fate != Fate::Sacked {
                    self.deliver(now, segment, highest, &mut news);
                    self.segments[index].fate = Fate::Sacked;
                    self.sacked += 1;
                }
            }
        }
        if let Some(rtt) = news.rtt {
            self.rtt.on_sample(rtt);
            if let Control::Window(window) = &mut self.control {
                window.on_sample(now, rtt, (self.first, self.next));
            }
        }
        let duplicate = self.duplicate(ack, ranges);
        let answer = Answer { ack, duplicate, news: news.newest.is_some() };
        if let Some(end) = duplicate {
            self.on_duplicate(end);
        }
        if self.probes.on_ack(answer)
            && let Control::Window(window) = &mut self.control
        {
            window.reduce();
        }
        self.doubts = self.judge_recovery(self.first > first, &news);
        let News { delivered, newest: Some(newest), .. } = news else { return };
        self.timeout_at = now + self.rtt.timeout;
        self.reordering.on_delivered(newest.delivery.delivered, self.delivery.delivered());
        let declared = self.declared;
        if !self.doubts {
            self.detect_losses(now);
        }
        self.arm_probe(now);
        let mss = self.mss();
        let well = self.first > first && self.declared == declared;
        let window = self.control.bytes(mss);
        let in_flight = self.in_flight;
        if let Some(reduction) = self.reduction() {
            reduction.on_delivered(delivered, in_flight, window, well, mss as u64);
        }
        let segments = |bytes: u64| bytes as f64 / mss as f64;
        let acked = segments(delivered);
        let limited = self.window_limited || was_in_flight * 2 > window;
        let grows = limited && self.reduction().is_none();
        let sent = (newest.sent_at, &newest.delivery);
        let interval = self.delivery.on_delivered(now, delivered, sent, self.rtt.min);
        match &mut self.control {
            Control::Window(window) if grows => window.on_ack(now, acked, self.rtt.smoothed),
            Control::Window(_) => {}
            Control::Bbr(bbr) => bbr.on_ack(&Sample {
                now,
                mss,
                acked,
                lost: f64::from((self.lost + news.spurious).saturating_sub(lost_before)),
                delivered: segments(self.delivery.delivered()),
                prior_delivered: segments(newest.delivery.delivered),
                interval,
                app_limited: newest.delivery.app_limited,
                rtt: news.rtt,
                prior_in_flight: segments(was_in_flight),
                in_flight: segments(self.in_flight),
                paced_for: self.pacing.until.saturating_sub(now),
                in_recovery: self.recovery.is_some(),
            }),
        }
        if matches!(&self.control, Control::Bbr(bbr) if bbr.probes_rtt()) {
            self.delivery.limit(self.in_flight);
        }
    }

    /// `segment` was delivered. `highest` is the end of the highest segment delivered before.
    fn deliver(&mut self, now: Nanos, segment: Segment, highest: u64, news: &mut News) {
        match segment.fate {
            Fate::Sacked => return,
            Fate::InFlight => self.in_flight -= segment.len as u64,
            Fate::Lost => {
                self.lost -= 1;
                news.spurious += 1;
            }
        }
        let rtt = now.saturating_sub(segment.sent_at);
        if !segment.retransmitted {
            news.rtt = Some(rtt);
            if segment.end() < highest {
                self.reordering.on_seen();
            }
        }
        // A round trip below the minimum acknowledges an earlier transmission.
        let plausible = !segment.retransmitted || rtt >= self.rtt.min;
        if segment.departure() > self.newest && plausible {
            self.newest = segment.departure();
            self.newest_rtt = rtt;
        }
        news.delivered += segment.len as u64;
        if news.newest.is_none_or(|newest| segment.departure() > newest.departure()) {
            news.newest = Some(segment);
        }
    }

    /// Detects lost segments: others that were sent later have been delivered (RFC 8985).
    fn detect_losses(&mut self, now: Nanos) {
        self.reorder_at = NEVER;
        if self.sacked == 0 && self.recovery.is_none() {
            return;
        }
        let evident = self.recovery.is_some() || self.sacked >= DUPLICATES;
        let reordering_window = self.reordering.window(evident, &self.rtt);
        let mut found = false;
        for segment in &mut self.segments {
            if segment.fate != Fate::InFlight || segment.departure() >= self.newest {
                continue;
            }
            let due = segment.sent_at + self.newest_rtt + reordering_window;
            if now >= due {
                segment.fate = Fate::Lost;
                self.in_flight -= segment.len as u64;
                self.lost += 1;
                self.declared += 1;
                found = true;
            } else {
                self.reorder_at = self.reorder_at.min(due);
            }
        }
        if found && self.recovery.is_none() {
            self.undo = Some(self.undo_from_here());
            let mss = self.mss();
            let before = self.control.bytes(mss);
            let reduces = matches!(self.control, Control::Window(_));
            let reduction = reduces.then(|| Reduction::new(before, mss as u64));
            self.recovery = Some(Recovery { until: self.next, reduction, timeout: None });
            self.probes.forget();
            self.control.on_loss();
        }
    }

    fn undo_from_here(&self) -> Undo {
        let repeated = self.segments.iter().filter(|segment| segment.is_repeated()).count();
        Undo::new(self.first, repeated as u32)
    }

    /// End of a segment that an acknowledgement of `ack` bytes reports as a duplicate: its first
    /// range is below that number, or within the second range (RFC 2883).
    fn duplicate(&self, ack: u64, ranges: [Option<(u32, u32)>; 3]) -> Option<u64> {
        let [first, second, _] =
            ranges.map(|range| range.map(|(left, right)| (self.offset(left), self.offset(right))));
        let (left, right) = first?;
        let within = second.is_some_and(|(start, end)| start <= left && right <= end);
        (left < ack || within).then_some(right)
    }

    /// A segment that ends at `end` was reported as a duplicate.
    fn on_duplicate(&mut self, end: u64) {
        if !self.probes.is_answer(end) {
            self.reordering.on_duplicate();
        }
        if let Some(undo) = &mut self.undo {
            undo.on_duplicate(end);
        }
    }

    /// Ends recovery if all that was sent before it is acknowledged, or if its retransmissions turn
    /// out to have been needless, and undoes it then. `advanced`: more is acknowledged in order.
    /// Returns whether nothing is to be retransmitted for now (`tcp_fastretrans_alert`,
    /// `tcp_process_loss`).
    fn judge_recovery(&mut self, advanced: bool, news: &News) -> bool {
        let delayed = self.undo.is_some_and(|undo| undo.was_delayed(&self.timestamps));
        let in_vain = self.undo.is_some_and(|undo| undo.repeated_in_vain());
        let over = self.recovery.is_none_or(|recovery| self.first >= recovery.until);
        match self.recovery.as_mut().map(|recovery| &mut recovery.timeout) {
            Some(Some(timeout)) => {
                // What was sent once and arrives right after a timeout was not lost (RFC 5682).
                let original = *timeout == Timeout::Silence && news.rtt.is_some();
                if news.newest.is_some() {
                    *timeout = Timeout::Delivery;
                }
                if original || (advanced && (delayed || in_vain)) {
                    self.undo_recovery(true);
                }
            }
            Some(None) if over && (delayed || in_vain) => self.undo_recovery(false),
            Some(None) if over => self.reordering.on_recovered(),
            Some(None) if advanced && delayed => {
                self.reordering.on_seen();
                if self.segments.iter().any(Segment::is_repeated) {
                    return true;
                }
                self.undo_recovery(true);
            }
            _ if in_vain => {
                self.reordering.on_repeated_in_vain();
                self.undo_recovery(false);
            }
            _ => {}
        }
        if over {
            self.recovery = None;
        }
        false
    }

    /// The retransmissions were needless. `all`: what is still taken for lost is not, either.
    fn undo_recovery(&mut self, all: bool) {
        if self.undo.take().is_none() {
            return;
        }
        self.control.on_undo();
        self.recovery = None;
        if all {
            for segment in self.segments.iter_mut().filter(|segment| segment.fate == Fate::Lost) {
                segment.fate = Fate::InFlight;
                self.in_flight += segment.len as u64;
            }
            self.lost = 0;
        }
    }

    fn on_timeout(&mut self, now: Nanos) {
        let first = self.recovery.is_none();
        if first {
            self.undo = Some(self.undo_from_here());
        }
        for segment in &mut self.segments {
            if segment.fate == Fate::InFlight {
                segment.fate = Fate::Lost;
                self.lost += 1;
                self.declared += 1;
            }
        }
        self.in_flight = 0;
        self.reorder_at = NEVER;
        let timeout = Some(Timeout::Silence);
        self.recovery = Some(Recovery { until: self.next, reduction: None, timeout });
        self.probes.forget();
        self.control.on_timeout(first);
        self.rtt.back_off();
        self.timeout_at = now + self.rtt.timeout;
    }

    /// Sets the time of the next tail loss probe. There is none while losses are known or
    /// suspected.
    fn arm_probe(&mut self, now: Nanos) {
        if self.segments.is_empty() || self.sacked > 0 || self.recovery.is_some() {
            self.probes.disarm();
        } else {
            self.probes.arm(now, self.segments.len(), self.rtt.smoothed, self.timeout_at);
        }
    }

    fn mss(&self) -> usize {
        self.interface_mss.min(self.peer.mss) - packet::TIMESTAMPS
    }

    /// What bounds sending while a window is being reduced.
    fn reduction(&mut self) -> Option<&mut Reduction> {
        self.recovery.as_mut()?.reduction.as_mut()
    }
}

#[cfg(test)]
mod tests;
