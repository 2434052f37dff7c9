//! The way of a packet in: lane, open, frames, feedback, session, resequencer.

use core::time::Duration;

use mpip_wire::{Frame, Frames, PacketFrameHeader, SessionId, TransportPacket};

use super::outgoing::Loss;
use super::{Association, Context};
use crate::engine::DropReason;
use crate::packet::Header;
use crate::path::PathState;
use crate::path::delay::clock_difference;
use crate::resequencer::{HoldLimits, Received, Resequencer};
use crate::session::{Counters, Incoming, Order};
use crate::sink::{Checksum, Ecn, InnerPacket, PacketSink, PathAddress};
use crate::time::Instant;
use crate::window::Seen;

/// How long a gap is waited for until the peer has said how long.
pub(super) const INITIAL_MAX_WAIT: Duration = Duration::from_millis(100);
/// The peer may not make us wait longer than this.
const LONGEST_MAX_WAIT: Duration = Duration::from_secs(2);

impl Association {
    /// Takes in a transport datagram, opened in place.
    pub(crate) fn on_transport(
        &mut self,
        now: Instant,
        from: PathAddress,
        ecn: Ecn,
        datagram: &mut [u8],
        cx: &mut Context<'_>,
        packets: &mut impl PacketSink,
    ) -> Result<(), DropReason> {
        let len = datagram.len();
        let view = TransportPacket::new_checked(datagram).map_err(|_| DropReason::Malformed)?;
        let (header, header_len) = (view.header(), view.header_len());
        let epoch = self.keys.by_index(header.receiver.0).ok_or(DropReason::UnknownIndex)?;
        let known = self.path_index(header.path);
        let replay = known.map(|index| &self.paths[index].replay);
        let number = header.number.expand(replay.and_then(mpip_crypto::ReplayWindow::largest));
        if replay.is_some_and(|replay| replay.check(number).is_err()) {
            return Err(DropReason::Replay);
        }
        let (clear, sealed) = datagram.split_at_mut(header_len);
        let plain = epoch
            .keys
            .receive
            .open_in_place(header.path.0, number, clear, sealed)
            .map_err(|_| DropReason::Authentication)?;
        Frames::check(plain).map_err(|_| DropReason::Malformed)?;

        self.confirm_keys(now, header.receiver.0, cx);
        let index = match known {
            Some(index) => index,
            None => self.accept_path(now, cx, header.path, from)?,
        };
        let path = &mut self.paths[index];
        let newest = path.replay.largest().is_none_or(|largest| number > largest);
        path.replay.commit(number).map_err(|_| DropReason::Replay)?;
        path.counters.packets_received += 1;
        path.counters.bytes_received += len as u64;
        if from == path.address {
            if !path.is_validated() {
                path.credit += len;
            }
        } else if newest && path.state() != PathState::Abandoned {
            self.challenge_new_address(now, cx, index, from, len);
        }
        self.on_frames(now, cx, index, from, plain, (number, ecn), packets);
        Ok(())
    }

    /// The peer sent on a path that we do not know yet. Who opens paths numbers them; the other
    /// side learns of them in this way.
    fn accept_path(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        id: mpip_wire::PathId,
        from: PathAddress,
    ) -> Result<usize, DropReason> {
        if self.opener || self.retired_paths.contains(&id) {
            return Err(DropReason::UnknownPath);
        }
        let local = cx.locals.iter().find(|local| local.id == from.local);
        let local = local.ok_or(DropReason::UnknownPath)?;
        let index = self.add_path(now, id, from, local).ok_or(DropReason::TooManyPaths)?;
        if self.handshake_from.take_if(|address| *address == from).is_some() {
            // Only who received our response at this address can have sealed the packet.
            self.change_state(now, cx, index, PathState::Active, "the handshake was confirmed");
        } else {
            let data = cx.rng.bytes();
            self.paths[index].challenge = Some(crate::path::Challenge::new(data, from, now));
        }
        Ok(index)
    }

