//! The connection between the two daemons, and the certificates of both ends.

use headroom_lab_host::error::Result;
use headroom_lab_host::host::Host;
use headroom_lab_host::programs::OPENSSL;
use headroom_lab_host::role::Role;

use super::options::{KeyKind, Parameters, Proof};
use crate::layer::{Place, kernel};

/// Each end's key and certificate, and at each the other's certificate, which is the one
/// that it trusts: where `swanctl` looks for them.
pub(super) fn make_certificates(place: &Place<'_>, kind: &KeyKind) -> Result<()> {
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

/// Returns an end's `swanctl.conf`.
pub(super) fn connection(parameters: &Parameters, place: &Place<'_>, host: &Host) -> String {
    let Parameters { proof, rekey, .. } = *parameters;
    let seen = place.seen_from(host);
    let bits = if seen.inner.is_ipv4() { 32 } else { 128 };
    let certificate = |file: &str| match proof {
        Proof::Psk => String::new(),
        Proof::Certificate(_) => format!("\n      certs = {file}"),
    };
    let forward_secret = rekey.map_or_else(String::new, |_| format!("-{}", parameters.groups()));
    // one end alone, so that each update is one; less up to a tenth at random
    let limit = rekey.filter(|_| host.role == Role::Client).map(|interval| {
        let (bytes, tenth) = (interval.bytes(), interval.bytes() / 10);
        let twice = bytes * 2;
        format!("\n        rekey_bytes = {bytes}\n        life_bytes = {twice}\n        rand_bytes = {tenth}")
    });
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
    proposals = aes128gcm16-prfsha256-{groups}
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
        esp_proposals = aes128gcm16{forward_secret}
        mode = tunnel{interface}
        rekey_time = 0{limit}
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
        groups = parameters.groups(),
        limit = limit.unwrap_or_default(),
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
