//! The associations and policies in force.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use headroom_suite::KeyError;

use crate::bundle::Bundle;
use crate::headers::Headers;
use crate::peer::{Path, Peer};
use crate::policy::{self, FlowCache, Matcher, Policy, Spd, Verdict};
use crate::reason::{Counters, Reason};
use crate::sa::{Event, Sa};
use crate::spec::{self, AH, Direction, ESP, Mode, PolicySpec, Protection, Protocol, SaSpec};

/// A set of associations and policies in force. It is immutable: a reload makes another engine, which
/// takes over numbers, windows and counters.
#[derive(Debug)]
pub struct Engine {
    policies: Spd,
    outbound: Vec<Arc<Sa>>,
    by_name: HashMap<String, Arc<Sa>>,
    inbound: InboundSad,
    /// The protocol numbers of Q-ESP associations.
    qesp: HashSet<u8>,
    /// The peers whose addresses are followed.
    peers: HashMap<Path, Arc<Peer>>,
    counters: Arc<Counters>,
}

/// SPI, protocol and destination, which identify an association (RFC 4301, section 4.1).
type SpiTriple = (u32, Protocol, IpAddr);

/// ESP, Q-ESP or AH, and an AH over it.
type Chain = (Arc<Sa>, Option<Arc<Sa>>);

/// An inbound association and the policies that name it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) sa: Arc<Sa>,
    uses: Vec<Use>,
}

/// A policy that names an association as the innermost of a bundle.
#[derive(Debug)]
struct Use {
    policy: usize,
    /// SPI of the AH that must be over it.
    over: Option<u32>,
}

/// An association or policy that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} `{name}`: {message}")]
pub struct SpecError {
    /// `association` or `policy`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// The problem and its remedy.
    pub message: String,
}

impl SpecError {
    fn sa(spec: &SaSpec, message: impl Into<String>) -> Self {
        Self { kind: "association", name: spec.name.clone(), message: message.into() }
    }

    fn policy(name: &str, message: impl Into<String>) -> Self {
        Self { kind: "policy", name: name.to_owned(), message: message.into() }
    }
}

impl Engine {
    /// Makes an engine at the time `now` of the caller's clock. Takes over the state of `previous` for
    /// associations with the same direction, protocol, SPI and key: the numbers of a key never begin
    /// again, also between other addresses.
    ///
    /// # Errors
    /// The first association or policy that cannot be used.
    pub fn new(
        associations: Vec<SaSpec>,
        policies: Vec<PolicySpec>,
        previous: Option<&Self>,
        now: Duration,
    ) -> Result<Self, SpecError> {
        let engine = Self::with_associations(Vec::new(), associations, previous.as_slice(), now)?;
        engine.check_outbound_spis()?;
        let (engine, covered) = engine.with_policies(policies, previous)?;
        covered.into_iter().next().map_or(Ok(engine), Err)
    }

    /// Makes an engine with the associations of this one that `keep` selects, `added` ones, and new
    /// policies, at the time `now` of the caller's clock. Key management installs and removes
    /// associations so: what stays keeps numbers, windows and counters, and its keys are not read again.
    /// Policies that an earlier one covers are left out and returned: one peer's choice of packets does
    /// not stop the others.
    ///
    /// # Errors
    /// The first association or policy that cannot be used for another reason.
    pub fn update(
        &self,
        keep: impl Fn(&SaSpec) -> bool,
        added: Vec<SaSpec>,
        policies: Vec<PolicySpec>,
        now: Duration,
    ) -> Result<(Self, Vec<SpecError>), SpecError> {
        let kept = self.associations().filter(|sa| keep(&sa.spec)).cloned().collect();
        Self::with_associations(kept, added, &[self], now)?.with_policies(policies, Some(self))
    }

    /// Makes an engine with all associations of this one, those of `former` that `keep` selects, and
    /// `added` ones. `former` is in force, and this one was made with it as its predecessor, from a
    /// file that knows nothing of what was negotiated. Otherwise as [`Self::update`].
    ///
    /// # Errors
    /// As [`Self::update`].
    pub fn join(
        &self,
        former: &Self,
        keep: impl Fn(&SaSpec) -> bool,
        added: Vec<SaSpec>,
        policies: Vec<PolicySpec>,
        now: Duration,
    ) -> Result<(Self, Vec<SpecError>), SpecError> {
        let negotiated = former.associations().filter(|sa| keep(&sa.spec));
        let kept = self.associations().chain(negotiated).cloned().collect();
        Self::with_associations(kept, added, &[self, former], now)?
            .with_policies(policies, Some(former))
    }

