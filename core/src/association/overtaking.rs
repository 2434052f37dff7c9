//! Copies by a path that has nothing to send.
//!
//! At the end of a transfer, or of a round of its slow start, a slow path may hold packets for long
//! after faster ones have delivered theirs, and the receiver waits for them. When nothing waits to
//! be sent, a path that is idle sends these packets, too, if they arrive sooner there, as Multipath
//! TCP does with its opportunistic retransmission. They stay in flight on the slow path, whose
//! congestion control learns what it would have learned.

use core::time::Duration;

use mpip_transport::cc::CongestionControlKind;
use mpip_types::Instant;
use rand_chacha::ChaCha8Rng;

use super::Association;
use crate::config::{Priority, SchedulerKind};
use crate::content::{Content, Path};
use crate::parts::path_set::PathIndex;
use crate::parts::sending::{Allowed, LossCause};
use crate::rules::PathLimit;
use crate::scheduler::{Candidate, Demand};

/// Length that a copied packet is expected to have, bytes.
const FULL: usize = 1_400;

impl Association {
    /// Queues what an idle path delivers sooner than the paths on which it is in flight. Returns
    /// whether there is any.
    pub(super) fn overtake(&mut self, now: Instant, draws: &mut ChaCha8Rng) -> bool {
        let Some(by) = self.idle_path(now, draws) else { return false };
        let idle = Candidate::of(&self.paths[by], now, FULL);
        let copy_takes = idle.takes(FULL);
        let mut arrives = idle.arrival_without_queue(FULL);
        let rtt = self.paths[by].flight.rtt().smoothed().as_micros() as f64;
        let saves = (rtt * self.parameters.overtaking.saves) as i64;
        let longest = self.parameters.repair.longest;
        for index in self.paths.indices().filter(|index| *index != by) {
            let path = &mut self.paths[index];
            let Some(delay) = path.delay.average().filter(|_| path.works()) else { continue };
            let delay = delay - path.delay.queuing().as_micros() as i64;
            let is_overtaken = |content: &Content, queued: Duration| {
                let Content::Packet(packet) = content else { return false };
                let expected = delay + queued.as_micros() as i64;
                // What is older is not sent again, and the receiver would be told not to wait.
                let young = now.since(packet.first_sent) < longest;
                let overtaken =
                    young && packet.paths == PathLimit::Any && expected - arrives > saves;
                arrives += if overtaken { copy_takes } else { 0 };
                overtaken
            };
            path.take_newest(is_overtaken, &mut self.losses);
        }
        let any = !self.losses.lost.is_empty();
        if any {
            self.repair_losses(LossCause::Overtaken);
        }
        any
    }

    /// The path that a packet would take now, if it is idle while others are not and nothing waits.
    fn idle_path(&mut self, now: Instant, draws: &mut ChaCha8Rng) -> Option<PathIndex> {
        let parameters = self.parameters.overtaking;
        let is_idle = |path: &Path| path.flight.in_flight() <= u64::from(parameters.idle);
        let mut usable = self.paths.iter().filter(|path| path.is_usable());
        // Without congestion control, losses are the only signal to the inner TCP, and schedulers
        // other than this one do not look at the time of arrival.
        let may = parameters.enabled
            && self.config.congestion_control != CongestionControlKind::None
            && self.config.scheduler == SchedulerKind::Earliest
            && !self.sending.has_waiting();
        if !may || usable.clone().all(is_idle) || !usable.any(is_idle) {
            return None;
        }
        let (priority, any) = (Priority::Throughput, Allowed::ByRule(PathLimit::Any));
        if !self.selection.gather(now, &self.paths, FULL, priority, any) {
            return None;
        }
        let busy_since = self.sending.busy_since();
        let demand = Demand { len: FULL, ordered: true, backlog: 0, held: None, busy_since };
        let chosen = self.selection.choose(now, &self.paths, priority, None, &demand, draws);
        chosen.filter(|index| is_idle(&self.paths[*index]))
    }
}
