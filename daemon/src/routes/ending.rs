//! What becomes of routes and rules when the daemon ends.

use std::collections::BTreeSet;

use mpip_net::netlink::Route;

use super::key::Key;

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
    /// Routes that were found whose form is not today's.
    outdated: Vec<Route>,
}

impl Ending {
    pub(super) fn new(found_sink: bool) -> Self {
        let (found, outdated) = (BTreeSet::new(), Vec::new());
        Self { state: State::AsFound, found, found_sink, outdated }
    }

    pub(super) fn found(&mut self, keys: impl Iterator<Item = Key>) {
        self.found.extend(keys);
    }

    pub(super) fn outdated(&mut self, route: Route) {
        self.outdated.push(route);
    }

    pub(super) fn take_outdated(&mut self) -> Vec<Route> {
        std::mem::take(&mut self.outdated)
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