    fn with_policies(
        mut self,
        policies: Vec<PolicySpec>,
        previous: Option<&Self>,
    ) -> Result<(Self, Vec<SpecError>), SpecError> {
        let before: HashMap<&str, (usize, &Policy)> = previous
            .iter()
            .flat_map(|engine| engine.policies().iter().enumerate())
            .map(|(index, policy)| (policy.name.as_str(), (index, policy)))
            .collect();
        // How policies overlap that are the same and in the same order as before is known: comparing
        // each with each at every change would take too long for thousands.
        let mut now_at = vec![None; previous.map_or(0, |engine| engine.policies().len())];
        let (mut next, mut others, mut covered) = (0, Vec::new(), Vec::new());
        let mut made: Vec<Policy> = Vec::with_capacity(policies.len());
        for spec in policies {
            let matcher = Matcher::new(&spec.selector);
            let former = before.get(spec.name.as_str());
            let same = former.filter(|(at, of)| *at >= next && of.matcher == matcher);
            let overlapped = match same {
                Some((_, former)) => {
                    let earlier = former.overlapped.iter().filter_map(|at| now_at[*at]);
                    overlapped(&matcher, earlier.collect(), &made, others.iter().copied())
                }
                None => overlapped(&matcher, Vec::new(), &made, 0..made.len()),
            };
            match overlapped {
                Ok(overlapped) => {
                    let mut policy = self.policy(&spec, matcher, made.len())?;
                    policy.overlapped = overlapped;
                    if let Some((_, former)) = former {
                        policy.hits = Arc::clone(&former.hits);
                    }
                    match same {
                        Some((at, _)) => (next, now_at[*at]) = (at + 1, Some(made.len())),
                        None => others.push(made.len()),
                    }
                    made.push(policy);
                }
                Err(by) => {
                    let message = format!(
                        "never decides, because `{}` before it matches all its packets; remove it or put it first",
                        by.name
                    );
                    covered.push(SpecError::policy(&spec.name, message));
                }
            }
        }
        self.policies = Spd::new(made);
        Ok((self, covered))
    }

    fn with_associations(
        unchanged: Vec<Arc<Sa>>,
        associations: Vec<SaSpec>,
        previous: &[&Self],
        now: Duration,
    ) -> Result<Self, SpecError> {
        let mut kept: HashMap<_, _> = previous
            .iter()
            .flat_map(|engine| engine.associations())
            .map(|sa| (Sa::identity(&sa.spec), Arc::clone(&sa.state)))
            .collect();
        let specs = unchanged.iter().map(|sa| &sa.spec).chain(&associations);
        let followed = specs.filter(|spec| spec.follow_peer).filter_map(Path::of);
        let peers = followed.map(|path| {
            let known = previous.iter().find_map(|engine| engine.peers.get(&path));
            (path, known.map_or_else(|| Arc::new(Peer::new(path)), Arc::clone))
        });
        let peers = peers.collect();
        let mut engine = Self {
            policies: Spd::new(Vec::new()),
            outbound: Vec::new(),
            by_name: HashMap::new(),
            inbound: InboundSad::default(),
            qesp: HashSet::new(),
            peers,
            counters: previous.first().map_or_else(Arc::default, |one| Arc::clone(&one.counters)),
        };
        for sa in unchanged {
            engine.add(sa)?;
        }
        for spec in associations {
            check(&spec)?;
            if engine.by_name.contains_key(&spec.name) {
                return Err(SpecError::sa(&spec, "another association has this name"));
            }
            let name = spec.name.clone();
            let state = kept.remove(&Sa::identity(&spec));
            let peer = engine.peer_of(&spec);
            let sa = Sa::new(spec, peer, state, now).map_err(|error: KeyError| SpecError {
                kind: "association",
                name,
                message: error.to_string(),
            })?;
            engine.add(Arc::new(sa))?;
        }
        Ok(engine)
    }

    /// Refuses two outbound associations that their receiver could not tell apart. Those that are
    /// negotiated have the SPIs that peers chose: two peers behind one NAT may choose the same.
    fn check_outbound_spis(&self) -> Result<(), SpecError> {
        let mut triples: HashSet<SpiTriple> = HashSet::new();
        for Sa { spec, .. } in self.outbound.iter().map(Arc::as_ref) {
            if !triples.insert((spec.spi, spec.protection.protocol(), spec.destination)) {
                let message = "another association to this address has the same SPI";
                return Err(SpecError::sa(spec, message));
            }
        }
        Ok(())
    }

