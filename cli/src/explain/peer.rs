//! Whether a peer is connected, and how packets to it travel.

use mpip_api::{PeerStatus, Status};
use serde::Serialize;

use crate::units::{duration, rate};
use crate::words::{Condition, paths_of, works};

/// Whether a peer is connected, and why not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub(crate) enum Cause {
    /// No interface of this host has an address to call from.
    NoAddress,
    /// It is called, and does not answer.
    NoAnswer {
        /// Handshakes in a row without an answer.
        attempts: u32,
        /// Time since the first.
        unanswered_ms: f64,
        attempt_in_ms: Option<f64>,
        /// Time since the last handshake that was answered.
        handshake_age_ms: Option<f64>,
    },
    /// It has not called, and this host does not know where to call it.
    NotCalled { uptime_ms: f64, handshake_age_ms: Option<f64> },
    /// There are keys, and no path works.
    NoPath { path_count: usize, attempt_in_ms: Option<f64> },
    /// Paths work.
    Connected {
        /// How many.
        working_paths: usize,
        /// Of how many.
        path_count: usize,
        /// Inner data that all carry.
        carried_bps: u64,
        /// What comes in, with all overhead.
        received_bps: u64,
        scheduler: String,
    },
}

impl Cause {
    /// Why `peer` of `status` is connected or not. `carried_bps`, `received_bps`: what its paths
    /// send and receive now.
    pub(crate) fn of(
        status: &Status,
        peer: &PeerStatus,
        carried_bps: u64,
        received_bps: u64,
    ) -> Self {
        let PeerStatus { handshake_age_ms, attempt_in_ms, handshake_attempts: attempts, .. } =
            *peer;
        let working = peer.paths.iter().filter(|path| works(path)).count();
        match peer.established {
            false if status.local_addresses.is_empty() => Self::NoAddress,
            false if attempts == 0 && attempt_in_ms.is_none() => {
                Self::NotCalled { uptime_ms: status.uptime_ms, handshake_age_ms }
            }
            false => {
                let unanswered_ms = peer.unanswered_ms.unwrap_or_default();
                Self::NoAnswer { attempts, unanswered_ms, attempt_in_ms, handshake_age_ms }
            }
            true if working == 0 => {
                Self::NoPath { path_count: paths_of(peer).0.len(), attempt_in_ms }
            }
            true => Self::Connected {
                working_paths: working,
                path_count: paths_of(peer).0.len().max(working),
                carried_bps,
                received_bps,
                scheduler: peer.scheduler.clone(),
            },
        }
    }

    /// How good that is.
    pub(crate) fn condition(&self) -> Condition {
        if matches!(self, Self::Connected { .. }) { Condition::Good } else { Condition::Wrong }
    }

    /// What follows the peer's name in the sentence.
    pub(crate) fn why(&self) -> String {
        let before = |age: &Option<f64>| match age {
            Some(age) => format!("; the last handshake was answered {} ago", duration(Some(*age))),
            None => String::new(),
        };
        match self {
            Self::NoAddress => {
                "is not connected: no interface of this host has an address that paths can start \
                 from"
                    .to_owned()
            }
            Self::NoAnswer { attempts: 0, handshake_age_ms, .. } => {
                format!("is not connected: no handshake has left yet{}", before(handshake_age_ms))
            }
            Self::NoAnswer { attempts, unanswered_ms, handshake_age_ms, .. } => format!(
                "is not connected: no answer to {} in {}{}",
                if *attempts == 1 {
                    "a handshake".to_owned()
                } else {
                    format!("{attempts} handshakes")
                },
                duration(Some(*unanswered_ms)),
                before(handshake_age_ms)
            ),
            Self::NotCalled { uptime_ms, handshake_age_ms } => format!(
                "is not connected: it has to call, because `endpoints` of this host names no address \
                 of it, and has not for {}",
                duration(Some(handshake_age_ms.unwrap_or(*uptime_ms)))
            ),
            Self::NoPath { path_count, .. } => {
                format!("is connected, and none of its {path_count} paths works")
            }
            Self::Connected { working_paths: working, path_count: count, .. } => {
                format!("is connected by {working} of {count} paths; {}", self.does())
            }
        }
    }

