//! A tunnel as it is configured. A [`Config`] that exists can be loaded; every
//! mistake is told with file, line and what to do about it. docs/tunnel.md is
//! the reference.

mod associations;
mod checks;
mod file;
pub mod keygen;
mod options;
mod plain;
mod policies;
mod scalar;
mod selectors;

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use headroom_ipsec::spec::{Direction, Protection, SaSpec};
use headroom_ipsec::{PolicySpec, Protocol};
use headroom_suite::Fingerprint;
use toml::Spanned;
use zeroize::Zeroizing;

use crate::ledger::{self, Account, Way};

/// Octets that a configuration may have.
const MOST_OCTETS: u64 = 64 << 20;
/// Security associations that a configuration may have.
pub const MOST_ASSOCIATIONS: usize = 100_000;
/// Policies that a configuration may have.
pub const MOST_POLICIES: usize = 10_000;
/// Octets that a file with a key may have.
const MOST_KEY_OCTETS: u64 = 4096;

/// Everything a gateway needs to know, checked.
#[derive(Debug)]
pub struct Config {
    /// The tunnel's name, and that of its TUN interface.
    pub name: String,
    /// Addresses of the TUN interface, each with its prefix length.
    pub addresses: Vec<(IpAddr, u8)>,
    /// MTU of the TUN interface, in octets; none: computed.
    pub mtu: Option<u32>,
    /// MTU of the path between the gateways, in octets; none: learned.
    pub path_mtu: Option<u32>,
    /// Queues, each served by one thread out and one in.
    pub queues: usize,
    /// Seconds between keepalives on ESP in UDP; 0: none (RFC 3948, section 4).
    pub keepalive_seconds: u64,
    /// Whether the segment size that TCP announces through a tunnel is lowered to
    /// what passes.
    pub clamp_mss: bool,
    /// Where the ledger is.
    pub ledger: ledger::Place,
    /// Security associations.
    pub associations: Vec<Association>,
    /// Policies, in order.
    pub policies: Vec<PolicySpec>,
    /// What is allowed, but should be known: sentences.
    pub warnings: Vec<String>,
    /// Files that keys were read from.
    pub key_files: Vec<PathBuf>,
}

/// A security association and what the gateway does with it.
#[derive(Debug)]
pub struct Association {
    /// What the engine is built of.
    pub spec: SaSpec,
    /// Dummy packets a second while there is nothing to send; 0: none.
    pub dummies_per_second: u32,
    /// Whether the outer packet is to be padded to the path's MTU, whatever it
    /// turns out to be.
    pub pad_to_path_mtu: bool,
    /// The line of the configuration that it begins with.
    pub line: usize,
}

/// What a configuration is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To send and receive: whatever is unsafe is refused.
    Tunnel,
    /// To open captured packets, of whatever makes them: what is unsafe is
    /// loaded with a warning.
    Decode,
}

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Something in it cannot be.
    #[error("{}:{line}: {message}", origin.display())]
    At {
        /// The file.
        origin: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong and what to do.
        message: String,
    },
    /// It cannot be read at all, or should not be.
    #[error("{0}")]
    Unreadable(String),
}

/// The text of a configuration. It can be parsed more than once: keys are not
/// copied, and who makes an engine of a configuration gives its keys away.
pub struct Source {
    path: PathBuf,
    text: Zeroizing<String>,
}

impl Source {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or others can read it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Ok(Self { path: path.to_owned(), text: read_secret(path, MOST_OCTETS)? })
    }

    /// Parses it, and reads the key files that it names.
    ///
    /// # Errors
    /// It asks for something that cannot be, or a key file cannot be read, or
    /// can be by others.
    pub fn parse(&self, purpose: Purpose) -> Result<Config, Error> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let key_files = RefCell::new(Vec::new());
        let config = Config::parse_with(&self.text, &self.path, purpose, |file| {
            let path = folder.join(file);
            let key = read_secret(&path, MOST_KEY_OCTETS).map_err(|error| error.to_string())?;
            key_files.borrow_mut().push(path);
            Ok(key)
        })?;
        Ok(Config { key_files: key_files.into_inner(), ..config })
    }
}

impl Config {
    /// Reads a configuration and the key files that it names.
    ///
    /// # Errors
    /// As [`Source::read`] and [`Source::parse`].
    pub fn read(path: &Path, purpose: Purpose) -> Result<Self, Error> {
        Source::read(path)?.parse(purpose)
    }

