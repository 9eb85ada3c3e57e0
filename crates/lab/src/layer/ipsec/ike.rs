//! Keys that two gateways of `headroom tunnel` negotiate by IKEv2 (RFC 7296).

use std::time::Duration;

use headroom_lab_host::error::{Doing, Result};
use headroom_lab_host::host::Host;
use headroom_lab_host::role::Role;
use serde::Deserialize;

use super::gateway;
use super::options::{Ike, Mode, Parameters};
use crate::layer::Place;

/// The age at which nothing is rekeyed in a run, nor a silent peer asked whether it lives.
const NEVER: Duration = Duration::from_secs(9_000_000);

/// Returns a host's configuration. The client begins; `secret` is the same at both ends.
pub(super) fn configuration(
    parameters: &Parameters,
    ike: Ike,
    place: &Place<'_>,
    host: &Host,
    secret: &str,
) -> String {
    let (seen, at) = (place.seen_from(host), place.at);
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
psk = \"{secret}\"
post_quantum = \"{}\"
initiate = {}
rekey_seconds = {never}
liveness_seconds = {never}

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
    );
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
