//! Makes a pair of configurations with their ledgers. Keys and SPIs are random and unused, so the
//! first `up` needs no `--new-keys`.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use headroom_suite::{Key, KeyError, Mac, Suite};
use zeroize::Zeroizing;

pub use super::keygen_pool::{Peers, PoolRequest};
use super::model::Config;
use crate::ledger::{self, Ledger};

/// The settings of a new pair.
#[derive(Debug, Clone)]
pub struct Request {
    /// The name of the tunnel and its interface, at both ends.
    pub name: String,
    /// The outer address of the first end.
    pub left: IpAddr,
    /// The outer address of the other end.
    pub right: IpAddr,
    /// The IPsec protocol.
    pub protocol: Protocol,
    /// Tunnel mode between these networks of the first and the other end; None: transport mode
    /// between the two hosts.
    pub networks: Option<(String, String)>,
    /// The suite of ESP and Q-ESP.
    pub suite: Suite,
    /// The integrity algorithm of AH.
    pub mac: Mac,
    /// The port of ESP in UDP; None: without UDP.
    pub udp: Option<u16>,
    /// How the ends prove who they are when they negotiate their keys; none: keys from the files.
    pub ike: Option<Proof>,
    /// The folder for the files.
    pub folder: PathBuf,
}

/// The IPsec protocol of a new pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// RFC 4303.
    Esp,
    /// RFC 4302.
    Ah,
    /// AH over ESP.
    AhEsp,
    /// docs/qesp.md.
    QEsp,
}

/// How the ends of a new pair prove who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// By a pre-shared key.
    SharedKey,
    /// By certificates of an authority of their own.
    Certificates,
}

/// Why no pair was made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings are invalid.
    #[error("these options are invalid: {0}")]
    Refused(String),
    /// The system returned no random bytes.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A file cannot be written.
    #[error("cannot write {}: {cause}{}", path.display(), remedy(cause))]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// A ledger cannot be written.
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
}

impl Error {
    /// Returns the exit code for this error.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Refused(_)) { 2 } else { 1 }
    }
}

/// The end of the tunnel that a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Right,
}

impl End {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }
}

/// The keys of one SA, the same at both ends.
struct Secret {
    spi: u32,
    key: Key,
    mac_key: Option<Key>,
}

/// One layer of protection: what the SAs of both directions share.
struct Layer {
    /// The tag in the names of its SAs.
    tag: &'static str,
    protocol: &'static str,
    suite: String,
    /// The keys from left to right, and from right to left.
    secrets: [Secret; 2],
}

impl Request {
    /// Writes `left.toml`, `right.toml` and their ledgers, readable only by their owner, and
    /// returns the paths of the two configurations. Never overwrites a file.
    ///
    /// # Errors
    /// The settings are invalid, or a file exists or cannot be written.
    pub fn write(&self) -> Result<[PathBuf; 2], Error> {
        if let Some(proof) = self.ike {
            return self.write_ike(proof);
        }
        let layers = self.layers()?;
        let ends = [End::Left, End::Right].map(|end| (end, self.file(&layers, end)));
        // Parsing the new configurations finds every contradiction.
        let mut made = Vec::new();
        for (end, text) in &ends {
            let path = self.folder.join(format!("{}.toml", end.name()));
            let config =
                Config::parse(text, &path).map_err(|error| Error::Refused(error.to_string()))?;
            made.push((path, text, config));
        }
        let wrong = |path: &Path| {
            let path = path.to_owned();
            move |cause| Error::Write { path, cause }
        };
        std::fs::create_dir_all(&self.folder).map_err(wrong(&self.folder))?;
        for (path, text, config) in &made {
            let ledger = &config.ledger.ledger;
            if ledger.exists() {
                let there = io::Error::from(io::ErrorKind::AlreadyExists);
                return Err(wrong(ledger)(there));
            }
            write_new(path, text).map_err(wrong(path))?;
            let key_ids: Vec<_> = config.key_ids().into_iter().map(|(key_id, _)| key_id).collect();
            Ledger::create(ledger, &key_ids, ledger::random_id())?;
        }
        let [left, right] = ends.map(|(end, _)| self.folder.join(format!("{}.toml", end.name())));
        Ok([left, right])
    }

