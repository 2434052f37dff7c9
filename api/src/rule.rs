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
    /// `throughput` or `response`.
    pub priority: String,
    /// Whether a rule wants lost packets to be sent again. Those of TCP are in any case.
    pub repair: bool,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// A rule that may match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleDependence {
    /// The rule.
    pub rule: RuleStatus,
    /// Keys of it about which the packet says nothing.
    pub on: Vec<String>,
}
