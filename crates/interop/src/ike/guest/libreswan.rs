//! libreswan: pluto, with the kernel's ESP.

use std::cell::RefMut;
use std::path::Path;

use anyhow::{Result, bail};

use super::{CHROOT, Guest};
use crate::ike::ours::{NAMES, SECRET, THEIRS};
use crate::ike::{Daemon, Link, Trial};
use crate::pki::KeyKind;
use crate::strongswan::road_warrior::Method;

const LOG: &str = "/run/pluto.log";

pub(super) fn lacks(trial: Trial) -> Option<&'static str> {
    match trial {
        Trial::PostQuantumByUs | Trial::PostQuantumByThem => Some("it has no ML-KEM"),
        Trial::Fragments => {
            Some("it fragments above 1280 bytes only, and without ML-KEM no message is as long")
        }
        Trial::Certificates(KeyKind::Ed25519, _) => Some("it has no Ed25519"),
        Trial::Eap(Method::MsChapV2) => Some("it has no EAP-MSCHAPv2"),
        Trial::Eap(Method::Tls) => Some("not tried: EAP is tried with strongSwan alone"),
        Trial::Childless => Some("it begins no IKE SA without a CHILD SA but for labeled IPsec"),
        _ => None,
    }
}

pub(super) struct Pluto<'a> {
    guest: RefMut<'a, Guest>,
    link: &'a Link,
}

impl<'a> Pluto<'a> {
    pub(super) fn start(
        mut guest: RefMut<'a, Guest>,
        folder: &Path,
        link: &'a Link,
        trial: Trial,
    ) -> Result<Self> {
        guest.write("/etc/ipsec.conf", &configuration(link, trial))?;
        let [ours, theirs] = NAMES;
        guest.write("/etc/ipsec.secrets", &format!("@{theirs} @{ours} : PSK \"{SECRET}\"\n"))?;
        guest
            .machine
            .run(&format!("rm -rf /tree/var/lib/ipsec/nss/* /tree/run/pluto/* /tree{LOG}"))?;
        guest.run("/usr/bin/certutil -N -d sql:/var/lib/ipsec/nss --empty-password")?;
        if trial.certificates().is_some() {
            give_certificates(&mut guest, folder)?;
        }
        guest.machine.run(&format!(
            "{CHROOT} /usr/libexec/ipsec/pluto --config /etc/ipsec.conf --nofork --stderrlog \
             --nhelpers 0 >/tree{LOG} 2>&1 </dev/null & echo $! >/pluto.pid; n=0; \
             until {CHROOT} /usr/libexec/ipsec/whack --listen >/dev/null 2>&1; do \
             n=$((n+1)); [ $n -lt 300 ] || break; usleep 100000; done"
        ))?;
        let mut pluto = Self { guest, link };
        if let Err(why) =
            pluto.guest.run("/usr/libexec/ipsec/addconn --config /etc/ipsec.conf join 2>&1")
        {
            bail!("{why:#}: {}", pluto.log()?);
        }
        Ok(pluto)
    }

    fn whack(&mut self, words: &str) -> Result<String> {
        self.guest.run(&format!("/usr/libexec/ipsec/whack {words} 2>&1"))
    }
}

impl Daemon for Pluto<'_> {
    fn initiate(&mut self) -> Result<()> {
        self.whack("--initiate --name join").map(drop)
    }

    fn rekey_child(&mut self) -> Result<()> {
        self.whack("--rekey-child --name join").map(drop)
    }

    fn rekey_ike(&mut self) -> Result<()> {
        self.whack("--rekey-ike --name join").map(drop)
    }

    fn terminate(&mut self) -> Result<()> {
        self.whack("--terminate --name join").map(drop)
    }

    fn is_idle(&mut self) -> Result<bool> {
        Ok(!self.whack("--showstates")?.contains("#"))
    }

    fn log(&mut self) -> Result<String> {
        self.guest.machine.run(&format!("cat /tree{LOG}"))
    }

    fn transfer(&mut self) -> Result<()> {
        self.guest.transfer(self.link)
    }

    fn liveness(&self) -> [&'static str; 2] {
        [
            "calling processor Informational Request (liveness probe)",
            "calling processor Informational Response (liveness probe)",
        ]
    }

    fn fragments(&self) -> [&'static str; 2] {
        ["fragment", "fragment"]
    }
}

/// Puts the authority, the daemon's certificate and its key into the daemon's database.
fn give_certificates(guest: &mut Guest, folder: &Path) -> Result<()> {
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (certificate, key) = (file(&format!("{THEIRS}.pem")), file(&format!("{THEIRS}.key")));
    let words = ["pkcs12", "-export", "-in", &certificate, "-inkey", &key, "-name", THEIRS];
    let bundle = guest.openssl(&[&words[..], &["-passout", "pass:bundle"]].concat(), b"")?;
    guest.write_bytes("/etc/theirs.p12", &bundle)?;
    guest.write("/etc/authority.pem", &std::fs::read_to_string(file("authority.pem"))?)?;
    let database = "-d sql:/var/lib/ipsec/nss";
    guest.run(&format!(
        "/usr/bin/certutil -A {database} -n authority -t CT,, -a -i /etc/authority.pem"
    ))?;
    guest.run(&format!("/usr/bin/pk12util -i /etc/theirs.p12 {database} -W bundle -K '' 2>&1"))?;
    Ok(())
}

impl Drop for Pluto<'_> {
    fn drop(&mut self) {
        let _ = self.guest.machine.run(
            "kill -9 $(cat /pluto.pid) 2>/dev/null; wait $(cat /pluto.pid) 2>/dev/null; \
             /ip xfrm state flush; /ip xfrm policy flush",
        );
    }
}

fn configuration(link: &Link, trial: Trial) -> String {
    let liveness =
        if trial == Trial::LivenessByThem { "\tdpddelay=1\n\tdpdtimeout=30\n" } else { "" };
    // with `yes` it takes itself for a host behind a NAT, and then ignores UPDATE_SA_ADDRESSES; our
    // gateway says that it is behind one itself, which is enough for ESP in UDP. It has MOBIKE with
    // peers of any address alone.
    let ours = link.seen[0].to_string();
    let (path, ours) = match trial {
        Trial::WeMove => ("encapsulation=auto\n\tmobike=yes", "%any"),
        _ => ("encapsulation=yes", &*ours),
    };
    let proof = match trial.certificates() {
        None => "\tauthby=secret\n".to_owned(),
        Some(kind) => {
            let method = if kind == KeyKind::Rsa { "rsa-sha2" } else { "ecdsa" };
            format!(
                "\tauthby={method}\n\tleftcert={THEIRS}\n\tleftsendcert=always\n\trightca=%same\n"
            )
        }
    };
    format!(
        "config setup\n\
         \tnssdir=/var/lib/ipsec/nss\n\
         \tuniqueids=no\n\
         \tplutodebug=base\n\
         conn join\n\
         \tleft={}\n\
         \tleftid=@{}\n\
         \tleftsubnet={}/32\n\
         \tright={}\n\
         \trightid=@{}\n\
         \trightsubnet={}/32\n\
         {proof}\
         \tike=aes_gcm256-sha2_384-dh31\n\
         \tesp=aes_gcm256\n\
         \t{path}\n\
         \tleftupdown=%disabled\n\
         {liveness}\
         \tauto=add\n",
        link.outer[1], NAMES[1], link.inner[1], ours, NAMES[0], link.inner[0]
    )
}
