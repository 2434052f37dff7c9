//! Sessions: inner connections, one entry per direction.
//!
//! Each node numbers its outgoing sessions, independently of the other direction. So both nodes can
//! begin a session at the same time without collision.

use core::time::Duration;

use mpip_wire::{SessionFields, SessionId};

use crate::aggregation::{Aggregation, Ahead, Reach};
use crate::interactive::Credit;
use crate::omission::SessionHeader;
use crate::parameters::{
    FallBackParameters, Parameters, ThinningParameters, UdpTransportParameters,
};
use crate::recent_paths::RecentPaths;
use crate::repeated_segment::RepeatedSegment;
use crate::resequencer::{Resequencer, WAIT_BUCKETS};
use crate::rules::KnownRules;
use crate::thinning::{HiddenThinning, Progress, Thinning};
use crate::window::DuplicateWindow;
use mpip_types::Instant;
use mpip_types::packet::{Endpoint, MAX_WINDOW, SessionKey, protocol};

/// A session in which this host sends.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Its number.
    pub(crate) id: SessionId,
    /// Whether the receiver resequences it, and lost packets are sent again.
    pub(crate) ordered: bool,
    /// What it remembers of the rules.
    pub(crate) known_rules: KnownRules,
    /// A rule wants lost packets to be sent again, although the receiver does not resequence.
    pub(crate) repair: bool,
    /// Sequence number of the next packet.
    pub(crate) next_sequence: u32,
    pub(crate) header_state: HeaderState,
    pub(crate) counters: Counters,
    /// Packets that were sent again.
    pub(crate) repaired: u64,
    /// End of the sent data in its TCP stream, and end of the queued data.
    stream_end: Option<u32>,
    queue_end: Option<u32>,
    /// Thinning of the peer's acknowledgements.
    thinning: Thinning,
    /// The same of acknowledgements that cannot be read.
    hidden: Option<Box<HiddenThinning>>,
    /// Aggregation of them.
    aggregation: Aggregation,
    /// Whether the peer sends to this connection, too.
    answered: bool,
    /// Whether what the peer sends to it is put in order.
    answers_ordered: bool,
    /// What the inner TCP repeats.
    repeats: RepeatedSegment,
    /// Whether it is interactive.
    pub(crate) credit: Credit,
}

impl Outgoing {
    pub(crate) fn new(id: SessionId, key: &SessionKey, resequencing: bool) -> Self {
        Self {
            id,
            ordered: resequencing && key.protocol == protocol::TCP,
            known_rules: KnownRules::default(),
            repair: false,
            next_sequence: 0,
            header_state: HeaderState::Unsent,
            counters: Counters::default(),
            repaired: 0,
            stream_end: None,
            queue_end: None,
            thinning: Thinning::default(),
            hidden: None,
            aggregation: Aggregation::default(),
            answered: false,
            answers_ordered: false,
            repeats: RepeatedSegment::default(),
            credit: Credit::default(),
        }
    }

    /// The host sends datagrams of `len` bytes by UDP. A flow that sends full ones and is answered
    /// has a transport protocol of its own (QUIC, a VPN). Such a protocol takes packets that others
    /// overtake for lost (RFC 9002, section 6.1), so from now on its packets are put in order and
    /// repaired as those of TCP.
    pub(crate) fn on_datagrams(&mut self, len: usize, parameters: &UdpTransportParameters) {
        self.ordered |= parameters.enabled && self.answered && len >= parameters.full as usize;
    }

    /// The peer sends to this connection, too, in a session that is put in order or not.
    pub(crate) fn on_answer(&mut self, ordered: bool) {
        self.answered = true;
        self.answers_ordered |= ordered;
    }

    /// Whether small packets of it speak for somebody who waits for them. In answer to a flow with
    /// a transport protocol of its own they acknowledge. Acknowledgements tell the sender what the
    /// paths are like: they go by the paths of the data.
    pub(crate) fn speaks(&self) -> bool {
        !self.answers_ordered
    }

    /// Segments of `len` bytes arrive from the host; the last one ends at sequence number `end`.
    pub(crate) fn on_segments(&mut self, now: Instant, len: u32, end: u32) {
        self.thinning.on_segment(now, len, end);
        self.aggregation.on_segment(now, end);
    }

