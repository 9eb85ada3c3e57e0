//! Addresses that a responder assigns to an initiator (RFC 7296 §2.19, §3.15).

use std::net::IpAddr;

use crate::wire::{
    AddressRange, Configuration, ConfigurationAttributeType as Attribute, ConfigurationType,
    TrafficSelector,
};

/// The most addresses, and the most servers, that we take from a responder.
const MAX_ASSIGNED: usize = 8;
/// The prefix that a responder says of an IPv6 address: it alone is the initiator's.
const IPV6_PREFIX: u8 = 128;

/// Whether one end assigns addresses to the other.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum VirtualAddresses {
    /// Each end has its own.
    #[default]
    None,
    /// As initiator, we ask for one of each of these IP versions. Selectors of CHILD SAs are narrowed
    /// to it.
    Request {
        /// IPv4.
        ipv4: bool,
        /// IPv6.
        ipv6: bool,
    },
    /// As responder, we assign. An initiator has no other addresses.
    Assign(Pool),
}

/// What a responder assigns.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Pool {
    /// Ranges of addresses; an initiator gets one of each IP version that it asks for.
    pub ranges: Vec<AddressRange>,
    /// DNS servers.
    pub dns: Vec<IpAddr>,
}

/// What was assigned.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Assigned {
    /// The initiator's addresses.
    pub addresses: Vec<IpAddr>,
    /// DNS servers.
    pub dns: Vec<IpAddr>,
}

/// Attributes of a CP payload.
pub(crate) type Attributes = Vec<(Attribute, Vec<u8>)>;

impl VirtualAddresses {
    /// Returns the attributes of a request, if there is one, for the addresses that we had before.
    pub(crate) fn request(&self, had: &[IpAddr]) -> Option<Attributes> {
        let Self::Request { ipv4, ipv6 } = self else { return None };
        let v4 = [Attribute::InternalIp4Address, Attribute::InternalIp4Dns];
        let v6 = [Attribute::InternalIp6Address, Attribute::InternalIp6Dns];
        let asked = [(v4, *ipv4), (v6, *ipv6)].into_iter().filter(|(_, asked)| *asked);
        let had = Assigned { addresses: had.to_vec(), dns: Vec::new() }.reply();
        let value = |attribute| {
            let same = had.iter().find(|(one, _)| *one == attribute);
            same.map_or_else(Vec::new, |(_, value)| value.clone())
        };
        let attributes = asked.flat_map(|(attributes, _)| attributes);
        Some(attributes.map(|one| (one, value(one))).collect())
    }
}

impl Assigned {
    /// Reads a reply.
    pub(crate) fn from_reply(reply: &Configuration<'_>) -> Self {
        let mut assigned = Self::default();
        for (attribute, value) in &reply.attributes {
            let (list, address) = match attribute {
                Attribute::InternalIp4Address => (&mut assigned.addresses, v4(value)),
                Attribute::InternalIp6Address => (&mut assigned.addresses, v6(value)),
                Attribute::InternalIp4Dns => (&mut assigned.dns, v4(value)),
                Attribute::InternalIp6Dns => (&mut assigned.dns, v6(value)),
                _ => continue,
            };
            list.extend(address.filter(|_| list.len() < MAX_ASSIGNED));
        }
        assigned
    }

    /// Returns the attributes of a reply.
    pub(crate) fn reply(&self) -> Attributes {
        let addresses = self.addresses.iter().map(|address| match address {
            IpAddr::V4(one) => (Attribute::InternalIp4Address, one.octets().to_vec()),
            IpAddr::V6(one) => {
                (Attribute::InternalIp6Address, [&one.octets()[..], &[IPV6_PREFIX]].concat())
            }
        });
        let dns = self.dns.iter().map(|server| match server {
            IpAddr::V4(one) => (Attribute::InternalIp4Dns, one.octets().to_vec()),
            IpAddr::V6(one) => (Attribute::InternalIp6Dns, one.octets().to_vec()),
        });
        addresses.chain(dns).collect()
    }

    /// Returns the packets of the assigned addresses.
    pub(crate) fn selectors(&self) -> Vec<TrafficSelector> {
        self.addresses.iter().map(|address| TrafficSelector::host(*address)).collect()
    }
}

