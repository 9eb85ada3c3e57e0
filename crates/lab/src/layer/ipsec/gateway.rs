//! The work is done by `headroom tunnel`, one process on each host.

use std::fmt::Write;

use headroom_lab_host::error::{Doing, Error, Result};
use headroom_lab_host::host::Host;
use headroom_lab_host::programs::{IP, UNSHARE};
use headroom_lab_host::role::Role;
use serde::Deserialize;

use super::keys::{DirectionKeys, Keys};
use super::options::{Instructions, Mode, Parameters};
use super::{Ipsec, Protocol};
use crate::layer::{Drops, Place};
use crate::link::Flow;

/// Name of the configuration in the instance's folder.
const FILE: &str = "tunnel.toml";

/// Writes a host's configuration with these keys, and starts the gateway.
pub(super) fn start(layer: &Ipsec, place: &Place<'_>, host: &Host, keys: &[Keys]) -> Result<()> {
    start_with(layer, place, host, &configuration(layer, place, host, keys))
}

/// Writes this configuration for a host, and starts the gateway.
pub(super) fn start_with(
    layer: &Ipsec,
    place: &Place<'_>,
    host: &Host,
    configuration: &str,
) -> Result<()> {
    let file = place.write(host, FILE, configuration)?;
    // it holds keys, and the gateway refuses one that others may read
    place.run(host, "chmod", ["600", &file])?;
    up(layer, place, host, &["--new-keys"])
}

/// Starts the gateway again, with the keys and the sequence numbers that it has.
pub(super) fn go_on(layer: &Ipsec, place: &Place<'_>, host: &Host) -> Result<()> {
    if !host.is_dry() && host.server(&place.at.daemon(), 0)?.ended.is_none() {
        return Ok(());
    }
    up(layer, place, host, &[])
}

/// Ends the gateway; what it changed on its host is as before.
pub(super) fn stop(place: &Place<'_>, host: &Host) -> Result<()> {
    say(place, host, &["down", &place.at.interface])?;
    place.until_ended(host)
}

/// Packets that the gateway has not passed on since it came up, by reason.
pub(super) fn drops(place: &Place<'_>, host: &Host) -> Result<Drops> {
    #[derive(Deserialize)]
    struct Status {
        drops: Drops,
    }
    let said = say(place, host, &["status", &place.at.interface, "--json"])?;
    let status: Status = serde_json::from_str(&said)
        .doing(|| format!("read the status of {}", place.at.daemon()))?;
    Ok(status.drops)
}

/// Says something to the gateway, whose socket is in a `/run` of its own.
pub(super) fn say(place: &Place<'_>, host: &Host, tunnel: &[&str]) -> Result<String> {
    let script = r#"mount --bind "$0" /run && exec "$@""#;
    let (run, headroom) = (place.path(host, "run"), host.headroom.display().to_string());
    let mut words = vec!["--mount", "--propagation", "private", "sh", "-c", script, &run];
    let parts = parts(host);
    words.extend(parts.iter().map(String::as_str));
    words.extend([headroom.as_str(), "tunnel"]);
    words.extend(tunnel);
    place.run(host, UNSHARE, words)
}

fn up(layer: &Ipsec, place: &Place<'_>, host: &Host, more: &[&str]) -> Result<()> {
    let (file, headroom) = (place.path(host, FILE), host.headroom.display().to_string());
    let words = [headroom.as_str(), "tunnel", "up", &file];
    let words = words.into_iter().chain(more.iter().copied()).map(str::to_owned);
    let environment = parts(host).into_iter().chain(instructions(layer));
    place.start(host, environment.chain(words).collect::<Vec<_>>().into())?;
    let socket = place.path(host, &format!("run/headroom/{}.sock", place.at.interface));
    let ready = || Ok(place.run(host, "test", ["-S", &socket]).is_ok());
    place.until(host, "its control socket", ready)?;
    prefer_congestion_control(place, host)
}

/// Tells the gateway where the programs are that it starts.
fn parts(host: &Host) -> [String; 2] {
    ["env".to_owned(), format!("HEADROOM_PARTS={}", host.program_cache().display())]
}

