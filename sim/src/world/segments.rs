//! Datagrams in TCP segments, as `net` sends and receives them.

use mpip_core::{Ecn, LocalId, PathAddress};
use mpip_segments::segment::{HEADROOM, frame, seal};

use super::World;
use crate::network::{Carries, Datagram};

impl World {
    /// A host's node sends a datagram from a local TCP endpoint.
    pub(super) fn send_segment(&mut self, index: usize, to: PathAddress, ecn: Ecn, bytes: &[u8]) {
        let host = &mut self.hosts[index];
        let now = host.spec.clock.at(self.now);
        let Some(local) = host.local(to.local).map(|local| local.address) else { return };
        let Some(endpoint) = host.endpoints.get_mut(&to.local) else { return };
        let Some(header) = endpoint.data(now, to.remote, bytes.len(), true) else {
            return endpoint.hold(now, to.remote, ecn, bytes.to_vec());
        };
        let mut room = vec![0; HEADROOM + bytes.len()];
        room[HEADROOM..].copy_from_slice(bytes);
        let start = frame(&header, &mut room);
        seal(local, to.remote, &mut room[start..]);
        self.transmit(index, to, Carries::Segment, ecn, &room[start..]);
    }

    /// Sends the segments without data, and the datagrams that waited for their connection.
    pub(super) fn settle_segments(&mut self, index: usize) {
        let ids: Vec<LocalId> = self.hosts[index].endpoints.keys().copied().collect();
        for id in ids {
            let end = |world: &mut Self| {
                let host = &mut world.hosts[index];
                host.endpoints
                    .get_mut(&id)
                    .map(|endpoint| (endpoint.poll_control(), endpoint.poll_released()))
            };
            while let Some((control, released)) = end(self)
                && (control.is_some() || released.is_some())
            {
                let Some(local) = self.hosts[index].local(id).map(|local| local.address) else {
                    break;
                };
                if let Some(control) = control {
                    let mut segment = vec![0; control.header.encoded_len()];
                    control.header.write(&mut segment);
                    seal(local, control.to, &mut segment);
                    let to = PathAddress { local: id, remote: control.to };
                    self.transmit(index, to, Carries::Segment, Ecn::NotEct, &segment);
                }
                if let Some((remote, ecn, bytes)) = released {
                    let to = PathAddress { local: id, remote };
                    self.send_segment(index, to, ecn, &bytes);
                }
            }
        }
    }

    /// A segment has arrived at a local endpoint.
    pub(super) fn arrive_segment(&mut self, index: usize, id: LocalId, datagram: &mut Datagram) {
        let now = self.hosts[index].spec.clock.at(self.now);
        let (source, ecn) = (datagram.source.ip(), datagram.ecn);
        // Removes the endpoint, because the node is borrowed meanwhile.
        let Some(mut endpoint) = self.hosts[index].endpoints.remove(&id) else { return };
        endpoint.receive_bytes(now, source, &mut datagram.bytes, &mut |remote, bytes| {
            self.take_in(index, PathAddress { local: id, remote }, ecn, bytes)
        });
        for from in core::mem::take(&mut self.proved) {
            endpoint.confirm_later(now, from.remote);
        }
        self.hosts[index].endpoints.insert(id, endpoint);
        // Its control segments leave with the flush that follows every arrival.
        self.hosts[index].unflushed = true;
    }

    /// Handshake messages from these addresses proved authentic: confirms their connections.
    pub(super) fn confirm_segments(&mut self, index: usize, proved: &[PathAddress]) {
        let now = self.hosts[index].spec.clock.at(self.now);
        for from in proved {
            match self.hosts[index].endpoints.get_mut(&from.local) {
                Some(endpoint) => endpoint.confirm_later(now, from.remote),
                // The endpoint that is processing now.
                None => self.proved.push(*from),
            }
        }
    }

    /// Processes connection timers that are due.
    pub(super) fn time_out_segments(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        let now = host.spec.clock.at(self.now);
        for endpoint in host.endpoints.values_mut() {
            endpoint.handle_timeout(now);
        }
    }
}
