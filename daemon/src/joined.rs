//! Peers that joined by an invitation, and invitations: what a gateway remembers beside its
//! configuration.
//!
//! All of it is in one file (`file`), which is replaced as a whole before anybody is told. A record
//! is an invitation first, and a peer once a key has used it. Its inner addresses are its own for
//! as long as it is one of both. What has ended is kept for a month, so that a late user of the
//! token is told why it is refused.

mod file;
mod pool;
mod record;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;

use mpip_api::{InvitationStatus, KnownPeer};
use mpip_core::Prefix;
use mpip_crypto::{
    Invitation, InvitationId, InvitationSecret, PublicKey, ReceivedJoin, Rng, Verdict,
};

pub(crate) use file::load;
pub(crate) use record::Record;

/// Most records. Beyond this nobody is invited.
const RECORDS_MAX: usize = 4_096;
/// Most invitations that wait for their user.
const WAITING_MAX: usize = 256;
/// How long an invitation that ended is remembered, s: a month.
const REMEMBERED: u64 = 30 * 86_400;

/// What a client or a datagram asks of the thread that keeps the records.
#[derive(Debug)]
pub(crate) enum Job {
    /// Make an invitation.
    Invite {
        /// What is asked for.
        wish: Wish,
        /// Where the answer goes.
        reply: SyncSender<Result<InvitationStatus, String>>,
    },
    /// Forget a peer, or withdraw an invitation.
    Remove {
        /// Its name.
        name: String,
        /// Where the answer goes.
        reply: SyncSender<Result<(), String>>,
    },
    /// List peers that joined, and invitations.
    List {
        /// Where the answer goes.
        reply: SyncSender<Vec<KnownPeer>>,
    },
    /// The configuration was read again.
    Follow {
        /// What it says.
        terms: Box<Terms>,
    },
    /// A node asks to join.
    Join {
        /// Where it asks from.
        from: mpip_core::PathAddress,
        /// What it asks.
        request: ReceivedJoin,
    },
}

/// An invitation that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// What the node is to be called.
    pub name: String,
    /// How long the token is good for, s.
    pub valid_s: u64,
    /// Where the gateway is; by default where its paths start.
    pub endpoints: Vec<SocketAddr>,
    /// Networks behind the node.
    pub prefixes: Vec<Prefix>,
}

/// What the configuration says of invitations.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) around: Surroundings,
    /// Where invitations say that this node is; empty for where its paths start.
    pub(crate) endpoints: Vec<SocketAddr>,
    /// What peers that join may reach.
    pub(crate) reaches: Vec<Prefix>,
}

/// What invitations depend on besides the records.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) public_key: PublicKey,
    /// What this node calls itself.
    pub(crate) name: String,
    /// Networks from which peers get addresses.
    pub(crate) pool: Vec<Prefix>,
    /// This node's inner addresses.
    pub(crate) own: Vec<IpAddr>,
    /// Networks of configured peers.
    pub(crate) taken: Vec<Prefix>,
    /// Names and keys of configured peers.
    pub(crate) peers: Vec<(String, PublicKey)>,
    /// Whether this node forwards to the Internet.
    pub(crate) forwards: bool,
}

impl Surroundings {
    /// What of the configuration has taken the place of `record` since, if anything has.
    fn has_taken(&self, record: &Record) -> Option<String> {
        if self.peers.iter().any(|(name, _)| *name == record.name) {
            return Some("a [[peer]] of the configuration has its name".to_owned());
        }
        let own = |prefix: &Prefix| self.own.iter().any(|own| Prefix::host(*own) == *prefix);
        let taken = |prefix: &Prefix| self.taken.contains(prefix) || own(prefix);
        record.networks().find(taken).map(|prefix| format!("{prefix} is in the configuration now"))
    }

    /// What a peer reaches through this node: other peers, and this node itself.
    fn reached(&self) -> impl Iterator<Item = Prefix> {
        let outside = |own: &&IpAddr| !self.pool.iter().any(|pool| pool.contains(**own));
        let own = self.own.iter().filter(outside).map(|own| Prefix::host(*own));
        self.pool.iter().copied().chain(own)
    }
}

/// What follows from a request to join.
#[derive(Debug)]
pub(crate) enum Joining {
    /// No such invitation.
    Unknown,
    /// The answer, sealed under the secret, and the peer that is to be added, if it is a new one.
    Answer(InvitationSecret, Verdict, Option<Box<Record>>),
}

/// The records.
#[derive(Debug)]
pub(crate) struct Records {
    file: PathBuf,
    list: Vec<Record>,
}

impl Records {
    /// The records in `file`, which need not exist.
    pub(crate) fn open(file: PathBuf) -> Result<Self, String> {
        let list = load(&file)?;
        Ok(Self { file, list })
    }

