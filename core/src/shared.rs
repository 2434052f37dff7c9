//! What the associations of an engine share.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mpip_crypto::{PrivateKey, Rng, TimestampSource};
use mpip_types::{Bucket, Instant, LocalAddress};
use rand_chacha::ChaCha8Rng;

use crate::capture::Capture;
use crate::drops::{DropReason, Drops};
use crate::event::Event;
use crate::handshake::Jobs;
use crate::host_packets::{HostMessages, PlainPackets};
use crate::parts::addresses::is_one_host;
use crate::prefixes::PrefixTable;
use crate::resequencer::HoldPool;
use crate::rules::RuleTable;
use crate::translation::Translations;

/// What the associations of an engine share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) private_key: Arc<PrivateKey>,
    pub(crate) aes_in_hardware: bool,
    /// Random number of this run.
    pub(crate) instance: u64,
    /// Wall clock at the engine's origin of time.
    pub(crate) unix_origin: Duration,
    pub(crate) timestamps: TimestampSource,
    /// Randomness of keys, nonces and everything that must not be guessed.
    pub(crate) rng: Rng,
    /// Randomness of choices.
    pub(crate) draws: ChaCha8Rng,
    /// Addresses from which paths may start.
    pub(crate) locals: Arc<[LocalAddress]>,
    /// All addresses of this host, in order.
    pub(crate) own: Vec<IpAddr>,
    pub(crate) rules: RuleTable,
    /// Whose an inner address is.
    pub(crate) prefixes: PrefixTable,
    /// Which association a receiver index belongs to.
    pub(crate) indices: BTreeMap<u32, usize>,
    /// Connections of peers behind NATs.
    pub(crate) translations: Translations,
    /// What the host is to capture from now on, by peer.
    pub(crate) captures: BTreeMap<String, Capture>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) drops: Drops,
    /// Challenges to addresses that peers told.
    pub(crate) challenges: Bucket,
    /// Memory of what waits for earlier packets.
    pub(crate) hold: HoldPool,
    /// Public-key work that waits to be done.
    pub(crate) jobs: Jobs,
    /// Packets of our own for the host.
    pub(crate) host_messages: HostMessages,
    /// Packets that the host is to send itself.
    pub(crate) plain: PlainPackets,
    /// Passes of loops whose number peers decide, see
    /// [`Engine::most_work`](crate::Engine::most_work).
    pub(crate) work: u64,
}

impl Shared {
    /// Whether this host has the address `ip`.
    pub(crate) fn is_ours(&self, ip: IpAddr) -> bool {
        self.own.binary_search(&ip).is_ok()
            || self.locals.iter().any(|local| local.address.ip() == ip)
    }

    /// Whether `ip` can be that of one other host.
    pub(crate) fn is_another_host(&self, ip: IpAddr) -> bool {
        is_one_host(ip) && !self.is_ours(ip)
    }

    /// Whether datagrams may be sent to an address that a peer names: not to this host, and not to
    /// what is no single host.
    pub(crate) fn may_be_sent_to(&self, remote: SocketAddr) -> bool {
        remote.port() != 0 && self.is_another_host(remote.ip())
    }

    /// The wall clock, as time since 1970-01-01 00:00 UTC.
    pub(crate) fn unix_time(&self, now: Instant) -> Duration {
        self.unix_origin + now.since(Instant::ZERO)
    }

    /// A receiver index that no association has.
    pub(crate) fn fresh_index(&mut self) -> u32 {
        loop {
            let index = u32::from_be_bytes(self.rng.bytes());
            if !self.indices.contains_key(&index) {
                return index;
            }
        }
    }

    /// These receiver indices are out of use.
    pub(crate) fn forget_indices(&mut self, retired: Vec<u32>) {
        for index in retired {
            self.indices.remove(&index);
        }
    }

    /// Counts a refusal and passes it on.
    pub(crate) fn refuse(&mut self, reason: DropReason) -> DropReason {
        self.drops.count(reason);
        reason
    }
}

/// What an association may use while it is called.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    /// Index of the association at hand.
    pub(crate) me: usize,
    pub(crate) shared: &'a mut Shared,
}
