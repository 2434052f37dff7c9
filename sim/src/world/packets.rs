//! Moves packets between applications, node and network.

use core::convert::Infallible;
use core::net::{IpAddr, SocketAddr};

use mpip_core::{Checksum, Ecn, Encapsulation, Event, Offload, PathAddress};

use super::{Choice, RECORDED, World};
use crate::host::Way;
use crate::invariant::{Invariant, Standing};
use crate::network::{Arrival, Carries, Datagram, SendError};
use crate::packet::{self, protocol};
use crate::spec::{FIRST_PORT, System, inner_address};

impl World {
    /// The host with an address of inner packets.
    pub(super) fn inner_host(&self, address: IpAddr) -> Option<usize> {
        let inner = |host: &usize| inner_address(*host, address.is_ipv6()) == address;
        let ordinary = || {
            let host = self.known_addresses.get(&address).copied();
            host.filter(|host| self.spec.is_ordinary(*host))
        };
        (0..self.hosts.len()).find(inner).or_else(ordinary)
    }

    /// Gives an inner packet to a host's node. Call [`settle`](Self::settle) afterwards.
    pub(super) fn send_inner(&mut self, index: usize, bytes: &[u8], offload: Offload) {
        let tuple = packet::tuple(bytes);
        let to = tuple.and_then(|tuple| self.inner_host(tuple.destination.ip()));
        if self.spec.is_ordinary(index)
            && let Some(tuple) = tuple
        {
            match self.hosts[index].way(&tuple) {
                Way::Node => {}
                Way::Refused => return,
                Way::Plain => return self.send_plain(index, bytes, offload),
            }
        }
        let host = &mut self.hosts[index];
        let filled = host.pool.fill(|buffer| {
            buffer[..bytes.len()].copy_from_slice(bytes);
            Ok::<_, Infallible>((bytes.len(), offload))
        });
        let Some(Ok(packet)) = filled else {
            host.refused += 1;
            return;
        };
        if self.observe.packets
            && let Some(to) = to
        {
            match offload.segmentation {
                Some(segmentation) => {
                    for segment in packet::cut(bytes, usize::from(segmentation.size)) {
                        self.ledger.sent(self.now, to, &segment);
                    }
                }
                None => self.ledger.sent(self.now, to, bytes),
            }
        }
        let host = &mut self.hosts[index];
        let now = host.spec.clock.at(self.now);
        let result = host.node.handle_tun(now, packet, &mut host.outbox);
        if self.observe.trace {
            let len = bytes.len();
            self.note(|| match tuple {
                Some(t) => format!(
                    "host {index} in   proto {} {} > {} {len} bytes {}",
                    t.protocol,
                    t.source,
                    t.destination,
                    result.map_or_else(|reason| format!("refused: {reason:?}"), |()| String::new())
                ),
                None => format!("host {index} in   {len} bytes, no IP packet"),
            });
        }
    }

    /// Moves everything that a host's node produced to its destination until nothing is left.
    pub(super) fn settle(&mut self, index: usize) {
        loop {
            let mut outbox = core::mem::take(&mut self.hosts[index].outbox);
            outbox.drain(|to, ecn, bytes| self.send_datagram(index, to, ecn, bytes));
            self.hosts[index].outbox = outbox;
            self.settle_hostile(index);
            self.settle_segments(index);
            self.settle_plain(index);
            if self.hosts[index].inbox.is_empty() {
                break;
            }
            let mut inbox = core::mem::take(&mut self.hosts[index].inbox);
            let mut replies = Vec::new();
            let mut for_stack = false;
            inbox.drain(|bytes, checksum| {
                if checksum == Checksum::Partial {
                    packet::write_checksums(bytes);
                }
                match self.deliver(index, bytes, true) {
                    Delivered::Reply(reply) => replies.push(reply),
                    Delivered::Stack => for_stack = true,
                    Delivered::Done => {}
                }
            });
            self.hosts[index].inbox = inbox;
            for reply in replies {
                self.send_inner(index, &reply, Offload::default());
            }
            if for_stack {
                self.poll_stack(index);
            }
        }
        while let Some(event) = self.hosts[index].node.poll_event() {
            self.note(|| format!("host {index} event {event}"));
            if let Event::InnerMtu { mtu, .. } = &event {
                self.hosts[index].set_mtu(usize::from(*mtu));
            }
            self.hosts[index].events.push((self.now, event));
        }
        self.hosts[index].follow_captures();
        self.hosts[index].update_wake();
    }

