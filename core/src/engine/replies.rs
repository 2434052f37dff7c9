//! Replies outside of associations: cookies and availability answers.

use std::collections::VecDeque;

use crate::handshake::Source;
use mpip_types::{DatagramSink, PathAddress};

/// Most replies that wait for the next flush.
const REPLIES: usize = 64;
/// Most of them to one source.
const REPLIES_TO_SOURCE: usize = 4;

/// Replies that wait for the next flush. Beyond the bounds the newest are dropped: the sender
/// retries.
#[derive(Debug, Default)]
pub(super) struct Replies(VecDeque<(PathAddress, Vec<u8>)>);

impl Replies {
    pub(super) fn push(&mut self, to: PathAddress, datagram: Vec<u8>) {
        let source = |to: &PathAddress| Source::of(to.remote.ip());
        let same = self.0.iter().filter(|(other, _)| source(other) == source(&to)).count();
        if self.0.len() < REPLIES && same < REPLIES_TO_SOURCE {
            self.0.push_back((to, datagram));
        }
    }

    pub(super) fn send(&mut self, out: &mut impl DatagramSink) {
        while let Some((to, datagram)) = self.0.pop_front() {
            // A reply that finds no room is dropped, as if lost on the network.
            out.send(to, &datagram);
        }
    }
}
