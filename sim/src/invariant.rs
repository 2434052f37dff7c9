//! Invariants of every world, checked from outside the engine.

use core::fmt;
use core::net::SocketAddr;
use std::collections::BTreeMap;

use mpip_wire::WORK_MAX;

use crate::clock::{MILLI, Nanos, SECOND};
use crate::packet::{Tuple, digest, header_checksum_is_right, protocol, transport, tuple};

/// The invariants, each with the name that a failure prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// No packet is delivered more often than it was sent.
    NoDuplicate,
    /// Every packet delivered was sent to that host, byte for byte.
    Unaltered,
    /// The bytes of a TCP transfer are the ones written.
    Content,
    /// Packets of a TCP session are delivered in the order in which they were sent, except after
    /// the promised resequencing wait.
    InOrder,
    /// An address that is not validated gets no more bytes than came from it, except for a few
    /// probes to a known address, and short challenges to one that a peer has advertised.
    NoAmplification,
    /// Tables and queues stay within their limits.
    BoundedMemory,
    /// The work for a datagram is bounded, apart from packets that it acknowledges or delivers.
    BoundedWork,
    /// Timers that are due complete, and time advances.
    Progress,
    /// A hostile node reaches only its peer's host, only from its own addresses, and only the
    /// host's own addresses.
    Reach,
    /// A hostile node does not much reduce what honest ones deliver to each other over links of
    /// their own.
    Harm,
    /// Packets under the policy `require` never leave as plain IP.
    NoPlain,
    /// After healing, at rest, both ends have the same paths and sessions, and nothing is queued.
    Agreement,
    /// After healing, all transfers complete.
    Completion,
    /// The engine does not panic.
    NoPanic,
}

impl Invariant {
    /// The name that failures print.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoDuplicate => "no-duplicate",
            Self::Unaltered => "unaltered",
            Self::Content => "content",
            Self::InOrder => "in-order",
            Self::NoAmplification => "no-amplification",
            Self::BoundedMemory => "bounded-memory",
            Self::BoundedWork => "bounded-work",
            Self::Progress => "progress",
            Self::Reach => "reach",
            Self::Harm => "harm",
            Self::NoPlain => "no-plain",
            Self::Agreement => "agreement",
            Self::Completion => "completion",
            Self::NoPanic => "no-panic",
        }
    }
}

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When it was detected.
    pub at: Nanos,
    /// The host at which it was detected.
    pub host: usize,
    /// The invariant.
    pub invariant: Invariant,
    /// What was expected and what happened.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.at / SECOND, self.at % SECOND / 1_000);
        write!(
            f,
            "{seconds}.{micros:06}s host {}: {}: {}",
            self.host,
            self.invariant.name(),
            self.detail
        )
    }
}

/// How often and when a packet was sent.
#[derive(Debug, Default)]
struct Sent {
    count: u32,
    delivered: u32,
    /// For TCP: place in its session and time of each copy sent that is not matched yet.
    places: Vec<(u64, Nanos)>,
}

/// A TCP session, as observed.
#[derive(Debug, Default)]
struct Session {
    sent: u64,
    /// Place after the last one delivered in order.
    next: u64,
    /// When `next` last moved, and from where.
    jumps: Vec<(u64, Nanos)>,
    late: u64,
}

/// Jumps over missing packets kept for a session.
const JUMPS: usize = 256;

/// Every inner packet sent, to check each delivery.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    packets: BTreeMap<(usize, u64), Sent>,
    sessions: BTreeMap<Tuple, Session>,
    /// Shortest time after sending before a missing packet may be skipped.
    patience: Nanos,
    pub(crate) sent: u64,
    pub(crate) delivered: u64,
    pub(crate) late: u64,
}

impl Ledger {
    pub(crate) fn new(patience: Nanos) -> Self {
        Self { patience, ..Self::default() }
    }

    /// Records that a packet to the host numbered `to` was given to a node.
    pub(crate) fn sent(&mut self, now: Nanos, to: usize, packet: &[u8]) {
        self.sent += 1;
        let entry = self.packets.entry((to, digest(packet))).or_default();
        entry.count += 1;
        if let Some(tuple) = needs_order(packet) {
            let session = self.sessions.entry(tuple).or_default();
            entry.places.push((session.sent, now));
            session.sent += 1;
        }
    }

