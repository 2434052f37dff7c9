//! The TCP of a host: `smoltcp` receives, and `sender` sends with the features of kernels that
//! `smoltcp` lacks.
//!
//! The bytes of a transfer follow a known pattern, so the receiver can check them.
//!
//! `sender` is the connection of a transfer. Its congestion control (`control`) is `window` with
//! `hystart`, or `bbr`.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpCidr};

use crate::clock::{NEVER, Nanos};
use crate::packet::{find_wrong, tuple};
use crate::spec::TcpControl;

mod bbr;
mod control;
mod hystart;
mod sender;
mod window;

pub use control::TcpState;
use sender::Sender;

/// Time without an answer after which a connection is aborted; longer than any outage of a world.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Send buffer of a socket that only receives, in bytes.
const SMALL: usize = 1_024;

/// The receiving end of a transfer.
#[derive(Debug)]
struct Receiver {
    handle: SocketHandle,
    flow: u64,
    received: u64,
    finished: bool,
}

/// Progress of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes read; all of them were correct.
    pub bytes: u64,
    /// Whether the sender has closed and all its bytes were read.
    pub finished: bool,
}

/// A host's TCP.
pub struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    device: Queues,
    senders: Vec<Sender>,
    receivers: Vec<Receiver>,
    addresses: Vec<IpAddr>,
    seed: u64,
}

fn time(now: Nanos) -> Instant {
    Instant::from_micros(i64::try_from(now / 1_000).unwrap_or(i64::MAX))
}

impl Stack {
    /// A stack with `addresses`. `seed` decides the initial sequence numbers.
    pub fn new(addresses: &[IpAddr], mtu: usize, seed: u64) -> Self {
        let mut device = Queues { incoming: VecDeque::new(), outgoing: Vec::new(), mtu };
        Self {
            interface: Self::interface(addresses, &mut device, seed),
            sockets: SocketSet::new(Vec::new()),
            device,
            senders: Vec::new(),
            receivers: Vec::new(),
            addresses: addresses.to_vec(),
            seed,
        }
    }

