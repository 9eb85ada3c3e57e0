//! DTLS 1.2 (RFC 6347) as the AnyConnect protocol carries packets in it
//! (draft-mavrogiannopoulos-openconnect): openconnect and ocserv, in user space.

use std::sync::Arc;

use headroom_lab_host::command::{Command, quote};
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::Host;
use headroom_lab_host::programs::{IP, OPENSSL, Program};
use headroom_lab_host::testbed::Family;

use super::{Layer, LayerKind, Place};
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;

const OPENCONNECT: Program = Program::new("openconnect", "openconnect", &["--version"]);
const OCSERV: Program = Program::new("ocserv", "ocserv", &["--version"]);

struct Dtls;

/// openconnect's message about a channel as it should be,
const ESTABLISHED: &str = "Established DTLS connection";
/// with which suite,
const SUITE: &str = "(DTLS1.2)-(PSK)-(AES-128-GCM)";
/// and of its interface, from which it reads packets from then on.
const CONFIGURED: &str = "Configured as ";

/// Seconds in which nothing is renewed and nobody asks whether the other is there: eleven
/// days. None at all would be the defaults, and milliseconds of it still fit 31 bits.
const NEVER: u32 = 1_000_000;

pub(super) const ENTRY: Entry<dyn Layer> = Entry {
    name: "dtls",
    about: "DTLS 1.2, AES-128-GCM, keys from a TLS 1.3 connection: openconnect and ocserv, in user space",
    programs: &[OPENCONNECT, OCSERV],
    make: Make::Fixed(|| Arc::new(Dtls)),
};

impl Layer for Dtls {
    fn properties(&self) -> Option<Properties> {
        Some(Properties::TUNNEL)
    }

    fn kind(&self) -> LayerKind {
        LayerKind::Network
    }

    /// IP and UDP, then the record's header (RFC 6347, section 4.1), explicit nonce and tag
    /// (RFC 5288, section 3), and the byte that says that it is data. Over IPv6 openconnect
    /// takes UDP's header for one of 20 bytes (`probe_mtu` in its `dtls.c`), and would cut
    /// what is longer.
    fn inner_mtu(&self, outer: u32, family: Family) -> u32 {
        let ip_and_udp = if family == Family::Ipv6 { 40 + 20 } else { 20 + 8 };
        outer.saturating_sub(ip_and_udp + 13 + 8 + 16 + 1)
    }

    /// ocserv names its interface itself: the prefix that it is told, and a number from 0.
    fn interface(&self, number: u16, _nth: u16) -> String {
        format!("{}0", prefix(number))
    }

    fn start(&self, place: &Place<'_>) -> Result<()> {
        let (client, server) = (place.client, place.server);
        for host in place.hosts() {
            make_certificate(place, host)?;
        }
        for (host, other) in [(client, server), (server, client)] {
            let certificate = other.read(&place.dir(other).join("crt"))?;
            place.write(host, "peer.crt", &certificate)?;
        }
        let file = place.write(server, "ocserv.conf", &configuration(place))?;
        let command = Command::new(OCSERV, ["--foreground", "--config", &file]);
        place.start(server, server.with_groups(command))?;
        let accepts = place.at.server();
        place.until(server, "accepting connections", || server.connects(accepts))?;
        // it stays when openconnect goes, with its addresses and whoever looks into it
        let tun = ["tuntap", "add", "dev", &place.at.interface, "mode", "tun"];
        place.run(client, IP, tun)?;
        place.configure_interface(client)?;
        connect(place)
    }

    fn tear_down(&self, place: &Place<'_>) -> Result<()> {
        leave(place)
    }

    /// A new openconnect: its certificate is asked for, keys are agreed on and the server's
    /// interface is made, all as the first time.
    fn establish(&self, place: &Place<'_>) -> Result<()> {
        leave(place)?;
        connect(place)
    }

    /// A layer around it that was set up anew may have cut its session, which openconnect
    /// then makes again by itself, without the lab's addresses at the server.
    fn resume(&self, place: &Place<'_>) -> Result<()> {
        if place.client.is_dry() || is_whole(place) { Ok(()) } else { self.establish(place) }
    }

    /// Checks that the packets just measured were DTLS.
    fn quiesce(&self, place: &Place<'_>) -> Result<()> {
        match place.client.really(|| channel(place))?.flatten() {
            Some(Err(line)) => {
                Err(Error::Failed(format!("{}: {}", place.at.daemon(), in_tls(&line, place))))
            }
            _ => Ok(()),
        }
    }

    fn facts(&self) -> Vec<Fact> {
        stated([
            ("encryption", "DTLS 1.2 by openconnect and ocserv (AnyConnect), in user space"),
            ("cipher", "AES-128-GCM"),
            (
                "key exchange",
                "PSK, taken from a TLS 1.3 connection: X25519, certificates of ECDSA P-256 on both sides",
            ),
            ("rekeying", "off, no dead peer detection, no keepalives"),
            ("compression", "off"),
        ])
    }
}

