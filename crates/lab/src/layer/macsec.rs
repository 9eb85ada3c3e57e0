//! MACsec (IEEE 802.1AE) with static keys, by the kernels of both sides: a frame on the link shows
//! its two Ethernet addresses and a number, all else is encrypted. The router passes such frames
//! on as a switch, so that no key is there (`headroom_lab_host::testbed`).

use std::sync::Arc;

use headroom_lab_host::command::Command;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::Host;
use headroom_lab_host::programs::IP;
use headroom_lab_host::role::Role;
use headroom_lab_host::testbed::{Family, HOST_INTERFACE, ethernet_address};

use super::{Layer, LayerKind, Place, kernel, random_key};
use crate::catalogue::{Entry, Fact, Make, stated, titled};
use crate::properties::Properties;

/// Bytes that it adds to a frame: SecTAG with the channel's identifier (16), and the integrity
/// check value (16; IEEE 802.1AE-2018, clause 9).
const OVERHEAD: u32 = 16 + 16;
/// By how many frames one may be late, as in IPsec.
const WINDOW: u32 = 4096;

struct MacSec {
    cipher: Cipher,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cipher {
    Aes128,
    Aes256,
}

impl Cipher {
    const ALL: [Self; 2] = [Self::Aes128, Self::Aes256];

    /// Its name as an option, in `ip link` and in results.
    const fn name(self) -> &'static str {
        match self {
            Self::Aes128 => "gcm-aes-128",
            Self::Aes256 => "gcm-aes-256",
        }
    }

    /// Bytes of a key.
    const fn key(self) -> usize {
        match self {
            Self::Aes128 => 16,
            Self::Aes256 => 32,
        }
    }
}

pub(super) const ENTRY: Entry<dyn Layer> = Entry {
    name: "macsec",
    about: "MACsec with static keys, the outermost layer: the kernel both sides",
    programs: &[],
    make: Make::Configured {
        known: || format!("{} (the default), or {}", Cipher::Aes128.name(), Cipher::Aes256.name()),
        read: |options| {
            let all: Vec<&str> = options.iter().collect();
            let cipher = match all[..] {
                [] => Cipher::Aes128,
                [one] => Cipher::ALL
                    .into_iter()
                    .find(|cipher| cipher.name() == one)
                    .ok_or_else(|| options.unknown(one))?,
                [_, other, ..] => return Err(options.unknown(other)),
            };
            let layer = MacSec { cipher };
            Ok((layer.options(), Arc::new(layer)))
        },
    },
};

impl MacSec {
    /// Lists its options that are not default.
    fn options(&self) -> Vec<String> {
        let other = Some(self.cipher).filter(|cipher| *cipher != Cipher::Aes128);
        other.map(|cipher| cipher.name().to_owned()).into_iter().collect()
    }

    /// Makes the interface of a host, with the keys of the frames that it sends and receives.
    fn make_interface(&self, place: &Place<'_>, host: &Host, keys: [&str; 2]) -> Result<()> {
        let [own_key, far_key] = keys;
        let (interface, port, cipher) = (&place.at.interface, place.at.number, self.cipher.name());
        let other = far_role(host.role);
        let far = format!("port {port} address {}", text(ethernet_address(other)));
        let lines = [
            format!(
                "link add link {HOST_INTERFACE} name {interface} type macsec port {port} cipher {cipher} \
                 encrypt on replay on window {WINDOW}"
            ),
            format!("macsec add {interface} tx sa 0 pn 1 on key 00 {own_key}"),
            format!("macsec add {interface} rx {far}"),
            format!("macsec add {interface} rx {far} sa 0 pn 1 on key 00 {far_key}"),
        ];
        run(host, &lines)?;
        place.configure_interface(host)?;
        // nothing is asked for on an interface without multicast
        let (inner, address) = (place.seen_from(host).far_inner, text(ethernet_address(other)));
        let neighbour =
            format!("neigh replace {inner} lladdr {address} nud permanent dev {interface}");
        run(host, &[neighbour])
    }
}

