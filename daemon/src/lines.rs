//! How many lines of one kind the log takes.

use std::time::Duration;

/// So many lines at once, and one more after each interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    pub(crate) lines: u32,
    pub(crate) interval: Duration,
}

/// What is left of the lines of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines {
    allowance: Allowance,
    left: u32,
    /// Since when that is all, since the Unix epoch.
    since: Duration,
    left_out: u64,
}

impl Lines {
    /// All of them are left at `unix_time`.
    pub(crate) fn new(allowance: Allowance, unix_time: Duration) -> Self {
        Self { allowance, left: allowance.lines, since: unix_time, left_out: 0 }
    }

    /// Whether a line may be written, and how many were not since the last one.
    pub(crate) fn permit(&mut self, unix_time: Duration) -> Option<u64> {
        let Allowance { lines, interval } = self.allowance;
        // A wall clock that was set back must not silence them.
        let more = unix_time.abs_diff(self.since).as_millis() / interval.as_millis();
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(lines);
            (self.left, self.since) = (self.left.saturating_add(more).min(lines), unix_time);
        }
        let Some(left) = self.left.checked_sub(1) else {
            self.left_out += 1;
            return None;
        };
        self.left = left;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_becomes_few_lines_whatever_the_clock_does() {
        let start = Duration::from_secs(1_000_000);
        let allowance = Allowance { lines: 200, interval: Duration::from_millis(500) };
        let mut lines = Lines::new(allowance, start);
        let millis = Duration::from_millis;
        let flood = (0..60_000).map(|ms| lines.permit(start + millis(ms)));
        let flood: Vec<u64> = flood.flatten().collect();
        // As many as may be at once, and two in each second of a minute.
        assert_eq!(flood.len(), 200 + 119);
        assert_eq!(flood[..200], [0; 200]);
        assert_eq!(flood[201..], [499; 118]);
        let told: u64 = flood.iter().sum::<u64>() + lines.left_out;
        assert_eq!(told, 60_000 - 319);
        let an_hour_ago = start - Duration::from_secs(3_600);
        assert_eq!(lines.permit(an_hour_ago), Some(499), "the clock was set back");
        assert_eq!((1..200).filter(|_| lines.permit(an_hour_ago) == Some(0)).count(), 199);
        assert_eq!(lines.permit(an_hour_ago), None);
    }
}
