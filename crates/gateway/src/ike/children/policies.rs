//! The policies that CHILD SAs make of their configurations.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use headroom_ike::SessionId;
use headroom_ipsec::PolicySpec;
use headroom_ipsec::spec::{Action, Selector};

use super::{Children, Installed};
use crate::config::IkeChild;
use crate::ike::selectors::overlap;

impl Children {
    /// Returns the policies in force. What a configuration covers and no CHILD SA protects is dropped.
    pub(in crate::ike) fn policies(&self) -> Vec<PolicySpec> {
        let negotiated = self.configured.iter().flat_map(|child| self.policies_of(child));
        self.fixed.iter().cloned().chain(negotiated).collect()
    }

    fn policies_of(&self, child: &IkeChild) -> Vec<PolicySpec> {
        // the newest first
        let all = self.of(&child.name).rev().map(|(_, one)| one).filter(|one| !one.is_refused);
        let (mut policies, mut protected): (_, Vec<&Selector>) = (Vec::new(), Vec::new());
        if child.is_shared {
            // An address has one holder: should a former one be left, it has it no more. A peer that
            // authenticates again has two sessions.
            let mut holders: HashMap<IpAddr, (bool, SessionId, &str)> = HashMap::new();
            for one in all.clone() {
                let rank = (!one.is_ending, one.session, one.owner.as_str());
                let Some(tenant) = one.tenant else { continue };
                let holder = holders.entry(tenant).or_insert(rank);
                *holder = rank.max(*holder);
            }
            let mut tenants: BTreeMap<IpAddr, Vec<Vec<&Installed>>> = BTreeMap::new();
            for one in all {
                let Some(tenant) = one.tenant else { continue };
                if holders.get(&tenant).is_some_and(|(.., owner)| *owner != one.owner) {
                    continue;
                }
                let groups = tenants.entry(tenant).or_default();
                match groups.iter_mut().find(|group| group[0].selectors == one.selectors) {
                    Some(group) => group.push(one),
                    None => groups.push(vec![one]),
                }
            }
            for (tenant, groups) in &tenants {
                let mut number = 0;
                for group in groups.iter().rev() {
                    let action = protect(group);
                    for selector in &group[0].selectors {
                        number += 1;
                        let name = match number {
                            1 => format!("{}/{tenant}", child.name),
                            _ => format!("{}/{tenant}/{number}", child.name),
                        };
                        let (selector, action) = (selector.clone(), action.clone());
                        policies.push(PolicySpec { name, selector, action });
                    }
                    protected.extend(&group[0].selectors);
                }
            }
        } else {
            // those for the same packets may replace each other; some peers have one per selector
            let mut groups: Vec<Vec<&Installed>> = Vec::new();
            for one in all {
                let is_of =
                    |group: &&mut Vec<&Installed>| overlap(&group[0].selectors, &one.selectors);
                let mut is_apart = true;
                for group in groups.iter_mut().filter(is_of) {
                    group.push(one);
                    is_apart = false;
                }
                if is_apart {
                    groups.push(vec![one]);
                }
            }
            for group in groups.iter().rev() {
                let action = protect(group);
                for selector in &group[0].selectors {
                    let name = child.policy_name(policies.len());
                    let (selector, action) = (selector.clone(), action.clone());
                    policies.push(PolicySpec { name, selector, action });
                }
                protected.extend(&group[0].selectors);
            }
        }
        let first = if child.is_shared { 0 } else { policies.len() };
        let rest = child.selectors.iter().filter(|selector| !protected.contains(selector));
        let nothing = Action::Protect { out: Vec::new(), inbound: Vec::new() };
        policies.extend(rest.enumerate().map(|(number, selector)| PolicySpec {
            name: child.policy_name(first + number),
            selector: selector.clone(),
            action: nothing.clone(),
        }));
        policies
    }
}

/// Returns how packets are protected by CHILD SAs that may replace each other, the newest first.
fn protect(installed: &[&Installed]) -> Action {
    // The oldest first: of a new one the peer may not know yet.
    let mut senders: Vec<_> = installed.iter().rev().filter(|one| one.sends).collect();
    if senders.is_empty() {
        // The peer has deleted what was in use, so it has the one that replaces it.
        senders.extend(installed.iter().find(|one| !one.is_ending));
    }
    Action::Protect {
        out: senders.iter().map(|one| one.outbound.clone()).collect(),
        inbound: installed.iter().map(|one| one.inbound.clone()).collect(),
    }
}
