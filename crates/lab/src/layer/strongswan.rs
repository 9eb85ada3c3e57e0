//! IPsec by strongSwan: IKEv2 (RFC 7296), and ESP (RFC 4303) in UDP (RFC 3948) by
//! strongSwan's own library in user space.

use super::{Kind, Layer, Place};
use crate::command::quote;
use crate::error::Result;
use crate::host::Host;
use crate::parts::{CHARON, Origin, Program, SWANCTL};
use crate::plan::Family;

pub(super) struct StrongSwan;

/// Plugins and libraries have this path compiled in.
const LIBRARIES: &str = "/usr/lib/ipsec";

impl Layer for StrongSwan {
    fn name(&self) -> &'static str {
        "strongswan"
    }

    fn about(&self) -> &'static str {
        "IPsec, IKEv2 and ESP in UDP, AES-128-GCM: strongSwan both sides, in user space"
    }

    fn kind(&self) -> Kind {
        Kind::Network
    }

    fn programs(&self) -> &'static [Program] {
        &[CHARON, SWANCTL]
    }

    /// IP and UDP, ESP header and IV, padding to 4 octets with its two of
    /// trailer, and the ICV. kernel-libipsec reads no more than 1400 octets from
    /// its interface (libipsec's `TUN_DEFAULT_MTU`): what is longer is cut.
    fn inner_mtu(&self, outer: u32, family: Family) -> u32 {
        const LONGEST: u32 = 1400;
        let ip = if family == Family::Ipv6 { 40 } else { 20 };
        let encrypted = outer.saturating_sub(ip + 8 + 8 + 8 + 16);
        ((encrypted & !3).saturating_sub(2)).min(LONGEST)
    }

    /// The plugin takes the next free name.
    fn interface(&self, _number: u16, nth: u16) -> String {
        format!("ipsec{nth}")
    }

    fn start(&self, place: &Place<'_>) -> Result<()> {
        for host in place.hosts() {
            let settings = place.write(host, "strongswan.conf", &settings(place, host))?;
            place.write(host, "swanctl.conf", &connection(place, host))?;
            place.start(host, daemon(host, &settings)?)?;
            place.until(host, "its interface", || {
                Ok(place.has_interface(host) && swanctl(place, host, &["--stats"]).is_ok())
            })?;
            place.configure_interface(host)?;
            // The plugin's own route, in a table that is asked earlier than the
            // main one, knows nothing of congestion control.
            let far = place.seen_from(host).far_inner;
            let version = if far.is_ipv4() { "-4" } else { "-6" };
            let far = far.to_string();
            place.run(
                host,
                "ip",
                [version, "rule", "add", "pref", "100", "to", &far, "lookup", "main"],
            )?;
            let file = place.path(host, "swanctl.conf");
            swanctl(place, host, &["--load-all", "--noprompt", "--file", &file])?;
        }
        self.establish(place)
    }

    fn tear_down(&self, place: &Place<'_>) -> Result<()> {
        swanctl(place, place.client, &["--terminate", "--ike", "lab"]).map(drop)
    }

    fn establish(&self, place: &Place<'_>) -> Result<()> {
        swanctl(place, place.client, &["--initiate", "--child", "lab", "--timeout", "15"]).map(drop)
    }

    fn facts(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            ("encryption", "ESP in UDP, tunnel mode, by kernel-libipsec in user space"),
            ("cipher", "AES-128-GCM, 16 octets of ICV"),
            ("key exchange", "IKEv2, X25519, pre-shared key"),
            ("rekeying", "off, no dead peer detection"),
        ]
    }
}

/// The daemon, with its variables and, from the cache, its plugins where it
/// looks for them: behind a copy of `/usr/lib` made of links.
fn daemon(host: &Host, settings: &str) -> Result<Vec<String>> {
    let mut script = format!("export STRONGSWAN_CONF={}", quote(settings));
    let mut program = CHARON.name.to_owned();
    if !host.is_dry() {
        let located = host.locate(CHARON)?;
        program = located.path.display().to_string();
        if located.origin == Origin::Cache
            && let Some(root) = located.path.ancestors().nth(3)
        {
            let libraries = quote(&format!("{}{LIBRARIES}", root.display())).clone();
            script += &format!(
                " && mkdir /run/real /run/links && mount --bind /usr/lib /run/real \
                 && ln -s /run/real/* /run/links && ln -sfn {libraries} /run/links/ipsec \
                 && mount --bind /run/links /usr/lib"
            );
        }
        for (name, value) in
            located.environment.iter().filter(|(name, _)| *name != "STRONGSWAN_CONF")
        {
            script += &format!(" && export {name}={}", quote(value));
        }
    }
    script += r#" && exec "$0""#;
    Ok(vec!["sh".into(), "-c".into(), script, program])
}

fn socket(place: &Place<'_>, host: &Host) -> String {
    format!("unix://{}", place.path(host, "vici"))
}

/// Runs `swanctl` against this instance's daemon.
fn swanctl(place: &Place<'_>, host: &Host, words: &[&str]) -> Result<String> {
    let settings = format!("STRONGSWAN_CONF={}", place.path(host, "strongswan.conf"));
    let socket = socket(place, host);
    let mut arguments = vec![settings.as_str(), "swanctl"];
    arguments.extend(words);
    arguments.extend(["--uri", &socket]);
    place.run(host, "env", arguments)
}

fn settings(place: &Place<'_>, host: &Host) -> String {
    format!(
        "swanctl {{\n  load =\n}}
charon-systemd {{
  load = random nonce openssl kdf kernel-libipsec kernel-netlink socket-default vici
  port = 0
  port_nat_t = {port}
  routing_table = {table}
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
        port = place.at.port(),
        table = 10_000 + u32::from(place.at.number),
        socket = socket(place, host),
    )
}

fn connection(place: &Place<'_>, host: &Host) -> String {
    let seen = place.seen_from(host);
    let bits = if seen.inner.is_ipv4() { 32 } else { 128 };
    format!(
        "connections {{
  lab {{
    version = 2
    local_addrs = {local}
    remote_addrs = {remote}
    local_port = {port}
    remote_port = {port}
    encap = yes
    mobike = no
    dpd_delay = 0
    rekey_time = 0
    reauth_time = 0
    proposals = aes128gcm16-prfsha256-x25519
    local {{
      auth = psk
      id = {role}.lab
    }}
    remote {{
      auth = psk
    }}
    children {{
      lab {{
        local_ts = {inner}/{bits}
        remote_ts = {far_inner}/{bits}
        esp_proposals = aes128gcm16
        mode = tunnel
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
        local = seen.outer,
        remote = seen.far_outer,
        port = place.at.port(),
        role = host.role,
        inner = seen.inner,
        far_inner = seen.far_inner,
    )
}
