//! Days of the Gregorian calendar, counted from 1970-01-01 (UTC).
//!
//! Years begin in March here, so that the day that comes every four years is the last one (H.
//! Hinnant, "chrono-Compatible Low-Level Date Algorithms", 2013).

/// Days from 0000-03-01 to 1970-01-01.
const EPOCH: u64 = 719_468;
/// Days of 400 years, after which the calendar repeats.
const ERA: u64 = 146_097;

/// The day as `YYYY-MM-DD`.
pub(crate) fn show(day: u32) -> String {
    let days = u64::from(day) + EPOCH;
    let (era, of_era) = (days / ERA, days % ERA);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{date:02}")
}

/// The day that `text` names as `YYYY-MM-DD`, not before 1970.
pub(crate) fn parse(text: &str) -> Option<u32> {
    let mut parts = text.split('-');
    let (year, month, date) = (parts.next()?, parts.next()?, parts.next()?);
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let lengths = (4..=8).contains(&year.len()) && month.len() == 2 && date.len() == 2;
    if !lengths || parts.next().is_some() || ![year, month, date].into_iter().all(digits) {
        return None;
    }
    let [year, month, date]: [u64; 3] =
        [year.parse().ok()?, month.parse().ok()?, date.parse().ok()?];
    if !(1..=12).contains(&month) || !(1..=31).contains(&date) {
        return None;
    }
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let year = year.checked_sub(u64::from(month <= 2))?;
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * from_march + 2) / 5 + date - 1;
    let days = era * ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    let day = u32::try_from(days.checked_sub(EPOCH)?).ok()?;
    // A 31st of a shorter month is none.
    (show(day) == text).then_some(day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_shown_and_read() {
        for (day, text) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_781, "2026-11-24"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!((show(day), parse(text)), (text.to_owned(), Some(day)));
        }
        for day in (0..3_000_000).step_by(37).chain([u32::MAX]) {
            assert_eq!(parse(&show(day)), Some(day), "{}", show(day));
        }
    }

    #[test]
    fn what_is_no_day_is_refused() {
        for text in [
            "",
            "2026",
            "2026-11",
            "2026-11-24-1",
            "2026-1-24",
            "26-11-24",
            "2026-13-01",
            "2026-00-10",
            "2026-02-29",
            "2026-04-31",
            "2026-11-00",
            "1969-12-31",
            "0000-01-01",
            "+026-11-24",
            "2026-11-2x",
            "99999999-01-01",
            "123456789-01-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
