//! Flows: generated traffic and its results.

use core::net::SocketAddr;

use mpip_core::{Offload, PartialChecksum, Segmentation, SegmentationKind};

use crate::clock::{NEVER, Nanos};
use crate::packet::{self, Shape, protocol};
use crate::rng::Rng;
use crate::spec::{FIRST_PORT, FlowSpec, Traffic, WorldSpec};

/// Results of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowReport {
    /// Packets generated (none for TCP).
    pub sent: u64,
    /// Packets delivered (ICMP echo: requests answered).
    pub delivered: u64,
    /// Bytes delivered: of IP packets, or of the TCP stream.
    pub bytes: u64,
    /// Whether all bytes of a TCP transfer have been read.
    pub finished: bool,
    /// One-way delay (ICMP: round trip) of each packet delivered, in the order of delivery.
    pub delays: Vec<Nanos>,
    /// Longest time between two deliveries (TCP: of new bytes to the application).
    pub longest_pause: Nanos,
}

/// A running flow.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) spec: FlowSpec,
    pub(crate) shape: Shape,
    pub(crate) next: Nanos,
    pub(crate) report: FlowReport,
    pub(crate) last_delivery: Option<Nanos>,
    sent_at: Vec<Nanos>,
    offset: u32,
    rng: Rng,
}

/// A generated packet.
pub(crate) struct Made {
    pub(crate) bytes: Vec<u8>,
    pub(crate) offload: Offload,
}

impl Flow {
    /// The flow numbered `number` of `world`.
    pub(crate) fn new(world: &WorldSpec, number: usize) -> Self {
        let spec = &world.flows[number];
        let port = FIRST_PORT + number as u16;
        let (source, destination) = world.flow_ends(number, spec);
        let (number_of_protocol, ecn) = match spec.traffic {
            Traffic::Tcp { .. } => (protocol::TCP, 0),
            Traffic::Quic { .. } => (protocol::UDP, 0),
            Traffic::Packets { protocol: protocol::ICMP, ecn, .. } if source.is_ipv6() => {
                (protocol::ICMPV6, ecn)
            }
            Traffic::Packets { protocol, ecn, .. } => (protocol, ecn),
        };
        Self {
            shape: Shape {
                protocol: number_of_protocol,
                source: SocketAddr::new(source, port),
                destination: SocketAddr::new(destination, port),
                ecn,
            },
            next: spec.start,
            spec: spec.clone(),
            report: FlowReport::default(),
            last_delivery: None,
            sent_at: Vec::new(),
            offset: 1,
            rng: Rng::stream(world.seed, 1_000 + number as u64),
        }
    }

    /// The next packet of a constant-rate flow, if it is due; advances `next`.
    pub(crate) fn make(&mut self, now: Nanos, mtu: usize) -> Option<Made> {
        let Traffic::Packets { size, interval, segments, .. } = self.spec.traffic else {
            self.next = NEVER;
            return None;
        };
        if now >= self.spec.stop {
            self.next = NEVER;
            return None;
        }
        self.next = now + interval.max(1);
        let len = self.rng.between(size.0 as u64, size.1.max(size.0) as u64) as usize;
        let sequence = self.sent_at.len() as u64;
        let headers = packet::ip_header_len(self.shape.source.ip())
            + if self.shape.protocol == protocol::TCP { 20 } else { 8 };
        let cuttable = matches!(self.shape.protocol, protocol::TCP | protocol::UDP);
        let len = len.clamp(headers + 16, mtu.max(headers + 16));
        let mut bytes = Vec::new();
        if segments <= 1 || !cuttable {
            packet::build(&self.shape, sequence, self.offset, len, &mut bytes);
            self.advance(now, len - headers, 1);
            return Some(Made { bytes, offload: Offload::default() });
        }
        let payload = len - headers;
        let last = 1 + self.rng.below(payload as u64) as usize;
        let total = (payload * (segments - 1) + last).min(65_535 - headers);
        packet::build(&self.shape, sequence, self.offset, headers + total, &mut bytes);
        let kind = match self.shape.protocol {
            protocol::TCP => SegmentationKind::Tcp,
            _ => SegmentationKind::Udp,
        };
        let partial = packet::make_checksum_partial(&mut bytes);
        let offload = Offload {
            partial_checksum: partial.map(|(start, offset)| PartialChecksum { start, offset }),
            segmentation: Some(Segmentation { kind, size: payload as u16 }),
        };
        self.advance(now, total, total.div_ceil(payload));
        Some(Made { bytes, offload })
    }

    fn advance(&mut self, now: Nanos, payload: usize, packets: usize) {
        self.sent_at.push(now);
        self.offset = self.offset.wrapping_add(payload as u32);
        self.report.sent += packets as u64;
    }

    /// A packet of the flow has reached its destination (ICMP: the answer has arrived).
    pub(crate) fn delivered(&mut self, now: Nanos, packet: &[u8]) {
        self.report.delivered += 1;
        self.report.bytes += packet.len() as u64;
        self.mark_delivery(now);
        let header = if self.shape.protocol == protocol::TCP { 20 } else { 8 };
        let number = packet::transport(packet).get(header..header + 8);
        let Some(number) = number.and_then(|bytes| bytes.try_into().ok()) else { return };
        // Later segments of a super-packet carry payload instead of the number.
        let sequence = usize::try_from(u64::from_be_bytes(number)).unwrap_or(usize::MAX);
        if let Some(sent) = self.sent_at.get(sequence) {
            self.report.delays.push(now.saturating_sub(*sent));
        }
    }

    pub(crate) fn mark_delivery(&mut self, now: Nanos) {
        if let Some(last) = self.last_delivery {
            self.report.longest_pause = self.report.longest_pause.max(now - last);
        }
        self.last_delivery = Some(now);
    }
}

/// The `share` quantile (0 to 1) of `delays`; `None` if there are none.
pub fn quantile(delays: &[Nanos], share: f64) -> Option<Nanos> {
    let mut sorted = delays.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(last as f64 * share.clamp(0.0, 1.0)).round() as usize])
}
