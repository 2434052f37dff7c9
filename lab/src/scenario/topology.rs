//! Paths through the links of a scenario.

use std::collections::{BTreeMap, VecDeque};

use super::types::Scenario;

/// One link on a path, in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hop {
    /// Index of the link.
    pub(crate) link: usize,
    /// Whether from its first end to its second.
    pub(crate) forward: bool,
}

/// A path between two interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    /// Index of the sending interface.
    pub(crate) from: usize,
    /// Index of the receiving interface.
    pub(crate) to: usize,
    /// Index of the interface of the next hop: that of the first router, or `to`.
    pub(crate) next: usize,
    /// The links in the order in which a packet passes them; at least one.
    pub(crate) hops: Vec<Hop>,
}

impl Scenario {
    /// The paths from host `from` to host `to`, in the order of their interfaces.
    pub(crate) fn paths(&self, from: &str, to: &str) -> Vec<Path> {
        self.interfaces_of(from)
            .flat_map(|a| self.interfaces_of(to).filter_map(move |b| self.path(a, b)))
            .collect()
    }

    /// The path from one interface to another, both as indices; `None` if no links connect them.
    pub(crate) fn path(&self, from: usize, to: usize) -> Option<Path> {
        let start = self.interfaces[from].full_name();
        let goal = self.interfaces[to].full_name();
        let (next, mut hops) = shortest(self, &start, &goal)?;
        // A `[[pair]]` link comes right after the sender's own link.
        for (link, spec) in self.links.iter().enumerate().filter(|(_, spec)| spec.is_pair) {
            if spec.ends[0] == start && spec.ends[1] == goal {
                hops.insert(1, Hop { link, forward: true });
            } else if spec.ends[1] == start && spec.ends[0] == goal {
                hops.insert(1, Hop { link, forward: false });
            }
        }
        Some(Path { from, to, next, hops })
    }
}

/// How a node was reached: the node before it, and the link (`None` inside of a router).
type Step = (String, Option<Hop>);

/// The next interface and the links on the shortest path, by breadth-first search. Switches
/// forward, and routers between their interfaces.
fn shortest(scenario: &Scenario, start: &str, goal: &str) -> Option<(usize, Vec<Hop>)> {
    let mut came_by: BTreeMap<String, Step> = BTreeMap::new();
    let mut open = VecDeque::from([start.to_owned()]);
    while let Some(node) = open.pop_front() {
        if node == goal {
            break;
        }
        for (there, hop) in neighbours(scenario, &node, node == start) {
            if there != start && !came_by.contains_key(&there) {
                came_by.insert(there.clone(), (node.clone(), hop));
                open.push_back(there);
            }
        }
    }
    let index_of =
        |name: &str| scenario.interfaces.iter().position(|interface| interface.full_name() == name);
    let mut next = index_of(goal)?;
    let mut hops = Vec::new();
    let mut node = goal;
    while node != start {
        let (before, hop) = came_by.get(node)?;
        hops.extend(*hop);
        next = index_of(node).unwrap_or(next);
        node = before;
    }
    hops.reverse();
    (!hops.is_empty()).then_some((next, hops))
}

/// The nodes next to `node`, each with the link to it. Only routers and switches forward.
fn neighbours(scenario: &Scenario, node: &str, is_start: bool) -> Vec<(String, Option<Hop>)> {
    let mut found = Vec::new();
    let host = node.split_once('.').map(|(host, _)| host);
    let router = host.filter(|host| scenario.routers.iter().any(|router| router.host == *host));
    if host.is_none() || router.is_some() || is_start {
        for (link, spec) in scenario.links.iter().enumerate().filter(|(_, spec)| !spec.is_pair) {
            let [first, second] = &spec.ends;
            if first == node {
                found.push((second.clone(), Some(Hop { link, forward: true })));
            } else if second == node {
                found.push((first.clone(), Some(Hop { link, forward: false })));
            }
        }
    }
    if let Some(router) = router.filter(|_| !is_start) {
        let own = scenario.interfaces.iter().filter(|interface| interface.host == router);
        found.extend(own.map(|interface| (interface.full_name(), None)));
    }
    found
}
