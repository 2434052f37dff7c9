//! The configuration in force: what the file says, what was set for the time being, and above both
//! what holds for a limited time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use mpip_api::{Overrides, PathOverride, PathSettingOverride, PeerOverride, ReloadReport};
use mpip_core::{Encapsulation, Instant, Reconfigured};

use crate::config::{self, Changeable, Fixed, InterfaceState, Known, RuleList, Settings};
use crate::control::PeerChange;
use crate::rules;

/// How long a state of an interface may be limited to, s: up to 30 days.
pub(crate) const LIMITED_S: RangeInclusive<u64> = 1..=30 * 86_400;

/// The configuration in force.
#[derive(Debug)]
pub(crate) struct InForce {
    fixed: Fixed,
    /// Whether the process may open raw sockets, which paths by TCP need.
    raw_sockets: bool,
    /// What the file says, with `overrides`.
    base: Changeable,
    /// What was set for the time being.
    overrides: Overrides,
    /// States of interfaces that hold for a limited time.
    timed: BTreeMap<String, Timed>,
    /// Interfaces whose budget is used up.
    used_up: BTreeSet<String>,
    /// `base` with `timed` and `used_up`: what is applied.
    changeable: Changeable,
}

/// The state of an interface for a limited time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timed {
    pub(crate) state: InterfaceState,
    pub(crate) until: Instant,
}

/// What is to be set of an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetPath<'a> {
    /// The name of the state.
    pub(crate) state: Option<&'a str>,
    /// Keys of its `[[path]]` section and their values.
    pub(crate) settings: &'a BTreeMap<String, String>,
    /// For how long the state holds, s; `None` until the next reload.
    pub(crate) for_s: Option<u64>,
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
    /// What the file says, with `overrides`.
    to: Changeable,
    overrides: Overrides,
    timed: BTreeMap<String, Timed>,
    used_up: BTreeSet<String>,
}

