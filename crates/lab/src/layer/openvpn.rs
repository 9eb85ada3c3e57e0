//! OpenVPN over UDP, point to point, in user space.

use std::sync::Arc;

use headroom_lab_host::agent::now_ns;
use headroom_lab_host::command::Command;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::Host;
use headroom_lab_host::programs::{OPENSSL, Program};
use headroom_lab_host::role::Role;
use headroom_lab_host::testbed::Family;

use super::{Layer, LayerKind, Place};
use crate::application::CIPHER;
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;

const OPENVPN: Program = Program::new("openvpn", "openvpn", &["--version"]);

struct OpenVpn;

/// The line that says that data can pass.
const READY: &str = "Initialization Sequence Completed";

pub(super) const ENTRY: Entry<dyn Layer> = Entry {
    name: "openvpn",
    about: "OpenVPN over UDP, AES-128-GCM: openvpn both sides, in user space",
    programs: &[OPENVPN],
    make: Make::Fixed(|| Arc::new(OpenVpn)),
};

impl Layer for OpenVpn {
    fn properties(&self) -> Option<Properties> {
        Some(Properties::TUNNEL)
    }

    fn kind(&self) -> LayerKind {
        LayerKind::Network
    }

    /// IP and UDP, then opcode with peer id, packet id and tag (P_DATA_V2 with
    /// an AEAD cipher).
    fn inner_mtu(&self, outer: u32, family: Family) -> u32 {
        let ip = if family == Family::Ipv6 { 40 } else { 20 };
        outer.saturating_sub(ip + 8 + 4 + 4 + 16)
    }

    fn interface(&self, number: u16, _nth: u16) -> String {
        format!("ovpn{number}")
    }

    fn start(&self, place: &Place<'_>) -> Result<()> {
        for host in place.hosts() {
            let (key, certificate) = (place.path(host, "key"), place.path(host, "crt"));
            let subject = format!("/CN=headroom-{}", host.role);
            let mut words: Vec<&str> =
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
                    .split(' ')
                    .collect();
            words.extend(["-subj", &subject, "-keyout", &key, "-out", &certificate]);
            place.run(host, OPENSSL, words)?;
        }
        // each trusts the other's own certificate and no other
        for (host, other) in [(place.client, place.server), (place.server, place.client)] {
            let certificate = other.read(&place.dir(other).join("crt"))?;
            place.write(host, "peer.crt", &certificate)?;
        }
        for host in [place.server, place.client] {
            let file = place.write(host, "openvpn.conf", &configuration(place, host))?;
            place.start(host, Command::new(OPENVPN, ["--config", &file]))?;
            place.until(host, "its interface", || Ok(place.has_interface(host)))?;
            place.configure_interface(host)?;
        }
        place.until(place.client, "a handshake", || ready(place, 0))
    }

    /// The client starts over (SIGUSR1), which it does after a second's pause;
    /// the server takes the new session in place of the old one.
    fn establish(&self, place: &Place<'_>) -> Result<()> {
        let since = now_ns();
        let pid = place.path(place.client, "pid");
        place.run(place.client, "sh", ["-c", r#"kill -USR1 "$(cat "$0")""#, &pid])?;
        place.until(place.client, "a handshake", || ready(place, since))
    }

    fn facts(&self) -> Vec<Fact> {
        stated([
            ("encryption", "OpenVPN over UDP, in user space"),
            ("cipher", "AES-128-GCM"),
            ("key exchange", "TLS 1.3, certificates of ECDSA P-256"),
            ("renegotiation", "off, no pings"),
        ])
    }
}

fn ready(place: &Place<'_>, since_ns: u64) -> Result<bool> {
    let log = place.client.server(&place.at.daemon(), since_ns)?.log;
    Ok(log.iter().any(|(_, line)| line.contains(READY)))
}

fn configuration(place: &Place<'_>, host: &Host) -> String {
    let seen = place.seen_from(host);
    let role = if host.role == Role::Client { "tls-client" } else { "tls-server\ndh none" };
    format!(
        "dev {interface}
dev-type tun
proto udp{version}
local {local}
remote {remote}
lport {port}
rport {port}
{role}
ca {peer}
cert {certificate}
key {key}
tls-version-min 1.3
tls-ciphersuites {CIPHER}
data-ciphers AES-128-GCM
disable-dco
tun-mtu {mtu}
mssfix 0
reneg-sec 0
reneg-bytes 0
reneg-pkts 0
connect-retry 1 1
persist-tun
persist-key
writepid {pid}
verb 3
suppress-timestamps
",
        interface = place.at.interface,
        version = if seen.outer.is_ipv4() { 4 } else { 6 },
        local = seen.outer,
        remote = seen.far_outer,
        port = place.at.port(),
        peer = place.path(host, "peer.crt"),
        certificate = place.path(host, "crt"),
        key = place.path(host, "key"),
        mtu = place.at.inner.mtu,
        pid = place.path(host, "pid"),
    )
}