    /// What this host does with the paths of a peer that is connected.
    fn does(&self) -> String {
        let Self::Connected { carried_bps, received_bps, scheduler, .. } = self else {
            return String::new();
        };
        let (sends, receives) = (rate(*carried_bps), rate(*received_bps));
        format!(
            "this host sends {sends} and receives {receives}, and the scheduler `{scheduler}` \
             chooses the path of each packet"
        )
    }

    /// What would change it; none where nothing has to.
    pub(crate) fn change(&self) -> Option<String> {
        let next = |attempt: &Option<f64>| match attempt {
            Some(ms) => format!("the next handshake leaves in {}", duration(Some(*ms))),
            None => "a handshake follows".to_owned(),
        };
        match self {
            Self::NoAddress => Some("`mpip doctor` says what keeps interfaces out".to_owned()),
            Self::NoAnswer { attempt_in_ms, .. } => Some(format!(
                "{}; `mpip doctor` on both hosts looks for what is in the way",
                next(attempt_in_ms)
            )),
            Self::NotCalled { .. } => Some("`mpip explain` there says whether it calls".to_owned()),
            Self::NoPath { attempt_in_ms, .. } => {
                Some(format!("{}, unless a path answers first", next(attempt_in_ms)))
            }
            Self::Connected { .. } => None,
        }
    }
}

/// How packets between this host and a peer in host mode travel, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub(crate) enum Traffic {
    /// On the paths.
    Paths { captured: Vec<String> },
    /// As plain IP: the policy says so.
    Off,
    /// As plain IP: no path works, or there is no association.
    FellBack,
    /// As plain IP for some time still: the paths came and went.
    HeldDown { returns_in_ms: f64 },
    /// As plain IP: no address is known to be the peer's alone.
    NothingCaptured,
    /// They are refused: the policy forbids plain IP.
    Refused,
    /// A state of a newer daemon.
    Other { traffic: String },
}

impl Traffic {
    /// How packets to `peer` travel; `None` outside of host mode.
    pub(crate) fn of(peer: &PeerStatus) -> Option<Self> {
        let works = peer.established && peer.paths.iter().any(works);
        Some(match (peer.traffic.as_deref()?, peer.returns_in_ms) {
            ("multipath", _) => Self::Paths { captured: peer.captured.clone() },
            ("blocked", _) => Self::Refused,
            ("plain", _) if peer.policy == "off" => Self::Off,
            ("plain", Some(returns_in_ms)) => Self::HeldDown { returns_in_ms },
            ("plain", None) if works => Self::NothingCaptured,
            ("plain", None) => Self::FellBack,
            (other, _) => Self::Other { traffic: other.to_owned() },
        })
    }

    /// How good that is.
    pub(crate) fn condition(&self) -> Condition {
        match self {
            Self::Paths { .. } => Condition::Good,
            Self::Refused => Condition::Wrong,
            _ => Condition::Spare,
        }
    }

    /// The sentence, without its end.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Paths { captured } => {
                format!("packets to {} use the paths, because paths work", listed(captured))
            }
            Self::Off => "packets travel as plain IP: the policy is off".to_owned(),
            Self::FellBack => {
                "packets travel as plain IP: no path works, and the policy is prefer".to_owned()
            }
            Self::HeldDown { .. } => {
                "packets travel as plain IP although a path works: paths came and went".to_owned()
            }
            Self::NothingCaptured => {
                "packets travel as plain IP although a path works: no address \
                                      is known to be the peer's alone"
                    .to_owned()
            }
            Self::Refused => {
                "packets are refused: no path works, and the policy is require".to_owned()
            }
            Self::Other { traffic } => format!("packets travel in the way `{traffic}`"),
        }
    }

    /// What would change it; none where nothing has to.
    pub(crate) fn change(&self) -> Option<String> {
        match self {
            Self::Paths { .. } | Self::Other { .. } => None,
            Self::Off => Some("policy prefer or require puts them on the paths".to_owned()),
            Self::FellBack | Self::Refused => Some("they use the paths when one works".to_owned()),
            Self::HeldDown { returns_in_ms } => Some(format!(
                "they return to the paths in {}, if one works then",
                duration(Some(*returns_in_ms))
            )),
            Self::NothingCaptured => Some(
                "`exclusive` in the configuration says which addresses nobody shares with it"
                    .to_owned(),
            ),
        }
    }
}

/// The first of `captured`, and how many others there are.
fn listed(captured: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = captured.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match captured.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
