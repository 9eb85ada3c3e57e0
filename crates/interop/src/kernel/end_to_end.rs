//! Tests our whole gateway against a real kernel: TCP through both, hashed at the ends.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::frames::{ITS_MAC, OUR_MAC};
use super::trial::set_up;
use super::xfrm::{self, Traffic};
use super::{Emulators, Machine};
use crate::case::{Case, Side};
use crate::folder::Folder;
use crate::gateway::{Configuration, Gateway};
use crate::namespace::Namespace;
use crate::peer::Peers;

const TAP: &str = "tap0";
/// The first TCP port; each case uses the next.
const PORT: u16 = 5001;
/// Prints the kernel's IPsec counters that are not zero.
const COUNTERS: &str = "grep -v '[[:space:]]0$' /proc/net/xfrm_stat | paste -s; true";
/// Bytes transferred in each direction; few, as the processor is emulated.
const OCTETS: u64 = 4 << 20;

/// Selects cases: protocols, modes, families, and ESP in UDP.
pub fn end_to_end_cases() -> Vec<Case> {
    const WANTED: [&str; 4] = [
        "ESP aes-128-gcm, transport, IPv4, ESN",
        "ESP aes-128-cbc+hmac-sha256, tunnel, IPv4 in IPv4, in UDP",
        "ESP chacha20-poly1305, tunnel, IPv6 in IPv4, ESN",
        "AH+ESP hmac-sha256 over aes-128-gcm, transport, IPv6, ESN",
    ];
    let wanted = |case: &Case| WANTED.contains(&case.to_string().as_str());
    Case::all().into_iter().filter(wanted).collect()
}

/// Selects cases for packets that fill the path, in UDP and without.
pub fn ping_cases() -> Vec<Case> {
    const WANTED: [&str; 2] =
        ["ESP aes-128-gcm, transport, IPv4, in UDP", "ESP aes-128-gcm, transport, IPv4"];
    let wanted = |case: &Case| WANTED.contains(&case.to_string().as_str());
    Case::all().into_iter().filter(wanted).collect()
}

/// A namespace for our gateway, and a machine at the other end of its link.
#[derive(Debug)]
pub struct EndToEnd {
    // in this order they end
    machine: Machine,
    namespace: Namespace,
    port: u16,
}

impl EndToEnd {
    /// Makes the namespace and boots the machine. Needs root. `helper` is this
    /// crate's own program.
    ///
    /// # Errors
    /// Something is missing, which the error names.
    pub fn boot(peers: &Peers, emulators: Emulators, helper: &Path) -> Result<Self> {
        let namespace = Namespace::new()?;
        let mac = |octets: [u8; 6]| octets.map(|octet| format!("{octet:02x}")).join(":");
        let (ours, its) = (mac(OUR_MAC), mac(ITS_MAC));
        for line in [
            format!("ip tuntap add dev {TAP} mode tap"),
            format!("ip link set {TAP} address {ours} up"),
            format!("ip addr add 10.77.0.1/24 dev {TAP}"),
            format!("ip addr add fd77::1/64 dev {TAP} nodad"),
            "ip addr add 10.77.1.1/32 dev lo".to_owned(),
            "ip addr add fd77:1::1/128 dev lo nodad".to_owned(),
            format!("ip neigh add 10.77.0.2 lladdr {its} nud permanent dev {TAP}"),
            format!("ip neigh add fd77::2 lladdr {its} nud permanent dev {TAP}"),
        ] {
            namespace.run(&line.split(' ').collect::<Vec<_>>())?;
        }
        let mut machine = Machine::boot_behind_tap(peers, emulators, helper, &namespace, TAP)?;
        set_up(&mut machine)?;
        Ok(Self { machine, namespace, port: PORT })
    }

    /// Returns the machine's kernel.
    pub fn release(&self) -> &str {
        &self.machine.release
    }

    /// Transfers bytes in both directions, one after the other, through the gateway of
    /// the program `headroom` and the kernel.
    ///
    /// # Errors
    /// Describes the step that failed, with the gateway's output.
    pub fn try_case(&mut self, headroom: &Path, case: &Case) -> Result<()> {
        let folder = Folder::new()?;
        self.port += 1;
        self.machine.run(&xfrm::line(case, 1, Traffic::Tcp))?;
        let before = self.machine.run(COUNTERS)?;
        let configuration = Configuration::of(case);
        let gateway = Gateway::start(headroom, &configuration, &folder.0, &self.namespace)?;
        let [ours, theirs] = [Side::Ours, Side::Theirs].map(|side| case.inner_address(side));
        let moved = self.machine.transfer(&self.namespace, [ours, theirs], self.port, OCTETS);
        let after = self.machine.run(COUNTERS)?;
        moved.with_context(|| {
            format!("the kernel counted `{after}`; our gateway said: {}", gateway.said())
        })?;
        if before != after {
            bail!("the kernel refused packets: {after}");
        }
        Ok(())
    }

    /// Pings in both directions with packets around the longest that need no fragments; every
    /// one must be answered. `busybox` is the program.
    ///
    /// # Errors
    /// Names the lost packet, with the output of ping, kernel and gateway.
    pub fn try_pings(&mut self, headroom: &Path, busybox: &Path, case: &Case) -> Result<()> {
        /// Payloads; IP's and ICMP's headers are 28 bytes more.
        const PAYLOADS: [usize; 5] = [1430, 56, 1429, 1431, 4000];
        let folder = Folder::new()?;
        self.machine.run(&xfrm::line(case, 1, Traffic::Echoes))?;
        let configuration = Configuration::of(case);
        let gateway = Gateway::start(headroom, &configuration, &folder.0, &self.namespace)?;
        let [ours, theirs] = [Side::Ours, Side::Theirs].map(|side| case.inner_address(side));
        let busybox = busybox.to_string_lossy().into_owned();
        let mut lost = Vec::new();
        for payload in PAYLOADS {
            let line = |to: IpAddr, from: IpAddr| {
                format!("ping -c 3 -W 10 -s {payload} -I {from} {to}; true")
            };
            let out = format!("{busybox} {}", line(theirs, ours));
            let said = self.namespace.run(&["sh", "-c", &out])?;
            let back = self.machine.run(&line(ours, theirs))?;
            for (way, said) in [("out", said), ("back", back)] {
                if !said.contains("3 packets received") {
                    lost.push(format!("{payload} bytes {way}: {}", said.trim()));
                }
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        let counted = self.machine.run(COUNTERS)?;
        bail!(
            "{}\nthe kernel counted `{counted}`; our gateway said: {}",
            lost.join("\n"),
            gateway.said()
        )
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_that_is_wanted_exists() {
        assert_eq!(super::end_to_end_cases().len(), 4);
        assert_eq!(super::ping_cases().len(), 2);
    }
}