    fn layers(&self) -> Result<Vec<Layer>, Error> {
        let cipher = |tag, protocol| -> Result<Layer, Error> {
            let (key, mac_key) = (self.suite.key_len(), self.suite.mac_key_len());
            Ok(Layer {
                tag,
                protocol,
                suite: self.suite.to_string(),
                secrets: [secret(key, mac_key)?, secret(key, mac_key)?],
            })
        };
        let ah = || -> Result<Layer, Error> {
            let len = self.mac.key_len();
            Ok(Layer {
                tag: "ah",
                protocol: "ah",
                suite: self.mac.to_string(),
                secrets: [secret(len, 0)?, secret(len, 0)?],
            })
        };
        match self.protocol {
            Protocol::Esp => Ok(vec![cipher("esp", "esp")?]),
            Protocol::QEsp => Ok(vec![cipher("qesp", "qesp")?]),
            Protocol::Ah => Ok(vec![ah()?]),
            Protocol::AhEsp => Ok(vec![cipher("esp", "esp")?, ah()?]),
        }
    }

    fn file(&self, layers: &[Layer], end: End) -> Zeroizing<String> {
        // Capacity for the whole text: a reallocation would leave parts of keys in memory.
        let mut text = Zeroizing::new(String::with_capacity(16 << 10));
        let (here, there) = match end {
            End::Left => (self.left, self.right),
            End::Right => (self.right, self.left),
        };
        let insecure = if self.is_secure() { "" } else { "allow_insecure = true\n" };
        let _ = write!(
            text,
            "# The {} end of a tunnel between {} and {} (docs/tunnel.md). It contains keys, so\n\
             # keep it secret. Use the keys only for these two ends, together with the ledger.\n\
             name = \"{}\"\nledger = \"{}.ledger\"\n{insecure}",
            end.name(),
            self.left,
            self.right,
            self.name,
            end.name()
        );
        let mut names = [Vec::new(), Vec::new()];
        for (place, layer) in layers.iter().enumerate() {
            // Directions as seen from the left end.
            let directions = match end {
                End::Left => ["out", "in"],
                End::Right => ["in", "out"],
            };
            for (direction, secret) in directions.into_iter().zip(&layer.secrets) {
                let (source, destination) =
                    if direction == "out" { (here, there) } else { (there, here) };
                let name = format!("{direction}-{}", layer.tag);
                let mode =
                    if self.networks.is_some() && place == 0 { "tunnel" } else { "transport" };
                let _ = write!(
                    text,
                    "\n[[sa]]\nname = \"{name}\"\ndirection = \"{direction}\"\nprotocol = \"{}\"\nmode = \"{mode}\"\n\
                     spi = {:#010x}\nsource = \"{source}\"\ndestination = \"{destination}\"\nsuite = \"{}\"\n",
                    layer.protocol, secret.spi, layer.suite
                );
                write_key(&mut text, "key", Some(&secret.key));
                write_key(&mut text, "integrity_key", secret.mac_key.as_ref());
                if let Some(port) = self.udp.filter(|_| layer.protocol != "ah") {
                    let _ = writeln!(text, "udp = {{ source = {port}, destination = {port} }}");
                    if direction == "in" && mode == "tunnel" {
                        text.push_str(
                            "# If the other end is behind a NAT or changes its address, remove the `#`:\n\
                             # follow_peer = true\n",
                        );
                    }
                }
                names[usize::from(direction == "in")].push(name);
            }
        }
        let (local, remote) = match (&self.networks, end) {
            (Some((left, right)), End::Left) => (left.clone(), right.clone()),
            (Some((left, right)), End::Right) => (right.clone(), left.clone()),
            (None, _) => (here.to_string(), there.to_string()),
        };
        if self.networks.is_none() {
            text.push_str(
                "\n# The tunnel protects all traffic between the two hosts. While only one end is up, they cannot\n# communicate.\n\
                 # To leave SSH out, remove the marks from these lines, at both ends:\n\
                 # [[policy]]\n# name = \"ssh-in\"\n# action = \"bypass\"\n# protocol = \"tcp\"\n# local_port = 22\n\
                 # [[policy]]\n# name = \"ssh-out\"\n# action = \"bypass\"\n# protocol = \"tcp\"\n# remote_port = 22\n",
            );
        }
        let _ = write!(
            text,
            "\n[[policy]]\nname = \"protected\"\naction = \"protect\"\nlocal = \"{local}\"\nremote = \"{remote}\"\n\
             out = {:?}\nin = {:?}\n",
            names[0], names[1]
        );
        text
    }

