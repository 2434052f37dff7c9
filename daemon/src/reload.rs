//! The configuration in force: what the file says, and what was set for the time being.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;

use mpip_api::{Overrides, PathOverride, PeerOverride, ReloadReport};
use mpip_core::{Encapsulation, Instant, Reconfigured};

use crate::config::{self, Changeable, Fixed, InterfaceState, RuleList, Settings};
use crate::control::PeerChange;
use crate::rules;

/// The configuration in force.
#[derive(Debug)]
pub(crate) struct InForce {
    fixed: Fixed,
    /// Whether the process may open raw sockets, which paths by TCP need.
    raw_sockets: bool,
    changeable: Changeable,
    /// What was set for the time being, which `changeable` has.
    overrides: Overrides,
}

/// Where the result of a reload goes.
pub(crate) type ReloadReply = SyncSender<Result<ReloadReport, String>>;

/// A reload whose routes are being set.
#[derive(Debug)]
pub(crate) struct Reload {
    pub(crate) start: Instant,
    pub(crate) report: ReloadReport,
    pub(crate) reply: ReloadReply,
}

/// A change that is possible.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) to: Changeable,
    pub(crate) overrides: Overrides,
}

impl InForce {
    /// The configuration `settings`, as it was read.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            fixed: settings.fixed(),
            raw_sockets: settings.needs_raw_sockets(),
            changeable: settings.changeable(),
            overrides: Overrides::default(),
        }
    }

    /// What can change of it.
    pub(crate) fn changeable(&self) -> &Changeable {
        &self.changeable
    }

    /// What was set for the time being.
    pub(crate) fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// `change` is in force.
    pub(crate) fn adopt(&mut self, change: Change) {
        self.changeable = change.to;
        self.overrides = change.overrides;
    }

    /// The change to what the file says now.
    ///
    /// # Errors
    ///
    /// Everything in it that cannot change, a line each.
    pub(crate) fn reload(&self, settings: &Settings) -> Result<Change, String> {
        let mut refused = self.fixed.refuses(settings);
        let to = settings.changeable();
        if to.permits(Encapsulation::Tcp) && !self.raw_sockets {
            refused.push(format!(
                "{}: [[peer]] encapsulation: paths by TCP need a raw socket, and mpipd has given up \
                 the permission for it, because no peer needed one when it started; `mpip down` \
                 and `mpip up` (or `systemctl restart`) apply it",
                settings.file.display()
            ));
        }
        match refused.is_empty() {
            true => Ok(Change { to, overrides: Overrides::default() }),
            false => Err(format!("nothing is changed:\n{}", refused.join("\n"))),
        }
    }

    /// The change of settings of the peer `name`, all of them or none.
    pub(crate) fn set_peer(
        &self,
        name: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<Change, String> {
        let mut to = self.changeable.clone();
        let mut overrides = self.overrides.clone();
        let mut wrong = Vec::new();
        for (key, value) in settings {
            if let Err(reason) = to.set(name, key, value) {
                wrong.push(reason);
                continue;
            }
            overrides.peers.retain(|other| other.peer != name || other.key != *key);
            let (peer, key, value) = (name.to_owned(), key.clone(), value.clone());
            overrides.peers.push(PeerOverride { peer, key, value });
        }
        if to.permits(Encapsulation::Tcp) && !self.raw_sockets {
            wrong.push("encapsulation: paths by TCP need a restart of mpipd".to_owned());
        }
        wrong.dedup();
        match wrong.is_empty() {
            true => Ok(Change { to, overrides }),
            false => Err(wrong.join("\n")),
        }
    }

    /// The change of a peer that joined, or was removed.
    pub(crate) fn change_peer(&self, change: PeerChange) -> Change {
        let (mut to, mut overrides) = (self.changeable.clone(), self.overrides.clone());
        match change {
            PeerChange::Add(peer) => {
                to.peers.retain(|other| other.public_key != peer.public_key);
                to.peers.push(*peer);
            }
            PeerChange::Remove(name) => {
                to.peers.retain(|other| other.name != name);
                overrides.peers.retain(|other| other.peer != name);
            }
        }
        Change { to, overrides }
    }

    /// The change of the state of `interface`, which is one of the host's `names` or one that the
    /// configuration names.
    pub(crate) fn set_path(
        &self,
        interface: &str,
        state: &str,
        names: &[&str],
    ) -> Result<Change, String> {
        let Some(found) = InterfaceState::from_name(state) else {
            return Err(format!(
                "state: expected one of `active`, `standby`, `off`, found `{state}`"
            ));
        };
        let mut to = self.changeable.clone();
        if !names.contains(&interface) && !to.names(interface) {
            return Err(config::no_interface(interface, names));
        }
        to.set_path(interface, found);
        let mut overrides = self.overrides.clone();
        overrides.paths.retain(|other| other.interface != interface);
        let (interface, state) = (interface.to_owned(), found.name().to_owned());
        overrides.paths.push(PathOverride { interface, state });
        Ok(Change { to, overrides })
    }

    /// The change that `change` makes of the rules.
    pub(crate) fn change_rules(
        &self,
        change: impl FnOnce(&mut RuleList) -> Result<usize, String>,
    ) -> Result<Change, String> {
        let (mut to, mut overrides) = (self.changeable.clone(), self.overrides.clone());
        change(&mut to.rules)?;
        overrides.rules = rules::overrides(&to.rules);
        Ok(Change { to, overrides })
    }
}

/// What differs between two configurations besides peers and rules.
pub(crate) fn interfaces_differ(before: &Changeable, after: &Changeable) -> bool {
    before.addresses != after.addresses
        || before.path_interfaces != after.path_interfaces
        || before.path_states != after.path_states
        || before.path_encapsulations != after.path_encapsulations
}

/// The report about what the engine has done.
pub(crate) fn report(done: Reconfigured, interfaces: bool, dropped: usize) -> ReloadReport {
    let Reconfigured { added, removed, changed, rules } = done;
    let overrides_dropped = dropped as u64;
    ReloadReport { added, removed, changed, rules, interfaces, overrides_dropped, duration_ms: 0.0 }
}

/// The report in one line, for the log.
pub(crate) fn summary(report: &ReloadReport) -> String {
    let peers = |what: &str, names: &[String]| match names {
        [] => None,
        [one] => Some(format!("peer `{one}` {what}")),
        many => Some(format!("{} peers {what}", many.len())),
    };
    let parts = [
        peers("added", &report.added),
        peers("removed", &report.removed),
        peers("changed", &report.changed),
        report.rules.then(|| "rules changed".to_owned()),
        report.interfaces.then(|| "interfaces changed".to_owned()),
        (report.overrides_dropped > 0)
            .then(|| "what was set for the time being is gone".to_owned()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => "the configuration has not changed".to_owned(),
        false => format!("configuration reloaded: {}", parts.join(", ")),
    }
}
