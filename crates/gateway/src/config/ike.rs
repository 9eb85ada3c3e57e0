//! Reads `[ike]` and `[[child]]`: the peers with which keys are negotiated, and what is protected.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use headroom_ike::{Identity, PostQuantum, QEsp, VirtualAddresses};
use headroom_ipsec::SaSpec;
use headroom_ipsec::spec::{
    Action, Addresses, Direction, Mode, PolicySpec, Protection, Secrets, Selector, UdpPorts,
};
use headroom_netio::route::source_towards;
use headroom_suite::{Aead, Key, Suite, UnknownSuite};
use toml::Spanned;

use super::associations::{address, parse_name};
use super::file::{
    ActionWhenFile, ChildFile, ConfigFile, IkeFile, ModeFile, OneOrMany, PostQuantumFile, QEspFile,
};
use super::model::{Association, ChildAction, ChildActions, IkeChild, IkePeer, Purpose};
use super::options::{life, rekey_limits};
use super::problem::{Problem, in_range, problem};
use super::reader::Reader;
use super::selectors::{covers, parse_addresses};
use crate::datapath::{IKE_PORT, NAT_PORT};

/// The most peers of a configuration.
const MAX_PEERS: usize = 10_000;
/// The most suites of a list.
const MAX_SUITES: usize = 16;
/// The most addresses, prefixes or ranges at one end of a child.
const MAX_LISTED: usize = 16;
/// The IP protocol number of Q-ESP (docs/qesp.md).
const QESP_NUMBER: u8 = 253;

