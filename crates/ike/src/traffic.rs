//! Narrowing of traffic selectors (RFC 7296 §2.9).

use std::net::IpAddr;

use crate::wire::{AddressRange, TrafficSelector};

/// Most selectors of one end of a CHILD SA.
pub(crate) const MAX_SELECTORS: usize = 32;

impl TrafficSelector {
    /// Selects all packets of the addresses.
    #[must_use]
    pub fn all_of(addresses: AddressRange) -> Self {
        Self { protocol: 0, ports: (0, u16::MAX), addresses }
    }

    /// Selects all packets of one address.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self::all_of(match address {
            IpAddr::V4(address) => AddressRange::V4(address..=address),
            IpAddr::V6(address) => AddressRange::V6(address..=address),
        })
    }

    /// Selects all packets of a network.
    ///
    /// # Panics
    /// The prefix is longer than an address.
    #[must_use]
    pub fn network(address: IpAddr, prefix: u8) -> Self {
        Self::all_of(match address {
            IpAddr::V4(address) => {
                assert!(prefix <= 32, "a prefix of {prefix} bits");
                let host = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
                let first = address.to_bits() & !host;
                AddressRange::V4(first.into()..=(first | host).into())
            }
            IpAddr::V6(address) => {
                assert!(prefix <= 128, "a prefix of {prefix} bits");
                let host = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
                let first = address.to_bits() & !host;
                AddressRange::V6(first.into()..=(first | host).into())
            }
        })
    }

    /// Returns the packets that both select; none if there are none.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let protocol = match (self.protocol, other.protocol) {
            (0, one) | (one, 0) => one,
            (one, same) if one == same => one,
            _ => return None,
        };
        let ports = match (self.ports, other.ports) {
            (one, same) if one == same => one,
            // OPAQUE is a part of all ports, and of nothing less (RFC 4301 §4.4.1.1)
            ((0, u16::MAX), opaque @ (u16::MAX, 0)) | (opaque @ (u16::MAX, 0), (0, u16::MAX)) => {
                opaque
            }
            ((u16::MAX, 0), _) | (_, (u16::MAX, 0)) => return None,
            ((a, b), (c, d)) if a.max(c) <= b.min(d) => (a.max(c), b.min(d)),
            _ => return None,
        };
        let addresses = match (&self.addresses, &other.addresses) {
            (AddressRange::V4(one), AddressRange::V4(other)) => {
                let range = *one.start().max(other.start())..=*one.end().min(other.end());
                (!range.is_empty()).then_some(AddressRange::V4(range))
            }
            (AddressRange::V6(one), AddressRange::V6(other)) => {
                let range = *one.start().max(other.start())..=*one.end().min(other.end());
                (!range.is_empty()).then_some(AddressRange::V6(range))
            }
            _ => None,
        };
        Some(Self { protocol, ports, addresses: addresses? })
    }
}

/// Returns what is selected on both sides, in the peer's order.
pub(crate) fn narrow(theirs: &[TrafficSelector], ours: &[TrafficSelector]) -> Vec<TrafficSelector> {
    let mut common: Vec<TrafficSelector> = Vec::new();
    for their in theirs {
        for our in ours {
            let Some(both) = their.intersect(our) else { continue };
            if !common.contains(&both) && common.len() < MAX_SELECTORS {
                common.push(both);
            }
        }
    }
    common
}

/// Checks that a responder's selectors are within those that were proposed.
pub(crate) fn are_within(theirs: &[TrafficSelector], proposed: &[TrafficSelector]) -> bool {
    let within = |their: &TrafficSelector| {
        proposed.iter().any(|one| one.intersect(their).as_ref() == Some(their))
    };
    !theirs.is_empty() && theirs.len() <= MAX_SELECTORS && theirs.iter().all(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str, prefix: u8) -> TrafficSelector {
        TrafficSelector::network(text.parse().expect("an address"), prefix)
    }

    #[test]
    fn narrows_to_what_both_select() {
        let ours = [network("10.1.0.0", 16), network("2001:db8::", 32)];
        let narrowed = |theirs: &[TrafficSelector]| narrow(theirs, &ours);
        let all = [network("0.0.0.0", 0), network("::", 0)];
        assert_eq!(narrowed(&all), ours);
        assert_eq!(narrowed(&[network("10.1.2.0", 24)]), [network("10.1.2.0", 24)]);
        assert_eq!(narrowed(&[network("10.2.0.0", 16)]), []);
        let tcp = TrafficSelector { protocol: 6, ports: (80, 90), ..all[0].clone() };
        let expected = TrafficSelector { protocol: 6, ports: (80, 90), ..ours[0].clone() };
        assert_eq!(narrowed(std::slice::from_ref(&tcp)), [expected]);
        let udp = TrafficSelector { protocol: 17, ..tcp.clone() };
        assert_eq!(tcp.intersect(&udp), None);
        let ssh = TrafficSelector { ports: (22, 22), ..tcp.clone() };
        assert_eq!(tcp.intersect(&ssh), None);
        let opaque = TrafficSelector { ports: (u16::MAX, 0), ..tcp.clone() };
        assert_eq!(tcp.intersect(&opaque), None);
        let any_port = TrafficSelector { ports: (0, u16::MAX), ..tcp };
        assert_eq!(any_port.intersect(&opaque), Some(opaque));
    }

    #[test]
    fn a_response_may_not_widen() {
        let proposed = [network("10.1.0.0", 16)];
        assert!(are_within(&[network("10.1.0.0", 16)], &proposed));
        assert!(are_within(&[network("10.1.3.0", 24)], &proposed));
        assert!(!are_within(&[network("10.0.0.0", 8)], &proposed));
        assert!(!are_within(&[network("10.1.3.0", 24), network("10.2.0.0", 24)], &proposed));
        assert!(!are_within(&[], &proposed));
    }

    #[test]
    fn the_number_of_selectors_is_bounded() {
        let many: Vec<_> = (0..=255).map(|at| network(&format!("10.{at}.0.0"), 16)).collect();
        assert_eq!(narrow(&many, &many).len(), MAX_SELECTORS);
    }
}
