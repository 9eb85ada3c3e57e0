//! When the rounds of a campaign are due. Pure: the caller says when the campaign began.

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde::{Deserialize, Serialize};

/// Seconds since 1970, in UTC.
pub type UnixTime = i64;

/// The last moment that a campaign may name: 2200-01-01.
const LAST: UnixTime = 7_258_118_400;

/// The longest period.
const LONGEST_PERIOD: i64 = 366 * 86_400;

/// When rounds are due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Each as soon as the one before it is over.
    BackToBack,
    /// With a period, from a moment on; none: from the campaign's beginning.
    Every {
        /// The period.
        seconds: i64,
        /// No round is due before.
        start: Option<UnixTime>,
    },
    /// At these times of each day, the earliest first, from a moment on; none: from the campaign's
    /// beginning.
    Daily {
        /// Hours and minutes.
        times: Vec<TimeOfDay>,
        /// Name of the time zone, as the IANA's database has it.
        time_zone: String,
        /// No round is due before.
        start: Option<UnixTime>,
    },
}

/// A time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TimeOfDay {
    hour: i8,
    minute: i8,
}

impl Schedule {
    /// Returns when a round, counted from 0, is due in a campaign that began at `began`; none: when
    /// the round before it is over.
    pub fn due(&self, round: u32, began: UnixTime) -> Option<UnixTime> {
        match self {
            Self::BackToBack => None,
            Self::Every { seconds, start } => {
                let (period, start) = ((*seconds).max(1), start.unwrap_or(began));
                // as many begin before the campaign does
                let passed = began.saturating_sub(start).max(0).saturating_add(period - 1) / period;
                let periods = passed.saturating_add(round.into());
                Some(start.saturating_add(period.saturating_mul(periods)))
            }
            Self::Daily { times, time_zone, start } => {
                // a zone that cannot be read now is read again later, and nothing begins before
                let Ok(zone) = zone(time_zone) else { return Some(LAST) };
                let from = start.unwrap_or(began).max(began);
                daily(times, &zone, from, round)
            }
        }
    }
}

/// Returns the n-th moment from `from` on at which a clock in that zone shows one of these times.
/// One that a clock skips when summer begins is as much later.
fn daily(times: &[TimeOfDay], zone: &TimeZone, from: UnixTime, nth: u32) -> Option<UnixTime> {
    let first = Timestamp::from_second(from).ok()?.to_zoned(zone.clone()).date();
    let moments_of = |day: usize| {
        let days = Span::new().try_days(i64::try_from(day).ok()?).ok()?;
        let date = first.checked_add(days).ok()?;
        let moment = |time: &TimeOfDay| {
            let time = Time::new(time.hour, time.minute, 0, 0).ok()?;
            Some(zone.to_timestamp(date.to_datetime(time)).ok()?.as_second())
        };
        let mut moments = times.iter().map(moment).collect::<Option<Vec<UnixTime>>>()?;
        // a skipped time may be later than the one behind it
        moments.sort_unstable();
        Some(moments)
    };
    if times.is_empty() {
        return None;
    }
    let passed = moments_of(0)?.into_iter().filter(|moment| *moment < from).count();
    let index = passed + usize::try_from(nth).ok()?;
    moments_of(index / times.len())?.get(index % times.len()).copied()
}

/// Reads a period: `90s`, `30min`, `6h`, `1d`; returns seconds.
pub(super) fn period(text: &str) -> Result<i64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match text[end..].trim() {
        "s" => Some(1),
        "min" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        _ => None,
    };
    let count = text[..end].parse::<i64>().ok();
    let seconds = count.zip(unit).and_then(|(count, unit)| count.checked_mul(unit));
    seconds
        .filter(|seconds| (1..=LONGEST_PERIOD).contains(seconds))
        .ok_or_else(|| format!("`{text}` is not a period from 1s to 366d, such as 30min, 6h or 1d"))
}

/// Reads a moment as RFC 3339 writes it.
pub(super) fn moment(text: &str) -> Result<UnixTime, String> {
    let time = text.parse::<Timestamp>().ok().map(Timestamp::as_second);
    time.filter(|time| (0..LAST).contains(time)).ok_or_else(|| {
        format!("`{text}` is not a moment from 1970 to 2199, such as 2026-11-30T02:00:00Z")
    })
}

/// Reads a time of day, `14:30`.
pub(super) fn time_of_day(text: &str) -> Result<TimeOfDay, String> {
    let is_written = |part: &str| part.len() == 2 && part.bytes().all(|c| c.is_ascii_digit());
    let number = |part: &str, end: i8| {
        part.parse::<i8>().ok().filter(|number| is_written(part) && *number < end)
    };
    let time = text.split_once(':').and_then(|(hour, minute)| {
        Some(TimeOfDay { hour: number(hour, 24)?, minute: number(minute, 60)? })
    });
    time.ok_or_else(|| format!("`{text}` is not a time of day, such as 02:00 or 14:30"))
}

/// Finds a time zone: UTC, which needs no database, or one of this machine's.
pub(super) fn zone(name: &str) -> Result<TimeZone, String> {
    if name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    TimeZone::get(name).map_err(|_| {
        format!(
            "`{name}` is no time zone that this machine knows (/usr/share/zoneinfo), such as Europe/Berlin; UTC always is"
        )
    })
}

