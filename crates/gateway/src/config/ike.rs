//! Reads `[ike]` and `[[child]]`: the peers with which keys are negotiated, and what is protected.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use headroom_ike::{Identity, PostQuantum, QEsp};
use headroom_ipsec::SaSpec;
use headroom_ipsec::spec::{
    Action, Addresses, Direction, Mode, PolicySpec, Ports, Protection, Secrets, Selector, UdpPorts,
};
use headroom_netio::route::source_towards;
use headroom_suite::{Aead, Key, Suite};
use toml::Spanned;

use super::associations::{address, parse_name};
use super::file::{
    ActionWhenFile, ChildFile, ConfigFile, IkeFile, ModeFile, PostQuantumFile, QEspFile,
};
use super::model::{Association, ChildAction, ChildActions, IkeChild, IkePeer, Purpose};
use super::options::rekey_limits;
use super::problem::{Problem, in_range, problem};
use super::reader::Reader;
use super::selectors::{addresses, covers};
use crate::datapath::{IKE_PORT, NAT_PORT};

/// The most peers of a configuration.
const MAX_PEERS: usize = 10_000;
/// The IP protocol number of Q-ESP (docs/qesp.md).
const QESP_NUMBER: u8 = 253;

impl Reader<'_> {
    /// Reads the peers. Their children become policies, with associations that stand for those that
    /// will be negotiated: routes, rules and sizes are planned with them.
    pub(super) fn ike(
        &self,
        file: &ConfigFile,
        tunnel: &str,
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
            let peer = self.peer(one, tunnel)?;
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
            let (policy, halves) = self.child(one, peer, policies, associations.len())?;
            if !names.insert(policy.name.clone()) {
                let message = format!(
                    "a policy or [[child]] above is named `{}`: choose another `name`",
                    policy.name
                );
                return Err(problem(one.name.as_ref().unwrap_or(&one.remote), message));
            }
            policies.push(policy);
            associations.extend(halves);
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

    fn peer(&self, file: &IkeFile, tunnel: &str) -> Result<IkePeer, Problem> {
        let name = file.name.as_ref().map_or(Ok(tunnel.to_owned()), parse_name)?;
        let remote = address(&file.remote)?;
        let local = match &file.local {
            Some(local) => address(local)?,
            None => self.route_source(remote, &file.remote)?,
        };
        if local.is_ipv4() != remote.is_ipv4() {
            let message =
                format!("`local` is {local} and `remote` {remote}: both must be IPv4 or both IPv6");
            return Err(problem(&file.remote, message));
        }
        let id = |text: &Option<String>, usual: Identity| match text {
            Some(text) => Identity::from_text(text),
            None => usual,
        };
        let (auth, certified) = self.auth(file)?;
        Ok(IkePeer {
            name,
            local: SocketAddr::new(local, IKE_PORT),
            remote: SocketAddr::new(remote, IKE_PORT),
            local_id: id(&file.local_id, certified.unwrap_or(Identity::Address(local))),
            remote_id: id(&file.remote_id, Identity::Address(remote)),
            auth,
            ppk: self.ppk(file)?,
            post_quantum: match file.post_quantum {
                PostQuantumFile::Required => PostQuantum::Required,
                PostQuantumFile::Preferred => PostQuantum::Preferred,
                PostQuantumFile::Off => PostQuantum::Off,
            },
            local_is_fixed: file.local.is_some(),
            initiate: file.initiate.unwrap_or(true),
            rekey: seconds(file.rekey_seconds.as_ref(), "rekey_seconds", 4 * 3600)?,
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

    /// Reads what is protected with a peer. Returns its policy, and associations that stand for those
    /// of both directions.
    fn child(
        &self,
        file: &ChildFile,
        peer: &mut IkePeer,
        policies: &[PolicySpec],
        index: usize,
    ) -> Result<(PolicySpec, [Association; 2]), Problem> {
        let name = match &file.name {
            Some(name) => parse_name(name)?,
            None => match peer.children.len() {
                0 => peer.name.clone(),
                count => format!("{}-{}", peer.name, count + 1),
            },
        };
        let one = |address: IpAddr| Addresses::Range(address, address);
        let selector = Selector {
            local: match &file.local {
                Some(_) => addresses(file.local.as_ref())?,
                None => one(peer.local.ip()),
            },
            remote: addresses(Some(&file.remote))?,
            protocol: None,
            local_port: Ports::Any,
            remote_port: Ports::Any,
            icmp: None,
        };
        for (side, place) in
            [(&selector.local, &file.local), (&selector.remote, &Some(file.remote.clone()))]
        {
            if let (Addresses::Any, Some(place)) = (side, place) {
                return Err(problem(
                    place,
                    "write \"0.0.0.0/0\" or \"::/0\": traffic selectors are of one IP version",
                ));
            }
        }
        if let (Addresses::Range(a, _), Addresses::Range(b, _)) =
            (&selector.local, &selector.remote)
            && a.is_ipv4() != b.is_ipv4()
        {
            let message = "`local` and `remote` have different IP versions: no packet matches both";
            return Err(problem(&file.remote, message));
        }
        if let Some(earlier) = policies.iter().find(|earlier| covers(&earlier.selector, &selector))
        {
            let message =
                format!("`{}` above already decides about all these packets", earlier.name);
            return Err(problem(&file.remote, message));
        }
        let mode = match file.mode {
            Some(ModeFile::Transport) => Mode::Transport,
            Some(ModeFile::Tunnel) | None => Mode::Tunnel,
        };
        if let (QEspFile::Prefer | QEspFile::Require, Mode::Transport) = (file.qesp, mode) {
            let message = "`qesp` is for tunnel mode: remove it, or `mode`";
            return Err(problem(&file.remote, message));
        }
        let child = IkeChild {
            name: name.clone(),
            selector: selector.clone(),
            mode,
            qesp: qesp(file.qesp),
            rekey_limits: rekey_limits(file)?,
            actions: actions(file, peer.initiate),
            rekey: seconds(file.rekey_seconds.as_ref(), "rekey_seconds", 3600)?,
        };
        let line = self.line(&file.remote);
        let half = |direction, index| {
            let spec = stand_in(peer, &child, direction, index)
                .map_err(|error| problem(&file.remote, error.to_string()))?;
            let (dummies_per_second, pad_to_path_mtu, negotiated) = (0, false, true);
            Ok(Association { spec, dummies_per_second, pad_to_path_mtu, line, negotiated })
        };
        let halves = [half(Direction::Out, index)?, half(Direction::In, index + 1)?];
        let named = |direction| vec![stand_in_name(&name, direction)];
        let action = Action::Protect { out: named(Direction::Out), inbound: named(Direction::In) };
        peer.children.push(child);
        Ok((PolicySpec { name, selector, action }, halves))
    }
}

/// Returns the peer of a child.
fn owner<'p>(
    file: &ChildFile,
    peers: &'p mut [IkePeer],
    by_name: &HashMap<String, usize>,
) -> Result<&'p mut IkePeer, Problem> {
    match (&file.ike, peers) {
        (None, [only]) => Ok(only),
        (None, []) => Err(problem(&file.remote, "a [[child]] needs an [ike]")),
        (None, _) => Err(problem(&file.remote, "there are several [[ike]]: say which with `ike`")),
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

/// Reads what this host does about a child: what is not written is as at the start.
fn actions(file: &ChildFile, initiate: bool) -> ChildActions {
    let of = |written: &Option<Spanned<ActionWhenFile>>, usual| match written {
        Some(one) => match one.get_ref() {
            ActionWhenFile::Start => ChildAction::Start,
            ActionWhenFile::Trap => ChildAction::Trap,
            ActionWhenFile::None => ChildAction::None,
        },
        None => usual,
    };
    let usual = if initiate { ChildAction::Start } else { ChildAction::None };
    let start = of(&file.start_action, usual);
    ChildActions { start, close: of(&file.close_action, start), dpd: of(&file.dpd_action, start) }
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
    let suite = Suite::Aead(Aead::Aes256Gcm);
    let key = Key::generate(suite.key_len())?;
    let protection = Protection::Esp(Secrets { suite, key, mac_key: None });
    let addresses = match direction {
        Direction::Out => (peer.local.ip(), peer.remote.ip()),
        Direction::In => (peer.remote.ip(), peer.local.ip()),
    };
    let name = stand_in_name(&child.name, direction);
    let spi = 256 + index as u32;
    let spec = SaSpec::new(name, direction, child.mode, spi, addresses, protection);
    Ok(SaSpec { udp: Some(UdpPorts { source: NAT_PORT, destination: NAT_PORT }), ..spec })
}

fn seconds(written: Option<&Spanned<u64>>, what: &str, usual: u64) -> Result<Duration, Problem> {
    let seconds = written.map_or(Ok(usual), |number| in_range(number, what, 1..10_000_000))?;
    Ok(Duration::from_secs(seconds))
}
