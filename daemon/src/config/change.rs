//! Settings that change while the daemon runs: which of them can, and single ones.

use std::collections::BTreeMap;
use std::fmt::Display;

use mpip_core::{
    CongestionControlKind, Encapsulation, EncapsulationPolicy, InterfaceProperties, LossPolicy,
    PeerConfig, Policy, RateLimit, Rule, SchedulerKind, WeightAdaptation,
};

use super::path::parse_rate;
use super::rule::Known;
use super::rule_list::RuleList;
use super::settings::{
    GatewaySettings, InterfaceAddress, InterfaceState, PathProperties, Settings, capture, permit,
    require,
};
use super::suggestion::did_you_mean;
use super::values::{self, MAX_PATHS};

/// The part of the settings that can change while the daemon runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Changeable {
    /// Addresses of the TUN device.
    pub addresses: Vec<InterfaceAddress>,
    /// Interfaces that paths may use; `None` for all with a usable address.
    pub path_interfaces: Option<Vec<String>>,
    /// The states of interfaces that are not [active](InterfaceState::Active).
    pub path_states: BTreeMap<String, InterfaceState>,
    /// Encapsulation of paths, by interface.
    pub path_encapsulations: BTreeMap<String, EncapsulationPolicy>,
    /// Label, cost, budget and the like, by interface.
    pub path_properties: BTreeMap<String, PathProperties>,
    /// The nodes to associate with.
    pub peers: Vec<PeerConfig>,
    /// The settings of nodes that are found, without what tells them apart; `None`: none are.
    pub found: Option<PeerConfig>,
    /// Rules; the first that matches a packet decides.
    pub rules: RuleList,
}

/// Settings of a peer that [`Changeable::set`] takes.
pub const SETTABLE: [&str; 8] = [
    "scheduler",
    "congestion_control",
    "max_paths",
    "loss_policy",
    "policy",
    "resequencing",
    "ack_thinning",
    "encapsulation",
];

/// Settings of an interface that [`Changeable::set_path_property`] takes.
const SETTABLE_OF_PATHS: [&str; 2] = ["rate_up", "rate_down"];

impl Changeable {
    /// Sets `key` of the paths from `interface` to `value`; an empty one is the default.
    ///
    /// # Errors
    ///
    /// What was expected and what was found. Then nothing has changed.
    pub fn set_path_property(
        &mut self,
        interface: &str,
        key: &str,
        value: &str,
    ) -> Result<(), String> {
        let place: fn(&mut PathProperties) -> &mut Option<RateLimit> = match key {
            "rate_up" => |properties| &mut properties.rate_up,
            "rate_down" => |properties| &mut properties.rate_down,
            _ => {
                let expected = values::names(SETTABLE_OF_PATHS.into_iter());
                let meant = did_you_mean(key, &SETTABLE_OF_PATHS);
                return Err(format!(
                    "`{key}` of an interface cannot be set for the time being{meant} (one of \
                     {expected}; for others change the configuration and run `mpip reload`)"
                ));
            }
        };
        let rate = match value {
            "" => None,
            text => Some(parse_rate(key, text)?),
        };
        *place(self.path_properties.entry(interface.to_owned()).or_default()) = rate;
        Ok(())
    }

    /// Sets `key` of the peer `name` to `value`; an empty one is the default.
    ///
    /// # Errors
    ///
    /// What was expected and what was found. Then nothing has changed.
    pub fn set(&mut self, name: &str, key: &str, value: &str) -> Result<(), String> {
        let names: Vec<&str> = self.peers.iter().map(|peer| peer.name.as_str()).collect();
        let Some(at) = names.iter().position(|known| *known == name) else {
            let known = values::names(names.iter().copied());
            let meant = did_you_mean(name, &names);
            return Err(format!("no peer is named `{name}`{meant}; there are: {known}"));
        };
        set(&mut self.peers[at], key, value)
    }

    /// Sets the state of `interface`.
    pub fn set_path(&mut self, interface: &str, state: InterfaceState) {
        match state {
            InterfaceState::Active => drop(self.path_states.remove(interface)),
            state => drop(self.path_states.insert(interface.to_owned(), state)),
        }
        let known = |names: &Vec<String>| names.iter().any(|name| name == interface);
        if let Some(names) = self.path_interfaces.as_mut().filter(|names| !known(names)) {
            names.push(interface.to_owned());
        }
    }

    /// Whether `interface` is one that the settings name.
    pub(crate) fn names(&self, interface: &str) -> bool {
        let listed = self.path_interfaces.iter().flatten().any(|name| name == interface);
        listed
            || self.path_states.contains_key(interface)
            || self.path_properties.contains_key(interface)
    }

