//! Changes the host for a tunnel: an interface, rules, routes and a firewall table, as commands
//! that can be printed, run and undone.
//!
//! A routing table of the tunnel's own captures packets by destination (docs/datapath.md, "Capture
//! by routing"); the policies decide what happens to them. The gateway's own packets carry a mark
//! and are routed as without a tunnel. Beside each route into the tunnel stands a `prohibit` route,
//! which blocks when the gateway and its interface are gone, until the tunnel is taken down
//! (docs/datapath.md, "Fail closed"). Networks on this side are excluded from the capture.

mod batch;
mod command;
mod excluded;
mod firewall;
mod prefix;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use headroom_ipsec::spec::{Action, Direction, Mode, SaSpec};
use headroom_ipsec::{Bundle, Engine, Policy, PolicySpec};
use headroom_netio::route;
use serde::{Deserialize, Serialize};

pub use self::command::{Command, Error};
use self::prefix::{Prefix, prefixes};
use crate::config::Config;
use crate::datapath::paths::IPV6_MIN_MTU;

/// The metric of `prohibit` routes, which come after all others.
const LAST_METRIC: u32 = u32::MAX - 1;
/// The preferences of the rule for marked packets and of the capture rules, in this order. The
/// number of the tunnel is added.
const MARKED: u32 = 20_000;
const CAPTURE: u32 = 25_000;
/// Routing tables; the number of the tunnel is added.
const TABLES: u32 = 0x7165_0000;
/// The number of tunnel numbers.
const NUMBERS: u32 = 4096;
/// The interface's MTU in transport mode: whole datagrams must come through, and must still fit in
/// a packet when they are protected (docs/datapath.md, "Packets longer than the path").
const WHOLE_DATAGRAMS: usize = 65_280;
/// Bytes of the longest segment train: after protection it fits in one UDP train.
const LONGEST_TRAIN: usize = 60_000;
/// Bytes that every IPv4 host accepts (RFC 791).
const IPV4_MIN_MTU: usize = 576;
const IPV4_AND_TCP: usize = 40;
const IPV6_AND_TCP: usize = 60;

/// One change, and the command that undoes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The change.
    pub make: Command,
    /// Undoes the change; None if the change disappears with the interface.
    pub undo: Option<Command>,
    /// The tunnel also works without the change.
    #[serde(default)]
    pub optional: bool,
}

/// All changes for one tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// Changes before the interface is made. They remain if the gateway dies.
    pub before: Vec<Step>,
    /// Changes after the interface is made.
    pub after: Vec<Step>,
}

/// Facts about the host that a setup depends on.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    /// The mark of the gateway's own packets.
    pub mark: u32,
    /// Whether the host supports IPv6.
    pub has_v6: bool,
    /// Whether the reverse path filter already uses marks.
    pub marks_are_valid: bool,
}

impl Host {
    /// Reads the facts from the kernel.
    #[must_use]
    pub fn probe(mark: u32) -> Self {
        let marks = std::fs::read_to_string("/proc/sys/net/ipv4/conf/all/src_valid_mark");
        Self {
            mark,
            has_v6: Path::new("/proc/net/if_inet6").exists(),
            marks_are_valid: marks.is_ok_and(|text| text.trim() != "0"),
        }
    }
}

