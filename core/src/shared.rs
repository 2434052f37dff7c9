//! What the associations of an engine share.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mpip_crypto::{Keys, PrivateKey, Rng, TimestampSource};
use mpip_types::{Bucket, Instant, LocalAddress, Open};
use rand_chacha::ChaCha8Rng;

use crate::capture::Capture;
use crate::config::{InterfaceProperties, Limits};
use crate::drops::{DropReason, Drops};
use crate::event::Event;
use crate::handshake::Jobs;
use crate::host_packets::{HostMessages, PlainPackets};
use crate::parts::addresses::is_one_host;
use crate::parts::keys::EpochKeys;
use crate::parts::receive_key::{KeyChange, ReceiveKey};
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
    /// Randomness for keys, nonces and everything that must be unpredictable.
    pub(crate) rng: Rng,
    /// Randomness for other choices.
    pub(crate) draws: ChaCha8Rng,
    /// Addresses from which paths may start.
    pub(crate) locals: Arc<[LocalAddress]>,
    /// Interfaces whose paths are on standby, cost something, or are metered.
    pub(crate) interfaces: Arc<InterfaceProperties>,
    /// All addresses of this host, sorted.
    pub(crate) own: Vec<IpAddr>,
    pub(crate) rules: RuleTable,
    /// The owners of inner addresses.
    pub(crate) prefixes: PrefixTable,
    /// The association of each receiver index.
    pub(crate) indices: BTreeMap<u32, usize>,
    /// Connections of peers behind NATs.
    pub(crate) translations: Translations,
    /// Changed captures, by peer.
    pub(crate) captures: BTreeMap<String, Capture>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) drops: Drops,
    /// Rate limit of challenges to addresses that peers advertise.
    pub(crate) challenges: Bucket,
    /// Memory of packets held for resequencing.
    pub(crate) hold: HoldPool,
    /// Public-key jobs that wait.
    pub(crate) jobs: Jobs,
    /// ICMP messages to the host.
    pub(crate) host_messages: HostMessages,
    /// Packets that the host has to send itself.
    pub(crate) plain: PlainPackets,
    /// Iterations of loops whose length peers control, see
    /// [`Engine::most_work`](crate::Engine::most_work).
    pub(crate) work: u64,
    /// Keys that open datagrams, if others share them.
    pub(crate) shared_keys: Option<SharedKeys>,
}

/// What those have to be told who open datagrams before the engine.
#[derive(Debug, Default)]
pub(crate) struct SharedKeys {
    pub(crate) changes: VecDeque<KeyChange>,
    /// Keys shared so far.
    count: u64,
}

impl Shared {
    /// Whether this host has the address `ip`.
    pub(crate) fn is_ours(&self, ip: IpAddr) -> bool {
        self.own.binary_search(&ip).is_ok()
            || self.locals.iter().any(|local| local.address.ip() == ip)
    }

    /// Whether `ip` can be the address of another host.
    pub(crate) fn is_another_host(&self, ip: IpAddr) -> bool {
        is_one_host(ip) && !self.is_ours(ip)
    }

    /// Whether datagrams may be sent to an address that a peer names: not to this host, and not to
    /// an address that is no single host's.
    pub(crate) fn may_be_sent_to(&self, remote: SocketAddr) -> bool {
        remote.port() != 0 && self.is_another_host(remote.ip())
    }

    /// The wall clock, as time since 1970-01-01 00:00 UTC.
    pub(crate) fn unix_time(&self, now: Instant) -> Duration {
        self.unix_origin + now.since(Instant::ZERO)
    }

    /// An unused receiver index.
    pub(crate) fn fresh_index(&mut self) -> u32 {
        loop {
            let index = u32::from_be_bytes(self.rng.bytes());
            if !self.indices.contains_key(&index) {
                return index;
            }
        }
    }

    /// The keys of an epoch with the receiver index `index`.
    pub(crate) fn epoch_keys(&mut self, index: u32, keys: Keys, limits: &Limits) -> EpochKeys {
        let Some(shared) = &mut self.shared_keys else {
            return EpochKeys::new(keys.send, ReceiveKey::new(keys.receive));
        };
        shared.count += 1;
        let receive = ReceiveKey::shared(keys.receive, shared.count, limits.paths);
        let keys = EpochKeys::new(keys.send, receive);
        let key: Arc<dyn Open> = Arc::<ReceiveKey>::clone(&keys.receive);
        shared.changes.push_back(KeyChange { index, key: Some(key) });
        keys
    }

    /// Frees the receiver indices of keys that were erased.
    pub(crate) fn forget_indices(&mut self, retired: Vec<u32>) {
        for index in retired {
            self.indices.remove(&index);
            if let Some(shared) = &mut self.shared_keys {
                shared.changes.push_back(KeyChange { index, key: None });
            }
        }
    }

    /// Counts a refusal and returns it.
    pub(crate) fn refuse(&mut self, reason: DropReason) -> DropReason {
        self.drops.count(reason);
        reason
    }
}

/// What an association may use during a call.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    /// Index of the association.
    pub(crate) me: usize,
    pub(crate) shared: &'a mut Shared,
}
