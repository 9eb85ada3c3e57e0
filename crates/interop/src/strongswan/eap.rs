//! strongSwan as a client with EAP, against our IKEv2 without a gateway, which has no EAP.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use headroom_ike::eap::{EapMethod, EapTls, Passwords};
use headroom_ike::{Auth, Authorities, Config, Connection, Credential, LocalAuth, RemoteAuth};
use zeroize::Zeroizing;

use super::charon::{self, Charon, FRAGMENT_SIZE, Installation, Settings};
use super::ike::{Ask, Ours, config};
use super::{Host, hosts};
use crate::folder::Folder;
use crate::pki::{Authority, Issued, KeyKind};

/// How strongSwan proves who it is. We have a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// EAP-TLS.
    Tls,
    /// EAP-MSCHAPv2.
    MsChapV2,
}

impl Method {
    /// What strongSwan logs of our proof and of its own.
    fn logged(self) -> [&'static str; 3] {
        [
            "'b.test' with ECDSA_WITH_SHA256_DER successful",
            match self {
                Self::Tls => "EAP method EAP_TLS succeeded, MSK established",
                Self::MsChapV2 => "EAP method EAP_MSCHAPV2 succeeded, MSK established",
            },
            "'b.test' with EAP successful",
        ]
    }

    fn in_its_words(self) -> &'static str {
        match self {
            Self::Tls => "eap-tls",
            Self::MsChapV2 => "eap-mschapv2",
        }
    }
}

/// Has strongSwan set up an IKE SA with a CHILD SA, and deletes them. Returns what it lacks for it, if
/// it does.
///
/// # Errors
/// Describes the step that failed.
pub(crate) fn authenticate(
    installation: &Installation,
    method: Method,
) -> Result<Option<&'static str>> {
    let folder = Folder::new()?;
    let [a, b] = hosts()?;
    let authority = Authority::new()?;
    let theirs = authority.issue("a.test", KeyKind::EcdsaP256)?;
    let ours = authority.issue("b.test", KeyKind::EcdsaP256)?;
    theirs.save(&folder.0, "own", &authority)?;
    charon::arrange(&folder.0, "own")?;
    let conf = swanctl_conf(&a, &b, method);
    let settings = Settings { swanctl_conf: &conf, fragment_size: FRAGMENT_SIZE };
    let charon = Charon::start(installation, &folder.0, a.name, &a.namespace, settings)?;
    if method == Method::MsChapV2 && charon.log()?.contains("plugin 'eap-mschapv2': failed to load")
    {
        return Ok(Some("its plugin for EAP-MSCHAPv2 is not there"));
    }
    let ours = Ours::start(&b, &a, responder(config(&b, &a), &authority, &ours, method)?);
    let up = charon.initiate().and_then(|()| {
        ours.wait("a CHILD SA", |state| state.installed.len() == 1 && state.sends_on.is_some())
    });
    let log = charon.log()?;
    up.with_context(|| format!("{:?}; strongSwan said: {log}", ours.state()))?;
    ours.send(Ask::Close);
    ours.wait("nothing", |state| state.closed)?;
    for key in &ours.state().installed {
        ensure!(log.contains(key), "strongSwan's log has no key {key}");
    }
    for line in method.logged() {
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

fn responder(
    mut config: Config,
    authority: &Authority,
    ours: &Issued,
    method: Method,
) -> Result<Config> {
    let authorities = Authorities::new(&[authority.der()], &[])?;
    let (chain, key) = (vec![ours.der()], ours.key_der());
    let tls = EapMethod::Tls(Arc::new(EapTls::new(chain.clone(), &key, &authorities)?));
    let methods = match method {
        Method::Tls => vec![tls],
        // it asks for a method that the client refuses, then for the other one
        Method::MsChapV2 => vec![tls, EapMethod::MsChapV2(Arc::new(OneUser))],
    };
    let local = LocalAuth::Certificate(Arc::new(Credential::new(chain, &key)?));
    let Some(connection): Option<&mut Connection> =
        config.connections.first_mut().and_then(Arc::get_mut)
    else {
        bail!("no connection");
    };
    connection.auth = Auth { local, remote: RemoteAuth::Eap(methods) };
    Ok(config)
}

fn swanctl_conf(host: &Host, other: &Host, method: Method) -> String {
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
        method.in_its_words(),
        host.inner,
        other.inner
    )
}
