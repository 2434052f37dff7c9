//! Where the packets of a session go, and what their order costs.

use mpip_api::{PathStatus, PeerStatus, PlainSessionStatus, SessionStatus};
use serde::Serialize;

use crate::units::{bytes, duration};
use crate::words::{end, protocol, wait_quantile, waited};

/// Idle time from which it is mentioned, ms: the paths are those of the last seconds.
const IDLE_MS: f64 = 2_000.0;

/// A session that is plain IP although paths work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Plain {
    pub(crate) protocol: String,
    pub(crate) source: String,
    pub(crate) destination: String,
    pub(crate) since_ms: f64,
}

impl Plain {
    /// What is known of `session`.
    pub(crate) fn of(session: &PlainSessionStatus) -> Self {
        Self {
            protocol: protocol(session.protocol),
            source: end(session.source),
            destination: end(session.destination),
            since_ms: session.since_ms,
        }
    }

    /// The sentence.
    pub(crate) fn sentence(&self) -> String {
        let Self { protocol, source, destination, since_ms } = self;
        format!(
            "{protocol} {source} to {destination} has been plain IP for {}: its segments were repeated \
             although the paths delivered them; see whether a firewall of the other host refuses \
             what comes from its mpip device",
            duration(Some(*since_ms))
        )
    }
}

/// A path that a session uses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Used {
    pub(crate) id: u16,
    /// None if that is not known any more.
    pub(crate) interface: Option<String>,
    /// Share of the session's packets, 0 to 1, if the daemon tells it.
    pub(crate) share: Option<f64>,
}

/// What is known of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Facts {
    /// Number of the session in its sender's space.
    pub(crate) id: u32,
    /// Whether this host sends in it.
    pub(crate) outgoing: bool,
    pub(crate) protocol: String,
    pub(crate) source: String,
    pub(crate) destination: String,
    /// Paths of the last seconds.
    pub(crate) paths: Vec<Used>,
    pub(crate) packets: u64,
    pub(crate) inner_bytes: u64,
    /// Packets sent again on another path.
    pub(crate) repaired_packets: u64,
    /// How much longer than by the nearest path packets are made to take, for a BBR sender.
    pub(crate) held_ms: Option<f64>,
    /// Packets that waited to be put in order here, and for how long.
    pub(crate) waited_packets: u64,
    pub(crate) median_wait_ms: Option<f64>,
    pub(crate) p99_wait_ms: Option<f64>,
    pub(crate) longest_wait_ms: f64,
    pub(crate) idle_ms: f64,
}

impl Facts {
    /// What is known of `session` of `peer`.
    pub(crate) fn of(peer: &PeerStatus, session: &SessionStatus) -> Self {
        let used = |(place, id): (usize, u16)| {
            let path = peer.paths.iter().find(|path| path.id == id);
            let interface = path.map(PathStatus::interface_name);
            Used { id, interface, share: session.path_shares.get(place).copied() }
        };
        Self {
            id: session.id,
            outgoing: session.outgoing,
            protocol: protocol(session.protocol),
            source: end(session.source),
            destination: end(session.destination),
            paths: session.paths.iter().copied().enumerate().map(used).collect(),
            packets: session.packets,
            inner_bytes: session.inner_bytes,
            repaired_packets: session.repaired_packets,
            held_ms: session.held_ms,
            waited_packets: waited(session),
            median_wait_ms: wait_quantile(session, 0.5),
            p99_wait_ms: wait_quantile(session, 0.99),
            longest_wait_ms: session.longest_wait_ms,
            idle_ms: session.idle_ms,
        }
    }

    /// The sentence.
    pub(crate) fn sentence(&self) -> String {
        let Self { protocol, source, destination, packets, .. } = self;
        let (verb, order) = match self.outgoing {
            true => ("sends", self.repairs() + &self.hold()),
            false => ("receives", self.waits()),
        };
        let last = match self.idle_ms >= IDLE_MS {
            true => format!(", the last one {} ago", duration(Some(self.idle_ms))),
            false => String::new(),
        };
        let data = bytes(self.inner_bytes);
        format!(
            "{protocol} {source} to {destination} {verb} {}: {packets} packets, {data}{last}; {order}",
            self.ways()
        )
    }

    /// The paths in use.
    fn ways(&self) -> String {
        let several = self.paths.len() > 1;
        let way = |Used { id, interface, share }: &Used| {
            let name = match interface {
                Some(interface) => format!("{interface} (path {id})"),
                None => format!("path {id}, which is gone"),
            };
            match share.filter(|_| several) {
                Some(share) => format!("{name} with {:.0} %", share * 100.0),
                None => name,
            }
        };
        match self.paths.as_slice() {
            [] => "on no path at present".to_owned(),
            [only] => format!("on {}", way(only)),
            [rest @ .., last] => {
                let rest: Vec<String> = rest.iter().map(way).collect();
                format!("on {} and {}", rest.join(", "), way(last))
            }
        }
    }

    fn repairs(&self) -> String {
        match self.repaired_packets {
            0 => "none was sent again".to_owned(),
            again => format!("{again} were sent again because a path had lost them"),
        }
    }

    fn hold(&self) -> String {
        match self.held_ms {
            None | Some(0.0) => String::new(),
            held => format!(
                "; it takes {} longer than by the nearest path, so that its sender, which is a BBR, \
                 fills the others, too",
                duration(held)
            ),
        }
    }

    fn waits(&self) -> String {
        let (Some(median), Some(p99)) = (self.median_wait_ms, self.p99_wait_ms) else {
            return "none had to wait for its turn".to_owned();
        };
        let share = self.waited_packets as f64 / self.packets.max(self.waited_packets) as f64;
        let time = |ms| duration(Some(ms));
        format!(
            "{} of them ({:.1} %) waited for earlier ones: half of these at most {}, 99 % at most \
             {}, the longest {}",
            self.waited_packets,
            share * 100.0,
            time(median),
            time(p99),
            time(self.longest_wait_ms)
        )
    }
}
