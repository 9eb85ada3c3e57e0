//! IPsec by strongSwan: IKEv2 (RFC 7296), and ESP (RFC 4303) by the kernel where it
//! can, else in UDP (RFC 3948) by strongSwan's own library in user space.

mod connection;
mod daemon;
mod options;

use std::sync::Arc;
use std::time::Duration;

use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::{Host, last_lines};
use headroom_lab_host::programs::{IP, Program};
use headroom_lab_host::testbed::Family;

use super::{KeyUpdates, Layer, LayerKind, Place, kernel};
use crate::catalogue::{Entry, Fact, Make};
use crate::properties::Properties;
use connection::{connection, make_certificates};
use daemon::{CHARON, SWANCTL};
use options::{Parameters, Proof};

struct StrongSwan(Parameters);

/// How often the first set-up is tried before its error counts.
const TRIES: u32 = 5;
const BETWEEN_TRIES: Duration = Duration::from_millis(200);

pub(super) const ENTRY: Entry<dyn Layer> = Entry {
    name: "strongswan",
    about: "IPsec, IKEv2 and ESP, AES-128-GCM: strongSwan both sides, ESP by the kernel where it can",
    programs: &[CHARON, SWANCTL],
    make: Make::Configured {
        known: options::known,
        read: |options| {
            let parameters = Parameters::read(options)?;
            Ok((parameters.written(), Arc::new(StrongSwan(parameters))))
        },
    },
};

impl Layer for StrongSwan {
    fn properties(&self) -> Option<Properties> {
        Some(Properties { post_quantum: self.0.post_quantum, ..Properties::TUNNEL })
    }

    fn kind(&self) -> LayerKind {
        LayerKind::Network
    }

    fn require(&self) -> Result<()> {
        if self.0.post_quantum { daemon::require_post_quantum() } else { Ok(()) }
    }

    fn in_kernel(&self) -> bool {
        kernel::has_esp()
    }

