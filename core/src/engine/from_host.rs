//! Packets from the host: which peer they go to, and which leave as plain IP.

use super::{DropReason, Engine};
use crate::translation::{Egress, Outbound};
use mpip_types::Instant;
use mpip_types::PacketBuf;
use mpip_types::packet::{Header, Segments};

impl Engine {
    /// Takes a packet or super-packet from the TUN device. It leaves at the next
    /// [`flush`](Self::flush), if it may leave at once. ICMP messages to the packet's sender go to
    /// the host at the next [`handle_timeout`](Self::handle_timeout), which is then due at once.
    ///
    /// # Errors
    ///
    /// Why the packet was refused. The refusal is counted and has no other effect.
    pub fn handle_tun(&mut self, now: Instant, mut packet: PacketBuf) -> Result<(), DropReason> {
        let header = Header::parse(packet.bytes());
        let header = header.map_err(|_| self.refuse(DropReason::MalformedPacket))?;
        if !self.shared.translations.is_idle() {
            match self.shared.translations.outbound(now, &header, packet) {
                Outbound::Other(same) => packet = same,
                Outbound::Peer(peer, packet) => return self.send_to(now, peer, packet),
                Outbound::NoBuffer => return Err(self.refuse(DropReason::NoBuffer)),
                Outbound::Unrelated(same)
                    if self.shared.prefixes.find(header.destination).is_some() =>
                {
                    packet = same;
                }
                Outbound::Unrelated(packet) => return self.leave_plain(&header, packet),
            }
        }
        let peer = self.shared.prefixes.find(header.destination);
        let peer = peer.ok_or_else(|| self.refuse(DropReason::NoPeer))?;
        match self.associations[peer].egress(now, &header, packet.bytes()) {
            Ok(Egress::Paths) => {}
            Ok(Egress::Plain) => return self.leave_plain(&header, packet),
            Err(reason) => return Err(self.refuse(reason)),
        }
        self.send(now, peer, &header, packet)
    }

    /// Sends a packet whose headers were rewritten.
    fn send_to(&mut self, now: Instant, peer: usize, packet: PacketBuf) -> Result<(), DropReason> {
        let header = Header::parse(packet.bytes());
        let header = header.map_err(|_| self.refuse(DropReason::MalformedPacket))?;
        self.send(now, peer, &header, packet)
    }

    fn send(
        &mut self,
        now: Instant,
        peer: usize,
        header: &Header,
        packet: PacketBuf,
    ) -> Result<(), DropReason> {
        let segments = Segments::new(packet, header);
        let segments = segments.map_err(|_| self.refuse(DropReason::MalformedOffload))?;
        let (association, mut cx) = self.association(peer);
        association.enqueue(now, header, segments, &mut cx)?;
        self.touched.insert(peer);
        Ok(())
    }

    /// Returns a captured packet that belongs to no peer to the host, as plain IP.
    fn leave_plain(&mut self, header: &Header, packet: PacketBuf) -> Result<(), DropReason> {
        let segments = Segments::new(packet, header);
        let segments = segments.map_err(|_| self.refuse(DropReason::MalformedOffload))?;
        for segment in 0..segments.count() {
            if !self.shared.plain.push(segments.clone(), segment) {
                return Err(self.refuse(DropReason::NoPath));
            }
        }
        Ok(())
    }
}
