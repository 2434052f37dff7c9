//! Finds the rules that match a session without comparing it with each of them.
//!
//! The bit vector scheme of T. V. Lakshman and D. Stiliadis, "High-speed policy-based packet
//! forwarding using efficient multi-dimensional range matching", SIGCOMM 1998. What a rule says of
//! a field is a span of its values. The ends of all rules' spans cut the field's values into
//! pieces; each piece has a bit for each rule that holds there. A session is searched for in every
//! field, and the bits that all of its pieces have in common are the rules that match. The lowest
//! one is the first in the table.
//!
//! Rules are indexed in blocks, so that memory grows with their number and not with its square: a
//! block has at most 2 × [`BLOCK`] + 1 pieces of 128 bytes in each field.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::RangeInclusive;

use mpip_types::Prefix;
use mpip_types::packet::Header;

use crate::config::Rule;

/// What a rule can match of a session besides what stands in its packets' headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The name of the peer to which its packets go.
    pub peer: Option<&'a str>,
    /// The interface behind which the host is that sends them; `None`: it is this host, or nobody
    /// knows.
    pub interface: Option<&'a str>,
}

/// Rules of a block.
const BLOCK: usize = 1_024;

const WORDS: usize = BLOCK / u64::BITS as usize;

/// A bit for each rule of a block.
type Rules = [u64; WORDS];

/// What protocols without ports have in place of one: no rule's range contains it.
const NO_PORT: u32 = 1 << 16;

/// The rules of a table by the sessions that they match.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    blocks: Vec<Block>,
    /// The peers and interfaces that rules name, sorted.
    peers: Vec<String>,
    interfaces: Vec<String>,
}

impl Index {
    pub(super) fn new(rules: &[Rule]) -> Self {
        let peers = sorted(rules.iter().filter_map(|rule| rule.peer.as_ref()));
        let interfaces = sorted(rules.iter().filter_map(|rule| rule.interface.as_ref()));
        let blocks = rules.chunks(BLOCK).map(|rules| Block::new(rules, &peers, &interfaces));
        Self { blocks: blocks.collect(), peers, interfaces }
    }

    /// Whether some rule names an interface.
    pub(super) fn names_interfaces(&self) -> bool {
        !self.interfaces.is_empty()
    }

    /// The rules from number `from` on, in order, that match the session of a packet with `header`
    /// and `origin`.
    pub(super) fn matching(
        &self,
        header: &Header,
        origin: Origin<'_>,
        from: usize,
    ) -> impl Iterator<Item = usize> + '_ {
        let session = Session {
            protocol: header.protocol.into(),
            remote_port: header.destination_port().map_or(NO_PORT, u32::from),
            local_port: header.source_port().map_or(NO_PORT, u32::from),
            remote: header.destination,
            local: header.source,
            peer: number(&self.peers, origin.peer),
            interface: number(&self.interfaces, origin.interface),
        };
        let blocks = self.blocks.iter().enumerate().skip(from / BLOCK);
        let rules = blocks.flat_map(move |(number, block)| {
            ones(block.matching(&session)).map(move |rule| number * BLOCK + rule)
        });
        rules.skip_while(move |rule| *rule < from)
    }
}

/// What rules look at in a session.
struct Session {
    protocol: u32,
    remote_port: u32,
    local_port: u32,
    remote: IpAddr,
    local: IpAddr,
    peer: u32,
    interface: u32,
}

/// Up to [`BLOCK`] rules.
#[derive(Clone, Debug)]
struct Block {
    protocol: Field<u32>,
    remote_port: Field<u32>,
    local_port: Field<u32>,
    remote: Field<IpAddr>,
    local: Field<IpAddr>,
    peer: Field<u32>,
    interface: Field<u32>,
}

impl Block {
    fn new(rules: &[Rule], peers: &[String], interfaces: &[String]) -> Self {
        let one = |value: u32| Span { from: value, behind: Some(value + 1) };
        let ports = |ports: &RangeInclusive<u16>| {
            // An empty range begins where it ends.
            let behind = u32::from(*ports.end()) + 1;
            Span { from: behind.min((*ports.start()).into()), behind: Some(behind) }
        };
        let numbers =
            |held: &dyn Fn(&Rule) -> Option<Span<u32>>| Field::new(0, rules.iter().map(held));
        let addresses = |held: &dyn Fn(&Rule) -> Option<Prefix>| {
            Field::new(LOWEST, rules.iter().map(|rule| held(rule).map(addresses_of)))
        };
        let name = |names: &[String], name: &Option<String>| {
            name.as_ref().map(|name| one(number(names, Some(name))))
        };
        Self {
            protocol: numbers(&|rule| rule.protocol.map(|protocol| one(protocol.into()))),
            remote_port: numbers(&|rule| rule.remote_port.as_ref().map(ports)),
            local_port: numbers(&|rule| rule.local_port.as_ref().map(ports)),
            remote: addresses(&|rule| rule.remote_prefix),
            local: addresses(&|rule| rule.local_prefix),
            peer: numbers(&|rule| name(peers, &rule.peer)),
            interface: numbers(&|rule| name(interfaces, &rule.interface)),
        }
    }

