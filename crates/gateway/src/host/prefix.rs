//! Converts address ranges to prefixes for routes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use headroom_ipsec::spec::Addresses;

/// All addresses with the same first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Prefix {
    pub(super) address: IpAddr,
    pub(super) len: u8,
}

impl Prefix {
    pub(super) fn is_v6(&self) -> bool {
        self.address.is_ipv6()
    }

    /// Returns the option of `ip` for the prefix's IP version.
    pub(super) fn family(&self) -> &'static str {
        if self.is_v6() { "-6" } else { "-4" }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// Returns the fewest prefixes that cover exactly these addresses.
pub(super) fn prefixes(addresses: &Addresses) -> Vec<Prefix> {
    match *addresses {
        Addresses::Any => vec![
            Prefix { address: Ipv4Addr::UNSPECIFIED.into(), len: 0 },
            Prefix { address: Ipv6Addr::UNSPECIFIED.into(), len: 0 },
        ],
        Addresses::Range(IpAddr::V4(first), IpAddr::V4(last)) => {
            let blocks = blocks(u128::from(u32::from(first)), u128::from(u32::from(last)), 32);
            let address = |bits: u128| IpAddr::from(Ipv4Addr::from(bits as u32));
            blocks.map(|(bits, len)| Prefix { address: address(bits), len }).collect()
        }
        Addresses::Range(IpAddr::V6(first), IpAddr::V6(last)) => {
            let blocks = blocks(first.into(), last.into(), 128);
            blocks.map(|(bits, len)| Prefix { address: Ipv6Addr::from(bits).into(), len }).collect()
        }
        // A range of two IP versions is empty.
        Addresses::Range(..) => Vec::new(),
    }
}

/// Returns aligned blocks from `first` to `last`, with their prefix lengths.
fn blocks(first: u128, last: u128, width: u32) -> impl Iterator<Item = (u128, u8)> {
    let mut next = Some(first).filter(|first| *first <= last);
    std::iter::from_fn(move || {
        let start = next?;
        let mut bits = start.trailing_zeros().min(width);
        let end = |bits: u32| start + u128::MAX.checked_shr(128 - bits).unwrap_or(0);
        while end(bits) > last {
            bits -= 1;
        }
        next = end(bits).checked_add(1).filter(|next| *next <= last);
        Some((start, (width - bits) as u8))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(first: &str, last: &str) -> Vec<String> {
        let address = |text: &str| text.parse().expect("an address");
        let range = Addresses::Range(address(first), address(last));
        prefixes(&range).iter().map(Prefix::to_string).collect()
    }

    #[test]
    fn converts_a_range_to_the_fewest_prefixes() {
        assert_eq!(shown("10.1.0.0", "10.1.255.255"), ["10.1.0.0/16"]);
        assert_eq!(shown("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(shown("192.0.2.7", "192.0.2.7"), ["192.0.2.7/32"]);
        let odd = ["192.0.2.1/32", "192.0.2.2/31", "192.0.2.4/31", "192.0.2.6/32"];
        assert_eq!(shown("192.0.2.1", "192.0.2.6"), odd);
        assert_eq!(shown("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ["::/0"]);
        assert_eq!(shown("2001:db8::", "2001:db8::1:ffff"), ["2001:db8::/111"]);
        assert_eq!(shown("10.0.0.2", "10.0.0.1"), [""; 0]);
        assert_eq!(shown("10.0.0.1", "::1"), [""; 0]);
    }
}
