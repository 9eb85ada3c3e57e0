//! Traffic selectors of IKE as selectors of an engine, and back.

use std::net::IpAddr;

use headroom_ike::wire::{AddressRange, TrafficSelector};
use headroom_ipsec::spec::{Addresses, Ports, Selector};

/// Returns a pair of traffic selectors as an engine writes it.
pub(super) fn selector(local: &TrafficSelector, remote: &TrafficSelector) -> Selector {
    let addresses = |range: &AddressRange| match range {
        AddressRange::V4(range) => Addresses::Range((*range.start()).into(), (*range.end()).into()),
        AddressRange::V6(range) => Addresses::Range((*range.start()).into(), (*range.end()).into()),
    };
    let ports = |ports: (u16, u16)| match ports {
        (0, u16::MAX) => Ports::Any,
        (u16::MAX, 0) => Ports::Opaque,
        (first, last) => Ports::Range(first..=last),
    };
    Selector {
        local: addresses(&local.addresses),
        remote: addresses(&remote.addresses),
        protocol: Some(local.protocol).filter(|protocol| *protocol != 0),
        local_port: ports(local.ports),
        remote_port: ports(remote.ports),
        icmp: None,
    }
}

/// Tells whether some packets are selected by both.
pub(super) fn overlap(one: &[Selector], other: &[Selector]) -> bool {
    let addresses = |one: &Addresses, other: &Addresses| match (one, other) {
        (Addresses::Range(first, last), Addresses::Range(start, end)) => {
            first <= end && start <= last
        }
        (Addresses::Any, _) | (_, Addresses::Any) => true,
    };
    let ports = |one: &Ports, other: &Ports| match (one, other) {
        (Ports::Range(one), Ports::Range(other)) => {
            one.start() <= other.end() && other.start() <= one.end()
        }
        (Ports::Opaque, Ports::Range(_)) | (Ports::Range(_), Ports::Opaque) => false,
        (Ports::Any, _) | (_, Ports::Any) | (Ports::Opaque, Ports::Opaque) => true,
    };
    let both = |one: &Selector, other: &Selector| {
        addresses(&one.local, &other.local)
            && addresses(&one.remote, &other.remote)
            && one.protocol.zip(other.protocol).is_none_or(|(one, other)| one == other)
            && ports(&one.local_port, &other.local_port)
            && ports(&one.remote_port, &other.remote_port)
    };
    one.iter().any(|one| other.iter().any(|other| both(one, other)))
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
