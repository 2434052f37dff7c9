//! Log lines that others cause: some at once, then one in a while that says how many there were.

use core::fmt;
use core::time::Duration;

use mpip_types::Instant;

/// Lines at once, after a pause: what a host with many interfaces has to say.
const BURST: u32 = 8;
/// Time for each line in the long run: 144 in a day.
const PAUSE: Duration = Duration::from_secs(600);

/// What is left of the lines of one kind that may be written.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// When as many as [`BURST`] may be written again.
    full_at: Instant,
    left_out: u64,
}

/// How many lines were not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut(u64);

impl Repeats {
    /// Whether the next line may be written, and how many were not since the last one.
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
    /// Nothing, or a remark for the end of a line.
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
    fn a_flood_of_lines_becomes_few_that_say_how_many_there_were() {
        let mut repeats = Repeats::default();
        let hour = Instant::from_millis(3_600_000);
        let lines: Vec<_> = (0..36_000_u64)
            .filter_map(|tenth| repeats.permit(hour + Duration::from_millis(tenth * 100)))
            .collect();
        // Eight at once, and one in each ten minutes of the hour.
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
