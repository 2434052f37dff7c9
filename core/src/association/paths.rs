//! The paths of an association: opening, state changes, removal, and periodic work.

use core::time::Duration;
use std::sync::Arc;

use mpip_wire::{PathId, PathStatus, RateLimit};

use super::Association;
use super::loss::{BELOW, NOT_JUDGED, REACHES};
use crate::aggregation::PathReach;
use crate::config::{InterfaceProperties, PeerConfig, Policy};
use crate::content::Path;
use crate::drops::DropReason;
use crate::event::Event;
use crate::parameters::{Parameters, ResequencingParameters};
use crate::parts::outbox::Notice;
use crate::parts::path_set::PathIndex;
use crate::parts::sending::LossCause;
use crate::parts::sizes::INNER_OVERHEAD;
use crate::queue::CodelParameters;
use crate::scheduler::{Candidate, PERIOD};
use crate::shared::Context;
use crate::trace::What;
use mpip_transport::bottleneck::regroup;
use mpip_transport::cc::CongestionControlKind;
use mpip_transport::rest::{REST_PERIOD, Rest};
use mpip_transport::{Challenge, MAX_PROBE_INTERVAL, PathState, Silence};
use mpip_types::Instant;
use mpip_types::LocalAddress;
use mpip_types::PathAddress;

/// Time for which an abandoned path is kept, to notify the peer and to receive datagrams that are
/// still in flight.
pub const PATH_LINGER: Duration = Duration::from_secs(3);
/// Time without a path after which queued packets are stale and dropped.
const STALE: Duration = Duration::from_secs(3);
/// Longest pause between probes in host mode with fall-back. Connections that have fallen back to
/// plain IP return to the paths within 500 ms once a path works: this pause, one lost probe, and
/// the host's own delay.
const FALLBACK_PAUSE: Duration = Duration::from_millis(200);
/// Time without a working path after which a new handshake is tried.
const RECONNECT: Duration = Duration::from_secs(1);
/// Periods between searches for shared bottlenecks.
const REGROUP_PERIODS: u32 = 10;
/// Hysteresis of `max_paths`, µs: a standby path replaces an active one only if its delay is lower
/// by more than this.
const STANDBY_MARGIN: i64 = 2_000;

/// Who wants a path on standby. Those that nobody wants there come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Aside {
    No,
    Loss,
    Peer,
    Here,
}

/// Tells `path` what is configured for its interface.
pub(super) fn follow_interface(
    path: &mut Path,
    config: &PeerConfig,
    interfaces: &InterfaceProperties,
) {
    path.fixed_weight = config.fixed_weight(&path.interface);
    path.reserve.set_cost(interfaces.cost(&path.interface));
    path.metered = interfaces.metered.contains(&path.interface);
    path.rate_up = interfaces.rates_up.get(&path.interface).copied();
    path.reserve.set_limit(interfaces.rates_down.get(&path.interface).copied());
}

impl Association {
    /// Changes a path's state and reports it.
    pub(super) fn change_state(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        index: PathIndex,
        to: PathState,
        reason: &'static str,
    ) {
        let path = &mut self.paths[index];
        path.reason = reason;
        let Some(from) = path.set_state(now, to) else { return };
        if matches!(from, PathState::Active | PathState::Standby) {
            self.peer.note_left(now, path.address.remote);
        }
        let path_id = path.id.0;
        self.trace.record(now, path_id, || What::PathState { from, to, reason });
        self.path_changes += 1;
        cx.shared.events.push_back(Event::Path {
            peer: self.config.name.clone(),
            path: path_id,
            interface: path.interface.clone(),
            local: path.local,
            remote: path.address.remote,
            from,
            to,
            reason,
            loss: self.loss_figures_of(path_id, reason),
        });
        if matches!(to, PathState::Failed | PathState::Abandoned) {
            self.losses.clear();
            let path = &mut self.paths[index];
            match to {
                PathState::Failed => path.abandon(&mut self.losses),
                _ => path.flight.abandon(&mut self.losses),
            }
            self.repair_losses(LossCause::PathFailed);
        }
        if to == PathState::Abandoned {
            let path = &mut self.paths[index];
            path.validation.challenge = None;
            path.validation.response_owed = None;
            let id = path.id;
            self.paths.retire(id);
        }
        if from == PathState::Validating {
            self.report_observed_address(now, index, cx);
        }
        if to == PathState::Active {
            self.requeue_all_early();
        }
        if to == PathState::Active && self.config.host_mode {
            // The response proves that the peer has validated our address.
            self.paths[index].ping = true;
        }
        self.review_capture();
        self.update_inner_mtu(cx);
    }

