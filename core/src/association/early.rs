//! Packets on paths that are not validated yet, while no path works.
//!
//! Validation takes one round trip after a path is opened or moved, and half a round trip more in
//! the other direction. When no other path works, this time need not be lost: the node with the new
//! address knows the other's address from before and may send a first flight with its challenge
//! (`[P-28]`), and the other node may send as many bytes as it received (`[P-29]`). Both are bytes
//! of the path's `credit`. Packets in flight there are sent again when another path works first,
//! and when the challenge is repeated.

use super::Association;
use crate::parts::addresses::local;
use crate::parts::path_set::PathIndex;
use crate::parts::sending::LossCause;
use crate::shared::Context;
use mpip_types::Encapsulation;
use mpip_types::Instant;
use mpip_types::{DatagramSink, PathAddress};

impl Association {
    /// Whether no path carries packets.
    pub(super) fn is_cut_off(&self) -> bool {
        !self.paths.any_works()
    }

    /// Whether a first flight may go to `to` before the address has answered. By TCP nothing leaves
    /// before the connection is open, which proves the address.
    pub(super) fn trusts(&self, now: Instant, to: PathAddress, cx: &Context<'_>) -> bool {
        local(to, &cx.shared.locals).is_some_and(|local| local.encapsulation == Encapsulation::Udp)
            && self.peer.was_at(now, to.remote)
    }

    /// Whether a path can carry packets before it is validated.
    pub(super) fn has_early_path(&self) -> bool {
        self.is_cut_off() && self.paths.iter().any(|path| path.early_room() > 0)
    }

    /// Repeats challenges up to the number of bytes received: a node that has little else to send
    /// needs no further round trip.
    pub(super) fn repeat_challenges_on_credit(
        &mut self,
        now: Instant,
        index: PathIndex,
        out: &mut impl DatagramSink,
    ) {
        let cut_off = self.is_cut_off();
        while let Some(len) = self.paths[index].lends().filter(|_| cut_off) {
            self.write_challenge(now, index, out);
            self.paths[index].spend(len);
        }
    }

    /// Sends again what left on path `index` before it was validated: it may be lost.
    pub(super) fn requeue_early(&mut self, index: PathIndex) {
        let path = &mut self.paths[index];
        if !path.works() && path.flight.in_flight() > 0 {
            path.abandon(&mut self.losses);
            self.repair_losses(LossCause::PathFailed);
        }
    }

    /// As [`requeue_early`](Self::requeue_early), for all paths that do not work.
    pub(super) fn requeue_all_early(&mut self) {
        for index in self.paths.indices() {
            self.requeue_early(index);
        }
    }
}