    fn is_secure(&self) -> bool {
        let cipher = self.protocol == Protocol::Ah || self.suite.is_secure();
        let mac = matches!(self.protocol, Protocol::Esp | Protocol::QEsp) || self.mac.is_secure();
        cipher && mac
    }
}

fn secret(key: usize, mac_key: usize) -> Result<Secret, Error> {
    let spi = loop {
        let drawn = Key::generate(4)?;
        let number =
            drawn.as_bytes().iter().fold(0, |number, octet| number << 8 | u32::from(*octet));
        // Lower SPIs are reserved (RFC 4303, section 2.1).
        if number >= 256 {
            break number;
        }
    };
    let mac_key = (mac_key > 0).then(|| Key::generate(mac_key)).transpose()?;
    Ok(Secret { spi, key: Key::generate(key)?, mac_key })
}

fn write_key(text: &mut Zeroizing<String>, field: &str, key: Option<&Key>) {
    if let Some(key) = key.filter(|key| !key.is_empty()) {
        let _ = writeln!(text, "{field} = \"{}\"", *key.to_hex());
    }
}

fn remedy(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AlreadyExists => {
            ". keygen overwrites no file: choose another folder with --out, or move the files"
        }
        _ => "",
    }
}

pub(super) fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use headroom_ipsec::spec::Direction;
    use tempfile::TempDir;

    use super::*;
    use crate::config::Purpose;
    use crate::ledger::KeyId;

    /// A request to write to a folder that is not there yet.
    fn request(ground: &TempDir, name: &str) -> Request {
        Request {
            name: "hr0".into(),
            left: "192.0.2.1".parse().expect("an address"),
            right: "192.0.2.2".parse().expect("an address"),
            protocol: Protocol::Esp,
            networks: Some(("10.1.0.0/16".into(), "10.2.0.0/16".into())),
            suite: "aes-128-gcm".parse().expect("a suite"),
            mac: Mac::HmacSha256,
            udp: None,
            ike: None,
            folder: ground.path().join(name),
        }
    }

    fn read(paths: &[PathBuf; 2]) -> [Config; 2] {
        [0, 1].map(|end| Config::read(&paths[end], Purpose::Tunnel).expect("a configuration"))
    }

    #[test]
    fn both_ends_can_be_loaded_and_match() {
        let ground = tempfile::tempdir().expect("a folder");
        let gcm = request(&ground, "x").suite;
        let cbc: Suite = "aes-256-cbc+hmac-sha512".parse().expect("a suite");
        let des: Suite = "3des-cbc+hmac-md5".parse().expect("a suite");
        for (index, (protocol, suite, tunnel, udp)) in [
            (Protocol::Esp, gcm, true, Some(4500)),
            (Protocol::Esp, cbc, false, None),
            (Protocol::Esp, des, true, None),
            (Protocol::Ah, gcm, true, None),
            (Protocol::AhEsp, cbc, true, None),
            (Protocol::AhEsp, gcm, false, None),
            (Protocol::QEsp, gcm, true, None),
        ]
        .into_iter()
        .enumerate()
        {
            let mut request =
                Request { protocol, suite, udp, ..request(&ground, &index.to_string()) };
            if !tunnel {
                request.networks = None;
            }
            let paths = request.write().expect("a pair");
            let [left, right] = read(&paths);
            for sa in &left.associations {
                let spec = &sa.spec;
                let other = right.associations.iter().find(|other| other.spec.spi == spec.spi);
                let other = &other.expect("the other end has it").spec;
                assert_ne!(other.direction, spec.direction);
                assert_eq!((other.source, other.destination), (spec.source, spec.destination));
                assert_eq!(KeyId::of(other).key, KeyId::of(spec).key);
            }
            for (config, path) in [(&left, &paths[0]), (&right, &paths[1])] {
                let place = ledger::LedgerPaths {
                    copy_folder: request.folder.join("w"),
                    ..config.ledger.clone()
                };
                let ledger =
                    Ledger::open(&place, &config.key_ids(), false).expect("no promise is needed");
                assert_eq!(ledger.number(config.key_ids()[0].0), Some(0));
                let mode = std::fs::metadata(path).expect("a file").permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
            }
            let outs = left
                .key_ids()
                .iter()
                .filter(|(key_id, _)| key_id.direction == Direction::Out)
                .count();
            assert_eq!(outs * 2, left.associations.len());
            assert_eq!(left.warnings.is_empty(), suite.is_secure() || protocol == Protocol::Ah);
        }
    }

    #[test]
    fn makes_a_new_pair_each_time_and_overwrites_none() {
        let ground = tempfile::tempdir().expect("a folder");
        let (one, two) = (request(&ground, "one"), request(&ground, "two"));
        let paths = one.write().expect("a pair");
        let other = two.write().expect("a pair");
        assert_ne!(
            std::fs::read(&paths[0]).expect("a file"),
            std::fs::read(&other[0]).expect("a file")
        );
        assert!(
            one.write()
                .expect_err("it is there")
                .to_string()
                .contains("choose another folder with --out")
        );
        std::fs::remove_file(&paths[0]).expect("removed");
        let error = one.write().expect_err("its ledger is there").to_string();
        assert!(error.contains("left.ledger"), "{error}");
    }

    #[test]
    fn refuses_invalid_options_and_writes_nothing() {
        let ground = tempfile::tempdir().expect("a folder");
        let wrong = [
            Request { udp: Some(4500), protocol: Protocol::QEsp, ..request(&ground, "udp") },
            Request {
                suite: "null+hmac-sha256".parse().expect("a suite"),
                protocol: Protocol::QEsp,
                ..request(&ground, "null")
            },
            Request {
                networks: Some(("10.1.0.0/16".into(), "fd00::/8".into())),
                ..request(&ground, "families")
            },
            Request {
                networks: Some(("10.1.0.1/16".into(), "any".into())),
                ..request(&ground, "bits")
            },
            Request { name: "no/name".into(), ..request(&ground, "name") },
        ];
        for request in wrong {
            let error = request.write().expect_err("refused").to_string();
            assert!(error.starts_with("these options are invalid"), "{error}");
            assert!(!request.folder.exists());
        }
    }

    #[test]
    fn certificates_are_read_and_what_is_wrong_with_them_is_said() {
        let ground = tempfile::tempdir().expect("a folder");
        let request =
            Request { ike: Some(Proof::Certificates), ..request(&ground, "certificates") };
        let paths = request.write().expect("files");
        let [config, _] = read(&paths);
        assert_eq!(config.ike[0].local_id.to_string(), "left.hr0", "the name in the certificate");
        let remote = config.ike[0].remote_id.as_ref().map(ToString::to_string);
        assert_eq!(remote.as_deref(), Some("right.hr0"));
        assert_eq!(config.key_files.len(), 3);
        let text = std::fs::read_to_string(&paths[0]).expect("a configuration");
        for (from, to, words) in [
            ("\"left.key\"", "\"right.key\"", "does not belong to the certificate"),
            ("\"left.key\"", "\"left.pem\"", "no private key in PEM"),
            ("\"left.pem\"", "\"left.key\"", "no certificate in PEM"),
            ("\"hr0-ca.pem\"", "\"none.pem\"", "No such file"),
            ("ca_file", "crl_file = \"left.pem\"\nca_file", "no revocation list in PEM"),
        ] {
            std::fs::write(&paths[0], text.replacen(from, to, 1)).expect("written");
            let error = Config::read(&paths[0], Purpose::Tunnel).map(|_| ());
            let error = error.expect_err("a refusal").to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
