//! Goodput of a system over given links: the facade for sweeps.

use core::time::Duration;

use mpip_core::{CongestionControlKind, LossPolicy, SchedulerKind};
use mpip_link::{LinkConfig, QueueLimit};

use crate::clock::{Nanos, SECOND};
use crate::spec::{QuicControl, System, TcpControl, WorldSpec};
use crate::world::{Observe, World};

/// The transport of a measured transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The hosts' TCP.
    Tcp(TcpControl),
    /// QUIC.
    Quic(QuicControl),
}

impl Sender {
    /// The sender with this name: `quic-cubic`, `quic-bbr`, `quic-reno`, `quic-hybrid`, or that of
    /// a [`TcpControl`].
    ///
    /// # Errors
    /// If the name is unknown.
    pub fn from_name(name: &str) -> Result<Self, String> {
        match name {
            "quic-cubic" => Ok(Self::Quic(QuicControl::Cubic)),
            "quic-bbr" => Ok(Self::Quic(QuicControl::Bbr)),
            "quic-reno" => Ok(Self::Quic(QuicControl::NewReno)),
            "quic-hybrid" => Ok(Self::Quic(QuicControl::HybridReno)),
            name => TcpControl::from_name(name).map(Self::Tcp),
        }
    }
}

impl From<TcpControl> for Sender {
    fn from(control: TcpControl) -> Self {
        Self::Tcp(control)
    }
}

/// What becomes of paths that lose packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossRule {
    /// The policy.
    pub policy: LossPolicy,
    /// The threshold of each path, parts per million; further paths have none.
    pub thresholds: &'static [u32],
}

/// The system to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The plain transfer over the path with this number.
    Path(usize),
    /// The transfer through mpip over all paths.
    Mpip {
        /// The scheduler.
        scheduler: SchedulerKind,
        /// The congestion control of paths.
        congestion_control: CongestionControlKind,
        /// What becomes of paths that lose packets.
        loss: LossRule,
    },
}

impl Subject {
    /// mpip with its defaults.
    pub const MPIP: Self = Self::Mpip {
        scheduler: SchedulerKind::Earliest,
        congestion_control: CongestionControlKind::Bbr,
        loss: LossRule { policy: LossPolicy::Measured, thresholds: &[] },
    };
}

/// One transfer from one host to another over disjoint paths.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Settings of each path, forward and back.
    pub paths: Vec<(LinkConfig, LinkConfig)>,
    /// What sends.
    pub sender: Sender,
    /// Duration of the transfer.
    pub duration: Nanos,
    /// Start of the measurement, to exclude slow start; 0 counts everything.
    pub from: Nanos,
    /// The seed of all random choices.
    pub seed: u64,
}

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Bytes of the stream that the receiving application got, in bit/s.
    pub goodput: f64,
    /// Outer bytes that each path of the sender carried, IP headers included.
    pub path_bytes: Vec<u64>,
    /// Longest time without a new byte for the application.
    pub longest_pause: Duration,
    /// Violations; empty in a valid measurement.
    pub violations: Vec<String>,
}

/// Time before data starts, for the handshake, challenges and first round trips.
pub const WARM_UP: Nanos = 2 * SECOND;

/// Payload share of a full segment of plain TCP, with TCP, IP and link headers.
const PLAIN_SEGMENT: f64 = 1460.0 / 1514.0;

/// Capacity of the forward links for payload with plain TCP/IP headers, less loss, in bit/s: the
/// upper bound for every system. `None` for links without a rate.
pub fn limit(paths: &[(LinkConfig, LinkConfig)]) -> Option<f64> {
    let path = |(forward, _): &(LinkConfig, LinkConfig)| {
        Some(forward.mean_rate()? * PLAIN_SEGMENT * (1.0 - forward.loss.mean()))
    };
    paths.iter().map(path).sum()
}

/// Largest queue of a link, bytes, and its queuing delay, seconds.
fn queue(link: &LinkConfig) -> (f64, f64) {
    let bytes = match link.queue {
        QueueLimit::Packets(packets) => f64::from(packets) * 1514.0,
        QueueLimit::Bytes(bytes) => f64::from(bytes),
    };
    (bytes, link.mean_rate().map_or(0.0, |rate| bytes * 8.0 / rate))
}

fn round_trip((forward, back): &(LinkConfig, LinkConfig)) -> f64 {
    (forward.delay + back.delay).as_secs_f64()
}

/// Socket buffers that never limit a transfer over all paths: twice the sum of the rates times the
/// longest RTT (seed 002), including queues of up to a second.
pub fn window(paths: &[(LinkConfig, LinkConfig)]) -> usize {
    let rate: f64 = paths.iter().filter_map(|(forward, _)| forward.mean_rate()).sum();
    let trip = |path: &(LinkConfig, LinkConfig)| {
        let jitter = 3.0 * (path.0.jitter + path.1.jitter).as_secs_f64();
        round_trip(path) + jitter + queue(&path.0).1.min(1.0)
    };
    let longest = paths.iter().map(trip).fold(0.0, f64::max);
    ((2.0 * rate * longest / 8.0) as usize).clamp(256 << 10, 16 << 20)
}