    /// Sets the inner MTU to the smallest of the validated paths: larger packets would leave that
    /// path unused, which costs more than the headers of smaller packets. A path whose MTU is still
    /// being probed does not count.
    pub(super) fn update_inner_mtu(&mut self, cx: &mut Context<'_>) {
        let usable = self.paths.validated();
        let Some(datagram) = usable.filter_map(Path::lasting_datagram).min() else { return };
        let mtu = datagram.saturating_sub(INNER_OVERHEAD) as u16;
        if mtu != self.inner_mtu {
            self.inner_mtu = mtu;
            cx.shared.events.push_back(Event::InnerMtu { peer: self.config.name.clone(), mtu });
        }
    }

    /// Opens a path for every address pair that has none. Only the opener does.
    pub(super) fn open_paths(&mut self, now: Instant, cx: &mut Context<'_>) {
        if !self.identity.opens() {
            return;
        }
        for local in &*Arc::clone(&cx.shared.locals) {
            for remote in self.remotes(local.encapsulation) {
                cx.shared.work += 1 + self.paths.len() as u64;
                let address = PathAddress { local: local.id, remote };
                if local.address.is_ipv4() == remote.is_ipv4()
                    && self.wants_path(now, &cx.shared.locals, local, remote)
                    && cx.shared.may_be_sent_to(remote)
                    && self.may_challenge(now, remote, local.encapsulation)
                    && !self.paths.is_taken(address)
                    && let Some(index) = self.open_path(now, address, local, &cx.shared.interfaces)
                {
                    let standing = self.standing(now, address, cx);
                    let challenge = Challenge::ours(cx.shared.rng.bytes(), address, standing, now);
                    self.paths[index].validation.challenge = Some(challenge);
                }
            }
        }
    }

    /// Opens the path on which the handshake was answered: its address needs no challenge. A former
    /// path between the same addresses that does not work is replaced, because the peer may no
    /// longer know it.
    pub(super) fn open_validated_path(
        &mut self,
        now: Instant,
        address: PathAddress,
        cx: &mut Context<'_>,
    ) {
        for index in self.paths.indices() {
            let path = &self.paths[index];
            match path.state() {
                _ if path.address != address => {}
                PathState::Active | PathState::Standby => {
                    self.paths[index].ping = true;
                    return;
                }
                PathState::Validating | PathState::Failed => {
                    self.abandon_path(now, cx, index, "replaced after a new handshake");
                }
                PathState::Abandoned => {}
            }
        }
        let local = cx.shared.locals.iter().find(|local| local.id == address.local);
        if let Some(index) =
            local.and_then(|local| self.open_path(now, address, local, &cx.shared.interfaces))
        {
            self.paths[index].ping = true;
            self.change_state(now, cx, index, PathState::Active, "the handshake was answered");
        }
    }

    pub(super) fn open_path(
        &mut self,
        now: Instant,
        address: PathAddress,
        local: &LocalAddress,
        interfaces: &InterfaceProperties,
    ) -> Option<PathIndex> {
        let id = self.paths.take_id().filter(|_| !self.paths.is_full())?;
        self.add_path(now, id, address, local, interfaces)
    }

    /// Removes path `index`. Its identifier stays reserved as long as the keys exist.
    fn remove_path(&mut self, index: PathIndex) {
        if self.paths[index].flight.knows_of_elsewhere() {
            self.sending.retain_missing(&self.paths);
        }
        let path = self.paths.remove(index);
        self.outbox.forget_path(path.id);
        self.paths.retire(path.id);
    }

