//! The rule table.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The rules in force; the first that matches a packet decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleTable {
    /// The rules, in order.
    pub rules: Vec<RuleStatus>,
    /// How packets are treated that no rule matches.
    pub default: Treatment,
}

/// How a packet is treated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Treatment {
    /// `throughput`, `response` or `redundant`; `auto`: `response` for interactive flows,
    /// `throughput` for all others.
    pub priority: String,
    /// On how many paths packets are sent with priority `redundant`: a number, or `adaptive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<String>,
    /// Whether a rule wants lost packets to be sent again. Those of TCP are in any case.
    pub repair: bool,
    /// Whether the receiver puts packets in order; `None`: as their protocol needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered: Option<bool>,
    /// Which paths packets take; `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<RulePaths>,
    /// The code point that packets are given, by name or number; `None`: they keep theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_dscp: Option<String>,
    /// How paths are chosen for packets of priority `throughput`; `None`: by the peer's scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
}

/// What a rule says about the paths from some interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulePaths {
    /// `only`, `prefer` or `avoid`.
    pub preference: String,
    /// The interfaces, by name or label.
    pub interfaces: Vec<String>,
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStatus {
    /// Its place in the table, from 1 on.
    pub number: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Which `[[rule]]` of the configuration file it is, from 1 on; `None` if it was set for the
    /// time being.
    pub file_number: Option<u64>,
    /// What packets have to match: keys of a `[[rule]]` and their values, without quotes.
    pub matches: BTreeMap<String, String>,
    /// What is done with them.
    #[serde(flatten)]
    pub treatment: Treatment,
}

/// Which rule decides about a packet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RuleTest {
    /// The first rule that matches the packet whatever was left out of it; `None` if the default
    /// applies.
    pub rule: Option<RuleStatus>,
    /// How the packet is treated, unless one of `depends` matches.
    #[serde(flatten)]
    pub treatment: Treatment,
    /// Rules before that one, which match or not depending on what was left out; in order.
    pub depends: Vec<RuleDependence>,
    /// The name of the peer to which the remote address belongs; `None` if it is nobody's.
    pub peer: Option<String>,
    /// The paths that the packet would take now, unless one of `depends` matches; `None` if the
    /// remote address is nobody's.
    #[serde(default)]
    pub way: Option<Way>,
}

/// The paths that a packet would take now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Way {
    /// The scheduler, which decides about packets of priority `throughput`.
    pub scheduler: String,
    /// Every path to the peer that was validated and not given up.
    pub paths: Vec<WayPath>,
}

/// A path, as a packet would find it now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WayPath {
    /// Its number.
    pub id: u16,
    /// The local interface.
    pub interface: String,
    /// `takes`: it carries the packet; `copy`: it carries a copy; `candidate`: the scheduler may
    /// choose it; `none`: nothing of that.
    pub role: String,
    /// One-way delay beyond that of the peer's fastest path.
    pub relative_delay_ms: Option<f64>,
    /// Smoothed round-trip time.
    pub rtt_ms: Option<f64>,
    /// Share of packets lost in the last seconds, 0 to 1.
    pub loss: f64,
    /// Share of the data sent to the peer so far that it carried, 0 to 1.
    pub share: f64,
    /// Why it may not carry the packet now; `None` if it may.
    pub hold: Option<String>,
    /// Whether the rule wants it before others: it is in the list of `only` or `prefer`, or not in
    /// that of `avoid`.
    pub preferred: bool,
}

/// A rule that may match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleDependence {
    /// The rule.
    pub rule: RuleStatus,
    /// Keys of it about which the packet says nothing.
    pub on: Vec<String>,
}