/// Socket buffers with which plain TCP fills one path and half of its queue, so that the baseline
/// never overflows the queue.
pub fn plain_window(path: &(LinkConfig, LinkConfig)) -> usize {
    let rate = path.0.mean_rate().unwrap_or(1e9);
    let fill = rate * round_trip(path) / 8.0 + 0.5 * queue(&path.0).0;
    (fill as usize).clamp(16 << 10, 16 << 20)
}

/// The names of each host's interfaces, in the order of the paths.
fn interface_names(spec: &WorldSpec) -> [Vec<String>; 2] {
    [0, 1].map(|host| {
        let own = spec.interfaces.iter().filter(|interface| interface.host == host);
        own.map(|interface| interface.name.clone()).collect()
    })
}

/// The world of a measurement, for inspection.
pub fn world(scenario: &Scenario, subject: Subject) -> WorldSpec {
    let window = match subject {
        Subject::Path(path) => plain_window(&scenario.paths[path]),
        Subject::Mpip { .. } => window(&scenario.paths),
    };
    let spec =
        WorldSpec::disjoint(scenario.seed, &scenario.paths).lasting(WARM_UP + scenario.duration);
    let spec = match scenario.sender {
        Sender::Tcp(tcp) => WorldSpec { tcp, ..spec.with_bulk(WARM_UP, window) },
        Sender::Quic(control) => spec.with_quic(WARM_UP, control),
    };
    let mut spec = match subject {
        Subject::Path(path) => spec.plain(path),
        Subject::Mpip { scheduler, congestion_control, loss } => {
            let names = interface_names(&spec);
            spec.with_engines(|engine| {
                engine.scheduler = scheduler;
                engine.congestion_control = congestion_control;
                engine.loss_policy = loss.policy;
                let thresholds = names.iter().flat_map(|host| host.iter().zip(loss.thresholds));
                engine.interfaces.loss_thresholds =
                    thresholds.map(|(name, share)| (name.clone(), *share)).collect();
            })
        }
    };
    // A client and its gateway: only the client starts handshakes.
    if let System::Mpip(engine) = &mut spec.hosts[1].system {
        engine.knows_peer = false;
    }
    spec
}

/// Runs one measurement in virtual time.
pub fn measure(scenario: &Scenario, subject: Subject) -> Measurement {
    let mut world = World::new(world(scenario, subject), Observe::default());
    world.run_until(WARM_UP + scenario.from);
    let before = world.flow(0).bytes;
    let end = WARM_UP + scenario.duration;
    world.run_until(end);
    let counted = (scenario.duration - scenario.from) as f64 / SECOND as f64;
    let flow = world.flow(0);
    Measurement {
        goodput: (flow.bytes - before) as f64 * 8.0 / counted,
        path_bytes: (0..scenario.paths.len()).map(|path| world.interface_bytes(0, path)).collect(),
        longest_pause: Duration::from_nanos(flow.longest_pause),
        violations: world.violations().iter().map(ToString::to_string).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(rate: u64, delay_ms: u64) -> (LinkConfig, LinkConfig) {
        let config = LinkConfig {
            rate: Some(rate),
            delay: Duration::from_millis(delay_ms),
            queue: QueueLimit::Packets(100),
            ..LinkConfig::default()
        };
        (config.clone(), config)
    }

    fn scenario(paths: &[(LinkConfig, LinkConfig)]) -> Scenario {
        Scenario {
            paths: paths.to_vec(),
            sender: TcpControl::CUBIC.into(),
            duration: 20 * SECOND,
            from: 5 * SECOND,
            seed: 1,
        }
    }

    #[test]
    fn plain_tcp_fills_a_clean_link() {
        let scenario = scenario(&[path(10_000_000, 10), path(20_000_000, 5)]);
        for number in 0..2 {
            let found = measure(&scenario, Subject::Path(number));
            let limit = limit(&scenario.paths[number..=number]).expect("it has a rate");
            let share = found.goodput / limit;
            assert!((0.9..=1.001).contains(&share), "path {number}: {share}");
            assert!(found.violations.is_empty(), "{:?}", found.violations);
            assert!(found.path_bytes[1 - number] == 0 && found.path_bytes[number] > 0);
        }
    }

    #[test]
    fn a_measurement_repeats() {
        let mut paths = [path(5_000_000, 20)];
        paths[0].0.loss = mpip_link::Loss::Random(0.01);
        let scenario = scenario(&paths);
        assert_eq!(measure(&scenario, Subject::Path(0)), measure(&scenario, Subject::Path(0)));
        let other = Scenario { seed: 2, ..scenario.clone() };
        assert_ne!(measure(&scenario, Subject::Path(0)), measure(&other, Subject::Path(0)));
    }
}