    /// Adds a path, unless the limit is reached.
    pub(super) fn add_path(
        &mut self,
        now: Instant,
        id: PathId,
        address: PathAddress,
        local: &LocalAddress,
        interfaces: &InterfaceProperties,
    ) -> Option<PathIndex> {
        let kind = self.config.congestion_control;
        let mut path = Path::new(id, address, local, kind, &self.parameters.transport, now);
        follow_interface(&mut path, &self.config, interfaces);
        path.longest_pause = self.longest_pause();
        path.rest = Rest::new(now, self.keepalive(local.encapsulation));
        self.paths.add(path)
    }

    /// Longest pause between probes of a path that does not answer.
    pub(super) fn longest_pause(&self) -> Duration {
        match self.config.host_mode && self.config.policy == Policy::Prefer {
            // Connections use plain IP until a path works again.
            true => FALLBACK_PAUSE,
            false => MAX_PROBE_INTERVAL,
        }
    }

    /// At the limit, removes the path that has not worked for longest, for one that the peer opens.
    /// A peer that loses its only address cannot tell which paths it abandoned. The peer is told.
    pub(super) fn make_room_for_path(&mut self, now: Instant, cx: &mut Context<'_>) {
        if !self.paths.is_full() {
            return;
        }
        let idle = |path: &Path| !path.works() && now.since(path.changed) >= PATH_LINGER;
        let idle = self.paths.enumerate().filter(|(_, path)| idle(path));
        if let Some((index, _)) = idle.min_by_key(|(_, path)| path.changed) {
            let id = self.paths[index].id;
            self.change_state(now, cx, index, PathState::Abandoned, "replaced by a new path");
            self.remove_path(index);
            // It does not linger, but the peer may still probe it.
            self.outbox.owe(Notice::PathRefused(id));
        }
    }

    /// Abandons a path and tells the peer.
    pub(super) fn abandon_path(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        index: PathIndex,
        reason: &'static str,
    ) {
        let path = &mut self.paths[index];
        if path.state() != PathState::Abandoned {
            path.reserve.advance();
            self.outbox.owe(Notice::PathStatus(path.id));
            self.change_state(now, cx, index, PathState::Abandoned, reason);
        }
    }

    /// A path status frame arrived.
    pub(super) fn on_path_status(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        id: PathId,
        sequence: u64,
        (status, cost, limit): (PathStatus, u8, Option<RateLimit>),
    ) {
        let Some(index) = self.paths.find(id) else { return };
        let path = &mut self.paths[index];
        if status != PathStatus::Abandoned {
            let standby = status == PathStatus::Standby;
            self.standby_changed |= path.reserve.on_peer(sequence, standby, cost, limit);
        } else if path.state() != PathState::Abandoned {
            self.change_state(now, cx, index, PathState::Abandoned, "the peer gave it up");
            self.open_paths(now, cx);
        }
    }

    /// Applies the standby changes of all status frames of one datagram at once.
    pub(super) fn follow_standby(&mut self, now: Instant, cx: &mut Context<'_>) {
        if core::mem::take(&mut self.standby_changed) {
            self.limit_to_fastest(now, cx);
        }
    }

    /// Periodic checks of every path: loss timers, silence, removal of abandoned paths.
    pub(super) fn check_paths(&mut self, now: Instant, cx: &mut Context<'_>) {
        self.move_paths(now, cx);
        for index in self.paths.indices() {
            self.paths[index].refresh_pacing(now);
            if self.paths[index].flight.loss_timer().is_some_and(|at| now >= at) {
                self.losses.clear();
                let losses = &mut self.losses;
                self.paths[index].flight.on_loss_timer(now, losses);
                self.apply_losses(now, index);
                self.update_inner_mtu(cx);
            }
            self.losses.clear();
            let alone = self.paths.none_answers();
            match self.paths[index].check_silence(now, alone, &mut self.losses) {
                Silence::None => {}
                Silence::Probe => {
                    self.paths[index].ping = true;
                    self.probe_tail(now, index);
                }
                Silence::Dead => {
                    self.repair_losses(LossCause::PathFailed);
                    self.change_state(now, cx, index, PathState::Failed, "no answer");
                    self.paths[index].on_dead(now);
                    self.limit_to_fastest(now, cx);
                }
            }
        }
        let gone = |path: &Path| {
            path.state() == PathState::Abandoned && now.since(path.changed) >= PATH_LINGER
        };
        while let Some(index) = self.paths.position(gone) {
            self.remove_path(index);
        }
        self.reconnect(now);
    }

