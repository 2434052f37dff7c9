//! The owners of inner addresses.

use core::cell::Cell;
use core::net::IpAddr;
use std::collections::BTreeMap;

use mpip_types::Prefix;

/// The peers that own inner addresses: the longest matching prefix decides.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefixTable {
    /// Longest first.
    by_len: Vec<(u8, BTreeMap<IpAddr, Owner>)>,
    /// The address that was looked up last, and its owner: packets come in runs of one address.
    newest: Cell<Option<(IpAddr, Option<Owner>)>>,
}

/// The owner of a prefix.
#[derive(Clone, Copy, Debug)]
struct Owner {
    peer: usize,
    /// Whether packets with a source in the prefix are accepted.
    source: bool,
}

impl PrefixTable {
    /// Gives `prefix` to `peer`; `source`: packets with a source in it are accepted too. Returns
    /// `false` if another peer owns it.
    pub(crate) fn claim(&mut self, prefix: Prefix, peer: usize, source: bool) -> bool {
        self.newest.set(None);
        let len = prefix.prefix_len();
        let at = match self.by_len.binary_search_by(|(known, _)| len.cmp(known)) {
            Ok(at) => at,
            Err(at) => {
                self.by_len.insert(at, (len, BTreeMap::new()));
                at
            }
        };
        let owner = self.by_len[at].1.entry(prefix.address()).or_insert(Owner { peer, source });
        if owner.peer == peer {
            owner.source |= source;
        }
        owner.peer == peer
    }

    /// Removes `prefix` from `peer`.
    pub(crate) fn release(&mut self, prefix: Prefix, peer: usize) {
        self.newest.set(None);
        for (_, prefixes) in self.by_len.iter_mut().filter(|(len, _)| *len == prefix.prefix_len()) {
            if prefixes.get(&prefix.address()).is_some_and(|owner| owner.peer == peer) {
                prefixes.remove(&prefix.address());
            }
        }
        self.by_len.retain(|(_, prefixes)| !prefixes.is_empty());
    }

    /// The peer that owns exactly `prefix`.
    pub(crate) fn owner_of(&self, prefix: Prefix) -> Option<usize> {
        let (_, prefixes) = self.by_len.iter().find(|(len, _)| *len == prefix.prefix_len())?;
        prefixes.get(&prefix.address()).map(|owner| owner.peer)
    }

    /// The peer to which packets to `address` are sent.
    pub(crate) fn find(&self, address: IpAddr) -> Option<usize> {
        self.owner(address).map(|owner| owner.peer)
    }

    /// The peer from which packets with the source `address` are accepted.
    pub(crate) fn find_source(&self, address: IpAddr) -> Option<usize> {
        self.owner(address).filter(|owner| owner.source).map(|owner| owner.peer)
    }

    fn owner(&self, address: IpAddr) -> Option<Owner> {
        if let Some((known, owner)) = self.newest.get()
            && known == address
        {
            return owner;
        }
        let owner = self.longest_match(address);
        self.newest.set(Some((address, owner)));
        owner
    }

    fn longest_match(&self, address: IpAddr) -> Option<Owner> {
        self.by_len.iter().find_map(|(len, prefixes)| {
            prefixes.get(&Prefix::new(address, *len)?.address()).copied()
        })
    }
}
