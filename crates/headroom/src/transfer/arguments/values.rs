//! Reads values of arguments: ports, times and lengths.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use headroom_transfer::{Chunk, RemotePath, Retry};

/// A destination on this machine.
pub(super) fn local(path: PathBuf) -> Result<PathBuf, String> {
    if RemotePath::is_meant(path.as_os_str()) {
        return Err(format!(
            "{} looks like a path on a host: `get` fetches to this machine, `put` sends from it. Write the destination \
             last, such as `.`",
            path.display()
        ));
    }
    Ok(path)
}

pub(super) fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let numbers = text.split_once('-').and_then(|(first, last)| {
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        (first > 0 && first <= last).then_some(first..=last)
    });
    numbers.ok_or_else(|| format!("`{text}` is not a range of ports, such as 20000-20255"))
}

/// How long something is kept; `None` is forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) Option<Duration>);

pub(super) fn age(text: &str) -> Result<Age, String> {
    if text == "never" {
        return Ok(Age(None));
    }
    let wrong =
        || format!("`{text}` is not a number of days or hours, such as 30d or 12h, nor `never`");
    let (number, hours) = match (text.strip_suffix('d'), text.strip_suffix('h')) {
        (Some(days), _) => (days, 24),
        (_, Some(hours)) => (hours, 1),
        _ => return Err(wrong()),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    Ok(Age(Some(Duration::from_secs(u64::from(number) * hours * 3600))))
}

pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    let longest = Duration::from_secs(30);
    match headroom_units::parse_duration(text)? {
        Duration::ZERO => Err("the timeout must be longer than 0, such as 10s".to_owned()),
        time if time > longest => Err(format!("`{text}` is longer than {longest:?}")),
        time => Ok(time),
    }
}

pub(super) fn chunk(text: &str) -> Result<Chunk, String> {
    let chunk = text.parse().ok().and_then(Chunk::new);
    chunk.ok_or_else(|| {
        format!("`{text}` is not a number of bytes from {} to {}", Chunk::MIN, Chunk::MAX)
    })
}

pub(super) fn retry(text: &str) -> Result<Retry, String> {
    let seconds = |number: &str, of: u64| number.parse::<u32>().ok().map(|n| u64::from(n) * of);
    let time = match text {
        "never" => return Ok(Retry::Never),
        "forever" => return Ok(Retry::Forever),
        _ => [("s", 1), ("m", 60), ("h", 3600)]
            .into_iter()
            .find_map(|(unit, of)| seconds(text.strip_suffix(unit)?, of)),
    };
    let time = time.ok_or_else(|| {
        format!("`{text}` is not a time, such as 90s, 10m or 2h, nor `never` or `forever`")
    });
    Ok(Retry::For(Duration::from_secs(time?)))
}

pub(super) fn expiry(text: &str) -> Result<Duration, String> {
    let longest = 366 * 24 * 3600;
    let seconds = [("s", 1), ("m", 60), ("h", 3600), ("d", 24 * 3600)]
        .into_iter()
        .find_map(|(unit, of)| Some(u64::from(text.strip_suffix(unit)?.parse::<u32>().ok()?) * of))
        .filter(|seconds| (1..=longest).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| format!("`{text}` is not a time up to 366d, such as 30m, 12h or 7d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_a_range_and_chunks_are_bounded() {
        assert_eq!(ports("20000-20255"), Ok(20000..=20255));
        assert_eq!(ports("7-7"), Ok(7..=7));
        for wrong in ["", "20000", "20255-20000", "0-7", "1-65536", "a-b", "-"] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
        assert_eq!(chunk("200").map(Chunk::bytes), Ok(200));
        assert_eq!(chunk("4000").map(Chunk::bytes), Ok(4000));
        for wrong in ["", "199", "4001", "1k", "-200"] {
            assert!(chunk(wrong).is_err_and(|error| error.contains("200 to 4000")), "{wrong}");
        }
    }

    #[test]
    fn a_timeout_is_a_time_up_to_thirty_seconds() {
        assert_eq!(timeout("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(timeout("30s"), Ok(Duration::from_secs(30)));
        for wrong in ["", "10", "0s", "31s", "-1s", "1h"] {
            assert!(timeout(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn retries_are_a_time_or_never_or_forever() {
        let of = |seconds| Ok(Retry::For(Duration::from_secs(seconds)));
        assert_eq!((retry("90s"), retry("10m"), retry("2h")), (of(90), of(600), of(7200)));
        assert_eq!((retry("never"), retry("forever")), (Ok(Retry::Never), Ok(Retry::Forever)));
        for wrong in ["", "10", "m", "-1m", "1d", "1.5h", "always"] {
            assert!(retry(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_share_expires_after_a_time_up_to_a_year() {
        let hours = |hours: u64| Ok(Duration::from_secs(hours * 3600));
        assert_eq!(
            (expiry("60m"), expiry("7d"), expiry("366d")),
            (hours(1), hours(168), hours(8784))
        );
        for wrong in ["", "7", "0s", "367d", "-1d", "1w", "1.5h", "never"] {
            assert!(expiry(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ages_are_days_or_hours() {
        let hours = |hours: u64| Ok(Age(Some(Duration::from_secs(hours * 3600))));
        assert_eq!((age("30d"), age("12h"), age("0d")), (hours(720), hours(12), hours(0)));
        assert_eq!(age("never"), Ok(Age(None)));
        for wrong in ["", "d", "30", "-1d", "1w", "1.5d"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }
}