    #[expect(clippy::too_many_arguments, reason = "one datagram's context")]
    fn on_frames(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        index: usize,
        from: PathAddress,
        plain: &[u8],
        (number, ecn): (u64, Ecn),
        packets: &mut impl PacketSink,
    ) {
        let mut asks = false;
        let mut closed = false;
        for frame in Frames::new(plain) {
            let Ok(frame) = frame else { break };
            asks |= frame.is_ack_eliciting();
            match frame {
                Frame::Packet { header, packet } => {
                    if let Err(reason) = self.on_packet(now, header, packet, cx, packets) {
                        cx.drops.count(reason);
                    }
                }
                Frame::Feedback(feedback) => self.on_feedback(now, cx, &feedback),
                Frame::Padding(_) | Frame::Heartbeat => {}
                Frame::PathChallenge(data) => {
                    self.paths[index].response_owed = Some((data, from));
                }
                Frame::PathResponse(data) => self.on_path_response(now, cx, index, from, data),
                Frame::Addresses { generation, list } => {
                    self.on_addresses(now, cx, generation, list.iter());
                }
                Frame::PathStatus { path, status, .. } => {
                    self.on_path_status(now, cx, path, status);
                }
                Frame::Skip { session, first, count } => {
                    self.on_skip(now, session, first, count, packets);
                }
                Frame::Resequencing { max_wait } => {
                    self.max_wait = Duration::from_micros(max_wait).min(LONGEST_MAX_WAIT);
                }
                Frame::SessionOpen { .. } => {}
                Frame::SessionClose { session } => {
                    if let Some(slot) = self.incoming.find(&session)
                        && let Some(removed) = self.incoming.remove(slot)
                    {
                        self.forget_incoming(slot, removed.value);
                    }
                }
                Frame::Close { .. } => closed = true,
                Frame::AddressObserved { .. } => {}
                Frame::CompactPacket { .. } | Frame::SessionUnknown { .. } => {}
            }
        }
        let path = &mut self.paths[index];
        let rtt = path.flight.rtt().smoothed();
        path.arrivals.on_packet(now, number, asks, ecn, rtt);
        if closed {
            self.lose(now, cx);
        }
    }

    fn on_feedback(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        feedback: &mpip_wire::Feedback<'_>,
    ) {
        let Some(index) = self.path_index(feedback.path) else { return };
        self.losses.clear();
        let path = &mut self.paths[index];
        let Ok(progress) = path.flight.on_feedback(now, feedback, &mut self.losses) else {
            cx.drops.count(DropReason::Malformed);
            return;
        };
        if let Some((sent, received)) = progress.delay {
            let reference =
                *self.delay_reference.get_or_insert_with(|| received.wrapping_sub(sent));
            path.delay.on_sample(now, clock_difference(sent, received, reference));
        }
        let own = self.gather_subflows(index);
        let Self { paths, losses, subflows, .. } = self;
        paths[index].on_progress(now, &progress, losses, subflows, own);
        if progress.acked > 0 && self.paths[index].state() == PathState::Failed {
            self.change_state(now, cx, index, PathState::Active, "it answers again");
        }
        self.repair_losses(Loss::Congestion);
    }

