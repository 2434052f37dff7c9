//! What must hold in every world, checked from outside the engine.

use core::fmt;
use core::net::SocketAddr;
use std::collections::BTreeMap;

use mpip_wire::WORK_MAX;

use crate::clock::{MILLI, Nanos, SECOND};
use crate::packet::{Tuple, digest, header_checksum_is_right, protocol, transport, tuple};

/// The invariants, each with the name that a failure prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// Nothing is delivered more often than it was sent.
    NoDuplicate,
    /// Every packet delivered is one that was sent to that host, byte for byte.
    Unaltered,
    /// A TCP transfer's bytes are the ones written.
    Content,
    /// Packets of a TCP session are delivered in the order in which they were sent, except those
    /// that were waited for as long as promised.
    InOrder,
    /// An address that has not answered gets no more bytes than came from it, beyond the few
    /// probes that a known address may get, and the short challenges to one that a peer has told.
    NoAmplification,
    /// Tables and queues stay within their limits.
    BoundedMemory,
    /// A datagram makes a bounded amount of work beside what it settles for good.
    BoundedWork,
    /// A timer that is due is done with: time goes on.
    Progress,
    /// A node that follows no rule reaches its peer's host from its own addresses, and there the
    /// host's own addresses alone.
    Reach,
    /// A hostile node does not take much of what honest ones deliver to each other by links of
    /// their own.
    Harm,
    /// What the policy `require` holds back never leaves as plain IP.
    NoPlain,
    /// When everything has healed and nothing is sent, both ends have the same paths and sessions
    /// and nothing waits.
    Agreement,
    /// When everything has healed, transfers that were begun complete.
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

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When it was seen.
    pub at: Nanos,
    /// The host at which it was seen.
    pub host: usize,
    /// Which invariant does not hold.
    pub invariant: Invariant,
    /// What was expected and what came.
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

/// How often and when one packet was sent.
#[derive(Debug, Default)]
struct Sent {
    count: u32,
    delivered: u32,
    /// Of TCP: place in its session and time of each sending that was not matched yet.
    places: Vec<(u64, Nanos)>,
}

/// A TCP session as the wire sees it.
#[derive(Debug, Default)]
struct Session {
    sent: u64,
    /// Place after the last one delivered in order.
    next: u64,
    /// When `next` last moved, and from where.
    jumps: Vec<(u64, Nanos)>,
    late: u64,
}

/// How many jumps over missing packets a session remembers.
const JUMPS: usize = 256;

/// Every inner packet sent, so that each delivery can be held against it.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    packets: BTreeMap<(usize, u64), Sent>,
    sessions: BTreeMap<Tuple, Session>,
    /// A packet that was overtaken may come late if it was waited for at least so long after it
    /// was sent.
    patience: Nanos,
    pub(crate) sent: u64,
    pub(crate) delivered: u64,
    pub(crate) late: u64,
}

impl Ledger {
    pub(crate) fn new(patience: Nanos) -> Self {
        Self { patience, ..Self::default() }
    }

    /// A packet to the host numbered `to` went into a node.
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

    /// A node delivered a packet to the host numbered `to`, with its checksum complete.
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
                // TCP has sent it again. What comes is as likely the copy that was given up.
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
            // Which of the copies this is cannot be told.
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

/// The session of a TCP segment, unless it only acknowledges: a later one says more.
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

/// What went to and came from one remote address: payload of IP and UDP, as RFC 9000, section 8.1
/// counts.
#[derive(Clone, Copy, Debug, Default)]
struct Exchange {
    sent: u64,
    received: u64,
    answered: bool,
    window: u64,
    window_bytes: u64,
}

/// Bytes that a host may send unasked to an address that it was told of (in its configuration or
/// by the authenticated peer) within a second: handshake initiations and challenges.
const PROBE_BYTES: u64 = 16 * 1024;

/// Bytes of the longest payload to an address that a hostile peer has told: a challenge without
/// padding (`[P-30]`), or a SYN.
const SHORT: u64 = 40;

/// Such packets at once and in a second, for each hostile peer (`[P-31]`).
const TOLD: (u64, u64) = (32, 8);

/// What a host may know of a remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A peer is there: the configuration names it, or its owner has told it.
    Known,
    /// Nobody is: so many hostile peers may have told it.
    Told(u64),
}

/// Watches what goes to addresses that did not answer.
#[derive(Debug, Default)]
pub(crate) struct Amplification {
    exchanges: BTreeMap<(usize, SocketAddr), Exchange>,
    /// When all that a host may send to told addresses may be sent again, ns.
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

    /// A datagram from `remote` reached `host`. A genuine one after we had sent there is an answer.
    pub(crate) fn received(&mut self, host: usize, remote: SocketAddr, bytes: u64, genuine: bool) {
        let exchange = self.exchanges.entry((host, remote)).or_default();
        exchange.received += bytes;
        exchange.answered |= genuine && exchange.sent > 0;
    }
}

/// Tables of an engine that hold more than they may. Each has its name, what it holds and the most.
pub(crate) fn check_kept(
    kept: &[(&'static str, usize, usize)],
) -> impl Iterator<Item = (Invariant, String)> {
    let over = kept.iter().filter(|(_, found, limit)| found > limit);
    over.map(|(what, found, limit)| {
        (Invariant::BoundedMemory, format!("{what}: {found}, the limit is {limit}"))
    })
}

/// Steps for each unit of work that frames count: of the costliest, feedback with 32 ranges across
/// 16,000 packets.
const STEPS_PER_UNIT: u64 = 100;
/// Most steps of a packet in flight when it is acknowledged or lost, and of a waiting packet when
/// it is delivered.
const STEPS_IN_FLIGHT: u64 = 4;
const STEPS_WAITING: u64 = 12;
/// Least memory of a waiting packet, in bytes.
const WAITING_BYTES: u64 = 2_048;

/// What a datagram may settle for good, in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    most_work: u64,
    steps: u64,
}

impl Settled {
    /// Before a datagram, with the most work of any before and what the engine holds.
    pub(crate) fn new(most_work: u64, kept: &[(&'static str, usize, usize)]) -> Self {
        let steps = kept.iter().map(|(what, held, _)| match *what {
            "packets of a path" | "repairs" => *held as u64 * STEPS_IN_FLIGHT,
            "bytes that wait in order, of all" => *held as u64 / WAITING_BYTES * STEPS_WAITING,
            _ => 0,
        });
        Self { most_work, steps: steps.sum() }
    }
}

/// Checks a datagram after which the most work of any is `most_work`.
pub(crate) fn check_work(before: &Settled, most_work: u64) -> Result<(), (Invariant, String)> {
    let bound = u64::from(WORK_MAX) * STEPS_PER_UNIT + before.steps;
    if most_work == before.most_work || most_work <= bound {
        return Ok(());
    }
    let detail = format!("a datagram took {most_work} steps, the bound is {bound}");
    Err((Invariant::BoundedWork, detail))
}

/// Least share of what honest nodes deliver with the hostile node silent, and bytes beside it that
/// chance may take. Of 334 worlds the lowest share was 0.54: losses hit other packets.
const UNHARMED: (f64, f64) = (1.0 / 3.0, 65_536.0);

/// Checks that honest nodes delivered not much less than `alone` bytes, which they deliver with the
/// hostile node silent.
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

/// Timer calls at one and the same moment, after which time has to go on.
const TIMEOUTS_PER_MOMENT: u32 = 16;

/// Watches that timers get done.
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
