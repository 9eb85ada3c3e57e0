//! Reads the selectors of a `[[policy]]`.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use headroom_ipsec::spec::{Addresses, Ports, Selector};
use toml::Spanned;

use super::file::PolicyFile;
use super::problem::{Problem, excerpt, problem};
use super::scalar::Scalar;

pub(super) fn selector(file: &PolicyFile) -> Result<Selector, Problem> {
    let local = addresses(file.local.as_ref())?;
    let remote = addresses(file.remote.as_ref())?;
    if let (Addresses::Range(a, _), Addresses::Range(b, _), Some(place)) =
        (&local, &remote, &file.remote)
        && a.is_ipv4() != b.is_ipv4()
    {
        return Err(problem(
            place,
            "`local` and `remote` have different IP versions: no packet matches both",
        ));
    }
    let protocol = file.protocol.as_ref().map_or(Ok(None), protocol)?;
    let local_port = file.local_port.as_ref().map_or(Ok(Ports::Any), ports)?;
    let remote_port = file.remote_port.as_ref().map_or(Ok(Ports::Any), ports)?;
    /// The protocols with ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
    const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
    for (ports, place) in [(&local_port, &file.local_port), (&remote_port, &file.remote_port)] {
        if let (Ports::Range(_), Some(number), Some(place)) = (ports, protocol, place)
            && !WITH_PORTS.contains(&number)
        {
            return Err(problem(place, format!("packets of protocol {number} have no ports")));
        }
    }
    let icmp = file.icmp.as_ref().map(icmp).transpose()?;
    if let (Some(_), Some(place)) = (&icmp, &file.icmp)
        && !matches!(protocol, Some(1 | 58))
    {
        return Err(problem(
            place,
            "`icmp` needs `protocol = \"icmp\"` or `protocol = \"icmpv6\"`",
        ));
    }
    Ok(Selector { local, remote, protocol, local_port, remote_port, icmp })
}

/// Parses `any`, an address, a prefix, or a range `a-b`.
pub(super) fn addresses(text: Option<&Spanned<String>>) -> Result<Addresses, Problem> {
    text.map_or(Ok(Addresses::Any), |text| {
        parse_addresses(text.get_ref()).map_err(|message| problem(text, message))
    })
}

/// As [`addresses`], of a text alone.
pub(super) fn parse_addresses(text: &str) -> Result<Addresses, String> {
    let written = text.trim();
    if written == "any" {
        return Ok(Addresses::Any);
    }
    let one = |word: &str| word.trim().parse::<IpAddr>().ok();
    let range = if let Some((first, last)) = written.split_once('-') {
        one(first).zip(one(last)).filter(|(a, b)| a.is_ipv4() == b.is_ipv4() && a <= b)
    } else if let Some((address, length)) = written.split_once('/') {
        one(address).zip(length.parse().ok()).and_then(|(address, length)| prefix(address, length))
    } else {
        one(written).map(|address| (address, address))
    };
    range.map(|(first, last)| Addresses::Range(first, last)).ok_or_else(|| {
        format!(
            "`{}` is not \"any\", an address, a prefix such as \"10.1.0.0/16\" (with zero bits after the prefix) or a range \
             such as \"10.0.0.5-10.0.0.9\"",
            excerpt(written)
        )
    })
}

/// Returns the first and last address of a prefix; None if bits after the prefix are set.
fn prefix(address: IpAddr, length: u32) -> Option<(IpAddr, IpAddr)> {
    match address {
        IpAddr::V4(address) => {
            let behind = u32::MAX.checked_shr(length).unwrap_or(0);
            let bits = address.to_bits();
            (length <= 32 && bits & behind == 0)
                .then(|| (IpAddr::V4(address), IpAddr::V4((bits | behind).into())))
        }
        IpAddr::V6(address) => {
            let behind = u128::MAX.checked_shr(length).unwrap_or(0);
            let bits = address.to_bits();
            (length <= 128 && bits & behind == 0)
                .then(|| (IpAddr::V6(address), IpAddr::V6((bits | behind).into())))
        }
    }
}