impl Reader<'_> {
    /// Reads the peers. Their children become policies, with associations that stand for those that
    /// will be negotiated: routes, rules and sizes are planned with them.
    pub(super) fn ike(
        &self,
        file: &ConfigFile,
        (tunnel, own, queues): (&str, &[(IpAddr, u8)], u64),
        associations: &mut Vec<Association>,
        policies: &mut Vec<PolicySpec>,
    ) -> Result<Vec<IkePeer>, Problem> {
        let files = &file.ike.0;
        if let Some(surplus) = files.get(MAX_PEERS) {
            return Err(problem(
                &surplus.remote,
                format!("there are more than {MAX_PEERS} [[ike]]"),
            ));
        }
        let mut peers: Vec<IkePeer> = Vec::with_capacity(files.len());
        let mut by_name = HashMap::with_capacity(files.len());
        for one in files {
            let peer = self.peer(one, tunnel, own)?;
            if by_name.insert(peer.name.clone(), peers.len()).is_some() {
                let message =
                    format!("another [[ike]] above is named `{}`: give each a `name`", peer.name);
                return Err(problem(one.name.as_ref().unwrap_or(&one.remote), message));
            }
            peers.push(peer);
        }
        let mut names: HashSet<String> = policies.iter().map(|one| one.name.clone()).collect();
        for one in &file.child {
            let peer = owner(one, &mut peers, &by_name)?;
            let place = (associations.len(), queues);
            let (made, halves) = self.child(one, peer, policies, place)?;
            if let Some(policy) = made.iter().find(|policy| !names.insert(policy.name.clone())) {
                let message = format!(
                    "a policy or [[child]] above is named `{}`: choose another `name`",
                    policy.name
                );
                return Err(match &one.get_ref().name {
                    Some(name) => problem(name, message),
                    None => problem(one, message),
                });
            }
            policies.extend(made);
            associations.extend(halves);
        }
        for peer in &mut peers {
            let asks = |of_v6| {
                let mut selectors = peer.children.iter().flat_map(|child| &child.selectors);
                selectors.any(|one| is_v6(&one.remote) == Some(of_v6))
            };
            let (asks_v4, asks_v6) = (asks(false), asks(true));
            if let VirtualAddresses::Request { ipv4, ipv6 } = &mut peer.virtual_addresses {
                (*ipv4, *ipv6) = (asks_v4, asks_v6);
            }
        }
        let idle = peers.iter().zip(files).find(|(peer, _)| peer.children.is_empty());
        match idle {
            Some((peer, file)) => {
                let message = format!("`{}` has no [[child]], so it protects nothing", peer.name);
                Err(problem(&file.remote, message))
            }
            None => Ok(peers),
        }
    }

    fn peer(&self, file: &IkeFile, tunnel: &str, own: &[(IpAddr, u8)]) -> Result<IkePeer, Problem> {
        let name = file.name.as_ref().map_or(Ok(tunnel.to_owned()), parse_name)?;
        let remote = match file.remote.get_ref().as_str() {
            "any" => None,
            _ => Some(address(&file.remote)?),
        };
        let local = match (&file.local, remote) {
            (Some(local), _) => address(local)?,
            (None, Some(remote)) => self.route_source(remote, &file.remote)?,
            (None, None) => {
                let message = "`remote = \"any\"` needs `local`, the address where peers arrive";
                return Err(problem(&file.remote, message));
            }
        };
        if let Some(remote) = remote.filter(|remote| remote.is_ipv4() != local.is_ipv4()) {
            let message =
                format!("`local` is {local} and `remote` {remote}: both must be IPv4 or both IPv6");
            return Err(problem(&file.remote, message));
        }
        let (virtual_addresses, pool) = self.virtual_addresses(file, own)?;
        let waits = remote.is_none();
        if let Some(initiate) = file.initiate.as_ref().filter(|one| waits && *one.get_ref()) {
            let message = "this host cannot begin with `remote = \"any\"`: remove `initiate`";
            return Err(problem(initiate, message));
        }
        let id = |text: &Option<String>, usual: Identity| match text {
            Some(text) => Identity::from_text(text),
            None => usual,
        };
        let (auth, certified) = self.auth(file)?;
        let remote_id = match (&file.remote_id, remote) {
            (None, None) => None,
            (None, Some(remote)) => Some(Identity::Address(remote)),
            (Some(written), _) => Some(Identity::from_text(written)),
        };
        if waits && remote_id.is_none() && virtual_addresses == VirtualAddresses::None {
            let message =
                "`remote = \"any\"` needs `pool`, for many peers, or `remote_id`, for one";
            return Err(problem(&file.remote, message));
        }
        Ok(IkePeer {
            name,
            local: SocketAddr::new(local, IKE_PORT),
            remote: remote.map(|remote| SocketAddr::new(remote, IKE_PORT)),
            local_id: id(&file.local_id, certified.unwrap_or(Identity::Address(local))),
            remote_id,
            virtual_addresses,
            pool,
            auth,
            ppk: self.ppk(file)?,
            suites: suites(file.suites.as_ref())?,
            post_quantum: match file.post_quantum {
                PostQuantumFile::Required => PostQuantum::Required,
                PostQuantumFile::Preferred => PostQuantum::Preferred,
                PostQuantumFile::Off => PostQuantum::Off,
            },
            modp2048: file.modp2048,
            local_is_fixed: file.local.is_some(),
            initiate: file.initiate.as_ref().map_or(!waits, |one| *one.get_ref()),
            rekey: seconds(file.rekey_seconds.as_ref(), "rekey_seconds", 4 * 3600)?,
            reauthenticate: reauthenticate(file)?,
            liveness: seconds(file.liveness_seconds.as_ref(), "liveness_seconds", 30)?,
            children: Vec::new(),
        })
    }

    /// Returns the address from which this host reaches the peer.
    fn route_source(&self, remote: IpAddr, place: &Spanned<String>) -> Result<IpAddr, Problem> {
        let any: IpAddr = match remote {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        if self.purpose == Purpose::Decode {
            return Ok(any);
        }
        source_towards(remote, None).map_err(|error| {
            problem(
                place,
                format!("no route to the peer {remote} ({error}): write `local`, or add a route"),
            )
        })
    }

    /// Reads what is protected with a peer. Returns its policies, and associations that stand for those
    /// of both directions.
    fn child(
        &self,
        file: &Spanned<ChildFile>,
        peer: &mut IkePeer,
        policies: &[PolicySpec],
        (index, queues): (usize, u64),
    ) -> Result<(Vec<PolicySpec>, [Association; 2]), Problem> {
        let (whole, file) = (file, file.get_ref());
        let name = match &file.name {
            Some(name) => parse_name(name)?,
            None => match peer.children.len() {
                0 => peer.name.clone(),
                count => format!("{}-{}", peer.name, count + 1),
            },
        };
        let selectors = selectors(whole, peer)?;
        let refused = |message: String| match &file.remote {
            Some(remote) => problem(remote, message),
            None => problem(whole, message),
        };
        let covering = |selector: &Selector| {
            policies.iter().find(|earlier| covers(&earlier.selector, selector))
        };
        if let Some(earlier) = selectors.iter().find_map(covering) {
            let message =
                format!("`{}` above already decides about all these packets", earlier.name);
            return Err(refused(message));
        }
        let mode = match file.mode {
            Some(ModeFile::Transport) => Mode::Transport,
            Some(ModeFile::Tunnel) | None => Mode::Tunnel,
        };
        if let (QEspFile::Prefer | QEspFile::Require, Mode::Transport) = (file.qesp, mode) {
            return Err(refused("`qesp` is for tunnel mode: remove it, or `mode`".to_owned()));
        }
        if mode == Mode::Transport && peer.virtual_addresses != VirtualAddresses::None {
            let message = "assigned addresses are for tunnel mode: remove `mode`";
            return Err(refused(message.to_owned()));
        }
        let child = IkeChild {
            name: name.clone(),
            selectors: selectors.clone(),
            is_shared: matches!(peer.virtual_addresses, VirtualAddresses::Assign(_)),
            mode,
            suites: suites(file.suites.as_ref())?,
            qesp: qesp(file.qesp),
            per_queue: per_queue(file, queues)?,
            rekey_limits: rekey_limits(file)?,
            life: life(file, seconds(file.rekey_seconds.as_ref(), "rekey_seconds", 3600)?)?,
            actions: actions(file, peer)?,
            rekey: seconds(file.rekey_seconds.as_ref(), "rekey_seconds", 3600)?,
        };
        let line = file.remote.as_ref().map_or_else(|| self.line(whole), |one| self.line(one));
        let half = |direction, index| {
            let spec = stand_in(peer, &child, direction, index)
                .map_err(|error| refused(error.to_string()))?;
            let (dummies_per_second, pad_to_path_mtu, negotiated) = (0, false, true);
            Ok(Association { spec, dummies_per_second, pad_to_path_mtu, line, negotiated })
        };
        let halves = [half(Direction::Out, index)?, half(Direction::In, index + 1)?];
        let named = |direction| vec![stand_in_name(&name, direction)];
        let action = Action::Protect { out: named(Direction::Out), inbound: named(Direction::In) };
        let policies = selectors.into_iter().enumerate().map(|(number, selector)| PolicySpec {
            name: child.policy_name(number),
            selector,
            action: action.clone(),
        });
        let policies = policies.collect();
        peer.children.push(child);
        Ok((policies, halves))
    }
}

