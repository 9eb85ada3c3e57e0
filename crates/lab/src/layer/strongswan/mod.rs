//! IPsec by strongSwan: IKEv2 (RFC 7296), and ESP (RFC 4303) by the kernel where it
//! can, else in UDP (RFC 3948) by strongSwan's own library in user space.

use std::sync::Arc;

use headroom_lab_host::command::{Command, quote};
use headroom_lab_host::error::Result;
use headroom_lab_host::host::Host;
use headroom_lab_host::programs::{IP, OPENSSL, Origin, Program};
use headroom_lab_host::role::Role;
use headroom_lab_host::testbed::Family;

use super::{Layer, LayerKind, Place, kernel};
use crate::catalogue::{Entry, Fact, Make, stated};

const CHARON: Program = Program::new("charon-systemd", "charon-systemd", &[]);
const SWANCTL: Program = Program::new("swanctl", "strongswan-swanctl", &["--version"]);

struct StrongSwan(Proof);

pub(super) const ENTRY: Entry<dyn Layer> = Entry {
    name: "strongswan",
    about: "IPsec, IKEv2 and ESP, AES-128-GCM: strongSwan both sides, ESP by the kernel where it can",
    programs: &[CHARON, SWANCTL],
    make: Make::Configured {
        known: || "psk (the default), or cert (certificates of ECDSA), or cert-rsa".to_owned(),
        read: |options| match options.iter().collect::<Vec<_>>()[..] {
            [] | ["psk"] => Ok((Vec::new(), Arc::new(StrongSwan(Proof::Psk)))),
            [word] if let Some(kind) = KEY_KINDS.iter().find(|kind| kind.word == word) => {
                Ok((vec![word.to_owned()], Arc::new(StrongSwan(Proof::Certificate(kind)))))
            }
            ref other => Err(options.unknown(&other.join(","))),
        },
    },
};

/// Authentication of both ends (RFC 7296 §2.15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    Psk,
    /// Certificates of this kind of key, as `openssl req -newkey` wants it named.
    Certificate(&'static KeyKind),
}

#[derive(Debug, PartialEq, Eq)]
struct KeyKind {
    word: &'static str,
    openssl: &'static str,
    about: &'static str,
}

const KEY_KINDS: [KeyKind; 2] = [
    KeyKind {
        word: "cert",
        openssl: "ec -pkeyopt ec_paramgen_curve:P-256",
        about: "IKEv2, X25519, certificates of ECDSA P-256, sent each time",
    },
    KeyKind {
        word: "cert-rsa",
        openssl: "rsa:2048",
        about: "IKEv2, X25519, certificates of RSA with 2048 bits, sent each time",
    },
];

/// Plugins and libraries have this path compiled in.
const LIBRARIES: &str = "/usr/lib/ipsec";

impl Layer for StrongSwan {
    fn kind(&self) -> LayerKind {
        LayerKind::Network
    }

    fn in_kernel(&self) -> bool {
        kernel::has_esp()
    }

    /// IP, ESP header and IV, padding to 4 bytes with its two of trailer, and the
    /// ICV; in user space UDP as well. kernel-libipsec reads no more than 1400 bytes
    /// from its interface (libipsec's `TUN_DEFAULT_MTU`): what is longer is cut.
    fn inner_mtu(&self, outer: u32, family: Family) -> u32 {
        let ip = if family == Family::Ipv6 { 40 } else { 20 };
        let (udp, longest) = if self.in_kernel() { (0, u32::MAX) } else { (8, 1400) };
        let encrypted = outer.saturating_sub(ip + udp + 8 + 8 + 16);
        ((encrypted & !3).saturating_sub(2)).min(longest)
    }

    /// kernel-libipsec takes the next free name.
    fn interface(&self, _number: u16, nth: u16) -> String {
        format!("ipsec{nth}")
    }

