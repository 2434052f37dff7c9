//! Which acknowledgements an inner TCP sender gets to see while it is in slow start.
//!
//! On paths of different delay the round-trip time that the inner TCP sees rises as soon as the
//! shortest path is full and the longer ones are used. HyStart (RFC 9406, section 4.2) takes that
//! for the queue of a full path and ends slow start, at a tenth of what all paths together carry.
//! It needs eight samples of a round trip to say so. With at most seven acknowledgements in each it
//! does not judge, and slow start goes on; once the paths are full all acknowledgements pass again,
//! and it ends there. To leave out acknowledgements that later ones repeat is common practice where
//! the way back is narrow (RFC 3449, section 5.2.2).
//!
//! Some senders grow by what an acknowledgement covers, others by two segments at most for each,
//! and would begin more slowly. Which it is, is found out on the way ([`growth`]).
//!
//! An acknowledgement is left out only while data that it does not cover is on its way, so that
//! another one follows. Nothing waits for that.

use core::time::Duration;

use mpip_types::Instant;
use mpip_types::packet::MAX_WINDOW;

mod growth;

use growth::Growth;

/// An acknowledgement passes when it covers this part of the most that was on its way in the round:
/// what arrives in a burst is acknowledged before the sender can send more, and ever less is on its
/// way.
const PART: u32 = 6;
/// Acknowledgements that follow each other more closely are a train: what HyStart ends slow start
/// by when it takes half the least round trip, however few they are (RFC 9406 leaves it out, Linux
/// does not).
const TRAIN: Duration = Duration::from_millis(3);
/// Up to this round trip, µs, an acknowledgement that follows another closely may be left out
/// before it is known what the sender makes of that: it is known a few round trips later, which are
/// over soon. The train of a link beside this host has ended slow start by then.
const SOON: u32 = 10_000;
/// After so many round trips without growth slow start is over; some are spent waiting for a
/// packet. Those in which the sender had too little to send do not count.
const FLAT: u8 = 3;

/// What is known of one direction of a TCP connection: its present round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Thinning {
    /// When the round began, and where the stream ended then.
    began: Instant,
    end: u32,
    /// When the last one passed.
    last: Instant,
    /// The most that the sender took for being on its way in this round, and in any before.
    peak: u32,
    most: u32,
    /// The last acknowledgement that passed, and the furthest that came.
    passed: u32,
    seen: u32,
    /// Rounds in which no more was on its way than ever before, less the others, and segments that
    /// were sent again. From [`FLAT`] on slow start is over for good.
    flat: u8,
    /// Something was acknowledged.
    begun: bool,
    /// Everything was acknowledged in this round or before it: the sender had less to send than it
    /// may.
    ran_out: bool,
    /// Acknowledgements that pass whatever they cover.
    owed: u8,
    growth: Growth,
    /// What is to be acknowledged for the next sample of the round trip, if it came, and when.
    awaits: bool,
    awaited: u32,
    awaited_at: Instant,
    /// Microseconds; 0 before the first sample.
    lowest_rtt: u32,
}

impl Thinning {
    /// Whether the acknowledgement of everything before `ack` is to pass, when the sender's stream
    /// ends at `end`. `waits`: since when the paths carry all they can, and the rest of it waits.
    pub(crate) fn passes(
        &mut self,
        now: Instant,
        ack: u32,
        end: u32,
        waits: Option<Instant>,
    ) -> bool {
        let flight = end.wrapping_sub(ack);
        let covered = ack.wrapping_sub(self.passed);
        let strange = flight >= MAX_WINDOW || covered >= MAX_WINDOW;
        let behind = |than: u32| {
            let news = ack.wrapping_sub(than);
            news == 0 || news >= MAX_WINDOW.wrapping_neg()
        };
        // Repeated, because something is missing, or known already. One that was overtaken by one
        // that was left out is news to the sender.
        let old = ack == self.seen || behind(self.passed);
        self.measure(now, ack);
        if !self.begun || strange && !old {
            // The second is of another connection between the same ports.
            let peak = if flight < MAX_WINDOW { flight } else { 0 };
            let began = now;
            *self = Self {
                began,
                end,
                peak,
                last: now,
                passed: ack,
                seen: ack,
                begun: true,
                growth: if self.begun { Growth::default() } else { self.growth },
                lowest_rtt: if self.begun { 0 } else { self.lowest_rtt },
                ..Self::default()
            };
            return true;
        }
        if old {
            return true;
        }
        if !behind(self.seen) {
            self.seen = ack;
        }
        self.peak = self.peak.max(flight + covered);
        // What waits for shorter came in a burst, and the paths may run out of it before the next
        // one.
        let full = waits.is_some_and(|since| since <= self.began);
        let thins = self.flat < FLAT && self.owed == 0 && !full;
        let close = now < self.last + TRAIN;
        let near = (1..=SOON).contains(&self.lowest_rtt);
        let soon = close && near && !self.growth.is_limited();
        let few =
            soon || (close || covered < self.peak / PART) && covered < self.growth.permitted();
        if thins && flight > 0 && few {
            return false;
        }
        self.growth.on_passed(flight + covered, covered);
        self.last = now;
        self.owed = self.owed.saturating_sub(1);
        self.ran_out |= flight == 0;
        if ack.wrapping_sub(self.end) < MAX_WINDOW {
            self.end_round(now, end);
            self.ran_out = flight == 0;
        }
        self.passed = ack;
        true
    }

    fn end_round(&mut self, now: Instant, end: u32) {
        (self.began, self.end) = (now, end);
        let peak = core::mem::take(&mut self.peak);
        if peak > self.most + self.most / 8 {
            self.most = peak;
            if self.flat < FLAT {
                self.flat = self.flat.saturating_sub(1);
            }
        } else if !self.ran_out {
            self.flat = self.flat.saturating_add(1);
        }
    }

    /// The sender sends segments of `len` bytes, the last of which ends at `end`.
    pub(crate) fn on_segment(&mut self, now: Instant, len: u32, end: u32) {
        self.growth.on_segment(len);
        if !core::mem::replace(&mut self.awaits, true) {
            (self.awaited, self.awaited_at) = (end, now);
        }
    }

    fn measure(&mut self, now: Instant, ack: u32) {
        if self.awaits && ack.wrapping_sub(self.awaited) < MAX_WINDOW {
            self.awaits = false;
            let took = now.since(self.awaited_at).as_micros().clamp(1, u32::MAX.into()) as u32;
            let lowest = if self.lowest_rtt == 0 { took } else { self.lowest_rtt };
            self.lowest_rtt = lowest.min(took);
        }
    }

    /// The sender sends a segment again: it may be all that is on its way.
    pub(crate) fn on_repeated(&mut self) {
        self.growth.forget();
        self.owed = self.owed.saturating_add(1);
        self.flat = self.flat.saturating_add(1);
    }
}

#[cfg(test)]
mod tests;