    /// Makes an invitation and writes it down. A former one of the same name that nobody used is
    /// withdrawn.
    pub(crate) fn invite(
        &mut self,
        unix: u64,
        wish: &Wish,
        around: &Surroundings,
        rng: &mut Rng,
    ) -> Result<Invitation, String> {
        let name = &wish.name;
        if around.peers.iter().any(|(other, _)| other == name) {
            return Err(format!("`{name}` is the name of a peer of the configuration"));
        }
        let mut list = self.list.clone();
        forget_old(&mut list, unix);
        if let Some(other) = list.iter_mut().find(|other| other.name == *name && !other.removed) {
            if other.joined.is_some() {
                return Err(format!(
                    "a peer `{name}` has joined already: choose another name, or remove it first \
                     with `mpip remove {name}`"
                ));
            }
            other.removed = true;
        }
        let waiting = list.iter().filter(|other| other.joined.is_none() && other.holds(unix));
        if waiting.count() >= WAITING_MAX || list.len() >= RECORDS_MAX {
            return Err(format!(
                "expected at most {WAITING_MAX} invitations that wait and {RECORDS_MAX} peers and \
                 invitations in all: remove some with `mpip remove NAME`"
            ));
        }
        let held: Vec<Prefix> = list
            .iter()
            .filter(|other| other.holds(unix))
            .flat_map(Record::networks)
            .chain(around.taken.iter().copied())
            .chain(around.own.iter().map(|own| Prefix::host(*own)))
            .collect();
        if let Some(prefix) = wish.prefixes.iter().find(|prefix| held.contains(prefix)) {
            return Err(format!("the network {prefix} is behind another peer already"));
        }
        let addresses = pool::choose(&around.pool, &held)?;
        let expires = unix.saturating_add(wish.valid_s).min(u32::MAX.into());
        let invitation = Invitation {
            secret: InvitationSecret::generate(rng),
            gateway: around.public_key,
            expires: u32::try_from(expires).unwrap_or(u32::MAX),
            forwards: around.forwards,
            gateway_name: around.name.clone(),
            name: name.clone(),
            endpoints: wish.endpoints.clone(),
            prefixes: around.reached().map(|net| (net.address(), net.prefix_len())).collect(),
            addresses,
        };
        list.push(Record {
            name: name.clone(),
            addresses: invitation.addresses.iter().map(|(address, _)| *address).collect(),
            prefixes: wish.prefixes.clone(),
            secret: invitation.secret.clone(),
            digest: invitation.digest(),
            expires,
            joined: None,
            removed: false,
        });
        self.replace(list)?;
        Ok(invitation)
    }

    /// Judges `request`. A key that is accepted is written down.
    pub(crate) fn join(
        &mut self,
        unix: u64,
        request: &ReceivedJoin,
        around: &Surroundings,
    ) -> Joining {
        let id: InvitationId = request.id();
        let Some(at) = self.list.iter().position(|record| record.secret.id() == id) else {
            return Joining::Unknown;
        };
        let record = &self.list[at];
        let secret = record.secret.clone();
        let nothing_new = |verdict| Joining::Answer(secret.clone(), verdict, None);
        let Some(key) = request.open(&record.secret, &record.digest) else {
            return nothing_new(Verdict::Altered);
        };
        match record.joined {
            _ if record.removed => return nothing_new(Verdict::Withdrawn),
            // The answer was lost, or somebody repeats the request.
            Some((used, _)) if used == key => return nothing_new(Verdict::Accepted),
            Some(_) => return nothing_new(Verdict::Used),
            None if unix >= record.expires => return nothing_new(Verdict::Expired),
            None => {}
        }
        if let Some(taken) = around.has_taken(record) {
            log::warn!("the invitation of `{}` is void: {taken}", record.name);
            return nothing_new(Verdict::Withdrawn);
        }
        let configured = around.peers.iter().any(|(_, other)| *other == key);
        let joined = self
            .list
            .iter()
            .any(|other| !other.removed && other.joined.is_some_and(|(other, _)| other == key));
        if configured || joined || key == around.public_key {
            return nothing_new(Verdict::KeyInUse);
        }
        let mut list = self.list.clone();
        list[at].joined = Some((key, unix));
        let record = list[at].clone();
        if let Err(error) = self.replace(list) {
            log::error!("{error}");
            return nothing_new(Verdict::NotStored);
        }
        Joining::Answer(secret, Verdict::Accepted, Some(Box::new(record)))
    }

    /// Forgets the peer or withdraws the invitation `name`. Returns whether it had joined.
    pub(crate) fn remove(&mut self, name: &str, around: &Surroundings) -> Result<bool, String> {
        let mut list = self.list.clone();
        let found = list.iter_mut().find(|record| record.name == name && !record.removed);
        let Some(record) = found else {
            return Err(match around.peers.iter().any(|(other, _)| other == name) {
                true => format!(
                    "`{name}` did not join by an invitation: remove its [[peer]] section from the configuration"
                ),
                false => format!(
                    "nobody called `{name}` was invited or has joined; `mpip peers` lists who has"
                ),
            });
        };
        record.removed = true;
        let joined = record.joined.is_some();
        self.replace(list)?;
        Ok(joined)
    }

    /// Who has joined, and who was invited.
    pub(crate) fn list(&self, unix: u64) -> Vec<KnownPeer> {
        let list = self.list.iter().filter(|record| !record.removed);
        list.map(|record| record.status(unix)).collect()
    }

    /// Writes `list` down in place of what there is.
    fn replace(&mut self, list: Vec<Record>) -> Result<(), String> {
        file::write(&self.file, &list).map_err(|error| {
            format!("cannot write the peers that joined to `{}`: {error}", self.file.display())
        })?;
        self.list = list;
        Ok(())
    }
}

/// Removes what ended long ago.
fn forget_old(list: &mut Vec<Record>, unix: u64) {
    list.retain(|record| {
        let lasts = record.joined.is_some() && !record.removed;
        lasts || unix < record.expires.saturating_add(REMEMBERED)
    });
}

#[cfg(test)]
mod tests;