impl Setup {
    /// Returns the changes that `config` and its `engine` need on `host`. `path_mtu` returns the
    /// MTU of the path to an address.
    pub fn plan(
        config: &Config,
        engine: &Engine,
        host: Host,
        path_mtu: impl Fn(IpAddr) -> usize,
    ) -> Self {
        let tunnel = config.name.as_str();
        let specs = || config.associations.iter().map(|association| &association.spec);
        let captures = captures(&config.policies, specs, host);
        let left_out = excluded::excluded_prefixes(&config.policies, specs, host.has_v6);
        let table = TABLES + tunnel_number(tunnel);
        let needs_v6 = captures.iter().any(|capture| capture.prefix.is_v6())
            || config.addresses.iter().any(|(address, _)| address.is_ipv6());
        let sizes = Sizes::of(engine, &path_mtu, needs_v6);
        let mut before = Vec::new();
        let families = [("-4", true), ("-6", host.has_v6)];
        for (family, _) in families.iter().filter(|(_, has)| *has) {
            let preference = MARKED + tunnel_number(tunnel);
            let rule = format!("pref {preference} fwmark {:#x} lookup main", host.mark);
            before.push(reversible(
                &format!("ip {family} rule add {rule}"),
                &format!("ip {family} rule del {rule}"),
            ));
        }
        if !host.marks_are_valid {
            let name = "net.ipv4.conf.all.src_valid_mark";
            before.push(reversible(
                &format!("sysctl -q -w {name}=1"),
                &format!("sysctl -q -w {name}=0"),
            ));
        }
        before.push(firewall(config, specs, host));
        // The capture rules find these first; the lookup then continues as without a tunnel.
        let captured = |prefix| captures.iter().any(|capture| capture.prefix == prefix);
        for prefix in left_out.into_iter().filter(|prefix| !captured(*prefix)) {
            let (family, route) = (prefix.family(), format!("throw {prefix} table {table}"));
            before.push(reversible(
                &format!("ip {family} route replace {route}"),
                &format!("ip {family} route del {route}"),
            ));
        }
        for capture in &captures {
            let (family, prefix) = (capture.prefix.family(), capture.prefix);
            let route = format!("prohibit {prefix} metric {LAST_METRIC} table {table}");
            before.push(reversible(
                &format!("ip {family} route replace {route}"),
                &format!("ip {family} route del {route}"),
            ));
            let preference = CAPTURE + tunnel_number(tunnel);
            let rule = format!("pref {preference} to {prefix} lookup {table}");
            before.push(reversible(
                &format!("ip {family} rule add {rule}"),
                &format!("ip {family} rule del {rule}"),
            ));
        }
        let mut after = Vec::new();
        if host.has_v6 {
            after.push(optional(&format!("ip link set dev {tunnel} addrgenmode none")));
        }
        let mtu = config.mtu.map_or(sizes.interface, |mtu| mtu as usize);
        after.push(irreversible(&format!("ip link set dev {tunnel} mtu {mtu}")));
        after.push(optional(&format!("ip link set dev {tunnel} gso_max_size {LONGEST_TRAIN}")));
        for (address, len) in &config.addresses {
            let nodad = if address.is_ipv6() { " nodad" } else { "" };
            after.push(irreversible(&format!("ip addr add {address}/{len} dev {tunnel}{nodad}")));
        }
        after.push(irreversible(&format!("ip link set dev {tunnel} up")));
        for capture in &captures {
            let (family, prefix) = (capture.prefix.family(), capture.prefix);
            let mut route =
                format!("ip {family} route replace {prefix} dev {tunnel} metric 1 table {table}");
            let source = capture.source.or_else(|| inner_source(config, prefix));
            if let Some(source) = source {
                route += &format!(" src {source}");
            }
            if sizes.interface > sizes.tunnel && !capture.transport {
                route += &format!(" mtu {}", sizes.tunnel.max(min_mtu(prefix)));
            }
            if capture.transport {
                let (passes, headers) = match prefix.is_v6() {
                    true => (sizes.transport_v6, IPV6_AND_TCP),
                    false => (sizes.transport_v4, IPV4_AND_TCP),
                };
                route += &format!(" advmss {}", passes.saturating_sub(headers).max(536));
            }
            after.push(irreversible(&route));
        }
        Self { before, after }
    }

    /// Returns all commands in shell syntax, including the one for the interface.
    #[must_use]
    pub fn printed(&self, tunnel: &str, queues: usize) -> String {
        let queues = if queues > 1 { " multi_queue" } else { "" };
        let lines = self.before.iter().map(|step| step.make.to_string());
        let made = format!("ip tuntap add dev {tunnel} mode tun vnet_hdr{queues}");
        let after = self.after.iter().map(|step| step.make.to_string());
        lines.chain([made]).chain(after).map(|line| line + "\n").collect()
    }

    /// Returns the commands that undo the changes, in order, after the interface is gone.
    #[must_use]
    pub fn undo(&self) -> Vec<Command> {
        self.before.iter().rev().filter_map(|step| step.undo.clone()).collect()
    }

    /// Applies the changes of `self` that `present` lacks, then undoes those that only `present`
    /// has, also if they were not all made. A captured packet stays captured throughout.
    ///
    /// # Errors
    /// The first change that failed.
    pub fn replace(&self, present: &Self) -> Result<(), Error> {
        let new = |steps: &[Step], old: &[Step]| {
            apply_each(steps.iter().filter(|step| !old.contains(step)))
        };
        new(&self.before, &present.before)?;
        new(&self.after, &present.after)?;
        let kept: Vec<_> = self.before.iter().filter_map(|step| step.undo.as_ref()).collect();
        let mut undo = present.undo();
        undo.retain(|undo| !kept.contains(&undo));
        undo_all(&undo)
    }
}

