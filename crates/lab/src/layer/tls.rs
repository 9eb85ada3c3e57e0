//! TLS 1.3 around a TCP connection (RFC 8446): stunnel on both sides.

use std::net::SocketAddr;
use std::sync::Arc;

use headroom_lab_host::command::Command;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::Host;
use headroom_lab_host::programs::Program;
use headroom_lab_host::testbed::Family;

use super::{Layer, LayerKind, Place};
use crate::application::CIPHER;
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;

const STUNNEL: Program = Program::new("stunnel", "stunnel4", &["-version"]);

struct Tls;

pub(super) const ENTRY: Entry<dyn Layer> = Entry {
    name: "tls",
    about: "TLS 1.3 around one TCP connection: stunnel both sides",
    programs: &[STUNNEL],
    make: Make::Fixed(|| Arc::new(Tls)),
};

impl Layer for Tls {
    fn properties(&self) -> Option<Properties> {
        Some(Properties { forward_secrecy: true, ..Properties::CLEAR })
    }

    fn kind(&self) -> LayerKind {
        LayerKind::Stream
    }

    fn inner_mtu(&self, outer: u32, _family: Family) -> u32 {
        outer
    }

    fn start(&self, place: &Place<'_>) -> Result<()> {
        let (server, client) = (place.server, place.client);
        let credential = |host: &Host, name: &str| {
            host.root.join("credentials").join(name).display().to_string()
        };
        let common = |accept: SocketAddr, connect: SocketAddr| {
            format!(
                "foreground = yes
pid =
syslog = no
debug = warning
; no Nagle: a record waits for no acknowledgement
socket = l:TCP_NODELAY=1
socket = r:TCP_NODELAY=1
[layer]
accept = {}
connect = {}
sslVersion = TLSv1.3
ciphersuites = {CIPHER}
sessionResume = no
",
                host_and_port(accept),
                host_and_port(connect)
            )
        };
        let at_server = format!(
            "{}cert = {}\nkey = {}\n",
            common(place.at.server(), place.at.application),
            credential(server, "server.crt"),
            credential(server, "server.key"),
        );
        let at_client = format!(
            "{}client = yes\nCAfile = {}\nverifyPeer = yes\n",
            common(place.at.client(), place.at.far_end()),
            credential(client, "server.crt"),
        );
        for (host, configuration) in [(server, at_server), (client, at_client)] {
            let file = place.write(host, "stunnel.conf", &configuration)?;
            place.start(host, Command::new(STUNNEL, [file]))?;
        }
        for (host, accepts) in [(server, place.at.server()), (client, place.at.client())] {
            place.until(host, "accepting connections", || host.connects(accepts))?;
        }
        Ok(())
    }

    /// Each connection makes a handshake of its own; one that says nothing shows it, and
    /// its end comes back through what the handshake made.
    fn establish(&self, place: &Place<'_>) -> Result<()> {
        let client = place.client;
        let through = place.at.client();
        place.until(client, "a connection through it", || client.connects_through(through))
    }

    fn facts(&self) -> Vec<Fact> {
        stated([
            ("encryption", "TLS 1.3 by stunnel, its certificate verified"),
            ("cipher", CIPHER),
            ("key", "ECDSA P-256"),
            ("resumption", "off: each connection is a full handshake"),
            ("TCP", "no Nagle on either side"),
        ])
    }
}

/// stunnel splits at the last colon and knows no brackets.
fn host_and_port(address: SocketAddr) -> String {
    format!("{}:{}", address.ip(), address.port())
}
