//! Paths that change addresses.
//!
//! Only the opener opens paths. When it loses an address it abandons the paths from there and opens
//! others from its remaining addresses. The other node cannot do that, and needs a path to tell the
//! opener its new address. So while no other path works it keeps the paths whose address it has
//! lost, without sending on them, and moves them: it challenges the opener from an address that it
//! has. The challenge is authentic, and to the opener the path looks as if a NAT had rebound it
//! (`[P-7]`). Once one path works again the others are abandoned: the opener then opens paths to
//! the addresses that it is told.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;

use super::Association;
use super::paths::follow_interface;
use crate::content::Path;
use crate::event::Event;
use crate::parts::addresses::{are_neighbours, local};
use crate::parts::path_set::PathIndex;
use crate::parts::sending::LossCause;
use crate::shared::Context;
use mpip_transport::{Challenge, PathState, Standing};
use mpip_types::Instant;
use mpip_types::PathAddress;
use mpip_types::{Encapsulation, LocalAddress};

impl Association {
    /// Abandons the paths whose local address is gone, or keeps them until they can move. Other
    /// paths follow their interface's name and MTU.
    pub(super) fn follow_local_addresses(&mut self, now: Instant, cx: &mut Context<'_>) {
        let works = |path: &Path| path.works() && local(path.address, &cx.shared.locals).is_some();
        let keeps = !self.identity.opens()
            && self.identity.is_established()
            && !self.paths.iter().any(works);
        for index in self.paths.indices() {
            let path = &mut self.paths[index];
            match local(path.address, &cx.shared.locals) {
                Some(local) => {
                    path.on_interface_mtu(local.mtu);
                    if path.interface != local.interface {
                        path.interface.clone_from(&local.interface);
                        path.lists = None;
                        follow_interface(path, &self.config, &cx.shared.interfaces);
                    }
                    if path.state() == PathState::Failed {
                        // Its address may have been gone: nothing was asked meanwhile.
                        path.on_dead(now);
                    }
                }
                None if keeps && path.is_validated() => {
                    path.validation.challenge = None;
                    self.change_state(now, cx, index, PathState::Failed, ADDRESS_GONE);
                }
                None => self.abandon_path(now, cx, index, ADDRESS_GONE),
            }
        }
        self.move_paths(now, cx);
        self.update_inner_mtu(cx);
    }

    /// Challenges the opener from the remaining addresses, for paths whose own address is gone. A
    /// challenge without an answer makes room for another address pair.
    pub(super) fn move_paths(&mut self, now: Instant, cx: &mut Context<'_>) {
        let homeless = |path: &&Path| has_no_local_address(path, &cx.shared.locals);
        let count = self.paths.iter().filter(homeless).count();
        if count == 0 {
            return;
        }
        let pairs = self.pairs_to_move_to(now, cx);
        if pairs.is_empty() {
            return;
        }
        let standing: Vec<_> = pairs.iter().map(|to| self.standing(now, *to, cx)).collect();
        let paths =
            self.paths.iter_mut().filter(|path| has_no_local_address(path, &cx.shared.locals));
        for (position, path) in paths.enumerate() {
            let due =
                path.validation.challenge.as_ref().is_none_or(|challenge| now >= challenge.next);
            if !due {
                continue;
            }
            let former = path.validation.challenge.as_ref();
            let attempts = former.map_or(0, |challenge| challenge.attempts);
            let pair = (position + count * attempts as usize) % pairs.len();
            let (to, standing) = (pairs[pair], standing[pair]);
            if former.is_none_or(|challenge| challenge.to != to) {
                let challenge = Challenge::ours(cx.shared.rng.bytes(), to, standing, now);
                let challenge = match former {
                    Some(former) => challenge.counting_from(former),
                    None => challenge,
                };
                path.validation.challenge = Some(challenge);
                path.validation.credit = 0;
            }
        }
    }

