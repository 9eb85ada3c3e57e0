//! A time in the past, as people name it.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use crate::log::utc;

const WEEKDAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// Reads a weekday (the last one, today included), a date or a moment; returns the moment, or the
/// beginning of the day, in UTC and as results have it.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    parse_at(text, Timestamp::now())
}

fn parse_at(text: &str, now: Timestamp) -> Result<String, String> {
    let moment = match text.parse::<Timestamp>() {
        Ok(moment) => Some(moment),
        Err(_) => day(text, now).and_then(midnight),
    };
    moment.map(|moment| utc(moment).to_string()).ok_or_else(|| {
        format!(
            "`{text}` is not a time: write a weekday (monday), a date (2026-11-23) or a moment (2026-11-23T08:00:00Z)"
        )
    })
}

fn day(text: &str, now: Timestamp) -> Option<Date> {
    let weekday = WEEKDAYS.iter().position(|day| text.eq_ignore_ascii_case(day));
    let Some(weekday) = weekday.and_then(|index| i8::try_from(index).ok()) else {
        // a date with more behind it would lose that
        return text.parse().ok().filter(|_| text.len() == "2026-11-23".len());
    };
    let today = now.to_zoned(TimeZone::UTC).date();
    let passed = (today.weekday().to_monday_zero_offset() - weekday).rem_euclid(7);
    today.checked_sub(Span::new().days(i64::from(passed))).ok()
}

fn midnight(day: Date) -> Option<Timestamp> {
    TimeZone::UTC.to_timestamp(day.at(0, 0, 0, 0)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weekday_is_the_last_one_and_a_date_begins_at_midnight() {
        // a Thursday
        let now: Timestamp = "2026-11-26T09:00:00Z".parse().expect("a moment");
        for (text, moment) in [
            ("monday", "2026-11-23T00:00:00Z"),
            ("Thursday", "2026-11-26T00:00:00Z"),
            ("friday", "2026-11-20T00:00:00Z"),
            ("2026-11-01", "2026-11-01T00:00:00Z"),
            ("2026-11-01T08:30:00+01:00", "2026-11-01T07:30:00Z"),
        ] {
            assert_eq!(parse_at(text, now).as_deref(), Ok(moment));
        }
        for text in ["", "mon", "yesterday", "2026-11-31", "2026-11-01T08:30", "20261101"] {
            assert!(parse_at(text, now).is_err(), "{text}");
        }
    }
}
