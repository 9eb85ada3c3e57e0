//! The security policy database, SPD (RFC 4301, section 4.4.1). Policies are ordered; the first that
//! matches decides.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headroom_packet::Version;

use crate::bundle::Bundle;
use crate::headers::Headers;
use crate::reason::Reason;
use crate::spec::{Addresses, Ports, Selector};

/// A policy in force.
#[derive(Debug)]
pub struct Policy {
    /// The policy's name.
    pub name: String,
    pub(crate) matcher: Matcher,
    pub(crate) action: Action,
    /// Earlier policies that match some of the same packets.
    pub(crate) overlapped: Vec<usize>,
    /// Outbound decisions, also those of earlier engines.
    pub(crate) hits: Arc<AtomicU64>,
}

#[derive(Debug)]
pub(crate) enum Action {
    /// Alternatives: the first that carries the packet's traffic class protects it, one of its queue
    /// before others.
    Protect(Vec<Bundle>),
    Bypass,
    Discard,
}

impl Policy {
    /// Returns the number of outbound decisions: one per packet or train.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Returns the bundles that protect outbound packets.
    pub fn bundles(&self) -> &[Bundle] {
        match &self.action {
            Action::Protect(bundles) => bundles,
            Action::Bypass | Action::Discard => &[],
        }
    }

    /// Returns the action as the configuration writes it.
    pub fn action(&self) -> &'static str {
        match self.action {
            Action::Protect(_) => "protect",
            Action::Bypass => "bypass",
            Action::Discard => "discard",
        }
    }
}

/// The decision about an outbound packet.
#[derive(Debug, Clone, Copy)]
pub enum Verdict<'e> {
    /// Protect it with this bundle.
    Protect(&'e Policy, &'e Bundle),
    /// Send it in clear.
    Bypass(&'e Policy),
    /// Drop it, for this reason.
    Discard(Option<&'e Policy>, Reason),
}

/// The policies, in order.
#[derive(Debug)]
pub(crate) struct Spd {
    pub(crate) policies: Vec<Policy>,
    /// Distinguishes the cache entries of one engine from those of another.
    generation: u64,
}

impl Spd {
    pub(crate) fn new(policies: Vec<Policy>) -> Self {
        static GENERATION: AtomicU64 = AtomicU64::new(1);
        Self { policies, generation: GENERATION.fetch_add(1, Ordering::Relaxed) }
    }

    /// Finds the first policy that matches an outbound packet.
    pub(crate) fn decide(&self, headers: &Headers, cache: &mut FlowCache) -> Verdict<'_> {
        let flow = FlowKey::leaving(headers);
        let found = cache.find(self.generation, &flow, || self.first(&flow));
        let Some(policy) = found.and_then(|index| self.policies.get(index)) else {
            return Verdict::Discard(None, Reason::NoPolicy);
        };
        policy.hits.fetch_add(1, Ordering::Relaxed);
        match &policy.action {
            Action::Bypass => Verdict::Bypass(policy),
            Action::Discard => Verdict::Discard(Some(policy), Reason::Discarded),
            Action::Protect(bundles) => {
                let mut serving = bundles.iter().filter(|bundle| bundle.serves(headers));
                let own = serving.clone().find(|bundle| bundle.queue() == Some(cache.queue));
                let any = || serving.clone().find(|bundle| bundle.queue().is_none());
                match own.or_else(any).or_else(|| serving.next()) {
                    Some(bundle) => Verdict::Protect(policy, bundle),
                    None => Verdict::Discard(Some(policy), Reason::NoAssociation),
                }
            }
        }
    }

    /// Finds the policy among `candidates` that allows an inbound packet, unless an earlier policy
    /// matches it (RFC 4301, section 5.2, step 4).
    #[inline(always)]
    pub(crate) fn first_arriving(
        &self,
        headers: &Headers,
        mut candidates: impl Iterator<Item = usize>,
    ) -> Option<&Policy> {
        let flow = FlowKey::arriving(headers);
        let hit = candidates.find(|&index| self.matches(index, &flow))?;
        let policy = &self.policies[hit];
        let mut before = policy.overlapped.iter();
        if before.any(|&index| self.matches(index, &flow)) { None } else { Some(policy) }
    }

    #[inline(always)]
    fn matches(&self, index: usize, flow: &FlowKey) -> bool {
        self.policies.get(index).is_some_and(|policy| policy.matcher.matches(flow))
    }

    fn first(&self, flow: &FlowKey) -> Option<usize> {
        self.policies.iter().position(|policy| policy.matcher.matches(flow))
    }
}

/// The selector fields of a packet, seen from this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlowKey {
    local: u128,
    remote: u128,
    version: Version,
    protocol: u8,
    ports: Option<(u16, u16)>,
    icmp: Option<u16>,
}

impl FlowKey {
    #[inline(always)]
    fn leaving(headers: &Headers) -> Self {
        let Headers { protocol, ports, icmp, .. } = *headers;
        let (version, local) = number(headers.source);
        let remote = number(headers.destination).1;
        Self { local, remote, version, protocol, ports, icmp }
    }

    #[inline(always)]
    fn arriving(headers: &Headers) -> Self {
        let Headers { protocol, icmp, .. } = *headers;
        let (version, local) = number(headers.destination);
        let remote = number(headers.source).1;
        let ports = headers.ports.map(|(from, to)| (to, from));
        Self { local, remote, version, protocol, ports, icmp }
    }

