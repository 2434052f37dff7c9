//! Settings of a peer that change while its association goes on.

use core::net::IpAddr;

use super::Association;
use crate::config::PeerConfig;
use crate::guard::Guard;
use crate::loss_standby::LossStandby;
use crate::parts::selection::Selection;
use crate::shared::Context;
use mpip_types::{Encapsulation, Instant, Prefix};

impl Association {
    /// Applies `config`, which has the same key, name and host mode. Keys, paths and sessions go
    /// on; a new preshared key is used from the next handshake on, and `resequencing` by new
    /// sessions. Whose the inner addresses are is up to the caller.
    pub(crate) fn reconfigure(&mut self, now: Instant, config: PeerConfig, cx: &mut Context<'_>) {
        let former = core::mem::replace(&mut self.config, config);
        let config = &self.config;
        let weights = former.fixed_weights != config.fixed_weights
            || former.weight_adaptation != config.weight_adaptation;
        if former.scheduler != config.scheduler || weights {
            self.selection = Selection::new(config, &self.parameters);
            self.rules_followed = 0;
        }
        if former.loss_policy != config.loss_policy {
            self.selection.guard = Guard::new(self.parameters.guard);
            self.loss_standby = LossStandby::default();
        }
        let congestion = former.congestion_control != config.congestion_control;
        for path in &mut self.paths {
            path.fixed_weight = config.fixed_weight(&path.interface);
            if congestion {
                let parameters = &self.parameters.transport;
                path.set_congestion_control(now, config.congestion_control, parameters);
            }
        }
        self.sending.configure(config);
        if former.policy != config.policy {
            let pause = self.longest_pause();
            self.paths.iter_mut().for_each(|path| path.longest_pause = pause);
            // Even if the addresses stay the same.
            let capture = self.host.capture(&self.config);
            cx.shared.captures.insert(self.config.name.clone(), capture);
        }
        let (exclusive, allowed) = (&self.config.exclusive, &self.config.allowed_prefixes);
        let permitted: Vec<Prefix> = exclusive.iter().chain(allowed).copied().collect();
        // Where an unknown peer is admitted is no matter of its settings.
        let unknown = self.is_unknown_peer();
        self.give_up_addresses(cx, |ip| {
            unknown || permitted.iter().any(|prefix| prefix.contains(ip))
        });
        self.review_capture();
        self.report_observed_addresses(now, cx);
        self.follow_endpoints(now, &former, cx);
        self.limit_to_fastest(now, cx);
    }

    /// Abandons paths that the settings do not permit any more, and opens those that they permit
    /// now.
    fn follow_endpoints(&mut self, now: Instant, former: &PeerConfig, cx: &mut Context<'_>) {
        let remotes = |kind| (kind, self.remotes(kind));
        let wanted = [Encapsulation::Udp, Encapsulation::Tcp].map(remotes);
        let opens = self.identity.opens();
        for index in self.paths.indices() {
            let path = &self.paths[index];
            let (kind, remote) = (path.encapsulation, path.address.remote);
            if !self.config.encapsulation.permits(kind) {
                self.abandon_path(now, cx, index, "its encapsulation is not permitted any more");
                continue;
            }
            // Only the opener's: the other node learns where the opener is from its packets.
            let port = |mut endpoint: core::net::SocketAddr| {
                if let Some(port) = former.tcp_port.filter(|_| kind == Encapsulation::Tcp) {
                    endpoint.set_port(port);
                }
                endpoint
            };
            let was = former.endpoints.iter().any(|endpoint| port(*endpoint) == remote);
            let is = wanted.iter().any(|(other, all)| *other == kind && all.contains(&remote));
            if opens && was && !is {
                self.abandon_path(now, cx, index, "the configuration does not name it any more");
            }
        }
        if self.keys.current().is_some() {
            self.open_paths(now, cx);
        } else if self.config.endpoints.is_empty() {
            self.handshakes.plan(None);
        } else if *former.endpoints != *self.config.endpoints || !self.handshakes.is_planned() {
            self.handshakes.plan(Some(now));
        }
    }

    /// Gives up the addresses that the peer told, unless they are `permitted`.
    pub(crate) fn give_up_addresses(
        &mut self,
        cx: &mut Context<'_>,
        permitted: impl Fn(IpAddr) -> bool,
    ) {
        let me = cx.me;
        let before = self.host.addresses.len();
        self.host.addresses.retain(|ip, _| {
            let stays = permitted(*ip);
            if !stays {
                cx.shared.prefixes.release(Prefix::host(*ip), me);
            }
            stays
        });
        if self.host.addresses.len() < before {
            self.review_capture();
            self.review_sessions(cx);
        }
    }
}