fn protocol(value: &Spanned<Scalar>) -> Result<Option<u8>, Problem> {
    let known = [
        ("icmp", 1),
        ("tcp", 6),
        ("udp", 17),
        ("dccp", 33),
        ("gre", 47),
        ("icmpv6", 58),
        ("sctp", 132),
        ("udplite", 136),
    ];
    let number = match value.get_ref() {
        Scalar::Word(word) if word == "any" => return Ok(None),
        Scalar::Word(word) => {
            known.iter().find(|(name, _)| name == word).map(|(_, number)| *number)
        }
        Scalar::Number(number) => u8::try_from(*number).ok(),
    };
    number.map(Some).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        problem(
            value,
            format!(
                "`protocol` is \"any\", a number from 0 to 255, or one of: {}",
                names.join(", ")
            ),
        )
    })
}

fn ports(value: &Spanned<Scalar>) -> Result<Ports, Problem> {
    let range = match value.get_ref() {
        Scalar::Word(word) if word == "any" => return Ok(Ports::Any),
        Scalar::Word(word) if word == "opaque" => return Ok(Ports::Opaque),
        Scalar::Word(word) => range(word),
        Scalar::Number(number) => u16::try_from(*number).ok().map(|port| port..=port),
    };
    range.map(Ports::Range).ok_or_else(|| {
        problem(value, "ports are \"any\", a number, a range such as \"1000-2000\", or \"opaque\" (packets without ports)")
    })
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some(first..=last)
}

/// Parses a type, types `a-b`, or a type and code `3/1`, as `type << 8 | code`.
fn icmp(value: &Spanned<Scalar>) -> Result<RangeInclusive<u16>, Problem> {
    let read = || match value.get_ref() {
        Scalar::Number(kind) => {
            let kind = u16::from(u8::try_from(*kind).ok()?) << 8;
            Some(kind..=kind | 0xff)
        }
        Scalar::Word(word) => match word.split_once('/') {
            Some((kind, code)) => {
                let both =
                    u16::from(kind.parse::<u8>().ok()?) << 8 | u16::from(code.parse::<u8>().ok()?);
                Some(both..=both)
            }
            None => {
                let kinds = range(word).filter(|kinds| *kinds.end() < 256)?;
                Some(kinds.start() << 8..=kinds.end() << 8 | 0xff)
            }
        },
    };
    read().ok_or_else(|| {
        problem(
            value,
            "`icmp` is a type such as 8, types such as \"0-8\", or type and code such as \"3/4\"",
        )
    })
}

pub(super) fn contains(addresses: &Addresses, address: IpAddr) -> bool {
    match addresses {
        Addresses::Any => true,
        Addresses::Range(first, last) => {
            first.is_ipv4() == address.is_ipv4() && *first <= address && address <= *last
        }
    }
}

/// Checks whether `selector` matches every packet that `other` matches.
pub(super) fn covers(selector: &Selector, other: &Selector) -> bool {
    let addresses = |own: &Addresses, other: &Addresses| match (own, other) {
        (Addresses::Any, _) => true,
        (own, Addresses::Range(first, last)) => contains(own, *first) && contains(own, *last),
        (_, Addresses::Any) => false,
    };
    let range = |own: &RangeInclusive<u16>, other: &RangeInclusive<u16>| {
        own.contains(other.start()) && own.contains(other.end())
    };
    let ports = |own: &Ports, other: &Ports| match (own, other) {
        (Ports::Any, _) | (Ports::Opaque, Ports::Opaque) => true,
        (Ports::Range(own), Ports::Range(other)) => range(own, other),
        _ => false,
    };
    addresses(&selector.local, &other.local)
        && addresses(&selector.remote, &other.remote)
        && (selector.protocol.is_none() || selector.protocol == other.protocol)
        && ports(&selector.local_port, &other.local_port)
        && ports(&selector.remote_port, &other.remote_port)
        && match (&selector.icmp, &other.icmp) {
            (None, _) => true,
            (Some(own), Some(other)) => range(own, other),
            (Some(_), None) => false,
        }
}