    /// Returns the peer that the association follows (inbound) or sends to (outbound). Transport mode
    /// protects the addresses, so its peers are not followed.
    fn peer_of(&self, spec: &SaSpec) -> Option<Arc<Peer>> {
        let follows = match spec.direction {
            Direction::In => spec.follow_peer,
            Direction::Out => spec.mode == Mode::Tunnel,
        };
        Path::of(spec).filter(|_| follows).and_then(|path| self.peers.get(&path)).cloned()
    }

    fn add(&mut self, sa: Arc<Sa>) -> Result<(), SpecError> {
        self.by_name.insert(sa.spec.name.clone(), Arc::clone(&sa));
        let protocol = sa.spec.protection.protocol();
        if let Protocol::QEsp(number) = protocol {
            self.qesp.insert(number);
        }
        match sa.spec.direction {
            Direction::Out => self.outbound.push(sa),
            Direction::In => {
                if self.inbound.find(sa.spec.spi, protocol, &sa.spec.destination).is_some() {
                    return Err(SpecError::sa(
                        &sa.spec,
                        "another association at this address has the same SPI",
                    ));
                }
                self.inbound.add(sa);
            }
        }
        Ok(())
    }

    fn policy(
        &mut self,
        spec: &PolicySpec,
        matcher: Matcher,
        index: usize,
    ) -> Result<Policy, SpecError> {
        let action = match &spec.action {
            spec::Action::Bypass => policy::Action::Bypass,
            spec::Action::Discard => policy::Action::Discard,
            spec::Action::Protect { out, inbound } => {
                let bundles = self
                    .chains(&spec.name, out, Direction::Out)?
                    .into_iter()
                    .map(|(inner, over)| Bundle::new(inner, over))
                    .collect::<Result<_, _>>()
                    .map_err(|message| SpecError::policy(&spec.name, message))?;
                for (inner, over) in self.chains(&spec.name, inbound, Direction::In)? {
                    let over = over.map(|over| over.spec.spi);
                    let protocol = inner.spec.protection.protocol();
                    let SaSpec { spi, destination, .. } = &inner.spec;
                    if let Some(entry) = self.inbound.find_mut(*spi, protocol, destination) {
                        entry.uses.push(Use { policy: index, over });
                    }
                }
                policy::Action::Protect(bundles)
            }
        };
        let name = spec.name.clone();
        Ok(Policy { name, matcher, action, overlapped: Vec::new(), hits: Default::default() })
    }

    /// Groups associations by name: each ESP, Q-ESP or lone AH with the AH over it.
    fn chains(
        &self,
        policy: &str,
        names: &[String],
        direction: Direction,
    ) -> Result<Vec<Chain>, SpecError> {
        let mut chains: Vec<Chain> = Vec::new();
        for name in names {
            let sa = self
                .by_name
                .get(name)
                .filter(|sa| sa.spec.direction == direction)
                .ok_or_else(|| {
                    let message =
                        format!("there is no association `{name}` of direction \"{direction}\"");
                    SpecError::policy(policy, message)
                })?;
            match chains.last_mut() {
                Some((inner, over @ None)) if sa.is_ah() && !inner.is_ah() => {
                    *over = Some(Arc::clone(sa));
                }
                _ => chains.push((Arc::clone(sa), None)),
            }
        }
        Ok(chains)
    }

