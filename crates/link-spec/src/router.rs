//! Treatment of packets by their headers, which a router on the link provides: priority
//! for one flow, and a new DSCP.

use std::fmt;
use std::str::FromStr;

/// Packets of one transport protocol to one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The protocol.
    pub transport: Transport,
    /// The destination's port.
    pub port: u16,
}

/// Protocols that have ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as the protocols are")]
pub enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    /// Returns the name that links and rules use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// Returns the protocol's number (IANA).
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

impl FromStr for Flow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (transport, port) = text.split_once(':')?;
            let all = [Transport::Tcp, Transport::Udp];
            let transport = all.into_iter().find(|one| one.name() == transport)?;
            Some(Self { transport, port: port.parse().ok().filter(|&port| port > 0)? })
        };
        read().ok_or_else(|| {
            format!("`{text}` is not a protocol and a destination port, such as udp:5004")
        })
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.transport.name(), self.port)
    }
}

/// A differentiated services code point (RFC 2474), six bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dscp(u8);

impl Dscp {
    /// Expedited forwarding (RFC 3246).
    const EF: Self = Self(46);

    /// The six bits.
    pub fn bits(self) -> u8 {
        self.0
    }
}

impl FromStr for Dscp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let class = text.strip_prefix("cs").and_then(|n| n.parse().ok()).filter(|n: &u8| *n < 8);
        match (text, class, text.parse()) {
            ("ef", ..) => Ok(Self::EF),
            (_, Some(class), _) => Ok(Self(class * 8)),
            (_, _, Ok(bits @ 0..64)) => Ok(Self(bits)),
            _ => Err(format!("`{text}` is no DSCP: ef, cs0 to cs7, or a number from 0 to 63")),
        }
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::EF => f.write_str("ef"),
            Self(bits) if bits % 8 == 0 => write!(f, "cs{}", bits / 8),
            Self(bits) => write!(f, "{bits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_and_classes_round_trip() {
        for text in ["udp:5004", "tcp:1", "udp:65535"] {
            assert_eq!(text.parse::<Flow>().map(|flow| flow.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "udp", "udp:", "udp:0", "udp:65536", "icmp:1", "udp:5004:1"] {
            assert!(text.parse::<Flow>().is_err(), "{text}");
        }
        for bits in 0..64 {
            let class: Dscp = bits.to_string().parse().expect("six bits");
            assert_eq!((class.bits(), class.to_string().parse()), (bits, Ok(class)));
        }
        assert_eq!(("ef".parse(), "cs1".parse()), (Ok(Dscp(46)), Ok(Dscp(8))));
        for text in ["", "64", "-1", "cs8", "af", "EF"] {
            assert!(text.parse::<Dscp>().is_err(), "{text}");
        }
    }
}
