//! OpenIKED: iked, with the kernel's ESP by PF_KEY.

use std::cell::RefMut;
use std::path::Path;

use anyhow::Result;

use super::{CHROOT, Guest};
use crate::ike::ours::{NAMES, SECRET, THEIRS};
use crate::ike::{Daemon, Link, Trial};
use crate::pki::KeyKind;

/// It configures the kernel by PF_KEY, which has no AEAD on Linux (net/key/af_key.c), and truncates
/// HMAC-SHA-256 to 96 bits.
pub(super) const SUITE: &str = "aes-256-cbc+hmac-sha384";

const LOG: &str = "/run/iked.log";

pub(super) fn lacks(trial: Trial) -> Option<&'static str> {
    match trial {
        Trial::PostQuantumByUs | Trial::PostQuantumByThem => Some("it has no ML-KEM"),
        Trial::Fragments => Some("without ML-KEM no message is long enough for it to fragment"),
        Trial::LivenessByThem => Some(
            "it asks the kernel when packets last came, and takes the time of day that Linux answers \
             to PF_KEY for an age",
        ),
        Trial::WeMove => Some(
            "it takes the new address for its IKE SA, but Linux refuses that of the CHILD SAs by PF_KEY \
             (EINVAL)",
        ),
        Trial::Certificates(KeyKind::Ed25519, _) => Some("it has no Ed25519"),
        Trial::Eap(_) => Some("it has EAP as a responder alone"),
        Trial::Childless => Some("it begins no IKE SA without a CHILD SA"),
        _ => None,
    }
}

pub(super) struct Iked<'a> {
    guest: RefMut<'a, Guest>,
    link: &'a Link,
}

impl<'a> Iked<'a> {
    pub(super) fn start(
        mut guest: RefMut<'a, Guest>,
        folder: &Path,
        link: &'a Link,
        trial: Trial,
    ) -> Result<Self> {
        if trial.certificates().is_some() {
            let files = [
                ("authority.pem".to_owned(), "ca/ca.crt"),
                (format!("{THEIRS}.pem"), "certs/theirs.crt"),
                (format!("{THEIRS}.key"), "private/local.key"),
            ];
            guest.machine.run("mkdir -p /tree/etc/iked/ca /tree/etc/iked/certs")?;
            for (from, to) in files {
                let text = std::fs::read_to_string(folder.join(from))?;
                guest.write(&format!("/etc/iked/{to}"), &text.replace('\r', ""))?;
            }
            // it reads them as another user
            guest.machine.run(
                "chmod 755 /tree/etc/iked /tree/etc/iked/ca /tree/etc/iked/certs && \
                 chmod 644 /tree/etc/iked/ca/ca.crt /tree/etc/iked/certs/theirs.crt",
            )?;
        }
        guest.write("/etc/iked.conf", &configuration(link, trial))?;
        let mut iked = Self { guest, link };
        if !trial.they_initiate() {
            iked.initiate()?;
        }
        Ok(iked)
    }
}

impl Daemon for Iked<'_> {
    /// Starts it: an active policy is initiated at once, a passive one waits.
    fn initiate(&mut self) -> Result<()> {
        self.guest.machine.run(&format!(
            "rm -f /tree{LOG} /tree/run/iked.sock; {CHROOT} /usr/sbin/iked -dvv -f /etc/iked.conf >/tree{LOG} 2>&1 </dev/null & \
             echo $! >/iked.pid; n=0; until grep -q 'compilation done' /tree{LOG}; do \
             n=$((n+1)); [ $n -lt 100 ] || break; usleep 100000; done; \
             grep -q 'compilation done' /tree{LOG} || {{ cat /tree{LOG}; false; }}"
        )).map(drop)
    }

    /// Nothing asks it to: the lifetime in its configuration does.
    fn rekey_child(&mut self) -> Result<()> {
        Ok(())
    }

    fn rekey_ike(&mut self) -> Result<()> {
        Ok(())
    }

    fn terminate(&mut self) -> Result<()> {
        self.guest.run(&format!("/usr/sbin/ikectl reset id FQDN/{}", NAMES[0])).map(drop)
    }

    fn is_idle(&mut self) -> Result<bool> {
        Ok(!self
            .guest
            .machine
            .run(&format!("timeout 5 {CHROOT} /usr/sbin/ikectl show sa"))?
            .contains("iked_sas:"))
    }

    fn log(&mut self) -> Result<String> {
        self.guest.machine.run(&format!("cat /tree{LOG}"))
    }

    fn transfer(&mut self) -> Result<()> {
        self.guest.transfer(self.link)
    }

    fn liveness(&self) -> [&'static str; 2] {
        ["send INFORMATIONAL res", "recv INFORMATIONAL res"]
    }

    fn fragments(&self) -> [&'static str; 2] {
        ["fragment", "fragment"]
    }
}

impl Drop for Iked<'_> {
    fn drop(&mut self) {
        let _ = self.guest.machine.run(
            "kill $(cat /iked.pid) 2>/dev/null; wait $(cat /iked.pid) 2>/dev/null; \
             /ip xfrm state flush; /ip xfrm policy flush",
        );
    }
}

fn configuration(link: &Link, trial: Trial) -> String {
    let role = if trial.they_initiate() { "active" } else { "passive" };
    let ike = if trial == Trial::IkeRekeyByThem { "ikelifetime 8 " } else { "" };
    let child = if matches!(trial, Trial::ChildRekeyByThem | Trial::IkeRekeyByThem) {
        "lifetime 8 "
    } else {
        ""
    };
    let proof = match trial.certificates() {
        None => format!("psk \"{SECRET}\""),
        Some(_) => "rfc7427".to_owned(),
    };
    format!(
        "ikev2 \"join\" {role} esp from {} to {} local {} peer {} \
         ikesa enc aes-256-gcm prf hmac-sha2-384 group curve25519 \
         childsa enc aes-256 auth hmac-sha2-384 group curve25519 noesn \
         srcid {} dstid {} {ike}{child}{proof}\n",
        link.inner[1], link.inner[0], link.outer[1], link.seen[0], NAMES[1], NAMES[0]
    )
}
