//! Which paths a packet would take now, and why, without sending one.

use core::time::Duration;

use super::Association;
use crate::config::Priority;
use crate::parts::selection::is_first_choice;
use crate::parts::sending::Allowed;
use crate::rules::Treatment;
use crate::shared::Context;
use crate::status::{PathRole, Way, WayPath};
use mpip_types::Instant;

impl Association {
    /// The paths for a packet of `len` bytes that is treated so.
    pub(crate) fn way(
        &mut self,
        now: Instant,
        treatment: &Treatment,
        len: usize,
        cx: &Context<'_>,
    ) -> Way {
        self.follow_rules(cx);
        let Treatment { priority, copies, paths, scheduler, .. } = *treatment;
        let allowed = Allowed::ByRule(paths);
        self.selection.forget();
        let any = self.selection.gather(now, &self.paths, len, priority, allowed);
        let first = match priority {
            Priority::Response | Priority::Redundant if any => {
                self.selection.fastest(now, &self.paths, len)
            }
            _ => None,
        };
        if let Some(first) = first
            && priority == Priority::Redundant
        {
            let parameters = &self.parameters.copies;
            self.selection.plan_copies(now, &self.paths, first, copies, parameters);
        }
        let carried: u64 = self.paths.iter().map(|path| path.counters.carried).sum();
        let fastest = self.paths.validated().filter_map(|path| path.delay.average()).min();
        let mut shown = Vec::new();
        for (index, path) in self.paths.enumerate() {
            if !path.is_validated() {
                continue;
            }
            let bulk = priority == Priority::Throughput;
            let role = if first == Some(index) {
                PathRole::Takes
            } else if first.is_some() && self.selection.has_copy(index) {
                PathRole::Copy
            } else if any && bulk && self.selection.has_gathered(index) {
                PathRole::Candidate
            } else {
                PathRole::None
            };
            let delay = path.delay.average().zip(fastest).map(|(delay, fastest)| {
                Duration::from_micros(delay.saturating_sub(fastest).unsigned_abs())
            });
            let rtt = path.flight.rtt();
            shown.push(WayPath {
                id: path.id.0,
                interface: path.interface.clone(),
                role,
                relative_delay: delay,
                rtt: rtt.is_known().then(|| rtt.smoothed()),
                loss: path.loss(),
                share: path.counters.carried as f64 / carried.max(1) as f64,
                hold: self.selection.hold(path, &self.paths, now, len, priority, allowed),
                preferred: is_first_choice(path, allowed),
            });
        }
        let scheduler = scheduler.unwrap_or(self.config.scheduler);
        Way { scheduler: scheduler.name(), paths: shown }
    }
}
