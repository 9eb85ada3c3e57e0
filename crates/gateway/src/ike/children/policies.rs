//! The policies that CHILD SAs make of their configurations.
//!
//! CHILD SAs of one configuration may cover different packets, and some of the same: a peer makes a
//! second one with other traffic selectors (RFC 7296 §1.3.1, §2.9), or one replaces another (§1.3.3,
//! §2.8). An outbound packet takes the newest that sends and covers it, and an inbound one has to be
//! covered by the one on which it came (RFC 4301 §4.4.2, §5.2). Policies are ordered, and the first that
//! matches decides. So there is one for each selector and for what selectors have in common, the
//! narrower before the wider: the first that matches a packet is covered by the same CHILD SAs as the
//! packet.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use headroom_ike::{ChildId, SessionId};
use headroom_ipsec::PolicySpec;
use headroom_ipsec::spec::{Action, Selector};

use super::{Children, Installed};
use crate::config::IkeChild;
use crate::ike::selectors::{covers, intersect};

/// The most policies for intersections of one configuration, or of one peer that shares it. Beyond it a
/// packet in one may be dropped, or take an older SA; none goes where it should not.
const MAX_INTERSECTIONS: usize = 256;
/// The most policies of one configuration, or of one peer that shares it, in all: a peer may make
/// thousands of selectors, and each policy is compared with all of them. Beyond it selectors of newer SAs
/// have none.
const MAX_POLICIES: usize = 2048;

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
                for (number, (selector, action)) in protected(&held).into_iter().enumerate() {
                    let name = match number {
                        0 => format!("{}/{tenant}", child.name),
                        _ => format!("{}/{tenant}/{}", child.name, number + 1),
                    };
                    policies.push(PolicySpec { name, selector, action });
                }
            }
        } else {
            let all: Vec<InForce<'_>> = all.collect();
            for (selector, action) in protected(&all) {
                let name = child.policy_name(policies.len());
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

/// Returns the selectors of CHILD SAs and their intersections, and how packets of each are protected.
/// `all`: the newest first.
fn protected(all: &[InForce<'_>]) -> Vec<(Selector, Action)> {
    let parts = selectors_and_intersections(all);
    // which parts each CHILD SA covers: two that cover the same parts are for the same packets
    let row = |one: &Installed| -> Vec<bool> {
        let is_covered = |part: &Selector| one.selectors.iter().any(|own| covers(own, part));
        parts.iter().map(is_covered).collect()
    };
    let rows: Vec<Vec<bool>> = all.iter().map(|(_, one)| row(one)).collect();
    let action = |at: usize| {
        let each = all.iter().copied().zip(rows.iter().map(Vec::as_slice));
        let covering: Vec<(InForce<'_>, &[bool])> = each.filter(|(_, row)| row[at]).collect();
        protect(&covering, all)
    };
    let actions: Vec<Action> = (0..parts.len()).map(action).collect();
    parts.into_iter().zip(actions).collect()
}

/// Returns the selectors of CHILD SAs and their intersections, each before those that cover it; the
/// others in the order of their CHILD SAs, the oldest first.
fn selectors_and_intersections(all: &[InForce<'_>]) -> Vec<Selector> {
    let (mut parts, mut known) = (Vec::<Selector>::new(), HashSet::<Selector>::new());
    let mut left = MAX_INTERSECTIONS;
    for selector in all.iter().rev().flat_map(|(_, one)| &one.selectors) {
        if parts.len() >= MAX_POLICIES || !known.insert(selector.clone()) {
            continue;
        }
        let mut common: Vec<Selector> = Vec::new();
        for part in &parts {
            if common.len() == left {
                break;
            }
            common.extend(intersect(part, selector).filter(|one| known.insert(one.clone())));
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

/// Returns how packets of a part are protected by the CHILD SAs that cover it, the newest first; with each
/// the parts that it covers.
fn protect(covering: &[(InForce<'_>, &[bool])], all: &[InForce<'_>]) -> Action {
    let newest = covering.iter().find(|((_, one), _)| one.sends);
    let out = match newest {
        // of those for the same packets the oldest first: of a new one the peer may not know yet
        Some((_, row)) => {
            let senders = covering.iter().rev().filter(|((_, one), _)| one.sends);
            let alike = senders.filter(|(_, own)| own == row);
            alike.map(|((_, one), _)| one.outbound.clone()).collect()
        }
        // The peer has deleted what was in use, so it has the one that replaces it; or it has asked for
        // one that covers more, and may be sent to on it at once (RFC 7296 §2.8).
        None => {
            let is_replaced =
                |id: ChildId| all.iter().any(|(_, one)| !one.is_ending && one.replaces == Some(id));
            let next = covering.iter().find(|((id, one), _)| !one.is_ending && !is_replaced(*id));
            next.map(|((_, one), _)| one.outbound.clone()).into_iter().collect()
        }
    };
    let inbound = covering.iter().map(|((_, one), _)| one.inbound.clone()).collect();
    Action::Protect { out, inbound }
}
