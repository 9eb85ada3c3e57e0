//! strongSwan as a peer: charon with kernel-libipsec in a namespace.

use std::sync::Arc;

use anyhow::{Context, Result};

use super::ours::{NAMES, SECRET, THEIRS};
use super::{Daemon, Link, Peer, Side, Trial};
use crate::namespace::Namespace;
use crate::peer::Peers;
use crate::pki::KeyKind;
use crate::strongswan::SWANCTL;
use crate::strongswan::charon::{self, Charon, FRAGMENT_SIZE, Installation, Settings};
use crate::strongswan::road_warrior::{self, Method};
use crate::transfer::{self, End};
use crate::tree::Tree;
use std::path::Path;

/// Bytes of a transfer in each direction.
const OCTETS: u64 = 1 << 20;

/// A version of strongSwan.
#[derive(Debug)]
pub struct StrongSwan {
    peers: Peers,
    installation: Installation,
    version: String,
    is_post_quantum: bool,
}

impl StrongSwan {
    /// Finds the system's or the cache's.
    ///
    /// # Errors
    /// It is missing.
    pub fn of_programs(peers: &Peers) -> Result<Self> {
        let installation = Installation::programs(peers)?;
        let said = peers.version(SWANCTL);
        let version = said.split_whitespace().nth(1).unwrap_or("of unknown version").to_owned();
        Ok(Self { peers: peers.clone(), installation, version, is_post_quantum: false })
    }

    /// Finds that of the tree of IKE peers.
    ///
    /// # Errors
    /// The tree is missing.
    pub fn of_tree(peers: &Peers) -> Result<Self> {
        let tree = Tree::find(peers)?;
        let version = tree.version("charon-systemd")?;
        let is_post_quantum =
            tree.path().join("usr/lib/ipsec/plugins/libstrongswan-ml.so").is_file();
        let installation = Installation::Tree(tree);
        Ok(Self { peers: peers.clone(), installation, version, is_post_quantum })
    }
}

impl Peer for StrongSwan {
    fn title(&self) -> String {
        format!("strongSwan {}", self.version)
    }

    fn lacks(&self, trial: Trial) -> Option<&'static str> {
        match trial {
            Trial::PostQuantumByUs | Trial::PostQuantumByThem if !self.is_post_quantum => {
                match self.installation {
                    Installation::Programs { .. } => Some("it has no ML-KEM"),
                    Installation::Tree(_) => {
                        Some("its plugin for ML-KEM is not packaged, and was not built without gcc")
                    }
                }
            }
            _ => None,
        }
    }

    fn is_post_quantum(&self) -> bool {
        self.is_post_quantum
    }

    fn link(&mut self, nat: Option<Side>) -> Result<Link> {
        Link::between_namespaces(&self.peers, nat)
    }

    fn start<'a>(
        &'a mut self,
        folder: &'a Path,
        link: &'a Link,
        trial: Trial,
    ) -> Result<Box<dyn Daemon + 'a>> {
        let theirs = link.theirs.clone().context("a namespace for the peer")?;
        if trial.certificates().is_some() {
            charon::arrange(folder, THEIRS)?;
        }
        let is_post_quantum = self.is_post_quantum && trial.wants_post_quantum();
        let conf = swanctl_conf(link, trial, is_post_quantum);
        let fragment_size = if trial == Trial::Fragments { 200 } else { FRAGMENT_SIZE };
        let settings = Settings { swanctl_conf: &conf, fragment_size };
        let charon = Charon::start(&self.installation, folder, "theirs", &theirs, settings)?;
        Ok(Box::new(Running { charon, theirs, link }))
    }

    fn be_client(&self, headroom: &Path, method: Method) -> Result<Option<&'static str>> {
        road_warrior::connect(&self.installation, headroom, method)
    }
}

struct Running<'a> {
    charon: Charon,
    theirs: Arc<Namespace>,
    link: &'a Link,
}

