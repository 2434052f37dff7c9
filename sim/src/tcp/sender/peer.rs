//! State of the receiving end.

use smoltcp::wire::{TcpRepr, TcpSeqNumber};

/// Maximum segment size of a peer that announces none (RFC 9293, section 3.7.1).
const DEFAULT_MSS: u16 = 536;

/// The receiving end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// Its next sequence number.
    pub(super) expected: TcpSeqNumber,
    /// Largest segment that it takes, in bytes.
    pub(super) mss: usize,
    /// Its window in bytes.
    pub(super) window: u64,
    window_shift: u8,
}

impl Peer {
    pub(super) fn new() -> Self {
        Self { expected: TcpSeqNumber(0), mss: DEFAULT_MSS.into(), window: 0, window_shift: 0 }
    }

    /// Takes its answer to the SYN.
    pub(super) fn on_syn(&mut self, repr: &TcpRepr<'_>) {
        self.expected = repr.seq_number + 1;
        self.mss = repr.max_seg_size.unwrap_or(DEFAULT_MSS).into();
        self.window_shift = repr.window_scale.unwrap_or(0);
        self.window = u64::from(repr.window_len);
    }

    /// Takes the sequence numbers of a segment. Returns whether it has to be acknowledged.
    pub(super) fn on_segment(&mut self, repr: &TcpRepr<'_>) -> bool {
        if repr.seq_number == self.expected {
            self.expected += repr.segment_len();
        }
        repr.segment_len() > 0
    }

    /// Takes the window of an acknowledgement, which is `newer` than all others or equals the
    /// newest. Acknowledgements may be reordered, so one that is not newer may open or close the
    /// window, but not reduce it (as in Linux).
    pub(super) fn on_window(&mut self, repr: &TcpRepr<'_>, newer: bool) {
        let window = u64::from(repr.window_len) << self.window_shift;
        if newer || window > self.window || window == 0 {
            self.window = window;
        }
    }
}