/// Returns which packets are protected: of each pair of `local` and `remote` of one IP version.
fn selectors(file: &Spanned<ChildFile>, peer: &IkePeer) -> Result<Vec<Selector>, Problem> {
    let (whole, file) = (file, file.get_ref());
    let one = |address: IpAddr| vec![Addresses::Range(address, address)];
    let remote = match (&file.remote, &peer.virtual_addresses) {
        (Some(remote), VirtualAddresses::Assign(_)) => {
            let message = "`remote` of a child is what the peer has of the `pool`: remove it";
            return Err(problem(remote, message));
        }
        (Some(remote), _) => listed(remote)?,
        (None, VirtualAddresses::Assign(_)) => peer.pool.clone(),
        (None, _) => {
            return Err(problem(whole, "a [[child]] needs `remote`, what is behind the peer"));
        }
    };
    let local = match (&file.local, &peer.virtual_addresses) {
        (Some(local), VirtualAddresses::Request { .. }) => {
            let message = "`local` of this child is the address that the peer assigns: remove it";
            return Err(problem(local, message));
        }
        (None, VirtualAddresses::Request { .. }) => {
            let all = |of_v6| if of_v6 { EVERY_IPV6 } else { EVERY_IPV4 };
            let wanted = |of_v6: &bool| remote.iter().any(|one| is_v6(one) == Some(*of_v6));
            [false, true].into_iter().filter(wanted).map(all).collect()
        }
        (Some(local), _) => listed(local)?,
        (None, _) => one(peer.local.ip()),
    };
    let pairs = local.iter().flat_map(|local| remote.iter().map(move |remote| (local, remote)));
    let pairs = pairs.filter(|(local, remote)| is_v6(local) == is_v6(remote));
    let mut selectors: Vec<Selector> = Vec::new();
    for (local, remote) in pairs {
        let (local, remote) = (local.clone(), remote.clone());
        let selector = Selector { local, remote, ..Selector::ANY };
        match selectors.iter().any(|earlier| covers(earlier, &selector)) {
            true => {}
            false => selectors.push(selector),
        }
    }
    let message = "`local` and `remote` have different IP versions: no packet matches both";
    match (selectors.is_empty(), &file.remote) {
        (false, _) => Ok(selectors),
        (true, Some(remote)) => Err(problem(remote, message)),
        (true, None) => Err(problem(whole, message)),
    }
}

