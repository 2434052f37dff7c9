//! Schedulers: which path the next packet takes. Each one is a small file that implements
//! [`Scheduler`].

mod choice;
mod earliest;
mod fastest_first;
mod round_robin;
mod weighted;

pub(crate) use self::choice::{Candidate, Demand, PERIOD, Scheduler};
use crate::config::{PeerConfig, SchedulerKind};
use crate::parameters::EarliestParameters;

/// A scheduler of this kind for the paths to a peer; `parameters` are those of `earliest`.
pub(crate) fn new(
    kind: SchedulerKind,
    config: &PeerConfig,
    parameters: &EarliestParameters,
) -> Box<dyn Scheduler> {
    match kind {
        SchedulerKind::Earliest => Box::new(earliest::Earliest::new(parameters)),
        SchedulerKind::Weighted if config.fixed_weights.is_empty() => {
            Box::new(weighted::Weighted::adaptive(config.weight_adaptation))
        }
        SchedulerKind::Weighted => Box::new(weighted::Weighted::fixed()),
        SchedulerKind::FastestFirst => Box::new(fastest_first::FastestFirst),
        SchedulerKind::RoundRobin => Box::new(round_robin::RoundRobin::default()),
    }
}

#[cfg(test)]
mod tests;
