//! The addresses that are assigned to initiators.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::IpAddr;

use crate::event::SessionId;
use crate::identity::Identity;
use crate::virtual_address::{Assigned, Pool, Wanted};
use crate::wire::AddressRange;

/// Addresses in use. None is assigned to two peers, also where pools overlap; a session that replaces
/// another of the same peer has the same address.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    taken: HashMap<IpAddr, Lease>,
    by_session: HashMap<SessionId, Vec<IpAddr>>,
}

/// An address in use.
#[derive(Debug)]
struct Lease {
    /// The name of the connection, and the name that the peer has proved.
    owner: (String, Identity),
    sessions: usize,
}

impl Leases {
    /// Assigns what is asked for, of the IP versions of which the pool has an address left; none if it
    /// has none at all. Built-in clients ask for both, whatever they are offered.
    pub(crate) fn assign(
        &mut self,
        pool: &Pool,
        wanted: &[Wanted],
        session: SessionId,
        (connection, name): (&str, &Identity),
    ) -> Option<Assigned> {
        let owner = (connection.to_owned(), name.folded());
        let addresses: Vec<_> =
            wanted.iter().filter_map(|wanted| self.find(pool, *wanted, &owner)).collect();
        if addresses.is_empty() {
            return None;
        }
        for address in &addresses {
            let fresh = || Lease { owner: owner.clone(), sessions: 0 };
            self.taken.entry(*address).or_insert_with(fresh).sessions += 1;
        }
        self.by_session.insert(session, addresses.clone());
        Some(Assigned { addresses, dns: pool.dns.clone() })
    }

    /// Takes back the addresses of a session.
    pub(crate) fn release(&mut self, session: SessionId) {
        for address in self.by_session.remove(&session).unwrap_or_default() {
            let Some(lease) = self.taken.get_mut(&address) else { continue };
            lease.sessions -= 1;
            if lease.sessions == 0 {
                self.taken.remove(&address);
            }
        }
    }

    fn find(&self, pool: &Pool, wanted: Wanted, owner: &(String, Identity)) -> Option<IpAddr> {
        let ranges = pool.ranges.iter().map(Range::of).filter(|one| one.is_ipv6 == wanted.is_ipv6);
        let ranges: Vec<_> = ranges.collect();
        let is_free = |address: &IpAddr| !self.taken.contains_key(address);
        // a peer asks for what it has when it sets up an IKE SA in place of another
        let is_own =
            |address: &IpAddr| self.taken.get(address).is_none_or(|lease| lease.owner == *owner);
        let in_pool = |address: &IpAddr| ranges.iter().any(|range| range.contains(*address));
        if let Some(address) = wanted.address.filter(|one| in_pool(one) && is_own(one)) {
            return Some(address);
        }
        // a peer that comes back has the same address, if nobody took it
        let start = BuildHasherDefault::<DefaultHasher>::default().hash_one(&owner.1);
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
        leases.assign(pool, &wanted, session, ("vpn", &name)).map(|assigned| assigned.addresses[0])
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
            let assigned = leases.assign(&pool, &wanted, session, ("vpn", &names[number]));
            assigned.map(|one| one.addresses[0])
        };
        let taken = IpAddr::from([10, 9, 0, 3]);
        assert_eq!(ask(0, [10, 9, 0, 3]), Some(taken));
        assert_ne!(ask(1, [10, 9, 0, 3]), Some(taken));
        assert_ne!(ask(2, [192, 0, 2, 1]), Some([192, 0, 2, 1].into()));
    }

    #[test]
    fn a_peer_shares_its_address_with_itself_alone_and_until_both_sessions_end() {
        let mut leases = Leases::default();
        let pool = pool([10, 9, 0, 1], [10, 9, 0, 9]);
        let address = IpAddr::from([10, 9, 0, 3]);
        let ask = |leases: &mut Leases, session, connection, number| {
            let wanted = [Wanted { is_ipv6: false, address: Some(address) }];
            let owner = (connection, &name(number));
            leases.assign(&pool, &wanted, SessionId(session), owner).map(|one| one.addresses[0])
        };
        assert_eq!(ask(&mut leases, 1, "vpn", 1), Some(address));
        assert_ne!(ask(&mut leases, 2, "vpn", 2), Some(address), "another name");
        assert_ne!(ask(&mut leases, 3, "lab", 1), Some(address), "another connection");
        assert_eq!(ask(&mut leases, 4, "vpn", 1), Some(address));
        leases.release(SessionId(1));
        assert_ne!(ask(&mut leases, 5, "vpn", 2), Some(address), "one session has it yet");
        leases.release(SessionId(4));
        assert_eq!(ask(&mut leases, 6, "vpn", 2), Some(address));
    }

    #[test]
    fn who_asks_for_both_ip_versions_gets_the_one_that_there_is() {
        let (mut leases, pool) = (Leases::default(), pool([10, 9, 0, 1], [10, 9, 0, 1]));
        let wanted = [true, false].map(|is_ipv6| Wanted { is_ipv6, address: None });
        let name = name(1);
        let mut ask = |number| leases.assign(&pool, &wanted, SessionId(number), ("vpn", &name));
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
        let ask = |wanted| Leases::default().assign(&pool, wanted, SessionId(1), ("vpn", &name));
        assert!(ask(&wanted).is_some());
        let v4 = [Wanted { is_ipv6: false, address: None }];
        assert_eq!(ask(&v4), None);
    }
}
