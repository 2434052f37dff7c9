//! Invitations and the peers that came of them.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// An invitation that was made. Its token is a secret until it was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvitationStatus {
    /// What the gateway calls the invited node.
    pub name: String,
    /// What to give to `mpip join`.
    pub token: String,
    /// Inner addresses of the invited node.
    pub addresses: Vec<IpAddr>,
    /// Where the token says that the gateway is.
    pub endpoints: Vec<SocketAddr>,
    /// When it ends, seconds since 1970-01-01 UTC.
    pub expires_unix_s: u64,
}

/// A node that was invited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownPeer {
    /// What the gateway calls it.
    pub name: String,
    /// `invited`, `expired` or `joined`.
    pub state: String,
    /// Its static public key, once it has joined.
    pub public_key: Option<String>,
    /// Its inner addresses.
    pub addresses: Vec<IpAddr>,
    /// Networks behind it.
    pub prefixes: Vec<String>,
    /// When it joined, seconds since 1970-01-01 UTC.
    pub joined_unix_s: Option<u64>,
    /// When the invitation ends, if nobody has used it, in the same seconds.
    pub expires_unix_s: Option<u64>,
}
