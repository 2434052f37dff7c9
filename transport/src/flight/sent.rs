//! Sent datagrams, their contents, and losses.

use core::time::Duration;

use mpip_types::Instant;
use mpip_wire::CHALLENGE_DATAGRAM_LEN;

use crate::rate::told_after;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    InFlight,
    Acked,
    Lost,
    /// Not tracked: it is not ack-eliciting.
    Untracked,
}

#[derive(Debug)]
pub(super) struct Sent<C> {
    pub(super) at: Instant,
    pub(super) size: u16,
    pub(super) fate: Fate,
    pub(super) app_limited: bool,
    /// It left as ECN-capable.
    pub(super) ect: bool,
    /// It left in the rear half of a burst.
    pub(super) rear: bool,
    /// These three as they were when it left, see [`Flight`](super::Flight).
    pub(super) delivered: u64,
    pub(super) delivered_told: Option<u32>,
    pub(super) first_sent_at: Instant,
    /// An MTU probe: its loss is no sign of congestion or path failure.
    pub(super) probe: bool,
    pub(super) content: Option<C>,
}

impl<C> Sent<C> {
    /// Whether feedback for it is outstanding.
    pub(super) fn is_awaited(&self) -> bool {
        self.fate == Fate::InFlight && !self.probe
    }

    pub(super) fn departure(&self) -> Departure {
        Departure {
            at: self.at,
            delivered: self.delivered,
            told: self.delivered_told,
            first_sent_at: self.first_sent_at,
            app_limited: self.app_limited,
        }
    }
}

/// The packets for which feedback is outstanding, see [`Sent::is_awaited`].
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// At most what can be tracked, of 65,535 bytes each.
    bytes: u32,
    packets: u32,
}

impl InFlight {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.into()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// A packet of `size` bytes leaves.
    pub(super) fn add(&mut self, size: u16) {
        self.bytes += u32::from(size);
        self.packets += 1;
    }

    /// A packet, with its fate so far, has arrived or counts as lost.
    pub(super) fn remove<C>(&mut self, sent: &Sent<C>) {
        if sent.is_awaited() {
            self.bytes -= u32::from(sent.size);
            self.packets -= 1;
        }
    }
}

/// State of the [`Flight`](super::Flight) when a datagram left. A rate sample covers what has
/// happened since then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    pub(super) at: Instant,
    pub(super) delivered: u64,
    pub(super) told: Option<u32>,
    pub(super) first_sent_at: Instant,
    pub(super) app_limited: bool,
}

impl Departure {
    /// Time in which the packets of the sample left, and in which they arrived. Their newest
    /// feedback left at `told`, µs of the receiver's clock, and arrived at `now`.
    pub(super) fn left_and_arrived_in(&self, now: Instant, told: u32) -> (Duration, Duration) {
        // The receiver's clock leaves out the jitter of the feedback. After a pause, both times
        // count from the same instant.
        let arrived_in = match self.told {
            Some(before) => told_after(before, told),
            None => now.since(self.first_sent_at),
        };
        (self.at.since(self.first_sent_at), arrived_in)
    }
}

/// Memory of one datagram in flight, bytes.
pub const fn bytes_per_datagram<C>() -> usize {
    size_of::<Sent<C>>()
}

/// Summary of the datagrams lost together.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossSummary {
    /// Datagrams.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Ranges of consecutive packets that are lost, in which they are the first ones.
    pub ranges: u64,
    /// How many of them left in the rear half of a burst.
    pub rear: u64,
    /// Send time of the newest of them.
    pub newest: Instant,
    /// How many of them were longer than the base MTU.
    pub large: u32,
    /// The length of the shortest of those, bytes.
    pub smallest_large: u16,
    /// Length of an MTU probe, which is in none of the other counts, bytes; 0 without one.
    pub probe: u16,
}

/// Lost and acknowledged contents, in vectors that the caller reuses.
#[derive(Debug)]
pub struct Losses<C> {
    /// Contents of datagrams that are lost, or so late that they are sent again; oldest first.
    pub lost: Vec<C>,
    /// Acknowledged contents that [report their arrival](crate::Content::reports_arrival).
    pub arrived: Vec<C>,
    /// Summary of the losses.
    pub summary: LossSummary,
    /// Loop passes needed, to bound the work.
    pub steps: u64,
}

impl<C> Default for Losses<C> {
    fn default() -> Self {
        Self { lost: Vec::new(), arrived: Vec::new(), summary: LossSummary::default(), steps: 0 }
    }
}

impl<C> Losses<C> {
    /// Clears everything and keeps the memory.
    pub fn clear(&mut self) {
        self.lost.clear();
        self.arrived.clear();
        self.summary = LossSummary::default();
        self.steps = 0;
    }

    /// `sent` is lost. `after_lost`: so is the packet before it.
    pub(super) fn add(&mut self, sent: &mut Sent<C>, after_lost: bool) {
        sent.fate = Fate::Lost;
        let summary = &mut self.summary;
        if sent.probe {
            summary.probe = sent.size;
            return;
        }
        if usize::from(sent.size) > CHALLENGE_DATAGRAM_LEN {
            let smallest = if summary.large == 0 { u16::MAX } else { summary.smallest_large };
            summary.smallest_large = smallest.min(sent.size);
            summary.large += 1;
        }
        summary.bytes += u64::from(sent.size);
        summary.packets += 1;
        summary.ranges += u64::from(!after_lost);
        summary.rear += u64::from(sent.rear);
        summary.newest = summary.newest.max(sent.at);
        self.lost.extend(sent.content.take());
    }
}