    fn start(&self, place: &Place<'_>) -> Result<()> {
        if let Proof::Certificate(kind) = self.0 {
            make_certificates(place, kind)?;
        }
        for host in place.hosts() {
            let settings = place.write(host, "strongswan.conf", &settings(place, host))?;
            place.write(host, "swanctl.conf", &connection(place, host, self.0))?;
            place.start(host, daemon(host, &settings)?)?;
            if self.in_kernel() {
                let id = place.at.number.to_string();
                let interface = place.at.interface.as_str();
                place.run(host, IP, ["link", "add", interface, "type", "xfrm", "if_id", &id])?;
            }
            place.until(host, "its interface", || {
                Ok(place.has_interface(host) && swanctl(place, host, &["--stats"]).is_ok())
            })?;
            place.configure_interface(host)?;
            if !self.in_kernel() {
                prefer_main_table(place, host)?;
            }
            let file = place.path(host, "swanctl.conf");
            swanctl(place, host, &["--load-all", "--noprompt", "--file", &file])?;
        }
        self.establish(place)
    }

    fn tear_down(&self, place: &Place<'_>) -> Result<()> {
        // The answer is not waited for: the other side has forgotten all by then
        // and sends none again. Where DELETE itself is lost, INITIAL_CONTACT ends what it
        // has (RFC 7296 §2.4).
        let words = ["--terminate", "--ike", "lab", "--force"];
        swanctl(place, place.client, &words).map(drop)
    }

    fn establish(&self, place: &Place<'_>) -> Result<()> {
        swanctl(place, place.client, &["--initiate", "--child", "lab", "--timeout", "15"]).map(drop)
    }

    fn facts(&self) -> Vec<Fact> {
        let by = if self.in_kernel() {
            "ESP, tunnel mode, by the kernel"
        } else {
            "ESP in UDP, tunnel mode, by kernel-libipsec in user space"
        };
        let key_exchange = match self.0 {
            Proof::Psk => "IKEv2, X25519, pre-shared key",
            Proof::Certificate(kind) => kind.about,
        };
        stated([
            ("encryption", by),
            ("cipher", "AES-128-GCM, 16 bytes of ICV"),
            ("key exchange", key_exchange),
            ("rekeying", "off, no dead peer detection"),
        ])
    }
}

/// Each end's key and certificate, and at each the other's certificate, which is the one
/// that it trusts: where `swanctl` looks for them.
fn make_certificates(place: &Place<'_>, kind: &KeyKind) -> Result<()> {
    let folder = |host: &Host, name: &str| place.dir(host).join(name);
    for host in place.hosts() {
        host.make_folders(&[folder(host, "x509"), folder(host, "private")])?;
        let (key, certificate) =
            (place.path(host, "private/own.pem"), place.path(host, "x509/own.pem"));
        let subject = format!("/CN={}.lab", host.role);
        let name = format!("subjectAltName=DNS:{}.lab", host.role);
        let mut words: Vec<&str> = vec!["req", "-x509", "-newkey"];
        words.extend(kind.openssl.split(' '));
        words.extend(["-nodes", "-days", "2", "-subj", &subject, "-addext", &name]);
        words.extend(["-keyout", &key, "-out", &certificate]);
        place.run(host, OPENSSL, words)?;
    }
    for (host, other) in [(place.client, place.server), (place.server, place.client)] {
        let certificate = other.read(&folder(other, "x509/own.pem"))?;
        place.write(host, "x509/peer.pem", &certificate)?;
    }
    Ok(())
}

/// kernel-libipsec's own route, in a table that is asked earlier than the main one,
/// knows nothing of congestion control.
fn prefer_main_table(place: &Place<'_>, host: &Host) -> Result<()> {
    let far = place.seen_from(host).far_inner;
    let version = if far.is_ipv4() { "-4" } else { "-6" };
    let far = far.to_string();
    let rule = [version, "rule", "add", "pref", "100", "to", &far, "lookup", "main"];
    place.run(host, IP, rule).map(drop)
}