    /// Pairs of a local address and one of the opener's that no path uses. Pairs within one network
    /// come first, then those that differ from a former path only in our address. Addresses that
    /// the opener advertises are useless if it is behind a NAT, and may belong to another host.
    fn pairs_to_move_to(&self, now: Instant, cx: &Context<'_>) -> Vec<PathAddress> {
        let locals = &cx.shared.locals;
        let former = || self.paths.iter().filter(|path| has_no_local_address(path, locals));
        let told = [Encapsulation::Udp, Encapsulation::Tcp].into_iter();
        let told = told.filter(|kind| self.config.encapsulation.permits(*kind));
        let told = told.flat_map(|kind| self.remotes(kind).into_iter().map(move |to| (kind, to)));
        let translated = |ip: IpAddr| {
            let mut seen = former().map(|path| path.address.remote.ip());
            seen.any(|seen| seen.is_ipv4() == ip.is_ipv4() && !self.peer.has_ip(seen))
        };
        let configured = |to: &SocketAddr| self.config.endpoints.iter().any(|e| e.ip() == to.ip());
        let told = told.filter(|(_, to)| configured(to) || !translated(to.ip()));
        let remotes = former().map(|path| (path.encapsulation, path.address.remote)).chain(told);
        let mut pairs: Vec<PathAddress> = Vec::new();
        for (encapsulation, remote) in remotes {
            let fits = |local: &&LocalAddress| {
                local.encapsulation == encapsulation
                    && local.address.is_ipv4() == remote.is_ipv4()
                    && cx.shared.may_be_sent_to(remote)
                    && self.may_challenge(now, remote, encapsulation)
            };
            for local in locals.iter().filter(fits) {
                let pair = PathAddress { local: local.id, remote };
                if !pairs.contains(&pair) && !self.paths.is_taken(pair) {
                    pairs.push(pair);
                }
            }
        }
        pairs.sort_by_key(|pair| {
            let own = local(*pair, locals).map(|local| local.address.ip());
            !own.is_some_and(|own| are_neighbours(own, pair.remote.ip()))
        });
        pairs
    }

    /// When one path works, abandons those that would have to move.
    pub(super) fn settle_paths(&mut self, now: Instant, cx: &mut Context<'_>) {
        if self.identity.opens() || !self.paths.any_works() {
            return;
        }
        for index in self.paths.indices() {
            if has_no_local_address(&self.paths[index], &cx.shared.locals) {
                self.abandon_path(now, cx, index, ADDRESS_GONE);
            }
        }
    }

    /// The host's routes changed: repeats recent challenges, and probes of paths that do not
    /// answer. Returns whether there is any such path.
    pub(crate) fn on_routes(&mut self, now: Instant) -> bool {
        let asked = self.paths.iter_mut().map(|path| path.ask_again(now));
        asked.filter(|sooner| *sooner).count() > 0
    }

    /// An authentic datagram came from `from` on an abandoned path. The peer cannot know that the
    /// path is abandoned if no other works, and has moved: opens a path to `from`. One at a time,
    /// because an attacker could replay a recorded datagram from anywhere.
    pub(super) fn open_path_to_moved_peer(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        from: PathAddress,
        len: usize,
    ) {
        let validating = |path: &Path| {
            path.state() == PathState::Validating
                && path.validation.challenge.as_ref().is_some_and(|challenge| !challenge.ours)
        };
        let locals = Arc::clone(&cx.shared.locals);
        let Some(local) = local(from, &locals).filter(|_| {
            self.identity.opens() && !self.paths.any_works() && !self.paths.is_taken(from)
        }) else {
            return;
        };
        if let Some(former) = self.paths.position(validating) {
            if now.since(self.paths[former].opened) < ANSWER_TIMEOUT {
                return;
            }
            self.abandon_path(now, cx, former, "the peer has moved again");
        }
        if let Some(index) = self.open_path(now, from, local, &cx.shared.interfaces) {
            let path = &mut self.paths[index];
            path.validation.challenge = Some(Challenge::new(cx.shared.rng.bytes(), from, now));
            path.validation.credit = len;
        }
    }

