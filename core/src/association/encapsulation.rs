//! Encapsulation of paths: UDP first, TCP where UDP is blocked.

use core::net::SocketAddr;
use core::time::Duration;

use super::Association;
use crate::config::EncapsulationPolicy;
use crate::content::Path;
use crate::parts::addresses::udp_beside;
use crate::shared::Context;
use mpip_transport::PathState;
use mpip_types::Instant;
use mpip_types::PathAddress;
use mpip_types::{Encapsulation, LocalAddress};

/// Time that UDP has to work before TCP is tried between the same addresses.
const UDP_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Time that UDP must have worked before the TCP path between the same addresses is abandoned.
const UDP_STABLE: Duration = Duration::from_secs(3);

impl Association {
    /// Remote addresses of the peer for `encapsulation`: the configured ones, then those that it
    /// advertises.
    pub(super) fn remotes(&self, encapsulation: Encapsulation) -> Vec<SocketAddr> {
        let known = self.config.endpoints.iter().chain(self.peer.advertised());
        known.map(|remote| self.remote(*remote, encapsulation)).collect()
    }

    /// `remote`, given with its UDP port, with the port for `encapsulation`.
    pub(super) fn remote(
        &self,
        mut remote: SocketAddr,
        encapsulation: Encapsulation,
    ) -> SocketAddr {
        if encapsulation == Encapsulation::Tcp
            && let Some(port) = self.config.tcp_port
        {
            remote.set_port(port);
        }
        remote
    }

    /// Whether a path from `local` to `remote` may be opened now.
    pub(super) fn wants_path(
        &self,
        now: Instant,
        locals: &[LocalAddress],
        local: &LocalAddress,
        remote: SocketAddr,
    ) -> bool {
        let policy = self.config.encapsulation;
        policy.permits(local.encapsulation)
            && (policy != EncapsulationPolicy::Auto
                || local.encapsulation == Encapsulation::Udp
                || self.udp_is_blocked(now, locals, local, remote))
    }

    /// Whether UDP between the same addresses has not worked for [`UDP_TIMEOUT`].
    fn udp_is_blocked(
        &self,
        now: Instant,
        locals: &[LocalAddress],
        local: &LocalAddress,
        remote: SocketAddr,
    ) -> bool {
        // Without an address for UDP there is nothing to wait for.
        let Some(udp) = udp_beside(locals, local) else { return true };
        let mut paths = self.udp_paths(udp, remote).peekable();
        paths.peek().is_some() && paths.all(|path| is_overdue(now, path))
    }

    /// The UDP paths between the same addresses as a TCP path from beside `udp` to `remote`.
    fn udp_paths(&self, udp: &LocalAddress, remote: SocketAddr) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter(move |path| {
            path.address.local == udp.id
                && path.state() != PathState::Abandoned
                && self.remote(path.address.remote, Encapsulation::Tcp) == remote
        })
    }

    /// Opens TCP paths where UDP is blocked, and abandons them where UDP works again.
    pub(super) fn choose_encapsulations(&mut self, now: Instant, cx: &mut Context<'_>) {
        if !self.identity.opens() || self.config.encapsulation != EncapsulationPolicy::Auto {
            return;
        }
        let is_udp = |path: &Path| path.encapsulation == Encapsulation::Udp;
        if self.paths.iter().any(|path| is_udp(path) && is_overdue(now, path)) {
            self.open_paths(now, cx);
        }
        for index in self.paths.indices() {
            let path = &self.paths[index];
            if path.encapsulation != Encapsulation::Tcp || path.state() == PathState::Abandoned {
                continue;
            }
            let local = cx.shared.locals.iter().find(|local| local.id == path.address.local);
            let udp = local.and_then(|local| udp_beside(&cx.shared.locals, local));
            let works = |path: &Path| path.works() && now.since(path.changed) >= UDP_STABLE;
            if udp.is_some_and(|udp| self.udp_paths(udp, path.address.remote).any(works)) {
                self.abandon_path(now, cx, index, "UDP works again");
            }
        }
    }

    /// Whether a handshake attempt goes from `local` to `address`: by UDP first; also by TCP after
    /// an attempt without an answer, without UDP, and where a TCP path works.
    pub(super) fn sends_handshake_from(
        &self,
        local: &LocalAddress,
        locals: &[LocalAddress],
        address: PathAddress,
    ) -> bool {
        let works = |path: &Path| path.address == address && path.works();
        match self.config.encapsulation {
            EncapsulationPolicy::Auto => {
                local.encapsulation == Encapsulation::Udp
                    || udp_beside(locals, local).is_none()
                    || self.handshakes.attempts() > 0
                    || self.paths.iter().any(works)
            }
            policy => policy.permits(local.encapsulation),
        }
    }
}

/// Whether a path has not worked for [`UDP_TIMEOUT`].
fn is_overdue(now: Instant, path: &Path) -> bool {
    matches!(path.state(), PathState::Validating | PathState::Failed)
        && now.since(path.changed) >= UDP_TIMEOUT
}
