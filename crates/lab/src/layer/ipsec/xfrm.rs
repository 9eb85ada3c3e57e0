//! The work is done by the kernel: states and policies by `ip xfrm`, an interface
//! that shows the packets in clear.

use headroom_lab_host::command::quote;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::Host;
use headroom_lab_host::programs::IP;

use super::keys::{DirectionKeys, Keys};
use super::options::Parameters;
use super::{Ipsec, Protocol};
use crate::layer::{Place, kernel};

/// Makes states, policies and the interface of a host.
pub(super) fn start(layer: &Ipsec, place: &Place<'_>, host: &Host, keys: &Keys) -> Result<()> {
    let (seen, id) = (place.seen_from(host), place.at.number.to_string());
    let add = ["link", "add", &place.at.interface, "type", "xfrm", "if_id", &id];
    place.run(host, IP, add)?;
    let (own, far) = (seen.outer.to_string(), seen.far_outer.to_string());
    let mut templates = [Vec::new(), Vec::new()];
    for (protocol, pair) in keys.each(layer.protocol) {
        // AH around ESP's packet has the header that ESP has written
        let mode = if protocol == "ah" && layer.protocol == Protocol::AhEsp {
            "transport"
        } else {
            "tunnel"
        };
        let [out, into] = pair.seen_from(host.role);
        for (index, (keys, from, to)) in
            [(out, &own, &far), (into, &far, &own)].into_iter().enumerate()
        {
            place.run(host, IP, state(layer, protocol, mode, [from, to, &id], keys))?;
            templates[index].extend(
                ["tmpl", "src", from, "dst", to, "proto", protocol, "mode", mode]
                    .map(str::to_owned),
            );
        }
    }
    let bits = if seen.inner.is_ipv4() { 32 } else { 128 };
    let (own, far) = (format!("{}/{bits}", seen.inner), format!("{}/{bits}", seen.far_inner));
    for ((direction, from, to), templates) in
        [("out", &own, &far), ("in", &far, &own)].into_iter().zip(templates)
    {
        let words =
            ["xfrm", "policy", "add", "src", from, "dst", to, "dir", direction, "if_id", &id];
        let words = words.map(str::to_owned).into_iter().chain(templates);
        place.run(host, IP, words)?;
    }
    place.configure_interface(host)
}

/// Whether this machine's kernel can do it; tried in a namespace of its own.
pub(super) fn works(layer: &Ipsec) -> bool {
    let keys = Keys::fresh(layer, 1, false);
    let mut script = "ip link add probe type xfrm if_id 1".to_owned();
    for (protocol, pair) in keys.each(layer.protocol) {
        let [keys, _] = pair.seen_from(headroom_lab_host::role::Role::Client);
        let words = state(layer, protocol, "tunnel", ["::1", "::1", "1"], keys);
        let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
        script += &format!(" && ip {}", words.join(" "));
    }
    kernel::works(&script)
}

/// The words after `ip` that add one security association.
fn state(
    layer: &Ipsec,
    protocol: &str,
    mode: &str,
    [from, to, id]: [&str; 3],
    keys: &DirectionKeys,
) -> Vec<String> {
    let Parameters { cipher, mac, .. } = layer.parameters;
    let words = format!(
        "xfrm state add src {from} dst {to} proto {protocol} spi {:#x} mode {mode} if_id {id} \
         replay-window {} flag esn",
        keys.spi, layer.parameters.window
    );
    let mut words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let key = format!("0x{}", keys.key);
    let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
    match (protocol, cipher, mac) {
        ("ah", _, Some(mac)) => {
            add(&["auth-trunc", mac.kernel, &key, &(mac.icv * 8).to_string()]);
        }
        (_, Some(cipher), mac) => match (cipher.tag, mac, &keys.integrity_key) {
            (Some(tag), ..) => add(&["aead", cipher.kernel, &key, &(tag * 8).to_string()]),
            (None, Some(mac), Some(integrity_key)) => {
                let key = if cipher.encrypts() { key.as_str() } else { "" };
                add(&["enc", cipher.kernel, key]);
                let integrity_key = format!("0x{integrity_key}");
                add(&["auth-trunc", mac.kernel, &integrity_key, &(mac.icv * 8).to_string()]);
            }
            _ => {}
        },
        _ => {}
    }
    words
}
