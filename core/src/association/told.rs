//! Addresses that the peer tells: what is believed, and what is sent there.
//!
//! An authenticated peer may tell anybody's address. Before something has come from there, the engine
//! sends short challenges only, so many in a second, and none where the peer cannot be:
//!
//! ```text
//!             may it be there?          first challenge           second challenge
//!  told ───────────────────────► told ───────────────────► known ──────────────────► path works
//!        not a stranger's,              short, bounded               1,200 bytes
//!        nor a foreign private one      until it is answered
//! ```

use core::net::{IpAddr, SocketAddr};

use super::host::{is_capturable, is_one_host};
use super::moving::local;
use super::outbox::Notice;
use super::path_set::PathIndex;
use super::{Association, Context};
use crate::drops::DropReason;
use crate::repeats::Repeats;
use mpip_transport::PathState;
use mpip_transport::Standing;
use mpip_types::Bucket;
use mpip_types::Encapsulation;
use mpip_types::Instant;
use mpip_types::PathAddress;
use mpip_types::Rate;

/// Lists of addresses that are followed. A host changes networks a few times in a minute, and all its
/// interfaces at once when it wakes up.
const LISTS: Rate = Rate { burst: 8, per_second: 1 };
/// Short challenges without an answer that an association sends to told addresses: the first two to a
/// list of full length, or 500 bytes in a second.
const CHALLENGES: Rate = Rate { burst: 32, per_second: 8 };
/// The same of all associations together: 16 kB in a second.
pub(crate) const ALL_CHALLENGES: Rate = Rate { burst: 512, per_second: 256 };

/// What the peer's telling has cost.
#[derive(Debug, Default)]
pub(super) struct Told {
    lists: Bucket,
    challenges: Bucket,
    /// The latest list that came too soon, and its generation.
    deferred: Option<(u64, Vec<SocketAddr>)>,
    /// What is said of addresses in the log.
    notes: Repeats,
}

impl Told {
    /// The lists of another association begin anew, what they may cost does not.
    pub(super) fn reset(&mut self) {
        self.deferred = None;
    }
}

/// How far an address reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Everywhere,
    /// A site's own (RFC 1918, RFC 4193): many have the same.
    Site,
    /// Between a provider's translators and its customers (RFC 6598).
    Provider,
}

impl Scope {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(ip) if ip.is_private() => Self::Site,
            IpAddr::V4(ip) if ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64 => {
                Self::Provider
            }
            IpAddr::V6(ip) if ip.is_unique_local() => Self::Site,
            _ => Self::Everywhere,
        }
    }
}

impl Association {
    /// Whether the peer is known to receive at `remote`, by a path with `encapsulation`: the
    /// configuration says so, or it has answered there.
    pub(super) fn is_known_at(
        &self,
        now: Instant,
        remote: SocketAddr,
        encapsulation: Encapsulation,
    ) -> bool {
        let mut endpoints = self.config.endpoints.iter();
        endpoints.any(|endpoint| self.remote(*endpoint, encapsulation) == remote)
            || self.paths.iter().any(|path| path.is_validated() && path.address.remote == remote)
            || self.proven.contains(now, remote)
    }

    /// Whether `remote` may be challenged by a path with `encapsulation`. A stranger's addresses are
    /// those where it was met. Of a site's own addresses a peer has some if it is known at one.
    pub(super) fn may_challenge(
        &self,
        now: Instant,
        remote: SocketAddr,
        encapsulation: Encapsulation,
    ) -> bool {
        if self.is_known_at(now, remote, encapsulation) {
            return true;
        }
        let scope = Scope::of(remote.ip());
        let endpoints = self.config.endpoints.iter().copied();
        let validated = self.paths.validated();
        let mut known = endpoints.chain(validated.map(|path| path.address.remote));
        let mut is_there = || known.any(|known| Scope::of(known.ip()) == scope);
        !self.is_stranger() && (scope == Scope::Everywhere || is_there())
    }

    /// What is known of `to`, which may be challenged.
    pub(super) fn standing(&self, now: Instant, to: PathAddress, cx: &Context<'_>) -> Standing {
        let encapsulation = local(to, cx.locals).map(|local| local.encapsulation);
        let known = encapsulation.is_some_and(|kind| self.is_known_at(now, to.remote, kind));
        match self.trusts(now, to, cx) {
            true => Standing::Trusted,
            false if known => Standing::Known,
            false => Standing::Told,
        }
    }

