//! How many bytes a path carries in a period, of late.

/// Periods over which it is averaged.
const AVERAGE: u64 = 8;

/// Moving average of the bytes carried in a period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentBytes {
    /// All bytes until the end of the last period.
    carried: u64,
    average: u64,
}

impl RecentBytes {
    /// Of a path that has carried so many bytes before.
    pub(crate) fn new(carried: u64) -> Self {
        Self { carried, average: 0 }
    }

    /// A period has ended, and the path has carried `carried` bytes in all.
    pub(crate) fn end_period(&mut self, carried: u64) {
        let sent = carried.saturating_sub(core::mem::replace(&mut self.carried, carried));
        self.average = (self.average * (AVERAGE - 1) + sent) / AVERAGE;
    }

    /// Bytes in a period.
    pub(crate) fn average(self) -> u64 {
        self.average
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_what_periods_carry() {
        let mut recent = RecentBytes::new(5_000);
        recent.end_period(5_800);
        assert_eq!(recent.average(), 100);
        for period in 1..=100 {
            recent.end_period(5_800 + period * 800);
        }
        assert!((790..=800).contains(&recent.average()), "{}", recent.average());
        recent.end_period(0);
        assert!(recent.average() < 700, "a counter that began anew carried nothing");
    }
}