fn prefix(number: u16) -> String {
    format!("dtls{number}-")
}

/// Keys and certificates of both ends' own; each trusts the other's and no other.
fn make_certificate(place: &Place<'_>, host: &Host) -> Result<()> {
    let (key, certificate) = (place.path(host, "key"), place.path(host, "crt"));
    let subject = format!("/CN={}", host.role);
    let name = format!("subjectAltName=IP:{}", place.seen_from(host).outer);
    // openconnect warns of certificates that end within 60 days
    let mut words: Vec<&str> =
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90"
            .split(' ')
            .collect();
    words.extend(["-subj", &subject, "-addext", &name, "-keyout", &key, "-out", &certificate]);
    place.run(host, OPENSSL, words).map(drop)
}

/// Starts openconnect and waits until data can pass, in DTLS and in whole packets. It tries
/// which packets come back, and where one is lost it takes the path for narrower than it is;
/// a handshake that takes longer than 12 s it gives up, to go on in TLS.
fn connect(place: &Place<'_>) -> Result<()> {
    const ATTEMPTS: u32 = 5;
    let mut why = String::new();
    for _ in 0..ATTEMPTS {
        start_client(place)?;
        if place.client.is_dry() {
            return configure_server(place);
        }
        match place.until_some(place.client, "a DTLS connection", || channel(place))? {
            Err(line) => why = in_tls(&line, place),
            Ok(()) => {
                let told = place.until_some(place.client, "a tunnel", || Ok(told(place)))?;
                if told.longest == place.at.inner.mtu {
                    return configure_server(place);
                }
                why = format!(
                    "openconnect took {} bytes for the longest packet that passes, where {} do. \
                     Does the link lose too much to set DTLS up?",
                    told.longest, place.at.inner.mtu
                );
            }
        }
        leave(place)?;
    }
    Err(Error::Failed(format!("{}: {why} That was attempt {ATTEMPTS}.", place.at.daemon())))
}

fn start_client(place: &Place<'_>) -> Result<()> {
    let client = place.client;
    let told = place.path(client, TOLD);
    place.run(client, "rm", ["-f", &told])?;
    // what it runs to have its interface configured, which is done already
    let script = format!(
        "[ \"$reason\" != connect ] || echo \"$VPNPID $INTERNAL_IP4_MTU\" > {}",
        quote(&told)
    );
    let mtu = place.at.outer.mtu.to_string();
    let url = format!("https://{}", place.at.server());
    let [certificate, key, peer] = ["crt", "key", "peer.crt"].map(|name| place.path(client, name));
    let mut words = vec!["--protocol=anyconnect", "--non-inter", "--no-deflate"];
    words.extend(["--no-system-trust", "--cafile", &peer]);
    words.extend(["--certificate", &certificate, "--sslkey", &key]);
    words.extend(["--interface", &place.at.interface, "--script", &script]);
    words.extend(["--base-mtu", &mtu, &url]);
    place.start(client, Command::new(OPENCONNECT, words))
}

fn configure_server(place: &Place<'_>) -> Result<()> {
    let server = place.server;
    place.until(server, "its interface", || Ok(place.has_interface(server)))?;
    // ocserv's own addresses are not the lab's
    place.run(server, IP, ["addr", "flush", "dev", &place.at.interface])?;
    place.configure_interface(server)
}

/// Ends openconnect, if it runs, which says goodbye; ocserv then removes its interface.
fn leave(place: &Place<'_>) -> Result<()> {
    let (client, server) = (place.client, place.server);
    if client.is_dry() || client.server(&place.at.daemon(), 0)?.ended.is_some() {
        return Ok(());
    }
    let process = place.until_some(client, "a tunnel", || Ok(told(place)))?.process;
    place.run(client, "sh", ["-c", r#"kill -INT "$0""#, &process.to_string()])?;
    place.until_ended(client)?;
    place.until_gone(server)
}

/// The file in which openconnect's script reports.
const TOLD: &str = "told";

struct Told {
    /// The process of openconnect.
    process: u32,
    /// Bytes of the longest packet that it reads and sends.
    longest: u32,
}

/// The report of openconnect's script, once it has its interface.
fn told(place: &Place<'_>) -> Option<Told> {
    let line = place.client.read(&place.dir(place.client).join(TOLD)).ok()?;
    let (process, longest) = line.strip_suffix('\n')?.split_once(' ')?;
    Some(Told { process: process.parse().ok()?, longest: longest.parse().ok()? })
}

/// The state of the channel: up, or openconnect's line that explains why data goes in TLS,
/// or may have; none: undecided.
fn channel(place: &Place<'_>) -> Result<Option<std::result::Result<(), String>>> {
    let log = place.client.server(&place.at.daemon(), 0)?.log;
    let lines: Vec<&str> = log.iter().map(|(_, line)| line.as_str()).collect();
    Ok(judge(&lines).map(|judged| judged.map_err(str::to_owned)))
}

fn in_tls(line: &str, place: &Place<'_>) -> String {
    format!(
        "openconnect does not send data in DTLS as it should, but may in TLS. It said: {line:?}. \
         Are UDP packets to port {} dropped or refused?",
        place.at.port(),
    )
}

/// Interprets openconnect's messages; it mentions DTLS again only when something is wrong
/// with it.
fn judge<'a>(lines: &[&'a str]) -> Option<std::result::Result<(), &'a str>> {
    let is_good = |line: &str| line.contains(ESTABLISHED) && line.contains(SUITE);
    let is_configured = |line: &str| line.starts_with(CONFIGURED);
    let wrong = |line: &str| line.contains("DTLS") && !is_good(line) && !is_configured(line);
    let again = lines.iter().filter(|line| is_good(line)).nth(1);
    if let Some(line) = lines.iter().find(|line| wrong(line)).or(again) {
        return Some(Err(line));
    }
    let has = |what: &dyn Fn(&str) -> bool| lines.iter().any(|line| what(line));
    (has(&is_good) && has(&is_configured)).then_some(Ok(()))
}

