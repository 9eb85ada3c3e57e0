//! Traffic selectors of IKE as selectors of an engine, and back.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use headroom_ike::wire::{AddressRange, TrafficSelector};
use headroom_ipsec::spec::{Addresses, Ports, Selector};

/// Returns a pair of traffic selectors as an engine writes it; none if no packet matches both, as their
/// protocols differ.
pub(super) fn selector(local: &TrafficSelector, remote: &TrafficSelector) -> Option<Selector> {
    let protocol = match (local.protocol, remote.protocol) {
        (0, protocol) | (protocol, 0) => Some(protocol).filter(|protocol| *protocol != 0),
        (one, other) if one == other => Some(one),
        _ => return None,
    };
    let addresses = |range: &AddressRange| match range {
        AddressRange::V4(range) => Addresses::Range((*range.start()).into(), (*range.end()).into()),
        AddressRange::V6(range) => Addresses::Range((*range.start()).into(), (*range.end()).into()),
    };
    let ports = |ports: (u16, u16)| match ports {
        (0, u16::MAX) => Ports::Any,
        (u16::MAX, 0) => Ports::Opaque,
        (first, last) => Ports::Range(first..=last),
    };
    Some(Selector {
        local: addresses(&local.addresses),
        remote: addresses(&remote.addresses),
        protocol,
        local_port: ports(local.ports),
        remote_port: ports(remote.ports),
        icmp: None,
    })
}

/// Returns the packets that both select; none if there are none.
pub(super) fn intersect(one: &Selector, other: &Selector) -> Option<Selector> {
    Some(Selector {
        remote: intersect_addresses(&one.remote, &other.remote)?,
        local: intersect_addresses(&one.local, &other.local)?,
        protocol: match (one.protocol, other.protocol) {
            (Some(one), Some(other)) if one != other => return None,
            (one, other) => one.or(other),
        },
        local_port: intersect_ports(&one.local_port, &other.local_port)?,
        remote_port: intersect_ports(&one.remote_port, &other.remote_port)?,
        icmp: match (&one.icmp, &other.icmp) {
            (Some(one), Some(other)) => Some(intersect_ranges(one, other)?),
            (one, other) => one.clone().or_else(|| other.clone()),
        },
    })
}

/// Tells whether one selects all packets of the other.
pub(super) fn covers(one: &Selector, other: &Selector) -> bool {
    intersect(one, other).as_ref() == Some(other)
}

/// Tells whether each of `others` is covered by one of `all`.
pub(super) fn cover_each(all: &[Selector], others: &[Selector]) -> bool {
    others.iter().all(|other| all.iter().any(|one| covers(one, other)))
}

fn intersect_addresses(one: &Addresses, other: &Addresses) -> Option<Addresses> {
    match (one, other) {
        (Addresses::Any, addresses) | (addresses, Addresses::Any) => Some(addresses.clone()),
        // all addresses of IPv4 are less than those of IPv6
        (Addresses::Range(first, last), Addresses::Range(start, end)) => {
            let (first, last) = (*first.max(start), *last.min(end));
            (first <= last).then_some(Addresses::Range(first, last))
        }
    }
}

fn intersect_ports(one: &Ports, other: &Ports) -> Option<Ports> {
    match (one, other) {
        (Ports::Any, ports) | (ports, Ports::Any) => Some(ports.clone()),
        (Ports::Opaque, Ports::Opaque) => Some(Ports::Opaque),
        (Ports::Opaque, Ports::Range(_)) | (Ports::Range(_), Ports::Opaque) => None,
        (Ports::Range(one), Ports::Range(other)) => intersect_ranges(one, other).map(Ports::Range),
    }
}

fn intersect_ranges(
    one: &RangeInclusive<u16>,
    other: &RangeInclusive<u16>,
) -> Option<RangeInclusive<u16>> {
    let range = *one.start().max(other.start())..=*one.end().min(other.end());
    (!range.is_empty()).then_some(range)
}

pub(super) fn is_of_one_version(selector: &Selector) -> bool {
    let version = |addresses| first_address(addresses).map(|one| one.is_ipv6());
    version(&selector.local) == version(&selector.remote)
}

/// Returns the first of a range of addresses.
pub(super) fn first_address(addresses: &Addresses) -> Option<IpAddr> {
    match addresses {
        Addresses::Range(first, _) => Some(*first),
        Addresses::Any => None,
    }
}

/// Returns one end of configured selectors as IKE writes it.
pub(super) fn traffic_selectors<'a>(
    ends: impl Iterator<Item = &'a Addresses>,
) -> Vec<TrafficSelector> {
    let mut all: Vec<TrafficSelector> = Vec::new();
    for selector in ends.filter_map(traffic_selector) {
        if !all.contains(&selector) {
            all.push(selector);
        }
    }
    all
}

fn traffic_selector(addresses: &Addresses) -> Option<TrafficSelector> {
    use std::net::IpAddr::{V4, V6};
    let range = match addresses {
        Addresses::Range(V4(first), V4(last)) => AddressRange::V4(*first..=*last),
        Addresses::Range(V6(first), V6(last)) => AddressRange::V6(*first..=*last),
        Addresses::Range(..) | Addresses::Any => return None,
    };
    Some(TrafficSelector::all_of(range))
}
