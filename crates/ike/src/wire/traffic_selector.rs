//! The TSi and TSr payloads (RFC 7296 §3.13).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use super::reader::Reader;
use super::{Problem, TsType};

/// The packets at one end of a CHILD SA: those of any of the selectors.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TrafficSelectors {
    /// The selectors, without those of a type that is not known.
    pub selectors: Vec<TrafficSelector>,
}

/// A range of addresses and ports.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct TrafficSelector {
    /// The IP protocol number; 0 for all.
    pub protocol: u8,
    /// The first and the last port, or ICMP type and code (RFC 7296 §3.13.1). A first port of
    /// 65535 and a last one of 0 mean packets whose ports cannot be seen (OPAQUE).
    pub ports: (u16, u16),
    /// The addresses.
    pub addresses: AddressRange,
}

/// A range of addresses of one family; its first address is not after its last.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum AddressRange {
    /// IPv4.
    V4(RangeInclusive<Ipv4Addr>),
    /// IPv6.
    V6(RangeInclusive<Ipv6Addr>),
}

impl TrafficSelectors {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Problem> {
        let mut reader = Reader::new(body);
        let count = reader.u8()?;
        reader.bytes(3)?;
        if count == 0 {
            return Err(Problem::Empty("traffic selectors"));
        }
        let mut selectors = Vec::new();
        for _ in 0..count {
            selectors.extend(TrafficSelector::parse(&mut reader)?);
        }
        if reader.is_empty() { Ok(Self { selectors }) } else { Err(Problem::Length(reader.len())) }
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend([self.selectors.len() as u8, 0, 0, 0]);
        self.selectors.iter().for_each(|selector| selector.emit(out));
    }
}

impl TrafficSelector {
    /// Reads one selector; none if its type is not known.
    fn parse(reader: &mut Reader<'_>) -> Result<Option<Self>, Problem> {
        let ts_type = reader.u8()?.into();
        let protocol = reader.u8()?;
        let length = reader.u16()?;
        let mut body = reader.counted(length, 4)?;
        let (expected, unordered) = match ts_type {
            TsType::Ipv4AddressRange => (16, "Starting Address (IPv4)"),
            TsType::Ipv6AddressRange => (40, "Starting Address (IPv6)"),
            TsType::Unknown(_) => return Ok(None),
        };
        if length != expected {
            return Err(Problem::Length(length.into()));
        }
        let ports = (body.u16()?, body.u16()?);
        if ports.0 > ports.1 && ports != (u16::MAX, 0) {
            return Err(Problem::Value { field: "Start Port", value: ports.0.into() });
        }
        let addresses = match ts_type {
            TsType::Ipv4AddressRange => {
                let [first, last] = [body.array::<4>()?, body.array()?].map(Ipv4Addr::from);
                AddressRange::V4(first..=last)
            }
            _ => {
                let [first, last] = [body.array::<16>()?, body.array()?].map(Ipv6Addr::from);
                AddressRange::V6(first..=last)
            }
        };
        if addresses.is_empty() {
            return Err(Problem::Value { field: unordered, value: 1 });
        }
        Ok(Some(Self { protocol, ports, addresses }))
    }

    fn emit(&self, out: &mut Vec<u8>) {
        let (ts_type, length) = match self.addresses {
            AddressRange::V4(_) => (TsType::Ipv4AddressRange, 16_u16),
            AddressRange::V6(_) => (TsType::Ipv6AddressRange, 40),
        };
        out.extend([ts_type.into(), self.protocol]);
        out.extend(length.to_be_bytes());
        out.extend(self.ports.0.to_be_bytes());
        out.extend(self.ports.1.to_be_bytes());
        match &self.addresses {
            AddressRange::V4(range) => {
                out.extend(range.start().octets());
                out.extend(range.end().octets());
            }
            AddressRange::V6(range) => {
                out.extend(range.start().octets());
                out.extend(range.end().octets());
            }
        }
    }
}

impl AddressRange {
    fn is_empty(&self) -> bool {
        match self {
            Self::V4(range) => range.is_empty(),
            Self::V6(range) => range.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_ranges_that_end_before_they_begin() {
        let selector = TrafficSelector {
            protocol: 17,
            ports: (5, 9),
            addresses: AddressRange::V4(Ipv4Addr::new(10, 0, 0, 0)..=Ipv4Addr::new(10, 0, 0, 7)),
        };
        let mut body = Vec::new();
        TrafficSelectors { selectors: vec![selector.clone()] }.emit(&mut body);
        assert_eq!(
            TrafficSelectors::parse(&body),
            Ok(TrafficSelectors { selectors: vec![selector] })
        );
        for (at, value) in [(9, 10), (15, 8), (0, 0), (0, 2), (7, 15), (7, 17), (7, 3)] {
            let mut body = body.clone();
            body[at] = value;
            assert!(TrafficSelectors::parse(&body).is_err(), "byte {at} = {value}");
        }
        // OPAQUE (RFC 4301 §4.4.1.1) is such a range, and means something
        body[8..12].copy_from_slice(&[0xff, 0xff, 0, 0]);
        assert!(TrafficSelectors::parse(&body).is_ok());
        // a selector of another type is left out
        body[4] = 9;
        assert_eq!(TrafficSelectors::parse(&body), Ok(TrafficSelectors { selectors: vec![] }));
    }
}