    /// Whether a segment of `len` bytes that ends at sequence number `end` should be queued.
    /// `false` if all of it was queued before and none of it was sent since: unless it was dropped,
    /// it is still in the queue, and the inner TCP retransmits it only because of its queuing
    /// delay. But the last one again is a tail loss probe (RFC 8985, section 7): unless the
    /// receiver reports that it got both, the inner TCP takes the original for lost.
    pub(crate) fn queues(&mut self, len: u32, end: u32) -> bool {
        let Some(left) = self.stream_end else { return true };
        let queued = *self.queue_end.get_or_insert(left);
        let ahead = end.wrapping_sub(queued);
        if ahead == 0 || ahead >= MAX_WINDOW.wrapping_neg() {
            let probes = len > 0 && ahead == 0 && self.thinning.on_probe(end);
            if len > 0 {
                if !probes {
                    self.thinning.on_repeated();
                }
                self.aggregation.on_repeated();
            }
            let beyond = end.wrapping_sub(len).wrapping_sub(left);
            return len == 0 || probes || beyond >= MAX_WINDOW;
        }
        self.queue_end = Some(end);
        true
    }

    /// Whether nothing of the session arrives: the host repeats the segment that ends at sequence
    /// number `end`, which has data or opens the connection, for too long. Not to be asked about
    /// segments that still wait in the queue.
    pub(crate) fn is_stuck(&mut self, now: Instant, end: u32, limits: &FallBackParameters) -> bool {
        let again = self.stream_end.is_some_and(|left| left.wrapping_sub(end) < MAX_WINDOW);
        let (count, time) = self.repeats.on_segment(now, end, again);
        limits.enabled && u32::from(count) >= limits.repeats && time >= limits.after
    }

    /// Whether the peer's acknowledgement of everything before `ack` is delivered.
    pub(crate) fn passes(&mut self, now: Instant, ack: u32, rules: &AckRules<'_>) -> bool {
        let Some(end) = self.queue_end.or(self.stream_end) else { return true };
        let waits = rules.waits;
        let patience = rules.parameters.thinning.report;
        if rules.thins
            && (self.thinning.awaits_report(now, ack, end, patience)
                || !self.thinning.passes(now, ack, end, waits))
        {
            return false;
        }
        if let Some(window) = rules.window {
            self.thinning.on_window(ack.wrapping_add(window));
        }
        let ahead = Ahead { waits: waits.is_some(), reach: rules.reach };
        self.aggregation.passes(now, ack, end, ahead, rules.parameters)
    }

    /// An acknowledgement of the peer is delivered that says more than a number.
    pub(crate) fn on_report(&mut self) {
        self.thinning.on_report();
    }

    /// Until when a small packet of the peer, which may be an acknowledgement that cannot be read,
    /// is withheld; `None` if it is delivered at once. `waits`: since when the session has had more
    /// data than the paths carry.
    pub(crate) fn withholds_until(
        &mut self,
        now: Instant,
        progress: Progress,
        waits: Option<Instant>,
        parameters: &ThinningParameters,
    ) -> Option<Instant> {
        match &mut self.hidden {
            Some(hidden) => hidden.holds_until(now, progress, waits, parameters),
            None => {
                self.hidden = Some(Box::new(HiddenThinning::new(now, progress)));
                None
            }
        }
    }

    /// How much longer than by the nearest path full packets are to take, for a sender that would
    /// take its delay for that of all.
    pub(crate) fn hold(&self) -> Option<Duration> {
        self.aggregation.hold()
    }

    /// The peer acknowledges this host's SYN.
    pub(crate) fn on_syn_ack(&mut self, now: Instant) {
        self.thinning.on_syn_ack(now);
        self.aggregation.on_syn_ack(now);
    }

    /// A segment that ends at sequence number `end` of the TCP stream is sent. Returns how many of
    /// its bytes are new.
    pub(crate) fn on_segment(&mut self, end: u32) -> u64 {
        let former = *self.stream_end.get_or_insert(end);
        let new = end.wrapping_sub(former);
        // Other segments are retransmissions, or belong to another connection between the same
        // ports, far away in sequence space.
        if new >= MAX_WINDOW {
            if new < MAX_WINDOW.wrapping_neg() {
                self.stream_end = Some(end);
            }
            return 0;
        }
        self.stream_end = Some(end);
        u64::from(new)
    }
}