/// Writes a moment as RFC 3339, in UTC.
pub(super) fn written(time: UnixTime) -> String {
    Timestamp::from_second(time).map_or_else(
        |_| format!("{time} s after 1970"),
        |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    )
}

/// The moment, by this machine's clock.
pub(super) fn now() -> UnixTime {
    Timestamp::now().as_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-26T09:00:00Z, a Thursday.
    fn began() -> UnixTime {
        moment("2026-11-26T09:00:00Z").expect("a moment")
    }

    fn daily_at(times: &[&str], zone: &str, start: Option<&str>) -> Schedule {
        let times = times.iter().map(|time| time_of_day(time).expect("a time")).collect();
        let start = start.map(|start| moment(start).expect("a moment"));
        Schedule::Daily { times, time_zone: zone.to_owned(), start }
    }

    fn due(schedule: &Schedule, rounds: std::ops::Range<u32>) -> Vec<String> {
        rounds.map(|round| schedule.due(round, began()).map_or("none".into(), written)).collect()
    }

    #[test]
    fn rounds_of_a_period_keep_their_distance_from_the_first() {
        let every = Schedule::Every { seconds: period("6h").expect("a period"), start: None };
        assert_eq!(
            due(&every, 0..3),
            ["2026-11-26T09:00:00Z", "2026-11-26T15:00:00Z", "2026-11-26T21:00:00Z"]
        );
        let start = moment("2026-11-30T02:00:00Z").ok();
        let daily = Schedule::Every { seconds: period("1d").expect("a period"), start };
        assert_eq!(due(&daily, 0..2), ["2026-11-30T02:00:00Z", "2026-12-01T02:00:00Z"]);
        let start = moment("2026-11-20T02:00:00Z").ok();
        let past = Schedule::Every { seconds: 21_600, start };
        assert_eq!(due(&past, 0..2), ["2026-11-26T14:00:00Z", "2026-11-26T20:00:00Z"]);
        let broken = Schedule::Every { seconds: 0, start: None };
        assert_eq!(broken.due(2, 10), Some(12), "a damaged journal is no panic");
        let latest = daily.due(u32::MAX, i64::MAX).expect("a number");
        assert!(latest > 0 && !written(latest).is_empty());
    }

    #[test]
    fn times_of_day_begin_with_the_next_one_and_go_on_day_by_day() {
        let utc = daily_at(&["02:00", "09:00", "14:30"], "UTC", None);
        assert_eq!(
            due(&utc, 0..4),
            [
                "2026-11-26T09:00:00Z",
                "2026-11-26T14:30:00Z",
                "2026-11-27T02:00:00Z",
                "2026-11-27T09:00:00Z"
            ]
        );
        let late = daily_at(&["02:00"], "UTC", Some("2026-11-28T02:00:01Z"));
        assert_eq!(due(&late, 0..1), ["2026-11-29T02:00:00Z"]);
        let early = daily_at(&["02:00"], "UTC", Some("2020-01-01T00:00:00Z"));
        assert_eq!(due(&early, 0..1), ["2026-11-27T02:00:00Z"], "none before it began");
    }

    #[test]
    fn times_of_day_follow_the_clock_of_their_zone() {
        if zone("Europe/Berlin").is_err() {
            eprintln!("skipped: this machine has no time zones");
            return;
        }
        let summer = daily_at(&["02:30"], "Europe/Berlin", Some("2027-03-27T00:00:00Z"));
        // on 2027-03-28 clocks go from 02:00 to 03:00
        assert_eq!(
            due(&summer, 0..3),
            ["2027-03-27T01:30:00Z", "2027-03-28T01:30:00Z", "2027-03-29T00:30:00Z"]
        );
        let two = daily_at(&["02:30", "03:00"], "Europe/Berlin", Some("2027-03-28T00:00:00Z"));
        assert_eq!(
            due(&two, 0..3),
            ["2027-03-28T01:00:00Z", "2027-03-28T01:30:00Z", "2027-03-29T00:30:00Z"]
        );
    }

    #[test]
    fn rounds_back_to_back_have_no_time() {
        assert_eq!(due(&Schedule::BackToBack, 0..2), ["none", "none"]);
        let broken: Schedule = serde_json::from_str(
            "{\"daily\":{\"times\":[{\"hour\":99,\"minute\":0}],\"time_zone\":\"UTC\",\"start\":null}}",
        )
        .expect("a schedule");
        assert_eq!(broken.due(0, began()), None, "a damaged journal is no panic");
        let elsewhere = daily_at(&["02:00"], "Mars/Olympus", None);
        assert_eq!(elsewhere.due(0, began()), Some(LAST), "it does not begin at once");
    }

    #[test]
    fn rejects_what_is_no_time() {
        for text in ["", "6", "h", "0h", "-6h", "1.5h", "367d", "99999999999999999999d", "6 weeks"]
        {
            assert!(period(text).is_err(), "{text}");
        }
        assert_eq!([period("90s"), period("30 min")], [Ok(90), Ok(1800)]);
        for text in ["", "2:00", "24:00", "02:60", "02:00:00", "-1:00", "+1:00", "ab:cd", "02"] {
            assert!(time_of_day(text).is_err(), "{text}");
        }
        for text in ["", "tomorrow", "2026-11-30", "1969-12-31T23:59:59Z", "9000-01-01T00:00:00Z"] {
            assert!(moment(text).is_err(), "{text}");
        }
        assert!(zone("UTC").is_ok() && zone("Mars/Olympus").is_err());
    }
}
