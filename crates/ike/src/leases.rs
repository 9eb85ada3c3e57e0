//! The addresses that are assigned to initiators.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::IpAddr;

use crate::event::SessionId;
use crate::identity::Identity;
use crate::virtual_address::{Assigned, Pool, Wanted};
use crate::wire::AddressRange;

/// Addresses in use, each by one session. No address is assigned twice, also where pools overlap.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    taken: HashSet<IpAddr>,
    by_session: HashMap<SessionId, Vec<IpAddr>>,
}

impl Leases {
    /// Assigns what is asked for, of the IP versions of which the pool has an address left; none if it
    /// has none at all. Built-in clients ask for both, whatever they are offered.
    pub(crate) fn assign(
        &mut self,
        pool: &Pool,
        wanted: &[Wanted],
        session: SessionId,
        name: &Identity,
    ) -> Option<Assigned> {
        let addresses: Vec<_> =
            wanted.iter().filter_map(|wanted| self.find(pool, *wanted, name)).collect();
        if addresses.is_empty() {
            return None;
        }
        self.taken.extend(&addresses);
        self.by_session.insert(session, addresses.clone());
        Some(Assigned { addresses, dns: pool.dns.clone() })
    }

    /// Takes back the addresses of a session.
    pub(crate) fn release(&mut self, session: SessionId) {
        for address in self.by_session.remove(&session).unwrap_or_default() {
            self.taken.remove(&address);
        }
    }

    fn find(&self, pool: &Pool, wanted: Wanted, name: &Identity) -> Option<IpAddr> {
        let ranges = pool.ranges.iter().map(Range::of).filter(|one| one.is_ipv6 == wanted.is_ipv6);
        let ranges: Vec<_> = ranges.collect();
        let is_free = |address: &IpAddr| !self.taken.contains(address);
        let in_pool = |address: &IpAddr| ranges.iter().any(|range| range.contains(*address));
        if let Some(address) = wanted.address.filter(|one| in_pool(one) && is_free(one)) {
            return Some(address);
        }
        // a peer that comes back has the same address, if nobody took it
        let start = BuildHasherDefault::<DefaultHasher>::default().hash_one(name.folded());
        // of one more than are in use, one is free
        let most = self.taken.len() as u128 + 1;
        ranges.iter().find_map(|range| {
            let offset = u128::from(start) % range.len();
            (0..range.len().min(most)).map(|at| range.at(offset, at)).find(is_free)
        })
    }
}

/// A range of addresses, as numbers.
struct Range {
    is_ipv6: bool,
    first: u128,
    last: u128,
}

impl Range {
    fn of(range: &AddressRange) -> Self {
        match range {
            AddressRange::V4(one) => Self {
                is_ipv6: false,
                first: one.start().to_bits().into(),
                last: one.end().to_bits().into(),
            },
            AddressRange::V6(one) => {
                Self { is_ipv6: true, first: one.start().to_bits(), last: one.end().to_bits() }
            }
        }
    }

    fn len(&self) -> u128 {
        // all of IPv6 is a range, too
        (self.last - self.first).saturating_add(1)
    }

    fn contains(&self, address: IpAddr) -> bool {
        let number = match address {
            IpAddr::V4(one) => one.to_bits().into(),
            IpAddr::V6(one) => one.to_bits(),
        };
        address.is_ipv6() == self.is_ipv6 && (self.first..=self.last).contains(&number)
    }

    /// Returns the address `steps` after `offset`; behind the last comes the first.
    fn at(&self, offset: u128, steps: u128) -> IpAddr {
        let number = self.first + (offset + steps) % self.len();
        match self.is_ipv6 {
            true => IpAddr::V6(number.into()),
            false => IpAddr::V4((number as u32).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(first: [u8; 4], last: [u8; 4]) -> Pool {
        Pool { ranges: vec![AddressRange::V4(first.into()..=last.into())], dns: Vec::new() }
    }

    fn name(number: u64) -> Identity {
        Identity::Fqdn(format!("peer-{number}"))
    }

    fn ask(leases: &mut Leases, pool: &Pool, number: u64) -> Option<IpAddr> {
        let session = SessionId(number);
        let wanted = [Wanted { is_ipv6: false, address: None }];
        let name = name(number % 1000);
        leases.assign(pool, &wanted, session, &name).map(|assigned| assigned.addresses[0])
    }

    #[test]
    fn each_session_has_an_address_of_its_own_until_the_pool_is_empty() {
        let (mut leases, pool) = (Leases::default(), pool([10, 9, 0, 1], [10, 9, 0, 100]));
        let mut all: Vec<_> = (0..100).filter_map(|one| ask(&mut leases, &pool, one)).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 100);
        assert_eq!(ask(&mut leases, &pool, 100), None);
        leases.release(SessionId(7));
        assert!(ask(&mut leases, &pool, 101).is_some());
    }

    #[test]
    fn a_peer_that_comes_back_has_its_address_again() {
        let (mut leases, pool) = (Leases::default(), pool([10, 9, 0, 1], [10, 9, 255, 254]));
        let first = ask(&mut leases, &pool, 5);
        assert_ne!(ask(&mut leases, &pool, 1005), first, "two sessions have two");
        leases.release(SessionId(5));
        assert_eq!(ask(&mut leases, &pool, 2005), first);
        // the end of the old session does not take it away
        leases.release(SessionId(5));
        assert_ne!(ask(&mut leases, &pool, 3005), first);
    }

    #[test]
    fn a_wanted_address_is_given_if_it_is_free_and_in_the_pool() {
        let mut leases = Leases::default();
        let pool = pool([10, 9, 0, 1], [10, 9, 0, 9]);
        let names = [name(1), name(2), name(3)];
        let mut ask = |number: usize, address: [u8; 4]| {
            let wanted = [Wanted { is_ipv6: false, address: Some(address.into()) }];
            let session = SessionId(number as u64);
            leases.assign(&pool, &wanted, session, &names[number]).map(|one| one.addresses[0])
        };
        let taken = IpAddr::from([10, 9, 0, 3]);
        assert_eq!(ask(0, [10, 9, 0, 3]), Some(taken));
        assert_ne!(ask(1, [10, 9, 0, 3]), Some(taken));
        assert_ne!(ask(2, [192, 0, 2, 1]), Some([192, 0, 2, 1].into()));
    }

    #[test]
    fn who_asks_for_both_ip_versions_gets_the_one_that_there_is() {
        let (mut leases, pool) = (Leases::default(), pool([10, 9, 0, 1], [10, 9, 0, 1]));
        let wanted = [true, false].map(|is_ipv6| Wanted { is_ipv6, address: None });
        let name = name(1);
        let mut ask = |number| leases.assign(&pool, &wanted, SessionId(number), &name);
        let assigned = ask(1).expect("an IPv4 address");
        assert_eq!(assigned.addresses, [IpAddr::from([10, 9, 0, 1])]);
        assert_eq!(ask(2), None);
    }

    #[test]
    fn all_of_ipv6_is_a_pool_too() {
        let all = AddressRange::V6(0.into()..=u128::MAX.into());
        let pool = Pool { ranges: vec![all], dns: Vec::new() };
        let wanted = [Wanted { is_ipv6: true, address: None }];
        let name = name(1);
        let ask = |wanted| Leases::default().assign(&pool, wanted, SessionId(1), &name);
        assert!(ask(&wanted).is_some());
        let v4 = [Wanted { is_ipv6: false, address: None }];
        assert_eq!(ask(&v4), None);
    }
}
