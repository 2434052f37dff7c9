//! Changes of the configuration while the node runs.

use mpip_api as api;
use mpip_core::{Command, Instant, Reconfigured};
use mpip_net::{Poller, clock};

use super::Node;
use crate::config::{RuleList, Settings};
use crate::control::{PeerChange, Set};
use crate::error::Error;
use crate::reload::{self, Change, Reload, ReloadReply, SetPath};
use crate::snapshot::ms;

impl Node {
    /// Applies what the configuration file says now. `reply` is told what changed once all of it is
    /// done, or why nothing was changed.
    pub(crate) fn reload(
        &mut self,
        settings: &Settings,
        reply: ReloadReply,
        poller: &Poller,
    ) -> Result<(), Error> {
        let start = clock::now();
        let change = match self.in_force.reload(settings) {
            Ok(change) => change,
            Err(reason) => {
                let _ = reply.try_send(Err(reason));
                return Ok(());
            }
        };
        let dropped = self.in_force.overrides(start).count();
        let before = self.in_force.changeable().clone();
        let done = self.apply(change, poller)?;
        let report = reload::report(done, (&before, self.in_force.changeable()), dropped);
        log::info!("{}", reload::summary(&report));
        self.reloads.push(Reload { start, report, reply });
        Ok(())
    }

    /// Answers those whose change has arrived at the kernel.
    pub(super) fn answer_reloads(&mut self, now: Instant) {
        if self.network.is_busy() {
            return;
        }
        for Reload { start, mut report, reply } in self.reloads.drain(..) {
            report.duration_ms = ms(now.since(start));
            // A client that does not wait any more is no concern of ours.
            let _ = reply.try_send(Ok(report));
        }
    }

    /// Changes settings for the time being, or says why not.
    pub(crate) fn set(
        &mut self,
        change: Set,
        poller: &Poller,
    ) -> Result<Result<(), String>, Error> {
        let possible = match &change {
            Set::Peer { name, settings } => self.in_force.set_peer(name, settings),
            Set::Path { interface, state, settings, for_s } => {
                let wanted = SetPath { state: state.as_deref(), settings, for_s: *for_s };
                let (links, _) = self.network.host_mut().inventory()?;
                let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
                self.in_force.set_path(clock::now(), interface, &wanted, &names)
            }
            Set::AddRule { at, settings } => {
                self.in_force.change_rules(|rules, known| rules.add(*at, settings, known))
            }
            Set::RemoveRule { rule } => self.in_force.change_rules(|rules, _| rules.remove(rule)),
        };
        match possible {
            Ok(possible) => self.apply(possible, poller)?,
            Err(reason) => return Ok(Err(reason)),
        };
        match change {
            Set::Peer { name, settings } => {
                for (key, value) in settings {
                    log::info!("peer `{name}`: {key} = {value} for the time being");
                }
            }
            Set::Path { interface, state, settings, for_s } => {
                if let Some(state) = state {
                    let until = "for the time being".to_owned();
                    let until = for_s.map_or(until, |for_s| format!("for {for_s} s"));
                    log::info!("paths from {interface} are {state} {until}");
                }
                for (key, value) in settings {
                    log::info!("paths from {interface}: {key} = {value} for the time being");
                }
            }
            Set::AddRule { settings, .. } => {
                let pairs = settings.iter().map(|(key, value)| format!(" {key}={value}"));
                log::info!("a rule is added for the time being:{}", pairs.collect::<String>());
            }
            Set::RemoveRule { rule } => log::info!("rule {rule} is removed for the time being"),
        }
        Ok(Ok(()))
    }

    /// A peer has joined, or was removed.
    pub(crate) fn change_peer(&mut self, change: PeerChange, poller: &Poller) -> Result<(), Error> {
        self.apply(self.in_force.change_peer(change), poller).map(drop)
    }

    /// The configuration file, and what was set for the time being.
    pub(crate) fn overrides(&self) -> (String, api::Overrides) {
        (self.settings.config_file.clone(), self.in_force.overrides(clock::now()))
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> RuleList {
        self.in_force.changeable().rules.clone()
    }

    /// Ends what was set for a limited time that is over.
    pub(super) fn expire_settings(&mut self, now: Instant, poller: &Poller) -> Result<(), Error> {
        let Some((interfaces, change)) = self.in_force.expire(now) else { return Ok(()) };
        self.apply(change, poller)?;
        for interface in interfaces {
            let state = self.in_force.changeable().state(&interface).name();
            log::info!("paths from {interface} are {state} again: the time is over");
        }
        Ok(())
    }

    /// Makes `change`. The engine is first: who is removed is told on the paths that exist, and
    /// packets that are led to the device find their peer.
    fn apply(&mut self, change: Change, poller: &Poller) -> Result<Reconfigured, Error> {
        let now = clock::now();
        let to = self.in_force.effective(&change);
        let Self { engine, sender, .. } = self;
        let (peers, rules) = (to.peers.clone(), to.rules_by_interface());
        let done = engine.reconfigure(now, peers, rules, sender);
        sender.flush(now);
        for peer in &done.removed {
            self.network.forget_peer(peer);
        }
        self.follow_captures(now);
        let was_active = self.network.is_active();
        self.network.reconfigure(now, &to);
        self.settings.follow(&to);
        if let Some(found) = to.found.clone()
            && to.found != self.in_force.changeable().found
        {
            self.engine.handle_command(now, Command::UnknownPeers(found));
        }
        let interfaces = to.interfaces();
        if interfaces != self.in_force.changeable().interfaces() {
            self.engine.handle_command(now, Command::Interfaces(interfaces));
        }
        let changed = self.local.reconfigure(&to);
        // What is captured first has its reverse path filters loosened.
        if changed || self.network.is_active() != was_active {
            for error in self.refresh(now, poller)?.failed {
                log::warn!("{error}; trying again");
            }
        }
        self.in_force.adopt(change);
        let settings = &self.in_force.changeable().path_properties;
        self.budgets.follow(now, clock::unix_time(), settings);
        Ok(done)
    }

    /// Begins with what the configuration says of budgets, and what was used before.
    pub(super) fn begin_budgets(&mut self, now: Instant) {
        let settings = &self.in_force.changeable().path_properties;
        self.budgets.follow(now, clock::unix_time(), settings);
        if let Some(change) = self.in_force.use_up(self.budgets.used_up()) {
            self.in_force.adopt(change);
        }
        for fault in self.budgets.faults(now) {
            log::warn!("{}", fault.what);
        }
    }

    /// Counts what paths have carried, if it is time, and puts interfaces on standby whose budget
    /// is used up, or back in use.
    pub(super) fn count_budgets(&mut self, now: Instant, poller: &Poller) -> Result<(), Error> {
        let due = self.budgets.next_timeout().is_some_and(|due| due <= now);
        if !due && !self.budgets.is_news() {
            return Ok(());
        }
        let unix_time = clock::unix_time();
        for change in self.budgets.count(now, unix_time, self.engine.path_traffic()) {
            self.events.budget(unix_time, change);
        }
        if let Some(change) = self.in_force.use_up(self.budgets.used_up()) {
            self.apply(change, poller)?;
        }
        Ok(())
    }
}
