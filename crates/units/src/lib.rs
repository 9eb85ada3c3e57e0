//! Parses and formats sizes, rates and durations for people.

use std::time::Duration;

/// Parses a size such as `1KiB`, `64 MiB`, `1GB` or `1000`; returns bytes.
///
/// # Errors
/// The text is malformed or out of range; the error names both text and expectation.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let scale: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err(bad(text, "a size such as 1KiB, 64MiB or 1GB")),
    };
    let bytes: u64 =
        number.parse().map_err(|_| bad(text, "a size: a whole number and a unit, such as 1KiB"))?;
    bytes.checked_mul(scale).ok_or_else(|| bad(text, "a size below 16 EiB"))
}

/// Parses a rate such as `100mbit`, `2.5 gbit` or `9600bit`; returns bits per second.
///
/// # Errors
/// The text is malformed or out of range; the error names both text and expectation.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let unit = unit.to_ascii_lowercase();
    let scale = match unit.strip_suffix("/s").unwrap_or(&unit) {
        "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => return Err(bad(text, "a rate such as 10mbit, 100mbit or 1gbit")),
    };
    match number.parse::<f64>() {
        Ok(value) if value * scale >= 1.0 && value * scale <= 1e12 => {
            Ok((value * scale).round() as u64)
        }
        _ => Err(bad(text, "a rate above 0 and up to 1000gbit, such as 100mbit")),
    }
}

/// Parses a duration such as `25ms`, `1.5s` or `200us`.
///
/// # Errors
/// The text is malformed or out of range; the error names both text and expectation.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let scale = match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(bad(text, "a duration such as 25ms")),
    };
    match number.parse::<f64>() {
        Ok(value) if (0.0..=3600.0).contains(&(value * scale)) => {
            Ok(Duration::from_secs_f64(value * scale))
        }
        _ => Err(bad(text, "a duration from 0 to an hour, such as 25ms")),
    }
}

/// Parses a percentage such as `1%` or `0.1 %`; returns per cent.
///
/// # Errors
/// The text is malformed or out of range; the error names both text and expectation.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text);
    match number.parse::<f64>() {
        Ok(value) if unit == "%" && (0.0..=100.0).contains(&value) => Ok(value),
        _ => Err(bad(text, "a percentage such as 1%")),
    }
}

/// A unit's name, and its bytes or bits per second.
type Unit = (&'static str, u64);

const BINARY: [Unit; 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
const DECIMAL: [Unit; 3] = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)];

/// Formats bytes: `1 KiB`, `256 MiB`, `1.5 GiB`.
pub fn size(bytes: u64) -> String {
    largest(BINARY, bytes).map_or_else(|| format!("{bytes} B"), |unit| size_in(unit, bytes))
}

/// Formats a size from a plan or option: in decimal units where it is round in those and no whole
/// number of binary ones, as `100 MB`, else as [`size`].
pub fn chosen_size(bytes: u64) -> String {
    let is_binary = largest(BINARY, bytes).is_some_and(|(_, scale)| bytes.is_multiple_of(scale));
    // 1500 MiB are a multiple of 1000 bytes as well
    let is_round = !bytes.is_multiple_of(1024) || has_three_digits(bytes);
    let is_decimal = bytes.is_multiple_of(1000) && is_round && !is_binary;
    match largest(DECIMAL, bytes) {
        Some(unit) if is_decimal => size_in(unit, bytes),
        _ => size(bytes),
    }
}

/// The largest unit that a size reaches.
fn largest(units: [Unit; 3], bytes: u64) -> Option<Unit> {
    units.into_iter().find(|(_, scale)| bytes >= *scale)
}

fn size_in((name, scale): Unit, bytes: u64) -> String {
    format!("{} {name}", three(bytes as f64 / scale as f64))
}

/// Whether three digits, and zeros after them, write the number.
fn has_three_digits(mut number: u64) -> bool {
    while number >= 1000 && number.is_multiple_of(10) {
        number /= 10;
    }
    number < 1000
}

/// Formats bits per second: `100 Mbit/s`, `4.12 Gbit/s`.
pub fn rate(bps: f64) -> String {
    for (unit, scale) in [("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)] {
        if bps >= scale {
            return format!("{} {unit}", three(bps / scale));
        }
    }
    format!("{} bit/s", three(bps))
}

/// Formats bytes without rounding, as [`parse_size`] reads them: `1MiB`, `1500kB`, `7B`.
pub fn exact_size(bytes: u64) -> String {
    const UNITS: [Unit; 6] = [
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("KiB", 1 << 10),
        ("kB", 1000),
    ];
    exact(bytes, &UNITS, "B")
}

/// Formats bits per second without rounding, as [`parse_rate`] reads them: `1gbit`, `1500kbit`.
pub fn exact_rate(bps: u64) -> String {
    exact(bps, &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000)], "bit")
}

/// Formats a number in the first unit of which it is a multiple.
fn exact(number: u64, units: &[Unit], base: &str) -> String {
    match units.iter().find(|(_, scale)| number.is_multiple_of(*scale)) {
        Some((unit, scale)) => format!("{}{unit}", number / scale),
        None => format!("{number}{base}"),
    }
}

