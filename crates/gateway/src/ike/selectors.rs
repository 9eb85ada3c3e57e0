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