/// Applies all changes. An existing object is no error: an earlier gateway may have left it.
///
/// # Errors
/// The first change that failed.
pub fn apply(steps: &[Step]) -> Result<(), Error> {
    apply_each(steps.iter())
}

/// Runs all commands, also after one that fails. An object that is gone already is no error.
///
/// # Errors
/// The first command that failed otherwise.
pub fn undo_all(commands: &[Command]) -> Result<(), Error> {
    let errors = batch::run_all(&commands.iter().collect::<Vec<_>>());
    errors.into_iter().map(|(_, error)| error).find(|error| !error.is_gone()).map_or(Ok(()), Err)
}

fn apply_each<'s>(steps: impl Iterator<Item = &'s Step>) -> Result<(), Error> {
    let steps: Vec<&Step> = steps.collect();
    let commands: Vec<&Command> = steps.iter().map(|step| &step.make).collect();
    let failed = |(at, error): (usize, Error)| {
        let is_none = steps[at].optional || error.is_there_already();
        (!is_none).then_some(error)
    };
    batch::run_all(&commands).into_iter().find_map(failed).map_or(Ok(()), Err)
}

/// Gives the interface of a tunnel an address that a peer has assigned.
///
/// # Errors
/// The command failed.
pub fn assign(tunnel: &str, address: IpAddr) -> Result<(), Error> {
    let (len, nodad) = if address.is_ipv6() { (128, " nodad") } else { (32, "") };
    Command::words(&format!("ip addr replace {address}/{len} dev {tunnel}{nodad}")).run()
}

/// Takes such an address away.
///
/// # Errors
/// The command failed.
pub fn remove(tunnel: &str, address: IpAddr) -> Result<(), Error> {
    let len = if address.is_ipv6() { 128 } else { 32 };
    Command::words(&format!("ip addr del {address}/{len} dev {tunnel}")).run()
}

/// Addresses whose packets are captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Capture {
    prefix: Prefix,
    /// This host's source address for them.
    source: Option<IpAddr>,
    transport: bool,
}

/// Returns the addresses of policies that protect or discard. Packets to these addresses that other
/// policies bypass are captured too, and forwarded.
fn captures<'a, S>(policies: &[PolicySpec], specs: impl Fn() -> S, host: Host) -> Vec<Capture>
where
    S: Iterator<Item = &'a SaSpec>,
{
    let mut captures: Vec<Capture> = Vec::new();
    for policy in policies {
        let out = match &policy.action {
            Action::Protect { out, .. } => out.first(),
            Action::Discard => None,
            Action::Bypass => continue,
        };
        let out = out.and_then(|name| specs().find(|spec| spec.name == *name));
        let transport = out.filter(|spec| spec.mode == Mode::Transport);
        for prefix in prefixes(&policy.selector.remote) {
            if (prefix.is_v6() && !host.has_v6)
                || captures.iter().any(|capture| capture.prefix == prefix)
            {
                continue;
            }
            let source = transport.map(|spec| spec.source);
            let source = source.filter(|source| source.is_ipv6() == prefix.is_v6());
            captures.push(Capture { prefix, source, transport: transport.is_some() });
        }
    }
    captures
}

/// Returns an address of the interface, of the IP version of the captured addresses.
fn inner_source(config: &Config, prefix: Prefix) -> Option<IpAddr> {
    config
        .addresses
        .iter()
        .map(|(address, _)| *address)
        .find(|address| address.is_ipv6() == prefix.is_v6())
}

/// Packet sizes in bytes.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    interface: usize,
    /// The largest inner packet in tunnel mode.
    tunnel: usize,
    /// The largest inner packet in transport mode.
    transport_v4: usize,
    transport_v6: usize,
}

