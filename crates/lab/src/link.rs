//! The link between client and server, as a plan writes it:
//! `unshaped`, `100mbit`, `100mbit,delay=25ms,jitter=1ms,loss=1%,queue=200`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::units;

/// What the link does to packets. Delay, jitter and loss are for each direction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkSpec {
    /// Bits per second on the wire, Ethernet framing counted; none: as fast as
    /// the machine.
    pub rate_bps: Option<u64>,
    /// One-way delay.
    pub delay: Duration,
    /// Variation of the delay.
    pub jitter: Duration,
    /// Per cent of packets lost at random.
    pub loss_pct: f64,
    /// Packets that the bottleneck queues; none: chosen from the rate.
    pub queue_packets: Option<u32>,
}

impl LinkSpec {
    /// Whether the link needs more than a rate: the kernel's netem.
    pub fn needs_netem(&self) -> bool {
        !self.delay.is_zero() || !self.jitter.is_zero() || self.loss_pct > 0.0
    }

    /// Packets that the bottleneck queues: what was asked for, else 50 ms of
    /// full-size packets, and never fewer than 100.
    pub fn queue(&self) -> u32 {
        const FULL_FRAME_BITS: u64 = 1538 * 8;
        let fifty_ms = self.rate_bps.unwrap_or(0) / 20 / FULL_FRAME_BITS;
        self.queue_packets.unwrap_or_else(|| u32::try_from(fifty_ms).unwrap_or(u32::MAX).max(100))
    }
}

impl FromStr for LinkSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',').map(str::trim);
        let mut link = Self::default();
        match parts.next() {
            Some("unshaped") => {}
            Some(rate) => link.rate_bps = Some(units::parse_rate(rate)?),
            None => return Err("the link is empty".into()),
        }
        for part in parts {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("`{part}` is not key=value"))?;
            match key {
                "delay" => link.delay = units::parse_duration(value)?,
                "jitter" => link.jitter = units::parse_duration(value)?,
                "loss" => link.loss_pct = units::parse_percent(value)?,
                "queue" => {
                    let packets = value.parse().ok().filter(|&packets| packets > 0);
                    let packets = packets
                        .ok_or_else(|| format!("`{value}` is not a number of packets above 0"))?;
                    link.queue_packets = Some(packets);
                }
                _ => {
                    return Err(format!(
                        "a link has no `{key}`; it has delay, jitter, loss and queue"
                    ));
                }
            }
        }
        if link.jitter > link.delay {
            return Err("a jitter larger than the delay would need packets from the past".into());
        }
        Ok(link)
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate_bps {
            None => write!(f, "unshaped")?,
            Some(bps) if bps % 1_000_000_000 == 0 => write!(f, "{}gbit", bps / 1_000_000_000)?,
            Some(bps) if bps % 1_000_000 == 0 => write!(f, "{}mbit", bps / 1_000_000)?,
            Some(bps) if bps % 1_000 == 0 => write!(f, "{}kbit", bps / 1_000)?,
            Some(bps) => write!(f, "{bps}bit")?,
        }
        if !self.delay.is_zero() {
            write!(f, ",delay={}us", self.delay.as_micros())?;
        }
        if !self.jitter.is_zero() {
            write!(f, ",jitter={}us", self.jitter.as_micros())?;
        }
        if self.loss_pct > 0.0 {
            write!(f, ",loss={}%", self.loss_pct)?;
        }
        if let Some(packets) = self.queue_packets {
            write!(f, ",queue={packets}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["unshaped", "100mbit", "1gbit,delay=25000us,loss=0.5%", "9600bit,queue=7"] {
            let link: LinkSpec = text.parse().expect(text);
            assert_eq!(link.to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "fast", "100mbit,delay", "100mbit,colour=red", "1gbit,jitter=2ms"] {
            assert!(text.parse::<LinkSpec>().is_err(), "{text}");
        }
        assert!("1gbit,queue=0".parse::<LinkSpec>().is_err());
    }
}
