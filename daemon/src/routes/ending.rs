//! What becomes of routes and rules when the daemon ends.

use std::collections::BTreeSet;

use mpip_net::netlink::{Route, RoutingRule};

use super::key::Key;
use crate::error::Error;
use crate::kernel::Kernel;

/// What stays of what refuses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// What was found: the start has not succeeded.
    AsFound,
    /// All of it.
    Closed,
    /// Nothing: the daemon was told to end.
    Open,
}

/// What was found, and what is to stay.
#[derive(Debug)]
pub(super) struct Ending {
    state: State,
    found: BTreeSet<Key>,
    found_sink: bool,
    /// Routes and rules that were found and have no place any more: others do what they did.
    outdated: Vec<Route>,
    outdated_rules: Vec<RoutingRule>,
}

impl Ending {
    pub(super) fn new(found_sink: bool) -> Self {
        Self {
            state: State::AsFound,
            found: BTreeSet::new(),
            found_sink,
            outdated: Vec::new(),
            outdated_rules: Vec::new(),
        }
    }

    pub(super) fn found(&mut self, key: Key) {
        self.found.insert(key);
    }

    pub(super) fn outdated(&mut self, route: Route) {
        self.outdated.push(route);
    }

    pub(super) fn outdated_rules(&mut self, rules: impl Iterator<Item = RoutingRule>) {
        self.outdated_rules.extend(rules);
    }

    pub(super) fn has_outdated(&self) -> bool {
        !self.outdated.is_empty() || !self.outdated_rules.is_empty()
    }

    /// Whether an outdated route was found in `table`.
    pub(super) fn has_outdated_in(&self, table: u32) -> bool {
        self.outdated.iter().any(|route| route.table == table)
    }

    /// Deletes what is outdated. What cannot be deleted is kept in mind.
    pub(super) fn delete_outdated<K: Kernel>(&mut self, kernel: &mut K) {
        let failed =
            |result: Result<(), Error>| result.inspect_err(|error| log::warn!("{error}")).is_err();
        self.outdated.retain(|route| failed(kernel.delete_route(route)));
        // With routes of others the table is theirs now.
        self.outdated_rules.retain(|rule| {
            !leads_to_routes(kernel, rule) && {
                log::info!("removing what a former daemon left: the rule {rule}");
                failed(kernel.delete_rule(rule))
            }
        });
    }

    pub(super) fn started(&mut self) {
        self.state = State::Closed;
    }

    /// The daemon was told to end: nothing stays.
    pub(super) fn open(&mut self) {
        self.state = State::Open;
    }

    /// Whether nothing stays.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether what refuses packets stays.
    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether the sink may go.
    pub(super) fn frees_sink(&self) -> bool {
        self.is_open() || (self.state == State::AsFound && !self.found_sink)
    }

    /// Whether what was found may go when nobody wants it.
    pub(super) fn may_open(&self) -> bool {
        self.state != State::AsFound
    }

    /// Whether the route `key` stays when the daemon ends now.
    pub(super) fn keeps(&self, key: &Key) -> bool {
        match self.state {
            State::AsFound => self.found.contains(key),
            State::Closed => key.refuses,
            State::Open => false,
        }
    }
}

/// Whether there are routes in the table of a rule.
pub(super) fn leads_to_routes<K: Kernel>(kernel: &mut K, rule: &RoutingRule) -> bool {
    let routes = kernel.routes_in(rule.table, rule.ipv6);
    routes.is_ok_and(|routes| !routes.is_empty())
}
