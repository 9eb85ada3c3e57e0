//! Reads a configuration file and builds a [`Config`].

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use zeroize::Zeroizing;

use super::file::ConfigFile;
use super::model::{Config, Purpose};
use super::problem::{Error, Problem, excerpt, in_range, line_of, problem};
use super::reader::{Content, Reader};
use super::{checks, options, policies, toml_message};
use crate::ledger;

/// The longest configuration file in bytes.
const MAX_FILE_LEN: u64 = 64 << 20;
/// The most SAs of a configuration.
pub const MAX_ASSOCIATIONS: usize = 100_000;
/// The most policies of a configuration.
pub const MAX_POLICIES: usize = 10_000;
/// The longest key file in bytes.
const MAX_KEY_FILE_LEN: u64 = 4096;
/// The longest file of certificates in bytes.
const MAX_CERTIFICATE_FILE_LEN: u64 = 1 << 20;

/// Why only its owner may read the configuration, which may name the files of its keys instead.
const CONFIGURATION: &str = "is a tunnel's configuration, which may contain keys";
/// Why only its owner may read a file that a configuration names: keys and passwords.
const SECRET: &str = "contains a secret";

/// The text of a configuration. It can be parsed again: an engine takes the keys out of a
/// [`Config`], and keys are not copied.
pub struct Source {
    path: PathBuf,
    text: Zeroizing<String>,
}

impl Source {
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, or others can read it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Ok(Self { path: path.to_owned(), text: read_private(path, MAX_FILE_LEN, CONFIGURATION)? })
    }

    /// Parses the text, and reads the key files it names.
    ///
    /// # Errors
    /// A setting is invalid, or a key file cannot be read, or others can read it.
    pub fn parse(&self, purpose: Purpose) -> Result<Config, Error> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let key_files = RefCell::new(Vec::new());
        let config = Config::parse_with(&self.text, &self.path, purpose, |file, content| {
            let path = folder.join(file);
            let text = match content {
                Content::Secret => read_private(&path, MAX_KEY_FILE_LEN, SECRET),
                Content::Public => read_file(&path, MAX_CERTIFICATE_FILE_LEN, |_| Ok(())),
            };
            let text = text.map_err(|error| error.to_string())?;
            key_files.borrow_mut().push(path);
            Ok(text)
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

    /// Parses a configuration without key files, for a tunnel, without disk access. Errors call the
    /// file `origin`.
    ///
    /// # Errors
    /// A setting is invalid.
    pub fn parse(text: &str, origin: &Path) -> Result<Self, Error> {
        Self::parse_with(text, origin, Purpose::Tunnel, |_, _| {
            Err("key files are not supported here: use `key`".into())
        })
    }

    /// Parses a configuration; `read` returns the content of a file that it names.
    ///
    /// # Errors
    /// A setting is invalid, or `read` fails.
    pub fn parse_with(
        text: &str,
        origin: &Path,
        purpose: Purpose,
        read: impl Fn(&Path, Content) -> Result<Zeroizing<String>, String>,
    ) -> Result<Self, Error> {
        let refused = |at: usize, message: String| Error::Invalid {
            origin: origin.to_owned(),
            line: line_of(text, at),
            message,
        };
        // The whole error would quote the line, which may contain a key.
        let file: ConfigFile = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            refused(at, toml_message::message(text, at, error.message()))
        })?;
        let reader = Reader { text, purpose, read_file: &read };
        reader.config(file, origin).map_err(|Problem { offset, message }| refused(offset, message))
    }
}

/// Reads a file that only its owner may read; `why` continues the sentence that begins with its name.
fn read_private(path: &Path, most: u64, why: &str) -> Result<Zeroizing<String>, Error> {
    read_file(path, most, |mode| match mode & 0o077 {
        0 => Ok(()),
        _ => Err(format!(
            "{0} {why}, but other users can access it (mode {mode:04o}): run `chmod 600 {0}`",
            path.display()
        )),
    })
}

