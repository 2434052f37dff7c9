//! A packet in words: `udp 192.168.1.3:5221 from 10.77.0.2 length 180`.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use mpip_core::packet::{Header, Version};
use mpip_core::{Ecn, Rule};

use crate::config::{did_you_mean, rule_text};

/// Words that may follow protocol and address.
const WORDS: [&str; 3] = ["from", "length", "dscp"];

/// Lengths of an IP packet, from the shortest header on.
const LENGTH_V4: RangeInclusive<usize> = 20..=65_535;
const LENGTH_V6: RangeInclusive<usize> = 40..=65_535;

/// A packet of which not everything need be known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Packet {
    /// Its header. What is not known has some value.
    pub(super) header: Header,
    /// Bytes of the packet, if they are known.
    pub(crate) length: usize,
    known: Known,
}

/// What is known besides protocol and remote address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    remote_port: bool,
    local_prefix: bool,
    local_port: bool,
    length: bool,
    dscp: bool,
}

impl Packet {
    /// The packet that `text` describes: `PROTOCOL ADDRESS[:PORT]`, and then in any order
    /// `from ADDRESS[:PORT]`, `length BYTES`, `dscp CODE_POINT`.
    ///
    /// # Errors
    ///
    /// The word that is wrong, and what was expected in its place.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut words = Words { words: text.split_whitespace().collect(), at: 0 };
        let protocol = words.next("a protocol like `udp`")?;
        let protocol = rule_text::protocol(protocol).map_err(|reason| words.wrong(&reason))?;
        let remote = words.end(protocol, "the address that the packet goes to")?;
        let (mut local, mut length, mut dscp) = (None, None, None);
        while let Some(word) = words.more() {
            let twice = match word {
                "from" => {
                    let end = words.end(protocol, "the address that the packet comes from")?;
                    if end.address.is_ipv4() != remote.address.is_ipv4() {
                        return Err(words.wrong(&format!(
                            "expected an address of the IP version of {}, found `{}`",
                            remote.address, end.address
                        )));
                    }
                    local.replace(end).is_some()
                }
                "length" => length.replace(words.length(remote.address)?).is_some(),
                "dscp" => {
                    let found = words.next("a code point after `dscp`")?;
                    let found = rule_text::dscp(found).map_err(|reason| words.wrong(&reason))?;
                    dscp.replace(found).is_some()
                }
                other => {
                    let meant = did_you_mean(other, &WORDS);
                    return Err(words.wrong(&format!(
                        "expected `from`, `length` or `dscp`, found `{other}`{meant}"
                    )));
                }
            };
            if twice {
                return Err(words.wrong(&format!("expected `{word}` once, found it again")));
            }
        }
        Ok(Self::new(protocol, remote, local, length, dscp))
    }

    fn new(
        protocol: u8,
        remote: End,
        local: Option<End>,
        length: Option<usize>,
        dscp: Option<u8>,
    ) -> Self {
        let ipv4 = remote.address.is_ipv4();
        let (version, shortest) = match ipv4 {
            true => (Version::V4, *LENGTH_V4.start()),
            false => (Version::V6, *LENGTH_V6.start()),
        };
        let local_port = local.and_then(|end| end.port);
        let ports = (local_port.unwrap_or_default(), remote.port.unwrap_or_default());
        let total_len = length.unwrap_or(shortest);
        Self {
            header: Header {
                version,
                header_len: shortest,
                total_len,
                protocol,
                source: local.map_or(remote.address, |end| end.address),
                destination: remote.address,
                ports: rule_text::has_ports(protocol).then_some(ports),
                fragment: false,
                ecn: Ecn::NotEct,
                dscp: dscp.unwrap_or_default(),
                dont_fragment: true,
            },
            length: total_len,
            known: Known {
                // That a protocol has no ports is known as well.
                remote_port: remote.port.is_some() || !rule_text::has_ports(protocol),
                local_prefix: local.is_some(),
                local_port: local_port.is_some() || !rule_text::has_ports(protocol),
                length: length.is_some(),
                dscp: dscp.is_some(),
            },
        }
    }

    /// Where it goes.
    pub(crate) fn remote(&self) -> IpAddr {
        self.header.destination
    }

    /// Where it comes from, if that is known.
    pub(crate) fn local(&self) -> Option<IpAddr> {
        self.known.local_prefix.then_some(self.header.source)
    }

    /// `rule` without conditions about what is not known of the packet, and their keys.
    pub(super) fn decided(&self, rule: &Rule) -> (Rule, Vec<&'static str>) {
        /// Takes a condition out, and notes its key, unless what it is about is known.
        fn drop_unknown<T>(
            known: bool,
            condition: &mut Option<T>,
            key: &'static str,
            on: &mut Vec<&'static str>,
        ) {
            if !known && condition.take().is_some() {
                on.push(key);
            }
        }
        let (mut rule, mut on, known) = (rule.clone(), Vec::new(), self.known);
        if rule
            .local_prefix
            .is_some_and(|prefix| prefix.address().is_ipv4() == self.header.destination.is_ipv4())
        {
            drop_unknown(known.local_prefix, &mut rule.local_prefix, "local_prefix", &mut on);
        }
        drop_unknown(known.local_prefix, &mut rule.interface, "interface", &mut on);
        drop_unknown(known.remote_port, &mut rule.remote_port, "remote_port", &mut on);
        drop_unknown(known.local_port, &mut rule.local_port, "local_port", &mut on);
        drop_unknown(known.length, &mut rule.length, "length", &mut on);
        drop_unknown(known.dscp, &mut rule.dscp, "dscp", &mut on);
        (rule, on)
    }
}

