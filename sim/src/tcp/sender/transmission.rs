//! What is sent: first what is lost, then new data, and tail loss probes.

use smoltcp::wire::{TcpControl, TcpRepr, TcpSeqNumber};

use super::super::{packet, timestamps};
use super::segment::{Fate, Segment};
use super::{Control, Sender};
use crate::clock::{MILLI, NEVER, Nanos};
use crate::packet::fill;

impl Sender {
    /// Sends as much as the windows and pacing permit.
    pub(super) fn send(&mut self, now: Nanos, out: &mut Vec<Vec<u8>>) {
        let before = self.in_flight;
        let window = match self.reduction() {
            Some(reduction) => reduction.window(before),
            None => self.control.bytes(self.mss()),
        };
        self.window_limited = false;
        self.paced_until = NEVER;
        if self.segments.is_empty() {
            self.timeout_at = now + self.rtt.timeout;
            self.progress_at = now;
        }
        // Losses in doubt are not repaired meanwhile.
        if core::mem::take(&mut self.doubts) || self.retransmit(now, window, out) {
            self.send_new(now, window, out);
        }
        let sent = self.in_flight - before;
        if let Some(reduction) = self.reduction() {
            reduction.on_sent(sent);
        }
    }

    /// Sends a tail loss probe unless one is outstanding: new data, whatever the window is, or
    /// else the last segment again.
    pub(super) fn probe(&mut self, now: Nanos, out: &mut Vec<Vec<u8>>) {
        if self.probes.expire() {
            let new = self.next_segment();
            match new {
                Some(new) => self.send_segment(now, new, out),
                // A probe is due only while something is not acknowledged.
                None => self.repeat(now, self.segments.len() - 1, out),
            }
            self.probes.on_sent(self.next, new.is_none());
        }
        self.timeout_at = self.timeout_at.max(now + MILLI);
    }

    /// Sends the segment at `index` again.
    fn repeat(&mut self, now: Nanos, index: usize, out: &mut Vec<Vec<u8>>) {
        let delivery = self.delivery.snapshot();
        let segment = &mut self.segments[index];
        (segment.sent_at, segment.retransmitted, segment.delivery) = (now, true, delivery);
        let segment = *segment;
        self.pacing.on_sent(now, segment.len, &self.control);
        self.emit_segment(now, &segment, out);
    }

    /// Retransmits lost segments. Returns whether there are none left.
    fn retransmit(&mut self, now: Nanos, window: u64, out: &mut Vec<Vec<u8>>) -> bool {
        let mss = self.mss();
        let mut index = 0;
        while self.lost > 0 && index < self.segments.len() {
            if self.segments[index].fate != Fate::Lost {
                index += 1;
                continue;
            }
            if self.in_flight > 0 && self.in_flight + mss as u64 > window {
                self.window_limited = true;
                return false;
            }
            if self.pacing.waits(now) {
                self.paced_until = self.pacing.until;
                return false;
            }
            self.split(index, mss);
            let segment = &mut self.segments[index];
            segment.fate = Fate::InFlight;
            self.lost -= 1;
            self.in_flight += segment.len as u64;
            self.repeat(now, index, out);
            if let Some(undo) = &mut self.undo {
                undo.on_repeated(timestamps::clock(now));
            }
        }
        true
    }

    /// Sends new data.
    fn send_new(&mut self, now: Nanos, window: u64, out: &mut Vec<Vec<u8>>) {
        let next = self.next;
        while let Some(new) = self.next_segment() {
            if self.in_flight > 0 && self.in_flight + new.len as u64 > window {
                self.window_limited = true;
                break;
            }
            if self.pacing.waits(now) {
                self.paced_until = self.pacing.until;
                break;
            }
            self.send_segment(now, new, out);
        }
        if self.next > next {
            self.arm_probe(now);
        }
    }

    /// The next segment of new data. `None` if there is no data, or the peer has no room for it.
    fn next_segment(&mut self) -> Option<New> {
        let left = self.total.map_or(u64::MAX, |total| total.saturating_sub(self.next));
        let len = left.min(self.mss() as u64);
        let end_of_stream = left == 0 && self.total == Some(self.next);
        if len == 0 && !end_of_stream {
            self.delivery.limit(self.in_flight);
            return None;
        }
        let bound = self.first + self.peer.window.min(self.buffer);
        (self.next + len <= bound).then_some(New { len: len as usize, end_of_stream })
    }

    fn send_segment(&mut self, now: Nanos, new: New, out: &mut Vec<Vec<u8>>) {
        if let Control::Bbr(bbr) = &mut self.control
            && self.in_flight == 0
            && self.delivery.is_app_limited()
        {
            bbr.on_restart(now);
        }
        if self.segments.is_empty() {
            self.delivery.restart(now);
        }
        let segment = Segment {
            start: self.next,
            len: new.len,
            end_of_stream: new.end_of_stream,
            sent_at: now,
            retransmitted: false,
            fate: Fate::InFlight,
            delivery: self.delivery.snapshot(),
        };
        self.pacing.on_sent(now, segment.len, &self.control);
        self.segments.push_back(segment);
        self.next = segment.end();
        self.in_flight += segment.len as u64;
        self.emit_segment(now, &segment, out);
    }

    /// Splits a segment that is longer than the current MSS.
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

    fn emit_segment(&self, now: Nanos, segment: &Segment, out: &mut Vec<Vec<u8>>) {
        let control = if segment.end_of_stream { TcpControl::Fin } else { TcpControl::Psh };
        self.emit(now, control, (segment.start, segment.len), out);
    }

    /// Sends a segment with `len` bytes of the stream from `start` on.
    pub(super) fn emit(
        &self,
        now: Nanos,
        control: TcpControl,
        (start, len): (u64, usize),
        out: &mut Vec<Vec<u8>>,
    ) {
        let syn = control == TcpControl::Syn;
        let mut payload = vec![0; len];
        fill(self.flow, start, &mut payload);
        let after_syn = u32::from(!syn);
        let number = self.initial.wrapping_add(after_syn).wrapping_add(start as u32);
        let repr = TcpRepr {
            seq_number: TcpSeqNumber(number as i32),
            ack_number: (!syn).then_some(self.peer.expected),
            window_scale: syn.then_some(0),
            max_seg_size: syn.then_some(self.interface_mss as u16),
            sack_permitted: syn,
            timestamp: Some(self.timestamps.option(now)),
            payload: &payload,
            ..packet::empty(self.local, self.remote, control)
        };
        out.push(packet::build(&repr, self.local, self.remote));
    }
}

/// A segment of new data.
#[derive(Clone, Copy, Debug)]
struct New {
    /// Length in bytes.
    len: usize,
    /// Whether it ends the stream.
    end_of_stream: bool,
}