    fn interface(addresses: &[IpAddr], device: &mut Queues, seed: u64) -> Interface {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, device, Instant::ZERO);
        interface.update_ip_addrs(|list| {
            for address in addresses {
                // All addresses of a world are on one link. The list holds at most eight.
                let prefix = if address.is_ipv4() { 15 } else { 32 };
                let _ = list.push(IpCidr::new((*address).into(), prefix));
            }
        });
        interface
    }

    /// Adds an address of the host.
    pub fn add_address(&mut self, address: IpAddr) {
        if !self.addresses.contains(&address) {
            self.addresses.push(address);
            self.interface = Self::interface(&self.addresses, &mut self.device, self.seed);
        }
    }

    /// Lowers the MTU, also for existing connections. A larger MTU than the current one has no
    /// effect.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.senders.iter_mut().for_each(|sender| sender.set_mtu(mtu));
        if mtu < self.device.mtu {
            // An interface of `smoltcp` reads the MTU only when it is created.
            self.device.mtu = mtu;
            self.seed = self.seed.wrapping_add(1);
            self.interface = Self::interface(&self.addresses, &mut self.device, self.seed);
        }
    }

    /// Listens at `local` for the transfer `flow`, with a receive buffer of `window` bytes.
    pub fn listen(&mut self, flow: u64, local: SocketAddr, window: usize) {
        let buffer = |len| SocketBuffer::new(vec![0; len]);
        let mut socket = Socket::new(buffer(window), buffer(SMALL));
        socket.set_timeout(Some(TIMEOUT));
        socket
            .listen((smoltcp::wire::IpAddress::from(local.ip()), local.port()))
            .expect("a new socket with a port listens");
        let handle = self.sockets.add(socket);
        self.receivers.push(Receiver { handle, flow, received: 0, finished: false });
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
        let initial = (self.seed ^ flow).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let buffer = (window, self.device.mtu);
        let start = ((initial >> 32) as u32, control);
        self.senders.push(Sender::new(flow, ends, total, buffer, start));
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
        let ends = tuple(packet).map(|tuple| (tuple.destination, tuple.source));
        let of = |sender: &&mut Sender| Some((sender.local, sender.remote)) == ends;
        match self.senders.iter_mut().find(of) {
            Some(sender) => sender.receive(packet),
            None => self.device.incoming.push_back(packet.to_vec()),
        }
    }

    /// Processes packets and timers, and returns the packets to send.
    ///
    /// # Errors
    /// The flow and offset of the first byte that differs from what the sender wrote.
    pub fn poll(&mut self, now: Nanos) -> Result<Vec<Vec<u8>>, (u64, u64)> {
        for sender in &mut self.senders {
            sender.poll(now, &mut self.device.outgoing);
        }
        let now = time(now);
        loop {
            self.interface.poll(now, &mut self.device, &mut self.sockets);
            if !self.serve()? {
                break;
            }
        }
        Ok(core::mem::take(&mut self.device.outgoing))
    }

    /// Reads all sockets. Returns whether there was progress.
    fn serve(&mut self) -> Result<bool, (u64, u64)> {
        let mut moved = false;
        for Receiver { handle, flow, received, finished } in &mut self.receivers {
            let socket = self.sockets.get_mut::<Socket<'_>>(*handle);
            moved |= read(socket, *flow, received)?;
            if !*finished && socket.state() == State::CloseWait && !socket.can_recv() {
                socket.close();
                *finished = true;
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Time at which to call [`poll`](Self::poll) next.
    pub fn poll_at(&mut self, now: Nanos) -> Nanos {
        if !self.device.incoming.is_empty() {
            return now;
        }
        let senders = self.senders.iter().map(Sender::poll_at).min().unwrap_or(NEVER);
        let receivers = match self.interface.poll_at(time(now), &self.sockets) {
            Some(at) => u64::try_from(at.total_micros()).unwrap_or(0).saturating_mul(1_000),
            None => NEVER,
        };
        senders.min(receivers).max(now)
    }

    /// The state of the receiver of `flow`; `None` if this end does not receive it.
    pub fn received(&self, flow: u64) -> Option<Received> {
        let receiver = self.receivers.iter().find(|receiver| receiver.flow == flow)?;
        Some(Received { bytes: receiver.received, finished: receiver.finished })
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
        if let Some(sender) = self.sender(flow) {
            return sender.describe();
        }
        let receiver = self.receivers.iter().find(|receiver| receiver.flow == flow);
        receiver.map_or_else(String::new, |receiver| {
            let state = self.sockets.get::<Socket<'_>>(receiver.handle).state();
            format!("{receiver:?}, {state}")
        })
    }

    /// Whether the sender of `flow` at this end lost its connection before it had closed it.
    pub fn is_broken(&self, flow: u64) -> bool {
        self.sender(flow).is_some_and(Sender::is_broken)
    }
}

fn read(socket: &mut Socket<'_>, flow: u64, received: &mut u64) -> Result<bool, (u64, u64)> {
    let mut moved = false;
    while socket.can_recv() {
        let start = *received;
        let checked = socket.recv(|buffer| {
            let wrong = find_wrong(flow, start, buffer);
            (buffer.len(), wrong.map_or(Ok(buffer.len()), |at| Err((flow, at))))
        });
        let Ok(read) = checked else { break };
        *received += read? as u64;
        moved = true;
    }
    Ok(moved)
}

/// A device of two queues.
struct Queues {
    incoming: VecDeque<Vec<u8>>,
    outgoing: Vec<Vec<u8>>,
    mtu: usize,
}

impl Device for Queues {
    type RxToken<'a> = Incoming;
    type TxToken<'a> = Outgoing<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Incoming, Outgoing<'_>)> {
        let packet = self.incoming.pop_front()?;
        Some((Incoming(packet), Outgoing(&mut self.outgoing)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Outgoing<'_>> {
        Some(Outgoing(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities
    }
}

struct Incoming(Vec<u8>);

impl RxToken for Incoming {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

struct Outgoing<'a>(&'a mut Vec<Vec<u8>>);

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        self.0.push(packet);
        result
    }
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
