//! The keys of a scenario file and their types.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use mpip_link::{Change, Loss, QueueLimit};

use crate::units;

/// A quantity that is written as a string with a unit.
macro_rules! quantity {
    ($name:ident, $type:ty, $parse:path) => {
        pub(super) struct $name(pub(super) $type);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                $parse(&text).map($name).map_err(D::Error::custom)
            }
        }
    };
}

quantity!(Time, Duration, units::parse_duration);
quantity!(Queue, QueueLimit, units::parse_queue);
quantity!(Rate, u64, units::parse_rate);
quantity!(Bytes, u64, units::parse_bytes);
quantity!(Probability, f64, units::parse_probability);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCodel {
    pub(super) enabled: Option<bool>,
    pub(super) target: Option<Time>,
    pub(super) interval: Option<Time>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBurstLoss {
    pub(super) good_to_bad: Probability,
    pub(super) bad_to_good: Probability,
    pub(super) good_loss: Option<Probability>,
    pub(super) bad_loss: Option<Probability>,
}

/// A table with the settings of a link and the keys `$field`. Three tables have these settings.
/// serde cannot both flatten structures and refuse unknown keys, so a macro repeats the keys.
macro_rules! with_settings {
    ($name:ident { $($field:ident : $type:ty),* $(,)? }) => {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            $(pub(super) $field: $type,)*
            rate: Option<Rate>,
            trace: Option<Spanned<String>>,
            overhead: Option<u32>,
            queue: Option<Queue>,
            codel: Option<RawCodel>,
            delay: Option<Time>,
            jitter: Option<Time>,
            in_order: Option<bool>,
            loss: Option<Probability>,
            burst_loss: Option<RawBurstLoss>,
            duplicate: Option<Probability>,
            corrupt: Option<Probability>,
            mtu: Option<u32>,
            up: Option<bool>,
            blackhole: Option<bool>,
        }

        impl $name {
            /// The settings that can change during a run.
            pub(super) fn change(&self) -> Change {
                Change {
                    rate: self.rate.as_ref().map(|rate| Some(rate.0)),
                    queue: self.queue.as_ref().map(|queue| queue.0),
                    delay: self.delay.as_ref().map(|delay| delay.0),
                    jitter: self.jitter.as_ref().map(|jitter| jitter.0),
                    loss: loss(self.loss.as_ref(), self.burst_loss.as_ref()),
                    duplicate: self.duplicate.as_ref().map(|p| p.0),
                    corrupt: self.corrupt.as_ref().map(|p| p.0),
                    mtu: self.mtu,
                    up: self.up,
                    blackhole: self.blackhole,
                }
            }

            /// The settings that cannot change during a run.
            pub(super) fn fixed(&self) -> Fixed<'_> {
                Fixed {
                    trace: self.trace.as_ref(),
                    overhead: self.overhead,
                    codel: self.codel.as_ref(),
                    in_order: self.in_order,
                }
            }
        }
    };
}

/// The settings of a link that cannot change during a run.
pub(super) struct Fixed<'a> {
    pub(super) trace: Option<&'a Spanned<String>>,
    pub(super) overhead: Option<u32>,
    pub(super) codel: Option<&'a RawCodel>,
    pub(super) in_order: Option<bool>,
}

impl Fixed<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.trace.is_none()
            && self.overhead.is_none()
            && self.codel.is_none()
            && self.in_order.is_none()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Direction {
    #[default]
    Both,
    Forward,
    Reverse,
}

with_settings!(RawReverse {});
with_settings!(RawLink {
    name: Option<Spanned<String>>,
    ends: Spanned<[String; 2]>,
    reverse: Option<RawReverse>,
});
with_settings!(RawEvent {
    at: Time,
    link: Spanned<String>,
    direction: Option<Direction>,
    announced: Option<bool>,
});

fn loss(random: Option<&Probability>, burst: Option<&RawBurstLoss>) -> Option<Loss> {
    if let Some(burst) = burst {
        return Some(Loss::GilbertElliott {
            good_to_bad: burst.good_to_bad.0,
            bad_to_good: burst.bad_to_good.0,
            good_loss: burst.good_loss.as_ref().map_or(0.0, |p| p.0),
            bad_loss: burst.bad_loss.as_ref().map_or(1.0, |p| p.0),
        });
    }
    random.map(|p| if p.0 == 0.0 { Loss::None } else { Loss::Random(p.0) })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawInterface {
    pub(super) host: Spanned<String>,
    pub(super) name: Spanned<String>,
    pub(super) address: Spanned<IpAddr>,
    pub(super) mtu: Option<u32>,
    #[serde(default)]
    pub(super) private: bool,
    pub(super) public: Option<IpAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRouter {
    pub(super) host: Spanned<String>,
    #[serde(default)]
    pub(super) setup: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCommand {
    pub(super) at: Time,
    pub(super) host: Spanned<String>,
    pub(super) run: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTraffic {
    pub(super) kind: Spanned<String>,
    pub(super) name: Option<String>,
    pub(super) from: Spanned<String>,
    pub(super) to: Spanned<String>,
    pub(super) start: Option<Time>,
    pub(super) duration: Option<Time>,
    pub(super) plain: Option<Spanned<String>>,
    pub(super) streams: Option<u32>,
    pub(super) download: Option<bool>,
    pub(super) implementation: Option<Spanned<String>>,
    pub(super) congestion_control: Option<Spanned<String>>,
    pub(super) rate: Option<Rate>,
    pub(super) length: Option<u32>,
    pub(super) interval: Option<Time>,
    pub(super) request: Option<u32>,
    pub(super) response: Option<u32>,
    pub(super) size: Option<Bytes>,
    pub(super) connections: Option<u32>,
    pub(super) keep: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct RawSystem {
    pub(super) kind: String,
    #[serde(flatten)]
    pub(super) settings: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawScenario {
    pub(super) title: String,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) source: String,
    #[serde(default)]
    pub(super) sets: Vec<String>,
    pub(super) duration: Time,
    pub(super) repetitions: Option<u32>,
    #[serde(default)]
    pub(super) seed: u64,
    pub(super) congestion_control: Option<String>,
    pub(super) systems: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) system: BTreeMap<String, RawSystem>,
    pub(super) interface: Vec<RawInterface>,
    pub(super) link: Vec<RawLink>,
    #[serde(default)]
    pub(super) pair: Vec<RawLink>,
    #[serde(default)]
    pub(super) router: Vec<RawRouter>,
    #[serde(default)]
    pub(super) event: Vec<RawEvent>,
    #[serde(default)]
    pub(super) command: Vec<RawCommand>,
    pub(super) traffic: Vec<RawTraffic>,
}
