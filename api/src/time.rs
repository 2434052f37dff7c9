//! Points in time as text.

/// Milliseconds since the Unix epoch as date and time of day in UTC (RFC 3339), for logs.
///
/// Times before 1970 are shown as its beginning, times after 9999 as its end.
pub fn rfc3339(unix_time_ms: f64) -> String {
    // From 1970 until the year 9999; the cast saturates.
    let ms = unix_time_ms.clamp(0.0, 253_402_300_799_999.0) as u64;
    let (days, ms) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = civil(days);
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    let ms = ms % 1_000;
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z")
}

/// Year, month and day of the proleptic Gregorian calendar, from days since 1970-01-01
/// (`civil_from_days` of H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date_1() {
        for (ms, expected) in [
            (0.0, "1970-01-01T00:00:00.000Z"),
            (951_827_696_789.0, "2000-02-29T12:34:56.789Z"),
            (1_709_251_199_999.0, "2024-02-29T23:59:59.999Z"),
            (1_735_689_600_000.0, "2025-01-01T00:00:00.000Z"),
            (4_107_542_400_000.0, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(ms), expected);
        }
    }
}
