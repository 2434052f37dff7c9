//! The sockets of all local addresses, for both encapsulations.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use mpip_api as api;
use mpip_core::{
    DatagramSink, Ecn, Instant, KeyChange, LocalAddress, LocalId, Opened, PathAddress, Slot,
};
use mpip_net::udp::{ReceiveBuffers, SendError, UdpReceiver};
use mpip_net::{Interest, TcpSender, TcpSocket, UdpSender, UdpSocket, Waker, clock};

/// A socket.
#[derive(Clone, Debug)]
pub(crate) enum Socket {
    Udp(Arc<UdpSocket>),
    Tcp(Arc<TcpSocket>),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

/// Sends the datagrams of the engine, and receives those for it.
#[derive(Debug)]
pub(crate) struct Sockets {
    // Dropped first: it has no work done any more.
    receiver: UdpReceiver,
    udp: UdpSender,
    tcp: TcpSender,
    /// Those that only receive what was sent before the peers knew.
    retired: Vec<Arc<UdpSocket>>,
}

impl Sockets {
    /// No sockets yet. Of `threads`, all but the caller's seal and send what leaves by UDP, and
    /// receive and open what comes. `waker` wakes the caller when [there is
    /// room](Self::poll_room), an error, or something to [take](Self::take). `table` is our own
    /// table of nftables.
    pub(crate) fn start(threads: usize, waker: &Arc<Waker>, table: &str) -> io::Result<Self> {
        let udp = UdpSender::with_threads(threads, waker)?;
        let receiver = UdpReceiver::beside(&udp, waker, mpip_core::receiver_index);
        Ok(Self { receiver, udp, tcp: TcpSender::new(table), retired: Vec::new() })
    }

    /// Whether threads open datagrams, which need [keys](Self::set_key) for that.
    pub(crate) fn opens(&self) -> bool {
        self.receiver.opens()
    }

    /// A key with which threads open datagrams has changed.
    pub(crate) fn set_key(&self, change: KeyChange) {
        self.receiver.set_key(change.index, change.key);
    }

    /// Adds the socket of `address`.
    pub(crate) fn insert(&mut self, address: &LocalAddress, socket: Socket) -> io::Result<()> {
        match socket {
            Socket::Udp(socket) => {
                self.receiver.insert(Arc::clone(&socket));
                self.udp.insert(socket);
            }
            Socket::Tcp(socket) => {
                self.tcp.insert(socket, address.mtu, clock::random_seed()?);
            }
        }
        Ok(())
    }

    /// Nothing is sent from `local` any more, but what comes by UDP is still received.
    pub(crate) fn retire(&mut self, local: LocalId) {
        self.retired.extend(self.udp.socket(local).cloned());
        self.udp.remove(local);
        self.tcp.remove(local);
    }

    /// Sends again from `local`, which is [retired](Self::retire).
    pub(crate) fn revive(&mut self, local: LocalId) {
        if let Some(index) = self.retired.iter().position(|socket| socket.id() == local) {
            self.udp.insert(self.retired.swap_remove(index));
        }
    }

    /// Closes the socket of `local`.
    pub(crate) fn remove(&mut self, local: LocalId) {
        self.receiver.remove(local);
        self.udp.remove(local);
        self.tcp.remove(local);
        self.retired.retain(|socket| socket.id() != local);
    }

    /// The local addresses, and what their sockets wait for.
    pub(crate) fn interests(&self) -> impl Iterator<Item = (LocalId, Interest)> {
        let udp = self.udp.sockets().map(|socket| {
            let id = socket.id();
            // What threads receive is not for the loop.
            (id, Interest::of(!self.receiver.is_ahead(id), self.udp.is_blocked(id)))
        });
        let tcp = self.tcp.sockets().map(|socket| {
            let id = socket.id();
            (id, Interest::of(true, self.tcp.is_blocked(id)))
        });
        let retired = self.retired.iter().map(|socket| {
            let id = socket.id();
            (id, Interest::of(!self.receiver.is_ahead(id), false))
        });
        udp.chain(tcp).chain(retired)
    }

    /// The socket of `local`.
    pub(crate) fn socket(&self, local: LocalId) -> Option<Socket> {
        let udp = || self.receiving(local).map(|socket| Socket::Udp(Arc::clone(socket)));
        let tcp = || self.tcp.socket(local).map(|socket| Socket::Tcp(Arc::clone(socket)));
        udp().or_else(tcp)
    }

    /// The socket that receives at `local` by UDP.
    fn receiving(&self, local: LocalId) -> Option<&Arc<UdpSocket>> {
        let retired = || self.retired.iter().find(|socket| socket.id() == local);
        self.udp.socket(local).or_else(retired)
    }

