//! Rate and cross traffic of a steady stream, as a plan writes them.

use std::fmt;
use std::str::FromStr;

use headroom_units as units;

/// Datagrams a second, or bits of datagrams a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// `100pps`.
    Packets(u32),
    /// `1mbit`: bytes of datagrams, without the headers of UDP and IP.
    Bits(u64),
}

/// TCP cross traffic of a stream, as fast as the path allows: all the time, or from one
/// second to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrossTraffic {
    /// Seconds after the first packet; none: all the time.
    time: Option<(u32, u32)>,
}

impl Pace {
    /// The fewest and the most datagrams a second that are sent one by one.
    pub const PER_SECOND: std::ops::RangeInclusive<f64> = 1.0..=20_000.0;

    /// Datagrams of `size` bytes a second.
    pub fn per_second(self, size: u64) -> f64 {
        match self {
            Self::Packets(packets) => f64::from(packets),
            Self::Bits(bps) => bps as f64 / 8.0 / size.max(1) as f64,
        }
    }
}

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(packets) = text.trim().strip_suffix("pps") else {
            return units::parse_rate(text)
                .map(Self::Bits)
                .map_err(|why| format!("{why}; packets a second are written as 100pps"));
        };
        let packets = packets.trim().parse().ok().filter(|&packets: &u32| packets > 0);
        packets
            .map(Self::Packets)
            .ok_or_else(|| format!("`{text}` is not a number of packets a second, such as 100pps"))
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(packets) => write!(f, "{packets}pps"),
            Self::Bits(bps) => f.write_str(&units::exact_rate(*bps)),
        }
    }
}

impl CrossTraffic {
    const WORD: &str = "bulk";

    /// From when until when, of a stream that lasts so many seconds; for a second at
    /// least.
    pub fn time(self, seconds: u32) -> (u32, u32) {
        let (from, to) = self.time.unwrap_or((0, seconds));
        (from.min(seconds - 1), to.min(seconds))
    }
}

impl FromStr for CrossTraffic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is neither `bulk`, a TCP connection all the time, nor `bulk:5-15`, from second 5 to 15"
            )
        };
        let rest = text.trim().strip_prefix(Self::WORD).ok_or_else(wrong)?;
        if rest.is_empty() {
            return Ok(Self { time: None });
        }
        let time = rest.strip_prefix(':').and_then(|rest| rest.split_once('-'));
        let time = time.and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        let time = time.filter(|(from, to): &(u32, u32)| from < to);
        Ok(Self { time: Some(time.ok_or_else(wrong)?) })
    }
}

impl fmt::Display for CrossTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::WORD)?;
        self.time.map_or(Ok(()), |(from, to)| write!(f, ":{from}-{to}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_of_packets_or_of_bits() {
        let pace = |text: &str| text.parse::<Pace>();
        assert!(pace("100pps").is_ok_and(|pace| (pace.per_second(64) - 100.0).abs() < 1e-9));
        assert!(pace("1mbit").is_ok_and(|pace| (pace.per_second(1250) - 100.0).abs() < 1e-9));
        for text in ["100pps", "1mbit", "220kbit", "1234567bit"] {
            assert_eq!(pace(text).map(|pace| pace.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "pps", "0pps", "-1pps", "1.5pps", "fast", "0mbit"] {
            assert!(pace(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cross_traffic_has_a_start_and_an_end() {
        let traffic = |text: &str| text.parse::<CrossTraffic>();
        assert_eq!(traffic("bulk").map(|traffic| traffic.time(10)), Ok((0, 10)));
        let some = traffic("bulk:5-15").expect("a time");
        assert_eq!((some.time(20), some.time(9), some.time(1)), ((5, 15), (5, 9), (0, 1)));
        assert_eq!(some.to_string(), "bulk:5-15");
        for text in ["", "bulky", "bulk:", "bulk:5", "bulk:5-5", "bulk:a-b", "bulk:9-3"] {
            assert!(traffic(text).is_err(), "{text}");
        }
    }
}
