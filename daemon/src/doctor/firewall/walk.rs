//! Walks a packet through the chains of a ruleset.

use std::net::IpAddr;

use mpip_core::Prefix;
use serde_json::Value;

use super::super::ruleset::{BaseChain, Ruleset};

/// Deepest nesting of chains that is followed: the kernel allows no more.
const DEPTH: u8 = 16;

/// What connection tracking says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    New,
    Established,
}

/// What is known of a packet that arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    pub(super) ipv6: bool,
    pub(super) source: Option<IpAddr>,
    /// `udp` or `tcp`.
    pub(super) protocol: &'static str,
    pub(super) destination_port: Option<u16>,
    pub(super) interface: &'a str,
    pub(super) state: State,
}

/// Where a packet is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drop {
    /// The chain at the hook, as `nft` names it.
    pub(super) chain: String,
    pub(super) reason: String,
    /// Whether no skipped rule could have accepted it.
    pub(super) certain: bool,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Truth {
    Yes,
    No,
    Unknown,
}

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        if value { Self::Yes } else { Self::No }
    }
}

impl Truth {
    fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            Self::Unknown => Self::Unknown,
        }
    }
}

/// What a chain or rule decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Accept,
    Drop,
    /// Nothing: the next rule decides, or the chain's policy.
    Continue,
    Return,
}

/// Where a packet for this host is dropped; `None` if it is accepted.
pub(super) fn walk(ruleset: &Ruleset, packet: &Packet<'_>) -> Option<Drop> {
    walk_at(["prerouting", "input"], ruleset, packet)
}

/// Where a packet that this host forwards is dropped; `None` if it is accepted.
pub(super) fn walk_past(ruleset: &Ruleset, packet: &Packet<'_>) -> Option<Drop> {
    walk_at(["prerouting", "forward"], ruleset, packet)
}

fn walk_at(hooks: [&str; 2], ruleset: &Ruleset, packet: &Packet<'_>) -> Option<Drop> {
    let families = if packet.ipv6 { ["ip6", "inet"] } else { ["ip", "inet"] };
    // An accepted packet still goes through the chains after this one.
    for hook in hooks {
        let chains = ruleset
            .base
            .iter()
            .filter(|chain| chain.hook == hook && families.contains(&chain.family.as_str()));
        for chain in chains {
            let mut walk = Walk { ruleset, packet, base: chain, skipped: false };
            let verdict = walk.chain(&chain.name, 0);
            let name = format!("{} {} {}", chain.family, chain.table, chain.name);
            let reason = match verdict {
                Verdict::Drop => format!("a rule of the chain {name}"),
                Verdict::Continue | Verdict::Return if chain.drops => {
                    format!("policy of the chain {name}")
                }
                _ => continue,
            };
            return Some(Drop { chain: name, reason, certain: !walk.skipped });
        }
    }
    None
}

struct Walk<'a> {
    ruleset: &'a Ruleset,
    packet: &'a Packet<'a>,
    base: &'a BaseChain,
    /// Whether a rule was skipped that might have accepted the packet.
    skipped: bool,
}