    /// Checks a packet delivered by a node to the host numbered `to`, with its checksum complete.
    pub(crate) fn delivered(
        &mut self,
        now: Nanos,
        to: usize,
        packet: &[u8],
    ) -> Result<(), (Invariant, String)> {
        self.delivered += 1;
        if !header_checksum_is_right(packet) {
            return Err((
                Invariant::Unaltered,
                format!("IPv4 header checksum of {}", show(packet)),
            ));
        }
        let Some(entry) = self.packets.get_mut(&(to, digest(packet))) else {
            let start =
                packet.iter().take(48).map(|byte| format!("{byte:02x}")).collect::<String>();
            let detail = format!("{} was never sent; it begins {start}", show(packet));
            return Err((Invariant::Unaltered, detail));
        };
        entry.delivered += 1;
        if entry.delivered > entry.count {
            let detail = format!("{} sent {} times, delivered again", show(packet), entry.count);
            return Err((Invariant::NoDuplicate, detail));
        }
        let Some(tuple) = needs_order(packet) else { return Ok(()) };
        let session = self.sessions.entry(tuple).or_default();
        if let Some(index) = entry.places.iter().position(|(place, _)| *place >= session.next) {
            let (place, _) = entry.places[index];
            if index > 0 && place > session.next {
                // TCP has retransmitted it. The packet delivered may be the copy that was given up.
                entry.places.remove(index - 1);
                session.late += 1;
                self.late += 1;
                return Ok(());
            }
            entry.places.drain(..=index);
            if place > session.next {
                if session.jumps.len() == JUMPS {
                    session.jumps.remove(0);
                }
                session.jumps.push((session.next, now));
            }
            session.next = place + 1;
            return Ok(());
        }
        let Some((place, sent)) = entry.places.pop() else { return Ok(()) };
        session.late += 1;
        self.late += 1;
        if entry.count > 1 {
            // It is unknown which of the copies this is.
            return Ok(());
        }
        let overtaken = session.jumps.iter().rev().find(|(from, _)| *from <= place);
        match overtaken {
            Some((_, at)) if at.saturating_sub(sent) < self.patience => {
                let detail = format!(
                    "{} (number {place} of its session) came {} us after it had been given up, \
                     which was {} us after it was sent",
                    show(packet),
                    (now - at) / 1_000,
                    at.saturating_sub(sent) / 1_000,
                );
                Err((Invariant::InOrder, detail))
            }
            _ => Ok(()),
        }
    }
}

/// The session of a TCP segment; `None` for a pure acknowledgement, which a later one supersedes.
fn needs_order(packet: &[u8]) -> Option<Tuple> {
    let tuple = tuple(packet).filter(|tuple| tuple.protocol == protocol::TCP)?;
    let segment = transport(packet);
    let (offset, flags) = (*segment.get(12)?, *segment.get(13)?);
    let empty = segment.len() == usize::from(offset >> 4) * 4;
    (!empty || flags & 0b11_0111 != 0b01_0000).then_some(tuple)
}

fn show(packet: &[u8]) -> String {
    match tuple(packet) {
        Some(Tuple { protocol, source, destination }) => format!(
            "packet of {} bytes, protocol {protocol}, {source} to {destination}, digest {:016x}",
            packet.len(),
            digest(packet)
        ),
        None => format!("{} bytes that are no IP packet", packet.len()),
    }
}

/// Bytes sent to and received from one remote address, counted as in RFC 9000, section 8.1.
#[derive(Clone, Copy, Debug, Default)]
struct Exchange {
    sent: u64,
    received: u64,
    answered: bool,
    window: u64,
    window_bytes: u64,
}

/// Bytes per second that a host may send unsolicited to an address from its configuration or from
/// the authenticated peer: handshake initiations and challenges.
const PROBE_BYTES: u64 = 16 * 1024;

/// Largest payload to an address that a hostile peer has advertised, bytes: a challenge without
/// padding (`[P-30]`), or a SYN.
const SHORT: u64 = 40;

/// Burst and rate per second of such packets, for each hostile peer (`[P-31]`).
const TOLD: (u64, u64) = (32, 8);

/// What a host may know about a remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A peer's address: configured, or advertised by its owner.
    Known,
    /// Not a peer's address; this many hostile peers may have advertised it.
    Told(u64),
}

/// Checks what is sent to addresses that are not validated.
#[derive(Debug, Default)]
pub(crate) struct Amplification {
    exchanges: BTreeMap<(usize, SocketAddr), Exchange>,
    /// When the token bucket for advertised addresses is full again, by host, ns.
    full_at: BTreeMap<usize, Nanos>,
}

impl Amplification {
    /// `host` sends `bytes` to `remote`.
    pub(crate) fn sent(
        &mut self,
        now: Nanos,
        host: usize,
        remote: SocketAddr,
        bytes: u64,
        standing: Standing,
    ) -> Result<(), (Invariant, String)> {
        let exchange = self.exchanges.entry((host, remote)).or_default();
        if !exchange.answered
            && exchange.sent + bytes > exchange.received
            && let Standing::Told(peers @ 1..) = standing
            && bytes <= SHORT
        {
            let full_at = self.full_at.entry(host).or_default();
            let pause = SECOND / (TOLD.1 * peers);
            if *full_at <= now + pause * (TOLD.0 * peers - 1) {
                *full_at = pause + (*full_at).max(now);
                return Ok(());
            }
        }
        exchange.sent += bytes;
        if exchange.answered {
            return Ok(());
        }
        let second = now / SECOND;
        if exchange.window != second {
            exchange.window = second;
            exchange.window_bytes = 0;
        }
        exchange.window_bytes += bytes;
        let probes = standing == Standing::Known && exchange.window_bytes <= PROBE_BYTES;
        if probes || exchange.sent <= exchange.received {
            return Ok(());
        }
        let detail = format!(
            "{remote} has answered nothing and sent {} bytes, but got {} bytes ({} in this second)",
            exchange.received, exchange.sent, exchange.window_bytes
        );
        Err((Invariant::NoAmplification, detail))
    }