    /// The host cannot send to this address. Returns whether a path uses it.
    pub(crate) fn on_unreachable(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        address: PathAddress,
    ) -> bool {
        let concerned = |path: &Path| path.address == address && path.works();
        let concerned = self.paths.position(concerned);
        let Some(index) = concerned else { return false };
        self.change_state(now, cx, index, PathState::Failed, "the host cannot send there");
        let path = &mut self.paths[index];
        path.on_dead(now);
        // Datagrams that arrive now were sent before the failure.
        path.peer.count_from(path.flight.next_number());
        self.limit_to_fastest(now, cx);
        true
    }

    /// An ICMP error says that nobody listens at this address. It is not authentic, so the path is
    /// only probed, and fails sooner if there is no answer. Returns whether a path uses the
    /// address.
    pub(crate) fn on_refused(&mut self, now: Instant, address: PathAddress) -> bool {
        let mut concerned = false;
        for path in self.paths.iter_mut().filter(|path| path.address == address) {
            concerned |= path.doubt(now);
        }
        concerned
    }

    /// When no path works, starts a handshake: the peer may be at its configured address, or have
    /// restarted.
    fn reconnect(&mut self, now: Instant) {
        let works = |path: &Path| path.works() || now.since(path.changed) < RECONNECT;
        if self.identity.is_established()
            && !self.handshakes.is_planned()
            && self.handshakes.pending().is_none()
            && !self.config.endpoints.is_empty()
            && !self.paths.iter().any(works)
            && self.handshakes.completed_at().is_none_or(|at| now.since(at) >= RECONNECT)
        {
            self.handshakes.plan(Some(now));
        }
    }

    /// Work of every [`PERIOD`]: scheduler weights, choice of the fastest paths, queue parameters,
    /// guard, session expiry.
    pub(super) fn run_period(&mut self, now: Instant, cx: &mut Context<'_>) {
        self.settle_rest(now);
        self.period_at = now + if self.rest.is_resting() { REST_PERIOD } else { PERIOD };
        self.choose_encapsulations(now, cx);
        self.settle_paths(now, cx);
        self.limit_to_fastest(now, cx);
        let candidates = |most: u8| -> Vec<Candidate> {
            let active = self.paths.active().filter(|path| path.reserve.cost() <= most);
            active.map(|path| Candidate::of(path, now, 0)).collect()
        };
        self.selection.adjust(&candidates(u8::MAX));
        let backlog = self.sending.queue().bytes();
        self.selection.tiers.on_period(now, &self.paths, backlog);
        let candidates = candidates(self.selection.tiers.limit());
        let playout = &self.parameters.transport.playout;
        self.paths.iter_mut().for_each(|path| path.update_playout(playout));
        self.tune_queue(&candidates);
        self.find_bottlenecks();
        self.update_guard(now, cx);
        self.update_loss_standby(now, cx);
        if !self.rest.is_resting() {
            // Not at rest: each change costs a datagram.
            self.update_resequencing_timeout();
            self.hasten_challenges(now);
        }
        self.expire_sessions(now, cx);
        let works = |path: &Path| path.is_validated() && path.state() != PathState::Failed;
        if !self.paths.iter().any(works)
            && self.paths.iter().all(|path| now.since(path.changed) >= STALE)
        {
            let dropped = self.sending.drop_queued(&mut self.outbox);
            cx.shared.drops.add(DropReason::NoPath, dropped);
        }
    }

    /// Repeats challenges sooner, as far as what was carried since pays for them. Those that have
    /// waited longest come first.
    fn hasten_challenges(&mut self, now: Instant) {
        let carried = self.sending.bytes() + self.receiving.bytes();
        self.challenge_budget.earn(carried);
        loop {
            // Those that failed are probed. On an interface with a cost, what may be in vain waits.
            let searched = |path: &Path| !path.is_validated() && path.reserve.cost() == 0;
            let new = self.paths.enumerate().filter(|(_, path)| searched(path));
            let unanswered = new.filter_map(|(index, path)| {
                let challenge = path.validation.challenge.as_ref()?;
                Some((challenge.waits_since(now)?, index))
            });
            let Some((_, index)) = unanswered.min() else { break };
            if !self.challenge_budget.spend() {
                break;
            }
            if let Some(challenge) = &mut self.paths[index].validation.challenge {
                challenge.hasten(now);
            }
        }
    }