/// Reads a file whose permissions `check` accepts.
fn read_file(
    path: &Path,
    most: u64,
    check: impl Fn(u32) -> Result<(), String>,
) -> Result<Zeroizing<String>, Error> {
    let shown = path.display();
    let cannot = |why: String| Error::Unreadable(format!("cannot read {shown}: {why}"));
    let file = File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => cannot(format!(
            "{error}. The gateway drops root's override of permissions: the file must belong to root"
        )),
        _ => cannot(error.to_string()),
    })?;
    let about = file.metadata().map_err(|error| cannot(error.to_string()))?;
    if !about.is_file() {
        return Err(cannot("it is not a file".into()));
    }
    check(about.permissions().mode() & 0o7777).map_err(Error::Unreadable)?;
    if about.len() > most {
        return Err(cannot(format!("it has {} bytes, more than {most}", about.len())));
    }
    // Capacity for the whole file: a reallocation would leave parts of keys in memory.
    let mut text = Zeroizing::new(String::with_capacity(about.len() as usize + 1));
    file.take(most).read_to_string(&mut text).map_err(|error| cannot(error.to_string()))?;
    Ok(text)
}

impl Reader<'_> {
    fn config(&self, file: ConfigFile, origin: &Path) -> Result<Config, Problem> {
        let mut warnings = Vec::new();
        let name = tunnel_name(&file.name)?;
        let addresses =
            file.address.iter().map(interface_address).collect::<Result<Vec<_>, Problem>>()?;
        let mtu = file.mtu.as_ref().map(|mtu| in_range(mtu, "mtu", 576..65_536)).transpose()?;
        let path_mtu =
            file.path_mtu.as_ref().map(|mtu| in_range(mtu, "path_mtu", 576..65_536)).transpose()?;
        let queues = file.queues.as_ref().map_or(Ok(1), |n| in_range(n, "queues", 1..65))?;
        let keepalive_seconds =
            file.keepalive.as_ref().map_or(Ok(20), |n| in_range(n, "keepalive", 0..3601))?;
        if file.sa.len() > MAX_ASSOCIATIONS {
            let message = format!("there are more than {MAX_ASSOCIATIONS} [[sa]]");
            return Err(problem(&file.sa[MAX_ASSOCIATIONS].name, message));
        }
        if file.policy.len() > MAX_POLICIES {
            let message = format!("there are more than {MAX_POLICIES} [[policy]]");
            return Err(problem(&file.policy[MAX_POLICIES].name, message));
        }
        let tunnel = options::TunnelOptions { path_mtu, insecure: file.allow_insecure };
        let mut associations = file
            .sa
            .iter()
            .map(|sa| self.association(sa, &tunnel, &mut warnings))
            .collect::<Result<Vec<_>, Problem>>()?;
        checks::associations(&file.sa, &associations, self, &mut warnings)?;
        let mut policies = policies::read(&file.policy, &file.sa, &associations, &mut warnings)?;
        let head = (&*name, &addresses[..], queues);
        let ike = self.ike(&file, head, &mut associations, &mut policies)?;
        if self.purpose == Purpose::Tunnel {
            checks::ipv6_mtu(&file, mtu, &addresses, &associations, &policies)?;
            checks::warn_if_idle(&associations, &policies, &mut warnings);
        }
        let folder = origin.parent().unwrap_or(Path::new(""));
        let ledger = file.ledger.unwrap_or_else(|| format!("{name}.ledger").into());
        let ledger = ledger::LedgerPaths {
            ledger: folder.join(ledger),
            copy_folder: file.ledger_copy.unwrap_or_else(|| ledger::COPY_FOLDER.into()),
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
            ike,
            policies,
            warnings,
            key_files: Vec::new(),
        })
    }
}

/// An interface's name has at most 15 bytes (IFNAMSIZ).
fn tunnel_name(name: &Spanned<String>) -> Result<String, Problem> {
    let text = name.get_ref();
    let fits = (1..=15).contains(&text.len())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-.".contains(&c))
        && text.bytes().any(|c| c.is_ascii_alphanumeric())
        && !text.starts_with(['-', '.']);
    if !fits {
        let message = format!(
            "the tunnel's name must be an interface name of 1 to 15 letters, digits, `_`, `-` and `.`, not `{}`",
            excerpt(text)
        );
        return Err(problem(name, message));
    }
    Ok(text.clone())
}

fn interface_address(text: &Spanned<String>) -> Result<(IpAddr, u8), Problem> {
    let parsed = text.get_ref().split_once('/').and_then(|(address, length)| {
        let address: IpAddr = address.parse().ok()?;
        let length: u8 = length.parse().ok()?;
        (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
    });
    parsed.ok_or_else(|| {
        let message = format!(
            "`{}` is not an address with its prefix length, such as \"10.9.0.1/24\"",
            excerpt(text.get_ref())
        );
        problem(text, message)
    })
}
