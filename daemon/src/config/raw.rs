//! The keys of the configuration file and their types, as written by the user.
//!
//! Numbers are read as `i64`. So an error about one out of range names the range of its key, not
//! that of an integer type. Keys that are required are optional here, so that what else is wrong
//! is found without them.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub(super) node: Option<Spanned<Node>>,
    #[serde(default)]
    pub(super) interface: Interface,
    #[serde(default)]
    pub(super) host_mode: HostMode,
    #[serde(default)]
    pub(super) path: Vec<Spanned<Path>>,
    #[serde(default)]
    pub(super) peer: Vec<Spanned<Peer>>,
    #[serde(default)]
    pub(super) rule: Vec<Spanned<Rule>>,
    pub(super) opportunistic: Option<Spanned<Opportunistic>>,
    pub(super) gateway: Option<Spanned<Gateway>>,
    pub(super) router: Option<Spanned<Router>>,
    #[serde(default)]
    pub(super) diagnosis: Diagnosis,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Diagnosis {
    pub(super) answer: Option<bool>,
    pub(super) bench: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Gateway {
    pub(super) name: Option<Spanned<String>>,
    pub(super) peers_file: Option<Spanned<String>>,
    pub(super) pool: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub(super) endpoints: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) forward: bool,
    pub(super) masquerade: Option<Spanned<bool>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Router {
    #[serde(default)]
    pub(super) interfaces: Vec<Spanned<String>>,
    pub(super) masquerade: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Opportunistic {
    #[serde(default)]
    pub(super) prefixes: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) exclusive: Vec<Spanned<String>>,
    pub(super) pins: Option<Spanned<String>>,
    pub(super) pins_expire_days: Option<Spanned<i64>>,
    pub(super) port: Option<Spanned<i64>>,
    pub(super) peer: Option<Spanned<Peer>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Node {
    pub(super) private_key_file: Option<Spanned<String>>,
    pub(super) listen_port: Option<Spanned<i64>>,
    pub(super) tcp_port: Option<Spanned<i64>>,
    pub(super) control_socket: Option<Spanned<String>>,
    pub(super) control_group: Option<Spanned<String>>,
    pub(super) keepalive: Option<Spanned<i64>>,
    pub(super) threads: Option<Spanned<i64>>,
    pub(super) busy_poll: Option<Spanned<i64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Interface {
    pub(super) name: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) addresses: Vec<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostMode {
    pub(super) table: Option<Spanned<i64>>,
    pub(super) priority: Option<Spanned<i64>>,
    pub(super) mark: Option<Spanned<i64>>,
    pub(super) loosen_rp_filter: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Path {
    pub(super) interface: Option<Spanned<String>>,
    pub(super) encapsulation: Option<Spanned<String>>,
    pub(super) state: Option<Spanned<String>>,
    pub(super) label: Option<Spanned<String>>,
    pub(super) cost: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) metered: bool,
    pub(super) budget: Option<Spanned<String>>,
    pub(super) loss_threshold: Option<Spanned<String>>,
    pub(super) rate_up: Option<Spanned<String>>,
    pub(super) rate_down: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Peer {
    pub(super) name: Option<Spanned<String>>,
    pub(super) public_key: Option<Spanned<String>>,
    pub(super) preshared_key_file: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) endpoints: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) allowed_prefixes: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) reaches: Vec<Spanned<String>>,
    pub(super) host_mode: Option<Spanned<bool>>,
    pub(super) exclusive: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub(super) default_route: bool,
    pub(super) policy: Option<Spanned<String>>,
    pub(super) scheduler: Option<Spanned<String>>,
    pub(super) weights: Option<Spanned<BTreeMap<String, Spanned<i64>>>>,
    pub(super) weight_step: Option<Spanned<i64>>,
    pub(super) weight_period_ms: Option<Spanned<i64>>,
    pub(super) congestion_control: Option<Spanned<String>>,
    pub(super) max_paths: Option<Spanned<i64>>,
    pub(super) loss_policy: Option<Spanned<String>>,
    pub(super) resequencing: Option<bool>,
    pub(super) ack_thinning: Option<bool>,
    pub(super) encapsulation: Option<Spanned<String>>,
    pub(super) tcp_port: Option<Spanned<i64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub(super) name: Option<Spanned<String>>,
    pub(super) remote_prefix: Option<Spanned<String>>,
    pub(super) remote_port: Option<Spanned<Word>>,
    pub(super) local_prefix: Option<Spanned<String>>,
    pub(super) local_port: Option<Spanned<Word>>,
    pub(super) protocol: Option<Spanned<Word>>,
    pub(super) length: Option<Spanned<String>>,
    pub(super) dscp: Option<Spanned<Word>>,
    pub(super) peer: Option<Spanned<String>>,
    pub(super) interface: Option<Spanned<String>>,
    pub(super) priority: Option<Spanned<String>>,
    pub(super) copies: Option<Spanned<Word>>,
    #[serde(default)]
    pub(super) repair: bool,
    pub(super) ordered: Option<bool>,
    pub(super) paths: Option<Spanned<RulePaths>>,
    pub(super) set_dscp: Option<Spanned<Word>>,
    pub(super) scheduler: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table like `{ only = [\"eth0\"] }`")]
pub(super) struct RulePaths {
    pub(super) only: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) prefer: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) avoid: Option<Spanned<Vec<Spanned<String>>>>,
}

/// A number, or text in its place: a name or a range.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number, or a name or range in quotes")]
pub(super) enum Word {
    Text(String),
    Number(i64),
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
        }
    }
}
