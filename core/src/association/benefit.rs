//! Feeds the [`Guard`](crate::guard::Guard) with measurements of paths and traffic, and applies its
//! verdicts.

use super::Association;
use crate::config::{LossPolicy, SchedulerKind};
use crate::content::Path;
use crate::event::Event;
use crate::guard::{Verdict, View};
use crate::shared::Context;
use crate::trace::What;
use mpip_transport::PathState;
use mpip_types::Instant;

/// Bytes in flight above which a path carries data. Heartbeats have fewer.
const MIN_DATA_IN_FLIGHT: u64 = 300;

impl Association {
    /// Runs the guard at the end of a period: paths that reduce the total throughput are left out,
    /// others return. Only with `loss_policy = "measured"`. Only the `earliest` scheduler needs
    /// it; the others choose their paths themselves.
    pub(super) fn update_guard(&mut self, now: Instant, cx: &mut Context<'_>) {
        let mut period = self.sending.take_period();
        if self.config.scheduler != SchedulerKind::Earliest
            || self.config.loss_policy != LossPolicy::Measured
        {
            return;
        }
        let in_flight = |path: &Path| path.flight.in_flight() > MIN_DATA_IN_FLIGHT;
        period.load = self.has_waiting()
            || self.paths.iter().any(|path| path.state() == PathState::Active && in_flight(path));
        let limit = self.selection.tiers.limit();
        let views: Vec<View> = self.paths.validated().map(|path| view(path, limit)).collect();
        let mut verdicts = Vec::new();
        self.selection.guard.on_period(now, period, &views, &mut verdicts);
        for verdict in verdicts {
            self.report_verdict(now, cx, verdict);
        }
    }

    fn report_verdict(&mut self, now: Instant, cx: &mut Context<'_>, verdict: Verdict) {
        let Verdict { path, left_out, with, without, reason } = verdict;
        let what = || What::LeftOut { left_out, with, without, reason };
        self.trace.record(now, path, what);
        let Some(path) = self.paths.iter_mut().find(|other| other.id.0 == path) else { return };
        path.counters.left_out += u64::from(left_out);
        cx.shared.events.push_back(Event::LeftOut {
            peer: self.config.name.clone(),
            path: path.id.0,
            interface: path.interface.clone(),
            left_out,
            with: with.saturating_mul(8),
            without: without.saturating_mul(8),
            reason,
        });
    }
}

/// The guard's view of a path. Those that cost more than `limit` carry nothing, as if on standby.
fn view(path: &Path, limit: u8) -> View {
    let rtt = path.flight.rtt().smoothed();
    let works = path.state() == PathState::Active;
    View {
        id: path.id.0,
        active: works && path.reserve.cost() <= limit,
        works,
        rate: path.delivers(),
        late: path.delay.average().unwrap_or(0) + 4 * path.delay.jitter().as_micros() as i64,
        repair: (rtt + path.flight.reordering_window()).as_micros() as i64,
        lost: path.counters.packets_lost,
        carried: path.counters.carried,
        searches: path.searches(),
    }
}
