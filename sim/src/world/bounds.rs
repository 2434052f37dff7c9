//! Limits of memory, and of the work per datagram.

use super::World;
use crate::invariant::{Settled, check_kept, check_work};
use crate::node::Node;

impl World {
    /// Checks that tables and queues stay within the limits of `docs/architecture.md`.
    pub(super) fn check_memory(&mut self) {
        for index in 0..self.hosts.len() {
            let Node::Engine(engine) = &self.hosts[index].node else { continue };
            for found in check_kept(&engine.kept()) {
                self.violate(index, found);
            }
        }
    }

    /// State before the next datagram to a host, for the work check. `None` where the work is not
    /// checked: between honest nodes it is far below the limit.
    pub(super) fn may_settle(&self, index: usize) -> Option<Settled> {
        let Node::Engine(engine) = &self.hosts[index].node else { return None };
        self.has_hostile.then(|| Settled::new(engine.most_work(), &engine.kept()))
    }

    /// Checks the work of a datagram that a host has processed.
    pub(super) fn check_work(&mut self, index: usize, before: Option<Settled>) {
        let (Some(before), Node::Engine(engine)) = (before, &self.hosts[index].node) else {
            return;
        };
        if let Err(found) = check_work(&before, engine.most_work()) {
            self.violate(index, found);
        }
    }
}