    fn on_packet(
        &mut self,
        now: Instant,
        frame: PacketFrameHeader,
        packet: &[u8],
        cx: &mut Context<'_>,
        sink: &mut impl PacketSink,
    ) -> Result<(), DropReason> {
        let header = Header::parse(packet).map_err(|_| DropReason::MalformedPacket)?;
        if header.total_len != packet.len() {
            return Err(DropReason::MalformedPacket);
        }
        if cx.prefixes.find(header.source) != Some(cx.me) {
            return Err(DropReason::ForeignSource);
        }
        let slot = match self.incoming.find(&frame.session) {
            Some(slot) => slot,
            None => self.accept_session(now, frame, &header),
        };
        self.incoming.touch(slot, now);
        let Self { incoming, hold, waiting, bytes_received, max_wait, limits, .. } = self;
        let session = incoming.get_mut(slot).expect("the slot was just found");
        let inner = InnerPacket { head: packet, tail: &[], checksum: Checksum::Complete };
        let mut deliver = |packet: InnerPacket<'_>| {
            *bytes_received += packet.len() as u64;
            sink.packet(packet);
        };
        session.counters.add(packet.len());
        match &mut session.order {
            Order::AsTheyCome(window) => match window.accept(frame.sequence) {
                Seen::New => deliver(inner),
                Seen::Duplicate | Seen::TooOld => cx.drops.count(DropReason::Duplicate),
            },
            Order::Sequenced(resequencer) => {
                let before = resequencer.deadline(hold);
                let hold_limits =
                    HoldLimits { max_wait: *max_wait, max_bytes: limits.resequencing / 2 };
                let received =
                    resequencer.receive(now, frame.sequence, inner, hold_limits, hold, deliver);
                if received == Received::Duplicate {
                    cx.drops.count(DropReason::Duplicate);
                }
                let after = resequencer.deadline(hold);
                if before != after {
                    before.map(|at| waiting.remove(&(at, slot)));
                    after.map(|at| waiting.insert((at, slot)));
                }
            }
        }
        Ok(())
    }

    fn accept_session(&mut self, now: Instant, frame: PacketFrameHeader, header: &Header) -> u32 {
        let order = match frame.ordered {
            true => Order::Sequenced(Box::default()),
            false => Order::AsTheyCome(Box::default()),
        };
        let session = Incoming { key: header.session(), order, counters: Counters::default() };
        let inserted = self.incoming.insert(now, frame.session, session);
        if let Some(removed) = inserted.removed {
            self.forget_incoming(removed.index, removed.value);
        }
        inserted.index
    }

    /// Gives back what a session held.
    pub(super) fn forget_incoming(&mut self, slot: u32, mut session: Incoming) {
        if let Order::Sequenced(resequencer) = &mut session.order {
            if let Some(at) = resequencer.deadline(&self.hold) {
                self.waiting.remove(&(at, slot));
            }
            resequencer.discard(&mut self.hold);
        }
    }

    fn on_skip(
        &mut self,
        now: Instant,
        session: SessionId,
        first: u32,
        count: u32,
        sink: &mut impl PacketSink,
    ) {
        let Some(slot) = self.incoming.find(&session) else { return };
        self.with_resequencer(slot, sink, |resequencer, hold, deliver| {
            resequencer.skip(now, first, count, hold, deliver);
        });
    }

    /// Releases what has waited for as long as it may.
    pub(super) fn release_overdue(&mut self, now: Instant, sink: &mut impl PacketSink) {
        while let Some(&(at, slot)) = self.waiting.first()
            && at <= now
        {
            self.waiting.pop_first();
            let max_wait = self.max_wait;
            self.with_resequencer(slot, sink, |resequencer, hold, deliver| {
                resequencer.expire(now, max_wait, hold, deliver);
            });
        }
    }

    fn with_resequencer(
        &mut self,
        slot: u32,
        sink: &mut impl PacketSink,
        act: impl FnOnce(
            &mut Resequencer,
            &mut crate::resequencer::HoldPool,
            &mut dyn FnMut(InnerPacket<'_>),
        ),
    ) {
        let Self { incoming, hold, waiting, bytes_received, .. } = self;
        let Some(Incoming { order: Order::Sequenced(resequencer), .. }) = incoming.get_mut(slot)
        else {
            return;
        };
        if let Some(at) = resequencer.deadline(hold) {
            waiting.remove(&(at, slot));
        }
        act(resequencer, hold, &mut |packet| {
            *bytes_received += packet.len() as u64;
            sink.packet(packet);
        });
        if let Some(at) = resequencer.deadline(hold) {
            waiting.insert((at, slot));
        }
    }
}
