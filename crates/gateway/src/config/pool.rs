//! Reads `address`, `pool` and `dns` of `[ike]`: addresses that one end assigns to the other.

use std::net::IpAddr;

use headroom_ike::wire::AddressRange;
use headroom_ike::{Pool, VirtualAddresses};
use headroom_ipsec::spec::Addresses;
use toml::Spanned;

use super::file::{IkeFile, OneOrMany};
use super::problem::{Problem, excerpt, problem};
use super::reader::Reader;
use super::selectors::parse_addresses;

/// The most prefixes and ranges of a pool.
const MAX_RANGES: usize = 16;
/// The most DNS servers: clients take no more.
const MAX_DNS: usize = 8;

impl Reader<'_> {
    /// Reads whether one end assigns addresses to the other, and the networks of the pool. `own` are the
    /// addresses of the interface.
    pub(super) fn virtual_addresses(
        &self,
        file: &IkeFile,
        own: &[(IpAddr, u8)],
    ) -> Result<(VirtualAddresses, Vec<Addresses>), Problem> {
        let from_any = file.remote.get_ref() == "any";
        match (&file.address, &file.pool) {
            (Some(address), Some(_)) => {
                Err(problem(address, "`address` and `pool` are both present: remove one"))
            }
            (Some(address), None) if from_any => {
                let message = "`address` is for the end that begins, and `remote = \"any\"` waits";
                Err(problem(address, message))
            }
            (Some(address), None) if !own.is_empty() => {
                let message = "the interface has addresses by `address` at the top of the file, and asks for one here: \
                               remove one";
                Err(problem(address, message))
            }
            (None, Some(pool)) if !from_any => {
                let message = "a `pool` is for many peers: write `remote = \"any\"`";
                Err(problem(pool, message))
            }
            (Some(_), None) => {
                Ok((VirtualAddresses::Request { ipv4: true, ipv6: true }, Vec::new()))
            }
            (None, Some(pool)) => {
                let dns = file.dns.as_ref().map_or(Ok(Vec::new()), servers)?;
                let kept: Vec<IpAddr> =
                    own.iter().map(|(one, _)| *one).chain(dns.clone()).collect();
                let (ranges, networks) = ranges(pool, &kept)?;
                Ok((VirtualAddresses::Assign(Pool { ranges, dns }), networks))
            }
            (None, None) => match &file.dns {
                Some(dns) => Err(problem(dns, "`dns` needs `pool`, with which it is assigned")),
                None => Ok((VirtualAddresses::None, Vec::new())),
            },
        }
    }
}

/// Reads the addresses that may be assigned: without those in `kept`, and without the first and last
/// of an IPv4 network and the first of an IPv6 network, which are no host's; and what was written.
fn ranges(
    written: &Spanned<OneOrMany>,
    kept: &[IpAddr],
) -> Result<(Vec<AddressRange>, Vec<Addresses>), Problem> {
    let texts = &written.get_ref().0;
    if texts.is_empty() || texts.len() > MAX_RANGES {
        let message = format!("write 1 to {MAX_RANGES} prefixes or ranges");
        return Err(problem(written, message));
    }
    let (mut ranges, mut networks): (Vec<Range>, _) = (Vec::new(), Vec::new());
    for text in texts {
        let parsed = parse_addresses(text).map_err(|message| problem(written, message))?;
        let Some(range) = Range::of(&parsed, text.contains('/')) else {
            let message = format!("`{}` is no prefix or range of a pool", excerpt(text));
            return Err(problem(written, message));
        };
        if ranges.iter().any(|other| other.overlaps(&range)) {
            let message = format!("`{}` overlaps what is before it", excerpt(text));
            return Err(problem(written, message));
        }
        let mut parts = vec![range];
        for address in kept {
            parts = parts.into_iter().flat_map(|part| part.without(*address)).collect();
        }
        if parts.is_empty() {
            let message = format!(
                "`{}` has no address left but this host's own and those of DNS servers",
                excerpt(text)
            );
            return Err(problem(written, message));
        }
        ranges.extend(parts);
        networks.push(parsed);
    }
    Ok((ranges.into_iter().map(Range::shown).collect(), networks))
}

fn servers(written: &Spanned<OneOrMany>) -> Result<Vec<IpAddr>, Problem> {
    let texts = &written.get_ref().0;
    if texts.is_empty() || texts.len() > MAX_DNS {
        return Err(problem(written, format!("write 1 to {MAX_DNS} addresses of DNS servers")));
    }
    let one = |text: &String| {
        let address = text.trim().parse::<IpAddr>().ok();
        address.filter(|one| !one.is_unspecified() && !one.is_multicast()).ok_or_else(|| {
            problem(written, format!("`{}` is not the address of a DNS server", excerpt(text)))
        })
    };
    texts.iter().map(one).collect()
}

/// Addresses of one IP version, as numbers.
#[derive(Clone, Copy)]
struct Range {
    is_v6: bool,
    first: u128,
    last: u128,
}

impl Range {
    fn of(addresses: &Addresses, is_network: bool) -> Option<Self> {
        let Addresses::Range(first, last) = *addresses else { return None };
        let (is_v6, mut first, mut last) = (first.is_ipv6(), number(first), number(last));
        if is_network && last - first > 1 {
            first += 1;
            last -= u128::from(!is_v6);
        }
        Some(Self { is_v6, first, last })
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.is_v6 == other.is_v6 && self.first <= other.last && other.first <= self.last
    }

    /// Returns what is left without an address.
    fn without(self, address: IpAddr) -> Vec<Self> {
        let at = number(address);
        if address.is_ipv6() != self.is_v6 || at < self.first || at > self.last {
            return vec![self];
        }
        let before = (at > self.first).then(|| Self { last: at - 1, ..self });
        let after = (at < self.last).then(|| Self { first: at + 1, ..self });
        before.into_iter().chain(after).collect()
    }

    fn shown(self) -> AddressRange {
        let v4 = |number: u128| (number as u32).into();
        match self.is_v6 {
            true => AddressRange::V6(self.first.into()..=self.last.into()),
            false => AddressRange::V4(v4(self.first)..=v4(self.last)),
        }
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(one) => one.to_bits().into(),
        IpAddr::V6(one) => one.to_bits(),
    }
}
