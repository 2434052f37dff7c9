//! Rate limit for log lines that remote nodes can trigger. The next line says how many were left
//! out.

use core::fmt;
use core::time::Duration;

use mpip_types::Instant;

/// Burst of lines: as many as a host with many interfaces causes.
const BURST: u32 = 8;
/// Average interval between lines: 144 lines a day.
const PAUSE: Duration = Duration::from_secs(600);

/// The rate limit of one kind of line.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// When a full [`BURST`] is available again.
    full_at: Instant,
    left_out: u64,
}

/// The number of lines that were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut(u64);

impl Repeats {
    /// Whether the next line may be written, and the number of lines left out since the last one.
    pub(crate) fn permit(&mut self, now: Instant) -> Option<LeftOut> {
        if now < self.full_at - PAUSE * (BURST - 1) {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.full_at = self.full_at.max(now) + PAUSE;
        Some(LeftOut(core::mem::take(&mut self.left_out)))
    }
}

impl fmt::Display for LeftOut {
    /// Empty, or a remark to append to the line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => f.write_str(" (1 line like this was left out)"),
            count => write!(f, " ({count} lines like this were left out)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_reduced_to_few_that_count_the_others() {
        let mut repeats = Repeats::default();
        let hour = Instant::from_millis(3_600_000);
        let lines: Vec<_> = (0..36_000_u64)
            .filter_map(|tenth| repeats.permit(hour + Duration::from_millis(tenth * 100)))
            .collect();
        // Eight at once, and one per ten minutes of the hour.
        assert_eq!(lines.len(), 8 + 5);
        let told: u64 = lines.iter().map(|LeftOut(count)| count).sum();
        assert_eq!((lines[8], told), (LeftOut(5_992), 30_000 - 12));
        assert_eq!(lines[7].to_string(), "");
        assert_eq!(lines[8].to_string(), " (5992 lines like this were left out)");
        let later = hour + PAUSE * 20;
        assert!((0..BURST).all(|_| repeats.permit(later).is_some()));
        assert_eq!(repeats.permit(later), None);
    }
}