impl Daemon for Running<'_> {
    fn initiate(&mut self) -> Result<()> {
        self.charon.initiate()
    }

    fn initiate_without_child(&mut self) -> Result<()> {
        self.charon.swanctl(&["--initiate", "--ike", "join", "--timeout", "15"]).map(drop)
    }

    fn rekey_child(&mut self) -> Result<()> {
        self.charon.swanctl(&["--rekey", "--child", "join"]).map(drop)
    }

    fn rekey_ike(&mut self) -> Result<()> {
        self.charon.swanctl(&["--rekey", "--ike", "join"]).map(drop)
    }

    fn terminate(&mut self) -> Result<()> {
        self.charon.swanctl(&["--terminate", "--ike", "join"]).map(drop)
    }

    fn is_idle(&mut self) -> Result<bool> {
        Ok(self.charon.swanctl(&["--list-sas"])?.trim().is_empty())
    }

    fn log(&mut self) -> Result<String> {
        // key material is logged for other tests, and long
        let log = self.charon.log()?;
        Ok(log.lines().filter(|line| !line.contains("[CHD]")).collect::<Vec<_>>().join("\n"))
    }

    fn transfer(&mut self) -> Result<()> {
        let [ours, theirs] = self.link.inner;
        transfer::both_ways(
            End { namespace: &self.theirs, address: theirs },
            End { namespace: &self.link.ours, address: ours },
            OCTETS,
        )?;
        Ok(())
    }

    fn liveness(&self) -> [&'static str; 2] {
        ["generating INFORMATIONAL response", "parsed INFORMATIONAL response"]
    }

    fn proofs(&self, kind: KeyKind) -> Vec<String> {
        let scheme = match kind {
            KeyKind::EcdsaP256 => "ECDSA_WITH_SHA256_DER",
            KeyKind::EcdsaP384 => "ECDSA_WITH_SHA384_DER",
            KeyKind::Rsa => "RSA_EMSA_PSS_SHA2_256_SALT_32",
            KeyKind::Ed25519 => "ED25519",
        };
        let [ours, theirs] = NAMES;
        vec![
            format!("'{ours}' with {scheme} successful"),
            format!("'{theirs}' (myself) with {scheme} successful"),
        ]
    }

    fn fragments(&self) -> [&'static str; 2] {
        ["splitting IKE message", "received fragment #"]
    }
}

fn swanctl_conf(link: &Link, trial: Trial, is_post_quantum: bool) -> String {
    let hybrid = if is_post_quantum { "-ke1_mlkem768" } else { "" };
    let mobike = if trial == Trial::WeMove { "yes" } else { "no" };
    let childless = if trial == Trial::Childless { "force" } else { "allow" };
    let (proof, other_proof, secret) = match trial.certificates() {
        // PKCS #1 is strongSwan's first choice
        Some(KeyKind::Rsa) => {
            let proof = format!("auth = ike:rsa/pss-sha256\n      certs = {THEIRS}.pem");
            (proof, "auth = pubkey", String::new())
        }
        Some(_) => {
            (format!("auth = pubkey\n      certs = {THEIRS}.pem"), "auth = pubkey", String::new())
        }
        None => {
            let secret = format!("  ike-join {{\n    secret = \"{SECRET}\"\n  }}\n");
            ("auth = psk".to_owned(), "auth = psk", secret)
        }
    };
    let delay = if trial == Trial::LivenessByThem { 1 } else { 0 };
    format!(
        "connections {{
  join {{
    version = 2
    local_addrs = {}
    remote_addrs = {}
    encap = yes
    mobike = {mobike}
    childless = {childless}
    dpd_delay = {delay}
    rekey_time = 0
    reauth_time = 0
    proposals = aes256gcm16-prfsha384-x25519{hybrid}
    local {{
      {proof}
      id = {}
    }}
    remote {{
      {other_proof}
      id = {}
    }}
    children {{
      join {{
        local_ts = {}/32
        remote_ts = {}/32
        esp_proposals = aes256gcm16-x25519{hybrid}
        mode = tunnel
        rekey_time = 0
      }}
    }}
  }}
}}
secrets {{
{secret}}}
",
        link.outer[1], link.seen[0], NAMES[1], NAMES[0], link.inner[1], link.inner[0]
    )
}
