//! HyStart++: ends slow start before it overflows the queue (RFC 9406).

use core::time::Duration;

use super::RateSample;

/// RFC 9406, section 4.3.
const MIN_RTT_THRESHOLD: Duration = Duration::from_millis(4);
const MAX_RTT_THRESHOLD: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const RTT_SAMPLES: u32 = 8;
pub(super) const CSS_GROWTH_DIVISOR: f64 = 4.0;
const CSS_ROUNDS: u32 = 5;

/// What slow start has to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Go on with slow start.
    Grow {
        /// What to divide acknowledged bytes by.
        divisor: f64,
    },
    /// A queue builds up: congestion avoidance from here.
    Leave,
}

#[derive(Debug, Default)]
pub(super) struct HyStart {
    round_end: u64,
    last_min: Option<Duration>,
    current_min: Option<Duration>,
    samples: u32,
    /// Conservative slow start: the RTT that started it, and its complete rounds.
    conservative: Option<(Duration, u32)>,
}

impl HyStart {
    /// Processes one sample in slow start.
    pub(super) fn on_feedback(&mut self, sample: &RateSample) -> Verdict {
        if sample.prior_delivered >= self.round_end {
            self.round_end = sample.delivered;
            self.last_min = self.current_min.take();
            self.samples = 0;
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds += 1;
                if *rounds >= CSS_ROUNDS {
                    return Verdict::Leave;
                }
            }
        }
        if let Some(rtt) = sample.rtt {
            self.current_min = Some(self.current_min.map_or(rtt, |min| min.min(rtt)));
            self.samples += 1;
        }
        if self.samples >= RTT_SAMPLES
            && let (Some(current), Some(last)) = (self.current_min, self.last_min)
        {
            let threshold = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESHOLD, MAX_RTT_THRESHOLD);
            match self.conservative {
                None if current >= last + threshold => self.conservative = Some((current, 0)),
                Some((baseline, _)) if current < baseline => self.conservative = None,
                _ => {}
            }
        }
        Verdict::Grow {
            divisor: if self.conservative.is_some() { CSS_GROWTH_DIVISOR } else { 1.0 },
        }
    }
}
