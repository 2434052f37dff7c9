//! The end: which routes and rules are taken away.

use mpip_core::Instant;
use mpip_net::clock;

use super::Routes;
use super::ending::leads_to_routes;
use super::key::{Claimant, Key};
use crate::kernel::Kernel;

impl<K: Kernel> Routes<K> {
    /// The daemon was told to end: nothing stays when this is dropped.
    pub(crate) fn open(&mut self) {
        self.ending.open();
    }

    /// Gives up what others than those who are to stay have claimed.
    pub(crate) fn release(&mut self, now: Instant, stays: impl Fn(&Claimant) -> bool) {
        let leaving: Vec<Claimant> =
            self.claimed.keys().filter(|claimant| !stays(claimant)).cloned().collect();
        for claimant in leaving {
            self.claim(&claimant, [].into());
        }
        self.apply(now);
    }

    /// Deletes the routes that are not to stay.
    fn delete_routes(&mut self) {
        let Self { kernel, present, ending, .. } = self;
        present.retain(|key, route| {
            ending.keeps(key)
                || kernel.delete_route(route).inspect_err(|error| log::warn!("{error}")).is_err()
        });
    }

    /// Deletes the rules that nothing needs which stays, ours or another daemon's. Returns whether
    /// none is left.
    fn delete_rules(&mut self) -> bool {
        let stays = |table, ipv6| {
            let of = |key: &Key| key.table == table && key.prefix.address().is_ipv6() == ipv6;
            self.present.keys().any(|key| self.ending.keeps(key) && of(key))
        };
        let wanted = self.wanted_rules(stays, false);
        let mut left = false;
        for rule in std::mem::take(&mut self.rules) {
            if wanted.contains(&rule) {
                left = true;
            } else if !leads_to_routes(&mut self.kernel, &rule) {
                let result = self.kernel.delete_rule(&rule);
                left |= result.inspect_err(|error| log::warn!("{error}")).is_err();
            }
        }
        !left
    }
}

impl<K: Kernel> Drop for Routes<K> {
    fn drop(&mut self) {
        if self.ending.is_closed() {
            // What is missing has one more chance.
            let now = clock::now();
            let missing = self.claims.keys().filter(|key| key.refuses);
            self.dirty = missing.filter(|key| !self.present.contains_key(key)).copied().collect();
            self.apply(now);
        }
        self.delete_routes();
        let none_left = self.delete_rules();
        if self.ending.is_open() {
            self.ending.delete_outdated(&mut self.kernel);
        }
        match none_left && !self.ending.has_outdated() {
            _ if !self.ending.may_open() => self.recorded.restore(),
            true => self.recorded.clear(),
            false => {}
        }
        let opens = self.ending.frees_sink();
        if let Some(sink) = self.sink.take_if(|_| opens)
            && let Err(error) = self.kernel.delete_link(&sink)
        {
            log::warn!("{error}");
        }
    }
}
