//! `[[path]]`: the label, cost, budget, loss threshold and upper rates of an interface.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use mpip_core::{PATH_COST_MAX, RateLimit};
use toml::Spanned;

use super::problems::Problems;
use super::raw;
use super::settings::{AMOUNT_UNITS, Budget, PathProperties, Period, RATE_UNITS};
use super::values::integer;

/// Permitted `cost`, as the protocol carries it.
const COST: RangeInclusive<i64> = 0..=PATH_COST_MAX as i64;
/// Longest label, in characters: it stands in columns of tables.
const LABEL_MAX: usize = 32;
/// Permitted budgets, bytes: 1 kB to 1,000 TB.
const BUDGET: RangeInclusive<u64> = 1_000..=1_000_000_000_000_000;

/// Permitted `loss_threshold`, parts per million: 0.0001 to 99 %.
const LOSS_THRESHOLD: RangeInclusive<u32> = 1..=990_000;
/// Parts per million of a percent.
const PPM_PER_PERCENT: f64 = 10_000.0;
/// Most decimal places of a percentage.
const PLACES: usize = 4;

/// The properties of each interface that has a `[[path]]` section.
pub(super) fn properties(
    paths: &[Spanned<raw::Path>],
    problems: &mut Problems<'_>,
) -> BTreeMap<String, PathProperties> {
    let mut found = BTreeMap::new();
    for path in paths {
        let properties = of(path.get_ref(), problems);
        let name = path.get_ref().interface.as_ref().map(|name| name.get_ref().clone());
        found.extend(name.map(|name| (name, properties)));
    }
    found
}

fn of(path: &raw::Path, problems: &mut Problems<'_>) -> PathProperties {
    let raw::Path { label, cost, metered, budget, loss_threshold, .. } = path;
    if let Some(budget) = budget.as_ref().filter(|_| !metered) {
        let message = "budget: expected `metered = true` beside it".to_owned();
        problems.add(&budget.span(), message);
    }
    let mut rate = |key: &str, text: &Option<Spanned<String>>| {
        let text = text.as_ref()?;
        let parsed = parse_rate(key, text.get_ref());
        parsed.map_or_else(|message| problems.none(&text.span(), message), Some)
    };
    let (rate_up, rate_down) = (rate("rate_up", &path.rate_up), rate("rate_down", &path.rate_down));
    PathProperties {
        rate_up,
        rate_down,
        label: label.as_ref().and_then(|label| checked_label(label, problems)),
        cost: cost.as_ref().and_then(|cost| integer(cost, "cost", COST, problems)).unwrap_or(0),
        metered: *metered,
        budget: budget.as_ref().and_then(|text| {
            let parsed = parse_budget(text.get_ref());
            parsed.map_or_else(|message| problems.none(&text.span(), message), Some)
        }),
        loss_threshold: loss_threshold.as_ref().and_then(|text| {
            let parsed = parse_loss_threshold(text.get_ref());
            parsed.map_or_else(|message| problems.none(&text.span(), message), Some)
        }),
    }
}

/// A `loss_threshold` like `1 %` or `0.01 %`, in parts per million.
///
/// # Errors
///
/// What was expected and what was found.
pub fn parse_loss_threshold(text: &str) -> Result<u32, String> {
    let wrong = || {
        format!(
            "loss_threshold: expected a percentage from 0.0001 % to 99 % like `1 %` or `0.01 %`, \
             found `{text}`"
        )
    };
    let number = text.strip_suffix('%').ok_or_else(wrong)?.trim_end();
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let percent: f64 = number.parse().ok().filter(|_| plain).ok_or_else(wrong)?;
    let share = (percent * PPM_PER_PERCENT).round();
    let range = f64::from(*LOSS_THRESHOLD.start())..=f64::from(*LOSS_THRESHOLD.end());
    let digits = number.split_once('.').map_or(0, |(_, digits)| digits.len());
    if digits > PLACES || !range.contains(&share) { Err(wrong()) } else { Ok(share as u32) }
}

/// An upper rate like `20 Mbit/s`, the value of `key`.
///
/// # Errors
///
/// What was expected and what was found.
pub(super) fn parse_rate(key: &str, text: &str) -> Result<RateLimit, String> {
    let expected = || {
        format!(
            "{key}: expected a rate in kbit/s, Mbit/s or Gbit/s like `20 Mbit/s`, found `{text}`"
        )
    };
    let unit = RATE_UNITS.iter().find_map(|(unit, kbps)| Some((text.strip_suffix(unit)?, *kbps)));
    let (number, unit) = unit.ok_or_else(expected)?;
    let number = number.trim();
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value: f64 = number.parse().ok().filter(|_| plain).ok_or_else(expected)?;
    // What is larger than the range saturates beyond it.
    RateLimit::new((value * unit as f64).round() as u32)
        .ok_or_else(|| format!("{key}: expected 64 kbit/s to 1000 Gbit/s, found `{text}`"))
}