    fn needs(&self, all: &'static [Program]) -> &'static [Program] {
        if self.0.post_quantum { &[] } else { all }
    }

    /// IP, ESP header and IV, padding to 4 bytes with its two of trailer, and the
    /// ICV; in user space UDP as well. kernel-libipsec reads no more than 1400 bytes
    /// from its interface (libipsec's `TUN_DEFAULT_MTU`): what is longer is cut.
    fn inner_mtu(&self, outer: u32, family: Family) -> u32 {
        let ip = if family == Family::Ipv6 { 40 } else { 20 };
        let (udp, longest) = if self.in_kernel() { (0, u32::MAX) } else { (8, 1400) };
        let encrypted = outer.saturating_sub(ip + udp + 8 + 8 + 16);
        ((encrypted & !3).saturating_sub(2)).min(longest)
    }

    /// kernel-libipsec takes the next free name.
    fn interface(&self, _number: u16, nth: u16) -> String {
        format!("ipsec{nth}")
    }

    fn start(&self, place: &Place<'_>) -> Result<()> {
        if let Proof::Certificate(kind) = self.0.proof {
            make_certificates(place, kind)?;
        }
        for host in place.hosts() {
            if self.0.post_quantum {
                daemon::require_post_quantum_on(place, host)?;
            }
            let settings =
                place.write(host, "strongswan.conf", &daemon::settings(&self.0, place, host))?;
            place.write(host, "swanctl.conf", &connection(&self.0, place, host))?;
            place.start(host, daemon::start(&self.0, host, &settings)?)?;
            if self.in_kernel() {
                let id = place.at.number.to_string();
                let interface = place.at.interface.as_str();
                place.run(host, IP, ["link", "add", interface, "type", "xfrm", "if_id", &id])?;
            }
            place.until(host, "its interface", || {
                Ok(place.has_interface(host) && self.swanctl(place, host, &["--stats"]).is_ok())
            })?;
            place.configure_interface(host)?;
            if !self.in_kernel() {
                prefer_main_table(place, host)?;
            }
            let file = place.path(host, "swanctl.conf");
            self.swanctl(place, host, &["--load-all", "--noprompt", "--file", &file])?;
        }
        self.establish_first(place)
    }

    fn tear_down(&self, place: &Place<'_>) -> Result<()> {
        // The answer is not waited for: the other side has forgotten all by then
        // and sends none again. Where DELETE itself is lost, INITIAL_CONTACT ends what it
        // has (RFC 7296 §2.4).
        let words = ["--terminate", "--ike", "lab", "--force"];
        self.swanctl(place, place.client, &words).map(drop)
    }

    fn establish(&self, place: &Place<'_>) -> Result<()> {
        let words = ["--initiate", "--child", "lab", "--timeout", "15"];
        let tried = self.swanctl(place, place.client, &words);
        // what `swanctl` prints names no reason
        tried.map(drop).map_err(|error| {
            let said = place.hosts().map(|host| {
                let log = host.server(&place.at.daemon(), 0).map(|state| last_lines(&state.log));
                format!("the {}'s daemon last said: {}", host.role, log.unwrap_or_default())
            });
            Error::Failed(format!("{error}; {}", said.join("; ")))
        })
    }

    fn resume(&self, place: &Place<'_>) -> Result<()> {
        if self.0.rekey.is_none() {
            return Ok(());
        }
        self.swanctl(place, place.client, &["--counters", "--reset"]).map(drop)
    }

    fn key_updates(&self, place: &Place<'_>) -> Result<Option<KeyUpdates>> {
        let Some(interval) = self.0.rekey else { return Ok(None) };
        let printed = self.swanctl(place, place.client, &["--counters"])?;
        Ok(Some(KeyUpdates { count: child_rekeys(&printed)?, interval: interval.bytes() }))
    }

    fn facts(&self) -> Vec<Fact> {
        let by = if self.in_kernel() {
            "ESP, tunnel mode, by the kernel"
        } else {
            "ESP in UDP, tunnel mode, by kernel-libipsec in user space"
        };
        let program = self.0.post_quantum.then(|| {
            let version = daemon::post_quantum_version();
            ("program", format!("strongSwan {version}, of another Debian release"))
        });
        let facts = [
            ("encryption", by.to_owned()),
            ("cipher", "AES-128-GCM, 16 bytes of ICV".to_owned()),
            ("key exchange", self.0.exchange()),
            ("rekeying", self.0.updates()),
        ];
        program.into_iter().chain(facts).collect()
    }
}

impl StrongSwan {
    /// Sets the layer up for the first time. A daemon learns of its interface's address from
    /// the kernel by and by, and until then installs no route.
    fn establish_first(&self, place: &Place<'_>) -> Result<()> {
        for _ in 0..TRIES {
            if self.establish(place).is_ok() {
                return Ok(());
            }
            // an IKE SA without a child stays, or there is none
            let _ = self.tear_down(place);
            std::thread::sleep(BETWEEN_TRIES);
        }
        self.establish(place)
    }

    fn swanctl(&self, place: &Place<'_>, host: &Host, words: &[&str]) -> Result<String> {
        daemon::swanctl(&self.0, place, host, words)
    }
}

/// Reads how many CHILD SAs were rekeyed, of what `swanctl --counters` prints.
fn child_rekeys(printed: &str) -> Result<u64> {
    let count = printed.lines().find_map(|line| {
        let (name, count) = line.split_once(':')?;
        (name.trim() == "child-rekey").then(|| count.trim().parse().ok()).flatten()
    });
    count.ok_or_else(|| Error::Failed(format!("`swanctl --counters` printed {printed}")))
}

/// kernel-libipsec's own route, in a table that is asked earlier than the main one,
/// knows nothing of congestion control.
fn prefer_main_table(place: &Place<'_>, host: &Host) -> Result<()> {
    let far = place.seen_from(host).far_inner;
    let version = if far.is_ipv4() { "-4" } else { "-6" };
    let far = far.to_string();
    let rule = [version, "rule", "add", "pref", "100", "to", &far, "lookup", "main"];
    place.run(host, IP, rule).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_how_often_children_were_rekeyed() {
        let printed =
            "global:\n  ike-rekey-init        : 1\n  child-rekey           : 12\n  invalid : 0\n";
        assert!(matches!(child_rekeys(printed), Ok(12)));
        for printed in ["", "child-rekey", "  child-rekey : many"] {
            assert!(child_rekeys(printed).is_err(), "{printed}");
        }
    }
}