/// Tells the library of its ciphers (AWS-LC) to use fewer instructions than there are.
/// On x86-64 these variables have the form that OpenSSL's manual OPENSSL_ia32cap(3)
/// gives: of CPUID's leaf 1, ECX, PCLMULQDQ, SSSE3, FMA, SSE4.1, MOVBE, AES and AVX go, and
/// all of leaf 7.
fn instructions(layer: &Ipsec) -> Vec<String> {
    const PORTABLE: [&str; 2] = [
        "OPENSSL_ia32cap=~0x1248120200000000:~0xffffffffffffffff",
        // NEON alone, which every 64-bit ARM has
        "OPENSSL_armcap=1",
    ];
    match layer.parameters.instructions {
        Instructions::Native => Vec::new(),
        Instructions::Portable => PORTABLE.map(str::to_owned).into(),
    }
}

/// The gateway's own routes, in a table that is asked earlier than the main one, know
/// nothing of congestion control.
fn prefer_congestion_control(place: &Place<'_>, host: &Host) -> Result<()> {
    let family = if place.at.outer.client.is_ipv4() { "-4" } else { "-6" };
    let (interface, congestion) = (&place.at.interface, &place.at.congestion_control);
    let said = place.run(host, IP, [family, "route", "show", "table", "all", "dev", interface])?;
    let routes: Vec<Vec<&str>> = said.lines().filter_map(route_to_peer).collect();
    if routes.is_empty() && !host.is_dry() {
        return Err(Error::Failed(format!(
            "the tunnel of {interface} has no route on the {}, so its congestion control cannot be set. `ip` said: {said}",
            host.role
        )));
    }
    for route in routes {
        let words = [family, "route", "change"].into_iter().chain(route);
        let words = words.chain(["dev", interface, "congctl", congestion]);
        place.run(host, IP, words)?;
    }
    Ok(())
}

/// A line of `ip route` as words by which the route can be changed; none for what the kernel
/// itself has made.
fn route_to_peer(line: &str) -> Option<Vec<&str>> {
    const OF_THE_KERNEL: [&str; 4] = ["local", "broadcast", "multicast", "anycast"];
    let first = line.split_whitespace().next()?;
    if OF_THE_KERNEL.contains(&first) || first.starts_with("fe80") || line.contains("proto kernel")
    {
        return None;
    }
    let (mut words, mut route) = (line.split_whitespace(), Vec::new());
    while let Some(word) = words.next() {
        match word {
            "linkdown" => {}
            "pref" => drop(words.next()),
            word => route.push(word),
        }
    }
    Some(route)
}

fn configuration(layer: &Ipsec, place: &Place<'_>, host: &Host, keys: &[Keys]) -> String {
    let (seen, at) = (place.seen_from(host), place.at);
    let Parameters { mode, cipher, mac, queues, class, .. } = layer.parameters;
    let insecure = cipher.is_some_and(|c| c.insecure) || mac.is_some_and(|m| m.insecure);
    let mut text =
        format!("name = {:?}\nledger = \"tunnel.ledger\"\nqueues = {queues}\n", at.interface);
    if mode == Mode::Tunnel {
        let bits = if seen.inner.is_ipv4() { 32 } else { 128 };
        let _ = writeln!(text, "address = [\"{}/{bits}\"]\nmtu = {}", seen.inner, at.inner.mtu);
    }
    // the usual folder is the machine's, where these keys of one run are of no use
    let _ = writeln!(text, "ledger_copy = {:?}", place.path(host, "copies"));
    if insecure {
        text += "allow_insecure = true\n";
    }
    // the first policy that matches decides
    for (keys, class) in keys.iter().zip([None, class]).rev() {
        text += &protected(layer, place, host, keys, class);
    }
    text
}