    /// A datagram from `remote` has reached `host`. A genuine one counts as an answer if we had
    /// sent there.
    pub(crate) fn received(&mut self, host: usize, remote: SocketAddr, bytes: u64, genuine: bool) {
        let exchange = self.exchanges.entry((host, remote)).or_default();
        exchange.received += bytes;
        exchange.answered |= genuine && exchange.sent > 0;
    }
}

/// Checks the tables of an engine, each with its name, size and limit.
pub(crate) fn check_kept(
    kept: &[(&'static str, usize, usize)],
) -> impl Iterator<Item = (Invariant, String)> {
    let over = kept.iter().filter(|(_, found, limit)| found > limit);
    over.map(|(what, found, limit)| {
        (Invariant::BoundedMemory, format!("{what}: {found}, the limit is {limit}"))
    })
}

/// Steps per unit of work of frames; set by the costliest, feedback with 32 ranges across 16,000
/// packets.
const STEPS_PER_UNIT: u64 = 100;
/// Most steps for a packet in flight that is acknowledged or lost, and for a held packet that is
/// delivered.
const STEPS_IN_FLIGHT: u64 = 4;
const STEPS_WAITING: u64 = 12;
/// Least memory of a held packet, bytes.
const WAITING_BYTES: u64 = 2_048;

/// Packets that a datagram may acknowledge or deliver, in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    most_work: u64,
    steps: u64,
}

impl Settled {
    /// The state before a datagram: the most work of any datagram so far, and the sizes of the
    /// engine's tables.
    pub(crate) fn new(most_work: u64, kept: &[(&'static str, usize, usize)]) -> Self {
        let steps = kept.iter().map(|(what, held, _)| match *what {
            "packets of a path" | "repairs" => *held as u64 * STEPS_IN_FLIGHT,
            "bytes that wait in order, of all" => *held as u64 / WAITING_BYTES * STEPS_WAITING,
            _ => 0,
        });
        Self { most_work, steps: steps.sum() }
    }
}

/// Checks a datagram after which the most work of any datagram is `most_work`.
pub(crate) fn check_work(before: &Settled, most_work: u64) -> Result<(), (Invariant, String)> {
    let bound = u64::from(WORK_MAX) * STEPS_PER_UNIT + before.steps;
    if most_work == before.most_work || most_work <= bound {
        return Ok(());
    }
    let detail = format!("a datagram took {most_work} steps, the bound is {bound}");
    Err((Invariant::BoundedWork, detail))
}

/// Least share of what honest nodes deliver if the hostile node is silent, and tolerance in bytes.
/// Of 334 worlds the lowest share was 0.54, because losses hit other packets.
const UNHARMED: (f64, f64) = (1.0 / 3.0, 65_536.0);

/// Checks that honest nodes delivered not much less than `alone`, the bytes that they deliver if
/// the hostile node is silent.
pub(crate) fn check_harm(goodput: u64, alone: u64) -> Result<(), (Invariant, String)> {
    let (share, bytes) = UNHARMED;
    if goodput as f64 + bytes >= alone as f64 * share {
        return Ok(());
    }
    let detail = format!("honest nodes delivered {goodput} bytes, with the hostile silent {alone}");
    Err((Invariant::Harm, detail))
}

/// `handle_timeout` calls that a host may need in one millisecond of virtual time. A path paced at
/// 1 Gbit/s sends 83 full packets in a millisecond.
const TIMEOUTS_PER_MILLI: u32 = 1_000;

/// Most timer calls at the same time.
const TIMEOUTS_PER_MOMENT: u32 = 16;

/// Checks that timers complete.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spin {
    moment: Nanos,
    at_moment: u32,
    in_milli: u32,
    pub(crate) total: u64,
}

impl Spin {
    pub(crate) fn timeout(&mut self, now: Nanos) -> Result<(), (Invariant, String)> {
        self.total += 1;
        self.at_moment = if now == self.moment { self.at_moment + 1 } else { 1 };
        self.in_milli = if now / MILLI == self.moment / MILLI { self.in_milli + 1 } else { 1 };
        self.moment = now;
        if self.at_moment > TIMEOUTS_PER_MOMENT || self.in_milli > TIMEOUTS_PER_MILLI {
            let detail = format!(
                "handle_timeout called {} times at this moment, {} times in this millisecond",
                self.at_moment, self.in_milli
            );
            return Err((Invariant::Progress, detail));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