    /// Receives a batch at `local`, unless threads do. `take` gets each datagram, and returns
    /// whether it authenticated its sender.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        local: LocalId,
        buffers: &mut ReceiveBuffers,
        mut take: impl FnMut(SocketAddr, Ecn, &mut [u8]) -> bool,
    ) {
        let result = match self.receiving(local) {
            Some(socket) => self.receiver.receive(socket, buffers, |remote, ecn, datagram| {
                take(remote, ecn, datagram);
            }),
            None => self.tcp.recv_batch(now, local, buffers, take),
        };
        if let Err(error) = result {
            log::debug!("receiving at local address {}: {error}", local.0);
        }
    }

    /// Takes the next batches that threads have received, see [`UdpReceiver::take`].
    pub(crate) fn take(&self, take: impl FnMut(LocalId, SocketAddr, Ecn, (&mut [u8], Opened))) {
        self.receiver.take(take);
    }

    /// Whether there is work for the threads that none has begun with.
    pub(crate) fn has_work(&self) -> bool {
        self.receiver.has_work()
    }

    /// Does a piece of that work. Returns whether there was any.
    pub(crate) fn help(&self) -> bool {
        self.receiver.help()
    }

    /// Messages that threads dropped because they were too long.
    pub(crate) fn truncated(&self) -> u64 {
        self.receiver.truncated()
    }

    /// A datagram from `from` that was taken earlier proved to be authentic.
    pub(crate) fn confirm(&mut self, now: Instant, from: PathAddress) {
        self.tcp.confirm(now, from);
    }

    /// Reads ICMP errors about datagrams from `local`. `take` gets the destinations where nobody
    /// is.
    pub(crate) fn errors(&self, local: LocalId, take: impl FnMut(SocketAddr)) {
        if let Some(socket) = self.receiving(local) {
            socket.recv_errors(take);
        }
    }

    /// The socket of `local` is writable. Returns whether it took the whole backlog.
    pub(crate) fn writable(&mut self, now: Instant, local: LocalId) -> bool {
        self.udp.writable(local) || self.tcp.writable(now, local)
    }

    /// The next local address that takes datagrams again, after too many waited for the crew.
    pub(crate) fn poll_room(&mut self) -> Option<LocalId> {
        self.udp.poll_room()
    }

    /// Time at which to call [`flush`](Self::flush) at the latest.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.tcp.next_timeout()
    }

    /// Datagrams that are sent before the next [`flush`](Self::flush) are sent at `now`.
    pub(crate) fn set_time(&mut self, now: Instant) {
        self.tcp.set_time(now);
    }

    /// Sends all datagrams, as far as the kernel takes them.
    pub(crate) fn flush(&mut self, now: Instant) {
        self.udp.flush();
        self.tcp.handle_timeout(now);
        self.tcp.flush(now);
    }

    /// Closes all connections.
    pub(crate) fn close(&mut self, now: Instant) {
        self.flush(now);
        self.tcp.close(now);
    }

    /// The next datagram that could not be sent.
    pub(crate) fn poll_error(&mut self) -> Option<SendError> {
        self.udp.poll_error().or_else(|| self.tcp.poll_error())
    }

    /// Datagrams dropped, by cause.
    pub(crate) fn drops(&self) -> Vec<api::Counter> {
        let (udp, tcp) = (self.udp.counters(), self.tcp.counters());
        let (connections, _) = self.tcp.connections();
        [
            ("send_unreachable", udp.dropped_unreachable + tcp.dropped_unreachable),
            ("send_too_long", udp.dropped_too_long + tcp.dropped_too_long),
            ("send_full", udp.dropped_full + tcp.dropped_full),
            ("send_not_permitted", udp.dropped_not_permitted + tcp.dropped_not_permitted),
            ("send_other", udp.dropped_other + tcp.dropped_other),
            ("send_address_gone", udp.dropped_removed + tcp.dropped_removed),
            ("tcp_reset_ignored", connections.resets),
            ("tcp_unknown", connections.unknown),
            ("tcp_malformed", connections.malformed),
            ("tcp_evicted", connections.evicted),
            ("tcp_unconfirmed", connections.unconfirmed),
            ("tcp_not_open", connections.not_open),
            ("tcp_not_answered", connections.not_answered),
            ("tcp_limited", connections.limited),
        ]
        .map(|(name, count)| api::Counter { name: name.to_owned(), count })
        .into()
    }
}

impl DatagramSink for Sockets {
    fn reserve(&mut self, to: PathAddress, ecn: Ecn, len: usize) -> Option<Slot<'_>> {
        if self.tcp.socket(to.local).is_some() {
            self.tcp.reserve(to, ecn, len)
        } else {
            self.udp.reserve(to, ecn, len)
        }
    }
}
