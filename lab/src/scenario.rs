//! Scenario files: which hosts, links, traffic and systems an experiment has.
//!
//! A scenario is one TOML file. Quantities are written with units, see [`crate::units`]. The hosts
//! are those that `[[interface]]` entries name. An end of a link is either an interface
//! (`host.interface`) or a switch. Traffic goes from host to host over the *paths* of the topology:
//! each pair of interfaces that links connect has one, the shortest sequence of links. Hosts that
//! `[[router]]` entries name forward packets between their interfaces.
//!
//! ```toml
//! title = "Two equal links"
//! source = "seed 004, setup 2"        # where the experiment comes from
//! sets = ["quick"]                     # sets of `mpip-lab reproduce` it belongs to
//! duration = "20 s"
//! repetitions = 3
//! seed = 1
//! systems = ["tcp", "mptcp", "mpip"]   # or names of [system.NAME] tables
//!
//! [[interface]]
//! host = "client"
//! name = "a"
//! address = "198.18.1.1"
//!
//! [[interface]]
//! host = "server"
//! name = "a"
//! address = "198.18.1.2"
//!
//! [[link]]                             # both directions …
//! name = "a"
//! ends = ["client.a", "server.a"]
//! rate = "9.3 Mbit/s"
//! queue = "100 packets"
//! delay = "5 ms"
//! jitter = "3 ms"
//! [link.reverse]                       # … and what differs from the second end to the first
//! loss = "0.1 %"
//!
//! [[event]]
//! at = "10 s"
//! link = "a"
//! up = false
//!
//! [[traffic]]
//! kind = "tcp"
//! from = "client"
//! to = "server"
//! ```
//!
//! `docs/experiments.md` documents every key.
//!
//! # Files
//!
//! `types` defines [`Scenario`] and its parts. `topology` finds the paths through its links. `raw`
//! has the keys of the file with their types, and `file` makes a validated scenario of them.

mod file;
mod raw;
mod topology;
mod types;

pub(crate) use topology::{Hop, Path};
pub(crate) use types::{Event, QuicImplementation, Scenario, System, Traffic, TrafficKind};

#[cfg(test)]
mod tests;