    /// The rules with the names of interfaces in place of labels.
    pub(crate) fn rules_by_interface(&self) -> Vec<Rule> {
        let mut rules = self.rules.rules();
        for paths in rules.iter_mut().filter_map(|rule| rule.paths.as_mut()) {
            let mut interfaces = Vec::new();
            for word in core::mem::take(&mut paths.interfaces) {
                let labelled = self.path_properties.iter();
                let labelled = labelled.filter(|(_, path)| path.label.as_ref() == Some(&word));
                interfaces.extend(labelled.map(|(interface, _)| interface.clone()));
                interfaces.push(word);
            }
            paths.interfaces = interfaces;
        }
        rules
    }

    /// What rules can name.
    pub(crate) fn known(&self) -> Known<'_> {
        Known {
            peers: self.peers.iter().map(|peer| peer.name.as_str()).collect(),
            others_join: false,
            labels: self.path_properties.values().filter_map(|it| it.label.as_deref()).collect(),
        }
    }

    /// The state of `interface`.
    pub(crate) fn state(&self, interface: &str) -> InterfaceState {
        self.path_states.get(interface).copied().unwrap_or(InterfaceState::Active)
    }

    /// Interfaces without paths.
    pub(crate) fn off(&self) -> Vec<String> {
        self.in_state(InterfaceState::Off)
    }

    /// What the engine is told of interfaces.
    pub(crate) fn interfaces(&self) -> InterfaceProperties {
        let named = || self.path_properties.iter();
        let costs = named().filter(|(_, properties)| properties.cost > 0);
        let metered = named().filter(|(_, properties)| properties.metered);
        let thresholds = named()
            .filter_map(|(name, properties)| Some((name.clone(), properties.loss_threshold?)));
        let rates = |of: fn(&PathProperties) -> Option<RateLimit>| {
            named().filter_map(move |(name, properties)| Some((name.clone(), of(properties)?)))
        };
        InterfaceProperties {
            rates_up: rates(|properties| properties.rate_up).collect(),
            rates_down: rates(|properties| properties.rate_down).collect(),
            standby: self.in_state(InterfaceState::Standby).into_iter().collect(),
            costs: costs.map(|(name, properties)| (name.clone(), properties.cost)).collect(),
            metered: metered.map(|(name, _)| name.clone()).collect(),
            loss_thresholds: thresholds.collect(),
        }
    }

    fn in_state(&self, state: InterfaceState) -> Vec<String> {
        let states = self.path_states.iter().filter(|(_, other)| **other == state);
        states.map(|(interface, _)| interface.clone()).collect()
    }

    /// Whether paths of any peer may use `encapsulation`.
    pub(crate) fn permits(&self, encapsulation: Encapsulation) -> bool {
        permit(&self.peers, self.found.as_ref(), encapsulation)
    }

    /// Whether a peer permits no other encapsulation than `encapsulation`.
    pub(crate) fn requires(&self, encapsulation: Encapsulation) -> bool {
        require(&self.peers, self.found.as_ref(), encapsulation)
    }

    /// Whether packets of configured peers are captured.
    pub(crate) fn captures(&self) -> bool {
        capture(&self.peers)
    }
}

/// Sets `key` of `peer` to `value`; an empty one is the default.
fn set(peer: &mut PeerConfig, key: &str, value: &str) -> Result<(), String> {
    match key {
        "scheduler" => {
            peer.scheduler = named(key, value, SchedulerKind::NAMES)?;
            if peer.scheduler != SchedulerKind::Weighted {
                peer.fixed_weights.clear();
                peer.weight_adaptation = WeightAdaptation::default();
            }
        }
        "congestion_control" => {
            peer.congestion_control = named(key, value, CongestionControlKind::NAMES)?;
        }
        "loss_policy" => peer.loss_policy = named(key, value, LossPolicy::NAMES)?,
        "encapsulation" => {
            peer.encapsulation = named(key, value, EncapsulationPolicy::NAMES)?;
        }
        "policy" => {
            let policy = match value {
                "" if peer.host_mode => Policy::Prefer,
                "" => Policy::Require,
                name => values::one_of(name, key, Policy::NAMES)?,
            };
            if !peer.host_mode && policy != Policy::Require {
                return Err(format!(
                    "policy: expected `require`, because `{policy}` is for peers with \
                     `host_mode = true`"
                ));
            }
            peer.policy = policy;
        }
        "max_paths" => {
            let (from, to) = MAX_PATHS.into_inner();
            let parse = |text: &str| {
                let number = text.parse::<i64>().ok().filter(|number| MAX_PATHS.contains(number));
                number.and_then(|number| usize::try_from(number).ok())
            };
            let wrong =
                || format!("max_paths: expected a number from {from} to {to}, found `{value}`");
            peer.max_paths = match value {
                "" => None,
                text => Some(parse(text).ok_or_else(wrong)?),
            };
        }
        "resequencing" => peer.resequencing = flag(key, value)?,
        "ack_thinning" => peer.ack_thinning = flag(key, value)?,
        _ => {
            let expected = values::names(SETTABLE.into_iter());
            let meant = did_you_mean(key, &SETTABLE);
            return Err(format!(
                "`{key}` cannot be set for the time being{meant} (one of {expected}; for others \
                 change the configuration and run `mpip reload`)"
            ));
        }
    }
    Ok(())
}

