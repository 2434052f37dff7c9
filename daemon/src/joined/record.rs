//! One record: an invitation, and the peer that it became.

use std::net::IpAddr;

use mpip_api::KnownPeer;
use mpip_core::{PeerConfig, Policy, Prefix};
use mpip_crypto::{InvitationSecret, PublicKey};

/// An invitation, and the peer that it became.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) addresses: Vec<IpAddr>,
    /// Networks behind the peer.
    pub(crate) prefixes: Vec<Prefix>,
    pub(super) secret: InvitationSecret,
    /// Of the token.
    pub(super) digest: [u8; 32],
    /// When the invitation ends, seconds since 1970-01-01 UTC.
    pub(super) expires: u64,
    /// The key that used it, and when, in the same seconds.
    pub(super) joined: Option<(PublicKey, u64)>,
    /// It was withdrawn, or its peer removed.
    pub(super) removed: bool,
}

impl Record {
    /// Whether its addresses and name are its own.
    pub(super) fn holds(&self, unix: u64) -> bool {
        !self.removed && (self.joined.is_some() || unix < self.expires)
    }

    /// Its inner addresses, and the networks behind it.
    pub(super) fn networks(&self) -> impl Iterator<Item = Prefix> {
        let hosts = self.addresses.iter().map(|address| Prefix::host(*address));
        hosts.chain(self.prefixes.iter().copied())
    }

    /// The peer, if it has joined. It may reach what `reaches` says.
    pub(crate) fn peer(&self, reaches: &[Prefix]) -> Option<PeerConfig> {
        let (public_key, _) = self.joined.filter(|_| !self.removed)?;
        Some(PeerConfig {
            name: self.name.clone(),
            public_key,
            preshared_key: self.secret.preshared_key(),
            allowed_prefixes: self.networks().collect(),
            host_mode: false,
            reaches: reaches.to_vec(),
            policy: Policy::Require,
            ..PeerConfig::unnamed()
        })
    }

    pub(super) fn status(&self, unix: u64) -> KnownPeer {
        let state = match self.joined {
            Some(_) => "joined",
            None if unix < self.expires => "invited",
            None => "expired",
        };
        KnownPeer {
            name: self.name.clone(),
            state: state.to_owned(),
            public_key: self.joined.map(|(key, _)| key.to_string()),
            addresses: self.addresses.clone(),
            prefixes: self.prefixes.iter().map(ToString::to_string).collect(),
            joined_unix_s: self.joined.map(|(_, at)| at),
            expires_unix_s: self.joined.is_none().then_some(self.expires),
        }
    }
}