/// Whether the session is the one that was set up, and the server's interface as it was made.
fn is_whole(place: &Place<'_>) -> bool {
    let (server, interface) = (place.server, place.at.interface.as_str());
    if !matches!(channel(place), Ok(Some(Ok(())))) || !place.has_interface(server) {
        return false;
    }
    let own = place.at.inner.server.to_string();
    let found = place.run(server, IP, ["-o", "addr", "show", "dev", interface, "to", &own]);
    // gone meanwhile, if that failed
    found.is_ok_and(|found| !found.is_empty())
}

fn configuration(place: &Place<'_>) -> String {
    let (server, at) = (place.server, place.at);
    // addresses are given because it must give some
    let network = if at.inner.server.is_ipv4() {
        format!("ipv4-network = 10.78.{}.0/24", at.number)
    } else {
        format!("ipv6-network = fd78:{:x}::/64\nipv6-subnet-prefix = 128", at.number)
    };
    format!(
        "auth = \"certificate\"
ca-cert = {peer}
# the user's name: the certificate's CN
cert-user-oid = 2.5.4.3
server-cert = {certificate}
server-key = {key}
listen-host = {address}
tcp-port = {port}
udp-port = {port}
device = {prefix}
{network}
mtu = {mtu}
try-mtu-discovery = false
tls-priorities = \"NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:-GROUP-ALL:+GROUP-X25519\"
dtls-psk = true
dtls-legacy = false
cisco-client-compat = false
compression = false
keepalive = {NEVER}
dpd = {NEVER}
mobile-dpd = {NEVER}
rekey-time = {NEVER}
switch-to-tcp-timeout = 0
# one client comes again and again
max-ban-score = 0
rate-limit-ms = 0
ping-leases = false
# in the lab's own namespaces nobody else can be protected from its workers
isolate-workers = false
run-as-user = root
run-as-group = root
use-occtl = false
socket-file = /run/ocserv.sock
",
        peer = place.path(server, "peer.crt"),
        certificate = place.path(server, "crt"),
        key = place.path(server, "key"),
        address = at.outer.server,
        port = at.port(),
        prefix = prefix(at.number),
        mtu = at.outer.mtu,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits() {
        assert_eq!(Dtls.inner_mtu(1500, Family::Ipv4), 1434);
        assert_eq!(Dtls.inner_mtu(1500, Family::Ipv6), 1402);
        assert_eq!(Dtls.inner_mtu(40, Family::Ipv6), 0);
    }

    #[test]
    fn data_in_dtls_is_told_from_data_in_tls() {
        let good = "Established DTLS connection (using GnuTLS). Ciphersuite \
                    (DTLS1.2)-(PSK)-(AES-128-GCM).";
        let configured = "Configured as 10.78.1.9, with SSL connected and DTLS connected";
        let up = ["CSTP connected. DPD 1, Keepalive 1", good, configured];
        assert_eq!(judge(&up), Some(Ok(())));
        assert_eq!(judge(&up[..2]), None);
        assert_eq!(judge(&[]), None);
        // its interface is there, and packets would go in TLS for now
        let early = "Configured as 10.78.1.9, with SSL connected and DTLS in progress";
        assert_eq!(judge(&[early]), None);
        assert_eq!(judge(&[early, good]), Some(Ok(())));
        for wrong in [
            "DTLS handshake failed: Error in the push function.",
            "Read error on DTLS session: Error in the push function.",
            "Established DTLS connection (using GnuTLS). Ciphersuite \
             (DTLS1.2)-(PSK)-(CHACHA20-POLY1305).",
        ] {
            assert_eq!(judge(&[up[0], good, configured, wrong]), Some(Err(wrong)));
        }
        // between the two it was TLS
        assert_eq!(judge(&[good, configured, good]), Some(Err(good)));
    }
}
