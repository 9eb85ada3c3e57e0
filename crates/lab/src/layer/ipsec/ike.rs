//! Keys that two gateways of `headroom tunnel` negotiate by IKEv2 (RFC 7296).

use std::time::Duration;

use headroom_lab_host::error::{Doing, Result};
use headroom_lab_host::host::Host;
use headroom_lab_host::role::Role;
use serde::Deserialize;

use super::options::{Ike, Mode, Proof};
use super::{Ipsec, Protocol, gateway};
use crate::layer::Place;
use crate::layer::random_key::hex;

/// The age at which nothing is rekeyed in a run, nor a silent peer asked whether it lives.
const NEVER: Duration = Duration::from_secs(9_000_000);

/// Bytes of the secret of both ends, from which each run's authentication comes.
const SECRET: usize = 32;
/// The folder of new certificates, in the client's.
const CERTIFICATES: &str = "certificates";

/// The lines of a configuration by which each end proves who it is.
pub(super) struct ProofLines {
    client: String,
    server: String,
}

/// Draws a pre-shared key, or has certificates made and copies each end's to it.
pub(super) fn make_proof(ike: Ike, place: &Place<'_>) -> Result<ProofLines> {
    match ike.proof {
        Proof::SharedKey => Ok(ProofLines::shared_key(&hex(SECRET, place.client.is_dry()))),
        Proof::Certificates => make_certificates(place),
    }
}

impl ProofLines {
    pub(super) fn shared_key(secret: &str) -> Self {
        let line = format!("psk = \"{secret}\"\n");
        Self { client: line.clone(), server: line }
    }

    /// Those of the files that `headroom tunnel keygen --ike=certificates` writes for the
    /// tunnel of this name.
    fn certificates(tunnel: &str) -> Self {
        let lines = |[own, far]: [&str; 2]| {
            format!(
                "remote_id = \"{far}.{tunnel}\"\ncert_file = \"{own}.pem\"\nkey_file = \"{own}.key\"\n\
                 ca_file = \"{tunnel}-ca.pem\"\n"
            )
        };
        Self { client: lines([LEFT, RIGHT]), server: lines([RIGHT, LEFT]) }
    }

    fn of(&self, role: Role) -> &str {
        match role {
            Role::Client => &self.client,
            Role::Server => &self.server,
        }
    }
}

/// The two ends, as `headroom tunnel keygen` names their files: the client and the server.
const LEFT: &str = "left";
const RIGHT: &str = "right";

fn make_certificates(place: &Place<'_>) -> Result<ProofLines> {
    let (client, tunnel) = (place.client, place.at.interface.as_str());
    let headroom = client.headroom.display().to_string();
    let folder = place.path(client, CERTIFICATES);
    let [left, right] = [place.at.outer.client, place.at.outer.server].map(|end| end.to_string());
    let words = ["tunnel", "keygen", &left, &right, "--ike=certificates", "--name", tunnel];
    place.run(client, headroom.as_str(), words.into_iter().chain(["--out", &folder]))?;
    let authority = format!("{tunnel}-ca.pem");
    for (host, end) in [(client, LEFT), (place.server, RIGHT)] {
        for name in [format!("{end}.pem"), format!("{end}.key"), authority.clone()] {
            let text = client.read(&place.dir(client).join(CERTIFICATES).join(&name))?;
            let path = place.write(host, &name, &text)?;
            // the gateway refuses a key that others may read
            place.run(host, "chmod", ["600", &path])?;
        }
    }
    Ok(ProofLines::certificates(tunnel))
}

/// Returns a host's configuration. The client begins.
pub(super) fn configuration(
    layer: &Ipsec,
    ike: Ike,
    place: &Place<'_>,
    host: &Host,
    proof: &ProofLines,
) -> String {
    let (parameters, seen, at) = (layer.parameters, place.seen_from(host), place.at);
    let mut text =
        format!("name = {:?}\nqueues = {}\nkeepalive = 0\n", at.interface, parameters.queues);
    if parameters.mode == Mode::Tunnel {
        let bits = if seen.inner.is_ipv4() { 32 } else { 128 };
        text += &format!("address = [\"{}/{bits}\"]\nmtu = {}\n", seen.inner, at.inner.mtu);
    }
    text += &format!(
        "
[ike]
local = \"{}\"
remote = \"{}\"
post_quantum = \"{}\"
initiate = {}
rekey_seconds = {never}
liveness_seconds = {never}
{proof}
[[child]]
local = \"{}\"
remote = \"{}\"
mode = \"{}\"
rekey_seconds = {never}
",
        seen.outer,
        seen.far_outer,
        if ike.post_quantum { "required" } else { "off" },
        host.role == Role::Client,
        seen.inner,
        seen.far_inner,
        parameters.mode.name(),
        never = NEVER.as_secs(),
        proof = proof.of(host.role),
    );
    if layer.protocol == Protocol::QEsp {
        text += "qesp = \"require\"\n";
    }
    // one end alone, so that each update is one
    if let Some(interval) = ike.rekey.filter(|_| host.role == Role::Client) {
        text += &format!("rekey_bytes = {}\n", interval.bytes());
    }
    text
}

/// Waits until the client has keys: the server has them before it answers.
pub(super) fn until_established(place: &Place<'_>) -> Result<()> {
    place.until(place.client, "a negotiation of keys", || is_established(place))
}

/// Returns how often the client's gateway has updated its keys since it came up.
pub(super) fn key_updates(place: &Place<'_>) -> Result<u64> {
    Ok(sessions(place)?.iter().map(|session| session.child_rekeys).sum())
}

fn is_established(place: &Place<'_>) -> Result<bool> {
    Ok(sessions(place)?.iter().any(|session| session.established && session.children > 0))
}

/// An IKE SA, as the gateway's status has it.
#[derive(Deserialize)]
struct Session {
    established: bool,
    children: usize,
    child_rekeys: u64,
}

fn sessions(place: &Place<'_>) -> Result<Vec<Session>> {
    #[derive(Deserialize)]
    struct Status {
        ike: Vec<Session>,
    }
    let text = gateway::say(place, place.client, &["status", &place.at.interface, "--json"])?;
    let status: Status = serde_json::from_str(&text)
        .doing(|| format!("read the status of {}", place.at.daemon()))?;
    Ok(status.ike)
}
