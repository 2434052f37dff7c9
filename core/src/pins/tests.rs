use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const TODAY: u32 = 20_000;
const EXPIRY: u32 = 180;

fn key(number: u8) -> PublicKey {
    PublicKey::from_bytes([number; 32])
}

fn v4(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Address `host` in network `network` of site `site`.
fn v6(site: u16, network: u16, host: u64) -> IpAddr {
    let high = 0x2001_0db8_0000_0000_u64 | u64::from(site) << 16 | u64::from(network);
    IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(host)))
}

fn pins(known: Vec<Pin>, limit: usize) -> Pins {
    Pins::new(known, limit, Some(EXPIRY))
}

fn changes(pins: &mut Pins) -> Vec<PinChange> {
    core::iter::from_fn(|| pins.poll()).collect()
}

///
#[test]
fn the_first_key_is_pinned_and_another_is_refused() {
    let mut pins = pins(vec![], 10);
    let address = v4("198.18.0.2");
    assert!(pins.has_room(address, TODAY));
    assert_eq!(pins.meet(address, key(1), TODAY), Met::New);
    assert_eq!(pins.refuses(address, key(2), TODAY), Some(key(1)));
    assert_eq!(pins.meet(address, key(2), TODAY), Met::Other);
    assert_eq!(pins.refuses(address, key(1), TODAY), None);
    assert_eq!(pins.meet(address, key(1), TODAY), Met::Known);
    let pin = Pin { address, public_key: key(1), met: Some(TODAY) };
    assert_eq!(changes(&mut pins), [PinChange::Pinned(pin)]);
}

///
#[test]
fn a_network_and_a_site_have_a_share_of_the_pins() {
    let mut pins = pins(vec![], 65_536);
    let fill = |pins: &mut Pins, site: u16, network: u16, count: u64| {
        let met = (0..count).map(|host| pins.meet(v6(site, network, host), key(1), TODAY));
        met.filter(|met| *met == Met::New).count()
    };
    assert_eq!(fill(&mut pins, 1, 1, 1_000), NETWORK);
    assert!(!pins.has_room(v6(1, 1, 5_000), TODAY) && pins.has_room(v6(1, 2, 0), TODAY));
    assert!(pins.has_room(v6(1, 1, 5), TODAY), "one that is known");
    let of_site: usize = (2..20).map(|network| fill(&mut pins, 1, network, 300)).sum();
    assert_eq!(of_site + NETWORK, SITE);
    assert!(!pins.has_room(v6(1, 500, 0), TODAY) && pins.has_room(v6(2, 0, 0), TODAY));
    assert_eq!(pins.meet(v6(1, 500, 0), key(1), TODAY), Met::Full);
    // A whole IPv4 /24 has room, a thirteenth of a /16 does not.
    let mut met = 0;
    for number in (0..256).chain((256..65_536_u32).step_by(13)) {
        let address = IpAddr::V4(Ipv4Addr::from_bits(0xc612_0000 + number));
        met += usize::from(pins.meet(address, key(2), TODAY) == Met::New);
        assert!(number != 255 || met == 256);
    }
    assert_eq!(met, SITE);
}

///
#[test]
fn at_a_bound_only_expired_pins_make_room_the_longest_unmet_first() {
    let mut pins = pins(vec![], 4);
    for (host, met) in [(1, TODAY - 300), (2, TODAY - 400), (3, TODAY - EXPIRY), (4, TODAY)] {
        assert_eq!(pins.meet(v6(1, host, 1), key(1), met), Met::New);
    }
    changes(&mut pins);
    assert!(pins.has_room(v6(2, 0, 0), TODAY));
    assert_eq!(changes(&mut pins), [], "to ask changes nothing");
    for (new, forgotten) in [(5, 2), (6, 1)] {
        assert_eq!(pins.meet(v6(2, new, 0), key(2), TODAY), Met::New);
        let changes = changes(&mut pins);
        let PinChange::Forgotten(pin) = changes[0] else { panic!("{changes:?}") };
        assert_eq!(pin.address, v6(1, forgotten, 1));
        assert!(matches!(changes[1], PinChange::Pinned(pin) if pin.address == v6(2, new, 0)));
    }
    assert_eq!(pins.meet(v6(2, 7, 0), key(2), TODAY), Met::Full);
    assert!(!pins.has_room(v6(2, 7, 0), TODAY));
    assert_eq!(pins.meet(v6(2, 7, 0), key(2), TODAY + 1), Met::New, "the next day one expires");
}

