//! The last step of sending a transport datagram: assign a number, seal, hand over, record.
//!
//! Packet numbers, and with them nonces, are assigned here and nowhere else.

use mpip_wire::{ReceiverIndex, TAG_LEN, TransportHeader, TruncatedNumber};

use super::Association;
use crate::content::Content;
use crate::parts::path_set::PathIndex;
use crate::parts::sizes::NUMBER_LEN;
use crate::trace::What;
use mpip_transport::cc::CongestionControlKind;
use mpip_types::Instant;
use mpip_types::{DatagramSink, Ecn, PacketPart, PathAddress, Sealing};

/// What loss detection and congestion control record about a datagram.
pub(super) struct SendInfo {
    /// It is ack-eliciting.
    pub(super) asks: bool,
    /// It is subject to pacing and congestion control.
    pub(super) paced: bool,
    /// It is a path MTU probe.
    pub(super) probe: bool,
    /// What to send again when it is lost.
    pub(super) content: Option<Content>,
}

impl Association {
    /// Sends `plain_len` bytes of frames on path `index` to `to`: those that `write` fills in, and
    /// `body`, which ends them. They are sealed now or later, as `out` chooses. Returns what
    /// `write` returned; `None` if there are no keys or the socket accepts no more now.
    #[expect(clippy::too_many_arguments, reason = "the parts of one datagram")]
    pub(super) fn send_datagram<T>(
        &mut self,
        now: Instant,
        index: PathIndex,
        to: PathAddress,
        plain_len: usize,
        body: Option<PacketPart<'_>>,
        info: SendInfo,
        out: &mut impl DatagramSink,
        write: impl FnOnce(&mut [u8]) -> T,
    ) -> Option<T> {
        let SendInfo { asks, paced, probe, content } = info;
        let epoch = self.keys.current_mut()?;
        let path = &mut self.paths[index];
        let number = path.flight.next_number();
        let header = TransportHeader {
            path: path.id,
            receiver: ReceiverIndex(epoch.peer_index),
            number: TruncatedNumber::new(number, NUMBER_LEN),
        };
        let header_len = header.encoded_len();
        let total = header_len + plain_len + TAG_LEN;
        // Without congestion control nothing reacts to a CE mark, so the datagram is Not-ECT (RFC
        // 6040, section 4.1).
        let answered = self.config.congestion_control != CongestionControlKind::None;
        let ecn = match answered && asks && to == path.address && path.is_validated() {
            true => path.flight.ecn(),
            false => Ecn::NotEct,
        };
        let mut slot = out.reserve(to, ecn, total)?;
        let (clear, sealed) = slot.bytes().split_at_mut(header_len);
        header.emit(clear).expect("room was reserved");
        let body_len = body.as_ref().map_or(0, |body| body.range().len());
        let written = write(&mut sealed[..plain_len - body_len]);
        let (key, clear_len) = (&epoch.keys.send, header_len);
        slot.seal(&Sealing { key, path: path.id.0, number, clear_len, body });
        epoch.sealed += 1;
        self.trace.record(now, path.id.0, || What::Sent {
            number,
            size: total,
            asks,
            inner: paced,
        });
        let in_rear = path.on_sent(now, total, asks, paced);
        path.flight.on_sent(now, total as u16, asks, probe, content);
        if ecn != Ecn::NotEct {
            path.flight.on_sent_capable();
        }
        if in_rear {
            path.flight.on_sent_in_rear();
        }
        Some(written)
    }
}