    /// Decides what to do with an outbound packet.
    pub fn decide(&self, headers: &Headers, cache: &mut FlowCache) -> Verdict<'_> {
        self.policies.decide(headers, cache)
    }

    /// Allows an inbound packet of these associations, the outermost first, if the first policy that
    /// matches it names them.
    #[inline(always)]
    pub(crate) fn allow(
        &self,
        headers: &Headers,
        applied: &[Option<&Entry>; 2],
    ) -> Result<&Policy, Reason> {
        let (inner, over) = match applied {
            [Some(outer), Some(inner)] => (*inner, Some(outer.sa.spec.spi)),
            [Some(only), None] => (*only, None),
            [None, _] => return Err(Reason::PolicyMismatch),
        };
        let candidates = inner.uses.iter().filter(|of| of.over == over).map(|of| of.policy);
        self.policies.first_arriving(headers, candidates).ok_or(Reason::PolicyMismatch)
    }

    #[inline(always)]
    pub(crate) fn find(
        &self,
        spi: u32,
        protocol: Protocol,
        destination: &IpAddr,
    ) -> Option<&Entry> {
        self.inbound.find(spi, protocol, destination)
    }

    /// Returns the security protocol with this number.
    pub fn protocol(&self, number: u8) -> Option<Protocol> {
        match number {
            ESP => Some(Protocol::Esp),
            AH => Some(Protocol::Ah),
            _ if self.qesp.contains(&number) => Some(Protocol::QEsp(number)),
            _ => None,
        }
    }

    pub(crate) fn is_cipher(&self, number: u8) -> bool {
        matches!(self.protocol(number), Some(Protocol::Esp | Protocol::QEsp(_)))
    }

    /// Returns all associations.
    pub fn associations(&self) -> impl Iterator<Item = &Arc<Sa>> {
        self.outbound.iter().chain(self.inbound.entries.iter().map(|entry| &entry.sa))
    }

    /// Returns all policies, in order.
    pub fn policies(&self) -> &[Policy] {
        &self.policies.policies
    }

    /// Returns the packets dropped, by reason.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the association with this name.
    pub fn association(&self, name: &str) -> Option<&Arc<Sa>> {
        self.by_name.get(name)
    }

    /// Checks lifetimes and peers. To be called about once per second.
    pub fn tick(&self, now: Duration) -> Vec<Event> {
        let moved =
            self.peers.values().filter_map(|peer| peer.take_change(now)).map(Event::PeerMoved);
        self.associations().filter_map(|sa| sa.tick(now)).chain(moved).collect()
    }
}

/// Adds to `known` which other policies match some packets of `matcher`, or returns the one that
/// matches all of them.
fn overlapped<'p>(
    matcher: &Matcher,
    mut known: Vec<usize>,
    policies: &'p [Policy],
    others: impl Iterator<Item = usize>,
) -> Result<Vec<usize>, &'p Policy> {
    for index in others {
        let other = &policies[index];
        if other.matcher.covers(matcher) {
            return Err(other);
        }
        if other.matcher.overlaps(matcher) {
            known.push(index);
        }
    }
    Ok(known)
}

impl Sa {
    fn is_ah(&self) -> bool {
        matches!(self.spec.protection, Protection::Ah { .. })
    }
}

/// The inbound SAD: associations by SPI, protocol and destination (RFC 4301, section 4.1).
#[derive(Debug, Default)]
struct InboundSad {
    entries: Vec<Entry>,
    /// Indices of `entries` by SPI.
    by_spi: HashMap<u32, Vec<usize>, BuildHasherDefault<SpiHasher>>,
}

impl InboundSad {
    #[inline(always)]
    fn find(&self, spi: u32, protocol: Protocol, destination: &IpAddr) -> Option<&Entry> {
        self.entries.get(self.index(spi, protocol, destination)?)
    }

    fn find_mut(
        &mut self,
        spi: u32,
        protocol: Protocol,
        destination: &IpAddr,
    ) -> Option<&mut Entry> {
        let index = self.index(spi, protocol, destination)?;
        self.entries.get_mut(index)
    }

    /// Takes the address by reference: copying it takes longer than the lookup.
    #[inline(always)]
    fn index(&self, spi: u32, protocol: Protocol, destination: &IpAddr) -> Option<usize> {
        let is = |index: &usize| {
            let spec = &self.entries[*index].sa.spec;
            spec.destination == *destination && spec.protection.protocol() == protocol
        };
        self.by_spi.get(&spi)?.iter().copied().find(is)
    }

    fn add(&mut self, sa: Arc<Sa>) {
        self.by_spi.entry(sa.spec.spi).or_default().push(self.entries.len());
        self.entries.push(Entry { sa, uses: Vec::new() });
    }
}

/// Hashes SPIs by a multiplication. The table holds only this host's own SPIs, so an attacker cannot
/// cause collisions.
#[derive(Debug, Default)]
struct SpiHasher(u64);

impl Hasher for SpiHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        octets.iter().for_each(|octet| self.write_u32(u32::from(*octet)));
    }

    fn write_u32(&mut self, spi: u32) {
        const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0.rotate_left(5) ^ u64::from(spi)).wrapping_mul(GOLDEN_RATIO);
    }
}

