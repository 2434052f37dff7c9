//! What becomes of the peer's small packets that may acknowledge what this host sends: those of a
//! sender in slow start are thinned.

use core::time::Duration;

use mpip_types::packet::{Header, PlainAck, protocol};
use mpip_types::{InnerPacket, Instant, PacketSink};

use super::Association;
use crate::aggregation::Reach;
use crate::parameters::Parameters;
use crate::parts::path_set::PathSet;
use crate::parts::receiving::{DeliveryContext, Judge, Receiving, Verdict};
use crate::parts::sending::Sending;
use crate::parts::withheld;
use crate::session::{AckRules, Answers};
use crate::shared::{Context, Shared};
use crate::thinning::Progress;

impl Association {
    /// The receiving half, and what it needs to deliver packets to `sink`.
    pub(super) fn delivery<'a, S: PacketSink>(
        &'a mut self,
        now: Instant,
        cx: &'a mut Context<'_>,
        sink: &'a mut S,
    ) -> (&'a mut Receiving, DeliveryContext<'a, S, AckJudge<'a>>) {
        let Self { receiving, sending, paths, parameters, reach, .. } = self;
        let judge = AckJudge {
            now,
            enabled: self.config.ack_thinning,
            thins: self.thins,
            awaited: self.awaited,
            paths,
            sending,
            parameters,
            reach,
        };
        let Shared { hold, drops, .. } = cx.shared;
        (receiving, DeliveryContext { hold, drops, judge, sink })
    }
}

/// Decides about packets whose turn it is.
pub(super) struct AckJudge<'a> {
    now: Instant,
    /// Acknowledgements may be dropped or withheld at all.
    enabled: bool,
    /// Inner senders would mistake the paths for a queue.
    thins: bool,
    /// Bytes that paths in slow start will soon take from the queue.
    awaited: u64,
    paths: &'a PathSet,
    sending: &'a mut Sending,
    parameters: &'a Parameters,
    reach: &'a Reach,
}

impl Judge for AckJudge<'_> {
    fn verdict(
        &mut self,
        packet: &InnerPacket<'_>,
        answers: Answers,
        shift: Option<u8>,
    ) -> Verdict {
        if !self.enabled || packet.len() > withheld::LONGEST {
            return Verdict::Deliver;
        }
        let Answers::Session(slot, id, _) = answers else { return Verdict::Deliver };
        let sessions = self.sending.sessions();
        let (Some(key), Some(session)) = (sessions.key(slot), sessions.get(slot)) else {
            return Verdict::Deliver;
        };
        if session.id != id {
            return Verdict::Deliver;
        }
        match key.protocol {
            protocol::TCP => self.verdict_on_tcp(packet, slot, shift),
            protocol::UDP if self.thins && session.ordered => self.verdict_on_hidden(slot),
            _ => Verdict::Deliver,
        }
    }
}

impl AckJudge<'_> {
    fn verdict_on_tcp(
        &mut self,
        packet: &InnerPacket<'_>,
        slot: u32,
        shift: Option<u8>,
    ) -> Verdict {
        let waits = self.waits(slot);
        let Some(session) = self.sending.get_mut(slot) else { return Verdict::Deliver };
        match acknowledged(packet) {
            Some(Acknowledgement::Plain(ack)) => {
                let window = shift.map(|shift| u32::from(ack.window) << shift);
                let (thins, reach, parameters) = (self.thins, self.reach, self.parameters);
                let rules = AckRules { thins, waits, window, reach, parameters };
                if !session.passes(self.now, ack.number, &rules) {
                    return Verdict::Thin;
                }
            }
            Some(Acknowledgement::Syn) => session.on_syn_ack(self.now),
            Some(Acknowledgement::Report) => session.on_report(),
            None => {}
        }
        Verdict::Deliver
    }

    /// About a packet of which cannot be read what it acknowledges.
    fn verdict_on_hidden(&mut self, slot: u32) -> Verdict {
        let (progress, waits) = (self.progress(slot), self.waits(slot));
        let Some(session) = self.sending.get_mut(slot) else { return Verdict::Deliver };
        let until = session.withholds_until(self.now, progress, waits, &self.parameters.thinning);
        until.map_or(Verdict::Pass, Verdict::Withhold)
    }

    /// Since when the session in `slot` has had more data than the paths carry.
    fn waits(&self, slot: u32) -> Option<Instant> {
        let queue = self.sending.queue();
        let behind = queue.behind_since(self.now, slot);
        behind.filter(|_| queue.bytes() as u64 > self.awaited)
    }

    /// How far the session in `slot` has come, by what is known of the paths.
    fn progress(&self, slot: u32) -> Progress {
        let (mut delivered, mut in_flight, mut rtt) = (0, 0, Duration::ZERO);
        for path in self.paths {
            delivered += path.flight.delivered();
            in_flight += path.flight.in_flight();
            if path.flight.in_flight() > u64::from(self.parameters.thinning.rest) {
                rtt = rtt.max(path.flight.rtt().smoothed());
            }
        }
        let queue = self.sending.queue();
        let queued = queue.flow_bytes(slot) as u64;
        let round_trip = rtt + queue.waited(self.now, slot);
        // Only differences count, and flights are far below 2^31 bytes.
        Progress { delivered: delivered as u32, flight: (in_flight + queued) as u32, round_trip }
    }
}

/// What a TCP packet acknowledges.
enum Acknowledgement {
    /// The SYN.
    Syn,
    /// Data, in a pure acknowledgement without SACK blocks or ECN flags.
    Plain(PlainAck),
    /// Data, in another pure acknowledgement.
    Report,
}

fn acknowledged(packet: &InnerPacket<'_>) -> Option<Acknowledgement> {
    // Payload is in the tail.
    let header = Header::parse(packet.head).ok().filter(|_| packet.tail.is_empty())?;
    if let Some(plain) = header.plain_ack(packet.head) {
        return Some(Acknowledgement::Plain(plain));
    }
    if header.is_syn_ack(packet.head) {
        return Some(Acknowledgement::Syn);
    }
    header.is_pure_ack(packet.head).then_some(Acknowledgement::Report)
}
