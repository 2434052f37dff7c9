//! Addresses that the peer advertises: which are used, and what is sent to them.
//!
//! An authenticated peer may advertise the address of a third party. Until the address has
//! answered, the engine sends only short challenges there, at a limited rate, and none if the peer
//! cannot be there:
//!
//! ```text
//!               plausible?               first challenge        second challenge
//!  advertised ────────────► unproven ───────────────────► known ────────────────► path works
//!     no unknown peer's,             short, rate limited             1,200 bytes
//!     no private address             until it is answered
//!     of another site
//! ```

use core::net::SocketAddr;

use super::Association;
use crate::drops::DropReason;
use crate::parts::addresses::local;
use crate::parts::addresses::{Scope, is_one_host};
use crate::parts::outbox::Notice;
use crate::parts::path_set::PathIndex;
use crate::parts::peer_addresses::ListUpdate;
use crate::shared::Context;
use mpip_transport::PathState;
use mpip_transport::Standing;
#[cfg(test)]
use mpip_types::Bucket;
use mpip_types::Encapsulation;
use mpip_types::Instant;
use mpip_types::PathAddress;

impl Association {
    /// Whether the peer is known to receive at `remote` on a path with `encapsulation`: the address
    /// is configured, or has answered.
    pub(super) fn is_known_at(
        &self,
        now: Instant,
        remote: SocketAddr,
        encapsulation: Encapsulation,
    ) -> bool {
        let mut endpoints = self.config.endpoints.iter();
        endpoints.any(|endpoint| self.remote(*endpoint, encapsulation) == remote)
            || self.paths.iter().any(|path| path.is_validated() && path.address.remote == remote)
            || self.peer.was_at(now, remote)
    }

    /// Whether `remote` may be challenged on a path with `encapsulation`. An unknown peer may only
    /// be challenged where it has answered. At site-local addresses a peer may be challenged if it
    /// is known at an address of the same scope.
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
        !self.is_unknown_peer() && (scope == Scope::Everywhere || is_there())
    }

    /// How far `to`, which may be challenged, is trusted.
    pub(super) fn standing(&self, now: Instant, to: PathAddress, cx: &Context<'_>) -> Standing {
        let encapsulation = local(to, &cx.shared.locals).map(|local| local.encapsulation);
        let known = encapsulation.is_some_and(|kind| self.is_known_at(now, to.remote, kind));
        match self.trusts(now, to, cx) {
            true => Standing::Trusted,
            false if known => Standing::Known,
            false => Standing::Advertised,
        }
    }

    /// Consumes one challenge to an advertised address from the rate limit, or returns when one
    /// will be available.
    pub(super) fn take_challenge(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Result<(), Instant> {
        self.peer.take_challenge(now, &mut cx.shared.challenges)
    }

    /// Challenges to advertised addresses that the rate limit allows now.
    #[cfg(test)]
    pub(crate) fn challenges_left(&mut self, now: Instant) -> usize {
        let mut all = Bucket::new();
        core::iter::repeat_with(|| self.peer.take_challenge(now, &mut all).is_ok())
            .take_while(|taken| *taken)
            .count()
    }

    /// Log lines about advertised addresses that the rate limit allows now.
    #[cfg(test)]
    pub(crate) fn notes_left(&mut self, now: Instant) -> usize {
        core::iter::from_fn(|| self.peer.permit_note(now)).count()
    }

    /// An address list arrived.
    pub(super) fn on_addresses(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        generation: u64,
        addresses: impl Iterator<Item = SocketAddr>,
    ) {
        match self.peer.on_list(now, generation, addresses.collect()) {
            ListUpdate::Old => {}
            ListUpdate::New => self.follow_addresses(now, cx),
            ListUpdate::Deferred => cx.shared.drops.count(DropReason::TooManyAddresses),
        }
    }

    /// Applies the latest of the lists that exceeded the rate limit.
    pub(super) fn take_deferred_addresses(&mut self, now: Instant, cx: &mut Context<'_>) {
        if self.peer.take_deferred(now) {
            self.follow_addresses(now, cx);
        }
    }

    fn follow_addresses(&mut self, now: Instant, cx: &mut Context<'_>) {
        self.refuse_addresses(now, cx);
        self.review_capture();
        for index in self.paths.indices() {
            let remote = self.paths[index].address.remote;
            if self.paths[index].state() != PathState::Validating || !self.identity.opens() {
                continue;
            }
            if self.remotes(self.paths[index].encapsulation).contains(&remote) {
                // The address may just have returned: do not wait out a long pause.
                if let Some(challenge) = &mut self.paths[index].validation.challenge {
                    challenge.hurry();
                }
            } else {
                self.abandon_path(now, cx, index, "the peer no longer has this address");
            }
        }
        self.report_observed_addresses(now, cx);
        self.path_changes += 1;
        self.open_paths(now, cx);
    }

    /// Drops addresses at which no other host can be, and logs it. An address that is also ours is
    /// kept but not used, because both hosts may have it on a private network. Nothing is logged
    /// for unknown peers.
    fn refuse_addresses(&mut self, now: Instant, cx: &Context<'_>) {
        let unknown = self.is_unknown_peer();
        let Self { peer, config, .. } = self;
        let name = &config.name;
        peer.retain(|told, notes| {
            let mut permit = || notes.permit(now).filter(|_| !unknown);
            let is_host = told.port() != 0 && is_one_host(told.ip());
            if !is_host && let Some(left_out) = permit() {
                log::warn!(
                    "peer `{name}` advertises {told}, which cannot be another host: ignored{left_out}"
                );
            } else if is_host
                && !cx.shared.may_be_sent_to(told)
                && let Some(left_out) = permit()
            {
                log::info!(
                    "peer `{name}` advertises {told}, which is also ours: not used for it{left_out}"
                );
            }
            is_host
        });
    }

    /// Reports the observed address of each path to the peer.
    pub(super) fn report_observed_addresses(&mut self, now: Instant, cx: &Context<'_>) {
        for index in self.paths.indices() {
            self.report_observed_address(now, index, cx);
        }
    }

    /// Reports the observed address of path `index` to the peer: in host mode always, because until
    /// then the peer does not know which of its connections it may lead onto paths; otherwise if
    /// the peer did not advertise it (the path crosses a NAT).
    pub(super) fn report_observed_address(
        &mut self,
        now: Instant,
        index: PathIndex,
        cx: &Context<'_>,
    ) {
        let unknown = self.is_unknown_peer();
        let remote = self.paths[index].address.remote;
        let told = self.peer.has(remote);
        let takes = match self.config.host_mode {
            true => self.may_take(remote.ip(), cx),
            false => self.peer.has_ip(remote.ip()),
        };
        let path = &mut self.paths[index];
        path.seen.is_theirs = takes;
        if told
            && !takes
            && !path.seen.told
            && !unknown
            && let Some(left_out) = self.peer.permit_note(now)
        {
            log::info!(
                "peer `{}` is at {}, which is not configured as exclusive: only connections that \
                 the peer begins from there use the paths{left_out}",
                self.config.name,
                remote.ip()
            );
        }
        let tell = path.seen.told || self.config.host_mode || !told || !takes;
        if path.is_validated() && self.peer.has_list() && tell {
            path.seen.told = true;
            self.outbox.owe(Notice::AddressObserved(path.id));
        }
    }
}
