//! The nftables table that enforces the policies, also while the gateway does not run: it drops
//! clear packets that a policy protects, in both directions (RFC 4301, section 5.2;
//! docs/datapath.md, "Fail closed").

use std::fmt::Write;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use headroom_ipsec::PolicySpec;
use headroom_ipsec::spec::{Action, Addresses, Direction, Ports, SaSpec, Selector};

use super::excluded::excluded;

/// Upper-layer protocols with ports (nft's `th`): TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: &str = "{ 6, 17, 33, 132, 136 }";

/// Returns the table's name.
pub(super) fn table(tunnel: &str) -> String {
    // nft allows no dots and hyphens in names.
    format!("headroom_{}", tunnel.replace(|c: char| !c.is_ascii_alphanumeric(), "_"))
}

/// Returns the input of `nft -f -`, which replaces an earlier table of that name atomically. `ike`
/// are the addresses and ports at which peers begin to negotiate.
pub(super) fn rules<'a, S>(
    tunnel: &str,
    mark: u32,
    associations: impl Fn() -> S,
    ike: impl Iterator<Item = SocketAddr>,
    policies: &[PolicySpec],
) -> String
where
    S: Iterator<Item = &'a SaSpec>,
{
    let table = table(tunnel);
    let mut ipsec = String::new();
    for own in ike {
        let rule = negotiation(own, mark);
        if !ipsec.contains(&rule) {
            ipsec += &rule;
        }
    }
    for spec in associations().filter(|spec| spec.direction == Direction::In) {
        let rule = outer(spec, mark);
        if !ipsec.contains(&rule) {
            ipsec += &rule;
        }
    }
    let [arriving, leaving] = [Direction::In, Direction::Out].map(|direction| {
        let mut rules = String::new();
        for policy in policies {
            if let Some(own) = excluded(policy, associations()) {
                let among = Selector { remote: own, ..policy.selector.clone() };
                for found in matches(&among, direction) {
                    let _ = writeln!(rules, "\t\t{found} return");
                }
            }
            let verdict = match policy.action {
                Action::Bypass => "return".to_owned(),
                Action::Protect { .. } | Action::Discard => {
                    let counter = if direction == Direction::In {
                        "clear_arrived"
                    } else {
                        "clear_would_leave"
                    };
                    format!("counter name {counter} drop")
                }
            };
            for found in matches(&policy.selector, direction) {
                let space = if found.is_empty() { "" } else { " " };
                let _ = writeln!(rules, "\t\t{found}{space}{verdict}"); // writing to a String cannot fail
            }
        }
        rules
    });
    format!(
        "table inet {table}
delete table inet {table}
table inet {table} {{
\tcounter clear_arrived {{ }}
\tcounter clear_would_leave {{ }}
\tchain neighbours {{
\t\ticmpv6 type {{ nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, nd-redirect }} accept
\t\ticmp type destination-unreachable icmp code frag-needed accept
\t\ticmpv6 type packet-too-big accept
\t}}
\tchain arriving {{
\t\ttype filter hook prerouting priority mangle; policy accept;
\t\tiifname {{ \"lo\", \"{tunnel}\" }} return
{ipsec}\t\tjump neighbours
{arriving}\t}}
\tchain leaving {{
\t\ttype filter hook postrouting priority filter; policy accept;
\t\toifname {{ \"lo\", \"{tunnel}\" }} return
\t\tmeta mark {mark:#x} return
\t\tjump neighbours
{leaving}\t}}
}}
"
    )
}

/// Returns the rule that accepts messages of IKE, which a policy of transport mode would drop.
fn negotiation(own: SocketAddr, mark: u32) -> String {
    let family = if own.is_ipv4() { "ip" } else { "ip6" };
    let (address, port) = (own.ip(), own.port());
    format!("\t\t{family} daddr {address} udp dport {port} meta mark set {mark:#x} return\n")
}

/// Returns rules that accept an association's outer packets. The mark lets the reverse path filter
/// find the route to their source outside the tunnel (docs/datapath.md, "Capture by routing").
fn outer(spec: &SaSpec, mark: u32) -> String {
    let family = if spec.source.is_ipv4() { "ip" } else { "ip6" };
    let to = format!("{family} daddr {}", spec.destination);
    let pass = format!("meta mark set {mark:#x} return");
    match spec.udp {
        // Behind a NAT the source is unknown; later fragments have no ports.
        Some(ports) => {
            let later = match spec.source.is_ipv4() {
                true => "ip frag-off & 0x1fff != 0",
                false => "frag frag-off != 0",
            };
            format!(
                "\t\t{to} udp dport {} {pass}\n\t\t{to} {later} meta l4proto 17 {pass}\n",
                ports.destination
            )
        }
        None => {
            let number = spec.protection.protocol().number();
            format!("\t\t{family} saddr {} {to} meta l4proto {number} {pass}\n", spec.source)
        }
    }
}

/// Returns the nft expressions that match the packets of a selector: one for each IP version if
/// they differ.
fn matches(selector: &Selector, direction: Direction) -> Vec<String> {
    let Selector { local, remote, protocol, local_port, remote_port, icmp } = selector;
    let (source, destination, source_port, destination_port) = match direction {
        Direction::In => (remote, local, remote_port, local_port),
        Direction::Out => (local, remote, local_port, remote_port),
    };
    let opaque = [source_port, destination_port].contains(&&Ports::Opaque);
    let families: &[Option<&str>] = match (local, remote) {
        (Addresses::Any, Addresses::Any) if opaque => &[Some("ip"), Some("ip6")],
        (Addresses::Any, Addresses::Any) => &[None],
        (Addresses::Range(first, last), other) | (other, Addresses::Range(first, last)) => {
            let of = |range: &Addresses| match range {
                Addresses::Any => None,
                Addresses::Range(first, _) => Some(first.is_ipv4()),
            };
            // Addresses of two IP versions match nothing.
            match (first.is_ipv4(), last.is_ipv4(), of(other)) {
                (true, true, None | Some(true)) => &[Some("ip")],
                (false, false, None | Some(false)) => &[Some("ip6")],
                _ => &[],
            }
        }
    };
    families
        .iter()
        .map(|family| {
            let mut words = Vec::new();
            for (side, range) in [("saddr", source), ("daddr", destination)] {
                if let (Some(family), Addresses::Range(first, last)) = (family, range) {
                    words.push(match first == last {
                        true => format!("{family} {side} {first}"),
                        false => format!("{family} {side} {first}-{last}"),
                    });
                }
            }
            if let Some(number) = protocol {
                words.push(format!("meta l4proto {number}"));
            }
            for (side, ports) in [("sport", source_port), ("dport", destination_port)] {
                if let Ports::Range(ports) = ports {
                    if protocol.is_none() && !words.iter().any(|word| word.contains(WITH_PORTS)) {
                        words.push(format!("meta l4proto {WITH_PORTS}"));
                    }
                    words.push(format!("th {side} {}", span(ports)));
                }
            }
            match family {
                Some("ip") if opaque => words.push("ip frag-off & 0x1fff != 0".into()),
                Some(_) if opaque => words.push("frag frag-off != 0".into()),
                _ => {}
            }
            if let Some(icmp) = icmp {
                // Type and code are the first two bytes in both IP versions.
                words.push(format!("@th,0,16 {}", span(icmp)));
            }
            words.join(" ")
        })
        .collect()
}

fn span(range: &RangeInclusive<u16>) -> String {
    match range.start() == range.end() {
        true => range.start().to_string(),
        false => format!("{}-{}", range.start(), range.end()),
    }
}
