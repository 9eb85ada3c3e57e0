//! Finds the programs under test: on the system, or unpacked in the private cache that
//! `scripts/fetch-parts` fills.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use headroom_lab_parts::Tree;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::role::Role;

/// A program that the lab may run, and how to ask it for its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    /// Name of the executable.
    pub name: &'static str,
    /// The Debian package that has it.
    pub package: &'static str,
    /// Arguments that make it print its version.
    pub version: &'static [&'static str],
    /// The one end of the link that needs it; none: both.
    pub only_on: Option<Role>,
    /// Whether a plan names it, and `scripts/fetch-parts` has to be told its package.
    pub is_custom: bool,
}

impl Program {
    /// A program that both ends need.
    pub const fn new(
        name: &'static str,
        package: &'static str,
        version: &'static [&'static str],
    ) -> Self {
        Self { name, package, version, only_on: None, is_custom: false }
    }

    /// The same, needed on one end.
    pub const fn only_on(self, role: Role) -> Self {
        Self { only_on: Some(role), ..self }
    }

    /// One that a plan names.
    pub const fn custom(self) -> Self {
        Self { is_custom: true, ..self }
    }

    /// The word by which `scripts/fetch-parts` knows it.
    pub fn part(self) -> String {
        if self.is_custom {
            format!("{}={}", self.name, self.package)
        } else {
            self.name.to_owned()
        }
    }

    /// The error that it is nowhere.
    pub(crate) fn missing(self) -> Error {
        Error::Missing(format!(
            "the program {} is missing: run scripts/fetch-parts {} of the source tree, or install the package {}",
            self.name,
            self.part(),
            self.package
        ))
    }
}

/// Configures interfaces, addresses and routes.
pub const IP: Program = Program::new("ip", "iproute2", &["-V"]);
/// Shapes a link.
pub const TC: Program = Program::new("tc", "iproute2", &["-V"]);
/// Switches an interface's offloads.
pub const ETHTOOL: Program = Program::new("ethtool", "ethtool", &["--version"]);
/// Starts a program in a namespace.
pub const NSENTER: Program = Program::new("nsenter", "util-linux", &["--version"]);
/// Starts a program in a new namespace.
pub const UNSHARE: Program =
    Program::new("unshare", "util-linux", &["--version"]).only_on(Role::Server);
/// Mounts a file system.
pub const MOUNT: Program =
    Program::new("mount", "util-linux", &["--version"]).only_on(Role::Server);
/// Sets kernel parameters.
pub const SYSCTL: Program = Program::new("sysctl", "procps", &["--version"]);
/// Makes keys and certificates.
pub const OPENSSL: Program = Program::new("openssl", "openssl", &["version"]).only_on(Role::Server);
/// Makes the rules of a link that looks at packets' headers.
pub const NFT: Program = Program::new("nft", "nftables", &["--version"]);
/// Reaches real hosts, and is measured itself.
pub const SSH: Program = Program::new("ssh", "openssh-client", &["-V"]).only_on(Role::Client);

/// The programs that every testbed needs.
pub const TESTBED: &[Program] = &[IP, TC, ETHTOOL, NSENTER, UNSHARE, MOUNT, SYSCTL, OPENSSL];

/// The place of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// Absolute path.
    pub path: PathBuf,
    /// On the system or in the cache.
    pub origin: Origin,
    /// Variables that it needs to find its libraries; none on the system.
    pub environment: BTreeMap<String, String>,
}

/// The kinds of place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Installed.
    System,
    /// Unpacked by `scripts/fetch-parts`.
    Cache,
    /// Of the tree that `headroom lab parts` fetches.
    Pinned,
}

impl Origin {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Cache => "cache",
            Self::Pinned => "pinned",
        }
    }
}

/// The places that are searched.
#[derive(Debug, Clone)]
pub struct SearchPath {
    system: Vec<PathBuf>,
    /// Whether the system's programs are those of the pinned tree.
    is_pinned: bool,
    cache: PathBuf,
}