impl Sizes {
    fn of(engine: &Engine, path_mtu: impl Fn(IpAddr) -> usize, needs_v6: bool) -> Self {
        let bundles = || engine.policies().iter().flat_map(Policy::bundles);
        let passes = |mode: Mode, front: usize| {
            bundles()
                .filter(|bundle: &&Bundle| bundle.mode() == mode)
                .map(|bundle| bundle.inner_mtu(path_mtu(bundle.destination()), front))
                .min()
        };
        let tunnel = passes(Mode::Tunnel, 0).unwrap_or(usize::MAX);
        let transport = [20, 40].map(|front| passes(Mode::Transport, front));
        // Linux disables IPv6 on an interface below its minimum MTU; packets longer than the path
        // then leave in outer fragments.
        let least = if needs_v6 { IPV6_MIN_MTU } else { IPV4_MIN_MTU };
        let interface = match transport[0] {
            Some(_) => WHOLE_DATAGRAMS,
            None => tunnel.clamp(least, WHOLE_DATAGRAMS),
        };
        let [transport_v4, transport_v6] = transport.map(|mtu| mtu.unwrap_or(IPV6_MIN_MTU));
        Self { interface, tunnel, transport_v4, transport_v6 }
    }
}

/// The bytes that every link transports (RFC 791, RFC 8200).
fn min_mtu(prefix: Prefix) -> usize {
    if prefix.is_v6() { IPV6_MIN_MTU } else { IPV4_MIN_MTU }
}

fn firewall<'a, S>(config: &Config, specs: impl Fn() -> S, host: Host) -> Step
where
    S: Iterator<Item = &'a SaSpec>,
{
    let tunnel = &config.name;
    let ike = config.ike.iter().map(|peer| peer.local);
    let input = firewall::rules(tunnel, host.mark, specs, ike, &config.policies);
    let make = Command { input, ..Command::words("nft -f -") };
    let undo = Command::words(&format!("nft delete table inet {}", firewall::table(tunnel)));
    Step { make, undo: Some(undo), optional: false }
}

fn reversible(make: &str, undo: &str) -> Step {
    Step { make: Command::words(make), undo: Some(Command::words(undo)), optional: false }
}

fn irreversible(make: &str) -> Step {
    Step { make: Command::words(make), undo: None, optional: false }
}

fn optional(make: &str) -> Step {
    Step { optional: true, ..irreversible(make) }
}

/// Returns the tunnel's number (FNV-1a of its name), the same at each start.
fn tunnel_number(tunnel: &str) -> u32 {
    let hash = tunnel
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, octet| (hash ^ u32::from(octet)).wrapping_mul(0x0100_0193));
    hash % NUMBERS
}

/// Returns a warning for each local address of the SAs that the host lacks. It is no error, since
/// an address may float between hosts.
pub fn missing_addresses<'a>(specs: impl Iterator<Item = &'a SaSpec>) -> Vec<String> {
    let own = |spec: &SaSpec| match spec.direction {
        Direction::Out => spec.source,
        Direction::In => spec.destination,
    };
    let addresses: BTreeSet<IpAddr> = specs.map(own).collect();
    let absent = addresses.into_iter().filter(|address| !is_local(*address));
    absent
        .map(|address| {
            format!(
                "the configuration uses the address {address} for this host, but the host does not have it: no packets \
                 arrive until it does"
            )
        })
        .collect()
}

/// Returns an error if an interface with the tunnel's name is no TUN device.
pub fn name_conflict(name: &str) -> Option<String> {
    let shown = Command::words(&format!("ip -d link show dev {name}")).output().ok()?;
    // An administrator or a gateway may have made a TUN device before.
    (!shown.contains(" tun type tun")).then(|| {
        format!(
            "the interface {name} exists and is no TUN device: give the tunnel another `name`, or remove \
             the interface (`ip link del {name}`)"
        )
    })
}

/// Checks whether an address belongs to this host: a socket can be bound to it.
pub fn is_local(address: IpAddr) -> bool {
    !matches!(UdpSocket::bind((address, 0)), Err(error) if error.kind() == ErrorKind::AddrNotAvailable)
}

/// The bytes of a packet for peers with any address: Ethernet's. Where a path is narrower, senders are
/// told so.
pub const USUAL_PATH_MTU: usize = 1500;

/// Returns the kernel's MTU of the path to `destination`, or IPv6's minimum if there is no route. The
/// unspecified address stands for that of any peer.
#[must_use]
pub fn path_mtu(destination: IpAddr, mark: u32) -> usize {
    if destination.is_unspecified() {
        return USUAL_PATH_MTU;
    }
    let asked = route::path_mtu(destination, Some(mark));
    asked.map_or(IPV6_MIN_MTU, |mtu| mtu.min(usize::from(u16::MAX)))
}
