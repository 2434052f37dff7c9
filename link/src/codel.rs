//! CoDel's control law (RFC 8289, section 5), without the queue.

use core::time::Duration;

use crate::config::Codel;

#[derive(Debug, Default)]
pub(crate) struct CodelState {
    first_above: Option<Duration>,
    drop_next: Duration,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl CodelState {
    /// Whether to drop the packet at the head, which has waited for `sojourn`. `queued_bytes` wait
    /// behind it. After a drop, call it again for the next head.
    pub(crate) fn drops(
        &mut self,
        params: Codel,
        now: Duration,
        sojourn: Duration,
        queued_bytes: u64,
    ) -> bool {
        let above = self.stays_above(params, now, sojourn, queued_bytes);
        if !above {
            self.dropping = false;
            return false;
        }
        if self.dropping {
            if now < self.drop_next {
                return false;
            }
            self.count = self.count.saturating_add(1);
            self.drop_next += control_law(params.interval, self.count);
            return true;
        }
        self.dropping = true;
        let delta = self.count - self.last_count.min(self.count);
        let recent = now < self.drop_next + params.interval * 16;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = now + control_law(params.interval, self.count);
        self.last_count = self.count;
        true
    }

    fn stays_above(
        &mut self,
        params: Codel,
        now: Duration,
        sojourn: Duration,
        queued_bytes: u64,
    ) -> bool {
        const ONE_PACKET: u64 = 1514;
        if sojourn < params.target || queued_bytes <= ONE_PACKET {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(now + params.interval);
                false
            }
            Some(at) => now >= at,
        }
    }
}

fn control_law(interval: Duration, count: u32) -> Duration {
    interval.div_f64(f64::from(count).sqrt())
}
