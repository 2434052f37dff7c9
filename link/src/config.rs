//! Settings of a link, and changes of them.

use core::time::Duration;

use crate::trace::Trace;

/// Bound of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// In packets.
    Packets(u32),
    /// In bytes, the link's overhead of each packet included.
    Bytes(u32),
}

/// Parameters of CoDel (RFC 8289, section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Codel {
    /// Acceptable standing queue delay; 5 ms by the RFC.
    pub target: Duration,
    /// Time for which the delay must stay above the target; 100 ms by the RFC.
    pub interval: Duration,
}

impl Default for Codel {
    fn default() -> Self {
        Self { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

/// Queue management.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Discipline {
    /// Drops packets that do not fit.
    #[default]
    TailDrop,
    /// Drops packets that do not fit, and packets at the head by CoDel. Does not mark.
    Codel(Codel),
}

/// Random loss on the link itself, after serialisation. Probabilities are 0..=1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Loss {
    /// No packet is lost.
    #[default]
    None,
    /// Each packet is lost with this probability, independently.
    Random(f64),
    /// The Gilbert-Elliott model: a good and a bad state; the state may change before each packet.
    GilbertElliott {
        /// Probability to go from good to bad, per packet (netem's `p`).
        good_to_bad: f64,
        /// Probability to go from bad to good, per packet (netem's `r`).
        bad_to_good: f64,
        /// Loss in the good state (netem's `1-k`), usually 0.
        good_loss: f64,
        /// Loss in the bad state (netem's `1-h`), usually 1.
        bad_loss: f64,
    },
}

impl Loss {
    /// The long-term share of packets that are lost, 0..=1.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Random(p) => p,
            Self::GilbertElliott { good_to_bad, bad_to_good, good_loss, bad_loss } => {
                let sum = good_to_bad + bad_to_good;
                if sum == 0.0 {
                    return good_loss;
                }
                (bad_to_good * good_loss + good_to_bad * bad_loss) / sum
            }
        }
    }
}

/// The settings of one direction of a link. The default is a perfect wire of 1500 bytes MTU with
/// a queue of 1000 packets.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// Rate in bit/s, at least 1; `None` for no limit. Ignored if there is a trace.
    pub rate: Option<u64>,
    /// Delivery opportunities that replace the rate.
    pub trace: Option<Trace>,
    /// Bytes added to each packet for the rate, the trace and limits in bytes. 14 by default.
    pub overhead: u32,
    /// Bound of the queue.
    pub queue: QueueLimit,
    /// Queue management.
    pub discipline: Discipline,
    /// Propagation delay.
    pub delay: Duration,
    /// Standard deviation of the delay.
    pub jitter: Duration,
    /// Whether packets stay in order in spite of jitter.
    pub in_order: bool,
    /// Loss on the link.
    pub loss: Loss,
    /// Probability that a packet arrives twice (the copy has a delay of its own).
    pub duplicate: f64,
    /// Probability that one bit of a packet is flipped.
    pub corrupt: f64,
    /// Largest IP packet in bytes; larger ones are dropped.
    pub mtu: u32,
    /// Whether the link is up. When it goes down it loses the packets that it holds, and while it
    /// is down it drops those that arrive.
    pub up: bool,
    /// Whether packets that arrive are dropped silently. Those that the link holds are delivered.
    pub blackhole: bool,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate: None,
            trace: None,
            overhead: 14,
            queue: QueueLimit::Packets(1000),
            discipline: Discipline::TailDrop,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            in_order: false,
            loss: Loss::None,
            duplicate: 0.0,
            corrupt: 0.0,
            mtu: 1500,
            up: true,
            blackhole: false,
        }
    }
}

impl LinkConfig {
    /// The mean rate of the trace if there is one, else the rate, in bit/s.
    pub fn mean_rate(&self) -> Option<f64> {
        match (&self.trace, self.rate) {
            (Some(trace), _) => Some(trace.mean_rate()),
            (None, Some(rate)) => Some(rate as f64),
            (None, None) => None,
        }
    }

    /// Whether packets that enter now can arrive at all.
    pub fn passes(&self) -> bool {
        self.up && !self.blackhole
    }
}

/// A change of settings. Those that are `None` do not change.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Change {
    /// New rate in bit/s; `Some(None)` for no limit.
    pub rate: Option<Option<u64>>,
    /// New queue bound.
    pub queue: Option<QueueLimit>,
    /// New propagation delay.
    pub delay: Option<Duration>,
    /// New standard deviation of the delay.
    pub jitter: Option<Duration>,
    /// New loss model.
    pub loss: Option<Loss>,
    /// New probability of duplication.
    pub duplicate: Option<f64>,
    /// New probability of corruption.
    pub corrupt: Option<f64>,
    /// New MTU in bytes.
    pub mtu: Option<u32>,
    /// Brings the link up or down.
    pub up: Option<bool>,
    /// Turns the silent blackhole on or off.
    pub blackhole: Option<bool>,
}

impl Change {
    /// Applies the change to `config`.
    pub fn apply(&self, config: &mut LinkConfig) {
        fn set<T: Clone>(target: &mut T, value: Option<&T>) {
            if let Some(value) = value {
                *target = value.clone();
            }
        }
        set(&mut config.rate, self.rate.as_ref());
        set(&mut config.queue, self.queue.as_ref());
        set(&mut config.delay, self.delay.as_ref());
        set(&mut config.jitter, self.jitter.as_ref());
        set(&mut config.loss, self.loss.as_ref());
        set(&mut config.duplicate, self.duplicate.as_ref());
        set(&mut config.corrupt, self.corrupt.as_ref());
        set(&mut config.mtu, self.mtu.as_ref());
        set(&mut config.up, self.up.as_ref());
        set(&mut config.blackhole, self.blackhole.as_ref());
    }
}
