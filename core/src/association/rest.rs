//! Rest: paths of an idle association send only keepalives. The first packet wakes all of them.

use core::time::Duration;

use super::Association;
use crate::content::Path;
use crate::parts::outbox::Notice;
use crate::parts::path_set::PathIndex;
use mpip_transport::rest::{REST_AFTER, USUAL};
use mpip_types::Encapsulation;
use mpip_types::Instant;
use mpip_types::PathAddress;

impl Association {
    /// An inner packet was sent or received.
    pub(super) fn on_traffic(&mut self, now: Instant) {
        if self.rest.on_traffic(now) {
            self.wake(now);
        }
    }

    /// Wakes all paths and probes them at once.
    fn wake(&mut self, now: Instant) {
        self.period_at = now;
        for path in &mut self.paths {
            path.wake(now);
        }
    }

    /// The configured keepalive interval. TCP connections with longer pauses would be closed by
    /// middleboxes, so it is limited there.
    pub(super) fn keepalive(&self, encapsulation: Encapsulation) -> Option<Duration> {
        let tcp = encapsulation == Encapsulation::Tcp;
        self.limits.keepalive.map(|pause| if tcp { pause.min(USUAL) } else { pause })
    }

    /// Lets idle paths rest, or wakes all when none works any more, to find one that does. A path
    /// that is new, or has just failed or recovered, stays awake for a time.
    pub(super) fn settle_rest(&mut self, now: Instant) {
        let rests = self.identity.is_established()
            && self.rest.is_idle(now)
            && !self.has_waiting()
            && self.paths.any_works();
        if !rests {
            if self.rest.end() {
                self.wake(now);
            }
            return;
        }
        self.rest.begin();
        for index in self.paths.indices() {
            let path = &self.paths[index];
            if now.since(path.changed) < REST_AFTER {
                continue;
            }
            let learns = path.is_translated() && path.encapsulation == Encapsulation::Udp;
            let pause = learns.then(|| self.rest.lifetime(path).pause());
            let rest = &mut self.paths[index].rest;
            rest.allow(pause);
            rest.begin(self.identity.opens());
            self.tell_keepalive(index);
        }
    }

    /// When a keepalive is due, other paths join it: those to the same remote address if the peer
    /// asked for keepalives, otherwise those from the same local address. A radio then wakes up
    /// once for all, and a NAT sees longer silence.
    pub(super) fn join_keepalives(&mut self, now: Instant) {
        if !self.rest.is_resting() {
            return;
        }
        let rests = |path: &Path| path.rest.is_resting() && path.works();
        for index in self.paths.indices() {
            let path = &self.paths[index];
            if !rests(path) || path.ping || path.heartbeat_at().is_none_or(|at| now < at) {
                continue;
            }
            let address = path.address;
            let kind = |path: &Path| (path.rest.is_asked(), path.is_translated());
            let own = kind(path);
            for other in self.paths.iter_mut().filter(|other| rests(other) && kind(other) == own) {
                let beside = match own.0 {
                    true => other.address.remote.ip() == address.remote.ip(),
                    false => other.address.local == address.local,
                };
                let silent = now.since(other.rest.travelled());
                other.ping |= beside && silent >= other.rest.interval() / 2;
            }
        }
    }

    /// A datagram arrived on path `index`, which learns from it: after a pause it proves that the
    /// NAT binding of this local address has survived the pause.
    pub(super) fn on_nat_binding_survived(&mut self, now: Instant, index: PathIndex) {
        let Path { address, rest, .. } = &self.paths[index];
        let (local, pause) = (address.local, now.since(rest.travelled()));
        let past = |path: &Path| path.is_validated() && !path.is_translated();
        let beside = self.paths.iter().filter(|path| path.address.local == local && !past(path));
        let last = beside.map(|path| path.rest.travelled()).max().unwrap_or(now);
        let lifetime = self.rest.lifetime(&self.paths[index]);
        lifetime.on_survived(now, pause, now.since(last));
        let pause = lifetime.pause();
        self.allow(index, pause);
    }

    /// A packet was acknowledged on path `index`. If it had to be sent because nothing arrived, the
    /// NAT binding had expired.
    pub(super) fn on_nat_binding_lapsed(&mut self, now: Instant, index: PathIndex) {
        let Some(lapsed) = self.paths[index].rest.take_lapsed() else { return };
        let lifetime = self.rest.lifetime(&self.paths[index]);
        lifetime.on_lapsed(now, lapsed);
        let pause = lifetime.pause();
        self.allow(index, pause);
    }

    /// Allows all paths from the local address of path `index` to be silent for `pause`.
    fn allow(&mut self, index: PathIndex, pause: Duration) {
        let local = self.paths[index].address.local;
        for index in self.paths.indices() {
            let path = &mut self.paths[index];
            if path.address.local == local && path.rest.learns() {
                path.rest.allow(Some(pause));
                self.tell_keepalive(index);
            }
        }
    }

    /// Tells the peer the keepalive interval of path `index` if it has changed.
    fn tell_keepalive(&mut self, index: PathIndex) {
        let path = &self.paths[index];
        if path.rest.differs_from_told() {
            self.outbox.owe(Notice::Keepalive(path.id));
        }
    }

    /// The address pair over which a resting association renews its keys: one path that works. The
    /// others are used only if there is no answer.
    pub(super) fn pair_at_rest(&self) -> Option<Vec<PathAddress>> {
        let rests = self.rest.is_resting()
            && self.handshakes.attempts() == 0
            && self.keys.current().is_some();
        let path = self.paths.iter().find(|path| path.works()).filter(|_| rests)?;
        Some(vec![path.address])
    }

    /// Probes the paths, so that the peer sees the new keys: on all paths, or on one at rest.
    pub(super) fn ping_renewed(&mut self) {
        let count = if self.rest.is_resting() { 1 } else { usize::MAX };
        let resting = self.rest.is_resting();
        let paths = self.paths.iter_mut().filter(|path| !resting || path.works());
        paths.take(count).for_each(|path| path.ping = true);
    }
}
