//! Real TCP for a host: `smoltcp` with cubic, whose packets go through the node.
//!
//! Every byte of a transfer is known ([`pattern`]), so the receiver compares what it reads.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpCidr};

use crate::clock::{NEVER, Nanos};
use crate::packet::pattern;

/// Retransmission gives up after so long without an answer; longer than any outage of a world.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Bytes that are written or compared at a time.
const CHUNK: usize = 16 * 1024;

/// One end of a transfer.
#[derive(Debug)]
struct Transfer {
    handle: SocketHandle,
    flow: u64,
    role: Role,
}

#[derive(Debug)]
enum Role {
    /// Sends `total` bytes (`None`: without end), of which `sent` are in the socket.
    Sender { total: Option<u64>, sent: u64, closed: bool },
    /// Reads and compares.
    Receiver { received: u64, finished: bool },
}

/// What a receiver has seen of its transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes read and found right.
    pub bytes: u64,
    /// The sender closed and everything before was read.
    pub finished: bool,
}

/// A host's TCP.
pub struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    device: Queues,
    transfers: Vec<Transfer>,
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
            transfers: Vec::new(),
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
                // All inner addresses of a world are on one link. The table has room for two.
                let prefix = if address.is_ipv4() { 16 } else { 48 };
                let _ = list.push(IpCidr::new((*address).into(), prefix));
            }
        });
        interface
    }

    /// From now on segments fit `mtu`, also those of connections that exist. One that is larger than
    /// the MTU so far changes nothing.
    pub fn set_mtu(&mut self, mtu: usize) {
        if mtu < self.device.mtu {
            // An interface of `smoltcp` reads its MTU once.
            self.device.mtu = mtu;
            self.seed = self.seed.wrapping_add(1);
            self.interface = Self::interface(&self.addresses, &mut self.device, self.seed);
        }
    }

    fn socket(window: usize) -> Socket<'static> {
        let buffer = || SocketBuffer::new(vec![0; window]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_congestion_control(CongestionControl::Cubic);
        socket.set_timeout(Some(TIMEOUT));
        socket
    }

    /// Waits for the transfer `flow` at `local`, with a receive buffer of `window` bytes.
    pub fn listen(&mut self, flow: u64, local: SocketAddr, window: usize) {
        let mut socket = Self::socket(window);
        socket
            .listen((smoltcp::wire::IpAddress::from(local.ip()), local.port()))
            .expect("a new socket with a port listens");
        let handle = self.sockets.add(socket);
        let role = Role::Receiver { received: 0, finished: false };
        self.transfers.push(Transfer { handle, flow, role });
    }

    /// Starts the transfer `flow` of `total` bytes (`None`: without end).
    pub fn connect(
        &mut self,
        flow: u64,
        local: SocketAddr,
        remote: SocketAddr,
        total: Option<u64>,
        window: usize,
    ) {
        let mut socket = Self::socket(window);
        let local = (smoltcp::wire::IpAddress::from(local.ip()), local.port());
        let remote = (smoltcp::wire::IpAddress::from(remote.ip()), remote.port());
        socket
            .connect(self.interface.context(), remote, local)
            .expect("a new socket with two whole addresses connects");
        let handle = self.sockets.add(socket);
        let role = Role::Sender { total, sent: 0, closed: false };
        self.transfers.push(Transfer { handle, flow, role });
    }

    /// Ends the transfer `flow` after what is already in the socket.
    pub fn stop(&mut self, flow: u64) {
        for transfer in &mut self.transfers {
            if let Role::Sender { total, sent, .. } = &mut transfer.role
                && transfer.flow == flow
            {
                *total = Some(*sent);
            }
        }
    }

    /// A packet came in; it is looked at by the next [`poll`](Self::poll).
    pub fn receive(&mut self, packet: &[u8]) {
        self.device.incoming.push_back(packet.to_vec());
    }

    /// Does what is due and returns the packets that follow.
    ///
    /// # Errors
    /// The flow and offset of the first byte that was not what the sender wrote.
    pub fn poll(&mut self, now: Nanos) -> Result<Vec<Vec<u8>>, (u64, u64)> {
        let now = time(now);
        loop {
            self.interface.poll(now, &mut self.device, &mut self.sockets);
            if !self.serve()? {
                break;
            }
        }
        Ok(core::mem::take(&mut self.device.outgoing))
    }

    /// Reads and writes all sockets. Returns whether anything moved.
    fn serve(&mut self) -> Result<bool, (u64, u64)> {
        let mut moved = false;
        for Transfer { handle, flow, role } in &mut self.transfers {
            let socket = self.sockets.get_mut::<Socket<'_>>(*handle);
            match role {
                Role::Sender { total, sent, closed } => {
                    moved |= write(socket, *flow, *total, sent);
                    if !*closed && total.is_some_and(|total| *sent >= total) && socket.may_send() {
                        socket.close();
                        *closed = true;
                        moved = true;
                    }
                }
                Role::Receiver { received, finished } => {
                    moved |= read(socket, *flow, received)?;
                    if !*finished && socket.state() == State::CloseWait && !socket.can_recv() {
                        socket.close();
                        *finished = true;
                        moved = true;
                    }
                }
            }
        }
        Ok(moved)
    }

    /// When [`poll`](Self::poll) is to be called next.
    pub fn poll_at(&mut self, now: Nanos) -> Nanos {
        if !self.device.incoming.is_empty() {
            return now;
        }
        match self.interface.poll_at(time(now), &self.sockets) {
            Some(at) => {
                u64::try_from(at.total_micros()).unwrap_or(0).saturating_mul(1_000).max(now)
            }
            None => NEVER,
        }
    }

    /// What the receiver of `flow` has; `None` when this end does not receive it.
    pub fn received(&self, flow: u64) -> Option<Received> {
        self.transfers.iter().find_map(|transfer| match transfer.role {
            Role::Receiver { received, finished } if transfer.flow == flow => {
                Some(Received { bytes: received, finished })
            }
            _ => None,
        })
    }

    /// How many bytes the sender of `flow` at this end wrote, once it has written all of them and
    /// closed.
    pub fn written(&self, flow: u64) -> Option<u64> {
        self.transfers.iter().find_map(|transfer| match transfer.role {
            Role::Sender { sent, closed: true, .. } if transfer.flow == flow => Some(sent),
            _ => None,
        })
    }

    /// The socket of `flow` at this end, in words.
    pub fn describe(&self, flow: u64) -> String {
        let transfer = self.transfers.iter().find(|transfer| transfer.flow == flow);
        transfer.map_or_else(String::new, |transfer| {
            let socket = self.sockets.get::<Socket<'_>>(transfer.handle);
            let (state, queue) = (socket.state(), socket.send_queue());
            format!("{:?}, {state}, {queue} bytes to send", transfer.role)
        })
    }

    /// Whether the sender of `flow` at this end lost its connection before it had closed it.
    pub fn is_broken(&self, flow: u64) -> bool {
        self.transfers.iter().any(|transfer| {
            transfer.flow == flow
                && matches!(transfer.role, Role::Sender { closed: false, .. })
                && self.sockets.get::<Socket<'_>>(transfer.handle).state() == State::Closed
        })
    }
}

