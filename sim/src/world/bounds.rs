//! Bounds of memory, and of the work that one datagram makes.

use super::World;
use crate::invariant::{Settled, check_kept, check_work};
use crate::node::Node;

impl World {
    /// Checks that tables and queues stay within the bounds of `docs/architecture.md`.
    pub(super) fn check_memory(&mut self) {
        for index in 0..self.hosts.len() {
            let Node::Engine(engine) = &self.hosts[index].node else { continue };
            for found in check_kept(&engine.kept()) {
                self.violate(index, found);
            }
        }
    }

    /// What the next datagram to a host may settle for good. `None` where the work is not checked:
    /// between nodes that follow the rules it is far below the bound.
    pub(super) fn may_settle(&self, index: usize) -> Option<Settled> {
        let Node::Engine(engine) = &self.hosts[index].node else { return None };
        self.has_hostile.then(|| Settled::new(engine.most_work(), &engine.kept()))
    }

    /// Checks the work of a datagram that a host has taken.
    pub(super) fn check_work(&mut self, index: usize, before: Option<Settled>) {
        let (Some(before), Node::Engine(engine)) = (before, &self.hosts[index].node) else {
            return;
        };
        if let Err(found) = check_work(&before, engine.most_work()) {
            self.violate(index, found);
        }
    }
}