///
#[test]
fn an_expired_pin_is_replaced_by_another_key() {
    let address = v4("198.18.0.2");
    let old = Pin { address, public_key: key(1), met: Some(TODAY) };
    let mut pins = pins(vec![old], 10);
    let last = TODAY + EXPIRY;
    assert_eq!(pins.refuses(address, key(2), last), Some(key(1)));
    assert_eq!(pins.meet(address, key(2), last), Met::Other);
    assert_eq!(pins.refuses(address, key(2), last + 1), None);
    assert_eq!(changes(&mut pins), [], "nobody needs its place");
    assert_eq!(pins.meet(address, key(1), last + 1), Met::Known, "its node is back");
    assert_eq!(pins.refuses(address, key(2), last + 1), Some(key(1)));
    let later = last + 2 + EXPIRY;
    assert_eq!(pins.meet(address, key(2), later), Met::InPlaceOf(key(1)));
    assert_eq!(pins.refuses(address, key(1), later), Some(key(2)));
    let new = Pin { address, public_key: key(2), met: Some(later) };
    assert_eq!(changes(&mut pins), [PinChange::Pinned(new)]);
}

///
#[test]
fn configured_pins_and_pins_from_a_future_clock_do_not_expire() {
    let (mine, other) = (v4("198.18.0.2"), v4("198.18.0.3"));
    let by_hand = Pin { address: mine, public_key: key(1), met: None };
    let future = Pin { address: other, public_key: key(1), met: Some(TODAY) };
    let mut pins = pins(vec![by_hand, future], 2);
    assert_eq!(pins.refuses(mine, key(2), u32::MAX), Some(key(1)));
    assert_eq!(pins.meet(mine, key(1), u32::MAX), Met::Known);
    assert_eq!(pins.refuses(other, key(2), 0), Some(key(1)));
    assert_eq!(pins.meet(other, key(1), 0), Met::Known);
    assert_eq!(changes(&mut pins), [], "nor does a meeting in the past change anything");
    let never = Pins::new(vec![future], 1, None);
    assert_eq!(never.refuses(other, key(2), u32::MAX), Some(key(1)));
}

#[test]
fn a_pin_in_use_is_stored_once_a_day() {
    let address = v4("198.18.0.2");
    let mut pins = pins(vec![], 10);
    let at = |met| Pin { address, public_key: key(1), met: Some(met) };
    for day in [TODAY, TODAY, TODAY + 1] {
        pins.meet(address, key(1), day);
    }
    // Changes of a pin that were not polled yet are merged.
    assert_eq!(changes(&mut pins), [PinChange::Pinned(at(TODAY + 1))]);
    for day in [TODAY + 1, TODAY + 2, TODAY + 2, TODAY + 3] {
        pins.meet(address, key(1), day);
    }
    assert_eq!(changes(&mut pins), [PinChange::Met(at(TODAY + 3))]);
}

proptest! {
    /// Invariants for any sequence of meetings: no bound is exceeded, pins that have not expired
    /// stay, and the polled changes reproduce the table.
    #[test]
    fn the_polled_changes_reproduce_the_table(
        steps in proptest::collection::vec((0_u16..3, 0_u16..3, 0_u64..4, 0_u8..3, 0_u32..90), 1..200),
        limit in 1_usize..12,
        poll in 1_usize..9,
    ) {
        let mut pins = Pins::new(vec![], limit, Some(EXPIRY));
        let mut written: BTreeMap<IpAddr, (PublicKey, Option<u32>)> = BTreeMap::new();
        let mut apply = |pins: &mut Pins| while let Some(change) = pins.poll() {
            let pin = *change.pin();
            match change {
                PinChange::Pinned(_) | PinChange::Met(_) => {
                    written.insert(pin.address, (pin.public_key, pin.met));
                }
                PinChange::Forgotten(_) => {
                    written.remove(&pin.address);
                }
            }
        };
        let mut today = TODAY;
        for (count, (site, network, host, number, days)) in steps.into_iter().enumerate() {
            today += days;
            let (address, found) = (v6(site, network, host), key(number));
            let before = pins.pins.clone();
            let room = pins.has_room(address, today);
            let refused = pins.refuses(address, found, today);
            let met = pins.meet(address, found, today);
            prop_assert_eq!(room, met != Met::Full);
            prop_assert_eq!(refused.is_some(), met == Met::Other);
            prop_assert!(pins.pins.len() <= limit);
            let after: BTreeSet<_> = pins.pins.iter().map(|(at, (key, _))| (*at, *key)).collect();
            for (at, (key, day)) in before {
                let fresh = day.is_some_and(|day| today - day <= EXPIRY);
                prop_assert!(!fresh || after.contains(&(at, key)), "{at} was pushed out");
            }
            if count % poll == 0 {
                apply(&mut pins);
            }
        }
        apply(&mut pins);
        prop_assert_eq!(written, pins.pins);
    }
}
