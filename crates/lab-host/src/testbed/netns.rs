//! The commands that make three namespaces out of one machine, and keep them
//! quiet: static neighbours, no duplicate address detection, no multicast.

use std::net::IpAddr;

use super::spec::{Family, Offload, TestbedSpec};
use crate::command::Command;
use crate::machine;
use crate::namespace::run_inside;
use crate::programs::{ETHTOOL, IP, SYSCTL};
use crate::role::Role;

pub(super) const ROUTER_TO_CLIENT: &str = "to-client";
pub(super) const ROUTER_TO_SERVER: &str = "to-server";
/// The interface on which each host of one machine has the link.
pub const HOST_INTERFACE: &str = "eth0";

/// Largest TCP buffers, bytes: eight times the bandwidth-delay product of
/// 1 Gbit/s at 16 ms, so that they do not decide a result by themselves.
const TCP_BUFFER: u64 = 16 << 20;

/// Names of the three namespaces, unique to the run.
#[derive(Debug, Clone)]
pub(super) struct Names {
    pub(super) client: String,
    pub(super) router: String,
    pub(super) server: String,
}

impl Names {
    pub(super) fn new(id: &str) -> Self {
        let name = |role: &str| format!("hr-{id}-{role}");
        Self { client: name("client"), router: name("router"), server: name("server") }
    }

    pub(super) fn all(&self) -> [&str; 3] {
        [&self.client, &self.router, &self.server]
    }
}

pub(super) struct Addresses {
    pub(super) client: IpAddr,
    pub(super) server: IpAddr,
}

/// Addresses of the two hosts; the router has `…fe` (or `.254`) on either side.
pub(super) fn addresses(family: Family) -> Addresses {
    match family {
        Family::Ipv4 => {
            Addresses { client: IpAddr::from([10, 77, 1, 1]), server: IpAddr::from([10, 77, 2, 1]) }
        }
        Family::Ipv6 => Addresses {
            client: IpAddr::from([0xfd77, 1, 0, 0, 0, 0, 0, 1]),
            server: IpAddr::from([0xfd77, 2, 0, 0, 0, 0, 0, 1]),
        },
    }
}

/// Returns the Ethernet address of a host's interface on the link, on one machine.
pub fn ethernet_address(role: Role) -> [u8; 6] {
    let number = match role {
        Role::Client => 1,
        Role::Server => 2,
    };
    [2, 0, 0, 0, number, 1]
}

/// Leading bits that all addresses of a host have in common.
pub(super) fn network_bits(family: Family) -> u32 {
    if family == Family::Ipv4 { 24 } else { 64 }
}

/// Addresses of the two hosts that one instance of a layer has for itself; `number`
/// is from 1 to 250.
pub(super) fn own_addresses(family: Family, number: u16) -> Addresses {
    let address = |n: u8| match family {
        Family::Ipv4 => IpAddr::from([10, 77, n, 1 + number as u8]),
        Family::Ipv6 => IpAddr::from([0xfd77, n.into(), 0, 0, 0, 0, 1, number]),
    };
    Addresses { client: address(1), server: address(2) }
}

/// Gives both hosts addresses more, between which packets go as between their first.
pub(super) fn own_commands(names: &Names, own: &Addresses, congestion: &str) -> Vec<Command> {
    let sides = [
        (&names.client, ROUTER_TO_CLIENT, 1, own.client, own.server),
        (&names.server, ROUTER_TO_SERVER, 2, own.server, own.client),
    ];
    let lines = sides.iter().flat_map(|(host, interface, n, address, far)| {
        let router = &names.router;
        let (bits, nodad, gateway) = match address {
            IpAddr::V4(_) => (32, "", format!("10.77.{n}.254")),
            IpAddr::V6(_) => (128, " nodad", format!("fd77:{n}::fe")),
        };
        [
            format!("-n {host} addr add {address}/{bits} dev {HOST_INTERFACE}{nodad}"),
            format!(
                "-n {router} neigh replace {address} lladdr 02:00:00:00:0{n}:01 nud permanent dev {interface}"
            ),
            format!(
                "-n {host} route add {far}/{bits} via {gateway} src {address} congctl {congestion}"
            ),
        ]
    });
    lines.map(|line| Command::words(IP, &line)).collect()
}

/// One side of the router.
struct Side<'a> {
    host: &'a str,
    router_interface: &'static str,
    number: u8,
}

