//! The TCP of a host, which does what Linux does where that decides the speed of a transfer.
//!
//! The bytes of a transfer follow a known pattern, so the receiver can check them.
//!
//! `sender` and `receiver` are the ends of a transfer; `packet` encodes their segments with
//! `smoltcp`. The sender's congestion control (`control`) is `window` with `hystart`, or `bbr`.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use smoltcp::wire::{TcpControl as Flag, TcpRepr, TcpSeqNumber};

use crate::clock::{NEVER, Nanos};
use crate::packet::{Tuple, tuple};
use crate::spec::TcpControl;

mod bbr;
mod control;
mod hystart;
mod packet;
mod receiver;
mod sender;
mod timestamps;
mod window;

pub use control::TcpState;
pub use receiver::Received;
use receiver::Receiver;
use sender::Sender;

/// A host's TCP.
pub struct Stack {
    senders: Vec<Sender>,
    receivers: Vec<Receiver>,
    /// Packets for others than senders.
    incoming: VecDeque<(Tuple, Vec<u8>)>,
    addresses: Vec<IpAddr>,
    mtu: usize,
    seed: u64,
}

impl Stack {
    /// A stack with `addresses`. `seed` decides the initial sequence numbers.
    pub fn new(addresses: &[IpAddr], mtu: usize, seed: u64) -> Self {
        Self {
            senders: Vec::new(),
            receivers: Vec::new(),
            incoming: VecDeque::new(),
            addresses: addresses.to_vec(),
            mtu,
            seed,
        }
    }

    /// Adds an address of the host.
    pub fn add_address(&mut self, address: IpAddr) {
        if !self.addresses.contains(&address) {
            self.addresses.push(address);
        }
    }

