//! Durations, amounts and rates as text, with a unit that fits their size.

use std::time::{SystemTime, UNIX_EPOCH};

/// A duration given in milliseconds, with a fitting unit; `-` without one.
pub(crate) fn duration(ms: Option<f64>) -> String {
    let Some(ms) = ms else { return "-".to_owned() };
    let seconds = ms / 1e3;
    match ms {
        _ if ms < 0.9995 => format!("{:.0} µs", ms * 1e3),
        _ if ms < 9.995 => format!("{ms:.2} ms"),
        _ if ms < 99.95 => format!("{ms:.1} ms"),
        _ if ms < 999.5 => format!("{ms:.0} ms"),
        _ if seconds < 99.5 => format!("{seconds:.0} s"),
        _ if seconds < 5_970.0 => format!("{:.0} min", seconds / 60.0),
        _ if seconds < 356_400.0 => format!("{:.0} h", seconds / 3_600.0),
        _ => format!("{:.0} d", seconds / 86_400.0),
    }
}

/// `value` with a decimal prefix: k is 1,000.
fn scaled(value: u64, unit: &str) -> String {
    let mut scaled = value as f64;
    for prefix in ["", "k", "M", "G", "T"] {
        if scaled < 999.5 || prefix == "T" {
            let digits = usize::from(scaled < 99.95 && !prefix.is_empty());
            return format!("{scaled:.digits$} {prefix}{unit}");
        }
        scaled /= 1e3;
    }
    unreachable!("the last prefix takes everything")
}

/// An amount of data, in bytes.
pub(crate) fn bytes(value: u64) -> String {
    scaled(value, "B")
}

/// A data rate, in bits per second.
pub(crate) fn rate(bps: u64) -> String {
    scaled(bps, "bit/s")
}

/// A share in percent, with two significant digits and without needless zeros: `10 %`, `0.01 %`.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    // 0.0001 % is the smallest threshold of loss.
    let places = (1.0 - percent.abs().max(0.000_1).log10().floor()).clamp(0.0, 5.0);
    let text = format!("{percent:.0$}", places as usize);
    match text.contains('.') {
        true => format!("{} %", text.trim_end_matches('0').trim_end_matches('.')),
        false => format!("{text} %"),
    }
}

/// Seconds since 1970-01-01 UTC.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_the_digits_that_count() {
        for (share, expected) in [
            (0.1, "10 %"),
            (0.015_3, "1.5 %"),
            (0.01, "1 %"),
            (0.000_1, "0.01 %"),
            (0.000_001, "0.0001 %"),
            (0.0, "0 %"),
        ] {
            assert_eq!(percent(share), expected);
        }
    }

    #[test]
    fn numbers_get_a_unit_that_fits_their_size() {
        for (value, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (99_960, "100 kB"),
            (u64::MAX, "18446744 TB"),
        ] {
            assert_eq!(bytes(value), expected);
        }
        for (ms, expected) in [
            (0.0421, "42 µs"),
            (0.9999, "1.00 ms"),
            (123.4, "123 ms"),
            (999.7, "1 s"),
            (120_000.0, "2 min"),
            (90_000_000.0, "25 h"),
            (864_000_000.0, "10 d"),
        ] {
            assert_eq!(duration(Some(ms)), expected);
        }
        assert_eq!(duration(None), "-");
    }
}