impl Layer for MacSec {
    /// Between the two ends of one link; what is behind them is in clear.
    fn properties(&self) -> Option<Properties> {
        Some(Properties { mutual_auth: true, shows_ports: false, ..Properties::CLEAR })
    }

    fn kind(&self) -> LayerKind {
        LayerKind::Network
    }

    /// Keys come with the configuration.
    fn negotiates(&self) -> bool {
        false
    }

    fn is_of_the_link(&self) -> bool {
        true
    }

    fn require_kernel(&self) -> Result<()> {
        if kernel::has_macsec() {
            return Ok(());
        }
        Err(Error::Missing(format!(
            "this machine's kernel cannot do `{}` for this user: it lacks the module macsec or AES-GCM, or \
             sch_ingress, cls_u32 and act_mirred, by which the lab's router passes its frames on; or the user is \
             root of a user namespace alone, who may not set its keys: load the modules, or run as root",
            titled(ENTRY.name, &self.options()),
        )))
    }

    fn in_kernel(&self) -> bool {
        true
    }

    fn has_daemon(&self) -> bool {
        false
    }

    fn inner_mtu(&self, outer: u32, _: Family) -> u32 {
        outer.saturating_sub(OVERHEAD)
    }

    fn interface(&self, number: u16, _nth: u16) -> String {
        format!("macsec{number}")
    }

    fn start(&self, place: &Place<'_>) -> Result<()> {
        let key = || random_key::hex(self.cipher.key(), place.client.is_dry());
        let (of_client, of_server) = (key(), key());
        self.make_interface(place, place.client, [&of_client, &of_server])?;
        self.make_interface(place, place.server, [&of_server, &of_client])
    }

    /// There is nothing to agree on.
    fn establish(&self, _: &Place<'_>) -> Result<()> {
        Ok(())
    }

    fn facts(&self) -> Vec<Fact> {
        let mut facts = stated([
            ("encryption", "MACsec by the kernel: frames on the link, without their addresses"),
            ("key exchange", "none: static keys, new ones in each run"),
        ]);
        facts.push(("cipher", self.cipher.name().to_owned()));
        facts.push(("replay window", format!("{WINDOW} frames")));
        facts
    }
}

fn far_role(role: Role) -> Role {
    match role {
        Role::Client => Role::Server,
        Role::Server => Role::Client,
    }
}

/// Writes an Ethernet address.
fn text(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

/// Runs `ip` with the words of each line.
fn run(host: &Host, lines: &[String]) -> Result<()> {
    lines.iter().try_for_each(|line| host.run(&Command::words(IP, line)).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::Stack;

    #[test]
    fn it_is_the_outermost_layer() {
        for (written, name) in [
            ("http/macsec", "http/macsec"),
            ("http/macsec(gcm-aes-128)", "http/macsec"),
            ("sftp/tls/wireguard/macsec(gcm-aes-256)", "sftp/tls/wireguard/macsec(gcm-aes-256)"),
        ] {
            let stack = Stack::parse(written).expect(written);
            assert!(stack.name == name && stack.is_secured(), "{}", stack.name);
        }
        for refused in ["http/macsec/wireguard", "http/macsec/macsec"] {
            let error = Stack::parse(refused).expect_err(refused);
            assert!(error.contains("`macsec` protects the link itself"), "{error}");
        }
        for refused in ["http/macsec(gcm-aes-512)", "http/macsec(gcm-aes-128,gcm-aes-256)"] {
            assert!(Stack::parse(refused).is_err_and(|e| e.contains("`macsec` has no option")));
        }
    }

    #[test]
    fn a_packet_inside_is_32_bytes_smaller() {
        let stack = Stack::parse("http/macsec").expect("a stack");
        for family in [Family::Ipv4, Family::Ipv6] {
            assert_eq!(stack.innermost_mtu(1500, family), Ok(1468));
        }
    }
}
