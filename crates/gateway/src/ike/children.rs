//! The CHILD SAs in force, as associations and policies of an engine.

mod engine;
mod policies;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use headroom_ike::crypto::{Random, SystemRandom};
use headroom_ike::{ChildId, ChildSa, PacketFormat, SessionId};
use headroom_ipsec::spec::{
    Direction, Lifetime, Limits, Mode, Protection, Secrets, Selector, UdpPorts,
};
use headroom_ipsec::{PolicySpec, SaSpec};

use super::selectors::{cover_each, first_address, is_of_one_version, selector};
use crate::config::{IkeChild, IkePeer};
use crate::datapath::Datapath;

/// Packets after which an association with sequence numbers of 32 bits is rekeyed: three quarters.
const SOFT_PACKETS: u64 = 3 << 30;

/// How long packets of a removed CHILD SA are accepted: the peer sent them before it knew.
const LINGER: Duration = Duration::from_secs(1);

/// The pause between two attempts to replace a CHILD SA.
const AGAIN: Duration = Duration::from_secs(5);

/// The CHILD SAs in force.
pub(super) struct Children {
    configured: Vec<IkeChild>,
    /// Policies of the file that need no IKE.
    fixed: Vec<PolicySpec>,
    installed: HashMap<ChildId, Installed>,
    /// Those of a configuration, the oldest first.
    by_name: HashMap<String, BTreeSet<ChildId>>,
    /// Those that are rekeyed after so many packets or bytes.
    limited: HashMap<ChildId, Limits>,
    /// Those that wait for their first packet.
    waiting: BTreeSet<ChildId>,
    /// Those that are removed, and until when their packets are accepted.
    ending: BTreeSet<(Instant, ChildId)>,
    /// Associations to add and to remove at the next [`Self::apply`].
    added: Vec<SaSpec>,
    removed: HashSet<String>,
    is_changed: bool,
}

/// An installed CHILD SA.
struct Installed {
    session: SessionId,
    /// The name that the peer has proved.
    owner: String,
    /// The name of its configuration.
    child: String,
    inbound: String,
    outbound: String,
    /// Inbound and outbound.
    spis: (u32, u32),
    replaces: Option<ChildId>,
    sends: bool,
    /// Until when no other rekey is asked for.
    asked_until: Option<Instant>,
    /// Whether it is removed.
    is_ending: bool,
    /// Whether its policies cannot be used.
    is_refused: bool,
    selectors: Vec<Selector>,
    /// The peer's address, where many peers have one configuration at once.
    tenant: Option<IpAddr>,
}

/// Where a CHILD SA comes from.
pub(super) struct Origin {
    /// The name of its configuration.
    pub(super) child: String,
    pub(super) session: SessionId,
    /// Inbound and outbound.
    pub(super) spis: (u32, u32),
    /// Whether it was not given up before.
    pub(super) was_in_force: bool,
}

/// What [`Children::restore`] needs.
pub(super) struct Former {
    configured: Vec<IkeChild>,
    fixed: Vec<PolicySpec>,
    refused: Vec<ChildId>,
}

impl Children {
    pub(super) fn new(peers: &[IkePeer], fixed: Vec<PolicySpec>) -> Self {
        Self {
            configured: peers.iter().flat_map(|peer| peer.children.iter().cloned()).collect(),
            fixed,
            installed: HashMap::new(),
            by_name: HashMap::new(),
            limited: HashMap::new(),
            waiting: BTreeSet::new(),
            ending: BTreeSet::new(),
            added: Vec::new(),
            removed: HashSet::new(),
            is_changed: false,
        }
    }