fn checked_label(label: &Spanned<String>, problems: &mut Problems<'_>) -> Option<String> {
    let text = label.get_ref();
    let visible = text.trim() == text && !text.chars().any(char::is_control);
    if visible && (1..=LABEL_MAX).contains(&text.chars().count()) {
        return Some(text.clone());
    }
    let message = format!(
        "label: expected 1 to {LABEL_MAX} visible characters without a space at either end, found \
         {text:?}"
    );
    problems.none(&label.span(), message)
}

/// A budget like `2 GB/day`.
fn parse_budget(text: &str) -> Result<Budget, String> {
    let expected = || {
        format!(
            "budget: expected an amount (kB, MB, GB or TB) and a period like `2 GB/day` or \
             `50 GB/month`, found `{text}`"
        )
    };
    let (amount, period) = text.split_once('/').ok_or_else(expected)?;
    let period = Period::from_name(period.trim()).ok_or_else(expected)?;
    let amount = amount.trim();
    let unit =
        AMOUNT_UNITS.iter().find_map(|(unit, bytes)| Some((amount.strip_suffix(unit)?, *bytes)));
    let (number, unit) = unit.ok_or_else(expected)?;
    let number = number.trim_end();
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value: f64 = number.parse().ok().filter(|_| plain).ok_or_else(expected)?;
    let bytes = (value * unit as f64).round() as u64;
    if !BUDGET.contains(&bytes) {
        return Err(format!("budget: expected 1 kB to 1000 TB, found `{text}`"));
    }
    Ok(Budget { bytes, period })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_thresholds_are_percentages() {
        for (text, share) in
            [("1 %", 10_000), ("0.01 %", 100), ("0.0001%", 1), ("99 %", 990_000), (".5 %", 5_000)]
        {
            assert_eq!(parse_loss_threshold(text), Ok(share), "{text}");
        }
        let wrong = [
            "",
            "%",
            "1",
            "0.01",
            "-1 %",
            "0 %",
            "99.1 %",
            "0.00001 %",
            "0.10001 %",
            "1e1 %",
            "inf %",
            "1.0.0 %",
            "1 percent",
        ];
        for text in wrong {
            let message = parse_loss_threshold(text).expect_err(text);
            assert!(message.starts_with("loss_threshold: expected a percentage"), "{message}");
            assert!(message.ends_with(&format!("found `{text}`")), "{message}");
        }
    }

    #[test]
    fn rates_are_a_number_in_decimal_units() {
        for (text, kbps) in [
            ("20 Mbit/s", 20_000),
            ("20Mbit/s", 20_000),
            ("0.5 Mbit/s", 500),
            ("64 kbit/s", 64),
            ("2.5 Gbit/s", 2_500_000),
            ("1000 Gbit/s", 1_000_000_000),
        ] {
            assert_eq!(parse_rate("rate_up", text).map(RateLimit::kbps), Ok(kbps), "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused_with_what_was_expected() {
        for text in [
            "",
            "20",
            "Mbit/s",
            "20 mbit/s",
            "20 MB/s",
            "20 Mbit",
            "-1 Mbit/s",
            "1e3 Mbit/s",
            "inf Mbit/s",
            "1.2.3 Mbit/s",
            "20 Mbps",
        ] {
            let message = parse_rate("rate_down", text).expect_err(text);
            let expected =
                "rate_down: expected a rate in kbit/s, Mbit/s or Gbit/s like `20 Mbit/s`";
            assert_eq!(message, format!("{expected}, found `{text}`"));
        }
        for text in ["0 Mbit/s", "63 kbit/s", "1001 Gbit/s", "99999999999999999999 Gbit/s"] {
            let message = parse_rate("rate_up", text).expect_err(text);
            let expected = "rate_up: expected 64 kbit/s to 1000 Gbit/s";
            assert_eq!(message, format!("{expected}, found `{text}`"));
        }
    }

    #[test]
    fn budgets_are_an_amount_in_decimal_units_and_a_period() {
        for (text, bytes, period) in [
            ("2 GB/day", 2_000_000_000, Period::Day),
            ("50GB/month", 50_000_000_000, Period::Month),
            ("1.5 TB / month", 1_500_000_000_000, Period::Month),
            ("1 kB/day", 1_000, Period::Day),
            ("0.3 MB/day", 300_000, Period::Day),
        ] {
            assert_eq!(parse_budget(text), Ok(Budget { bytes, period }), "{text}");
        }
    }

    #[test]
    fn what_is_no_budget_is_refused_with_what_was_expected() {
        for text in [
            "",
            "2 GB",
            "2 GB/week",
            "GB/day",
            "2/day",
            "-2 GB/day",
            "2 GiB/day",
            "1e3 GB/day",
            "2 gb/day",
            "inf GB/day",
            "1.2.3 GB/day",
            ". GB/day",
        ] {
            let message = parse_budget(text).expect_err(text);
            assert!(message.contains("like `2 GB/day`"), "{message}");
            assert!(message.ends_with(&format!("found `{text}`")), "{message}");
        }
        for text in ["0 GB/day", "0.9 kB/day", "1001 TB/month", "99999999999999999999 TB/day"] {
            let message = parse_budget(text).expect_err(text);
            assert!(message.starts_with("budget: expected 1 kB to 1000 TB"), "{message}");
        }
    }
}