/// What decides whether acknowledgements of a session are delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckRules<'a> {
    /// Those of a sender in slow start may be dropped.
    pub(crate) thins: bool,
    /// Since when the session has had more data than the paths carry.
    pub(crate) waits: Option<Instant>,
    /// The receive window that the acknowledgement tells, bytes, if it is known.
    pub(crate) window: Option<u32>,
    pub(crate) reach: &'a Reach,
    pub(crate) parameters: &'a Parameters,
}

/// What the receiver knows about the header fields of a session.
#[derive(Debug)]
pub(crate) enum HeaderState {
    /// Nothing yet.
    Unsent,
    /// The fields were announced, and not confirmed yet.
    Sent(Box<HeaderFields>),
    /// The announcement was lost, or the receiver has forgotten the fields.
    Lost(Box<HeaderFields>),
    /// The receiver has confirmed the fields: packets omit them.
    Confirmed(Box<HeaderFields>),
}

/// The header fields that a session's packets share, as first announced; they never change.
#[derive(Debug)]
pub(crate) struct HeaderFields {
    pub(crate) fields: SessionFields,
    pub(crate) header: SessionHeader,
}

/// A session in which the peer sends.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Protocol and addresses, from its first packet.
    pub(crate) key: SessionKey,
    /// How they are delivered, as the first packet asks.
    pub(crate) order: Option<Order>,
    /// The header fields that the peer has announced.
    pub(crate) header: Option<Box<SessionHeader>>,
    /// How the source of compact packets is rewritten.
    pub(crate) source_rewrite: SourceRewrite,
    /// The session of this host that it answers.
    pub(crate) answers: Answers,
    /// By how many bits its windows are shifted, if its first TCP segment was seen.
    pub(crate) window_shift: Option<u8>,
    /// The newest sequence number, from which truncated ones are expanded.
    pub(crate) newest: u32,
    pub(crate) counters: Counters,
}

impl Incoming {
    /// The connection that its packets answer, as this host sends it.
    pub(crate) fn answered(&self) -> SessionKey {
        let source = match &self.source_rewrite {
            SourceRewrite::To(known) => known.0,
            SourceRewrite::None | SourceRewrite::PerPacket => self.key.source,
        };
        SessionKey { source, ..self.key }.reversed()
    }
}

/// The session of this host that a session of the peer answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answers {
    /// Not looked for yet.
    Unknown,
    /// There is none yet. It will know that it is answered.
    Awaited,
    /// Slot and number of the session, which has taken note, and whether it knows of order.
    Session(u32, SessionId, bool),
}

/// How the source of packets restored from a session's fields is rewritten (NAT).
#[derive(Debug)]
pub(crate) enum SourceRewrite {
    /// The source of the fields, unchanged.
    None,
    /// This endpoint, which is already part of the restore template, and when the connection was
    /// last marked as in use.
    To(Box<(Endpoint, Instant)>),
    /// The fields do not identify the connection: each packet is looked up.
    PerPacket,
}

/// How packets of a session reach the host.
#[derive(Debug)]
pub(crate) enum Order {
    /// Resequenced.
    Sequenced(Box<Resequencer>),
    /// In order of arrival, without duplicates.
    Unordered(Box<DuplicateWindow>),
}

impl Order {
    /// The order for a session whose first packet is `ordered` or not.
    pub(crate) fn new(ordered: bool) -> Self {
        match ordered {
            true => Self::Sequenced(Box::default()),
            false => Self::Unordered(Box::default()),
        }
    }

    /// Histogram of resequencing delays, see
    /// [`ResequencerStats`](crate::resequencer::ResequencerStats).
    pub(crate) fn waits(&self) -> [u32; WAIT_BUCKETS] {
        match self {
            Self::Sequenced(resequencer) => resequencer.stats().waits,
            Self::Unordered(_) => [0; WAIT_BUCKETS],
        }
    }

    /// A packet that needs order arrives: the session is resequenced from now on. Returns whether
    /// it had a wide window.
    pub(crate) fn require(&mut self) -> bool {
        let Self::Unordered(window) = self else { return false };
        let was_wide = window.narrow();
        let window = core::mem::take(&mut **window);
        *self = Self::Sequenced(Box::new(Resequencer::continuing(window)));
        was_wide
    }

    /// Whether its window of numbers is a wide one.
    pub(crate) fn is_wide(&self) -> bool {
        matches!(self, Self::Unordered(window) if window.is_wide())
    }

    /// The longest resequencing delay.
    pub(crate) fn longest_wait(&self) -> Duration {
        match self {
            Self::Sequenced(resequencer) => resequencer.stats().longest_wait,
            Self::Unordered(_) => Duration::ZERO,
        }
    }
}

