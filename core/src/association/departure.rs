//! The last step of every transport datagram: number, seal, hand over, take note.
//!
//! Packet numbers, and with them nonces, are taken here and nowhere else.

use mpip_wire::{ReceiverIndex, TAG_LEN, TransportHeader, TruncatedNumber};

use super::Association;
use crate::content::Content;
use crate::parts::path_set::PathIndex;
use crate::parts::sizes::NUMBER_LEN;
use crate::trace::What;
use mpip_transport::cc::CongestionControlKind;
use mpip_types::Instant;
use mpip_types::{DatagramSink, Ecn, PathAddress};

/// What is to be remembered of a datagram that leaves.
pub(super) struct SendInfo {
    /// It asks for feedback.
    pub(super) asks: bool,
    /// It is held back by pacing and congestion control, and counts for them.
    pub(super) paced: bool,
    /// It probes the path's MTU.
    pub(super) probe: bool,
    /// What is to be sent or said again when it is lost.
    pub(super) content: Option<Content>,
}

impl Association {
    /// Sends `plain_len` bytes of frames, which `write` fills in, on path `index` to `to`. Returns
    /// what `write` returned; `None` if there are no keys or the socket takes no more now.
    #[expect(clippy::too_many_arguments, reason = "the parts of one datagram")]
    pub(super) fn send_datagram<T>(
        &mut self,
        now: Instant,
        index: PathIndex,
        to: PathAddress,
        plain_len: usize,
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
        // Where nothing answers a mark on the way, none is asked for (RFC 6040, section 4.1).
        let answered = self.config.congestion_control != CongestionControlKind::None;
        let ecn = match answered && asks && to == path.address && path.is_validated() {
            true => path.flight.ecn(),
            false => Ecn::NotEct,
        };
        let mut slot = out.reserve(to, ecn, total)?;
        let (clear, rest) = slot.bytes().split_at_mut(header_len);
        let (plain, tag) = rest.split_at_mut(plain_len);
        header.emit(clear).expect("room was reserved");
        let written = write(plain);
        tag.copy_from_slice(&epoch.keys.send.seal_in_place(path.id.0, number, clear, plain));
        slot.commit();
        epoch.sealed += 1;
        self.trace.record(now, path.id.0, || What::Sent {
            number,
            size: total,
            asks,
            inner: paced,
        });
        path.on_sent(now, total, asks, paced);
        path.flight.on_sent(now, total as u16, asks, probe, content);
        if ecn != Ecn::NotEct {
            path.flight.on_sent_capable();
        }
        Some(written)
    }
}
