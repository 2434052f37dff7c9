//! Quantities with units: `"9.3 Mbit/s"`, `"5 ms"`, `"100 packets"`, `"0.1 %"`.

use core::time::Duration;

use mpip_link::QueueLimit;

/// Splits `"9.3 Mbit/s"` into 9.3 and `Mbit/s`.
fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_'))).unwrap_or(text.len());
    let number: f64 = text[..end]
        .replace('_', "")
        .parse()
        .map_err(|_| format!("expected a number and a unit, found {text:?}"))?;
    Ok((number, text[end..].trim()))
}

/// A rate in bit/s from `bit/s`, `kbit/s`, `Mbit/s`, `Gbit/s` (powers of 1000, any case).
///
/// # Errors
/// What was expected and what was found.
pub(crate) fn parse_rate(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let scale = match unit.to_ascii_lowercase().as_str() {
        "bit/s" => 1.0,
        "kbit/s" => 1e3,
        "mbit/s" => 1e6,
        "gbit/s" => 1e9,
        _ => return Err(format!("expected bit/s, kbit/s, Mbit/s or Gbit/s, found {text:?}")),
    };
    let rate = (number * scale).round();
    if rate < 1.0 {
        return Err(format!("expected a rate of at least 1 bit/s, found {text:?}"));
    }
    Ok(rate as u64)
}

/// A duration from `ns`, `us`, `ms`, `s`, `min`, `h`.
///
/// # Errors
/// What was expected and what was found.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let nanos = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3600e9,
        _ => return Err(format!("expected ns, us, ms, s, min or h, found {text:?}")),
    };
    Ok(Duration::from_nanos((number * nanos).round() as u64))
}

/// A probability 0..=1 from `"0.1 %"` or a bare number.
///
/// # Errors
/// What was expected and what was found.
pub(crate) fn parse_probability(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text)?;
    let probability = match unit {
        "%" => number / 100.0,
        "" => number,
        _ => return Err(format!("expected a number or percent, found {text:?}")),
    };
    if (0.0..=1.0).contains(&probability) {
        Ok(probability)
    } else {
        Err(format!("expected a probability of 0 to 1 or 0 % to 100 %, found {text:?}"))
    }
}

/// A size in bytes from `bytes`, `kB`, `MB`, `GB` (powers of 1000), `KiB`, `MiB`, `GiB`.
///
/// # Errors
/// What was expected and what was found.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let scale = match unit {
        "byte" | "bytes" | "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("expected bytes, kB, MB, GB, KiB, MiB or GiB, found {text:?}")),
    };
    Ok((number * scale).round() as u64)
}

/// A queue limit from `"100 packets"` or a size in bytes.
///
/// # Errors
/// What was expected and what was found.
pub(crate) fn parse_queue(text: &str) -> Result<QueueLimit, String> {
    let too_large = |_| format!("expected at most {} packets or bytes, found {text:?}", u32::MAX);
    let (number, unit) = split(text)?;
    if matches!(unit, "packet" | "packets") {
        return u32::try_from(number as u64).map(QueueLimit::Packets).map_err(too_large);
    }
    u32::try_from(parse_bytes(text)?).map(QueueLimit::Bytes).map_err(too_large)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_with_their_units() {
        assert_eq!(parse_rate("9.3 Mbit/s"), Ok(9_300_000));
        assert_eq!(parse_rate("40mbit/s"), Ok(40_000_000));
        assert_eq!(parse_duration("0.5 ms"), Ok(Duration::from_micros(500)));
        assert_eq!(parse_duration("2 min"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_probability("0.1 %"), Ok(0.001));
        assert_eq!(parse_probability("0.25"), Ok(0.25));
        assert_eq!(parse_queue("100 packets"), Ok(QueueLimit::Packets(100)));
        assert_eq!(parse_queue("151_400 bytes"), Ok(QueueLimit::Bytes(151_400)));
        assert_eq!(parse_bytes("2 MB"), Ok(2_000_000));
        assert_eq!(parse_bytes("1 MiB"), Ok(1_048_576));
    }

    #[test]
    fn wrong_units_say_what_was_expected() {
        let error = parse_rate("5 ms").expect_err("no rate");
        assert!(error.contains("Mbit/s") && error.contains("5 ms"), "{error}");
        assert!(parse_rate("0 bit/s").is_err());
        assert!(parse_rate("-3 Mbit/s").is_err());
        assert!(parse_duration("5").is_err());
        assert!(parse_probability("101 %").is_err());
        assert!(parse_queue("100 pigeons").is_err());
        assert!(parse_queue("9 GB").is_err());
    }
}
