//! Keys that were pinned to addresses on first use.
//!
//! A host that talks to many addresses meets many nodes, and an attacker can cause that: one mail
//! or web page can name thousands of addresses that are all the attacker's. So the table is
//! bounded, and each network and each site has a limited share of it. New nodes never displace
//! known ones: at a bound only expired pins make room.
//!
//! A pin expires when its node was not met for a long time, because its address then often belongs
//! to another node. An expired pin stays until its place is needed, and meeting its node again
//! renews it. Another key at its address replaces it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;

use mpip_crypto::PublicKey;

use mpip_types::Prefix;

use crate::config::Pin;

/// Most pins of one network: an IPv6 /64, which is one link, or an IPv4 /24, which this covers in
/// full.
pub(crate) const NETWORK: usize = 256;
/// Most pins of one site: an IPv6 /48 (RFC 6177), or an IPv4 /16. Sixteen sites fill the table.
pub(crate) const SITE: usize = 4_096;

/// A change of the pins that is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinChange {
    /// It is new, perhaps in place of an expired one.
    Pinned(Pin),
    /// Its node was met again, on another day than the last time.
    Met(Pin),
    /// It had expired and was removed to make room.
    Forgotten(Pin),
}

impl PinChange {
    /// The pin.
    pub fn pin(&self) -> &Pin {
        let (Self::Pinned(pin) | Self::Met(pin) | Self::Forgotten(pin)) = self;
        pin
    }

    /// Merges this change with `later`, a change of the same address.
    #[must_use]
    pub fn then(self, later: Self) -> Self {
        match (self, later) {
            (Self::Pinned(before), Self::Met(pin)) if before.public_key == pin.public_key => {
                Self::Pinned(pin)
            }
            _ => later,
        }
    }
}

/// The result of meeting a node at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// Its key is now pinned.
    New,
    /// Its key is now pinned in place of this expired one.
    InPlaceOf(PublicKey),
    /// Its key was already pinned.
    Known,
    /// Another key is pinned.
    Other,
    /// There is no room for another pin.
    Full,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Pins {
    /// Key, and day of the last meeting; without a day the pin does not expire.
    pins: BTreeMap<IpAddr, (PublicKey, Option<u32>)>,
    limit: usize,
    /// Days from the last meeting to expiry.
    expiry: Option<u32>,
    changes: BTreeMap<IpAddr, PinChange>,
    /// The last day on which a search found no expired pin.
    searched: Option<u32>,
}

impl Pins {
    /// With all pins in `known`, even beyond `limit`.
    pub(crate) fn new(known: Vec<Pin>, limit: usize, expiry: Option<u32>) -> Self {
        let known = known.into_iter().map(|pin| (pin.address, (pin.public_key, pin.met)));
        let (pins, changes) = (known.collect(), BTreeMap::new());
        Self { pins, limit, expiry, changes, searched: None }
    }

    /// The key pinned to `address`, if it is not `found` and has not expired.
    pub(crate) fn refuses(
        &self,
        address: IpAddr,
        found: PublicKey,
        today: u32,
    ) -> Option<PublicKey> {
        let (key, met) = *self.pins.get(&address)?;
        (key != found && !self.has_expired(met, today)).then_some(key)
    }

    /// Whether `key` is pinned to `address`.
    pub(crate) fn holds(&self, address: IpAddr, key: PublicKey) -> bool {
        self.pins.get(&address).is_some_and(|(pinned, _)| *pinned == key)
    }

    /// Whether a key is pinned to `address`, or can be.
    pub(crate) fn has_room(&mut self, address: IpAddr, today: u32) -> bool {
        self.pins.contains_key(&address) || self.make_room(address, today, false)
    }

    /// The node with this key proved to be at `address`: pins the key, unless another one is
    /// pinned.
    pub(crate) fn meet(&mut self, address: IpAddr, public_key: PublicKey, today: u32) -> Met {
        let pin = Pin { address, public_key, met: Some(today) };
        match self.pins.get(&address).copied() {
            Some((key, met)) if key == public_key => {
                if met.is_some_and(|met| met < today) {
                    self.pins.insert(address, (key, pin.met));
                    self.note(PinChange::Met(pin));
                }
                return Met::Known;
            }
            Some((_, met)) if !self.has_expired(met, today) => return Met::Other,
            None if !self.make_room(address, today, true) => return Met::Full,
            _ => {}
        }
        let former = self.pins.insert(address, (public_key, pin.met));
        self.note(PinChange::Pinned(pin));
        former.map_or(Met::New, |(key, _)| Met::InPlaceOf(key))
    }

    /// The next change to be stored.
    pub(crate) fn poll(&mut self) -> Option<PinChange> {
        self.changes.pop_first().map(|(_, change)| change)
    }

    fn note(&mut self, change: PinChange) {
        let address = change.pin().address;
        let before = self.changes.remove(&address);
        self.changes.insert(address, before.map_or(change, |before| before.then(change)));
    }

    fn has_expired(&self, met: Option<u32>, today: u32) -> bool {
        // A clock that was set back expires nothing.
        let unmet = met.map(|met| today.saturating_sub(met));
        self.expiry.zip(unmet).is_some_and(|(expiry, unmet)| unmet > expiry)
    }

    /// Whether there is room for another pin at `address`, if need be in place of an expired one,
    /// which is removed if `take`.
    fn make_room(&mut self, address: IpAddr, today: u32, take: bool) -> bool {
        let (network, site) = if address.is_ipv4() { (24, 16) } else { (64, 48) };
        [(network, NETWORK), (site, SITE)].into_iter().all(|(len, share)| {
            let ends = ends(address, len);
            self.pins.range(ends.0..=ends.1).take(share).count() < share
                || self.replace(ends, today, take)
        }) && (self.pins.len() < self.limit
            || self.searched != Some(today) && {
                let replaced = self.replace(ALL, today, take);
                self.searched = (!replaced).then_some(today);
                replaced
            })
    }

    /// Finds the expired pin within `ends` that was not met for longest; removes it if `take`.
    fn replace(&mut self, ends: (IpAddr, IpAddr), today: u32, take: bool) -> bool {
        let within = self.pins.range(ends.0..=ends.1);
        let expired = within.filter(|(_, (_, met))| self.has_expired(*met, today));
        let Some((address, _)) = expired.min_by_key(|(_, (_, met))| *met) else { return false };
        let address = *address;
        if take && let Some((public_key, met)) = self.pins.remove(&address) {
            self.note(PinChange::Forgotten(Pin { address, public_key, met }));
        }
        true
    }
}

const ALL: (IpAddr, IpAddr) =
    (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)));

/// First and last address with the first `len` bits of `address`.
fn ends(address: IpAddr, len: u8) -> (IpAddr, IpAddr) {
    let first = Prefix::new(address, len).map_or(address, |prefix| prefix.address());
    let last = match first {
        IpAddr::V4(ip) => {
            let rest = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() | rest))
        }
        IpAddr::V6(ip) => {
            let rest = u128::MAX.checked_shr(len.into()).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() | rest))
        }
    };
    (first, last)
}

#[cfg(test)]
mod tests;