    /// Parses a configuration for a tunnel that names no key files, without
    /// touching a disk. `origin` is what errors call it.
    ///
    /// # Errors
    /// It asks for something that cannot be.
    pub fn parse(text: &str, origin: &Path) -> Result<Self, Error> {
        Self::parse_with(text, origin, Purpose::Tunnel, |_| {
            Err("key files are not read here; write `key`".into())
        })
    }

    /// Parses a configuration; `read_key` gives the content of a key file.
    ///
    /// # Errors
    /// It asks for something that cannot be, or `read_key` fails.
    pub fn parse_with(
        text: &str,
        origin: &Path,
        purpose: Purpose,
        read_key: impl Fn(&Path) -> Result<Zeroizing<String>, String>,
    ) -> Result<Self, Error> {
        let refused = |at: usize, message: String| Error::At {
            origin: origin.to_owned(),
            line: line_of(text, at),
            message,
        };
        // the whole error would quote the line, and with it a key
        let file: file::ConfigFile = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            refused(at, plain::message(text, at, error.message()))
        })?;
        let reader = Reader { text, purpose, read_key: &read_key };
        reader.config(file, origin).map_err(|At { at, message }| refused(at, message))
    }

    /// The IP protocol number of its Q-ESP associations, if it has any.
    pub fn qesp_number(&self) -> Option<u8> {
        self.associations.iter().find_map(|association| {
            match association.spec.protection.protocol() {
                Protocol::QEsp(number) => Some(number),
                Protocol::Esp | Protocol::Ah => None,
            }
        })
    }

    /// The accounts that the ledger must have, each with its SA's name.
    pub fn accounts(&self) -> Vec<(Account, &str)> {
        let accounts = self.associations.iter().map(|a| (account(&a.spec), a.spec.name.as_str()));
        accounts.collect()
    }
}

/// The ledger's account of an association: sequence numbers must not repeat
/// under the key that authenticates them. (With separate integrity that is the
/// integrity key; the cipher's IVs are random.)
pub fn account(spec: &SaSpec) -> Account {
    let way = match spec.direction {
        Direction::Out => Way::Out,
        Direction::In => Way::In,
    };
    Account { way, key: *authenticating_key(&spec.protection).as_bytes() }
}

fn authenticating_key(protection: &Protection) -> Fingerprint {
    match protection {
        Protection::Ah { key, .. } => key.fingerprint(),
        Protection::Esp(secrets) | Protection::QEsp { secrets, .. } => {
            secrets.mac_key.as_ref().unwrap_or(&secrets.key).fingerprint()
        }
    }
}

/// Reads a file that nobody else may read.
fn read_secret(path: &Path, most: u64) -> Result<Zeroizing<String>, Error> {
    let shown = path.display();
    let cannot = |why: String| Error::Unreadable(format!("cannot read {shown}: {why}"));
    let file = File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => cannot(format!(
            "{error}. The gateway gives up root's right to pass over permissions: the file must belong to root"
        )),
        _ => cannot(error.to_string()),
    })?;
    let about = file.metadata().map_err(|error| cannot(error.to_string()))?;
    if !about.is_file() {
        return Err(cannot("it is not a file".into()));
    }
    let mode = about.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(Error::Unreadable(format!(
            "{shown} holds keys and can be used by others (mode {mode:04o}): run `chmod 600 {shown}`"
        )));
    }
    if about.len() > most {
        return Err(cannot(format!("it has {} octets; at most {most} are read", about.len())));
    }
    // room for all of it: growing would leave parts of keys behind
    let mut text = Zeroizing::new(String::with_capacity(about.len() as usize + 1));
    file.take(most).read_to_string(&mut text).map_err(|error| cannot(error.to_string()))?;
    Ok(text)
}

/// A message and the place in the text that it is about.
struct At {
    at: usize,
    message: String,
}

fn at<T>(spanned: &Spanned<T>, message: impl Into<String>) -> At {
    At { at: spanned.span().start, message: message.into() }
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|octet| **octet == b'\n').count()
}

/// What all parts of the reading need.
struct Reader<'a> {
    text: &'a str,
    purpose: Purpose,
    read_key: &'a dyn Fn(&Path) -> Result<Zeroizing<String>, String>,
}

