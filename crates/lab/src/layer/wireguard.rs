//! WireGuard: by the kernel where it can, else by wireguard-go, the protocol in
//! user space, segmentation and coalescing offloaded to the kernel.

use std::sync::Arc;

use headroom_lab_host::command::{Arg, Command};
use headroom_lab_host::error::Result;
use headroom_lab_host::host::Host;
use headroom_lab_host::programs::{IP, Program, UNSHARE};
use headroom_lab_host::role::Role;
use headroom_lab_host::testbed::Family;

use super::{Layer, LayerKind, Place, kernel};
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;

const WG: Program = Program::new("wg", "wireguard-tools", &["--version"]);
const WIREGUARD_GO: Program = Program::new("wireguard-go", "wireguard-go", &["--version"]);

struct WireGuard;

pub(super) const ENTRY: Entry<dyn Layer> = Entry {
    name: "wireguard",
    about: "WireGuard: the kernel both sides, or wireguard-go where it has none",
    programs: &[WIREGUARD_GO, WG],
    make: Make::Fixed(|| Arc::new(WireGuard)),
};

impl Layer for WireGuard {
    fn properties(&self) -> Option<Properties> {
        Some(Properties::TUNNEL)
    }

    fn kind(&self) -> LayerKind {
        LayerKind::Network
    }

    fn needs(&self, all: &'static [Program]) -> &'static [Program] {
        if self.in_kernel() { &[WG] } else { all }
    }

    fn in_kernel(&self) -> bool {
        kernel::has_wireguard()
    }

    fn has_daemon(&self) -> bool {
        !self.in_kernel()
    }

    /// IP and UDP, then type, receiver, counter and tag (WireGuard whitepaper,
    /// §5.4.6). The padding to 16 bytes stops at the MTU.
    fn inner_mtu(&self, outer: u32, family: Family) -> u32 {
        let ip = if family == Family::Ipv6 { 40 } else { 20 };
        outer.saturating_sub(ip + 8 + 16 + 16)
    }

    fn interface(&self, number: u16, _nth: u16) -> String {
        format!("wg{number}")
    }

    fn start(&self, place: &Place<'_>) -> Result<()> {
        for host in place.hosts() {
            if self.in_kernel() {
                let interface = place.at.interface.as_str();
                place.run(host, IP, ["link", "add", interface, "type", "wireguard"])?;
            } else {
                start_daemon(place, host)?;
            }
            let key = place.path(host, "key");
            let script = r#"umask 077 && "$0" genkey > "$1" && "$0" pubkey < "$1" > "$1.pub""#;
            place.run(
                host,
                "sh",
                ["-c".into(), script.into(), Arg::from(WG), key.clone().into()],
            )?;
            place.until(host, "its interface", || {
                Ok(place.has_interface(host)
                    && wg(place, host, &["show"]).is_ok_and(|s| !s.is_empty()))
            })?;
            let port = place.at.port().to_string();
            wg(place, host, &["set", "private-key", &key, "listen-port", &port])?;
            place.configure_interface(host)?;
        }
        self.establish(place)
    }

    /// Both ends forget each other; then the client is asked to keep the tunnel
    /// alive, and so begins a handshake without any data. The server counts a
    /// handshake when the first packet after it arrives; where the link loses
    /// that one, the next follows after eight seconds. Without the interval the
    /// tunnel is silent afterwards.
    fn establish(&self, place: &Place<'_>) -> Result<()> {
        self.quiesce(place)?;
        let interval = ["persistent-keepalive", "8"];
        for host in [place.server, place.client] {
            let (seen, peer) = (place.seen_from(host), peer_of(place, host)?);
            let bits = if seen.inner.is_ipv4() { 32 } else { 128 };
            let allowed = format!("{}/{bits}", seen.far_inner);
            let mut words = vec!["set", "peer", &peer, "allowed-ips", &allowed];
            let endpoint = std::net::SocketAddr::new(seen.far_outer, place.at.port()).to_string();
            if host.role == Role::Client {
                words.extend(["endpoint", &endpoint]);
                words.extend(interval);
            }
            wg(place, host, &words)?;
        }
        // the server has seen the client's first packet, so nothing is on its way
        for host in [place.client, place.server] {
            place.until(host, "a handshake", || {
                let said = wg(place, host, &["show", "latest-handshakes"])?;
                Ok(said.split_whitespace().nth(1).is_some_and(|time| time != "0"))
            })?;
        }
        let peer = peer_of(place, place.client)?;
        wg(place, place.client, &["set", "peer", &peer, "persistent-keepalive", "0"]).map(drop)
    }

    /// Fresh keys each time: they last for 120 s (whitepaper, §6.1), and a
    /// handshake would fall into a transfer.
    fn resume(&self, place: &Place<'_>) -> Result<()> {
        self.establish(place)
    }

    /// Without peers no late keepalive (whitepaper, §6.5) is sent, ten seconds
    /// after the last transfer and into somebody else's.
    fn quiesce(&self, place: &Place<'_>) -> Result<()> {
        [place.server, place.client].into_iter().try_for_each(|host| {
            let peer = peer_of(place, host)?;
            wg(place, host, &["set", "peer", &peer, "remove"]).map(drop)
        })
    }

    fn facts(&self) -> Vec<Fact> {
        let by = if self.in_kernel() {
            "WireGuard by the kernel"
        } else {
            "WireGuard by wireguard-go, in user space"
        };
        stated([
            ("encryption", by),
            ("cipher", "ChaCha20-Poly1305"),
            ("key exchange", "Noise IKpsk2, X25519; new keys before each sample"),
        ])
    }
}

fn start_daemon(place: &Place<'_>, host: &Host) -> Result<()> {
    place.start(host, Command::new(WIREGUARD_GO, ["--foreground", &place.at.interface]))
}

/// Runs `wg VERB INTERFACE …`; where there is a daemon, with its socket in sight.
fn wg(place: &Place<'_>, host: &Host, words: &[&str]) -> Result<String> {
    let (verb, rest) = words.split_first().unwrap_or((&"show", &[]));
    let mut command = Command::new(WG, [*verb, &place.at.interface]);
    command.args(rest.iter().copied());
    if !place.at.layer.has_daemon() {
        return host.run(&command);
    }
    let script = r#"mount --bind "$0" /run && exec "$@""#;
    let run = place.path(host, "run");
    let before = ["--mount", "--propagation", "private", "sh", "-c", script, &run];
    host.run(&Command::new(UNSHARE, before).running(command))
}

/// The other end's public key, as `host` names its peer.
fn peer_of(place: &Place<'_>, host: &Host) -> Result<String> {
    let other = if host.role == Role::Client { place.server } else { place.client };
    let key = other.read(&place.dir(other).join("key.pub"))?;
    Ok(key.trim().to_owned())
}
