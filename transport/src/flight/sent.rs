//! What has left: each datagram, what it carried, and what of that is lost.

use mpip_types::Instant;
use mpip_wire::CHALLENGE_DATAGRAM_LEN;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    InFlight,
    Acked,
    Lost,
    /// Not tracked: it asks for no feedback.
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
    pub(super) delivered: u64,
    pub(super) delivered_at: Instant,
    pub(super) first_sent_at: Instant,
    /// It probes the path's MTU: its loss is no sign of congestion, nor its silence one of
    /// failure.
    pub(super) probe: bool,
    pub(super) content: Option<C>,
}

impl<C> Sent<C> {
    /// Whether the path owes an answer to it.
    pub(super) fn is_awaited(&self) -> bool {
        self.fate == Fate::InFlight && !self.probe
    }
}

/// Memory of one datagram in flight, bytes.
pub const fn bytes_per_datagram<C>() -> usize {
    size_of::<Sent<C>>()
}

/// What was lost together, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossSummary {
    /// Datagrams.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the newest of them had left.
    pub newest: Instant,
    /// How many of them were longer than what every path carries.
    pub large: u32,
    /// The length of the shortest of those, bytes.
    pub smallest_large: u16,
    /// Length of an MTU probe, which is in none of the other counts, bytes; 0 without one.
    pub probe: u16,
}

/// What became of datagrams, collected in vectors that the caller uses again.
#[derive(Debug)]
pub struct Losses<C> {
    /// What was lost, oldest first.
    pub lost: Vec<C>,
    /// What has arrived, of contents that [report it](crate::Content::reports_arrival).
    pub arrived: Vec<C>,
    /// The losses in numbers.
    pub summary: LossSummary,
    /// Passes of loops to find all that.
    pub steps: u64,
}

impl<C> Default for Losses<C> {
    fn default() -> Self {
        Self { lost: Vec::new(), arrived: Vec::new(), summary: LossSummary::default(), steps: 0 }
    }
}

impl<C> Losses<C> {
    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.lost.clear();
        self.arrived.clear();
        self.summary = LossSummary::default();
        self.steps = 0;
    }

    pub(super) fn add(&mut self, sent: &mut Sent<C>) {
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
        summary.newest = summary.newest.max(sent.at);
        self.lost.extend(sent.content.take());
    }
}