const EVERY_IPV4: Addresses =
    Addresses::Range(IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::BROADCAST));
const EVERY_IPV6: Addresses =
    Addresses::Range(IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)));

/// Reads the addresses of one end.
fn listed(written: &Spanned<OneOrMany>) -> Result<Vec<Addresses>, Problem> {
    let texts = &written.get_ref().0;
    if texts.is_empty() || texts.len() > MAX_LISTED {
        let message = format!("write 1 to {MAX_LISTED} addresses, prefixes or ranges");
        return Err(problem(written, message));
    }
    let one = |text: &String| match parse_addresses(text) {
        Ok(Addresses::Any) => Err(problem(
            written,
            "write \"0.0.0.0/0\" or \"::/0\": traffic selectors are of one IP version",
        )),
        other => other.map_err(|message| problem(written, message)),
    };
    texts.iter().map(one).collect()
}

/// Reads suites, the most wanted first; none if nothing is written.
fn suites(written: Option<&Spanned<OneOrMany>>) -> Result<Vec<Suite>, Problem> {
    let Some(written) = written else { return Ok(Vec::new()) };
    let texts = &written.get_ref().0;
    if texts.is_empty() || texts.len() > MAX_SUITES {
        return Err(problem(written, format!("write 1 to {MAX_SUITES} suites")));
    }
    let mut suites = Vec::with_capacity(texts.len());
    for text in texts {
        let suite: Suite =
            text.parse().map_err(|error: UnknownSuite| problem(written, error.to_string()))?;
        if !suite.is_secure() {
            let message = format!(
                "the suite `{suite}` is not secure (RFC 8221), and IKE does not negotiate it"
            );
            return Err(problem(written, message));
        }
        if suites.contains(&suite) {
            return Err(problem(written, format!("`{suite}` is there twice")));
        }
        suites.push(suite);
    }
    Ok(suites)
}

/// Tells the IP version; none of [`Addresses::Any`].
fn is_v6(addresses: &Addresses) -> Option<bool> {
    match addresses {
        Addresses::Range(first, _) => Some(first.is_ipv6()),
        Addresses::Any => None,
    }
}

/// Returns the peer of a child.
fn owner<'p>(
    file: &Spanned<ChildFile>,
    peers: &'p mut [IkePeer],
    by_name: &HashMap<String, usize>,
) -> Result<&'p mut IkePeer, Problem> {
    match (&file.get_ref().ike, peers) {
        (None, [only]) => Ok(only),
        (None, []) => Err(problem(file, "a [[child]] needs an [ike]")),
        (None, _) => Err(problem(file, "there are several [[ike]]: say which with `ike`")),
        (Some(name), peers) => {
            let index = by_name.get(name.get_ref()).copied();
            let found = index.and_then(|index| peers.get_mut(index));
            found.ok_or_else(|| problem(name, "there is no [[ike]] of this name"))
        }
    }
}