/// Inner packets and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// The paths on which they travelled lately.
    pub(crate) paths: RecentPaths,
}

impl Counters {
    /// Counts `packets` packets of `len` bytes each.
    pub(crate) fn count(&mut self, packets: usize, len: usize) {
        self.packets += packets as u64;
        self.bytes += (packets * len) as u64;
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;
    use mpip_types::packet::Endpoint;

    fn udp() -> Outgoing {
        let end = Endpoint { address: Ipv4Addr::LOCALHOST.into(), port: 1 };
        let key = SessionKey { protocol: protocol::UDP, source: end, destination: end };
        Outgoing::new(SessionId(0), &key, true)
    }

    #[test]
    fn a_udp_flow_of_full_packets_that_is_answered_is_put_in_order() {
        let parameters = UdpTransportParameters::default();
        let mut quic = udp();
        quic.on_datagrams(1_228, &parameters);
        assert!(!quic.ordered, "nothing answers it yet");
        quic.on_answer(false);
        quic.on_datagrams(100, &parameters);
        assert!(!quic.ordered, "only small packets since");
        quic.on_datagrams(1_228, &parameters);
        assert!(quic.ordered, "before its first flight is out of order");
        quic.on_datagrams(100, &parameters);
        assert!(quic.ordered, "its small packets, too");
    }

    #[test]
    fn a_udp_flow_of_small_packets_or_without_an_answer_is_not_put_in_order() {
        let parameters = UdpTransportParameters::default();
        let (mut voice, mut flood) = (udp(), udp());
        voice.on_answer(false);
        for _ in 0..1_000 {
            voice.on_datagrams(200, &parameters);
            flood.on_datagrams(1_400, &parameters);
        }
        assert!(!voice.ordered && !flood.ordered);
        flood.on_answer(false);
        flood.on_datagrams(1_400, &parameters);
        assert!(flood.ordered, "it is answered now");
    }

    #[test]
    fn small_packets_that_answer_a_flow_with_a_transport_of_its_own_do_not_speak() {
        let mut session = udp();
        assert!(session.speaks());
        session.on_answer(false);
        assert!(session.speaks(), "voice in both directions");
        session.on_answer(true);
        session.on_answer(false);
        assert!(!session.speaks(), "they acknowledge");
    }

    #[test]
    fn retransmissions_do_not_count_as_new_bytes() {
        let end = Endpoint { address: Ipv4Addr::LOCALHOST.into(), port: 1 };
        let key = SessionKey { protocol: protocol::TCP, source: end, destination: end };
        let mut session = Outgoing::new(SessionId(0), &key, true);
        let ends =
            [u32::MAX - 999, u32::MAX - 499, u32::MAX - 999, 500, 500, 1 << 31, (1 << 31) + 7];
        let counted = ends.map(|end| session.on_segment(end));
        // The last but one belongs to another connection between the same ports.
        assert_eq!(counted, [0, 500, 0, 1_000, 0, 0, 7]);
    }

    #[test]
    fn segments_in_the_queue_are_not_queued_again() {
        let end = Endpoint { address: Ipv4Addr::LOCALHOST.into(), port: 1 };
        let key = SessionKey { protocol: protocol::TCP, source: end, destination: end };
        let mut session = Outgoing::new(SessionId(0), &key, true);
        let start = u32::MAX - 1_500;
        let at = |bytes: u32| start.wrapping_add(bytes);
        assert!(session.queues(1_000, at(1_000)), "of a stream that is not known yet");
        session.on_segment(at(1_000));
        assert!(session.queues(1_000, at(2_000)) && session.queues(1_000, at(3_000)));
        assert!(!session.queues(1_000, at(2_000)));
        assert!(session.queues(1_000, at(3_000)), "a tail loss probe");
        assert!(!session.queues(1_000, at(3_000)) && !session.queues(2_000, at(3_000)), "again");
        assert!(session.queues(0, at(3_000)), "acknowledges");
        assert!(session.queues(1_000, at(1_500)), "part of it has left");
        assert!(session.queues(1_000, at(3_500)), "part of it is new");
        session.on_segment(at(2_000));
        assert!(session.queues(1_000, at(2_000)), "it has left");
        assert!(session.queues(1_000, at(1 << 31)), "of another connection between the same ports");
    }
}