    /// Adds a CHILD SA between the addresses of its IKE SA, of a peer of this name.
    pub(super) fn install(
        &mut self,
        sa: ChildSa,
        (local, remote): (SocketAddr, SocketAddr),
        owner: String,
    ) {
        // Two peers may choose the same outbound SPI; the inbound one is ours, and unique.
        let inbound = format!("{}/in-{:08x}", sa.config.name, sa.inbound.spi);
        let outbound =
            format!("{}/out-{:08x}-{:08x}", sa.config.name, sa.outbound.spi, sa.inbound.spi);
        let mode = match sa.mode {
            headroom_ike::Mode::Transport => Mode::Transport,
            headroom_ike::Mode::Tunnel => Mode::Tunnel,
        };
        let pairs =
            sa.local.iter().flat_map(|local| sa.remote.iter().map(move |remote| (local, remote)));
        let mut selectors = Vec::new();
        for (local, remote) in pairs {
            let selector = selector(local, remote).filter(is_of_one_version);
            selectors.extend(selector.filter(|selector| !selectors.contains(selector)));
        }
        let life = self.config_of(&sa.config.name).map_or_else(Limits::default, |one| one.life);
        let spis = (sa.inbound.spi, sa.outbound.spi);
        let halves = [
            (Direction::In, &inbound, sa.inbound, (remote, local)),
            (Direction::Out, &outbound, sa.outbound, (local, remote)),
        ];
        for (direction, name, half, (source, destination)) in halves {
            let mac_key = Some(half.secrets.mac_key).filter(|key| !key.is_empty());
            let secrets = Secrets { suite: sa.suite, key: half.secrets.key, mac_key };
            let addresses = (source.ip(), destination.ip());
            let protection = match sa.format {
                PacketFormat::Esp | PacketFormat::EspInUdp => Protection::Esp(secrets),
                PacketFormat::QEsp(number) => Protection::QEsp { secrets, number },
            };
            let spec = SaSpec::new(name.clone(), direction, mode, half.spi, addresses, protection);
            let ports = UdpPorts { source: source.port(), destination: destination.port() };
            let in_udp = sa.format == PacketFormat::EspInUdp;
            self.added.push(SaSpec {
                extended_sequence: sa.extended_sequence,
                lifetime: Lifetime { hard: life, ..Lifetime::default() },
                udp: in_udp.then_some(ports),
                queue: sa.resource.filter(|_| direction == Direction::Out),
                follow_peer: in_udp && mode == Mode::Tunnel && direction == Direction::In,
                peer_group: sa.session.0,
                ..spec
            });
        }
        let mut limits = self.limits_of(&sa.config.name);
        if !sa.extended_sequence {
            limits.packets = Some(limits.packets.unwrap_or(u64::MAX).min(SOFT_PACKETS));
        }
        if limits != Limits::default() {
            self.limited.insert(sa.child, limits);
        }
        let is_shared = self.config_of(&sa.config.name).is_some_and(|one| one.is_shared);
        // a peer may list them in another order in a rekey
        let addresses = selectors.iter().filter_map(|one| first_address(&one.remote));
        let tenant = addresses.min().filter(|_| is_shared);
        let installed = Installed {
            tenant,
            session: sa.session,
            owner,
            child: sa.config.name.clone(),
            inbound,
            outbound,
            spis,
            replaces: sa.replaces,
            sends: false,
            asked_until: None,
            is_ending: false,
            is_refused: false,
            selectors,
        };
        self.by_name.entry(installed.child.clone()).or_default().insert(sa.child);
        self.installed.insert(sa.child, installed);
        self.waiting.insert(sa.child);
        self.is_changed = true;
    }

    /// Puts the CHILD SAs of an IKE SA between other addresses.
    pub(super) fn move_to(
        &mut self,
        session: SessionId,
        (local, remote): (SocketAddr, SocketAddr),
        datapath: &Datapath,
    ) {
        let engine = datapath.engine();
        let between = |spec: &SaSpec| {
            let (from, to) = match spec.direction {
                Direction::Out => (local, remote),
                Direction::In => (remote, local),
            };
            let ports = UdpPorts { source: from.port(), destination: to.port() };
            spec.between((from.ip(), to.ip()), spec.udp.map(|_| ports))
        };
        for child in self.installed.values().filter(|child| child.session == session) {
            for name in [&child.inbound, &child.outbound] {
                let added = self.added.iter_mut().find(|spec| spec.name == *name);
                match (added, engine.association(name)) {
                    (Some(added), _) => *added = between(added),
                    (None, Some(present)) => self.added.push(between(present.spec())),
                    (None, None) => {}
                }
            }
            self.is_changed = true;
        }
    }

