//! The policies that CHILD SAs make of their configurations.
//!
//! CHILD SAs of one configuration may cover different packets, and some of the same: a peer makes a
//! second one with other traffic selectors (RFC 7296 §1.3.1, §2.9), or one replaces another (§1.3.3,
//! §2.8). An outbound packet takes the newest that sends and covers it, and an inbound one has to be
//! covered by the one on which it came (RFC 4301 §4.4.2, §5.2). Policies are ordered, and the first that
//! matches decides. So there is one for each selector and for what selectors have in common, the
//! narrower before the wider: the first that matches a packet is covered by the same CHILD SAs as the
//! packet.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use headroom_ike::{ChildId, SessionId};
use headroom_ipsec::PolicySpec;
use headroom_ipsec::spec::{Action, Selector};

use super::{Children, Installed};
use crate::config::IkeChild;
use crate::ike::selectors::{both, cover_each, covers};

/// The most policies of one configuration, or of one peer that shares it, for what selectors have in
/// common. Beyond it an inbound packet may be dropped whose SA covers it, and none goes where it should
/// not.
const MAX_COMMON: usize = 256;

/// A CHILD SA in force.
type InForce<'c> = (ChildId, &'c Installed);

impl Children {
    /// Returns the policies in force. What a configuration covers and no CHILD SA protects is dropped.
    pub(in crate::ike) fn policies(&self) -> Vec<PolicySpec> {
        let negotiated = self.configured.iter().flat_map(|child| self.policies_of(child));
        self.fixed.iter().cloned().chain(negotiated).collect()
    }

    fn policies_of(&self, child: &IkeChild) -> Vec<PolicySpec> {
        // the newest first
        let all = self.of(&child.name).rev().filter(|(_, one)| !one.is_refused);
        let mut policies = Vec::new();
        if child.is_shared {
            for (tenant, held) in by_tenant(all) {
                for (number, selector) in partition(&held).into_iter().enumerate() {
                    let name = match number {
                        0 => format!("{}/{tenant}", child.name),
                        _ => format!("{}/{tenant}/{}", child.name, number + 1),
                    };
                    let action = protect(&selector, &held);
                    policies.push(PolicySpec { name, selector, action });
                }
            }
        } else {
            let all: Vec<InForce<'_>> = all.collect();
            for selector in partition(&all) {
                let name = child.policy_name(policies.len());
                let action = protect(&selector, &all);
                policies.push(PolicySpec { name, selector, action });
            }
        }
        let first = if child.is_shared { 0 } else { policies.len() };
        let is_covered =
            |selector: &&Selector| policies.iter().any(|one| covers(&one.selector, selector));
        let rest: Vec<&Selector> =
            child.selectors.iter().filter(|selector| !is_covered(selector)).collect();
        let nothing = Action::Protect { out: Vec::new(), inbound: Vec::new() };
        policies.extend(rest.into_iter().enumerate().map(|(number, selector)| PolicySpec {
            name: child.policy_name(first + number),
            selector: selector.clone(),
            action: nothing.clone(),
        }));
        policies
    }
}

/// Returns the CHILD SAs of each address that a peer has. An address has one holder: should a former one
/// be left, it has it no more. A peer that authenticates again has two sessions.
fn by_tenant<'c>(
    all: impl Iterator<Item = InForce<'c>> + Clone,
) -> BTreeMap<IpAddr, Vec<InForce<'c>>> {
    let mut holders: HashMap<IpAddr, (bool, SessionId, &str)> = HashMap::new();
    for (_, one) in all.clone() {
        let rank = (!one.is_ending, one.session, one.owner.as_str());
        let Some(tenant) = one.tenant else { continue };
        let holder = holders.entry(tenant).or_insert(rank);
        *holder = rank.max(*holder);
    }
    let mut tenants: BTreeMap<IpAddr, Vec<InForce<'c>>> = BTreeMap::new();
    for (id, one) in all {
        let Some(tenant) = one.tenant else { continue };
        if holders.get(&tenant).is_some_and(|(.., owner)| *owner == one.owner) {
            tenants.entry(tenant).or_default().push((id, one));
        }
    }
    tenants
}

/// Returns the selectors of CHILD SAs and what they have in common, each before those that cover it; the
/// others in the order of their CHILD SAs, the oldest first.
fn partition(all: &[InForce<'_>]) -> Vec<Selector> {
    let mut parts: Vec<Selector> = Vec::new();
    let mut left = MAX_COMMON;
    for selector in all.iter().rev().flat_map(|(_, one)| &one.selectors) {
        if parts.contains(selector) {
            continue;
        }
        let mut common: Vec<Selector> = Vec::new();
        for part in parts.iter().filter_map(|part| both(part, selector)) {
            let is_known = part == *selector || parts.contains(&part) || common.contains(&part);
            if !is_known && common.len() < left {
                common.push(part);
            }
        }
        left -= common.len();
        insert(&mut parts, selector.clone());
        common.into_iter().for_each(|part| insert(&mut parts, part));
    }
    parts
}

/// Inserts a selector before the first one that covers it. What it covers is before that one, too.
fn insert(parts: &mut Vec<Selector>, selector: Selector) {
    let at = parts.iter().position(|part| covers(part, &selector)).unwrap_or(parts.len());
    parts.insert(at, selector);
}

/// Returns how packets of a part are protected by CHILD SAs, the newest first.
fn protect(part: &Selector, all: &[InForce<'_>]) -> Action {
    let is_covering =
        |(_, one): &InForce<'_>| cover_each(&one.selectors, std::slice::from_ref(part));
    let covering: Vec<InForce<'_>> = all.iter().copied().filter(is_covering).collect();
    let newest = covering.iter().find(|(_, one)| one.sends);
    let out = match newest {
        // of those for the same packets the oldest first: of a new one the peer may not know yet
        Some((_, newest)) => {
            let senders = covering.iter().rev().filter(|(_, one)| one.sends);
            let alike = senders.filter(|(_, one)| is_alike(&one.selectors, &newest.selectors));
            alike.map(|(_, one)| one.outbound.clone()).collect()
        }
        // The peer has deleted what was in use, so it has the one that replaces it; or it has asked for
        // one that covers more, and may be sent to on it at once (RFC 7296 §2.8).
        None => {
            let is_replaced =
                |id: ChildId| all.iter().any(|(_, one)| !one.is_ending && one.replaces == Some(id));
            let next = covering.iter().find(|(id, one)| !one.is_ending && !is_replaced(*id));
            next.map(|(_, one)| one.outbound.clone()).into_iter().collect()
        }
    };
    Action::Protect { out, inbound: covering.iter().map(|(_, one)| one.inbound.clone()).collect() }
}

/// Tells whether the selectors of two CHILD SAs cover the same packets.
fn is_alike(one: &[Selector], other: &[Selector]) -> bool {
    cover_each(one, other) && cover_each(other, one)
}
