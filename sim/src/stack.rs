//! The transports of a host: TCP and QUIC behind one face.

use core::net::{IpAddr, SocketAddr};

use crate::clock::Nanos;
use crate::quic::{Quic, QuicState};
use crate::spec::{QuicControl, TcpControl};
use crate::tcp::{self, Received, TcpState};

/// What sends and receives a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transport {
    /// TCP with a socket buffer of so many bytes.
    Tcp(usize, TcpControl),
    /// QUIC.
    Quic(QuicControl),
}

/// A host's transports.
pub(crate) struct Stack {
    tcp: tcp::Stack,
    quic: Quic,
}

impl Stack {
    /// A host with `addresses`. `seed` decides all random choices.
    pub(crate) fn new(addresses: &[IpAddr], mtu: usize, seed: u64) -> Self {
        Self { tcp: tcp::Stack::new(addresses, mtu, seed), quic: Quic::new(mtu, seed) }
    }

    pub(crate) fn add_address(&mut self, address: IpAddr) {
        self.tcp.add_address(address);
    }

    pub(crate) fn set_mtu(&mut self, mtu: usize) {
        self.tcp.set_mtu(mtu);
        self.quic.set_mtu(mtu);
    }

    /// Waits for the transfer `flow` from `remote` to `local`.
    pub(crate) fn listen(
        &mut self,
        flow: u64,
        local: SocketAddr,
        remote: SocketAddr,
        transport: Transport,
    ) {
        match transport {
            Transport::Tcp(window, _) => self.tcp.listen(flow, local, window),
            Transport::Quic(_) => self.quic.listen(flow, local, remote),
        }
    }

    /// Starts the transfer `flow` of `total` bytes (`None` for no end).
    pub(crate) fn connect(
        &mut self,
        now: Nanos,
        flow: u64,
        (local, remote): (SocketAddr, SocketAddr),
        total: Option<u64>,
        transport: Transport,
    ) {
        match transport {
            Transport::Tcp(window, control) => {
                self.tcp.connect(flow, local, remote, total, (window, control));
            }
            Transport::Quic(control) => {
                self.quic.connect(now, flow, (local, remote), total, control);
            }
        }
    }

    pub(crate) fn stop(&mut self, flow: u64) {
        self.tcp.stop(flow);
        self.quic.stop(flow);
    }

    pub(crate) fn abandon(&mut self, flow: u64) {
        self.tcp.abandon(flow);
        self.quic.abandon(flow);
    }

    pub(crate) fn receive(&mut self, packet: &[u8]) {
        if !self.quic.receive(packet) {
            self.tcp.receive(packet);
        }
    }

    /// Processes packets and timers, and returns the packets to send.
    ///
    /// # Errors
    /// The flow and offset of the first byte that differs from what the sender wrote.
    pub(crate) fn poll(&mut self, now: Nanos) -> Result<Vec<Vec<u8>>, (u64, u64)> {
        let mut out = self.tcp.poll(now)?;
        self.quic.poll(now, &mut out)?;
        Ok(out)
    }

    pub(crate) fn poll_at(&mut self, now: Nanos) -> Nanos {
        self.tcp.poll_at(now).min(self.quic.poll_at(now))
    }

    pub(crate) fn received(&self, flow: u64) -> Option<Received> {
        self.tcp.received(flow).or_else(|| self.quic.received(flow))
    }

    /// The state of the QUIC sender of `flow`, if this host has one.
    pub(crate) fn quic(&self, flow: u64) -> Option<QuicState> {
        self.quic.state(flow)
    }

    /// Datagrams that the QUIC receiver of `flow` has taken.
    pub(crate) fn quic_arrived(&self, flow: u64) -> u64 {
        self.quic.arrived(flow)
    }

    /// The state of the TCP sender of `flow`, if this host has one.
    pub(crate) fn tcp(&self, flow: u64) -> Option<TcpState> {
        self.tcp.state(flow)
    }

    pub(crate) fn describe(&self, flow: u64) -> String {
        self.tcp.describe(flow) + &self.quic.describe(flow)
    }

    pub(crate) fn is_broken(&self, flow: u64) -> bool {
        self.tcp.is_broken(flow) || self.quic.is_broken(flow)
    }
}