    /// Groups the paths that share a bottleneck (seed 002, RFC 8382).
    fn find_bottlenecks(&mut self) {
        self.paths.iter_mut().for_each(|path| path.delays.close_interval());
        self.periods = self.periods.wrapping_add(1);
        if !self.periods.is_multiple_of(REGROUP_PERIODS) {
            return;
        }
        let mut groups: Vec<u16> = self.paths.iter().map(|path| path.bottleneck).collect();
        let paths: Vec<&Path> = self.paths.iter().collect();
        let parameters = &self.parameters.transport.bottleneck;
        let compare = |a: usize, b: usize| paths[a].delays.compare(&paths[b].delays, parameters);
        regroup(&mut groups, |path| paths[path].id.0, compare);
        for (path, group) in self.paths.iter_mut().zip(groups) {
            path.bottleneck = group;
        }
    }

    /// Whether the peer's wishes for standby count: not if this end has a limit and chooses first.
    pub(super) fn heeds_standby(&self) -> bool {
        !self.identity.opens() || self.config.max_paths.is_none()
    }

    /// Keeps `max_paths` paths active, the cheapest and among these the fastest, and the others on
    /// standby (seed 000, section 3.3), as well as those that this host or the peer wants on
    /// standby. If both nodes have such a limit the opener's choice holds: two nodes that followed
    /// each other would never agree.
    pub(crate) fn limit_to_fastest(&mut self, now: Instant, cx: &mut Context<'_>) {
        let limit = self.config.max_paths;
        let interfaces = Arc::clone(&cx.shared.interfaces);
        let own = |path: &Path| interfaces.standby.contains(&path.interface);
        for path in self.paths.iter_mut() {
            follow_interface(path, &self.config, &interfaces);
        }
        let aside = |path: &Path| {
            let reserve = &path.reserve;
            reserve.is_wanted()
                || reserve.is_told()
                || reserve.owes()
                || path.state() == PathState::Standby
        };
        if limit.is_none()
            && !self.loss_standby.holds_any()
            && !self.paths.iter().any(|path| aside(path) || own(path))
        {
            return;
        }
        cx.shared.work += self.paths.len() as u64;
        let heeds = self.heeds_standby();
        let mut working: Vec<(Aside, u8, i64, u16, PathIndex)> = Vec::new();
        for (index, path) in self.paths.enumerate() {
            let margin = match path.state() {
                PathState::Active => 0,
                PathState::Standby => STANDBY_MARGIN,
                _ => continue,
            };
            // Unloaded delay: queuing caused by a path's own traffic must not push it out.
            let delay = path.delay.minimum().unwrap_or(i64::MAX / 2) + margin;
            let aside = match (own(path), heeds && path.reserve.is_wanted()) {
                (true, _) => Aside::Here,
                (false, true) => Aside::Peer,
                (false, false) if self.loss_standby.holds(path.id.0) => Aside::Loss,
                (false, false) => Aside::No,
            };
            working.push((aside, path.reserve.cost(), delay, path.id.0, index));
        }
        working.sort_unstable();
        let any = |wanted| working.iter().any(|(aside, ..)| *aside == wanted);
        let available = any(Aside::No);
        // A path that loses is better than one that was set aside.
        let only_lossy = !available && any(Aside::Loss);
        let last = limit.and_then(|limit| working.get(limit.saturating_sub(1)));
        let most = last.map_or(u8::MAX, |(_, cost, ..)| *cost);
        for (rank, &(aside, cost, _, _, index)) in working.iter().enumerate() {
            let beyond = limit.is_some_and(|limit| rank >= limit);
            let (state, reason) = match aside {
                Aside::Loss if available => (PathState::Standby, REACHES),
                Aside::Here if available || only_lossy => {
                    (PathState::Standby, "its interface is on standby")
                }
                Aside::Peer if available || only_lossy => {
                    (PathState::Standby, "the peer wants it on standby")
                }
                _ if beyond && cost > most => (PathState::Standby, "others are cheaper"),
                _ if beyond => (PathState::Standby, "others are faster"),
                Aside::No if self.paths[index].reason == REACHES => {
                    let id = self.paths[index].id.0;
                    let returned = self.loss_standby.figures(id).is_some();
                    (PathState::Active, if returned { BELOW } else { NOT_JUDGED })
                }
                Aside::No => (PathState::Active, "among the fastest"),
                _ => (PathState::Active, "no other path works"),
            };
            self.change_state(now, cx, index, state, reason);
            let tells = matches!(aside, Aside::Here | Aside::Loss) || beyond && aside == Aside::No;
            if self.paths[index].reserve.tell(tells) {
                self.outbox.owe(Notice::PathStatus(self.paths[index].id));
            }
        }
    }

