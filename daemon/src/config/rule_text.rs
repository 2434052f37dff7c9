//! Values of a rule as text: read and written the same way in the configuration and by `mpip rule`.
//!
//! An error says what was expected and what was found, without the key.

use std::ops::RangeInclusive;

use mpip_core::{Copies, Priority};

use super::values::names;

/// The priority that depends on the flow, as without a rule.
pub(crate) const AUTO: &str = "auto";

/// What a rule can say as its priority, by name.
pub(super) fn priorities() -> Vec<(&'static str, Option<Priority>)> {
    let given = Priority::NAMES.iter().map(|(name, priority)| (*name, Some(*priority)));
    core::iter::once((AUTO, None)).chain(given).collect()
}

/// Protocols that a rule can name (IANA, Assigned Internet Protocol Numbers).
const PROTOCOLS: [(&str, u8); 9] = [
    ("icmp", 1),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("sctp", 132),
    ("udplite", 136),
];

/// Protocols whose headers begin with ports: TCP, UDP, DCCP, SCTP and UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// Code points that have a name: RFC 2474 (`cs`), RFC 2597 (`af`), RFC 3246 (`ef`), RFC 5865
/// (`va`), RFC 8622 (`le`).
const CODE_POINTS: [(&str, u8); 23] = [
    ("cs0", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// Numbers of copies that a rule can ask for.
const COPIES: RangeInclusive<u8> = Copies::FEWEST..=Copies::MOST;

/// As many copies as the losses ask for.
const ADAPTIVE: &str = "adaptive";

/// No new code point.
const KEEP: &str = "keep";

/// Largest code point: 6 bits.
const CODE_POINT_MAX: u8 = 63;

/// Whether packets of `protocol` have ports.
pub(crate) fn has_ports(protocol: u8) -> bool {
    WITH_PORTS.contains(&protocol)
}

/// The number of the protocol that `text` names.
pub(crate) fn protocol(text: &str) -> Result<u8, String> {
    number(text, &PROTOCOLS).ok_or_else(|| {
        let expected = names(PROTOCOLS.iter().map(|(name, _)| *name));
        format!("expected one of {expected} or a number 0 to 255, found `{text}`")
    })
}

/// The name of `protocol`, or its number.
pub(crate) fn protocol_name(protocol: u8) -> String {
    name(protocol, &PROTOCOLS)
}

/// The code point that `text` names.
pub(crate) fn dscp(text: &str) -> Result<u8, String> {
    let found = number(text, &CODE_POINTS).filter(|found| *found <= CODE_POINT_MAX);
    found.ok_or_else(|| {
        format!(
            "expected a code point from 0 to {CODE_POINT_MAX}, or its name like `ef`, `af41` or \
             `cs1`, found `{text}`"
        )
    })
}

/// The code point that `text` names for packets to be given; `None`: they keep theirs.
pub(crate) fn new_dscp(text: &str) -> Result<Option<u8>, String> {
    match text {
        KEEP => Ok(None),
        _ => dscp(text).map(Some).map_err(|_| {
            format!(
                "expected a code point from 0 to {CODE_POINT_MAX}, its name like `ef`, or \
                 `{KEEP}`, found `{text}`"
            )
        }),
    }
}

/// The name of the code point `dscp`, or its number.
pub(crate) fn dscp_name(dscp: u8) -> String {
    name(dscp, &CODE_POINTS)
}

/// The number of paths that `text` says.
pub(crate) fn copies(text: &str) -> Result<Copies, String> {
    let number = text.parse().ok().filter(|copies| COPIES.contains(copies)).map(Copies::Fixed);
    let adaptive = (text == ADAPTIVE).then_some(Copies::Adaptive);
    adaptive.or(number).ok_or_else(|| {
        let (from, to) = COPIES.into_inner();
        format!("expected a number of paths from {from} to {to} or `{ADAPTIVE}`, found `{text}`")
    })
}

/// `copies` as text.
pub(crate) fn copies_text(copies: Copies) -> String {
    match copies {
        Copies::Fixed(paths) => paths.to_string(),
        Copies::Adaptive => ADAPTIVE.to_owned(),
    }
}

/// A single port.
pub(crate) fn port(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or_else(|| format!("expected a port from 1 to 65535, found `{text}`"))
}

/// A port, `a-b` (both included) or `a-` (`a` and more).
pub(crate) fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let expected = || {
        format!(
            "expected a port from 1 to 65535 or a range like \"5000-5100\" or \"5000-\", \
             found `{text}`"
        )
    };
    let range = match text.contains('-') {
        true => range(text).ok_or_else(expected)?,
        false => port(text.trim()).map(|port| port..=port).map_err(|_| expected())?,
    };
    if *range.start() == 0 {
        return Err(expected());
    }
    in_order(range, text)
}

/// `ports` as text.
pub(crate) fn ports_text(ports: &RangeInclusive<u16>) -> String {
    match ports.start() == ports.end() {
        true => ports.start().to_string(),
        false => range_text(ports),
    }
}

/// Lengths of packets: `a-b` (both included) or `a-` (`a` and more).
pub(crate) fn length(text: &str) -> Result<RangeInclusive<u16>, String> {
    let range = range(text).ok_or_else(|| {
        format!(
            "expected bytes of the IP packet like \"0-200\" or \"1000-\", at most 65535, \
             found `{text}`"
        )
    });
    in_order(range?, text)
}

/// `range` as text.
pub(crate) fn range_text(range: &RangeInclusive<u16>) -> String {
    match *range.end() {
        u16::MAX => format!("{}-", range.start()),
        end => format!("{}-{end}", range.start()),
    }
}

/// `a-b` or `a-`.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (from, to) = text.split_once('-')?;
    let to = match to.trim() {
        "" => u16::MAX,
        to => to.parse().ok()?,
    };
    Some(from.trim().parse().ok()?..=to)
}