/// The daemon, with its variables and, from the cache, its plugins where it
/// looks for them: behind a copy of `/usr/lib` made of links.
fn daemon(host: &Host, settings: &str) -> Result<Command> {
    let mut script = format!("export STRONGSWAN_CONF={}", quote(settings));
    let located = host.located(CHARON)?;
    let program = located.path.display().to_string();
    if located.origin == Origin::Cache
        && let Some(root) = located.path.ancestors().nth(3)
    {
        let libraries = quote(&format!("{}{LIBRARIES}", root.display()));
        script += &format!(
            " && mkdir /run/real /run/links && mount --bind /usr/lib /run/real \
             && ln -s /run/real/* /run/links && ln -sfn {libraries} /run/links/ipsec \
             && mount --bind /run/links /usr/lib"
        );
    }
    for (name, value) in located.environment.iter().filter(|(name, _)| *name != "STRONGSWAN_CONF") {
        script += &format!(" && export {name}={}", quote(value));
    }

    script += r#" && exec "$0""#;
    Ok(Command::new("sh", ["-c", &script, &program]))
}

fn socket(place: &Place<'_>, host: &Host) -> String {
    format!("unix://{}", place.path(host, "vici"))
}

/// Runs `swanctl` against this instance's daemon.
fn swanctl(place: &Place<'_>, host: &Host, words: &[&str]) -> Result<String> {
    let settings = format!("STRONGSWAN_CONF={}", place.path(host, "strongswan.conf"));
    // where it looks for keys and certificates
    let folder = format!("SWANCTL_DIR={}", place.dir(host).display());
    let socket = socket(place, host);
    let mut swanctl = Command::new(SWANCTL, words.iter().copied());
    swanctl.args(["--uri", &socket]);
    host.run(&Command::new("env", [&settings, &folder]).running(swanctl))
}

fn settings(place: &Place<'_>, host: &Host) -> String {
    format!(
        "swanctl {{\n  load =\n}}
charon-systemd {{
  load = random nonce openssl pem pkcs1 pkcs8 x509 pubkey constraints kdf {libipsec}kernel-netlink socket-default vici
  port = 0
  port_nat_t = {port}
  routing_table = {table}
  install_routes = {routes}
  keep_alive = 0
  install_virtual_ip = no
  plugins {{
    vici {{ socket = {socket} }}
    kernel-libipsec {{ allow_peer_ts = yes }}
  }}
  journal {{ default = -1 }}
  filelog {{ stderr {{ default = 1 }} }}
}}
",
        libipsec = if kernel::has_esp() { "" } else { "kernel-libipsec " },
        routes = if kernel::has_esp() { "no" } else { "yes" },
        port = place.at.port(),
        table = 10_000 + u32::from(place.at.number),
        socket = socket(place, host),
    )
}

fn connection(place: &Place<'_>, host: &Host, proof: Proof) -> String {
    let seen = place.seen_from(host);
    let bits = if seen.inner.is_ipv4() { 32 } else { 128 };
    let certificate = |file: &str| match proof {
        Proof::Psk => String::new(),
        Proof::Certificate(_) => format!("\n      certs = {file}"),
    };
    format!(
        "connections {{
  lab {{
    version = 2
    local_addrs = {local}
    remote_addrs = {remote}
    local_port = {port}
    remote_port = {port}
    encap = {encap}
    mobike = no
    dpd_delay = 0
    rekey_time = 0
    reauth_time = 0
    proposals = aes128gcm16-prfsha256-x25519
    send_cert = always
    local {{
      auth = {auth}{own}
      id = {role}.lab
    }}
    remote {{
      auth = {auth}{peer}
      id = {far_role}.lab
    }}
    children {{
      lab {{
        local_ts = {inner}/{bits}
        remote_ts = {far_inner}/{bits}
        esp_proposals = aes128gcm16
        mode = tunnel{interface}
        rekey_time = 0
      }}
    }}
  }}
}}
secrets {{
  ike-lab {{
    secret = \"known to the run's own namespaces only\"
  }}
}}
",
        encap = if kernel::has_esp() { "no" } else { "yes" },
        interface = if kernel::has_esp() {
            format!("\n        if_id_in = {0}\n        if_id_out = {0}", place.at.number)
        } else {
            String::new()
        },
        local = seen.outer,
        remote = seen.far_outer,
        port = place.at.port(),
        role = host.role,
        far_role = if host.role == Role::Client { Role::Server } else { Role::Client },
        auth = if proof == Proof::Psk { "psk" } else { "pubkey" },
        own = certificate("own.pem"),
        peer = certificate("peer.pem"),
        inner = seen.inner,
        far_inner = seen.far_inner,
    )
}