impl SearchPath {
    /// `PATH` and the system's `sbin` folders first, then the private cache:
    /// `$HEADROOM_PARTS`, else `headroom/parts` in the user's cache folder.
    pub fn from_environment() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let path = variable("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
        let mut system: Vec<PathBuf> = std::env::split_paths(&path).collect();
        system.extend(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
        let cache = variable("HEADROOM_PARTS").map_or_else(
            || {
                let home = || PathBuf::from(variable("HOME").unwrap_or_else(|| "/root".into()));
                variable("XDG_CACHE_HOME")
                    .map_or_else(|| home().join(".cache"), PathBuf::from)
                    .join("headroom/parts")
            },
            PathBuf::from,
        );
        let is_pinned = headroom_lab_parts::entered().is_some();
        Self { system, is_pinned, cache: cache.join("root") }
    }

    /// The pinned tree of the private cache; it may not be there.
    pub fn pinned_tree(&self) -> Tree {
        Tree::of(self.cache.parent().unwrap_or(&self.cache))
    }

    /// The cache's tree of unpacked packages; it may not be there.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// Finds a program.
    ///
    /// # Errors
    /// [`Error::Missing`] with the package that has it.
    pub fn locate(&self, program: Program) -> Result<Located> {
        self.find(program.name).ok_or_else(|| program.missing())
    }

    /// Finds the program of this name.
    pub(crate) fn find(&self, name: &str) -> Option<Located> {
        let installed = if self.is_pinned { Origin::Pinned } else { Origin::System };
        let in_system = self.system.iter().map(|folder| folder.join(name));
        in_system
            .filter(|path| is_executable(path))
            .map(|path| (path, installed))
            .chain(self.find_in_cache(name).map(|path| (path, Origin::Cache)))
            .next()
            .map(|(path, origin)| Located { path, origin, environment: self.environment(origin) })
    }

    fn find_in_cache(&self, name: &str) -> Option<PathBuf> {
        // Chromium's own folder first: what is in usr/bin starts one that is installed
        ["usr/lib/chromium", "usr/sbin", "usr/bin", "sbin", "bin"]
            .iter()
            .map(|folder| self.cache.join(folder).join(name))
            .find(|path| is_executable(path))
    }

    /// Whether the pinned tree has a program, or can start the private cache's.
    pub fn can_run_pinned(&self, program: &str) -> bool {
        let tree = self.pinned_tree();
        tree.has(program)
            || self
                .find_in_cache(program)
                .is_some_and(|path| tree.can_start(&path, &self.library_folders()))
    }

    /// Those of these programs that are missing, each once.
    pub fn missing(&self, programs: &[Program]) -> Vec<Program> {
        let mut missing: Vec<Program> =
            programs.iter().copied().filter(|&program| self.locate(program).is_err()).collect();
        missing.sort();
        missing.dedup();
        missing
    }

    /// The programs that are missing, all at once.
    ///
    /// # Errors
    /// [`Error::Missing`] with one sentence for all of them.
    pub fn require(&self, programs: &[Program]) -> Result<()> {
        let missing = self.missing(programs);
        if missing.is_empty() {
            return Ok(());
        }
        let can_fetch = cfg!(target_arch = "x86_64") && !self.pinned_tree().is_current();
        let has = |program: &Program| Tree::names_package(program.package);
        let pinned = if can_fetch && missing.iter().all(has) {
            "`headroom lab parts` (it fetches these and others), or "
        } else {
            ""
        };
        Err(Error::Missing(format!(
            "missing on this machine: {}. Run {pinned}scripts/fetch-parts {} of the source tree (it unpacks them into a private cache), or install {}",
            names(&missing).join(", "),
            parts(&missing).join(" "),
            packages(&missing).join(", ")
        )))
    }

    fn environment(&self, origin: Origin) -> BTreeMap<String, String> {
        let mut environment = BTreeMap::new();
        if origin == Origin::Cache {
            let folders: Vec<String> =
                self.library_folders().iter().map(|path| path.display().to_string()).collect();
            environment.insert("LD_LIBRARY_PATH".to_owned(), folders.join(":"));
            // a browser shows no text without fonts, and may not start
            if let Some(fonts) = self.cache.parent().map(|parts| parts.join("fonts.conf"))
                && fonts.is_file()
            {
                environment.insert("FONTCONFIG_FILE".to_owned(), fonts.display().to_string());
            }
            // strongSwan's programs do not start without one
            let strongswan = self.cache.join("etc/strongswan.conf");
            if strongswan.is_file() {
                environment.insert("STRONGSWAN_CONF".to_owned(), strongswan.display().to_string());
            }
        }
        environment
    }

    /// The version that a program prints of itself.
    pub fn version(&self, program: Program) -> Option<String> {
        self.version_of(program.name, program.version)
    }

    /// The version that the program of this name prints of itself with these arguments:
    /// its first line with one.
    pub(crate) fn version_of<S: AsRef<OsStr>>(
        &self,
        name: &str,
        arguments: &[S],
    ) -> Option<String> {
        if arguments.is_empty() {
            return None;
        }
        let located = self.find(name)?;
        let mut command = Command::new(&located.path);
        command.args(arguments).env_clear().envs(&located.environment);
        first_words(command)
            .iter()
            .flat_map(|text| text.lines())
            .map(|line| line.trim().to_owned())
            .find(|line| {
                let digit = |byte: u8| byte.is_ascii_digit();
                line.as_bytes().windows(3).any(|w| digit(w[0]) && w[1] == b'.' && digit(w[2]))
            })
    }

    fn library_folders(&self) -> Vec<PathBuf> {
        let of_the_machine: Vec<PathBuf> = ["usr/lib", "lib"]
            .iter()
            .filter_map(|folder| std::fs::read_dir(self.cache.join(folder)).ok())
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.to_string_lossy().contains("-linux-gnu"))
            .collect();
        // where an installation would link alternatives from, or a program would look
        let own = |folder: &PathBuf| {
            ["pulseaudio", "blas", "lapack"].map(|name| folder.join(name)).into_iter()
        };
        let own: Vec<PathBuf> =
            of_the_machine.iter().flat_map(own).filter(|path| path.is_dir()).collect();
        of_the_machine
            .into_iter()
            .chain(own)
            .chain(Some(self.cache.join("usr/lib/ipsec")).filter(|path| path.is_dir()))
            .collect()
    }
}