/// One end of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    address: IpAddr,
    port: Option<u16>,
}

/// The words of a description, and how many of them are read.
struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Words<'a> {
    /// The next word, if there are more.
    fn more(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied()?;
        self.at += 1;
        Some(word)
    }

    /// The next word, which is `expected`.
    fn next(&mut self, expected: &str) -> Result<&'a str, String> {
        let found = self.more();
        found.ok_or_else(|| match self.words.last() {
            Some(last) => format!("expected {expected}, found the end behind `{last}`"),
            None => {
                "expected a packet like `udp 192.168.1.3:5221 length 180`, found nothing".to_owned()
            }
        })
    }

    /// An error about the last word that was read.
    fn wrong(&self, reason: &str) -> String {
        format!("word {}: {reason}", self.at)
    }

    /// An address, `expected`, with a port if it has one.
    fn end(&mut self, protocol: u8, expected: &str) -> Result<End, String> {
        let found = self.next(expected)?;
        let end = match (found.parse::<IpAddr>(), found.parse::<SocketAddr>()) {
            (Ok(address), _) => End { address, port: None },
            (_, Ok(end)) if end.port() != 0 => End { address: end.ip(), port: Some(end.port()) },
            _ => {
                return Err(self.wrong(&format!(
                    "expected {expected}, like 198.51.100.2, 198.51.100.2:443 or \
                     [2001:db8::2]:443, found `{found}`"
                )));
            }
        };
        if end.port.is_some() && !rule_text::has_ports(protocol) {
            return Err(self.wrong(&format!(
                "expected an address without a port, because {} has none, found `{found}`",
                rule_text::protocol_name(protocol)
            )));
        }
        Ok(end)
    }

    /// The length of a packet to `remote`.
    fn length(&mut self, remote: IpAddr) -> Result<usize, String> {
        let found = self.next("a number of bytes after `length`")?;
        let possible = if remote.is_ipv4() { LENGTH_V4 } else { LENGTH_V6 };
        let length = found.parse().ok().filter(|length| possible.contains(length));
        length.ok_or_else(|| {
            let (from, to) = possible.into_inner();
            self.wrong(&format!("expected bytes of the IP packet, {from} to {to}, found `{found}`"))
        })
    }
}
