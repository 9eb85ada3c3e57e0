//! strongSwan as a client of our gateway: EAP, and an address from its pool.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::charon::{self, Charon, FRAGMENT_SIZE, Installation, Settings};
use super::{Host, hosts};
use crate::folder::Folder;
use crate::gateway::Gateway;
use crate::pki::{Authority, KeyKind};
use crate::transfer::{self, End};

/// The pool has one address.
const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 7));
const PASSWORD: &str = "of a person";
/// Bytes of a transfer in each direction.
const OCTETS: u64 = 1 << 20;
/// Longer than any step takes, even on a busy machine.
const STEP: Duration = Duration::from_secs(40);

/// How strongSwan proves a user's identity.
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
}

/// Has strongSwan prove a user's identity by EAP, get an address, pass packets in both directions and
/// give the address back. Returns what strongSwan lacks for it, if it does.
///
/// # Errors
/// Describes the step that failed.
pub(crate) fn connect(
    installation: &Installation,
    headroom: &Path,
    method: Method,
) -> Result<Option<&'static str>> {
    let folder = Folder::new()?;
    let [client, gateway] = hosts()?;
    let authority = Authority::new()?;
    authority.issue("a.test", KeyKind::EcdsaP256)?.save(&folder.0, "own", &authority)?;
    authority.issue("b.test", KeyKind::EcdsaP256)?.save(&folder.0, "gateway", &authority)?;
    charon::arrange(&folder.0, "own")?;
    // kernel-libipsec leaves it to the test
    let address = format!("{ADDRESS}/32");
    client.namespace.run(&["ip", "addr", "add", &address, "dev", "lo"])?;
    let conf = swanctl_conf(&client, &gateway, method);
    let settings = Settings { swanctl_conf: &conf, fragment_size: FRAGMENT_SIZE };
    let charon = Charon::start(installation, &folder.0, client.name, &client.namespace, settings)?;
    if method == Method::MsChapV2 && charon.log()?.contains("plugin 'eap-mschapv2': failed to load")
    {
        return Ok(Some("its plugin for EAP-MSCHAPv2 is not there"));
    }
    let text = configuration(&folder.0, &gateway, method);
    let ours = Gateway::start(headroom, &text, &folder.0, &gateway.namespace)?;
    let done = steps(&charon, &ours, headroom, [&client, &gateway]);
    let log = charon.log()?;
    done.with_context(|| format!("our gateway said: {}\nstrongSwan said: {log}", ours.said()))?;
    for line in method.logged() {
        ensure!(log.contains(line), "strongSwan's log has no {line:?}: {log}");
    }
    Ok(None)
}

fn steps(charon: &Charon, ours: &Gateway, headroom: &Path, hosts: [&Host; 2]) -> Result<()> {
    let [client, gateway] = hosts;
    charon.initiate()?;
    let assigned = |status: &Value| status["ike"][0]["assigned"][0].as_str().map(str::to_owned);
    let status = wait(ours, headroom, "an address", |status| assigned(status).is_some())?;
    ensure!(assigned(&status) == Some(ADDRESS.to_string()), "{status}");
    ensure!(status["ike"][0]["identity"] == "a.test", "{status}");
    transfer::both_ways(
        End { namespace: &client.namespace, address: ADDRESS },
        End { namespace: &gateway.namespace, address: gateway.inner },
        OCTETS,
    )?;
    charon.swanctl(&["--rekey", "--child", "join"])?;
    let rekeyed = |status: &Value| status["ike"][0]["child_rekeys"].as_u64() > Some(0);
    wait(ours, headroom, "another CHILD SA", rekeyed)?;
    transfer::both_ways(
        End { namespace: &client.namespace, address: ADDRESS },
        End { namespace: &gateway.namespace, address: gateway.inner },
        OCTETS,
    )?;
    charon.swanctl(&["--terminate", "--ike", "join"])?;
    let is_free = |status: &Value| status["ike"].as_array().is_some_and(Vec::is_empty);
    wait(ours, headroom, "no IKE SA", is_free)?;
    charon.initiate().context("again")?;
    wait(ours, headroom, "the address again", |status| assigned(status).is_some())?;
    Ok(())
}

fn wait(
    ours: &Gateway,
    headroom: &Path,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let deadline = Instant::now() + STEP;
    loop {
        let status = serde_json::from_str(&ours.control(headroom, &["status", "--json"])?)?;
        if wanted(&status) {
            return Ok(status);
        }
        if Instant::now() > deadline {
            bail!("waiting for {what}: {status}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn configuration(folder: &Path, here: &Host, method: Method) -> String {
    let (eap, user) = match method {
        Method::Tls => ("\"tls\"", String::new()),
        // the client refuses the first one
        Method::MsChapV2 => {
            let user = format!("[[ike.user]]\nname = \"a.test\"\npassword = {PASSWORD:?}\n");
            ("[\"tls\", \"mschapv2\"]", user)
        }
    };
    format!(
        "name = \"hr0\"\n\
         [ike]\n\
         name = \"users\"\n\
         local = \"{}\"\n\
         remote = \"any\"\n\
         cert_file = {:?}\n\
         key_file = {:?}\n\
         post_quantum = \"off\"\n\
         pool = \"{ADDRESS}\"\n\
         eap = {eap}\n\
         ca_file = {:?}\n\
         {user}\
         [[child]]\n\
         local = \"{}\"\n",
        here.outer,
        folder.join("gateway.pem"),
        folder.join("gateway.key"),
        folder.join("authority.pem"),
        here.inner
    )
}

fn swanctl_conf(client: &Host, gateway: &Host, method: Method) -> String {
    let auth = match method {
        Method::Tls => "eap-tls",
        Method::MsChapV2 => "eap-mschapv2",
    };
    format!(
        "connections {{
  join {{
    version = 2
    local_addrs = {}
    remote_addrs = {}
    vips = 0.0.0.0, ::
    encap = yes
    dpd_delay = 0
    rekey_time = 0
    reauth_time = 0
    proposals = aes128gcm16-prfsha256-x25519
    local {{
      auth = {auth}
      certs = own.pem
      id = a.test
    }}
    remote {{
      auth = pubkey
      id = b.test
    }}
    children {{
      join {{
        remote_ts = 0.0.0.0/0
        esp_proposals = aes128gcm16-x25519
        mode = tunnel
        rekey_time = 0
      }}
    }}
  }}
}}
secrets {{
  eap-a {{
    id = a.test
    secret = \"{PASSWORD}\"
  }}
}}
",
        client.outer, gateway.outer
    )
}
