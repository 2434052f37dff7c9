//! Statistics of a path.

use core::time::Duration;

use crate::content::Path;
use crate::guard::{GuardFigures, Role};
use crate::parts::selection::Hold;
use crate::status::PathStatus;
use mpip_types::Instant;

/// The status of `path`. `fastest`: the lowest delay of the association's paths; `carried`: the
/// bytes that all of them have carried; `part` and `figures`: the guard's decision; `hold`: why the
/// path may not carry a packet now.
pub(crate) fn of(
    path: &Path,
    now: Instant,
    fastest: Option<i64>,
    carried: u64,
    weight: u16,
    (part, figures, hold): (Role, Option<GuardFigures>, Option<Hold>),
) -> PathStatus {
    let rtt = path.flight.rtt();
    let relative = match (path.delay.average(), fastest) {
        (Some(delay), Some(fastest)) => {
            Some(Duration::from_micros(delay.saturating_sub(fastest).unsigned_abs()))
        }
        _ => None,
    };
    let share = path.counters.carried as f64 / carried.max(1) as f64;
    PathStatus {
        id: path.id.0,
        interface: path.interface.clone(),
        local: path.local,
        remote: path.address.remote,
        observed: path.seen.ours,
        encapsulation: path.encapsulation,
        cost: path.reserve.cost(),
        rate_limit: path.rate_limit(),
        rate_up: path.rate_up,
        rate_down: path.reserve.told_limit(),
        rate_told: path.reserve.peer_limit(),
        state: path.state(),
        since: now.since(path.changed),
        reason: path.reason,
        overdue: path.flight.silent_since().filter(|_| path.is_silent()).map(|at| now.since(at)),
        asks_in: path.asks_at().map(|at| at.since(now)),
        resting: path.rest.is_resting(),
        keepalive: path.rest.interval(),
        rtt: rtt.is_known().then(|| rtt.smoothed()),
        min_rtt: rtt.is_known().then(|| rtt.minimum()),
        relative_delay: relative,
        queuing_delay: path.delay.queuing(),
        jitter: path.delay.jitter(),
        loss: path.loss(),
        delivery_rate: path.flight.delivery_rate().saturating_mul(8),
        pacing_rate: path.pacing_rate().map(|rate| rate.saturating_mul(8)),
        window: path.cc.window(),
        in_flight: path.flight.in_flight(),
        congestion_state: path.cc.state(),
        bottleneck: path.bottleneck,
        ecn: path.flight.ecn_name(),
        weight,
        bytes_sent: path.counters.bytes_sent,
        bytes_received: path.counters.bytes_received,
        packets_sent: path.counters.packets_sent,
        packets_received: path.counters.packets_received,
        packets_lost: path.counters.packets_lost,
        spurious_losses: path.counters.spurious,
        reordering_window: path.flight.reordering_window(),
        reordering_extent: path.flight.reordering_extent(),
        carried: path.counters.carried,
        copied: path.counters.copied,
        share,
        hold,
        guard: part.name(),
        guard_figures: figures,
        loss_figures: None,
        times_left_out: path.counters.left_out,
        mtu: path.mtu(),
    }
}