impl Walk<'_> {
    fn chain(&mut self, name: &str, depth: u8) -> Verdict {
        let ruleset = self.ruleset;
        for rule in ruleset.rules(&self.base.family, &self.base.table, name) {
            match self.rule(rule, depth) {
                Verdict::Continue => {}
                verdict => return verdict,
            }
        }
        Verdict::Continue
    }

    fn rule(&mut self, expressions: &[Value], depth: u8) -> Verdict {
        let mut certain = true;
        for expression in expressions {
            let Some((kind, body)) = expression.as_object().and_then(|map| map.iter().next())
            else {
                certain = false;
                continue;
            };
            let verdict = match kind.as_str() {
                "match" => match self.test(body) {
                    Truth::Yes => continue,
                    Truth::No => return Verdict::Continue,
                    Truth::Unknown => {
                        certain = false;
                        continue;
                    }
                },
                "vmap" => match self.look_up(body) {
                    Some(Some(verdict)) => verdict.clone(),
                    Some(None) => continue,
                    None => {
                        self.skipped = true;
                        return Verdict::Continue;
                    }
                },
                "accept" | "drop" | "reject" | "return" | "jump" | "goto" | "queue" => {
                    expression.clone()
                }
                "xt" if body["name"] == "REJECT" => serde_json::json!({"drop": null}),
                // These may keep the rule from matching, and are no verdicts.
                "limit" | "quota" | "ct count" | "xt" | "synproxy" | "socket" => {
                    certain = false;
                    continue;
                }
                _ => continue,
            };
            return self.decide(&verdict, certain, depth);
        }
        Verdict::Continue
    }

    /// The effect of a rule's `verdict`. Unless `certain`, it is unknown whether all conditions
    /// hold.
    fn decide(&mut self, verdict: &Value, certain: bool, depth: u8) -> Verdict {
        let Some((kind, body)) = verdict.as_object().and_then(|map| map.iter().next()) else {
            return Verdict::Continue;
        };
        if !certain {
            self.skipped |= matches!(kind.as_str(), "accept" | "jump" | "goto" | "queue");
            return Verdict::Continue;
        }
        match kind.as_str() {
            "accept" => Verdict::Accept,
            "drop" | "reject" => Verdict::Drop,
            "return" => Verdict::Return,
            "jump" | "goto" if depth < DEPTH => {
                let target = body["target"].as_str().unwrap_or_default();
                match (self.chain(target, depth + 1), kind == "goto") {
                    (Verdict::Continue | Verdict::Return, true) => Verdict::Return,
                    (Verdict::Return, false) => Verdict::Continue,
                    (verdict, _) => verdict,
                }
            }
            // `queue`: a program decides.
            _ => {
                self.skipped = true;
                Verdict::Continue
            }
        }
    }

    /// The verdict of a map for the packet, if it has one; `None` if that is unknown.
    fn look_up<'b>(&self, body: &'b Value) -> Option<Option<&'b Value>> {
        let elements = body["data"]["set"].as_array()?;
        for element in elements {
            match self.compare(&body["key"], &element[0]) {
                Truth::Yes => return Some(Some(&element[1])),
                Truth::No => {}
                Truth::Unknown => return None,
            }
        }
        Some(None)
    }

    fn test(&self, body: &Value) -> Truth {
        let (left, right) = (&body["left"], &body["right"]);
        if self.is_of_another_protocol(left) {
            return Truth::No;
        }
        match body["op"].as_str() {
            Some("==" | "in") => self.compare(left, right),
            Some("!=") => self.compare(left, right).not(),
            _ => Truth::Unknown,
        }
    }

    /// Whether `left` is a field of another protocol. Then the rule does not match.
    fn is_of_another_protocol(&self, left: &Value) -> bool {
        let Some(protocol) = left["payload"]["protocol"].as_str() else { return false };
        match protocol {
            "th" | "ether" => false,
            "ip" => self.packet.ipv6,
            "ip6" => !self.packet.ipv6,
            other => other != self.packet.protocol,
        }
    }

    /// Whether the packet's field `left` equals `right`, or is in the set `right`.
    fn compare(&self, left: &Value, right: &Value) -> Truth {
        if self.is_of_another_protocol(left) {
            return Truth::No;
        }
        let list = match right {
            Value::Array(list) => list.as_slice(),
            Value::Object(map) if map.contains_key("set") => {
                map["set"].as_array().map_or(&[][..], Vec::as_slice)
            }
            Value::String(name) if name.starts_with('@') => {
                let base = self.base;
                match self.ruleset.set(&base.family, &base.table, &name[1..]) {
                    Some(list) => list,
                    None => return Truth::Unknown,
                }
            }
            one => std::slice::from_ref(one),
        };
        let mut result = Truth::No;
        for one in list {
            // An element with a comment, a timeout or a counter is wrapped in an object.
            let one = one.get("elem").map_or(one, |element| &element["val"]);
            match self.equals(left, one) {
                Truth::Yes => return Truth::Yes,
                Truth::Unknown => result = Truth::Unknown,
                Truth::No => {}
            }
        }
        result
    }

    fn equals(&self, left: &Value, right: &Value) -> Truth {
        let Packet { ipv6, source, protocol, destination_port, interface, state } = *self.packet;
        let number = if protocol == "udp" { 17 } else { 6 };
        let is_protocol = || (right == protocol || *right == number).into();
        if let Some(key) = left["meta"]["key"].as_str() {
            return match key {
                "iif" | "iifname" => right.as_str().map_or(Truth::Unknown, |name| {
                    let start = name.strip_suffix('*');
                    start.map_or(name == interface, |start| interface.starts_with(start)).into()
                }),
                "nfproto" => (right == if ipv6 { "ipv6" } else { "ipv4" }).into(),
                "protocol" => (right == if ipv6 { "ip6" } else { "ip" }).into(),
                "l4proto" => is_protocol(),
                "pkttype" => (right == "host").into(),
                _ => Truth::Unknown,
            };
        }
        if left["ct"]["key"] == "state" {
            let name = if state == State::New { "new" } else { "established" };
            return (right == name).into();
        }
        match left["payload"]["field"].as_str() {
            Some("dport") => destination_port.map_or(Truth::Unknown, |port| has_port(right, port)),
            Some("saddr") => source.map_or(Truth::Unknown, |source| has_address(right, source)),
            Some("protocol" | "nexthdr") => is_protocol(),
            _ => Truth::Unknown,
        }
    }
}

fn has_port(value: &Value, port: u16) -> Truth {
    let port = u64::from(port);
    let range = value.get("range").and_then(|range| Some((range[0].as_u64()?, range[1].as_u64()?)));
    match (value.as_u64(), range) {
        (Some(number), _) => (number == port).into(),
        (None, Some((first, last))) => (first..=last).contains(&port).into(),
        // The name of a service.
        _ => Truth::Unknown,
    }
}

fn has_address(value: &Value, address: IpAddr) -> Truth {
    let parse = |value: &Value| value.as_str()?.parse::<IpAddr>().ok();
    if let Some(one) = parse(value) {
        return (one == address).into();
    }
    if let Some(range) = value.get("range")
        && let (Some(first), Some(last)) = (parse(&range[0]), parse(&range[1]))
    {
        return (first..=last).contains(&address).into();
    }
    let prefix = value.get("prefix").and_then(|prefix| {
        Prefix::new(parse(&prefix["addr"])?, u8::try_from(prefix["len"].as_u64()?).ok()?)
    });
    prefix.map_or(Truth::Unknown, |prefix| prefix.contains(address).into())
}

#[cfg(test)]
mod tests;