    /// The rules that match `session`.
    fn matching(&self, session: &Session) -> Rules {
        let mut all = *self.protocol.at(session.protocol);
        for rules in [
            self.remote_port.at(session.remote_port),
            self.local_port.at(session.local_port),
            self.remote.at(session.remote),
            self.local.at(session.local),
            self.peer.at(session.peer),
            self.interface.at(session.interface),
        ] {
            for (all, rules) in all.iter_mut().zip(rules) {
                *all &= rules;
            }
        }
        all
    }
}

/// Values of a field for which a rule holds.
#[derive(Clone, Copy, Debug)]
struct Span<K> {
    from: K,
    /// The first value behind them; `None`: they go to the end.
    behind: Option<K>,
}

/// The pieces of a field's values.
#[derive(Clone, Debug)]
struct Field<K> {
    /// The first value of each piece, in order.
    starts: Vec<K>,
    /// The rules that hold there.
    rules: Vec<Rules>,
}

impl<K: Copy + Ord> Field<K> {
    /// `lowest` of all values, and for each rule those for which it holds; `None`: all of them.
    fn new(lowest: K, held: impl Iterator<Item = Option<Span<K>>>) -> Self {
        let mut edges = vec![];
        for (rule, span) in held.enumerate() {
            let Span { from, behind } = span.unwrap_or(Span { from: lowest, behind: None });
            edges.push((from, rule));
            edges.extend(behind.map(|behind| (behind, rule)));
        }
        edges.sort_unstable();
        let (mut starts, mut rules) = (vec![lowest], vec![]);
        let mut here = [0; WORDS];
        for (at, rule) in edges {
            if starts.last() != Some(&at) {
                rules.push(here);
                starts.push(at);
            }
            here[rule / u64::BITS as usize] ^= 1 << (rule % u64::BITS as usize);
        }
        rules.push(here);
        Self { starts, rules }
    }

    /// The rules that hold for `value`.
    fn at(&self, value: K) -> &Rules {
        let behind = self.starts.partition_point(|start| *start <= value);
        &self.rules[behind.saturating_sub(1)]
    }
}

/// The lowest address, in the order of [`IpAddr`]: those of IPv4 come first.
const LOWEST: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The addresses in `prefix`.
fn addresses_of(prefix: Prefix) -> Span<IpAddr> {
    let host_bits = |bits: u8| u32::from(bits.saturating_sub(prefix.prefix_len()));
    let behind =
        match prefix.address() {
            IpAddr::V4(first) => {
                let behind = u64::from(u32::from(first)) + (1 << host_bits(32));
                Some(u32::try_from(behind).map_or(Ipv6Addr::UNSPECIFIED.into(), |behind| {
                    IpAddr::V4(Ipv4Addr::from(behind))
                }))
            }
            IpAddr::V6(first) => {
                let size = 1_u128.checked_shl(host_bits(128));
                let behind = size.and_then(|size| u128::from(first).checked_add(size));
                behind.map(|behind| Ipv6Addr::from(behind).into())
            }
        };
    Span { from: prefix.address(), behind }
}

/// `names`, sorted, each once.
fn sorted<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut names: Vec<String> = names.cloned().collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The place of `name` among the sorted `names`; their number if it is none of them.
fn number(names: &[String], name: Option<&str>) -> u32 {
    let place = name.and_then(|name| names.binary_search_by(|other| other.as_str().cmp(name)).ok());
    place.unwrap_or(names.len()) as u32
}

/// The places of the bits that are set, lowest first.
fn ones(rules: Rules) -> impl Iterator<Item = usize> {
    rules.into_iter().zip(0..).flat_map(|(mut word, place)| {
        core::iter::from_fn(move || {
            let bit = word.trailing_zeros();
            word &= word.wrapping_sub(1);
            (bit < u64::BITS).then(|| (place * u64::BITS + bit) as usize)
        })
    })
}

#[cfg(test)]
mod tests;