    /// Adapts CoDel to delay that the paths make unavoidable. A window that fills paths of unequal
    /// delay waits for the slowest of them, and resequencing waits for late packets and for those
    /// that are sent again, in both directions. After a signal the inner window shrinks by 30 %
    /// (RFC 9438, section 4.6), and without a matching queue the paths run dry until it has grown
    /// again. Where all delays are the same, they run dry if less waited in the queue than the
    /// window shrinks by. The queue is fair: only a session's own packets wait in it.
    ///
    /// A path that the guard leaves out delays nobody. The window that it needed, or with which
    /// slow start ended, now stands in the queue, so signals come no faster than senders can react
    /// to them.
    ///
    /// A session's turn grows with what the paths deliver.
    fn tune_queue(&mut self, paths: &[Candidate]) {
        let Parameters { codel: base, codel_tuning: tuning, thinning, .. } = &*self.parameters;
        let in_turn = || paths.iter().filter(|path| !self.selection.guard.leaves_out(path.id));
        // A control that fills the path's queue until it overflows causes the repairs itself.
        let overflows = self.config.congestion_control != CongestionControlKind::Bbr;
        let own = |path: &Candidate| if overflows { path.repair } else { 0 };
        let first = in_turn().map(|path| path.delay + own(path)).min();
        let last = in_turn().map(|path| path.delay + path.repair).max();
        let spread = match (first, last) {
            (Some(min), Some(max)) => Duration::from_micros((max - min).unsigned_abs()),
            _ => Duration::ZERO,
        };
        let in_use = || {
            let active = self.paths.active();
            active.filter(|path| !self.selection.guard.leaves_out(path.id.0))
        };
        let rtt = in_use().map(|path| path.flight.rtt().smoothed()).max().unwrap_or_default();
        let jitter = in_use().map(|path| path.delay.jitter()).max().unwrap_or_default();
        let limit = self.selection.tiers.limit();
        let reaches = in_use().filter(|path| path.reserve.cost() <= limit).filter_map(reach_of);
        self.reach.look(reaches, &self.parameters.raise);
        let rtt = rtt.min(self.parameters.resequencing.most);
        let late = jitter.saturating_sub(tuning.own_jitter).mul_f64(tuning.late);
        let late = late.min(tuning.spread_most);
        // Packets that wait for a path in slow start will fill it.
        let growing = in_use().filter(|path| path.is_growing());
        let growing = growing.map(|path| path.flight.rtt().smoothed() * 2).max();
        let growing = growing.unwrap_or_default().min(tuning.growth);
        let uneven = spread.max(late);
        let searching = || in_use().filter(|path| path.is_searching());
        // Its window doubles, up to what the path has shown to carry.
        let takes = |path: &Path| {
            let rtt = path.flight.rtt().minimum().as_secs_f64();
            let carries = path.shown_rate().map(|rate| rate as f64 * rtt * thinning.round_trips);
            carries.unwrap_or(f64::INFINITY).min(path.cc.window() as f64 * thinning.ahead)
        };
        let ahead: f64 = searching().map(takes).sum();
        // The queue has to become long enough for dearer paths to be used: the inner TCP must not
        // take it for a sign of congestion before.
        let opens = self.selection.tiers.opens_after().map(|after| after * 2);
        let rate: u64 = paths.iter().map(|path| path.rate).sum();
        let opening = opens.map_or(0.0, |after| rate as f64 * after.as_secs_f64());
        self.awaited = ahead.max(opening) as u64;
        let queue = self.sending.queue_mut();
        // They take it soon, while an inner TCP that has reduced its window needs long to grow.
        let is_taken_soon = ahead > 0.0 && queue.bytes() as f64 <= ahead;
        let taken_soon = if is_taken_soon { tuning.spread_most } else { Duration::ZERO };
        // Slow start goes on for the sake of later paths. If a far one loses, the window outgrows
        // it. Losses at the end of its own slow start do not count.
        let nearest = paths.iter().map(|path| path.delay).min().unwrap_or_default();
        let far = self.parameters.earliest.far.as_micros() as i64;
        let is_far = |path: &Path| {
            paths.iter().any(|known| known.id == path.id.0 && known.delay - nearest >= far)
        };
        let lossy = searching().any(|path| path.proven_loss() > thinning.lossy && is_far(path));
        // A path in Startup is paced below its rate. To HyStart, acknowledgements at that pace are
        // those of a full link.
        let misled = uneven >= thinning.uneven || opens.is_some() || searching().next().is_some();
        self.thins = self.config.ack_thinning && thinning.enabled && misled && !lossy;
        // A control that fills the paths' queues has the reserve there.
        let reserve = if overflows { 0.0 } else { tuning.reserve };
        let reserve = self.reach.farthest.mul_f64(reserve).min(tuning.spread_most);
        let misleading = uneven >= tuning.misleading;
        let answer =
            if misleading { rtt + self.resequencing_timeout.advertised } else { rtt + late * 2 };
        let interval = base.interval.max((answer * 2).min(tuning.interval_most));
        // The inner TCP's window was made for all paths, and will be needed again if the trial is
        // in vain.
        let trial = match self.selection.guard.tries_fewer() {
            true => tuning.growth,
            false => Duration::ZERO,
        };
        queue.set_quantum((rate as f64 * base.turn.as_secs_f64()) as usize);
        queue.set_codel(CodelParameters {
            target: base
                .target
                .max(growing)
                .max(taken_soon)
                .max(trial)
                .max(spread.min(tuning.spread_most))
                .max(late)
                .max(reserve)
                .max(opens.unwrap_or_default()),
            interval,
            runaway: if misleading { interval.mul_f64(tuning.runaway) } else { Duration::MAX },
            patient: base.patient && (self.selection.guard.is_narrow() || misleading),
        });
    }

