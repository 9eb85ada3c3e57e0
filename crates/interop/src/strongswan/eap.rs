//! How strongSwan and our IKEv2 prove who they are: by certificates, in both roles, and strongSwan as
//! a client with EAP.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use headroom_ike::eap::{EapMethod, EapTls, Passwords};
use headroom_ike::{Auth, Authorities, Config, Connection, Credential, LocalAuth, RemoteAuth};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SignatureAlgorithm,
};
use zeroize::Zeroizing;

use super::charon::{Charon, FRAGMENT_SIZE, Installation, Settings};
use super::ike::{Ask, Ours, Starter, config};
use super::{Host, hosts};
use crate::folder::Folder;
use crate::peer::Peers;

/// How strongSwan proves who it is. We always have a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// By a certificate with a key of P-256.
    EcdsaP256,
    /// By a certificate with a key of P-384.
    EcdsaP384,
    /// By a certificate with a key of RSA, 2048 bits.
    Rsa,
    /// By a certificate with a key of Ed25519.
    Ed25519,
    /// By EAP-TLS, as a client.
    EapTls,
    /// By EAP-MSCHAPv2, as a client.
    EapMsChapV2,
}

impl Proof {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::EcdsaP256,
        Self::EcdsaP384,
        Self::Rsa,
        Self::Ed25519,
        Self::EapTls,
        Self::EapMsChapV2,
    ];

    /// Checks whether it is a client's.
    #[must_use]
    pub fn is_eap(self) -> bool {
        matches!(self, Self::EapTls | Self::EapMsChapV2)
    }

    fn algorithm(self) -> &'static SignatureAlgorithm {
        match self {
            Self::EcdsaP256 | Self::EapTls | Self::EapMsChapV2 => &rcgen::PKCS_ECDSA_P256_SHA256,
            Self::EcdsaP384 => &rcgen::PKCS_ECDSA_P384_SHA384,
            Self::Rsa => &rcgen::PKCS_RSA_SHA256,
            Self::Ed25519 => &rcgen::PKCS_ED25519,
        }
    }

    /// What strongSwan logs of our proof and, with EAP, of its own.
    fn logged(self) -> &'static [&'static str] {
        match self {
            Self::EcdsaP256 => &["'b.test' with ECDSA_WITH_SHA256_DER successful"],
            Self::EcdsaP384 => &["'b.test' with ECDSA_WITH_SHA384_DER successful"],
            Self::Rsa => &["'b.test' with RSA_EMSA_PSS_SHA2_256_SALT_32 successful"],
            Self::Ed25519 => &["'b.test' with ED25519 successful"],
            Self::EapTls => &[
                "'b.test' with ECDSA_WITH_SHA256_DER successful",
                "EAP method EAP_TLS succeeded, MSK established",
                "'b.test' with EAP successful",
            ],
            Self::EapMsChapV2 => &[
                "'b.test' with ECDSA_WITH_SHA256_DER successful",
                "EAP method EAP_MSCHAPV2 succeeded, MSK established",
                "'b.test' with EAP successful",
            ],
        }
    }

    fn in_its_words(self) -> &'static str {
        match self {
            Self::EapTls => "eap-tls",
            Self::EapMsChapV2 => "eap-mschapv2",
            _ => "pubkey",
        }
    }
}

