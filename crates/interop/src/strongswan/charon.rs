//! Runs strongSwan: a daemon in a namespace, whose log holds the keys.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use headroom_lab_host::programs::{Located, Origin};

use super::{CHARON, SWANCTL};
use crate::namespace::Namespace;
use crate::peer::{self, Peers};
use crate::tree::Tree;

/// Timeout of a daemon's start.
const START: Duration = Duration::from_secs(20);

/// Where strongSwan is.
#[derive(Debug)]
pub(crate) enum Installation {
    /// Programs of the system or of the cache.
    Programs {
        /// `charon-systemd`.
        daemon: Located,
        /// `swanctl`.
        swanctl: Located,
    },
    /// A tree that is entered by chroot.
    Tree(Tree),
}

/// A running daemon. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Charon {
    child: Child,
    /// `swanctl`; none: that of the daemon's tree.
    swanctl: Option<Located>,
    folder: PathBuf,
    name: &'static str,
}

/// The result of a negotiation.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Keys of what the initiator sends.
    pub(crate) initiator: Secret,
    /// Keys of what the responder sends.
    pub(crate) responder: Secret,
    pub(crate) spi_from_initiator: u32,
    pub(crate) spi_to_initiator: u32,
}

/// Keys of one direction.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Secret {
    /// The encryption key; an AEAD's includes its salt.
    pub(crate) encryption: Vec<u8>,
    /// The key of a separate integrity algorithm.
    pub(crate) integrity: Vec<u8>,
}

/// What a daemon is started with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings<'a> {
    /// Its connections and secrets.
    pub(crate) swanctl_conf: &'a str,
    /// The length of IP packets above which it sends fragments (RFC 7383).
    pub(crate) fragment_size: u32,
}

/// strongSwan's own [`Settings::fragment_size`].
pub(crate) const FRAGMENT_SIZE: u32 = 1280;

impl Installation {
    /// Finds strongSwan on the system or in the cache.
    ///
    /// # Errors
    /// It is missing.
    pub(crate) fn programs(peers: &Peers) -> Result<Self> {
        Ok(Self::Programs { daemon: peers.locate(CHARON)?, swanctl: peers.locate(SWANCTL)? })
    }
}