    /// Runs a host's TCP and moves the packets that it produces.
    pub(super) fn run_stack(&mut self, index: usize) {
        self.poll_stack(index);
        self.settle(index);
    }

    fn poll_stack(&mut self, index: usize) {
        match self.hosts[index].stack.poll(self.now) {
            Ok(packets) => {
                for packet in packets {
                    self.send_inner(index, &packet, Offload::default());
                }
            }
            Err((flow, offset)) => {
                let detail = format!("flow {flow}: byte {offset} is not the one written");
                self.violate(index, (Invariant::Content, detail));
            }
        }
        let now = self.now;
        let host = &mut self.hosts[index];
        // A timer that is due again at once waits for the next microsecond.
        host.stack_wake = host.stack.poll_at(now).max(now / 1_000 * 1_000 + 1_000);
        for number in 0..self.flows.len() {
            if self.flows[number].spec.to == index
                && let Some(received) = self.hosts[index].stack.received(number as u64)
                && received.bytes > self.flows[number].report.bytes
            {
                self.flows[number].report.bytes = received.bytes;
                self.flows[number].mark_delivery(now);
            }
        }
    }

    /// An inner packet has reached its host, from its node or as plain IP.
    pub(super) fn deliver(&mut self, index: usize, bytes: &[u8], by_node: bool) -> Delivered {
        if by_node {
            if let Err(found) = self.check_reach(index, bytes) {
                self.violate(index, found);
            }
            // The engine made it, not the other host, and the stack ignores it.
            if packet::is_too_big(bytes) {
                return Delivered::Done;
            }
            if self.observe.packets
                && !self.is_of_hostile(bytes)
                && let Err(found) = self.ledger.delivered(self.now, index, bytes)
            {
                self.violate(index, found);
            }
        }
        let Some(tuple) = packet::tuple(bytes) else { return Delivered::Done };
        if self.observe.trace {
            let len = bytes.len();
            self.note(|| {
                let (from, to) = (tuple.source, tuple.destination);
                format!("host {index} out  proto {} {from} > {to} {len} bytes", tuple.protocol)
            });
        }
        if let Some(reply) = packet::echo_reply(bytes) {
            return Delivered::Reply(reply);
        }
        let number = match tuple.protocol {
            protocol::ESP => self
                .flows
                .iter()
                .position(|flow| flow.shape.protocol == protocol::ESP && flow.spec.to == index),
            _ => tuple.destination.port().checked_sub(FIRST_PORT).map(usize::from),
        };
        let Some(flow) = number.and_then(|number| self.flows.get_mut(number)) else {
            return Delivered::Done;
        };
        if flow.spec.traffic.is_transfer() {
            self.hosts[index].stack.receive(bytes);
            return Delivered::Stack;
        }
        flow.delivered(self.now, bytes);
        Delivered::Done
    }

    /// A host's node sends a datagram.
    fn send_datagram(&mut self, index: usize, to: PathAddress, ecn: Ecn, bytes: &[u8]) {
        let Some(local) = self.hosts[index].local(to.local).copied() else {
            self.note(|| format!("host {index} send from {:?}, which is gone", to.local));
            return;
        };
        if local.encapsulation == Encapsulation::Tcp {
            return self.send_segment(index, to, ecn, bytes);
        }
        let carries = match self.hosts[index].spec.system {
            System::Plain { .. } => Carries::Packet,
            System::Mpip(_) | System::Hostile(_) => Carries::Datagram,
        };
        self.transmit(index, to, carries, ecn, bytes);
    }