    /// Takes a challenge to a told address out of what there may be, or says when there is one.
    pub(super) fn take_challenge(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Result<(), Instant> {
        let own = self.told.challenges.ready_at(CHALLENGES);
        let at = own.max(cx.challenges.ready_at(ALL_CHALLENGES));
        if now < at {
            return Err(at);
        }
        self.told.challenges.take(now, CHALLENGES);
        cx.challenges.take(now, ALL_CHALLENGES);
        Ok(())
    }

    /// How many challenges to told addresses there may be at once.
    #[cfg(test)]
    pub(crate) fn challenges_left(&mut self, now: Instant) -> usize {
        core::iter::repeat_with(|| self.told.challenges.take(now, CHALLENGES))
            .take_while(|taken| *taken)
            .count()
    }

    /// How many lines of the log what is told may cause at once.
    #[cfg(test)]
    pub(crate) fn notes_left(&mut self, now: Instant) -> usize {
        core::iter::from_fn(|| self.told.notes.permit(now)).count()
    }

    /// `count` challenges to a told address were answered.
    pub(super) fn give_challenges_back(&mut self, count: u32, cx: &mut Context<'_>) {
        self.told.challenges.give_back(count, CHALLENGES);
        cx.challenges.give_back(count, ALL_CHALLENGES);
    }

    /// The peer said where it can be reached.
    pub(super) fn on_addresses(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        generation: u64,
        addresses: impl Iterator<Item = SocketAddr>,
    ) {
        let newest =
            self.told.deferred.as_ref().map_or(self.peer_generation, |(newest, _)| *newest);
        if generation <= newest {
            return;
        }
        let addresses = addresses.collect();
        if self.told.lists.take(now, LISTS) {
            self.follow_addresses(now, cx, generation, addresses);
        } else {
            cx.drops.count(DropReason::TooManyAddresses);
            self.told.deferred = Some((generation, addresses));
        }
    }

    /// When a list that came too soon is due.
    pub(super) fn deferred_addresses_at(&self) -> Option<Instant> {
        self.told.deferred.as_ref().map(|_| self.told.lists.ready_at(LISTS))
    }

    /// Takes up the latest of the lists that came too soon.
    pub(super) fn take_deferred_addresses(&mut self, now: Instant, cx: &mut Context<'_>) {
        if self.deferred_addresses_at().is_some_and(|at| now >= at)
            && self.told.lists.take(now, LISTS)
            && let Some((generation, addresses)) = self.told.deferred.take()
        {
            self.follow_addresses(now, cx, generation, addresses);
        }
    }

    fn follow_addresses(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        generation: u64,
        addresses: Vec<SocketAddr>,
    ) {
        self.told.deferred = None;
        self.peer_generation = generation;
        self.peer_addresses = addresses;
        self.refuse_addresses(now, cx);
        self.review_capture();
        for index in self.paths.indices() {
            let remote = self.paths[index].address.remote;
            if self.paths[index].state() != PathState::Validating || !self.identity.opens() {
                continue;
            }
            if self.remotes(self.paths[index].encapsulation).contains(&remote) {
                // It may just have come back: its challenge need not wait out a long pause.
                if let Some(challenge) = &mut self.paths[index].validation.challenge {
                    challenge.hurry();
                }
            } else {
                self.abandon_path(now, cx, index, "the peer has this address no more");
            }
        }
        self.tell_how_it_is_seen(now, cx);
        self.path_changes += 1;
        self.open_paths(now, cx);
    }

    /// Forgets the addresses that no host can have for others, and says so. One that is ours is kept,
    /// because both hosts may have it on a network of their own, and is not used while it is. What
    /// strangers say is not worth a line.
    fn refuse_addresses(&mut self, now: Instant, cx: &Context<'_>) {
        let stranger = self.is_stranger();
        let Self { told, peer_addresses, config, .. } = self;
        let name = &config.name;
        let mut permit = || told.notes.permit(now).filter(|_| !stranger);
        peer_addresses.retain(|told| {
            let is_host = told.port() != 0 && is_one_host(told.ip());
            if !is_host && let Some(left_out) = permit() {
                log::warn!(
                    "peer `{name}` says that it is at {told}, which no other host can be: \
                     ignored{left_out}"
                );
            } else if is_host
                && !is_sensible(*told, cx)
                && let Some(left_out) = permit()
            {
                log::info!(
                    "peer `{name}` says that it is at {told}, as we are: not used for it{left_out}"
                );
            }
            is_host
        });
    }

    /// Tells the peer how it is seen on each path.
    pub(super) fn tell_how_it_is_seen(&mut self, now: Instant, cx: &Context<'_>) {
        for index in self.paths.indices() {
            self.tell_how_path_is_seen(now, index, cx);
        }
    }

    /// A path whose remote address the peer did not tell leads through a translator, and one whose
    /// address is not taken for the peer's does no better: the peer is told how it is seen there.
    pub(super) fn tell_how_path_is_seen(
        &mut self,
        now: Instant,
        index: PathIndex,
        cx: &Context<'_>,
    ) {
        let stranger = self.is_stranger();
        let remote = self.paths[index].address.remote;
        let told = self.peer_addresses.contains(&remote);
        let takes = match self.config.host_mode {
            true => self.may_take(remote.ip(), cx),
            false => self.peer_addresses.iter().any(|told| told.ip() == remote.ip()),
        };
        let path = &mut self.paths[index];
        path.seen.is_theirs = takes;
        if told
            && !takes
            && !path.seen.told
            && !stranger
            && let Some(left_out) = self.told.notes.permit(now)
        {
            log::info!(
                "peer `{}` is at {}, which others may share by the configuration: of what goes \
                 there, only connections that begin at the peer take the paths{left_out}",
                self.config.name,
                remote.ip()
            );
        }
        let tell = path.seen.told || !told || !takes;
        if path.is_validated() && self.peer_generation > 0 && tell {
            path.seen.told = true;
            self.outbox.owe(Notice::AddressObserved(path.id));
        }
    }
}

/// Whether datagrams may be sent to an address that a peer names: not to ourselves, and not to
/// what is no single host.
pub(super) fn is_sensible(remote: SocketAddr, cx: &Context<'_>) -> bool {
    remote.port() != 0 && is_capturable(remote.ip(), cx)
}