impl Charon {
    /// Starts a daemon; it uses the ports 500 and 4500.
    ///
    /// # Errors
    /// It does not start; the error holds its log.
    pub(crate) fn start(
        installation: &Installation,
        folder: &Path,
        name: &'static str,
        namespace: &Namespace,
        Settings { swanctl_conf, fragment_size }: Settings<'_>,
    ) -> Result<Self> {
        let file = |suffix: &str| folder.join(format!("{name}.{suffix}"));
        let (settings, log) = (file("strongswan.conf"), file("log"));
        std::fs::write(&settings, strongswan_conf(folder, name, fragment_size))?;
        std::fs::write(file("swanctl.conf"), swanctl_conf)?;
        let (mut command, swanctl) = match installation {
            Installation::Programs { daemon, swanctl } => {
                let script = script(daemon);
                let mut command = namespace.command(&["unshare", "--mount", "sh", "-c", &script]);
                command.arg(&daemon.path).envs(&daemon.environment);
                (command, Some(swanctl.clone()))
            }
            Installation::Tree(tree) => {
                (tree.command(namespace, folder, name, "/usr/sbin/charon-systemd")?, None)
            }
        };
        let child = command
            .env("STRONGSWAN_CONF", &settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(file("stderr"))?)
            .spawn()
            .context("starting charon-systemd")?;
        let mut charon = Self { child, swanctl, folder: folder.to_owned(), name };
        let deadline = Instant::now() + START;
        while let Err(error) = charon.swanctl(&["--stats"]) {
            if charon.child.try_wait()?.is_some() || Instant::now() > deadline {
                let read = |path| std::fs::read_to_string(path).unwrap_or_default();
                bail!(
                    "charon-systemd did not start: {error:#}: {}{}",
                    read(file("stderr")),
                    read(log)
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let connection = file("swanctl.conf").display().to_string();
        charon.swanctl(&["--load-all", "--noprompt", "--file", &connection])?;
        Ok(charon)
    }

    pub(crate) fn initiate(&self) -> Result<()> {
        self.swanctl(&["--initiate", "--child", "join", "--timeout", "15"]).map(drop)
    }

    /// Reads the initiator's log.
    pub(crate) fn keys(&self) -> Result<Keys> {
        let log = self.log()?;
        let read = |what: &str, whose: &str| dumped(&log, &format!("{what} {whose} key =>"));
        let secret = |whose| Secret {
            encryption: read("encryption", whose),
            integrity: read("integrity", whose),
        };
        let spi = |way: &str| {
            spi_of(&log, way).with_context(|| format!("no {way} SPI in strongSwan's log"))
        };
        let keys = Keys {
            initiator: secret("initiator"),
            responder: secret("responder"),
            spi_from_initiator: spi("outbound")?,
            spi_to_initiator: spi("inbound")?,
        };
        if keys.initiator.encryption.is_empty() || keys.responder.encryption.is_empty() {
            bail!("strongSwan's log has no keys");
        }
        Ok(keys)
    }

    /// Returns its log so far.
    pub(crate) fn log(&self) -> Result<String> {
        let path = self.folder.join(format!("{}.log", self.name));
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    /// Checks that its association carried as many bytes in each direction.
    pub(crate) fn carried(&self, octets: u64) -> Result<()> {
        let said = self.swanctl(&["--list-sas", "--raw"])?;
        for field in ["bytes-in", "bytes-out"] {
            let value = said
                .split_whitespace()
                .find_map(|word| word.strip_prefix(field)?.strip_prefix('=')?.parse::<u64>().ok());
            if value.is_none_or(|value| value < octets) {
                bail!(
                    "strongSwan's association says {field} {value:?}, of {octets} that were moved: {said}"
                );
            }
        }
        Ok(())
    }

    /// Runs a command of its configuration tool.
    pub(crate) fn swanctl(&self, words: &[&str]) -> Result<String> {
        let socket =
            format!("unix://{}", self.folder.join(format!("{}.vici", self.name)).display());
        let settings = self.folder.join(format!("{}.strongswan.conf", self.name));
        let mut command = match &self.swanctl {
            Some(swanctl) => peer::command(swanctl),
            None => {
                let mut command = Command::new("nsenter");
                command.args(["--mount", "--root", "--target", &self.child.id().to_string()]);
                command.arg("/usr/sbin/swanctl");
                command
            }
        };
        command.args(words).args(["--uri", &socket]).env("STRONGSWAN_CONF", settings);
        let output = command.stdin(Stdio::null()).output().context("running swanctl")?;
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        if !output.status.success() {
            bail!("swanctl {}: {}", words.join(" "), text(&output.stdout) + &text(&output.stderr));
        }
        Ok(text(&output.stdout))
    }
}

impl Drop for Charon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copies `NAME.pem`, `NAME.key` and `authority.pem` to where strongSwan looks: in folders beside its
/// configuration.
pub(crate) fn arrange(folder: &Path, name: &str) -> Result<()> {
    for (file, kind) in [
        (format!("{name}.pem"), "x509"),
        (format!("{name}.key"), "private"),
        ("authority.pem".to_owned(), "x509ca"),
    ] {
        std::fs::create_dir_all(folder.join(kind))?;
        std::fs::copy(folder.join(&file), folder.join(kind).join(&file))?;
    }
    Ok(())
}

/// Its own `/run`; and from the cache its libraries where it looks for them, as
/// the lab does it (`lab/src/layer/strongswan.rs`).
fn script(daemon: &Located) -> String {
    let mut script = "mount -t tmpfs tmpfs /run".to_owned();
    if daemon.origin == Origin::Cache
        && let Some(root) = daemon.path.ancestors().nth(3)
    {
        script += &format!(
            " && mkdir /run/real /run/links && mount --bind /usr/lib /run/real \
             && ln -s /run/real/* /run/links \
             && ln -sfn '{}/usr/lib/ipsec' /run/links/ipsec \
             && mount --bind /run/links /usr/lib",
            root.display()
        );
    }
    script + r#" && exec "$0""#
}

fn strongswan_conf(folder: &Path, name: &str, fragment_size: u32) -> String {
    let folder = folder.display();
    format!(
        "swanctl {{
  load =
}}
charon-systemd {{
  load = random drbg nonce openssl kdf ml pem pkcs1 pkcs8 pubkey x509 constraints eap-identity eap-mschapv2 eap-tls kernel-libipsec kernel-netlink socket-default vici
  port = 500
  port_nat_t = 4500
  keep_alive = 0
  fragment_size = {fragment_size}
  install_virtual_ip = no
  plugins {{
    vici {{ socket = unix://{folder}/{name}.vici }}
    kernel-libipsec {{ allow_peer_ts = yes }}
  }}
  journal {{ default = -1 }}
  filelog {{
    log {{
      path = {folder}/{name}.log
      default = 1
      chd = 4
      flush_line = yes
    }}
  }}
}}
"
    )
}

/// Reads a hex dump in the log: a title line, then lines of an
/// offset and up to 16 bytes, in hexadecimal and in ASCII.
fn dumped(log: &str, what: &str) -> Vec<u8> {
    let after = log.lines().skip_while(|line| !line.contains(what)).skip(1);
    let mut octets = Vec::new();
    for line in after {
        let Some((offset, rest)) =
            line.split_once("] ").and_then(|(_, rest)| rest.trim().split_once(": "))
        else {
            break;
        };
        if offset.parse() != Ok(octets.len()) {
            break;
        }
        // two spaces end the bytes
        let words = rest.split("  ").next().unwrap_or_default().split_whitespace();
        octets.extend(words.filter_map(|word| u8::from_str_radix(word, 16).ok()));
    }
    octets
}

fn spi_of(log: &str, way: &str) -> Option<u32> {
    let mut lines = log.lines().skip_while(|line| !line.contains(&format!("adding {way} ESP SA")));
    let line = lines.nth(1)?;
    let text = line.split_once("SPI 0x")?.1;
    u32::from_str_radix(text.split(',').next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
13[CHD] encryption initiator key => 20 bytes @ 0x562f3da70090
13[CHD]    0: 38 8A 6C EB 3F 77 48 D8 70 61 1C 1B 34 12 33 63  8.l.?wH.pa..4.3c
13[CHD]   16: 42 33 F7 02                                      B3..
13[CHD] encryption responder key => 20 bytes @ 0x562f3da70250
13[CHD]    0: 0E 49 36 71 C9 9E 7C 52 04 DC A0 DB 37 46 DB CB  .I6q..|R....7F..
13[CHD]   16: BB A0 75 DF                                      ..u.
13[CHD] adding inbound ESP SA
13[CHD]   SPI 0x1d086806, src 192.0.2.2 dst 192.0.2.1
13[CHD] adding outbound ESP SA
13[CHD]   SPI 0x39db94ec, src 192.0.2.1 dst 192.0.2.2
";

    #[test]
    fn keys_and_spis_are_read_from_a_log() {
        let key = dumped(LOG, "encryption initiator key =>");
        assert_eq!(key.len(), 20);
        assert_eq!((key[0], key[16], key[19]), (0x38, 0x42, 0x02));
        assert_eq!(dumped(LOG, "encryption responder key =>")[16..], [0xbb, 0xa0, 0x75, 0xdf]);
        assert!(dumped(LOG, "integrity initiator key =>").is_empty());
        assert_eq!(spi_of(LOG, "inbound"), Some(0x1d08_6806));
        assert_eq!(spi_of(LOG, "outbound"), Some(0x39db_94ec));
    }
}