    /// Hashes the fields to 64 bits, of which the upper ones are best distributed.
    fn hash(&self, seed: u64) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let (source, destination) = self.ports.unwrap_or_default();
        let small = u64::from(source) << 48
            | u64::from(destination) << 32
            | u64::from(self.icmp.unwrap_or_default()) << 8
            | u64::from(self.protocol);
        let words = [
            self.local as u64,
            (self.local >> 64) as u64,
            self.remote as u64,
            (self.remote >> 64) as u64,
            small,
        ];
        words.into_iter().fold(seed, |sum, word| {
            let product = u128::from(sum ^ word) * u128::from(ODD);
            product as u64 ^ (product >> 64) as u64
        })
    }
}

#[inline(always)]
fn number(address: IpAddr) -> (Version, u128) {
    match address {
        IpAddr::V4(address) => (Version::V4, u128::from(address.to_bits())),
        IpAddr::V6(address) => (Version::V6, address.to_bits()),
    }
}

/// A selector, prepared for comparisons.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Matcher {
    local: Range,
    remote: Range,
    protocol: Option<u8>,
    local_port: Ports,
    remote_port: Ports,
    icmp: Option<RangeInclusive<u16>>,
}

/// A range of addresses; of any version if it names none.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    version: Option<Version>,
    low: u128,
    high: u128,
}

impl Range {
    fn new(addresses: &Addresses) -> Self {
        match addresses {
            Addresses::Any => Self { version: None, low: 0, high: u128::MAX },
            Addresses::Range(low, high) => {
                let (version, low) = number(*low);
                Self { version: Some(version), low, high: number(*high).1 }
            }
        }
    }

    #[inline(always)]
    fn contains(&self, version: Version, address: u128) -> bool {
        self.low <= address && address <= self.high && self.version.is_none_or(|own| own == version)
    }

    fn covers(&self, other: &Self) -> bool {
        let version = self.version.is_none() || self.version == other.version;
        version && self.low <= other.low && other.high <= self.high
    }

    fn overlaps(&self, other: &Self) -> bool {
        let families = self.version.is_none() || other.version.is_none();
        (families || self.version == other.version)
            && self.low <= other.high
            && other.low <= self.high
    }
}

impl Matcher {
    pub(crate) fn new(selector: &Selector) -> Self {
        Self {
            local: Range::new(&selector.local),
            remote: Range::new(&selector.remote),
            protocol: selector.protocol,
            local_port: selector.local_port.clone(),
            remote_port: selector.remote_port.clone(),
            icmp: selector.icmp.clone(),
        }
    }

    fn matches(&self, flow: &FlowKey) -> bool {
        self.remote.contains(flow.version, flow.remote)
            && self.local.contains(flow.version, flow.local)
            && self.protocol.is_none_or(|protocol| protocol == flow.protocol)
            && port_matches(&self.local_port, flow.ports.map(|ports| ports.0))
            && port_matches(&self.remote_port, flow.ports.map(|ports| ports.1))
            && self.icmp.as_ref().is_none_or(|icmp| flow.icmp.is_some_and(|of| icmp.contains(&of)))
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.local.overlaps(&other.local) && self.remote.overlaps(&other.remote)
    }

    /// Whether this matches every packet that `other` matches.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let icmp = match (&self.icmp, &other.icmp) {
            (None, _) => true,
            (Some(own), Some(other)) => own.contains(other.start()) && own.contains(other.end()),
            (Some(_), None) => false,
        };
        self.local.covers(&other.local)
            && self.remote.covers(&other.remote)
            && (self.protocol.is_none() || self.protocol == other.protocol)
            && port_covers(&self.local_port, &other.local_port)
            && port_covers(&self.remote_port, &other.remote_port)
            && icmp
    }
}

#[inline(always)]
fn port_matches(ports: &Ports, port: Option<u16>) -> bool {
    match ports {
        Ports::Any => true,
        Ports::Opaque => port.is_none(),
        Ports::Range(range) => port.is_some_and(|port| range.contains(&port)),
    }
}

fn port_covers(ports: &Ports, other: &Ports) -> bool {
    match (ports, other) {
        (Ports::Any, _) | (Ports::Opaque, Ports::Opaque) => true,
        (Ports::Range(own), Ports::Range(other)) => {
            own.contains(other.start()) && own.contains(other.end())
        }
        _ => false,
    }
}

/// The number of flows in a cache.
const FLOWS: usize = 4096;

/// Caches recent decisions of one thread. Its size is fixed: a flood of flows costs a search of the list
/// each, and no memory.
#[derive(Debug)]
pub struct FlowCache {
    entries: Box<[Option<Entry>]>,
    /// A secret, so that an attacker cannot choose flows that collide.
    seed: u64,
    /// The queue whose packets are decided about.
    queue: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    generation: u64,
    flow: FlowKey,
    policy: Option<usize>,
}

impl Default for FlowCache {
    fn default() -> Self {
        Self::of_queue(0)
    }
}

impl FlowCache {
    /// Makes an empty one for the packets of a queue.
    pub fn of_queue(queue: u32) -> Self {
        let seed = RandomState::new().hash_one(FLOWS);
        Self { entries: vec![None; FLOWS].into(), seed, queue }
    }

    fn find(
        &mut self,
        generation: u64,
        flow: &FlowKey,
        search: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        let place = (flow.hash(self.seed) >> 32) as usize % FLOWS;
        match self.entries[place] {
            Some(entry) if entry.generation == generation && entry.flow == *flow => entry.policy,
            _ => {
                let policy = search();
                self.entries[place] = Some(Entry { generation, flow: *flow, policy });
                policy
            }
        }
    }
}