/// Formats seconds: `420 µs`, `1.3 s`.
pub fn seconds(s: f64) -> String {
    match s.abs() {
        v if v >= 1.0 => format!("{} s", three(s)),
        v if v >= 1e-3 => format!("{} ms", three(s * 1e3)),
        _ => format!("{} µs", three(s * 1e6)),
    }
}

/// Formats a number with at least three significant digits (all before the decimal point), without exponent or trailing zeros.
pub fn three(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return rounded(value, 0);
    }
    let decimals = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    let text = rounded(value, decimals);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Formats a number with so many decimals; what is rounded to 0 has no minus.
pub fn rounded(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let is_zero = text.chars().all(|c| "-0.".contains(c));
    if is_zero { text.trim_start_matches('-').to_owned() } else { text }
}

/// Formats a number with so many decimals and its sign: `+1.5`, `-2.0`, `+0.0`.
pub fn signed(value: f64, decimals: usize) -> String {
    with_sign(rounded(value, decimals))
}

/// Puts a plus before a figure that has no minus.
pub fn with_sign(figure: String) -> String {
    if figure.starts_with('-') { figure } else { format!("+{figure}") }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

fn bad(text: &str, expected: &str) -> String {
    format!("`{text}` is not {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_each_notation() {
        assert_eq!(parse_size("1KiB"), Ok(1024));
        assert_eq!(parse_size("256 MiB"), Ok(256 << 20));
        assert_eq!(parse_size("1GB"), Ok(1_000_000_000));
        assert_eq!(parse_rate("100mbit"), Ok(100_000_000));
        assert_eq!(parse_rate("2.5 Gbit/s"), Ok(2_500_000_000));
        assert_eq!(parse_rate("2.3mbit"), Ok(2_300_000)); // 2299999.9999999995 as a product
        assert_eq!(parse_duration("25ms"), Ok(Duration::from_millis(25)));
        assert_eq!(parse_percent("0.1 %"), Ok(0.1));
    }

    #[test]
    fn rejects_malformed_and_out_of_range_text() {
        for text in ["", "KiB", "1 parsec", "1.5KiB", "-1KiB", "99999999999GiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        for text in ["0mbit", "100", "100mb", "-1mbit", "1e9bit", "nanmbit"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        assert!(parse_percent("101%").is_err());
        assert!(parse_duration("25").is_err());
    }

    #[test]
    fn formats_three_digits() {
        assert_eq!(size(1024), "1 KiB");
        assert_eq!(size(256 << 20), "256 MiB");
        assert_eq!(rate(4.123e9), "4.12 Gbit/s");
        assert_eq!(seconds(0.000_42), "420 µs");
        assert_eq!(three(106.53), "107");
        assert_eq!(three(-0.051_23), "-0.0512");
    }

    #[test]
    fn formats_chosen_sizes_in_the_unit_in_which_they_are_round() {
        for (bytes, text) in [
            (100_000_000, "100 MB"),
            (2_500_000, "2.5 MB"),
            (1_000_000_000, "1 GB"),
            (16_000, "16 kB"),
            (9000, "9 kB"),
            (64 << 20, "64 MiB"),
            (10_000_000_000, "10 GB"),
            (16_000_000, "16 MB"),
            (1000, "1 kB"),
            (1_234_000_000, "1.23 GB"),
            (1 << 30, "1 GiB"),
            (1500 << 20, "1.46 GiB"),
            (1_024_000, "1000 KiB"),
            (1_000_001, "977 KiB"),
            (999, "999 B"),
            (0, "0 B"),
        ] {
            assert_eq!(chosen_size(bytes), text);
        }
    }

    #[test]
    fn exact_numbers_are_read_again() {
        for (bytes, text) in [
            (50_000_000, "50MB"),
            (1 << 20, "1MiB"),
            (1_500_000, "1500kB"),
            (1_000_001, "1000001B"),
            (2_000_000_000, "2GB"),
        ] {
            assert_eq!(exact_size(bytes), text);
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for (bps, text) in [
            (1_000_000_000, "1gbit"),
            (2_500_000_000, "2500mbit"),
            (220_000, "220kbit"),
            (1_234_567, "1234567bit"),
        ] {
            assert_eq!(exact_rate(bps), text);
            assert_eq!(parse_rate(text), Ok(bps));
        }
    }

    #[test]
    fn what_is_rounded_to_zero_has_no_minus() {
        for value in [0.0, -0.0, -0.049, -1e-9] {
            assert_eq!([rounded(value, 1), signed(value, 1)], ["0.0", "+0.0"]);
        }
        assert_eq!([three(-0.0), three(-1e-9), seconds(-0.0)], ["0", "0", "0 µs"]);
        assert_eq!([rounded(-0.4, 0), rounded(-0.06, 1)], ["0", "-0.1"]);
        assert_eq!([signed(-1.0, 0), signed(2.24, 1)], ["-1", "+2.2"]);
        assert_eq!(with_sign(three(10.0)), "+10");
        assert_eq!([rounded(f64::NEG_INFINITY, 1), three(f64::NEG_INFINITY)], ["-inf", "-inf"]);
    }
}