/// `range`, which `text` says, unless its ends are the wrong way round.
fn in_order(range: RangeInclusive<u16>, text: &str) -> Result<RangeInclusive<u16>, String> {
    match range.is_empty() {
        true => Err(format!("expected the lower end first, found `{text}`")),
        false => Ok(range),
    }
}

fn number(text: &str, known: &[(&str, u8)]) -> Option<u8> {
    let named = known.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
    named.or_else(|| text.parse().ok())
}

fn name(number: u8, known: &[(&str, u8)]) -> String {
    let named = known.iter().find(|(_, other)| *other == number);
    named.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for range in [1..=1, 5_000..=5_100, 1_024..=u16::MAX, u16::MAX..=u16::MAX] {
            assert_eq!(ports(&ports_text(&range)), Ok(range));
        }
        for range in [0..=200, 1_000..=u16::MAX, 7..=7] {
            assert_eq!(length(&range_text(&range)), Ok(range));
        }
        for number in 0..=u8::MAX {
            assert_eq!(protocol(&protocol_name(number)), Ok(number));
        }
        for number in 0..=CODE_POINT_MAX {
            assert_eq!(dscp(&dscp_name(number)), Ok(number));
        }
    }

    #[test]
    fn a_new_code_point_is_one_or_keeps_the_old_one() {
        let values = [("keep", None), ("ef", Some(46)), ("0", Some(0)), ("63", Some(63))];
        for (text, expected) in values {
            assert_eq!(new_dscp(text), Ok(expected));
        }
        let reason = new_dscp("kep").expect_err("no code point");
        assert!(reason.ends_with("its name like `ef`, or `keep`, found `kep`"), "{reason}");
    }

    #[test]
    fn copies_are_a_number_or_adaptive() {
        for copies in (2..=8).map(Copies::Fixed).chain([Copies::Adaptive]) {
            assert_eq!(self::copies(&copies_text(copies)), Ok(copies));
        }
        for text in ["1", "9", "0", "-1", "Adaptive", "", "2.0"] {
            let reason = copies(text).expect_err(text);
            let expected = "expected a number of paths from 2 to 8 or `adaptive`, found";
            assert_eq!(reason, format!("{expected} `{text}`"));
        }
    }

    #[test]
    fn assured_forwarding_and_class_selectors_have_the_values_of_their_rfcs() {
        // RFC 2597, section 6: `af` class × 8 + drop precedence × 2; RFC 2474, section 4.2.2.2.
        for (name, number) in CODE_POINTS {
            let digits: Vec<u8> = name.bytes().filter(u8::is_ascii_digit).collect();
            match digits[..] {
                [class, drop] => assert_eq!(number, (class - b'0') * 8 + (drop - b'0') * 2),
                [class] => assert_eq!(number, (class - b'0') * 8),
                _ => {}
            }
        }
        assert_eq!((dscp("ef"), dscp("va"), dscp("le")), (Ok(46), Ok(44), Ok(1)));
    }

    #[test]
    fn a_port_that_is_none_and_a_range_that_is_empty_are_refused() {
        for text in ["0", "0-5", "65536", "5-65536", "-", "-5", "a", "", "1-2-3", "1,2"] {
            let reason = ports(text).expect_err(text);
            assert!(reason.starts_with("expected a port from 1 to 65535 or a range"), "{reason}");
            assert!(reason.ends_with(&format!("found `{text}`")), "{reason}");
        }
        assert_eq!(ports("9-8"), Err("expected the lower end first, found `9-8`".to_owned()));
        assert_eq!(ports("5000 - 5100"), Ok(5_000..=5_100));
        assert!(dscp("64").is_err() && dscp("EF").is_err());
    }
}