/// Builds namespaces, veth pairs, addresses, neighbours and routes.
pub(super) fn commands(names: &Names, spec: &TestbedSpec, family: Family) -> Vec<Command> {
    let mut commands: Vec<Command> =
        names.all().iter().map(|name| Command::words(IP, &format!("netns add {name}"))).collect();
    let buffers =
        ["tcp_rmem", "tcp_wmem"].map(|key| format!("net.ipv4.{key}=4096 131072 {TCP_BUFFER}"));
    // Set before any interface exists, so that it holds for all that come
    let quiet = if machine::has_ipv6() {
        "net.ipv6.conf.default.accept_ra=0 net.ipv6.conf.default.accept_dad=0 \
         net.ipv6.conf.default.router_solicitations=0 net.ipv6.conf.default.addr_gen_mode=1"
    } else {
        ""
    };
    for name in names.all() {
        // thousands of sessions in a row would use up the ports that closed connections keep for a
        // minute; TCP's timestamps tell their late segments (RFC 6191)
        let tcp = "net.ipv4.tcp_no_metrics_save=1 net.ipv4.tcp_tw_reuse=1";
        let mut sysctl = Command::words(SYSCTL, &format!("-q -w {quiet} {tcp}"));
        sysctl.args(&buffers); // with spaces in them
        commands.push(run_inside(name, sysctl));
    }
    commands.push(forwarding(names, true));
    let mut add = |line: String| commands.push(Command::words(IP, &line));

    let sides = [
        Side { host: &names.client, router_interface: ROUTER_TO_CLIENT, number: 1 },
        Side { host: &names.server, router_interface: ROUTER_TO_SERVER, number: 2 },
    ];
    let (router, mtu, congestion) = (&names.router, spec.mtu, &spec.congestion_control);
    for side in &sides {
        let (host, interface, n) = (side.host, side.router_interface, side.number);
        let (host_mac, router_mac) =
            (format!("02:00:00:00:0{n}:01"), format!("02:00:00:00:0{n}:fe"));
        // Made inside the namespace: kernels before 6.15 or so refuse a name that the
        // caller's namespace has, wherever the interface is to be.
        add(format!(
            "-n {host} link add {HOST_INTERFACE} mtu {mtu} address {host_mac} \
             type veth peer name {interface} netns {router} mtu {mtu} address {router_mac}"
        ));
        for (namespace, interface) in [(host, HOST_INTERFACE), (router, interface)] {
            add(format!("-n {namespace} link set {interface} multicast off"));
            add(format!("-n {namespace} link set {interface} up"));
        }
        add(format!("-n {host} link set lo up"));
        let (host_ip, router_ip, bits, far) = match family {
            Family::Ipv4 => (
                format!("10.77.{n}.1"),
                format!("10.77.{n}.254"),
                24,
                format!("10.77.{}.0/24", 3 - n),
            ),
            Family::Ipv6 => (
                format!("fd77:{n}::1"),
                format!("fd77:{n}::fe"),
                64,
                format!("fd77:{}::/64", 3 - n),
            ),
        };
        let nodad = if family == Family::Ipv6 { " nodad" } else { "" };
        add(format!("-n {host} addr add {host_ip}/{bits} dev {HOST_INTERFACE}{nodad}"));
        add(format!("-n {router} addr add {router_ip}/{bits} dev {interface}{nodad}"));
        add(format!(
            "-n {host} neigh replace {router_ip} lladdr {router_mac} nud permanent dev {HOST_INTERFACE}"
        ));
        add(format!(
            "-n {router} neigh replace {host_ip} lladdr {host_mac} nud permanent dev {interface}"
        ));
        // the congestion control of a namespace cannot be set, that of a route can
        add(format!("-n {host} route add {far} via {router_ip} congctl {congestion}"));
    }
    commands
}

/// Has the router pass packets on, or not.
fn forwarding(names: &Names, on: bool) -> Command {
    let on = u8::from(on);
    let v6 = format!("net.ipv6.conf.all.forwarding={on}");
    let v6 = if machine::has_ipv6() { &v6 } else { "" };
    let sysctl = Command::words(SYSCTL, &format!("-q -w net.ipv4.ip_forward={on} {v6}"));
    run_inside(&names.router, sysctl)
}

/// Makes the router a wire for the emulator, or a router again. On the wire each
/// host takes the other for its gateway, so that frames arrive as they were
/// sent, and the router's own stack sees frames for somebody else.
pub(super) fn wire_commands(names: &Names, family: Family, wire: bool) -> Vec<Command> {
    let gateway = |host: &str, n: u8| {
        let address = match family {
            Family::Ipv4 => format!("10.77.{n}.254"),
            Family::Ipv6 => format!("fd77:{n}::fe"),
        };
        let mac = if wire {
            format!("02:00:00:00:0{}:01", 3 - n)
        } else {
            format!("02:00:00:00:0{n}:fe")
        };
        let arguments = format!(
            "-n {host} neigh replace {address} lladdr {mac} nud permanent dev {HOST_INTERFACE}"
        );
        Command::words(IP, &arguments)
    };
    vec![forwarding(names, !wire), gateway(&names.client, 1), gateway(&names.server, 2)]
}

/// Switches the offloads of all four interfaces.
pub(super) fn offload_commands(names: &Names, offload: Offload) -> Vec<Command> {
    // with a transmit checksum "offloaded", veth never computes it
    let features = match offload {
        Offload::On => "tx on tso on gso on gro on",
        Offload::Off => "tso off gso off gro off tx off",
    };
    interfaces(names)
        .map(|(namespace, interface)| {
            let ethtool = Command::words(ETHTOOL, &format!("-K {interface} {features}"));
            run_inside(namespace, ethtool)
        })
        .into()
}

/// Prints the counters of the router's interface towards the client.
pub(super) fn counters_command(names: &Names) -> Command {
    Command::words(IP, &format!("-j -s -n {} link show dev {ROUTER_TO_CLIENT}", names.router))
}

/// Flushes what TCP remembers of other hosts.
pub(super) fn forget_commands(names: &Names) -> [Command; 2] {
    [&names.client, &names.server]
        .map(|name| Command::words(IP, &format!("-n {name} tcp_metrics flush")))
}

fn interfaces(names: &Names) -> [(&str, &'static str); 4] {
    [
        (&names.client, HOST_INTERFACE),
        (&names.router, ROUTER_TO_CLIENT),
        (&names.router, ROUTER_TO_SERVER),
        (&names.server, HOST_INTERFACE),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_the_router_go_to_the_ethernet_addresses_of_the_hosts() {
        let own = own_addresses(Family::Ipv4, 3);
        let commands = own_commands(&Names::new("0badf00d"), &own, "cubic");
        let lines: Vec<String> = commands.iter().map(ToString::to_string).collect();
        for role in [Role::Client, Role::Server] {
            let bytes = ethernet_address(role).map(|byte| format!("{byte:02x}"));
            let neighbour = format!("lladdr {} ", bytes.join(":"));
            assert!(lines.iter().any(|line| line.contains(&neighbour)), "{neighbour}: {lines:?}");
        }
    }
}