    /// Computes the resequencing timeout for the peer: the spread of the paths' delays, plus the
    /// time for consecutive repairs.
    fn update_resequencing_timeout(&mut self) {
        let in_use = || self.paths.active();
        let late = |path: &Path| {
            path.delay.average().map(|delay| delay + 4 * path.delay.jitter().as_micros() as i64)
        };
        let slowest = in_use().filter_map(late).max();
        let fastest = in_use().filter_map(|path| path.delay.minimum()).min();
        let (Some(slowest), Some(fastest)) = (slowest, fastest) else { return };
        let spread = Duration::from_micros(u64::try_from(slowest - fastest).unwrap_or(0));
        let detection = in_use()
            .map(|path| path.probe_timeout() + path.flight.reordering_window())
            .max()
            .unwrap_or_default();
        let ResequencingParameters { least, most, repairs } = self.parameters.resequencing;
        let wait = (spread + detection * repairs).clamp(least, most.max(least));
        // A change of an eighth or less is not worth a frame.
        if wait.abs_diff(self.resequencing_timeout.advertised)
            > self.resequencing_timeout.advertised / 8
        {
            self.resequencing_timeout.advertised = wait;
            self.resequencing_timeout.sequence += 1;
            self.outbox.owe(Notice::Resequencing);
        }
    }
}

/// How far `path` reaches; `None` before its first delay sample.
fn reach_of(path: &Path) -> Option<PathReach> {
    Some(PathReach {
        id: path.id.0,
        minimum_rtt: path.flight.rtt().minimum(),
        least: path.delay.minimum()?,
        usual: path.usual_delay()?,
        delivers: path.delivers(),
        searches: path.searches(),
        carried: path.counters.carried,
    })
}
