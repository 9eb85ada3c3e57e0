//! strongSwan's ESP (kernel-libipsec) as a peer of our gateway.
//!
//! Two strongSwans negotiate by IKEv2 and log the keys. Then one
//! of them is killed without a DELETE, and our gateway replaces it with
//! the same addresses, ports, SPIs and keys. Files go in both directions at once.

pub(crate) mod charon;
pub mod ike;
pub mod road_warrior;

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result};
use headroom_ipsec::spec::Mode;
use headroom_lab_host::programs::Program;

use crate::case::Side;
use crate::folder::Folder;
use crate::gateway::{Configuration, Gateway, Sa};
use crate::namespace::Namespace;
use crate::peer::Peers;
use crate::transfer::{self, End};
use charon::{Charon, FRAGMENT_SIZE, Installation, Keys, Settings};

/// The daemon.
pub const CHARON: Program = Program::new("charon-systemd", "charon-systemd", &[]);
/// Its configuration tool.
pub const SWANCTL: Program = Program::new("swanctl", "strongswan-swanctl", &["--version"]);

/// ESP suites that both support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proposal {
    /// AES-128-GCM, 16 bytes of ICV.
    Aes128Gcm,
    /// AES-128-CBC with HMAC-SHA-256-128.
    Aes128CbcSha256,
}

impl Proposal {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Aes128Gcm, Self::Aes128CbcSha256];

    /// Our suite's name.
    pub fn suite(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Aes128CbcSha256 => "aes-128-cbc+hmac-sha256",
        }
    }

    fn in_its_words(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes128gcm16",
            Self::Aes128CbcSha256 => "aes128-sha256",
        }
    }
}

/// One of the two hosts.
#[derive(Debug)]
struct Host {
    name: &'static str,
    namespace: Namespace,
    outer: IpAddr,
    inner: IpAddr,
}

/// Bytes transferred in each direction.
const OCTETS: u64 = 32 << 20;

/// Negotiates, replaces one strongSwan by the gateway of the program
/// `headroom`, and transfers files in both directions at once.
///
/// # Errors
/// Describes the step that failed.
pub fn join(peers: &Peers, headroom: &Path, proposal: Proposal) -> Result<()> {
    let folder = Folder::new()?;
    let [a, b] = hosts()?;
    let charon_a = start(peers, &folder.0, &a, &b, proposal.in_its_words())?;
    let charon_b = start(peers, &folder.0, &b, &a, proposal.in_its_words())?;
    charon_a.initiate()?;
    let keys = charon_a.keys()?;
    // SIGKILL: no DELETE reaches the other
    drop(charon_b);
    let _ = b.namespace.run(&["ip", "rule", "del", "pref", "220"]);
    let configuration = configuration(&a, &b, proposal, &keys);
    let gateway = Gateway::start(headroom, &configuration, &folder.0, &b.namespace)?;
    transfer::both_ways(
        End { namespace: &a.namespace, address: a.inner },
        End { namespace: &b.namespace, address: b.inner },
        OCTETS,
    )
    .with_context(|| format!("{}; our gateway said: {}", proposal.suite(), gateway.said()))?;
    // all of it must have come by this association
    charon_a.carried(OCTETS)
}

/// Starts strongSwan on `host`.
fn start(
    peers: &Peers,
    folder: &Path,
    host: &Host,
    other: &Host,
    esp_proposals: &str,
) -> Result<Charon> {
    let installation = Installation::programs(peers)?;
    let conf = swanctl_conf(host, other, esp_proposals);
    let settings = Settings { swanctl_conf: &conf, fragment_size: FRAGMENT_SIZE };
    Charon::start(&installation, folder, host.name, &host.namespace, settings)
}

fn swanctl_conf(host: &Host, other: &Host, esp_proposals: &str) -> String {
    format!(
        "connections {{
  join {{
    version = 2
    local_addrs = {}
    remote_addrs = {}
    local_port = 4500
    remote_port = 4500
    encap = yes
    mobike = no
    dpd_delay = 0
    rekey_time = 0
    reauth_time = 0
    proposals = aes128gcm16-prfsha256-x25519
    local {{
      auth = psk
      id = {}.test
    }}
    remote {{
      auth = psk
    }}
    children {{
      join {{
        local_ts = {}/32
        remote_ts = {}/32
        esp_proposals = {}
        mode = tunnel
        rekey_time = 0
      }}
    }}
  }}
}}
secrets {{
  ike-join {{
    secret = \"known to two namespaces only\"
  }}
}}
",
        host.outer, other.outer, host.name, host.inner, other.inner, esp_proposals
    )
}

/// Makes two hosts on one link.
fn hosts() -> Result<[Host; 2]> {
    let host = |name, last: u8| -> Result<Host> {
        Ok(Host {
            name,
            namespace: Namespace::new()?,
            outer: IpAddr::from([192, 0, 2, last]),
            inner: IpAddr::from([10, last, 0, 1]),
        })
    };
    let [a, b] = [host("a", 1)?, host("b", 2)?];
    let pid = b.namespace.pid().to_string();
    a.namespace.run(&[
        "ip", "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", &pid,
    ])?;
    for host in [&a, &b] {
        let (outer, inner) = (format!("{}/24", host.outer), format!("{}/32", host.inner));
        host.namespace.run(&["ip", "addr", "add", &outer, "dev", "wire"])?;
        host.namespace.run(&["ip", "addr", "add", &inner, "dev", "lo"])?;
        host.namespace.run(&["ip", "link", "set", "wire", "up"])?;
    }
    Ok([a, b])
}

/// Starts our gateway on `here` in place of its strongSwan; the peer initiated.
fn configuration(peer: &Host, here: &Host, proposal: Proposal, keys: &Keys) -> String {
    let mut configuration = Configuration::new();
    let ways = [
        (Side::Ours, [here.outer, peer.outer], keys.spi_to_initiator, &keys.responder),
        (Side::Theirs, [peer.outer, here.outer], keys.spi_from_initiator, &keys.initiator),
    ];
    for (from, addresses, spi, secret) in ways {
        configuration.add(&Sa {
            from,
            protocol: "esp",
            mode: Mode::Tunnel,
            spi,
            addresses,
            suite: proposal.suite().to_owned(),
            key: &secret.encryption,
            integrity_key: &secret.integrity,
            extended: false,
            udp: true,
        });
    }
    configuration.protect(here.inner, peer.inner)
}