/// Sets up an IKE SA with a CHILD SA and deletes them; both ends have certificates with the same
/// kind of key. A client with EAP starts. Returns what strongSwan lacks for it, if it does.
///
/// # Errors
/// Describes the step that failed.
pub fn authenticate(peers: &Peers, starter: Starter, proof: Proof) -> Result<Option<&'static str>> {
    let folder = Folder::new()?;
    let [a, b] = hosts()?;
    let authority = Authority::new()?;
    let theirs = authority.issue("a.test", proof.algorithm())?;
    let ours = authority.issue("b.test", proof.algorithm())?;
    theirs.save(&folder.0, &authority)?;
    let conf = swanctl_conf(&a, &b, proof);
    let settings = Settings { swanctl_conf: &conf, fragment_size: FRAGMENT_SIZE };
    let installation = Installation::programs(peers)?;
    let charon = Charon::start(&installation, &folder.0, a.name, &a.namespace, settings)?;
    if proof == Proof::EapMsChapV2
        && charon.log()?.contains("plugin 'eap-mschapv2': failed to load")
    {
        return Ok(Some("the plugin eap-mschapv2"));
    }
    let ours = Ours::start(&b, &a, with_certificates(config(&b, &a), &authority, &ours, proof)?);
    let started = match starter {
        Starter::Ours => {
            ours.send(Ask::Connect);
            Ok(())
        }
        Starter::Theirs => charon.initiate(),
    };
    let up = started.and_then(|()| {
        ours.wait("a CHILD SA", |state| state.installed.len() == 1 && state.sends_on.is_some())
    });
    let log = charon.log()?;
    up.with_context(|| format!("{:?}; strongSwan said: {log}", ours.state()))?;
    ours.send(Ask::Close);
    ours.wait("nothing", |state| state.closed)?;
    for key in &ours.state().installed {
        ensure!(log.contains(key), "strongSwan's log has no key {key}");
    }
    for line in proof.logged() {
        ensure!(log.contains(line), "strongSwan's log has no {line:?}: {log}");
    }
    Ok(None)
}

/// One user of EAP-MSCHAPv2.
#[derive(Debug)]
struct OneUser;

impl Passwords for OneUser {
    fn password(&self, user: &str) -> Option<Zeroizing<String>> {
        (user == "a.test").then(|| Zeroizing::new("of a person".to_owned()))
    }
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
struct Issued {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    fn new() -> Result<Self> {
        let mut params = params("authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    fn issue(&self, name: &str, algorithm: &'static SignatureAlgorithm) -> Result<Issued> {
        let key = KeyPair::generate_for(algorithm)?;
        let mut params = params(name);
        params.subject_alt_names = vec![rcgen::SanType::DnsName(name.try_into()?)];
        Ok(Issued { certificate: params.signed_by(&key, &self.0)?, key })
    }
}

impl Issued {
    /// Writes it where strongSwan looks: beside its configuration.
    fn save(&self, folder: &Path, authority: &Authority) -> Result<()> {
        for (kind, name, text) in [
            ("x509", "own.pem", self.certificate.pem()),
            ("x509ca", "authority.pem", authority.0.pem()),
            ("private", "own.pem", self.key.serialize_pem()),
        ] {
            std::fs::create_dir_all(folder.join(kind))?;
            std::fs::write(folder.join(kind).join(name), text)?;
        }
        Ok(())
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn with_certificates(
    mut config: Config,
    authority: &Authority,
    ours: &Issued,
    proof: Proof,
) -> Result<Config> {
    let authorities = Authorities::new(&[authority.0.der().to_vec()], &[])?;
    let (chain, key) = (vec![ours.certificate.der().to_vec()], ours.key.serialize_der());
    let remote = match proof {
        Proof::EapTls => {
            let tls = EapTls::new(chain.clone(), &key, &authorities)?;
            RemoteAuth::Eap(vec![EapMethod::Tls(Arc::new(tls))])
        }
        // it asks for a method that the client refuses, then for the other one
        Proof::EapMsChapV2 => {
            let tls = EapTls::new(chain.clone(), &key, &authorities)?;
            let passwords = EapMethod::MsChapV2(Arc::new(OneUser));
            RemoteAuth::Eap(vec![EapMethod::Tls(Arc::new(tls)), passwords])
        }
        _ => RemoteAuth::Certificate(Arc::new(authorities)),
    };
    let local = LocalAuth::Certificate(Arc::new(Credential::new(chain, &key)?));
    let Some(connection): Option<&mut Connection> =
        config.connections.first_mut().and_then(Arc::get_mut)
    else {
        bail!("no connection");
    };
    connection.auth = Auth { local, remote };
    Ok(config)
}

fn swanctl_conf(host: &Host, other: &Host, proof: Proof) -> String {
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
      auth = {}
      certs = own.pem
      id = a.test
    }}
    remote {{
      auth = pubkey
      id = b.test
    }}
    children {{
      join {{
        local_ts = {}/32
        remote_ts = {}/32
        esp_proposals = aes128gcm16
        mode = tunnel
        rekey_time = 0
      }}
    }}
  }}
}}
secrets {{
  eap-a {{
    id = a.test
    secret = \"of a person\"
  }}
}}
",
        host.outer,
        other.outer,
        proof.in_its_words(),
        host.inner,
        other.inner
    )
}
