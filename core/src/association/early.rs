//! Packets on paths whose other end has not answered yet, while no path works.
//!
//! A path is validated one round trip after it is opened or moved, and the side that is challenged
//! in turn waits for half of one more. Where nothing else works, that need not be lost: who has a
//! new address knows the other's from before and may send a first flight along with its challenge
//! (`[P-28]`), and who is called may send as many bytes as came (`[P-29]`). Both are bytes of the
//! path's `credit`. What is in flight there is sent again elsewhere when another path works first,
//! and when the challenge has to be repeated.

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

    /// Whether a first flight may go to `to` before that has answered. By TCP nothing leaves before
    /// the connection is open, which is proof enough.
    pub(super) fn trusts(&self, now: Instant, to: PathAddress, cx: &Context<'_>) -> bool {
        local(to, &cx.shared.locals).is_some_and(|local| local.encapsulation == Encapsulation::Udp)
            && self.peer.was_at(now, to.remote)
    }

    /// Whether a path that has not been validated takes something before it is.
    pub(super) fn has_early_path(&self) -> bool {
        self.is_cut_off() && self.paths.iter().any(|path| path.early_room() > 0)
    }

    /// Who is called may answer with as many bytes as came: when we have little to send, the
    /// challenge is repeated at once.
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

    /// What was sent on path `index` before it was validated may not have arrived.
    pub(super) fn requeue_early(&mut self, index: PathIndex) {
        let path = &mut self.paths[index];
        if !path.works() && path.flight.in_flight() > 0 {
            path.flight.abandon(&mut self.losses);
            self.repair_losses(LossCause::PathFailed);
        }
    }

    /// The same, on all paths that do not work.
    pub(super) fn requeue_all_early(&mut self) {
        for index in self.paths.indices() {
            self.requeue_early(index);
        }
    }
}