fn qesp(file: QEspFile) -> Option<QEsp> {
    let with = |is_required| Some(QEsp { protocol: QESP_NUMBER, is_required });
    match file {
        QEspFile::Off => None,
        QEspFile::Prefer => with(false),
        QEspFile::Require => with(true),
    }
}

/// Reads whether each queue has SAs of its own, and returns how many do.
fn per_queue(file: &ChildFile, queues: u64) -> Result<u32, Problem> {
    match file.per_queue.as_ref().filter(|written| *written.get_ref()) {
        None => Ok(0),
        Some(written) if queues < 2 => {
            Err(problem(written, "`per_queue` needs `queues` above 1, at the top of the file"))
        }
        Some(_) => Ok(u32::try_from(queues).unwrap_or(u32::MAX)),
    }
}

/// Reads what this host does about a child: what is not written is as at the start.
fn actions(file: &ChildFile, peer: &IkePeer) -> Result<ChildActions, Problem> {
    let of = |written: &Option<Spanned<ActionWhenFile>>, usual| {
        let Some(place) = written else { return Ok(usual) };
        let action = match place.get_ref() {
            ActionWhenFile::Start => ChildAction::Start,
            ActionWhenFile::Trap => ChildAction::Trap,
            ActionWhenFile::None => ChildAction::None,
        };
        if peer.remote.is_none() && action != ChildAction::None {
            let message = "this host cannot begin with `remote = \"any\"`: the peer does";
            return Err(problem(place, message));
        }
        Ok(action)
    };
    let usual = if peer.initiate { ChildAction::Start } else { ChildAction::None };
    let start = of(&file.start_action, usual)?;
    let (close, dpd) = (of(&file.close_action, start)?, of(&file.dpd_action, start)?);
    Ok(ChildActions { start, close, dpd })
}

fn stand_in_name(child: &str, direction: Direction) -> String {
    // no name in a file has a slash
    format!("{child}/{direction}")
}

/// Makes an association like those that will be negotiated, with a key that nothing else has.
fn stand_in(
    peer: &IkePeer,
    child: &IkeChild,
    direction: Direction,
    index: usize,
) -> Result<SaSpec, headroom_suite::KeyError> {
    // sizes are planned for the one with the largest overhead
    let largest = child.suites.iter().copied().max_by_key(|one| one.overhead() + one.block_len());
    let suite = largest.unwrap_or(Suite::Aead(Aead::Aes256Gcm));
    let key = Key::generate(suite.key_len())?;
    let mac_key = match suite.mac_key_len() {
        0 => None,
        length => Some(Key::generate(length)?),
    };
    let protection = Protection::Esp(Secrets { suite, key, mac_key });
    let local = peer.local.ip();
    let unknown: IpAddr = match local {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let remote = peer.remote.map_or(unknown, |remote| remote.ip());
    let addresses = match direction {
        Direction::Out => (local, remote),
        Direction::In => (remote, local),
    };
    let name = stand_in_name(&child.name, direction);
    let spi = 256 + index as u32;
    let spec = SaSpec::new(name, direction, child.mode, spi, addresses, protection);
    Ok(SaSpec { udp: Some(UdpPorts { source: NAT_PORT, destination: NAT_PORT }), ..spec })
}

fn reauthenticate(file: &IkeFile) -> Result<Option<Duration>, Problem> {
    let written = file.reauth_seconds.as_ref();
    let seconds = written.map(|one| in_range(one, "reauth_seconds", 1..10_000_000));
    Ok(seconds.transpose()?.map(Duration::from_secs))
}

fn seconds(written: Option<&Spanned<u64>>, what: &str, usual: u64) -> Result<Duration, Problem> {
    let seconds = written.map_or(Ok(usual), |number| in_range(number, what, 1..10_000_000))?;
    Ok(Duration::from_secs(seconds))
}
