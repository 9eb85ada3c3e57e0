//! The work is done by `headroom tunnel`, one process on each host.

use std::fmt::Write;

use super::keys::{Keys, Way};
use super::words::{Mode, Parameters};
use super::{Ipsec, Protocol, WINDOW};
use crate::error::Result;
use crate::host::Host;
use crate::layer::Place;

/// Writes a host's configuration, starts the gateway and waits until packets pass.
pub(super) fn start(layer: &Ipsec, place: &Place<'_>, host: &Host, keys: &Keys) -> Result<()> {
    let file = place.write(host, "tunnel.toml", &configuration(layer, place, host, keys))?;
    let headroom = host.headroom.display().to_string();
    let argv = [&headroom, "tunnel", "up", &file, "--new-keys"];
    place.start(host, argv.map(str::to_owned).to_vec())?;
    let socket = place.path(host, &format!("run/headroom/{}.sock", place.at.interface));
    place.until(host, "its control socket", || Ok(place.run(host, "test", ["-S", &socket]).is_ok()))
}

fn configuration(layer: &Ipsec, place: &Place<'_>, host: &Host, keys: &Keys) -> String {
    let (seen, at) = (place.seen_from(host), place.at);
    let Parameters { mode, cipher, mac, udp, queues, .. } = layer.parameters;
    let insecure = cipher.is_some_and(|c| c.insecure) || mac.is_some_and(|m| m.insecure);
    let mut text =
        format!("name = {:?}\nledger = \"tunnel.ledger\"\nqueues = {queues}\n", at.interface);
    if mode == Mode::Tunnel {
        let bits = if seen.inner.is_ipv4() { 32 } else { 128 };
        let _ = writeln!(text, "address = [\"{}/{bits}\"]\nmtu = {}", seen.inner, at.inner.mtu);
    }
    if insecure {
        text += "allow_insecure = true\n";
    }
    let (mut out, mut into) = (Vec::new(), Vec::new());
    for (protocol, ways) in keys.each(layer.protocol) {
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
        for (direction, way) in ["out", "in"].into_iter().zip(ways.seen_from(host.role)) {
            let name = format!("{direction}-{protocol}");
            let (source, destination) = match direction {
                "out" => (seen.outer, seen.far_outer),
                _ => (seen.far_outer, seen.outer),
            };
            let Way { spi, key, integrity_key } = way;
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
                let _ = writeln!(text, "window = {WINDOW}");
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
name = \"lab\"
action = \"protect\"
local = \"{}\"
remote = \"{}\"
out = {out:?}
in = {into:?}
",
        seen.inner, seen.far_inner
    );
    text
}