impl InForce {
    /// The configuration `settings`, as it was read.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            fixed: settings.fixed(),
            raw_sockets: settings.needs_raw_sockets(),
            base: settings.changeable(),
            overrides: Overrides::default(),
            timed: BTreeMap::new(),
            used_up: BTreeSet::new(),
            changeable: settings.changeable(),
        }
    }

    /// What can change of it, as it is applied.
    pub(crate) fn changeable(&self) -> &Changeable {
        &self.changeable
    }

    /// What was set for the time being. States that hold for a limited time are those with the
    /// time left.
    pub(crate) fn overrides(&self, now: Instant) -> Overrides {
        let timed = self.timed.iter().map(|(interface, Timed { state, until })| PathOverride {
            interface: interface.clone(),
            state: state.name().to_owned(),
            left_s: Some(until.since(now).as_millis().div_ceil(1_000) as u64),
        });
        let mut overrides = self.overrides.clone();
        overrides.paths.extend(timed);
        overrides
    }

    /// What `change` applies.
    pub(crate) fn effective(&self, change: &Change) -> Changeable {
        let mut effective = change.to.clone();
        for (interface, Timed { state, .. }) in &change.timed {
            effective.set_path(interface, *state);
        }
        for interface in &change.used_up {
            // Who sets a state for a limited time knows of the budget.
            let active = effective.state(interface) == InterfaceState::Active;
            if active && !change.timed.contains_key(interface) {
                effective.set_path(interface, InterfaceState::Standby);
            }
        }
        effective
    }

    /// `change` is in force.
    pub(crate) fn adopt(&mut self, change: Change) {
        self.changeable = self.effective(&change);
        self.base = change.to;
        self.overrides = change.overrides;
        self.timed = change.timed;
        self.used_up = change.used_up;
    }

    /// When the next state ends that holds for a limited time.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timed.values().map(|timed| timed.until).min()
    }

    /// The interfaces whose limited time is over, and the change that follows; `None` if there are
    /// none.
    pub(crate) fn expire(&self, now: Instant) -> Option<(Vec<String>, Change)> {
        let mut change = self.same();
        let over = change.timed.extract_if(.., |_, timed| timed.until <= now);
        let over: Vec<String> = over.map(|(interface, _)| interface).collect();
        (!over.is_empty()).then_some((over, change))
    }

    /// No change of what was configured or set.
    fn same(&self) -> Change {
        let Self { base, overrides, timed, used_up, .. } = self;
        Change {
            to: base.clone(),
            overrides: overrides.clone(),
            timed: timed.clone(),
            used_up: used_up.clone(),
        }
    }

    /// The change that follows when the budgets of the interfaces `used_up` are used up; `None` if
    /// it was these before.
    pub(crate) fn use_up(&self, used_up: BTreeSet<String>) -> Option<Change> {
        (used_up != self.used_up).then(|| Change { used_up, ..self.same() })
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
            true => {
                let used_up = self.used_up.clone();
                let (overrides, timed) = Default::default();
                Ok(Change { to, overrides, timed, used_up })
            }
            false => Err(format!("nothing is changed:\n{}", refused.join("\n"))),
        }
    }

    /// The change of settings of the peer `name`, all of them or none.
    pub(crate) fn set_peer(
        &self,
        name: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<Change, String> {
        let Change { mut to, mut overrides, timed, used_up } = self.same();
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
            true => Ok(Change { to, overrides, timed, used_up }),
            false => Err(wrong.join("\n")),
        }
    }

    /// The change of a peer that joined, or was removed.
    pub(crate) fn change_peer(&self, change: PeerChange) -> Change {
        let Change { mut to, mut overrides, timed, used_up } = self.same();
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
        Change { to, overrides, timed, used_up }
    }

    /// The change of `interface`, which is one of the host's `names` or one that the configuration
    /// names, to a state and of settings, all of them or none. `for_s`: the state holds for so many
    /// seconds, after which it is what it would be without.
    pub(crate) fn set_path(
        &self,
        now: Instant,
        interface: &str,
        wanted: &SetPath<'_>,
        names: &[&str],
    ) -> Result<Change, String> {
        let SetPath { state, settings, for_s } = *wanted;
        let known = |state| {
            InterfaceState::from_name(state).ok_or_else(|| {
                format!("state: expected one of `active`, `standby`, `off`, found `{state}`")
            })
        };
        let found = state.map(known).transpose()?;
        if !names.contains(&interface) && !self.changeable.names(interface) {
            return Err(config::no_interface(interface, names));
        }
        if let Some(wrong) = for_s.filter(|for_s| !LIMITED_S.contains(for_s)) {
            let (from, to) = LIMITED_S.into_inner();
            return Err(format!("for_s: expected {from} to {to} s (30 days), found {wrong}"));
        }
        if for_s.is_some() && (found.is_none() || !settings.is_empty()) {
            return Err(
                "for_s: expected a state alone, because only a state can hold for a limited \
                        time"
                    .to_owned(),
            );
        }
        if found.is_none() && settings.is_empty() {
            return Err("expected a state or a setting, found neither".to_owned());
        }
        let Change { mut to, mut overrides, mut timed, used_up } = self.same();
        for (key, value) in settings {
            to.set_path_property(interface, key, value)?;
            let list = &mut overrides.path_settings;
            list.retain(|other| other.interface != interface || other.key != *key);
            let (interface, key, value) = (interface.to_owned(), key.clone(), value.clone());
            list.push(PathSettingOverride { interface, key, value });
        }
        let Some(found) = found else { return Ok(Change { to, overrides, timed, used_up }) };
        timed.remove(interface);
        if let Some(for_s) = for_s {
            let until = now + Duration::from_secs(for_s);
            timed.insert(interface.to_owned(), Timed { state: found, until });
            return Ok(Change { to, overrides, timed, used_up });
        }
        to.set_path(interface, found);
        overrides.paths.retain(|other| other.interface != interface);
        let (interface, state) = (interface.to_owned(), found.name().to_owned());
        overrides.paths.push(PathOverride { interface, state, left_s: None });
        Ok(Change { to, overrides, timed, used_up })
    }

    /// The change that `change` makes of the rules.
    pub(crate) fn change_rules(
        &self,
        change: impl FnOnce(&mut RuleList, &Known<'_>) -> Result<usize, String>,
    ) -> Result<Change, String> {
        let Change { mut to, mut overrides, timed, used_up } = self.same();
        change(&mut to.rules, &self.changeable.known())?;
        overrides.rules = rules::overrides(&to.rules);
        Ok(Change { to, overrides, timed, used_up })
    }
}

/// What differs between two configurations besides peers and rules.
fn interfaces_differ(before: &Changeable, after: &Changeable) -> bool {
    before.addresses != after.addresses
        || before.path_interfaces != after.path_interfaces
        || before.path_states != after.path_states
        || before.path_encapsulations != after.path_encapsulations
        || before.path_properties != after.path_properties
}

/// The report about what the engine has done.
pub(crate) fn report(
    done: Reconfigured,
    (before, after): (&Changeable, &Changeable),
    dropped: usize,
) -> ReloadReport {
    let Reconfigured { added, removed, changed, rules } = done;
    ReloadReport {
        added,
        removed,
        changed,
        rules,
        interfaces: interfaces_differ(before, after),
        found: before.found != after.found,
        overrides_dropped: dropped as u64,
        duration_ms: 0.0,
    }
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
        report.found.then(|| "settings of nodes that are found changed".to_owned()),
        (report.overrides_dropped > 0)
            .then(|| "what was set for the time being is gone".to_owned()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => "the configuration has not changed".to_owned(),
        false => format!("configuration reloaded: {}", parts.join(", ")),
    }
}

#[cfg(test)]
mod tests;
