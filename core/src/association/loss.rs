//! Feeds [`LossStandby`](crate::loss_standby::LossStandby) with the losses of paths, and applies
//! what it decides.

use super::Association;
use crate::config::LossPolicy;
use crate::content::Path;
use crate::loss_standby::{LossFigures, LossView};
use crate::parameters::LossStandbyParameters;
use crate::shared::Context;
use mpip_transport::PathState;
use mpip_types::Instant;

/// Why a path is on standby: its loss.
pub(super) const REACHES: &str = "its loss reaches its threshold";
/// Why it has returned.
pub(super) const BELOW: &str = "its loss is below its threshold again";
/// Why it has returned without that.
pub(super) const NOT_JUDGED: &str = "no threshold of loss applies to it any more";

impl Association {
    /// Runs `loss_policy = "threshold"` at the end of a period: paths whose loss reaches the
    /// threshold of their interface go on standby, and return when it is below it again. Those on
    /// standby are probed, so that this shows.
    pub(super) fn update_loss_standby(&mut self, now: Instant, cx: &mut Context<'_>) {
        if self.config.loss_policy == LossPolicy::Threshold {
            self.judge_losses(now, cx);
        }
        let interval = self.parameters.loss_standby.probe;
        for path in &mut self.paths {
            // Where data is paid for by amount, heartbeats have to suffice.
            let measured = path.state() == PathState::Standby
                && !path.metered
                && self.loss_standby.holds(path.id.0);
            path.measured_every = measured.then_some(interval);
        }
    }

    fn judge_losses(&mut self, now: Instant, cx: &mut Context<'_>) {
        let thresholds = &cx.shared.interfaces.loss_thresholds;
        let standby = &cx.shared.interfaces.standby;
        let heeds = self.heeds_standby();
        let aside =
            |path: &Path| standby.contains(&path.interface) || heeds && path.reserve.is_wanted();
        let views = self.paths.validated().map(|path| LossView {
            id: path.id.0,
            threshold: thresholds.get(&path.interface).copied(),
            active: path.state() == PathState::Active,
            free: path.works() && !path.is_silent() && !aside(path),
            sent: path.counters.packets_asking,
            lost: path.counters.packets_lost.saturating_sub(path.counters.spurious),
            queued: may_be_queued(path, &self.parameters.loss_standby),
            rtt: path.flight.rtt().smoothed(),
        });
        let views: Vec<LossView> = views.collect();
        if self.loss_standby.on_period(now, &views, &self.parameters.loss_standby) {
            self.limit_to_fastest(now, cx);
        }
    }

    /// The loss of path `id`, if it is the `reason` for a change of its state.
    pub(super) fn loss_figures_of(&self, id: u16, reason: &str) -> Option<LossFigures> {
        if reason == REACHES || reason == BELOW { self.loss_standby.figures(id) } else { None }
    }
}

/// Whether what `path` loses now may have been dropped by a full queue: it has one, or searches for
/// the rate at which one begins.
fn may_be_queued(path: &Path, parameters: &LossStandbyParameters) -> bool {
    path.searches()
        || path.cc.state() == "slow-start"
        || path.delay.queuing() >= parameters.queued + path.delay.jitter() * 4
}