/// Makes a CP payload.
pub(crate) fn configuration(
    configuration_type: ConfigurationType,
    attributes: &Attributes,
) -> Configuration<'_> {
    let attributes = attributes.iter().map(|(one, value)| (*one, &value[..])).collect();
    Configuration { configuration_type, attributes }
}

/// Returns the addresses that a request asks for, the one that it would like where it says one.
pub(crate) fn requested(request: &Configuration<'_>) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for (attribute, value) in &request.attributes {
        let one = match attribute {
            Attribute::InternalIp4Address => Wanted { is_ipv6: false, address: v4(value) },
            Attribute::InternalIp6Address => Wanted { is_ipv6: true, address: v6(value) },
            _ => continue,
        };
        if !wanted.iter().any(|other| other.is_ipv6 == one.is_ipv6) {
            wanted.push(one);
        }
    }
    wanted
}

/// An address that an initiator asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) is_ipv6: bool,
    /// The one that it had before.
    pub(crate) address: Option<IpAddr>,
}

fn v4(value: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(value).ok().map(IpAddr::from).filter(|one| !one.is_unspecified())
}

/// An address has its prefix behind it, a server has not.
fn v6(value: &[u8]) -> Option<IpAddr> {
    let octets = value.get(..16).filter(|_| value.len() <= 17)?;
    <[u8; 16]>::try_from(octets).ok().map(IpAddr::from).filter(|one| !one.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_as_it_was_written() {
        let addresses = ["10.9.0.7", "2001:db8::7"].map(|one| one.parse().expect("an address"));
        let dns = ["10.9.0.1", "2001:db8::1"].map(|one| one.parse().expect("an address"));
        let assigned = Assigned { addresses: addresses.to_vec(), dns: dns.to_vec() };
        let attributes = assigned.reply();
        let reply = configuration(ConfigurationType::Reply, &attributes);
        assert_eq!(Assigned::from_reply(&reply), assigned);
        assert_eq!(assigned.selectors().len(), 2);
    }

    #[test]
    fn what_is_too_much_or_malformed_is_left_out() {
        let ten = vec![(Attribute::InternalIp4Address, vec![10, 0, 0, 1]); 10];
        let reply = configuration(ConfigurationType::Reply, &ten);
        assert_eq!(Assigned::from_reply(&reply).addresses.len(), MAX_ASSIGNED);
        let malformed = vec![
            (Attribute::InternalIp4Address, vec![10, 0, 0]),
            (Attribute::InternalIp4Address, vec![0, 0, 0, 0]),
            (Attribute::InternalIp6Address, vec![1; 18]),
            (Attribute::InternalIp6Dns, vec![1; 15]),
        ];
        let reply = configuration(ConfigurationType::Reply, &malformed);
        assert_eq!(Assigned::from_reply(&reply), Assigned::default());
    }

    #[test]
    fn a_request_names_each_ip_version_once() {
        let asks = VirtualAddresses::Request { ipv4: true, ipv6: true };
        let attributes = asks.request(&[]).expect("it asks");
        let request = configuration(ConfigurationType::Request, &attributes);
        let any = |is_ipv6| Wanted { is_ipv6, address: None };
        assert_eq!(requested(&request), [any(false), any(true)]);
        let twice = vec![
            (Attribute::InternalIp4Address, vec![10, 0, 0, 1]),
            (Attribute::InternalIp4Address, vec![10, 0, 0, 2]),
        ];
        let request = configuration(ConfigurationType::Request, &twice);
        let first = Wanted { is_ipv6: false, address: Some([10, 0, 0, 1].into()) };
        assert_eq!(requested(&request), [first]);
        assert_eq!(VirtualAddresses::None.request(&[]), None);
    }

    #[test]
    fn a_request_names_the_addresses_that_there_were() {
        let asks = VirtualAddresses::Request { ipv4: true, ipv6: true };
        let had: [IpAddr; 2] = [[10, 9, 0, 7].into(), [0x20, 1, 0xd, 0xb8, 7, 7, 7, 7].into()];
        let attributes = asks.request(&had).expect("it asks");
        let request = configuration(ConfigurationType::Request, &attributes);
        let wanted = had.map(|one| Wanted { is_ipv6: one.is_ipv6(), address: Some(one) });
        assert_eq!(requested(&request), wanted);
    }
}