/// Checks one association.
fn check(spec: &SaSpec) -> Result<(), SpecError> {
    let wrong = |message: &str| Err(SpecError::sa(spec, message));
    if spec.spi < 256 {
        return wrong("SPIs below 256 are reserved (RFC 4303, section 2.1); choose a larger one");
    }
    if spec.source.is_ipv4() != spec.destination.is_ipv4() {
        return wrong("its addresses are of different families; both must be IPv4 or both IPv6");
    }
    if spec.direction == Direction::In && !(64..=8192).contains(&spec.window) {
        return wrong("its anti-replay window must have 64 to 8192 packets");
    }
    if spec.mode == Mode::Transport && spec.padding != spec::Padding::None {
        return wrong(
            "padding against traffic analysis needs tunnel mode: in transport mode the receiver cannot tell where it begins (RFC 4303, section 2.7)",
        );
    }
    if spec.follow_peer && (spec.direction, spec.mode) != (Direction::In, Mode::Tunnel) {
        return wrong("`follow_peer` is for inbound associations in tunnel mode");
    }
    if spec.follow_peer && spec.udp.is_none() {
        return wrong("`follow_peer` is for ESP in UDP, where a NAT assigns a port");
    }
    if !matches!(spec.ah_alignment, 4 | 8) {
        return wrong("the alignment of AH must be 4 or 8 bytes");
    }
    match &spec.protection {
        Protection::Ah { .. } if spec.udp.is_some() => {
            wrong("AH cannot be carried in UDP: a NAT changes what it covers (RFC 3948, section 1)")
        }
        Protection::QEsp { .. } if spec.udp.is_some() => {
            wrong("Q-ESP in UDP is useless: routers do not look behind a UDP header; use ESP")
        }
        Protection::QEsp { secrets, .. } if !secrets.suite.encrypts() => {
            wrong("Q-ESP needs a cipher: encryption and integrity are mandatory")
        }
        Protection::QEsp { number, .. } if well_known(*number) => wrong(
            "this protocol number belongs to another protocol; 253 and 254 are for experiments (RFC 3692)",
        ),
        _ => Ok(()),
    }
}

/// Whether a host itself handles this protocol.
fn well_known(number: u8) -> bool {
    matches!(number, 0..=6 | 17 | 33 | 41 | 43 | 44 | ESP | AH | 58..=60 | 132 | 136)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::spec::{Action, Addresses, Ports, Selector};

    fn policy((name, first, last): (u32, u8, u8)) -> PolicySpec {
        let of = |last: u8| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let selector = Selector {
            local: Addresses::Range(of(first), of(last)),
            remote: Addresses::Any,
            protocol: None,
            local_port: Ports::Any,
            remote_port: Ports::Any,
            icmp: None,
        };
        PolicySpec { name: name.to_string(), selector, action: Action::Discard }
    }

    fn overlaps(engine: &Engine) -> Vec<Vec<usize>> {
        let sorted = |policy: &Policy| {
            let mut overlapped = policy.overlapped.clone();
            overlapped.sort_unstable();
            overlapped
        };
        engine.policies().iter().map(sorted).collect()
    }

    /// Adds, removes, moves and changes policies, as key management and users do.
    #[test]
    fn an_update_finds_the_overlaps_that_a_new_engine_finds() {
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        let mut engine = Engine::new(vec![], vec![], None, Duration::ZERO).expect("an engine");
        let (mut all, mut names, mut refused): (Vec<(u32, u8, u8)>, _, _) = (Vec::new(), 0, 0);
        for _ in 0..3000 {
            let mut wanted = all.clone();
            let at = random(wanted.len() + 1);
            let first = random(200) as u8;
            match random(4) {
                0 | 1 => {
                    names += 1;
                    wanted.insert(at, (names, first, first + random(40) as u8));
                }
                2 if at < wanted.len() => drop(wanted.remove(at)),
                _ if at < wanted.len() => {
                    let moved = wanted.remove(at);
                    wanted.insert(random(wanted.len() + 1), moved);
                }
                _ => {}
            }
            let specs = || wanted.iter().copied().map(policy).collect::<Vec<_>>();
            let new = Engine::new(vec![], specs(), None, Duration::ZERO);
            let updated = engine.update(|_| true, vec![], specs(), Duration::ZERO);
            match (new, updated) {
                (Ok(new), Ok((updated, covered))) => {
                    assert!(covered.is_empty(), "{covered:?}");
                    assert_eq!(overlaps(&updated), overlaps(&new));
                    (engine, all) = (updated, wanted);
                }
                (Err(error), Ok((_, covered))) => {
                    assert_eq!(covered.first(), Some(&error));
                    refused += 1;
                }
                (new, updated) => panic!("{new:?} {updated:?}"),
            }
        }
        assert!(refused > 100 && all.len() > 20, "{refused} refused, {} left", all.len());
    }
}