    /// An authentic packet of path `index` came from or to another address than the path's: the
    /// peer may have moved, or a NAT rebound. Challenges the new address; the path keeps using the
    /// old one until the new one has answered.
    pub(super) fn challenge_new_address(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        index: PathIndex,
        from: PathAddress,
        len: usize,
    ) {
        let path = &mut self.paths[index];
        match &path.validation.challenge {
            Some(challenge) if challenge.to == from => path.validation.credit += len,
            _ => {
                path.validation.challenge = Some(Challenge::new(cx.shared.rng.bytes(), from, now));
                path.validation.credit = len;
            }
        }
    }

    /// The peer receives at the advertised address. The next challenge tests whether the path
    /// carries full-size datagrams.
    fn challenge_full_size(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        index: PathIndex,
        answered: &Challenge,
    ) {
        self.peer.give_challenges_back(answered.attempts, &mut cx.shared.challenges);
        let mut challenge =
            Challenge::ours(cx.shared.rng.bytes(), answered.to, Standing::Known, now);
        let path = &mut self.paths[index];
        if has_no_local_address(path, &cx.shared.locals) {
            // Keeps the count of attempted pairs; this pair was the last of them.
            challenge = challenge.counting_from(answered);
            challenge.attempts = challenge.attempts.saturating_sub(1);
        }
        path.validation.challenge = Some(challenge);
    }

    /// Path `index` may have moved to addresses for which the opener has meanwhile opened another
    /// path: abandons that one.
    fn leave_one_path(&mut self, now: Instant, cx: &mut Context<'_>, index: PathIndex) {
        let address = self.paths[index].address;
        for other in self.paths.indices().filter(|other| *other != index) {
            if self.identity.opens() && self.paths[other].address == address {
                self.abandon_path(now, cx, other, "another path has moved to its address");
            }
        }
    }

    /// A path response arrived.
    pub(super) fn on_path_response(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        index: PathIndex,
        from: PathAddress,
        data: [u8; 8],
    ) {
        let Some(local) = local(from, &cx.shared.locals) else { return };
        let path = &mut self.paths[index];
        let answered = path
            .validation
            .challenge
            .take_if(|challenge| challenge.data == data && challenge.to == from);
        let Some(answered) = answered.filter(|_| path.state() != PathState::Abandoned) else {
            return;
        };
        if answered.standing == Standing::Advertised {
            self.challenge_full_size(now, cx, index, &answered);
            return;
        }
        path.validation.credit = 0;
        path.flight.on_answered(now);
        // Probes whether what was sent before validation has arrived.
        path.ping |= path.flight.in_flight() > 0;
        self.losses.clear();
        if path.state() == PathState::Failed {
            // Probes sent to the old address will never be answered.
            path.flight.abandon_control(&mut self.losses);
        } else if path.works() && path.address != from {
            // What left for the old address counts as lost at once: datagrams from the new one have
            // told what arrived there.
            path.abandon(&mut self.losses);
        }
        self.repair_losses(LossCause::PathFailed);
        let path = &mut self.paths[index];
        let former = path.address.remote;
        if path.address != from {
            self.path_changes += 1;
            let parameters = &self.parameters.transport;
            path.move_to(now, from, local, self.config.congestion_control, parameters);
            follow_interface(path, &self.config, &cx.shared.interfaces);
        }
        if former != from.remote {
            cx.shared.events.push_back(Event::Rebound {
                peer: self.config.name.clone(),
                path: path.id.0,
                from: former,
                to: from.remote,
            });
            self.report_observed_address(now, index, cx);
            self.review_capture();
        }
        self.leave_one_path(now, cx, index);
        if matches!(self.paths[index].state(), PathState::Validating | PathState::Failed) {
            self.change_state(now, cx, index, PathState::Active, "its challenge was answered");
            self.settle_paths(now, cx);
            self.limit_to_fastest(now, cx);
        }
    }
}

/// Time that an address has to answer before another one is challenged.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

const ADDRESS_GONE: &str = "its local address is gone";

/// Whether the path is kept although its local address is gone.
pub(super) fn has_no_local_address(path: &Path, locals: &[LocalAddress]) -> bool {
    path.state() == PathState::Failed && local(path.address, locals).is_none()
}
