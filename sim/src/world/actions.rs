//! Events of the script.

use core::net::SocketAddr;
use core::time::Duration;

use mpip_core::{Command, DEFAULT_PORT, Ecn};

use super::World;
use crate::host::Host;
use crate::network::{Carries, Datagram};
use crate::spec::{Action, inner_address};

impl World {
    pub(super) fn act(&mut self, action: Action) {
        self.note(|| format!("action {action:?}"));
        match action {
            Action::Link { link, change } => self.network.change_link(self.now, link, &change),
            Action::AddAddress { interface, address } => {
                self.network.add_address(interface, address);
                let host = self.network.interface(interface).host;
                if self.spec.is_ordinary(host) {
                    self.hosts[host].unkeep(address);
                }
                self.addresses_changed(interface);
            }
            Action::RemoveAddress { interface, address } => {
                self.network.remove_address(interface, address);
                let host = self.network.interface(interface).host;
                self.hosts[host].keep(address);
                self.addresses_changed(interface);
            }
            Action::Rebind { interface, external } => {
                self.network.rebind(interface, external);
                self.note_addresses();
            }
            Action::SocketsFull { host, full } => self.set_sockets(host, full),
            Action::Replay { count, spoofed, corrupt } => self.replay(count, spoofed, corrupt),
            Action::Garbage { host, count } => self.garbage(host, count),
            Action::BlockUdp { interface, blocked } => {
                self.network.block_udp(interface, blocked);
            }
            Action::Configure { host, interfaces } => {
                let command = Command::Interfaces(interfaces);
                let Host { node, spec, .. } = &mut self.hosts[host];
                node.handle_command(spec.clock.at(self.now), command);
                self.settle(host);
            }
            Action::Restart { host } => self.restart(host),
        }
    }

    /// Whether datagrams have to be recorded for an attacker.
    pub(super) fn spec_has_attacker(&self) -> bool {
        self.script.iter().any(|(_, action)| matches!(action, Action::Replay { .. }))
    }

    fn addresses_changed(&mut self, interface: usize) {
        self.note_addresses();
        let index = self.network.interface(interface).host;
        self.hosts[index].update_addresses(index, &self.network, self.now);
        if self.hosts[index].full {
            self.set_sockets(index, true);
        }
        self.settle(index);
    }

    pub(super) fn set_sockets(&mut self, index: usize, full: bool) {
        let host = &mut self.hosts[index];
        host.full = full;
        let locals: Vec<_> = host.locals.iter().map(|local| local.id).collect();
        if full {
            host.outbox.full = locals;
            return;
        }
        host.outbox.full.clear();
        for local in locals {
            let host = &mut self.hosts[index];
            let now = host.spec.clock.at(self.now);
            host.node.handle_writable(now, local, &mut host.outbox);
            self.settle(index);
        }
    }

    fn replay(&mut self, count: usize, spoofed: Option<SocketAddr>, corrupt: bool) {
        for _ in 0..count {
            let index = self.attacker.below(self.recorded.len() as u64) as usize;
            let Some((interface, recorded)) = self.recorded.get(index) else { return };
            let (interface, mut datagram) = (*interface, recorded.clone());
            datagram.genuine = false;
            match spoofed {
                Some(source) => datagram.source = source,
                None => {
                    let ip = self.network.seen_as(interface, datagram.source.ip());
                    datagram.source.set_ip(ip);
                }
            }
            if corrupt {
                mpip_link::flip_bit(&mut datagram.bytes, self.attacker.word());
            }
            // A drop by the network is fine.
            let _ = self.network.inject(self.now, interface, datagram);
        }
    }

    fn garbage(&mut self, host: usize, count: usize) {
        let targets: Vec<_> = self.hosts[host].locals.iter().map(|local| local.address).collect();
        for target in targets {
            let Some(from) = (0..self.spec.interfaces.len()).find(|index| {
                let owner = self.network.owner(target.ip()).map(|(owner, _)| owner);
                owner.is_some_and(|owner| self.network.has_route(*index, owner))
            }) else {
                continue;
            };
            for _ in 0..count {
                let len = self.attacker.between(0, 1_400) as usize;
                let mut bytes = Vec::with_capacity(len);
                bytes.extend((0..len).map(|_| self.attacker.word() as u8));
                // Every message type is tried, not only the 250 that do not exist.
                if let Some(first) = bytes.first_mut() {
                    *first &= 0x0f;
                }
                let source = SocketAddr::new(inner_address(200, target.is_ipv6()), DEFAULT_PORT);
                let datagram = Datagram {
                    carries: Carries::Datagram,
                    source,
                    destination: target,
                    ecn: Ecn::NotEct,
                    bytes,
                    genuine: false,
                };
                let _ = self.network.inject(self.now, from, datagram);
            }
        }
    }

    fn restart(&mut self, index: usize) {
        let now = self.now;
        self.hosts[index].start(&self.spec, index, &self.network, now, &mut self.restarts);
        self.settle(index);
    }

    /// Heals the world: makes every link clean and fast enough, and every socket writable.
    pub(super) fn heal(&mut self) {
        for link in 0..self.network.links() {
            let mut config = self.network.link_config(link).clone();
            config.up = true;
            config.blackhole = false;
            config.loss = mpip_link::Loss::None;
            config.duplicate = 0.0;
            config.corrupt = 0.0;
            config.mtu = config.mtu.max(1500);
            config.jitter = config.jitter.min(Duration::from_millis(1));
            config.delay = config.delay.min(Duration::from_millis(100));
            self.network.set_link(self.now, link, config);
        }
        for interface in 0..self.spec.interfaces.len() {
            self.network.block_udp(interface, false);
        }
        for host in 0..self.hosts.len() {
            if self.hosts[host].full {
                self.set_sockets(host, false);
            }
        }
    }
}