fn write(socket: &mut Socket<'_>, flow: u64, total: Option<u64>, sent: &mut u64) -> bool {
    let mut moved = false;
    while socket.can_send() {
        let left = total.map_or(u64::MAX, |total| total.saturating_sub(*sent));
        if left == 0 {
            break;
        }
        let start = *sent;
        let written = socket.send(|buffer| {
            let len = buffer.len().min(CHUNK).min(usize::try_from(left).unwrap_or(CHUNK));
            for (byte, offset) in buffer[..len].iter_mut().zip(start..) {
                *byte = pattern(flow, offset);
            }
            (len, len)
        });
        let Ok(written @ 1..) = written else { break };
        *sent += written as u64;
        moved = true;
    }
    moved
}

fn read(socket: &mut Socket<'_>, flow: u64, received: &mut u64) -> Result<bool, (u64, u64)> {
    let mut moved = false;
    while socket.can_recv() {
        let start = *received;
        let checked = socket.recv(|buffer| {
            let wrong = buffer.iter().zip(start..).find(|(b, at)| **b != pattern(flow, *at));
            (buffer.len(), wrong.map_or(Ok(buffer.len()), |(_, at)| Err((flow, at))))
        });
        let Ok(read) = checked else { break };
        *received += read? as u64;
        moved = true;
    }
    Ok(moved)
}

/// A device that is two queues.
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
        a.connect(3, from, to, Some(300_000), 65_536);
        exchange(&mut a, &mut b, 1_000_000_000).expect("the content is right");
        assert_eq!(b.received(3), Some(Received { bytes: 300_000, finished: true }));
        assert!(!a.is_broken(3));
    }

    #[test]
    fn content_of_another_flow_is_noticed() {
        let (mut a, mut b, from, to) = pair();
        b.listen(4, to, 65_536);
        a.connect(3, from, to, Some(3_000), 65_536);
        let (flow, offset) = exchange(&mut a, &mut b, 1_000_000_000).expect_err("not its content");
        assert_eq!((flow, offset), (4, 0));
    }
}
