//! Changes of a running daemon's configuration.

use serde::{Deserialize, Serialize};

use crate::rule::RuleStatus;

/// What `reload` has changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReloadReport {
    /// Names of peers that are new, or had to begin anew.
    pub added: Vec<String>,
    /// Names of peers that are gone, or had to begin anew.
    pub removed: Vec<String>,
    /// Names of peers whose settings changed while their association goes on.
    pub changed: Vec<String>,
    /// Whether the rules changed.
    pub rules: bool,
    /// Whether the addresses of the TUN device, or the interfaces of paths, changed.
    pub interfaces: bool,
    /// Whether the settings of nodes that are found (`[opportunistic.peer]`) changed.
    #[serde(default)]
    pub found: bool,
    /// How many settings that were set for the time being gave way to the file.
    pub overrides_dropped: u64,
    /// How long it took to apply the change, without reading the file. Packets travel meanwhile.
    pub duration_ms: f64,
}

/// What was set for the time being, in place of what the configuration file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrides {
    /// Settings of peers.
    pub peers: Vec<PeerOverride>,
    /// States of interfaces.
    pub paths: Vec<PathOverride>,
    /// Settings of interfaces.
    #[serde(default)]
    pub path_settings: Vec<PathSettingOverride>,
    /// The rule table, if rules were added or removed.
    #[serde(default)]
    pub rules: Option<RuleOverride>,
}

impl Overrides {
    /// How many there are.
    pub fn count(&self) -> usize {
        let rules = self.rules.as_ref().map_or(0, RuleOverride::count);
        self.peers.len() + self.paths.len() + self.path_settings.len() + rules
    }
}

/// A rule table that differs from that of the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleOverride {
    /// How many rules the file has.
    pub in_file: u64,
    /// The rules in force, in order: those of the file that were not removed, and others.
    pub table: Vec<RuleStatus>,
}

impl RuleOverride {
    /// How many rules were added and removed.
    pub fn count(&self) -> usize {
        let added = self.table.iter().filter(|rule| rule.file_number.is_none()).count();
        let kept = self.table.len() - added;
        added + usize::try_from(self.in_file).unwrap_or(usize::MAX).saturating_sub(kept)
    }
}

/// A setting of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerOverride {
    /// The peer's name.
    pub peer: String,
    /// The key of its `[[peer]]` section.
    pub key: String,
    /// The value, as `mpip set` takes it: names without quotes. Empty: the default.
    pub value: String,
}

/// A setting of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathSettingOverride {
    /// The interface.
    pub interface: String,
    /// The key of its `[[path]]` section.
    pub key: String,
    /// The value, as `mpip path set` takes it: without quotes. Empty: the default.
    pub value: String,
}

/// The state of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathOverride {
    /// The interface.
    pub interface: String,
    /// `active`, `standby` or `off`.
    pub state: String,
    /// Time until the state is what it would be without this, s; none if that is at the next
    /// reload.
    #[serde(default)]
    pub left_s: Option<u64>,
}
