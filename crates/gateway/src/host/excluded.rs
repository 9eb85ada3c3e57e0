//! Local addresses that a policy's `remote` contains, for example with a tunnel to `any`. A packet
//! between two local addresses does not cross the IPsec boundary (RFC 4301, section 3.1).

use std::net::IpAddr;

use headroom_ipsec::PolicySpec;
use headroom_ipsec::spec::{Action, Addresses, Mode, SaSpec, Selector};

use super::prefix::{Prefix, prefixes};

/// Returns the local addresses that `policy` would route into the tunnel: its `local`, if `remote`
/// contains more than that. Transport mode concerns only this host.
pub(super) fn excluded<'a>(
    policy: &PolicySpec,
    mut specs: impl Iterator<Item = &'a SaSpec>,
) -> Option<Addresses> {
    let Action::Protect { out, .. } = &policy.action else { return None };
    let first = out.first()?;
    let tunnel = specs.any(|spec| spec.name == *first && spec.mode == Mode::Tunnel);
    let Selector { local, remote, .. } = &policy.selector;
    (tunnel && is_part(local, remote)).then(|| local.clone())
}

/// Returns the local addresses for all policies.
pub(super) fn excluded_prefixes<'a, S>(
    policies: &[PolicySpec],
    specs: impl Fn() -> S,
    has_v6: bool,
) -> Vec<Prefix>
where
    S: Iterator<Item = &'a SaSpec>,
{
    let addresses = policies.iter().filter_map(|policy| excluded(policy, specs()));
    let mut found: Vec<Prefix> = addresses
        .flat_map(|addresses| prefixes(&addresses))
        .filter(|prefix| has_v6 || !prefix.is_v6())
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Checks whether `remote` contains `local` and more.
fn is_part(local: &Addresses, remote: &Addresses) -> bool {
    let Addresses::Range(first, last) = *local else { return false };
    let (from, to) = match *remote {
        Addresses::Range(from, to) => (from, to),
        Addresses::Any if first.is_ipv4() => (IpAddr::from([0; 4]), IpAddr::from([u8::MAX; 4])),
        Addresses::Any => (IpAddr::from([0_u8; 16]), IpAddr::from([u8::MAX; 16])),
    };
    let families = [first, last, from, to].map(|address| address.is_ipv4());
    let same = families.iter().all(|family| *family == families[0]);
    same && from <= first && last <= to && (from, to) != (first, last)
}