    /// Returns both associations of the CHILD SA that was installed last.
    pub(super) fn newest(&self) -> &[SaSpec] {
        &self.added[self.added.len().saturating_sub(2)..]
    }

    /// Sends packets on this CHILD SA, no more on the one that it replaces.
    pub(super) fn switch(&mut self, id: ChildId) {
        let Some(child) = self.installed.get_mut(&id) else { return };
        child.sends = true;
        let replaces = child.replaces;
        self.waiting.remove(&id);
        self.is_changed = true;
        if let Some(former) = replaces {
            self.stop_sending(former);
        }
    }

    pub(super) fn stop_sending(&mut self, id: ChildId) {
        if let Some(child) = self.installed.get_mut(&id) {
            child.sends = false;
            self.is_changed = true;
        }
    }

    /// Removes a CHILD SA; packets that the peer sent before it knew are still accepted.
    pub(super) fn remove(&mut self, id: ChildId, now: Instant) {
        let child = self.installed.get_mut(&id).filter(|child| !child.is_ending);
        let Some(child) = child else { return };
        (child.sends, child.is_ending) = (false, true);
        self.waiting.remove(&id);
        self.ending.insert((now + LINGER, id));
        self.is_changed = true;
    }

    /// Forgets the removed CHILD SAs of which no packet can be under way any more.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((_, id)) = self.ending.first().copied().filter(|(at, _)| *at <= now) {
            self.ending.pop_first();
            self.limited.remove(&id);
            let Some(child) = self.installed.remove(&id) else { continue };
            if let Some(others) = self.by_name.get_mut(&child.child) {
                others.remove(&id);
                if others.is_empty() {
                    self.by_name.remove(&child.child);
                }
            }
            self.removed.extend([child.inbound, child.outbound]);
            self.is_changed = true;
        }
    }

    /// Returns when [`Self::expire`] has something to do.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.ending.first().map(|(at, _)| *at)
    }

    /// Returns where a CHILD SA comes from.
    pub(super) fn origin(&self, id: ChildId) -> Option<Origin> {
        let child = self.installed.get(&id)?;
        let (name, session) = (child.child.clone(), child.session);
        let (spis, was_in_force) = (child.spis, !child.is_refused);
        Some(Origin { child: name, session, spis, was_in_force })
    }

    /// Returns the oldest other CHILD SA in force of the same configuration and session all of whose
    /// packets the CHILD SA covers. One that has packets of its own is no twin.
    pub(super) fn twin(&self, id: ChildId) -> Option<ChildId> {
        let new = self.installed.get(&id)?;
        let is_one = |one: &Installed| {
            let is_in_force = !one.is_ending && !one.is_refused;
            is_in_force && one.session == new.session && cover_each(&new.selectors, &one.selectors)
        };
        self.of(&new.child).find(|(other, one)| *other != id && is_one(one)).map(|(id, _)| id)
    }

    /// Tells whether a configuration has a CHILD SA.
    pub(super) fn exists(&self, name: &str) -> bool {
        self.of(name).any(|(_, child)| !child.is_ending && !child.is_refused)
    }

    /// Returns the number of CHILD SAs of each session.
    pub(super) fn counts(&self) -> HashMap<SessionId, usize> {
        let mut counts = HashMap::new();
        for child in self.installed.values().filter(|child| !child.is_ending) {
            *counts.entry(child.session).or_default() += 1;
        }
        counts
    }

    /// Returns whether a CHILD SA waits for its first packet.
    pub(super) fn any_waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the CHILD SAs that wait and on which a packet has arrived.
    pub(super) fn heard(&self, datapath: &Datapath) -> Vec<ChildId> {
        let engine = datapath.engine();
        let heard = |id: &&ChildId| {
            let child = self.installed.get(id);
            let sa = child.and_then(|child| engine.association(&child.inbound));
            sa.is_some_and(|sa| sa.packets() > 0)
        };
        self.waiting.iter().filter(heard).copied().collect()
    }

    /// Returns whether a CHILD SA is rekeyed after so many packets or bytes.
    pub(super) fn any_is_limited(&self) -> bool {
        !self.limited.is_empty()
    }

    /// Returns the CHILD SAs in use that have carried what they may, in either direction. Each is
    /// returned again after a while, should it not be replaced by then.
    pub(super) fn worn(&mut self, datapath: &Datapath, now: Instant) -> Vec<ChildId> {
        let engine = datapath.engine();
        let mut worn = Vec::new();
        for (id, limits) in &self.limited {
            let Some(child) = self.installed.get_mut(id).filter(|child| child.sends) else {
                continue;
            };
            let halves = [&child.inbound, &child.outbound];
            let is_worn = halves.iter().filter_map(|name| engine.association(name)).any(|sa| {
                limits.packets.is_some_and(|most| sa.packets() >= most)
                    || limits.bytes.is_some_and(|most| sa.bytes() >= most)
            });
            if is_worn && child.asked_until.is_none_or(|until| until <= now) {
                child.asked_until = Some(now + AGAIN);
                worn.push(*id);
            }
        }
        worn
    }

    /// Returns what an SA of a configuration carries: less by up to a tenth at random, so that both
    /// ends do not rekey at once.
    fn limits_of(&self, name: &str) -> Limits {
        let limits = self.config_of(name).map_or_else(Limits::default, |child| child.rekey_limits);
        let less = |most: u64| {
            let mut part = [0];
            SystemRandom.fill(&mut part);
            most - (u128::from(most) * u128::from(part[0]) / 2560) as u64
        };
        Limits { bytes: limits.bytes.map(less), packets: limits.packets.map(less), seconds: None }
    }

    fn config_of(&self, name: &str) -> Option<&IkeChild> {
        self.configured.iter().find(|child| child.name == name)
    }

    /// Returns the CHILD SA of an association, unless it is removed.
    pub(super) fn of_association(&self, association: &str) -> Option<ChildId> {
        let child = association.split('/').next()?;
        let its = |one: &Installed| one.inbound == association || one.outbound == association;
        self.of(child).find(|(_, one)| !one.is_ending && its(one)).map(|(id, _)| id)
    }

    /// Tells whether something has changed since the last call, or could not be put into the engine.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Returns the CHILD SAs that are not removed, and that `is_kept` keeps.
    pub(super) fn kept(&self, is_kept: impl Fn(SessionId, &str) -> bool) -> Vec<ChildId> {
        let kept = |child: &Installed| !child.is_ending && is_kept(child.session, &child.child);
        self.installed.iter().filter(|(_, child)| kept(child)).map(|(id, _)| *id).collect()
    }

    /// Takes another configuration. CHILD SAs that `is_kept` does not keep protect nothing any more.
    /// Returns what undoes it.
    pub(super) fn reconfigure(
        &mut self,
        configured: Vec<IkeChild>,
        fixed: Vec<PolicySpec>,
        is_kept: impl Fn(SessionId, &str) -> bool,
    ) -> Former {
        let mut refused = Vec::new();
        for (id, child) in &mut self.installed {
            if !child.is_refused && !is_kept(child.session, &child.child) {
                child.is_refused = true;
                refused.push(*id);
            }
        }
        self.is_changed = true;
        let configured = std::mem::replace(&mut self.configured, configured);
        let fixed = std::mem::replace(&mut self.fixed, fixed);
        Former { configured, fixed, refused }
    }

    /// Undoes [`Self::reconfigure`].
    pub(super) fn restore(&mut self, former: Former) {
        (self.configured, self.fixed) = (former.configured, former.fixed);
        for id in former.refused {
            if let Some(child) = self.installed.get_mut(&id) {
                child.is_refused = false;
            }
        }
    }

    /// Returns the CHILD SAs of a configuration, the oldest first.
    fn of(&self, name: &str) -> impl DoubleEndedIterator<Item = (ChildId, &Installed)> + Clone {
        let ids = self.by_name.get(name).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.installed.get(id)?)))
    }
}