    /// A host sends a packet from one of its local addresses.
    pub(super) fn transmit(
        &mut self,
        index: usize,
        to: PathAddress,
        carries: Carries,
        ecn: Ecn,
        bytes: &[u8],
    ) {
        let Some(local) = self.hosts[index].local(to.local).copied() else { return };
        let mut buffer = self.network.buffer();
        buffer.extend_from_slice(bytes);
        let datagram = Datagram {
            carries,
            source: local.address,
            destination: to.remote,
            ecn,
            bytes: buffer,
            genuine: true,
        };
        let len = datagram.packet_len();
        *self.sent_bytes.entry((index, local.interface)).or_default() += len as u64;
        if self.observe.choices {
            let (local, remote) = (local.address, to.remote);
            self.choices.push(Choice {
                at: self.now,
                host: index,
                local,
                remote,
                len: bytes.len(),
            });
        }
        if self.spec_has_attacker() {
            self.record(local.interface, &datagram);
        }
        let result = self.network.send(self.now, local.interface, datagram);
        let remote = to.remote;
        let known = self.knowledge(index, remote.ip());
        let ruled = matches!(self.hosts[index].spec.system, System::Mpip(_));
        // Without a route nothing leaves. The addresses that a hostile node advertises stand for
        // Internet hosts, to which there is a route.
        let leaves = known != Standing::Known || result != Err(SendError::Unreachable);
        if ruled && leaves && carries != Carries::Packet {
            let payload = bytes.len() as u64;
            let sent = self.amplification.sent(self.now, index, remote, payload, known);
            if let Err(found) = sent {
                self.violate(index, found);
            }
        }
        if self.observe.trace {
            let (from, remote) = (local.address, to.remote);
            self.note(|| {
                let fate = result.map_or_else(|error| format!("{error:?}"), |()| String::new());
                format!("host {index} send {from} > {remote} {len} bytes {fate}")
            });
        }
        // Hosts that are not in the network do not answer, like most of the Internet.
        if result == Err(SendError::Unreachable) && !crate::hostile::is_bystander(to.remote.ip()) {
            let host = &mut self.hosts[index];
            let now = host.spec.clock.at(self.now);
            host.node.handle_unreachable(now, to);
        }
    }

    fn record(&mut self, interface: usize, datagram: &Datagram) {
        if self.recorded.len() == RECORDED {
            self.recorded.pop_front();
        }
        self.recorded.push_back((interface, datagram.clone()));
    }

    /// A datagram has arrived at an interface.
    pub(super) fn arrive(&mut self, arrival: Arrival) {
        let Arrival { interface, mut datagram } = arrival;
        let index = self.network.interface(interface).host;
        let by_node = !matches!(self.hosts[index].spec.system, System::Plain { .. });
        let kind = match datagram.carries {
            Carries::Segment => Encapsulation::Tcp,
            Carries::Packet if by_node => return self.arrive_plain(index, &datagram),
            Carries::Datagram | Carries::Packet => Encapsulation::Udp,
        };
        let Some(local) = self.hosts[index].local_at(datagram.destination.ip(), kind).copied()
        else {
            return;
        };
        if local.address.port() != datagram.destination.port() {
            return;
        }
        let from: SocketAddr = datagram.source;
        let payload = datagram.bytes.len() as u64;
        self.amplification.received(index, from, payload, datagram.genuine);
        if kind == Encapsulation::Tcp {
            self.arrive_segment(index, local.id, &mut datagram);
        } else {
            let path = PathAddress { local: local.id, remote: from };
            self.take_in(index, path, datagram.ecn, &mut datagram.bytes);
        }
        self.network.recycle(datagram.bytes);
    }

    /// A host's node processes a datagram of any encapsulation. Returns whether it authenticated
    /// its sender.
    pub(super) fn take_in(
        &mut self,
        index: usize,
        from: PathAddress,
        ecn: Ecn,
        bytes: &mut [u8],
    ) -> bool {
        let now = self.hosts[index].spec.clock.at(self.now);
        let len = bytes.len();
        let host = &mut self.hosts[index];
        if let crate::node::Node::Hostile(hostile) = &mut host.node {
            hostile.tell_time(self.now);
        }
        let before = self.may_settle(index);
        let host = &mut self.hosts[index];
        let result = host.node.handle_datagram(now, from, ecn, bytes, &mut host.inbox);
        let mut proved = Vec::new();
        let worked = host.node.run_jobs(now, &mut proved);
        host.unflushed = true;
        self.check_work(index, before);
        self.confirm_segments(index, &proved);
        if self.observe.trace {
            let (from, to) =
                (from.remote, self.hosts[index].local(from.local).map(|it| it.address));
            self.note(|| {
                let fate = result.map(drop).and(worked);
                let fate =
                    fate.map_or_else(|reason| format!("refused: {reason:?}"), |()| String::new());
                let to = to.map_or_else(String::new, |to| to.to_string());
                format!("host {index} recv {from} > {to} {len} bytes {fate}")
            });
        }
        result == Ok(mpip_core::Sender::Authenticated)
    }
}

/// What to do after the delivery of a packet.
pub(super) enum Delivered {
    /// Nothing.
    Done,
    /// Send this packet as the answer.
    Reply(Vec<u8>),
    /// Run the TCP stack, which has queued it.
    Stack,
}