impl Reader<'_> {
    fn config(&self, file: file::ConfigFile, origin: &Path) -> Result<Config, At> {
        let mut warnings = Vec::new();
        let name = tunnel_name(&file.name)?;
        let addresses =
            file.address.iter().map(interface_address).collect::<Result<Vec<_>, At>>()?;
        let mtu = file.mtu.as_ref().map(|mtu| bounded(mtu, "mtu", 576..65_536)).transpose()?;
        let path_mtu =
            file.path_mtu.as_ref().map(|mtu| bounded(mtu, "path_mtu", 576..65_536)).transpose()?;
        let queues = file.queues.as_ref().map_or(Ok(1), |n| bounded(n, "queues", 1..65))?;
        let keepalive_seconds =
            file.keepalive.as_ref().map_or(Ok(20), |n| bounded(n, "keepalive", 0..3601))?;
        if file.sa.len() > MOST_ASSOCIATIONS {
            let message = format!("there are more than {MOST_ASSOCIATIONS} [[sa]]");
            return Err(at(&file.sa[MOST_ASSOCIATIONS].name, message));
        }
        if file.policy.len() > MOST_POLICIES {
            let message = format!("there are more than {MOST_POLICIES} [[policy]]");
            return Err(at(&file.policy[MOST_POLICIES].name, message));
        }
        let known = associations::Known { path_mtu, insecure: file.allow_insecure };
        let associations = file
            .sa
            .iter()
            .map(|sa| self.association(sa, &known, &mut warnings))
            .collect::<Result<Vec<_>, At>>()?;
        checks::associations(&file.sa, &associations, self, &mut warnings)?;
        let policies = policies::read(&file.policy, &file.sa, &associations, &mut warnings)?;
        if self.purpose == Purpose::Tunnel {
            checks::families(&file, mtu, &addresses, &associations, &policies)?;
            checks::idle(&associations, &policies, &mut warnings);
        }
        let folder = origin.parent().unwrap_or(Path::new(""));
        let ledger = file.ledger.unwrap_or_else(|| format!("{name}.ledger").into());
        let ledger = ledger::Place {
            ledger: folder.join(ledger),
            witness_folder: file.witness.unwrap_or_else(|| ledger::WITNESS_FOLDER.into()),
            name: name.clone(),
        };
        Ok(Config {
            name,
            addresses,
            mtu: mtu.map(|mtu| mtu as u32),
            path_mtu: path_mtu.map(|mtu| mtu as u32),
            queues: queues as usize,
            keepalive_seconds,
            clamp_mss: file.clamp_mss.unwrap_or(true),
            ledger,
            associations,
            policies,
            warnings,
            key_files: Vec::new(),
        })
    }

    fn line<T>(&self, spanned: &Spanned<T>) -> usize {
        line_of(self.text, spanned.span().start)
    }
}

/// The kernel's names of interfaces have at most 15 octets.
fn tunnel_name(name: &Spanned<String>) -> Result<String, At> {
    let text = name.get_ref();
    let fits = (1..=15).contains(&text.len())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-.".contains(&c))
        && text.bytes().any(|c| c.is_ascii_alphanumeric())
        && !text.starts_with(['-', '.']);
    if !fits {
        let message = format!(
            "the tunnel's name is also that of an interface: 1 to 15 letters, digits, `_`, `-` and `.`, not `{}`",
            shortened(text)
        );
        return Err(at(name, message));
    }
    Ok(text.clone())
}

fn interface_address(text: &Spanned<String>) -> Result<(IpAddr, u8), At> {
    let parsed = text.get_ref().split_once('/').and_then(|(address, length)| {
        let address: IpAddr = address.parse().ok()?;
        let length: u8 = length.parse().ok()?;
        (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
    });
    parsed.ok_or_else(|| {
        let message = format!(
            "`{}` is not an address with its prefix length, such as \"10.9.0.1/24\"",
            shortened(text.get_ref())
        );
        at(text, message)
    })
}

fn bounded(number: &Spanned<u64>, what: &str, range: Range<u64>) -> Result<u64, At> {
    let value = *number.get_ref();
    if range.contains(&value) {
        return Ok(value);
    }
    let Range { start, end } = range;
    Err(at(number, format!("`{what}` is from {start} to {}, not {value}", end - 1)))
}

/// Something from a file in a message: not all of a file.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 60;
    let shown: String = text.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
    if text.chars().count() > SHOWN { shown + "…" } else { shown }
}

#[cfg(test)]
mod tests;