fn flag(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "true" | "" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{key}: expected `true` or `false`, found `{value}`")),
    }
}

/// The value with the name `value`, or the default if that is empty.
fn named<T: Copy + Default>(key: &str, value: &str, known: &[(&str, T)]) -> Result<T, String> {
    if value.is_empty() { Ok(T::default()) } else { values::one_of(value, key, known) }
}

/// The host, whose interfaces are `names`, has none with the name `found`.
pub(crate) fn no_interface(found: &str, names: &[&str]) -> String {
    let known = values::names(names.iter().copied());
    format!("no interface is named `{found}`{}; there are: {known}", did_you_mean(found, names))
}

impl Settings {
    /// The part that can change while the daemon runs.
    pub fn changeable(&self) -> Changeable {
        Changeable {
            addresses: self.addresses.clone(),
            path_interfaces: self.path_interfaces.clone(),
            path_states: self.path_states.clone(),
            path_encapsulations: self.path_encapsulations.clone(),
            path_properties: self.path_properties.clone(),
            peers: self.peers.clone(),
            found: self.found().cloned(),
            rules: RuleList::of_file(&self.rules),
        }
    }

    /// The part that cannot.
    pub(crate) fn fixed(&self) -> Fixed {
        let shown = |value: &dyn Display| value.to_string();
        let none = || "the default".to_owned();
        let mark = format!("{:#x}", self.host_mode.mark);
        let gateway = |value: &dyn Fn(&GatewaySettings) -> String| {
            self.gateway.as_ref().map_or_else(|| "no section".to_owned(), value)
        };
        let opportunistic = self.opportunistic.as_ref().map(|settings| {
            let engine = &settings.engine;
            format!(
                "{:?} {:?} {} {:?} {}",
                engine.prefixes,
                engine.exclusive,
                engine.port,
                engine.pin_expiry,
                settings.pins_file.display()
            )
        });
        let values = vec![
            ("[node] private_key_file", shown(self.private_key.public_key())),
            ("[node] listen_port", shown(&self.listen_port)),
            ("[node] tcp_port", shown(&self.tcp_port)),
            ("[node] control_socket", shown(&self.control_socket.display())),
            (
                "[node] control_group",
                self.control_group.map_or_else(none, |group| group.to_string()),
            ),
            (
                "[node] keepalive",
                self.keepalive.map_or_else(none, |pause| pause.as_secs().to_string()),
            ),
            ("[node] threads", shown(&self.threads)),
            ("[node] busy_poll", self.busy_poll.as_micros().to_string()),
            ("[interface] name", shown(&self.interface)),
            ("[host_mode] table", shown(&self.host_mode.table)),
            ("[host_mode] priority", shown(&self.host_mode.priority)),
            ("[host_mode] mark", mark),
            ("[host_mode] loosen_rp_filter", shown(&self.host_mode.loosen_rp_filter)),
            ("[gateway] peers_file", gateway(&|it| it.peers_file.display().to_string())),
            ("[gateway] forward", gateway(&|it| it.forward.to_string())),
            ("[gateway] masquerade", gateway(&|it| it.masquerade.to_string())),
            (
                "[router]",
                self.router
                    .as_ref()
                    .map_or_else(|| "no section".to_owned(), |it| format!("{it:?}")),
            ),
            ("[[peer]] default_route", shown(&self.default_route)),
            ("[diagnosis] answer", shown(&self.diagnosis.view)),
            ("[diagnosis] bench", shown(&self.diagnosis.bench)),
            ("[opportunistic]", opportunistic.unwrap_or_default()),
        ];
        Fixed { values }
    }
}

/// Settings that cannot change while the daemon runs.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    /// Keys and values.
    values: Vec<(&'static str, String)>,
}

impl Fixed {
    /// Why `new` cannot be applied: a line for each setting that differs.
    pub(crate) fn refuses(&self, new: &Settings) -> Vec<String> {
        let file = new.file.display();
        let pairs = self.values.iter().zip(new.fixed().values);
        let differs = pairs.filter(|((_, before), (_, after))| before != after);
        let line = |key: &str, before: &str, after: &str| {
            let what = match key {
                "[node] private_key_file" => "this node's key".to_owned(),
                "[opportunistic]" | "[router]" => "the section".to_owned(),
                _ => format!("`{before}`, which the file makes `{after}`,"),
            };
            format!(
                "{file}: {key}: {what} cannot change while mpipd runs; `mpip down` and `mpip up` \
                 (or `systemctl restart`) apply it"
            )
        };
        differs.map(|((key, before), (_, after))| line(key, before, &after)).collect()
    }
}

#[cfg(test)]
mod tests;
