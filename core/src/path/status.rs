//! What is told of a path: to coupled congestion control, traces and users.

use core::time::Duration;

use super::Path;
use crate::cc::Subflow;
use crate::guard::Part;
use crate::status::PathStatus;
use crate::trace::Metrics;

impl Path {
    /// Summary for coupled congestion control.
    pub(crate) fn subflow(&self) -> Subflow {
        Subflow {
            window: self.cc.window(),
            rtt: self.flight.rtt().smoothed(),
            between_losses: self.cc.between_losses(),
            reduced: self.cc.reduced(),
            drains: self.cc.drains(),
            delivered: self.cc.delivered(),
        }
    }

    /// What is known of the path, for a trace.
    pub(crate) fn metrics(&self) -> Metrics {
        let rtt = self.flight.rtt();
        Metrics {
            smoothed_rtt: rtt.smoothed(),
            min_rtt: rtt.minimum(),
            queuing_delay: self.delay.queuing(),
            window: self.cc.window(),
            in_flight: self.flight.in_flight(),
            pacing_rate: self.cc.pacing_rate(),
            delivery_rate: self.flight.delivery_rate(),
            reordering_window: self.flight.reordering_window(),
        }
    }

    /// Statistics. `fastest` is the lowest delay of the association's paths, `carried` what all of
    /// them have carried, `part` what the guard does with this one.
    pub(crate) fn status(
        &self,
        fastest: Option<i64>,
        carried: u64,
        weight: u16,
        part: Part,
    ) -> PathStatus {
        let rtt = self.flight.rtt();
        let relative = match (self.delay.average(), fastest) {
            (Some(delay), Some(fastest)) => {
                Some(Duration::from_micros(delay.saturating_sub(fastest).unsigned_abs()))
            }
            _ => None,
        };
        let share = self.counters.carried as f64 / carried.max(1) as f64;
        PathStatus {
            id: self.id.0,
            interface: self.interface.clone(),
            local: self.local,
            remote: self.address.remote,
            observed: self.observed,
            encapsulation: self.encapsulation,
            state: self.state,
            resting: self.rest.is_resting(),
            keepalive: self.rest.interval(),
            rtt: rtt.is_known().then(|| rtt.smoothed()),
            min_rtt: rtt.is_known().then(|| rtt.minimum()),
            relative_delay: relative,
            queuing_delay: self.delay.queuing(),
            jitter: self.delay.jitter(),
            loss: self.loss.share(),
            delivery_rate: self.flight.delivery_rate().saturating_mul(8),
            pacing_rate: self.cc.pacing_rate().map(|rate| rate.saturating_mul(8)),
            window: self.cc.window(),
            in_flight: self.flight.in_flight(),
            congestion_state: self.cc.state(),
            bottleneck: self.bottleneck,
            ecn: self.flight.ecn.name(),
            weight,
            bytes_sent: self.counters.bytes_sent,
            bytes_received: self.counters.bytes_received,
            packets_sent: self.counters.packets_sent,
            packets_received: self.counters.packets_received,
            packets_lost: self.counters.packets_lost,
            spurious_losses: self.counters.spurious,
            reordering_window: self.flight.reordering_window(),
            reordering_extent: self.flight.reordering_extent(),
            share,
            guard: part.name(),
            times_left_out: self.counters.left_out,
            mtu: self.mtu.hoped(),
        }
    }
}
