//! The end: which routes and rules are taken away.

use mpip_core::Instant;
use mpip_net::clock;

use super::Routes;
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
        if ending.is_open() {
            for route in ending.take_outdated() {
                if let Err(error) = kernel.delete_route(&route) {
                    log::warn!("{error}");
                }
            }
        }
    }

    /// Deletes the rules that nothing needs which stays, ours or another daemon's.
    fn delete_rules(&mut self) {
        let stays = |table, ipv6| {
            let of = |key: &Key| key.table == table && key.prefix.address().is_ipv6() == ipv6;
            self.present.keys().any(|key| self.ending.keeps(key) && of(key))
        };
        let wanted = self.wanted_rules(stays, false);
        for rule in std::mem::take(&mut self.rules) {
            let others = self.kernel.routes_in(rule.table, rule.ipv6);
            if wanted.contains(&rule) || others.is_ok_and(|routes| !routes.is_empty()) {
                continue;
            }
            if let Err(error) = self.kernel.delete_rule(&rule) {
                log::warn!("{error}");
            }
        }
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
        self.delete_rules();
        let opens = self.ending.frees_sink();
        if let Some(sink) = self.sink.take_if(|_| opens)
            && let Err(error) = self.kernel.delete_link(&sink)
        {
            log::warn!("{error}");
        }
    }
}
