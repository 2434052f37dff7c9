//! Paths through the links of a scenario.

use std::collections::{BTreeMap, VecDeque};

use super::Scenario;

/// One link on a path, in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    /// Index of the link.
    pub link: usize,
    /// From its first end to its second.
    pub forward: bool,
}

/// A path between two interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Index of the sending interface.
    pub from: usize,
    /// Index of the receiving interface.
    pub to: usize,
    /// The links in the order in which a packet passes them; at least one.
    pub hops: Vec<Hop>,
}

pub(super) fn paths(scenario: &Scenario, from: &str, to: &str) -> Vec<Path> {
    scenario
        .interfaces_of(from)
        .flat_map(|a| scenario.interfaces_of(to).filter_map(move |b| path(scenario, a, b)))
        .collect()
}

pub(super) fn path(scenario: &Scenario, from: usize, to: usize) -> Option<Path> {
    let start = scenario.interfaces[from].full_name();
    let goal = scenario.interfaces[to].full_name();
    let mut hops = shortest(scenario, &start, &goal)?;
    // A limit for the pair acts behind the sender's own link.
    for (link, spec) in scenario.links.iter().enumerate().filter(|(_, spec)| spec.is_pair) {
        if spec.ends[0] == start && spec.ends[1] == goal {
            hops.insert(1, Hop { link, forward: true });
        } else if spec.ends[1] == start && spec.ends[0] == goal {
            hops.insert(1, Hop { link, forward: false });
        }
    }
    Some(Path { from, to, hops })
}

/// Breadth first; interfaces do not forward, switches do.
fn shortest(scenario: &Scenario, start: &str, goal: &str) -> Option<Vec<Hop>> {
    let mut came_by: BTreeMap<&str, (&str, Hop)> = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(node) = open.pop_front() {
        if node == goal {
            break;
        }
        if node != start && node.contains('.') {
            continue;
        }
        for (link, spec) in scenario.links.iter().enumerate().filter(|(_, spec)| !spec.is_pair) {
            for (forward, here, there) in
                [(true, &spec.ends[0], &spec.ends[1]), (false, &spec.ends[1], &spec.ends[0])]
            {
                if here == node && there != start && !came_by.contains_key(there.as_str()) {
                    came_by.insert(there, (here, Hop { link, forward }));
                    open.push_back(there);
                }
            }
        }
    }
    let mut hops = Vec::new();
    let mut node = goal;
    while node != start {
        let (before, hop) = came_by.get(node)?;
        hops.push(*hop);
        node = before;
    }
    hops.reverse();
    (!hops.is_empty()).then_some(hops)
}