    /// Changes the MTU, also for existing connections.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
        self.senders.iter_mut().for_each(|sender| sender.set_mtu(mtu));
        self.receivers.iter_mut().for_each(|receiver| receiver.set_mtu(mtu));
    }

    /// The initial sequence number of an end of `flow`.
    fn initial(&self, flow: u64) -> u32 {
        ((self.seed ^ flow).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    /// Listens at `local` for the transfer `flow`, with a receive buffer of `window` bytes.
    pub fn listen(&mut self, flow: u64, local: SocketAddr, window: usize) {
        let initial = self.initial(flow);
        self.receivers.push(Receiver::new(flow, local, window, self.mtu, initial));
    }

    /// Starts the transfer `flow` of `total` bytes (`None` for no end), with the congestion control
    /// `control` and at most `window` bytes in flight.
    pub fn connect(
        &mut self,
        flow: u64,
        local: SocketAddr,
        remote: SocketAddr,
        total: Option<u64>,
        (window, control): (usize, TcpControl),
    ) {
        let ends = (local, remote);
        let buffer = (window, self.mtu);
        let start = (self.initial(flow), control);
        self.senders.push(Sender::new(flow, ends, total, buffer, start));
    }

    fn receiver(&self, flow: u64) -> Option<&Receiver> {
        self.receivers.iter().find(|receiver| receiver.flow == flow)
    }

    fn sender(&self, flow: u64) -> Option<&Sender> {
        self.senders.iter().find(|sender| sender.flow == flow)
    }

    /// Ends the transfer `flow` after the bytes sent so far.
    pub fn stop(&mut self, flow: u64) {
        let of_flow = |sender: &&mut Sender| sender.flow == flow;
        self.senders.iter_mut().filter(of_flow).for_each(Sender::stop);
    }

    /// Forgets the sender of `flow`.
    pub fn abandon(&mut self, flow: u64) {
        self.senders.retain(|sender| sender.flow != flow);
    }

    /// Takes a packet, which the next [`poll`](Self::poll) processes.
    pub fn receive(&mut self, packet: &[u8]) {
        let Some(tuple) = tuple(packet) else { return };
        let ends = (tuple.destination, tuple.source);
        match self.senders.iter_mut().find(|sender| (sender.local, sender.remote) == ends) {
            Some(sender) => sender.receive(packet),
            None => self.incoming.push_back((tuple, packet.to_vec())),
        }
    }

    /// Processes packets and timers, and returns the packets to send.
    ///
    /// # Errors
    /// The flow and offset of the first byte that differs from what the sender wrote.
    pub fn poll(&mut self, now: Nanos) -> Result<Vec<Vec<u8>>, (u64, u64)> {
        let mut out = Vec::new();
        self.senders.iter_mut().for_each(|sender| sender.poll(now, &mut out));
        while let Some((tuple, packet)) = self.incoming.pop_front() {
            if let Some(receiver) = self.receivers.iter_mut().find(|end| end.takes(&tuple)) {
                receiver.on_packet(now, tuple.source, &packet)?;
            } else if self.addresses.contains(&tuple.destination.ip()) {
                out.extend(refusal(&packet, &tuple));
            }
        }
        // As with receive offload, what arrives at once is acknowledged once.
        self.receivers.iter_mut().for_each(|receiver| receiver.poll(now, &mut out));
        Ok(out)
    }

    /// Time at which to call [`poll`](Self::poll) next.
    pub fn poll_at(&mut self, now: Nanos) -> Nanos {
        if !self.incoming.is_empty() {
            return now;
        }
        let senders = self.senders.iter().map(Sender::poll_at).min().unwrap_or(NEVER);
        let receivers = self.receivers.iter().map(Receiver::poll_at).min().unwrap_or(NEVER);
        senders.min(receivers).max(now)
    }

    /// The state of the receiver of `flow`; `None` if this end does not receive it.
    pub fn received(&self, flow: u64) -> Option<Received> {
        self.receiver(flow).map(Receiver::received)
    }

    /// Number of bytes that the sender of `flow` at this end wrote, once it has closed.
    pub fn written(&self, flow: u64) -> Option<u64> {
        self.sender(flow)?.written()
    }

    /// The state of the sender of `flow`; `None` if this end does not send it.
    pub fn state(&self, flow: u64) -> Option<TcpState> {
        self.sender(flow).map(Sender::state)
    }

    /// The state of this end of `flow`, for people.
    pub fn describe(&self, flow: u64) -> String {
        let sender = self.sender(flow).map(Sender::describe);
        sender.or_else(|| Some(self.receiver(flow)?.describe())).unwrap_or_default()
    }

    /// Whether the sender of `flow` at this end lost its connection before it had closed it.
    pub fn is_broken(&self, flow: u64) -> bool {
        self.sender(flow).is_some_and(Sender::is_broken)
    }
}

/// The reset in answer to a segment of no connection (RFC 9293, section 3.10.7.1).
fn refusal(packet: &[u8], tuple: &Tuple) -> Option<Vec<u8>> {
    let Tuple { source, destination, .. } = *tuple;
    let repr = packet::parse(packet, source, destination)?;
    if repr.control == Flag::Rst {
        return None;
    }
    let acknowledged = repr.seq_number + repr.segment_len();
    let reset = TcpRepr {
        seq_number: repr.ack_number.unwrap_or(TcpSeqNumber(0)),
        ack_number: repr.ack_number.is_none().then_some(acknowledged),
        window_len: 0,
        ..packet::empty(destination, source, Flag::Rst)
    };
    Some(packet::build(&reset, destination, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Stack, Stack, SocketAddr, SocketAddr) {
        let (a, b) = ("198.19.0.1:5001".parse().unwrap(), "198.19.0.2:5001".parse().unwrap());
        let stack = |address: SocketAddr| Stack::new(&[address.ip()], 1400, 1);
        (stack(a), stack(b), a, b)
    }

    /// Runs both stacks over a perfect wire until nothing is due before `end`.
    fn exchange(a: &mut Stack, b: &mut Stack, end: Nanos) -> Result<(), (u64, u64)> {
        let mut now = 0;
        while now <= end {
            let (from_a, from_b) = (a.poll(now)?, b.poll(now)?);
            from_a.iter().for_each(|packet| b.receive(packet));
            from_b.iter().for_each(|packet| a.receive(packet));
            now = a.poll_at(now).min(b.poll_at(now)).max(now);
        }
        Ok(())
    }

    #[test]
    fn a_transfer_arrives_whole_and_ends() {
        let (mut a, mut b, from, to) = pair();
        b.listen(3, to, 65_536);
        a.connect(3, from, to, Some(300_000), (65_536, TcpControl::CUBIC));
        exchange(&mut a, &mut b, 1_000_000_000).expect("the content is right");
        assert_eq!(b.received(3), Some(Received { bytes: 300_000, finished: true }));
        assert!(!a.is_broken(3));
    }

    #[test]
    fn content_of_another_flow_is_noticed() {
        let (mut a, mut b, from, to) = pair();
        b.listen(4, to, 65_536);
        a.connect(3, from, to, Some(3_000), (65_536, TcpControl::CUBIC));
        let (flow, offset) = exchange(&mut a, &mut b, 1_000_000_000).expect_err("not its content");
        assert_eq!((flow, offset), (4, 0));
    }
}