/// Runs a program and returns what it prints first to standard output and error; one that
/// does not end by itself is killed.
fn first_words(mut command: Command) -> Vec<String> {
    const PATIENCE: Duration = Duration::from_secs(10);
    const MAX_BYTES: u64 = 64 * 1024;
    // vsftpd prints its version to what should be its input
    let Ok((out, writer)) = std::io::pipe() else { return Vec::new() };
    let Ok(input) = writer.try_clone() else { return Vec::new() };
    command.stdin(input).stdout(writer).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else { return Vec::new() };
    drop(command); // with its end of the pipe
    let (out, err) = (reader(Some(out), MAX_BYTES), reader(child.stderr.take(), MAX_BYTES));
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let _ = child.wait();
    // a process that it has started may keep its output open; on a busy machine the readers are late
    let wait = Duration::from_secs(5);
    [out, err].iter().filter_map(|text| text.recv_timeout(wait).ok()).collect()
}

fn reader(stream: Option<impl Read + Send + 'static>, most: u64) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            let _ = stream.take(most).read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// The names of programs.
pub(crate) fn names(programs: &[Program]) -> Vec<&'static str> {
    programs.iter().map(|program| program.name).collect()
}

/// The words by which `scripts/fetch-parts` knows programs.
pub(crate) fn parts(programs: &[Program]) -> Vec<String> {
    programs.iter().map(|program| program.part()).collect()
}

/// The packages that have these programs, each once.
pub(crate) fn packages(programs: &[Program]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = programs.iter().map(|program| program.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