/// Associations and the policy of a flow, or of all.
fn protected(
    layer: &Ipsec,
    place: &Place<'_>,
    host: &Host,
    keys: &Keys,
    class: Option<Flow>,
) -> String {
    let (seen, at) = (place.seen_from(host), place.at);
    let Parameters { mode, cipher, mac, udp, window, .. } = layer.parameters;
    let of = if class.is_some() { "class" } else { "lab" };
    let (mut text, mut out, mut into) = (String::new(), Vec::new(), Vec::new());
    for (protocol, pair) in keys.each(layer.protocol) {
        // AH around ESP's packet has the header that ESP has written
        let outer_mode = if protocol == "ah" && layer.protocol == Protocol::AhEsp {
            Mode::Transport
        } else {
            mode
        };
        let suite = match (protocol, cipher, mac) {
            ("ah", _, Some(mac)) => mac.name.to_owned(),
            (_, Some(cipher), Some(mac)) if cipher.tag.is_none() => {
                format!("{}+{}", cipher.name, mac.name)
            }
            (_, cipher, _) => cipher.map_or_else(String::new, |cipher| cipher.name.to_owned()),
        };
        for (direction, keys) in ["out", "in"].into_iter().zip(pair.seen_from(host.role)) {
            let name = format!("{direction}-{protocol}-{of}");
            let (source, destination) = match direction {
                "out" => (seen.outer, seen.far_outer),
                _ => (seen.far_outer, seen.outer),
            };
            let DirectionKeys { spi, key, integrity_key } = keys;
            let _ = write!(
                text,
                "
[[sa]]
name = \"{name}\"
direction = \"{direction}\"
protocol = \"{protocol}\"
mode = \"{}\"
spi = {spi:#x}
source = \"{source}\"
destination = \"{destination}\"
suite = \"{suite}\"
key = \"{key}\"
",
                outer_mode.name()
            );
            if let Some(key) = integrity_key {
                let _ = writeln!(text, "integrity_key = \"{key}\"");
            }
            if direction == "in" {
                let _ = writeln!(text, "window = {window}");
            }
            if udp {
                let port = at.port();
                let _ = writeln!(text, "udp = {{ source = {port}, destination = {port} }}");
            }
            if direction == "out" { &mut out } else { &mut into }.push(name);
        }
    }
    let _ = write!(
        text,
        "
[[policy]]
name = \"{of}\"
action = \"protect\"
local = \"{}\"
remote = \"{}\"
out = {out:?}
in = {into:?}
",
        seen.inner, seen.far_inner
    );
    if let Some(Flow { transport, port }) = class {
        // it goes to the server
        let end = if host.role == Role::Client { "remote" } else { "local" };
        let _ = writeln!(text, "protocol = \"{}\"\n{end}_port = {port}", transport.name());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use headroom_gateway::config::Config;
    use headroom_ipsec::spec::Direction;
    use headroom_ipsec::{Engine, Policy};

    use super::*;
    use crate::catalogue::{Chosen, Options};
    use crate::layer::{Instance, Layer, LayerKind};
    use headroom_lab_host::command::Executor;
    use headroom_lab_host::programs::SearchPath;
    use headroom_lab_host::testbed::{Ends, Family};

    /// Of the instance.
    const NUMBER: u16 = 3;

    fn with(protocol: Protocol, options: &[&str]) -> Ipsec {
        let options =
            Options::new(protocol.name(), String::new, options.to_vec()).expect("each once");
        let parameters = Parameters::read(protocol, &options).expect("options that fit");
        Ipsec { protocol, parameters }
    }

    /// Files of both hosts for a layer with static keys.
    fn configured(layer: Ipsec, ends: [&str; 2]) -> [Config; 2] {
        let keys = [0, 1].map(|class| Keys::of_class(&layer, NUMBER, class, false));
        let keys = &keys[..if layer.parameters.class.is_some() { 2 } else { 1 }];
        configured_as(layer, ends, |place, host| configuration(&layer, place, host, keys))
    }

    fn configured_as(
        layer: Ipsec,
        ends: [&str; 2],
        configuration: impl Fn(&Place<'_>, &Host) -> String,
    ) -> [Config; 2] {
        let executor = Arc::new(Executor::dry(SearchPath::from_environment()));
        let [client, server] = ends.map(|address| address.parse().expect("an address"));
        let host = |role, address| {
            let (root, headroom) = ("/tmp/root".into(), "/bin/headroom".into());
            Host::new(role, address, root, headroom, String::new(), Arc::clone(&executor), None)
        };
        let ends = Ends { client, server, mtu: 1500, ports: Ends::PORTS };
        let shared: Chosen<dyn Layer> =
            Chosen::new(&super::super::ESP, Vec::new(), Arc::new(layer));
        let at = Instance::new(&shared, "http/x", NUMBER, 0, ends, 80, "cubic").expect("it fits");
        let (client, server) = (host(Role::Client, client), host(Role::Server, server));
        let place = Place { client: &client, server: &server, at: &at };
        place.hosts().map(|host| {
            let text = configuration(&place, host);
            Config::parse(&text, Path::new("tunnel.toml"))
                .unwrap_or_else(|error| panic!("{error}\n{text}"))
        })
    }

    #[test]
    fn the_gateway_takes_what_every_suite_and_mode_is_configured_as() {
        use crate::layer::ipsec::suite::{CIPHERS, MACS};
        let v4 = ["10.77.1.4", "10.77.2.4"];
        let v6 = ["fd77:1::1:3", "fd77:2::1:3"];
        let mut layers = Vec::new();
        for protocol in [Protocol::Esp, Protocol::Ah, Protocol::AhEsp, Protocol::QEsp] {
            for mode in ["tunnel", "transport"] {
                for mac in MACS.iter().map(|mac| mac.name) {
                    let separate = CIPHERS.iter().filter(|c| c.tag.is_none() && protocol.takes(c));
                    layers.extend(separate.map(|c| with(protocol, &[mode, c.name, mac])));
                    if protocol.has_ah() {
                        layers.push(with(protocol, &[mode, mac]));
                    }
                }
                let aeads = CIPHERS.iter().filter(|c| c.tag.is_some() && protocol.takes(c));
                layers.extend(aeads.map(|cipher| with(protocol, &[mode, cipher.name])));
            }
        }
        layers.push(with(Protocol::Esp, &["udp", "queues=2"]));
        for protocol in [Protocol::QEsp, Protocol::AhEsp] {
            for mode in ["tunnel", "transport"] {
                layers.push(with(protocol, &[mode, "window=64", "sa-per-class=udp:5004"]));
            }
        }
        assert!(layers.len() > 100);
        for layer in layers {
            for ends in [v4, v6] {
                let [client, server] = configured(layer, ends);
                let of = |config: &Config, direction| {
                    let all =
                        config.associations.iter().filter(move |a| a.spec.direction == direction);
                    all.map(|a| (a.spec.spi, a.spec.source, a.spec.destination)).collect::<Vec<_>>()
                };
                assert_eq!(of(&client, Direction::Out), of(&server, Direction::In));
                assert_eq!(of(&client, Direction::In), of(&server, Direction::Out));
                assert_eq!(client.mtu.is_some(), layer.kind() == LayerKind::Network);
                assert_eq!(inner_mtu(client), layer.inner_mtu(1500, family_of(ends)), "{layer:?}");
            }
        }
    }

    fn family_of(ends: [&str; 2]) -> Family {
        if ends[0].contains(':') { Family::Ipv6 } else { Family::Ipv4 }
    }

    /// The longest packet that the gateway itself thinks fits.
    fn inner_mtu(config: Config) -> u32 {
        let specs: Vec<_> = config.associations.into_iter().map(|a| a.spec).collect();
        let front = if specs[0].source.is_ipv4() { 20 } else { 40 };
        let engine = Engine::new(specs, config.policies, None, Duration::ZERO).expect("an engine");
        let bundle = engine.policies().iter().flat_map(Policy::bundles).next().expect("a bundle");
        bundle.inner_mtu(1500, front) as u32
    }

    #[test]
    fn the_gateway_takes_what_ike_is_configured_as() {
        use crate::layer::ipsec::ike;
        for ends in [["10.77.1.4", "10.77.2.4"], ["fd77:1::1:3", "fd77:2::1:3"]] {
            for (protocol, options) in [
                (Protocol::Esp, &["ike"][..]),
                (Protocol::Esp, &["ike", "pq=off", "rekey=50MB"]),
                (Protocol::Esp, &["ike", "transport", "queues=2"]),
                (Protocol::QEsp, &["ike"]),
            ] {
                let layer = with(protocol, options);
                let ike = layer.parameters.ike.expect("keys that are negotiated");
                let proof = ike::ProofLines::shared_key(&crate::layer::random_key::hex(32, true));
                let configured = configured_as(layer, ends, |place, host| {
                    ike::configuration(&layer, ike, place, host, &proof)
                });
                let [client, server] = configured.each_ref().map(|config| &config.ike[0]);
                assert!(client.initiate && !server.initiate, "{options:?}");
                assert_eq!(
                    (client.local, client.remote),
                    (server.remote.expect("an address"), Some(server.local))
                );
                assert!(client.auth.is_same(&server.auth));
                let groups = if ike.post_quantum { "Required" } else { "Off" };
                assert_eq!(format!("{:?}", client.post_quantum), groups);
                assert_eq!(client.post_quantum, server.post_quantum);
                let is_qesp = protocol == Protocol::QEsp;
                assert_eq!(client.children[0].qesp.is_some(), is_qesp, "{options:?}");
                let [client, _] = configured;
                assert_eq!(inner_mtu(client), layer.inner_mtu(1500, family_of(ends)), "{layer:?}");
            }
        }
    }

    #[test]
    fn what_is_weak_is_allowed_because_it_was_asked_for() {
        let layer = with(Protocol::Esp, &["3des-cbc", "hmac-md5"]);
        let [client, _] = configured(layer, ["10.77.1.4", "10.77.2.4"]);
        assert!(
            client.warnings.iter().any(|warning| warning.contains("3des")),
            "{:?}",
            client.warnings
        );
    }
}
